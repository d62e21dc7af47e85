//! Sending.
use super::port::SharedPort;
use super::rings::BrokenRing;
use super::socket::{Socket, SocketHalf, TxRings};
use crate::{DeviceError, TxCounters, TxQueue};
use artery_packet::{Batch, FRAME, Packet, Pool};
use rustix::fd::BorrowedFd;
use rustix::net::SendFlags;
use std::io;
use std::sync::Arc;

/// Where the data of a copy starts in its frame.
const COPY_START: usize = 128;
/// The shortest frame: a link header.
const SHORTEST: usize = 14;
/// The most system calls for one batch.
const CALLS: usize = 64;

/// The sending half of a queue.
#[derive(Debug)]
pub struct XdpTx {
    opened: Arc<SharedPort>,
    queue: u16,
    half: Option<SocketHalf<TxRings>>,
    /// Storage for packets on their way back to the pool.
    sent: Batch,
    counters: TxCounters,
    malformed: u64,
    copied: u64,
    /// Whether the last system call showed that the interface takes no frames.
    stuck: bool,
    /// Whether a ring or the interface is gone for good.
    over: bool,
}

impl XdpTx {
    pub(super) fn new(opened: Arc<SharedPort>, queue: u16, half: SocketHalf<TxRings>) -> XdpTx {
        XdpTx {
            opened,
            queue,
            half: Some(half),
            sent: Batch::default(),
            counters: TxCounters::default(),
            malformed: 0,
            copied: 0,
            stuck: false,
            over: false,
        }
    }
    /// Number of addresses that came back as sent without having been lent.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
    /// Number of packets that were copied, since their frames are not of the pool's common ones.
    pub fn copied(&self) -> u64 {
        self.copied
    }
    fn socket(&self) -> &Socket {
        &self.opened.sockets[usize::from(self.queue)]
    }
    fn half(&mut self) -> &mut SocketHalf<TxRings> {
        self.half.as_mut().expect("only drop() takes it out")
    }

    /// Gives back to the pool what the kernel has sent.
    #[inline]
    fn reap(&mut self) -> Result<(), BrokenRing> {
        let half = self.half.as_mut().expect("only drop() takes it out");
        if half.rings.done.available()? == 0 {
            return Ok(());
        }
        while let Some(sent) = half.reclaim_sent() {
            match sent {
                Some(packet) => self.sent.push(packet),
                None => {
                    self.malformed += 1;
                    self.counters.refused += 1;
                }
            }
        }
        half.rings.done.release();
        self.sent.free_packets();
        Ok(())
    }

    /// Moves packets from the front of `batch` to the kernel's ring, as many as there is room for.
    #[inline]
    fn queue(&mut self, batch: &mut Batch) -> Result<(), BrokenRing> {
        let ring = self.opened.ring;
        let half = self.half();
        let room = half.rings.tx.free()?.min(ring.saturating_sub(half.lent.count()));
        let ready = self.prepare(batch, room as usize);
        let half = self.half.as_mut().expect("only drop() takes it out");
        for packet in batch.drain_front(ready) {
            let len = packet.len();
            if len > self.opened.longest_for(packet.data()) {
                self.counters.too_long += 1;
                continue;
            }
            if len < SHORTEST {
                self.counters.refused += 1;
                continue;
            }
            if half.send(packet) {
                self.counters.packets += 1;
                self.counters.bytes += len as u64;
            } else {
                // prepare() left none that is not of the pool.
                self.counters.refused += 1;
            }
        }
        half.rings.tx.publish();
        Ok(())
    }
    /// Does what senders left to a card, which may make more packets of one; returns how many were dropped.
    #[inline]
    fn finish(&mut self, batch: &mut Batch) -> usize {
        let finished = batch.apply_offloads();
        let lost = finished.malformed + finished.pool_empty;
        self.counters.refused += lost;
        lost as usize
    }
    /// Copies those of the first `room` packets whose frames the kernel does not know; returns how many are
    /// ready, fewer when the pool is empty.
    #[inline]
    fn prepare(&mut self, batch: &mut Batch, room: usize) -> usize {
        let pool = self.half().lent.pool();
        let longest = self.opened.longest();
        for (n, packet) in batch.iter_mut().take(room).enumerate() {
            if pool.frame_of(packet).is_some() || packet.len() > longest + 4 {
                continue;
            }
            let Some(copy) = copy(pool, packet) else { return n };
            *packet = copy;
            self.copied += 1;
        }
        room.min(batch.len())
    }

