//! Sending.
use super::{TxSettings, failed, is_bound, packet_socket};
use crate::offload::{VIRTIO_HEADER, describe, longest_segment};
use crate::privsep::Buffer;
use crate::{DeviceError, Interface, TxCounters, TxQueue, sys};
use artery_packet::{BATCH, Batch, Packet};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that may wait for the driver before the queue counts as full.
const QUEUE_BYTES: libc::c_int = 4 << 20;

/// A transmit queue on an interface.
#[derive(Debug)]
pub struct AfPacketTx {
    socket: OwnedFd,
    interface: Interface,
    /// The interface's MTU as it is now.
    mtu: Arc<AtomicU32>,
    counters: TxCounters,
    headers: Headers,
}

/// Virtio-net headers of the frames that are handed to the kernel at once.
type Headers = [[u8; VIRTIO_HEADER]; BATCH];

impl AfPacketTx {
    /// Opens a transmit queue on `interface`.
    pub(crate) fn open(
        interface: &Interface,
        settings: &TxSettings,
        mtu: Arc<AtomicU32>,
    ) -> Result<AfPacketTx, DeviceError> {
        let socket = packet_socket(&interface.name, Buffer::Send(QUEUE_BYTES))?;
        set_up(&socket, settings).map_err(|e| failed(interface, "setting up a packet socket", &e))?;
        sys::bind_packet(socket.as_fd(), interface.index, 0)
            .map_err(|e| failed(interface, "binding a packet socket", &e))?;
        let counters = TxCounters::default();
        Ok(AfPacketTx {
            socket,
            interface: interface.clone(),
            mtu,
            counters,
            headers: [[0; VIRTIO_HEADER]; BATCH],
        })
    }

    /// Describes frames from the front of `batch`, up to one that can't be sent; returns how many.
    fn describe(&mut self, batch: &Batch) -> Result<usize, UnsendablePacket> {
        let mut count = 0;
        for (header, packet) in self.headers.iter_mut().zip(batch) {
            if packet.has_offload() {
                match describe_unfinished(packet, self.mtu.load(Relaxed)) {
                    Ok(described) => *header = described,
                    Err(unfit) if count == 0 => return Err(unfit),
                    Err(_) => break,
                }
            } else {
                *header = [0; VIRTIO_HEADER];
            }
            count += 1;
        }
        Ok(count)
    }
    /// Drops the frame at the front, which can't be sent.
    #[cold]
    fn drop_unfit(&mut self, batch: &mut Batch, unfit: UnsendablePacket) {
        match unfit {
            UnsendablePacket::TooLong => self.counters.too_long += 1,
            UnsendablePacket::Malformed => self.counters.refused += 1,
        }
        batch.drain_front(1).for_each(drop);
    }

    /// Handles the frame at the front, which the kernel did not take. Returns whether to go on.
    fn not_sent(&mut self, batch: &mut Batch, error: &io::Error) -> Result<bool, DeviceError> {
        match error.raw_os_error() {
            Some(libc::EINTR) => return Ok(true),
            Some(libc::EAGAIN | libc::ENOBUFS) => {
                self.counters.full += 1;
                return Ok(false);
            }
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return Err(self.lost(error)),
            Some(libc::EMSGSIZE) => self.counters.too_long += 1,
            _ => self.counters.refused += 1,
        }
        batch.drain_front(1).for_each(drop);
        Ok(true)
    }
    fn lost(&self, error: &io::Error) -> DeviceError {
        match is_bound(&self.socket, &self.interface) {
            true => failed(&self.interface, "sending by it", error),
            false => DeviceError::Gone { name: self.interface.name.clone() },
        }
    }
}

/// Why a packet can't be sent.
#[derive(Clone, Copy, Debug)]
enum UnsendablePacket {
    TooLong,
    Malformed,
}

/// The virtio-net header of a frame. Its segments must not be longer than the link carries: the kernel, which
/// would cut them, does not check that.
#[cold]
fn describe_unfinished(packet: &Packet, mtu: u32) -> Result<[u8; VIRTIO_HEADER], UnsendablePacket> {
    if longest_segment(packet).is_some_and(|longest| longest > mtu as usize) {
        return Err(UnsendablePacket::TooLong);
    }
    describe(packet).map_err(|_| UnsendablePacket::Malformed)
}

fn set_up(socket: &OwnedFd, settings: &TxSettings) -> io::Result<()> {
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    let bypass = libc::c_int::from(settings.qdisc_bypass);
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &bypass)
}

impl TxQueue for AfPacketTx {
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError> {
        let before = batch.len();
        while !batch.is_empty() {
            let count = match self.describe(batch) {
                Ok(count) => count,
                Err(unfit) => {
                    self.drop_unfit(batch, unfit);
                    continue;
                }
            };
            match send(&self.socket, batch, &self.headers[..count]) {
                Ok(sent) => {
                    self.counters.packets += sent as u64;
                    for packet in batch.drain_front(sent) {
                        self.counters.bytes += packet.len() as u64;
                        self.counters.unfinished += u64::from(packet.has_offload());
                    }
                }
                Err(error) => {
                    if !self.not_sent(batch, &error)? {
                        break;
                    }
                }
            }
        }
        Ok(before - batch.len())
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
    fn counters(&self) -> TxCounters {
        self.counters
    }
}

/// Hands frames from the front of `batch`, one for each of `headers`, to the kernel; returns how many it
/// took, at least one.
fn send(socket: &OwnedFd, batch: &Batch, headers: &[[u8; VIRTIO_HEADER]]) -> io::Result<usize> {
    const NOWHERE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let part =
        |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut parts = [[NOWHERE; 2]; BATCH];
    for (parts, (header, packet)) in parts.iter_mut().zip(headers.iter().zip(batch)) {
        *parts = [part(header), part(packet.data())];
    }
    // SAFETY: null pointers and zeros are a valid mmsghdr, on every C library.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let count = batch.len().min(headers.len()).min(BATCH);
    for (message, parts) in messages[..count].iter_mut().zip(&mut parts) {
        message.msg_hdr.msg_iov = parts.as_mut_ptr();
        message.msg_hdr.msg_iovlen = parts.len();
    }
    // SAFETY: the first `count` messages each have two parts, whose bytes `headers` and `batch` keep alive
    // and unchanged; the kernel only reads them.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
