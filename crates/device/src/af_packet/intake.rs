//! From the kernel's frames to packets that are complete: checksums finished, segments cut, VLAN tags put back.
use super::ring::Arrival;
use crate::RxCounters;
use crate::offload::{Cutter, Offload, VIRTIO_HEADER, finish_checksum};
use artery_packet::{Batch, Packet, Pool};
use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, recv};

/// Longest frame that is read from beside the ring.
const LONGEST: usize = 80 << 10;

/// What makes packets of frames.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) counters: RxCounters,
    ethernet: bool,
    timestamps: bool,
    port: u16,
    /// A long frame with its virtio-net header, while it is cut.
    long: Box<[u8]>,
    cutting: Option<Cutting>,
}

/// A long frame that has segments left.
#[derive(Debug)]
struct Cutting {
    arrival: Arrival,
    cutter: Cutter,
    len: usize,
}

impl Intake {
    pub(super) fn new(ethernet: bool, timestamps: bool, port: u16) -> Intake {
        let long = vec![0; VIRTIO_HEADER + LONGEST].into_boxed_slice();
        Intake { counters: RxCounters::default(), ethernet, timestamps, port, long, cutting: None }
    }

    /// Takes a frame from its slot.
    #[inline]
    pub(super) fn take(&mut self, pool: &'static Pool, arrival: Arrival, frame: &[u8], into: &mut Batch) {
        if arrival.offload.segments.is_some() && frame.len() <= LONGEST {
            self.long[VIRTIO_HEADER..][..frame.len()].copy_from_slice(frame);
            return self.take_long(pool, arrival, frame.len(), into);
        }
        self.deliver(pool, &arrival, frame, into);
    }
    /// Takes a frame that was too long for its slot from the socket's queue.
    #[cold]
    pub(super) fn take_queued(
        &mut self,
        pool: &'static Pool,
        socket: &OwnedFd,
        arrival: Arrival,
        into: &mut Batch,
    ) {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let received = recv(socket, &mut *self.long, flags).map(|(_, whole)| whole);
        match received {
            Ok(len) if (VIRTIO_HEADER..=self.long.len()).contains(&len) => {
                let offload = Offload::parse(&self.long);
                self.take_long(pool, Arrival { offload, ..arrival }, len - VIRTIO_HEADER, into);
            }
            _ => self.counters.truncated += 1,
        }
    }
    /// Takes the frame in `self.long`: starts to cut it, or else delivers it whole.
    fn take_long(&mut self, pool: &'static Pool, arrival: Arrival, len: usize, into: &mut Batch) {
        let long = std::mem::take(&mut self.long);
        let frame = &long[VIRTIO_HEADER..][..len];
        let cutter = arrival
            .offload
            .segments
            .and_then(|(protocol, size)| Cutter::new(frame, self.ethernet, protocol, size));
        match cutter {
            Some(cutter) => self.cutting = Some(Cutting { arrival, cutter, len }),
            None => self.deliver(pool, &arrival, frame, into),
        }
        self.long = long;
    }

    /// Cuts segments off the long frame, if there is one, until `into` has `limit` packets.
    #[inline]
    pub(super) fn cut(&mut self, pool: &'static Pool, limit: usize, into: &mut Batch) {
        if self.cutting.is_some() {
            self.cut_some(pool, limit, into);
        }
    }
    fn cut_some(&mut self, pool: &'static Pool, limit: usize, into: &mut Batch) {
        let Some(mut cutting) = self.cutting.take() else { return };
        while let Some(len) = cutting.cutter.next_len() {
            if into.len() >= limit {
                self.cutting = Some(cutting);
                return;
            }
            let Some(mut packet) = self.packet(pool, len) else { return };
            let frame = &self.long[VIRTIO_HEADER..][..cutting.len];
            if cutting.cutter.write_next(frame, packet.data_mut()).is_err() {
                self.counters.malformed += 1;
                return;
            }
            self.finish(packet, &cutting.arrival, into);
        }
        self.counters.segmented += 1;
    }

    #[inline]
    fn deliver(&mut self, pool: &'static Pool, arrival: &Arrival, frame: &[u8], into: &mut Batch) {
        let Some(mut packet) = self.packet(pool, frame.len()) else { return };
        packet.data_mut().copy_from_slice(frame);
        if let Some((start, offset)) = arrival.offload.checksum
            && finish_checksum(packet.data_mut(), start, offset).is_err()
        {
            self.counters.malformed += 1;
            return;
        }
        self.finish(packet, arrival, into);
    }
    /// A packet of `len` bytes, with room for a VLAN tag.
    #[inline]
    fn packet(&mut self, pool: &'static Pool, len: usize) -> Option<Packet> {
        let packet = pool.packet_for(len).and_then(|mut packet| packet.append(len).is_ok().then_some(packet));
        if packet.is_none() {
            self.counters.pool_empty += 1;
        }
        packet
    }
    /// Completes a packet with what the kernel says about its frame.
    #[inline]
    fn finish(&mut self, mut packet: Packet, arrival: &Arrival, into: &mut Batch) {
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
        into.push(packet);
    }
}

/// Puts a VLAN tag behind the Ethernet addresses. A frame that has none, and a packet that cannot grow, stay as
/// they are; the pool's headroom has room for a tag.
fn insert_tag(packet: &mut Packet, tag: [u8; 4]) {
    if packet.len() < 12 || packet.prepend(4).is_err() {
        return;
    }
    let frame = packet.data_mut();
    frame.copy_within(4..16, 0);
    frame[12..16].copy_from_slice(&tag);
}