    /// Makes the system calls that the kernel needs to send what is in its ring, as long as each sends some.
    #[inline]
    fn wake(&mut self) -> Result<(), DeviceError> {
        let mut last = u32::MAX;
        for _ in 0..CALLS {
            let half = self.half();
            let waiting = half.rings.tx.waiting();
            let waiting = waiting.map_err(|BrokenRing| self.broken())?;
            if waiting == 0 || waiting == last || !self.half().rings.tx.needs_wakeup() {
                break;
            }
            last = waiting;
            self.call()?;
        }
        Ok(())
    }
    fn call(&mut self) -> Result<(), DeviceError> {
        let result = rustix::net::send(self.socket().tx_fd(), &[], SendFlags::DONTWAIT);
        let error =
            result.map_err(io::Error::from).err().and_then(|error| Some((error.raw_os_error()?, error)));
        self.stuck = false;
        match error {
            // There is more to be sent than one call sends, or no memory for the moment.
            None | Some((libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR, _)) => Ok(()),
            Some((code @ (libc::ENETDOWN | libc::ENXIO | libc::ENODEV), errno)) => {
                self.stuck = true;
                // A socket that was taken off its interface has none.
                let is_taken_off = (code == libc::ENXIO).then(|| self.opened.gone());
                let error = is_taken_off.or_else(|| self.opened.trouble());
                let error = error.unwrap_or_else(|| self.opened.failed("sending by it", &errno));
                self.over |= matches!(error, DeviceError::Gone { .. });
                Err(error)
            }
            Some((_, error)) => Err(self.opened.failed("sending by it", &error)),
        }
    }
    #[cold]
    fn broken(&mut self) -> DeviceError {
        self.over = true;
        self.opened.broken("its AF_XDP transmit ring")
    }
}

impl SharedPort {
    /// The longest that a frame like this may be: a VLAN tag does not count.
    #[inline]
    fn longest_for(&self, frame: &[u8]) -> usize {
        self.longest() + if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 }
    }
}

/// A copy of the bytes alone in a common frame; `None` when there is none.
fn copy(pool: &'static Pool, packet: &Packet) -> Option<Packet> {
    let mut copy = pool.alloc_packet()?;
    copy.set_place(COPY_START.min(FRAME - packet.len().min(FRAME)), packet.len()).ok()?;
    copy.data_mut().copy_from_slice(packet.data());
    Some(copy)
}

impl TxQueue for XdpTx {
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError> {
        if self.stuck {
            self.call()?;
        }
        let lost = self.finish(batch);
        let before = batch.len();
        self.reap().map_err(|BrokenRing| self.broken())?;
        loop {
            let had = batch.len();
            self.queue(batch).map_err(|BrokenRing| self.broken())?;
            self.wake()?;
            self.reap().map_err(|BrokenRing| self.broken())?;
            if batch.is_empty() {
                break;
            }
            if batch.len() == had {
                self.counters.full += 1;
                break;
            }
        }
        Ok(lost + before - batch.len())
    }
    /// While the kernel has frames: it may not have sent all for which it was called, and what it has sent is
    /// only taken back by the next call.
    fn unsettled(&self) -> bool {
        !self.over && self.half.as_ref().is_some_and(|half| half.lent.count() > 0)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket().tx_fd())
    }
    fn counters(&self) -> TxCounters {
        self.counters
    }
}

impl Drop for XdpTx {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.socket().park_tx(half);
        }
    }
}
