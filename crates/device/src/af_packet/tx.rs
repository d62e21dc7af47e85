//! Sending.
use super::{AfPacketTxSettings, failed, open_socket};
use crate::{DeviceError, Interface, TxCounters, TxQueue, sys};
use artery_packet::{BATCH, Batch};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::io;

/// Bytes that may wait for the driver before the queue counts as full.
const QUEUE_BYTES: libc::c_int = 4 << 20;

/// A transmit queue on an interface.
#[derive(Debug)]
pub struct AfPacketTx {
    socket: OwnedFd,
    interface: Interface,
    counters: TxCounters,
}

impl AfPacketTx {
    /// Opens a transmit queue on `interface`.
    pub(crate) fn open(
        interface: &Interface,
        settings: &AfPacketTxSettings,
    ) -> Result<AfPacketTx, DeviceError> {
        let socket = open_socket(interface)?;
        set_up(&socket, settings).map_err(|e| failed(interface, "setting up a packet socket", &e))?;
        sys::bind_packet(socket.as_fd(), interface.index, 0)
            .map_err(|e| failed(interface, "binding a packet socket", &e))?;
        Ok(AfPacketTx { socket, interface: interface.clone(), counters: TxCounters::default() })
    }

    /// Deals with the frame at the front, which the kernel did not take. Says whether to go on.
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
        let name = self.interface.name.clone();
        match rustix::net::netdevice::index_to_name(&self.socket, self.interface.index) {
            Ok(_) => failed(&self.interface, "sending by it", error),
            Err(_) => DeviceError::Gone { name },
        }
    }
}

fn set_up(socket: &OwnedFd, settings: &AfPacketTxSettings) -> io::Result<()> {
    let fd = socket.as_fd();
    // Beyond the system's limit only with CAP_NET_ADMIN; without it, as much as the limit allows.
    if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &QUEUE_BYTES).is_err() {
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &QUEUE_BYTES)?;
    }
    let bypass = libc::c_int::from(settings.qdisc_bypass);
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &bypass)
}

impl TxQueue for AfPacketTx {
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError> {
        let before = batch.len();
        while !batch.is_empty() {
            match send(&self.socket, batch) {
                Ok(sent) => {
                    let bytes: usize = batch.drain_front(sent).map(|packet| packet.len()).sum();
                    self.counters.packets += sent as u64;
                    self.counters.bytes += bytes as u64;
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

/// Hands up to [`BATCH`] frames from the front of `batch` to the kernel; returns how many it took, at least one.
fn send(socket: &OwnedFd, batch: &Batch) -> io::Result<usize> {
    const NOWHERE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [NOWHERE; BATCH];
    for (part, packet) in parts.iter_mut().zip(batch) {
        let data = packet.data();
        *part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    }
    // SAFETY: null pointers and zeros are a valid mmsghdr, on every C library.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let count = batch.len().min(BATCH);
    for (message, part) in messages[..count].iter_mut().zip(&mut parts) {
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `count` messages each have one part, whose bytes `batch` keeps alive and unchanged; the
    // kernel only reads them.
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
