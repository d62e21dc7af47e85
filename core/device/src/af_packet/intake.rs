//! From the kernel's frames to packets: with what their senders left undone noted on them,
//! VLAN tags put back.
use super::ring::Arrival;
use crate::RxCounters;
use crate::offload::{VIRTIO_HEADER, VirtioOffload};
use artery_packet::{BIG_FRAME, Batch, Packet, Pool};
use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, recv};

/// What makes packets of frames.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) counters: RxCounters,
    ethernet: bool,
    timestamps: bool,
    port: u16,
}

impl Intake {
    pub(super) fn new(ethernet: bool, timestamps: bool, port: u16) -> Intake {
        Intake { counters: RxCounters::default(), ethernet, timestamps, port }
    }

    /// Takes a frame from its slot.
    #[inline]
    pub(super) fn receive_frame(
        &mut self,
        pool: &'static Pool,
        arrival: &Arrival,
        frame: &[u8],
        into: &mut Batch,
    ) {
        let packet = pool.alloc_packet_for(frame.len());
        let Some(mut packet) =
            packet.and_then(|mut packet| packet.append(frame.len()).is_ok().then_some(packet))
        else {
            self.counters.pool_empty += 1;
            return;
        };
        packet.data_mut().copy_from_slice(frame);
        self.finish(packet, arrival, arrival.offload, into);
    }
    /// Takes a frame that was too long for its slot from the socket's queue.
    #[cold]
    pub(super) fn receive_queued(
        &mut self,
        pool: &'static Pool,
        socket: &OwnedFd,
        arrival: &Arrival,
        into: &mut Batch,
    ) {
        let Some(mut packet) = pool.alloc_big_packet() else {
            // Drops this frame from the queue; otherwise it would be taken for the next one.
            let _ = recv(socket, &mut [0; 0][..], RecvFlags::DONTWAIT);
            self.counters.pool_empty += 1;
            return;
        };
        let room = packet.tailroom().min(BIG_FRAME);
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let received = packet.append(room).ok().and_then(|buffer| recv(socket, buffer, flags).ok());
        match received.map(|(_, whole)| whole) {
            Some(len) if (VIRTIO_HEADER..=room).contains(&len) => {
                let offload = VirtioOffload::parse(packet.data());
                packet.truncate(len);
                if packet.strip(VIRTIO_HEADER).is_ok() {
                    self.finish(packet, arrival, offload, into);
                }
            }
            _ => self.counters.truncated += 1,
        }
    }

    /// Completes a packet with what the kernel says about its frame.
    #[inline]
    fn finish(&mut self, mut packet: Packet, arrival: &Arrival, offload: VirtioOffload, into: &mut Batch) {
        if offload.apply_to(&mut packet, self.ethernet).is_err() {
            self.counters.malformed += 1;
            return;
        }
        if let Some(tag) = arrival.vlan {
            insert_tag(&mut packet, tag);
        }
        packet.set_packet_type(arrival.packet_type);
        packet.set_in_port(self.port);
        if self.timestamps {
            packet.set_timestamp(arrival.time);
        }
        self.counters.packets += 1;
        self.counters.bytes += packet.len() as u64;
        self.counters.unfinished += u64::from(packet.has_offload());
        into.push(packet);
    }
}

/// Puts a VLAN tag behind the Ethernet addresses. A frame that has none, and a packet that cannot grow, stay
/// as they are; the pool's headroom has room for a tag.
fn insert_tag(packet: &mut Packet, tag: [u8; 4]) {
    if packet.len() < 12 || packet.prepend(4).is_err() {
        return;
    }
    let frame = packet.data_mut();
    frame.copy_within(4..16, 0);
    frame[12..16].copy_from_slice(&tag);
}
