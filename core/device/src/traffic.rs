//! What ports have counted, readable from any thread while workers go on.
//!
//! A queue has its own counters. The port wraps it in one that publishes these after every batch, and nothing
//! else does, whatever becomes of the packets. A port's counters are the sums over its queues, also over
//! those that it had before.
use crate::delay::{DelayHistogram, Delays};
use crate::{DeviceError, RxCounters, RxQueue, TxCounters, TxQueue};
use artery_packet::{Batch, Pool};
use std::ops::{Add, Sub};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What went one way through a port since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Packets. One that its sender left uncut is one.
    pub packets: u64,
    /// Their bytes, link header and all.
    pub bytes: u64,
    /// Packets that were lost: that the router or the kernel had no room for, or the device refused.
    pub errors: u64,
}

impl Add for TrafficCounts {
    type Output = TrafficCounts;
    fn add(self, other: TrafficCounts) -> TrafficCounts {
        let (packets, bytes) = (self.packets + other.packets, self.bytes + other.bytes);
        TrafficCounts { packets, bytes, errors: self.errors + other.errors }
    }
}

impl Sub for TrafficCounts {
    type Output = TrafficCounts;
    /// What came in addition to `earlier`.
    fn sub(self, earlier: TrafficCounts) -> TrafficCounts {
        let (packets, bytes) =
            (self.packets.wrapping_sub(earlier.packets), self.bytes.wrapping_sub(earlier.bytes));
        TrafficCounts { packets, bytes, errors: self.errors.wrapping_sub(earlier.errors) }
    }
}

impl TrafficCounts {
    /// What a receive queue counted; what the kernel dropped is among it unless it is `told_apart`.
    pub(crate) fn received(counters: &RxCounters, told_apart: bool) -> TrafficCounts {
        let ring_full = if told_apart { 0 } else { counters.ring_full };
        let errors = ring_full + counters.truncated + counters.pool_empty + counters.malformed;
        TrafficCounts { packets: counters.packets, bytes: counters.bytes, errors }
    }
    /// What a transmit queue counted.
    pub(crate) fn sent(counters: &TxCounters) -> TrafficCounts {
        let errors = counters.too_long + counters.refused;
        TrafficCounts { packets: counters.packets, bytes: counters.bytes, errors }
    }
}

/// What the kernel dropped of a queue's frames, readable from any thread.
pub trait Losses: Send + Sync {
    /// How many so far. Once the queue is closed, how many there were.
    fn read_dropped(&self) -> u64;
    /// Whether the queue is closed, so that the count is final.
    fn is_final(&self) -> bool;
}

/// Counts of the queues of one number, alone in their cache lines: the open one writes, anybody reads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct QueueTally {
    packets: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

impl QueueTally {
    fn read(&self) -> TrafficCounts {
        let load = |count: &AtomicU64| count.load(Relaxed);
        TrafficCounts { packets: load(&self.packets), bytes: load(&self.bytes), errors: load(&self.errors) }
    }
}

/// One half of a port: what all its queues count.
#[derive(Default)]
pub(crate) struct PortTotals {
    queues: Mutex<Vec<Arc<QueueTally>>>,
    losses: Mutex<LossCounts>,
    /// By number, of queues of today and before.
    delays: Mutex<Vec<Arc<DelayHistogram>>>,
    /// Packets that never came to a queue.
    unsent: AtomicU64,
}

impl PortTotals {
    /// Publishes what a receive queue counts from now on.
    pub(crate) fn count_rx(&self, number: u16, queue: Box<dyn RxQueue>) -> Box<dyn RxQueue> {
        let losses = queue.losses();
        let losses_told_apart = losses.is_some();
        lock(&self.losses).add(losses);
        let gauge = self.gauge(number, TrafficCounts::received(&queue.own_counters(), losses_told_apart));
        let delays = numbered(&self.delays, number);
        Box::new(CountedRx { gauge, delays, losses_told_apart, queue })
    }
    /// Publishes what a transmit queue counts from now on.
    pub(crate) fn count_tx(&self, number: u16, queue: Box<dyn TxQueue>) -> Box<dyn TxQueue> {
        Box::new(CountedTx { gauge: self.gauge(number, TrafficCounts::sent(&queue.counters())), queue })
    }
    /// Where a queue that has counted `already` publishes.
    fn gauge(&self, queue: u16, already: TrafficCounts) -> QueueGauge {
        let tally = numbered(&self.queues, queue);
        QueueGauge { before: tally.read() - already, tally }
    }
    /// Counts packets that could not be given to any queue.
    pub(crate) fn count_unsent(&self, packets: u64) {
        self.unsent.fetch_add(packets, Relaxed);
    }
    /// The sum of all queues.
    pub(crate) fn sum(&self) -> TrafficCounts {
        let counted =
            lock(&self.queues).iter().fold(TrafficCounts::default(), |sum, tally| sum + tally.read());
        let lost = lock(&self.losses).sum();
        TrafficCounts { errors: counted.errors + lost + self.unsent.load(Relaxed), ..counted }
    }
    /// The delays of all queues.
    pub(crate) fn delays(&self) -> Delays {
        lock(&self.delays).iter().fold(Delays::default(), |sum, delays| sum + delays.read())
    }
}

