//! Receiving.
use super::checksum;
use super::port::{LEAST_LENT, SharedPort};
use super::rings::BrokenRing;
use super::socket::{Filled, RxRings, Socket, SocketHalf};
use crate::queue::OwnAddress;
use crate::{DeviceError, RxCounters, RxQueue, sys};
use artery_packet::{BATCH, Batch, Pool, Time};
use rustix::fd::BorrowedFd;
use rustix::net::RecvFlags;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::sync::Arc;

/// After how many receives in a row without a packet the interface is checked.
const IDLE: u32 = 256;

/// The receiving half of a queue.
#[derive(Debug)]
pub struct XdpRx {
    opened: Arc<SharedPort>,
    queue: u16,
    half: Option<SocketHalf<RxRings>>,
    /// Storage for frames to be lent to the kernel.
    fresh: Batch,
    timestamps: bool,
    counters: RxCounters,
    kernel: Cell<KernelCounts>,
    /// Calls since something was received.
    idle: u32,
    /// Whether the pool had too few frames when the kernel was last lent some.
    starved: bool,
    /// Whether `receive` has reported that the interface is down.
    down: bool,
    /// Whether the last descriptor was not the end of its frame.
    in_pieces: bool,
    /// Whether the ring makes no sense any more.
    is_broken: bool,
    /// Whether packets are received without parsing their bytes.
    skip_parsing: bool,
}

/// The kernel's counts as last read, and which of our counters they were added to.
#[derive(Clone, Copy, Debug, Default)]
struct KernelCounts {
    dropped: u64,
    ring_full: u64,
    fill_empty: u64,
    invalid: u64,
    to_malformed: u64,
    to_ring_full: u64,
    to_pool_empty: u64,
    to_truncated: u64,
}

impl XdpRx {
    pub(super) fn new(
        opened: Arc<SharedPort>,
        queue: u16,
        half: SocketHalf<RxRings>,
        timestamps: bool,
    ) -> Result<XdpRx, DeviceError> {
        let mut rx = XdpRx {
            opened,
            queue,
            half: Some(half),
            fresh: Batch::default(),
            timestamps,
            counters: RxCounters::default(),
            kernel: Cell::default(),
            idle: 0,
            starved: false,
            down: false,
            in_pieces: false,
            is_broken: false,
            skip_parsing: false,
        };
        rx.pass_over_losses();
        rx.prepare().map_err(|BrokenRing| rx.broken())?;
        let (opened, lent) = (&rx.opened, rx.lent());
        if lent < LEAST_LENT {
            return Err(opened.few_frames(lent));
        }
        opened
            .redirect
            .open(u32::from(queue), rx.socket().fd())
            .map_err(|e| opened.failed("handing its frames to an AF_XDP socket", &e))?;
        Ok(rx)
    }
    /// Losses from before are not this half's.
    fn pass_over_losses(&mut self) {
        let before = self.socket().statistics();
        self.kernel.set(KernelCounts {
            dropped: before.rx_dropped,
            ring_full: before.rx_ring_full,
            fill_empty: before.rx_fill_ring_empty_descs,
            invalid: before.rx_invalid_descs,
            ..KernelCounts::default()
        });
    }
    fn socket(&self) -> &Socket {
        &self.opened.sockets[usize::from(self.queue)]
    }
    /// Leaves the queue to the host, since nothing that comes by the ring can be trusted.
    #[cold]
    fn broken(&mut self) -> DeviceError {
        if !std::mem::replace(&mut self.is_broken, true) {
            self.counters.malformed += 1;
            self.opened.redirect.close(u32::from(self.queue));
        }
        self.opened.broken("its AF_XDP receive ring")
    }
    /// Lends the kernel all it may have, before it is given any frame to receive.
    fn prepare(&mut self) -> Result<(), BrokenRing> {
        self.half.as_mut().expect("only drop() takes it out").rings.rx.available()?;
        self.refill(true)
    }
    fn lent(&self) -> u32 {
        self.half.as_ref().expect("only drop() takes it out").lent.count()
    }

    /// Lends the kernel frames for what it took, once that is worth it.
    #[inline]
    fn refill(&mut self, all: bool) -> Result<(), BrokenRing> {
        let half = self.half.as_mut().expect("only drop() takes it out");
        let short = self.opened.quota.saturating_sub(half.lent.count());
        if short >= BATCH as u32 || (short > 0 && (all || self.starved || short * 2 >= self.opened.quota)) {
            let wanted = short.min(half.rings.fill.free()?) as usize;
            let pool = half.lent.pool();
            self.starved = pool.alloc_packets(wanted, &mut self.fresh) < wanted;
            for packet in self.fresh.drain() {
                half.lend(packet);
            }
            half.rings.fill.publish();
        }
        Ok(())
    }

    /// Moves what the kernel has filled into `into`; returns how much there was, also what was dropped.
    #[inline]
    fn receive_filled(&mut self, max: usize, into: &mut Batch) -> Result<usize, BrokenRing> {
        let half = self.half.as_mut().expect("only drop() takes it out");
        let waiting = (half.rings.rx.available()? as usize).min(max);
        for _ in 0..waiting {
            let Some(Filled { packet, options }) = half.receive() else { break };
            let Some(packet) = packet else {
                self.counters.malformed += 1;
                continue;
            };
            if options & libc::XDP_PKT_CONTD != 0 || self.in_pieces {
                self.in_pieces = options & libc::XDP_PKT_CONTD != 0;
                self.counters.truncated += u64::from(!self.in_pieces);
                continue;
            }
            // Without frames the kernel could never say again that there is something to receive.
            if half.lent.count() < self.opened.reserve() && !replace(half) {
                half.lend(packet);
                self.counters.pool_empty += 1;
                continue;
            }
            if !self.skip_parsing {
                packet.prefetch();
            }
            into.push(packet);
        }
        half.rings.rx.release();
        half.rings.fill.publish();
        Ok(waiting)
    }

    /// Completes the packets that were appended to `into` from `start` on.
    #[inline]
    fn complete(&mut self, start: usize, into: &mut Batch) {
        let opened = &*self.opened;
        let own = OwnAddress::new(opened.mac());
        let time = if self.timestamps && into.len() > start { now() } else { Time::ZERO };
        for packet in into.iter_mut().skip(start) {
            if opened.facts.leaves_offloads && !self.skip_parsing {
                self.counters.unfinished += u64::from(checksum::finish(packet.data_mut()));
            }
            if !self.skip_parsing {
                packet.set_packet_type(own.sees(packet.data()));
            }
            packet.set_in_port(opened.number);
            if self.timestamps {
                packet.set_timestamp(time);
            }
            self.counters.packets += 1;
            self.counters.bytes += packet.len() as u64;
        }
    }

    /// Makes the system calls that the kernel needs.
    #[inline]
    fn wake(&self, nothing_came: bool) {
        let half = self.half.as_ref().expect("only drop() takes it out");
        if half.rings.fill.needs_wakeup() || (self.opened.busy_poll && nothing_came) {
            // Whatever this returns, the rings and check() show the state.
            let _ = rustix::net::recv(self.socket().fd(), &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// Checks what the rings cannot show.
    #[cold]
    fn check(&mut self) -> Result<(), DeviceError> {
        self.idle = 0;
        // Reading the error clears it, so that it does not wake the worker for ever. The kernel sets it when
        // it takes the socket off its interface, which may have come back since with the same number.
        let error = sys::option(self.socket().fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0);
        if error.is_ok_and(|error| error == libc::ENETDOWN) {
            return Err(self.opened.gone());
        }
        match self.opened.trouble() {
            Some(DeviceError::Down { .. }) if self.down => Ok(()),
            Some(error) => {
                self.down = true;
                Err(error)
            }
            None => {
                self.down = false;
                Ok(())
            }
        }
    }

    /// Reads the kernel's counts, and assigns each new loss to its cause.
    fn read_kernel_counts(&self) -> KernelCounts {
        let (now, last) = (self.socket().statistics(), self.kernel.get());
        let empty = now.rx_fill_ring_empty_descs.saturating_sub(last.fill_empty);
        // A driver that fills frames itself counts attempts there, not frames; what it drops it counts
        // itself.
        let empty = if self.socket().zero_copy { 0 } else { empty };
        let full = now.rx_ring_full.saturating_sub(last.ring_full);
        let dropped = now.rx_dropped.saturating_sub(last.dropped);
        KernelCounts {
            dropped: now.rx_dropped,
            ring_full: now.rx_ring_full,
            fill_empty: now.rx_fill_ring_empty_descs,
            invalid: now.rx_invalid_descs,
            to_malformed: last.to_malformed + now.rx_invalid_descs.saturating_sub(last.invalid),
            to_ring_full: last.to_ring_full + full + if self.starved { 0 } else { empty },
            to_pool_empty: last.to_pool_empty + if self.starved { empty } else { 0 },
            // Frames without a place to be put are among the dropped; the others are too long.
            to_truncated: last.to_truncated + dropped.saturating_sub(empty),
        }
    }
}

/// Lends the kernel a frame of the pool in place of the packet's; false when there is none.
#[cold]
fn replace(half: &mut SocketHalf<RxRings>) -> bool {
    half.lent.pool().alloc_packet().is_some_and(|fresh| half.lend(fresh))
}

fn now() -> Time {
    let now = clock_gettime(ClockId::Realtime);
    Time::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl RxQueue for XdpRx {
    fn receive(&mut self, _: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        if max == 0 {
            return Ok(0);
        }
        let start = into.len();
        let waiting = self.receive_filled(max, into).map_err(|BrokenRing| self.broken())?;
        self.complete(start, into);
        let refilled = self.refill(false);
        self.wake(waiting == 0);
        if waiting > 0 {
            self.idle = 0;
        } else {
            refilled.map_err(|BrokenRing| self.broken())?;
            self.idle += 1;
            if self.idle >= IDLE {
                self.check()?;
            }
        }
        Ok(into.len() - start)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket().fd())
    }
    fn counters(&self) -> RxCounters {
        self.kernel.set(self.read_kernel_counts());
        self.own_counters()
    }
    fn own_counters(&self) -> RxCounters {
        let (own, kernel) = (self.counters, self.kernel.get());
        RxCounters {
            ring_full: kernel.to_ring_full,
            pool_empty: kernel.to_pool_empty,
            truncated: own.truncated + kernel.to_truncated,
            malformed: own.malformed + kernel.to_malformed,
            ..own
        }
    }
    fn set_blind(&mut self, blind: bool) {
        self.skip_parsing = blind;
    }
}

impl Drop for XdpRx {
    fn drop(&mut self) {
        self.opened.redirect.close(u32::from(self.queue));
        if let Some(half) = self.half.take() {
            self.socket().park_rx(half);
        }
    }
}