/// What the kernel dropped, of queues that are open and of those before.
#[derive(Default)]
struct LossCounts {
    open: Vec<Arc<dyn Losses>>,
    closed: u64,
}

impl LossCounts {
    /// Adds a queue, and keeps only the sum of closed ones.
    fn add(&mut self, losses: Option<Arc<dyn Losses>>) {
        let (closed, open) = self.open.drain(..).partition::<Vec<_>, _>(|losses| losses.is_final());
        self.closed += closed.iter().map(|losses| losses.read_dropped()).sum::<u64>();
        self.open = open;
        self.open.extend(losses);
    }
    fn sum(&self) -> u64 {
        self.closed + self.open.iter().map(|losses| losses.read_dropped()).sum::<u64>()
    }
}

/// The one of a number, made where it is missing.
fn numbered<T: Default>(all: &Mutex<Vec<Arc<T>>>, number: u16) -> Arc<T> {
    let mut all = lock(all);
    while all.len() <= usize::from(number) {
        all.push(Arc::default());
    }
    all[usize::from(number)].clone()
}

/// Where a queue publishes what it counts.
struct QueueGauge {
    tally: Arc<QueueTally>,
    /// What the queues of this number had counted before this one, which counts from 0.
    before: TrafficCounts,
}

impl QueueGauge {
    /// Publishes what the queue has counted since it was opened.
    #[inline]
    fn publish(&self, now: TrafficCounts) {
        let store = |count: &AtomicU64, before: u64, now: u64| count.store(before.wrapping_add(now), Relaxed);
        store(&self.tally.packets, self.before.packets, now.packets);
        store(&self.tally.bytes, self.before.bytes, now.bytes);
        store(&self.tally.errors, self.before.errors, now.errors);
    }
}

/// A receive queue of a port.
struct CountedRx {
    gauge: QueueGauge,
    delays: Arc<DelayHistogram>,
    losses_told_apart: bool,
    queue: Box<dyn RxQueue>,
}

impl RxQueue for CountedRx {
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        let result = self.queue.receive(pool, max, into);
        if let Some(waited) = self.queue.waited() {
            self.delays.record(waited);
        }
        self.gauge.publish(TrafficCounts::received(&self.queue.own_counters(), self.losses_told_apart));
        result
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.fd()
    }
    fn is_attached(&self) -> bool {
        self.queue.is_attached()
    }
    fn counters(&self) -> RxCounters {
        self.queue.counters()
    }
    fn own_counters(&self) -> RxCounters {
        self.queue.own_counters()
    }
    fn losses(&self) -> Option<Arc<dyn Losses>> {
        self.queue.losses()
    }
    fn waited(&self) -> Option<Duration> {
        self.queue.waited()
    }
    fn set_blind(&mut self, blind: bool) {
        self.queue.set_blind(blind);
    }
}

/// A transmit queue of a port.
struct CountedTx {
    gauge: QueueGauge,
    queue: Box<dyn TxQueue>,
}

impl TxQueue for CountedTx {
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError> {
        let result = self.queue.transmit(batch);
        self.gauge.publish(TrafficCounts::sent(&self.queue.counters()));
        result
    }
    fn unsettled(&self) -> bool {
        self.queue.unsettled()
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.fd()
    }
    fn counters(&self) -> TxCounters {
        self.queue.counters()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(packets: u64, bytes: u64, errors: u64) -> TrafficCounts {
        TrafficCounts { packets, bytes, errors }
    }

    #[test]
    fn a_port_counts_what_all_queues_of_all_times_did() {
        let totals = PortTotals::default();
        totals.gauge(0, TrafficCounts::default()).publish(traffic(2, 120, 1));
        totals.gauge(3, TrafficCounts::default()).publish(traffic(5, 300, 0));
        assert_eq!(totals.sum(), traffic(7, 420, 1));
        // Opened again: once with no counts before it, once with counts that were published already.
        totals.gauge(0, TrafficCounts::default()).publish(traffic(1, 60, 2));
        totals.gauge(3, traffic(10, 600, 10)).publish(traffic(11, 660, 10));
        assert_eq!(totals.sum(), traffic(9, 540, 3));
        totals.count_unsent(100);
        assert_eq!(totals.sum().errors, 103);
    }

    #[test]
    fn errors_are_what_was_lost_and_not_what_waits() {
        let rx = RxCounters {
            packets: 9,
            bytes: 900,
            ring_full: 1,
            truncated: 2,
            pool_empty: 4,
            ..RxCounters::default()
        };
        assert_eq!(TrafficCounts::received(&rx, false), traffic(9, 900, 7));
        assert_eq!(TrafficCounts::received(&rx, true), traffic(9, 900, 6));
        let tx = TxCounters { packets: 1, bytes: 60, too_long: 2, refused: 4, full: 8, unfinished: 16 };
        assert_eq!(TrafficCounts::sent(&tx), traffic(1, 60, 6));
    }
}
