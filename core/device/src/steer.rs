//! Distributes the packets of few queues to many workers, each flow to one of them.
//!
//! A card spreads flows over its queues. Where it has fewer queues than the router has workers, the workers
//! that own a queue receive for all and hand over packets of other workers by a ring for each pair. A flow
//! always goes to the same worker by the same ring, so its packets stay in order. Handing a packet over moves
//! its cache lines between two processors: a router is faster with as many queues as workers, and this is for
//! cards without that many.
//!
//! A packet is counted by the worker that received it, once: as given to the router, or as `ring_full` when
//! the worker that it is for has not fetched enough. What still waits in rings when a port is closed was
//! counted as given to the router; it goes back to the pool.
use crate::{DeviceError, RxCounters, RxQueue};
use artery_packet::{Batch, Packet, Pool};
use artery_wire::flow_hash;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

/// Packets that wait for one worker from one other.
const RING: usize = 1024;
/// How often a queue is polled in one call while all its packets are for other workers.
const ROUNDS: usize = 4;

/// The share of one worker.
pub(crate) struct WorkerQueue {
    own: Vec<Box<dyn RxQueue>>,
    /// Where to hand packets to, by worker; `None` for itself, and everywhere when nothing is handed over.
    to: Vec<Option<WorkerRing>>,
    from: Vec<Consumer<Packet>>,
    /// Which of `own` and `from`, in this order, is served first the next time.
    first: usize,
    /// Which of them, in the order of serving, gave as many packets as were requested.
    full: Vec<bool>,
    waker: Arc<Waker>,
    /// Whether a wakeup was requested, or signaled here.
    listens: bool,
    /// Readable when an own queue is, or the waker is signaled.
    files: OwnedFd,
    /// What an own queue has received, before it is distributed.
    received: Batch,
    /// An error that is yet to be returned.
    pending_error: Option<DeviceError>,
    /// The error last returned for each own queue; `None` once it receives without error.
    reported_errors: Vec<Option<DeviceError>>,
    lost: u64,
    lost_bytes: u64,
}

/// The ring to another worker.
struct WorkerRing {
    ring: Producer<Packet>,
    waker: Arc<Waker>,
    /// Whether a packet was put in since that worker was last woken.
    used: bool,
}

/// Wakes a worker that waits for its files.
struct Waker {
    file: OwnedFd,
    /// Whether the worker has found nothing and may be asleep.
    wanted: AtomicBool,
}

impl Waker {
    /// The steps of a wakeup request, in this order. In the other order, a producer whose packets an earlier
    /// poll took out could clear the new request, and its signal would be drained here: the next packet would
    /// then wake no one.
    const ASK: [fn(&Waker); 2] = [Waker::drain_signal, Waker::set_wanted];

    fn new() -> Result<Waker, Errno> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { file, wanted: AtomicBool::new(false) })
    }
    /// Wakes the worker if it may be asleep. It then sees what was put into its ring before.
    fn wake(&self) {
        if self.claim_wakeup() {
            self.signal();
        }
    }
    /// Takes the wakeup request, if there is one: the caller must then signal, however late.
    fn claim_wakeup(&self) -> bool {
        fence(SeqCst);
        self.wanted.load(Relaxed) && self.wanted.swap(false, SeqCst)
    }
    fn signal(&self) {
        // The only error is a counter at its limit, which wakes just as well.
        let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
    }
    /// Requests a wakeup. The caller must poll the rings after this: packets may have been put in before.
    ///
    /// A producer that claimed an earlier request may have signaled since. That signal is drained
    /// first, and the poll that follows finds the packets. A signal that comes even later causes
    /// one wakeup without need.
    fn request_wakeup(&self) {
        Waker::ASK.iter().for_each(|step| step(self));
    }
    fn set_wanted(&self) {
        self.wanted.store(true, SeqCst);
        fence(SeqCst);
    }
    /// Cancels the wakeup request, or drains its signal.
    fn cancel_wakeup(&self) {
        if !self.wanted.swap(false, SeqCst) {
            self.drain_signal();
        }
    }
    fn drain_signal(&self) {
        let _ = rustix::io::read(&self.file, &mut [0u8; 8]);
    }
}

/// Distributes queues among workers: worker w of n gets every n-th queue from w on. When there are too few
/// queues for each worker to have one, the workers with a queue distribute packets to all.
pub(crate) fn share_queues(queues: Vec<Box<dyn RxQueue>>, workers: usize) -> Result<Vec<WorkerQueue>, Errno> {
    let owners = queues.len().min(workers);
    let deals = queues.len() < workers;
    let mut shares = Vec::new();
    for _ in 0..workers {
        let waker = Arc::new(Waker::new()?);
        let files = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&files, &waker.file, EventData::new_u64(0), EventFlags::IN)?;
        shares.push(WorkerQueue::new(workers, waker, files));
    }
    for (number, queue) in queues.into_iter().enumerate() {
        let owner = &mut shares[number % workers];
        if let Some(file) = queue.fd() {
            epoll::add(&owner.files, file, EventData::new_u64(0), EventFlags::IN)?;
        }
        owner.own.push(queue);
        owner.reported_errors.push(None);
    }
    for (from, to) in (0..owners).flat_map(|from| (0..workers).map(move |to| (from, to))) {
        if deals && from != to {
            let (ring, outlet) = RingBuffer::new(RING);
            shares[to].from.push(outlet);
            let waker = shares[to].waker.clone();
            shares[from].to[to] = Some(WorkerRing { ring, waker, used: false });
        }
    }
    shares.iter_mut().for_each(|share| share.full = vec![false; share.own.len() + share.from.len()]);
    Ok(shares)
}

impl WorkerQueue {
    fn new(workers: usize, waker: Arc<Waker>, files: OwnedFd) -> WorkerQueue {
        WorkerQueue {
            own: Vec::new(),
            to: (0..workers).map(|_| None).collect(),
            from: Vec::new(),
            first: 0,
            full: Vec::new(),
            waker,
            listens: false,
            files,
            received: Batch::default(),
            pending_error: None,
            reported_errors: Vec::new(),
            lost: 0,
            lost_bytes: 0,
        }
    }
    /// Receives from own queues and others' rings until `into` has `limit` packets, sharing the room among
    /// them; returns whether there may be more.
    fn poll_sources(&mut self, pool: &'static Pool, limit: usize, into: &mut Batch) -> bool {
        let sources = self.full.len();
        self.first = (self.first + 1) % sources.max(1);
        self.full.fill(true);
        let mut left = sources;
        for _ in 0..ROUNDS {
            let mut unserved = std::mem::take(&mut left);
            for source in (self.first..sources).chain(0..self.first) {
                if !std::mem::take(&mut self.full[source]) {
                    continue;
                }
                let room = limit.saturating_sub(into.len());
                if room == 0 {
                    return true;
                }
                let share = room.div_ceil(unserved);
                unserved -= 1;
                self.full[source] = self.receive_from(source, pool, share, into) >= share;
                left += usize::from(self.full[source]);
            }
            if left == 0 {
                return false;
            }
        }
        true
    }
    fn receive_from(&mut self, source: usize, pool: &'static Pool, max: usize, into: &mut Batch) -> usize {
        match source.checked_sub(self.own.len()) {
            None => self.receive_own(source, pool, max, into),
            Some(ring) => drain_ring(&mut self.from[ring], max, into),
        }
    }
    /// Receives from an own queue; returns how many packets it gave, for any worker. An error is kept.
    fn receive_own(&mut self, number: usize, pool: &'static Pool, max: usize, into: &mut Batch) -> usize {
        let deals = self.to.iter().any(Option::is_some);
        let to = if deals { &mut self.received } else { &mut *into };
        let result = self.own[number].receive(pool, max, to);
        if deals {
            self.distribute(into);
        }
        match result {
            Ok(count) => {
                self.reported_errors[number] = None;
                count
            }
            Err(error) => {
                self.record_error(number, error);
                0
            }
        }
    }
    /// Stores an error of a queue to return, unless it is the one last returned for it: it may come
    /// again with every call.
    fn record_error(&mut self, number: usize, error: DeviceError) {
        if self.pending_error.is_none() && self.reported_errors[number].as_ref() != Some(&error) {
            self.reported_errors[number] = Some(error.clone());
            self.pending_error = Some(error);
        }
    }
    /// Keeps the received packets that are this worker's, and hands over the others.
    fn distribute(&mut self, into: &mut Batch) {
        let workers = self.to.len() as u64;
        for packet in self.received.drain() {
            let worker = (u64::from(flow_hash(packet.data())) * workers) >> 32;
            match &mut self.to[worker as usize] {
                Some(outlet) => match outlet.ring.push(packet) {
                    Ok(()) => outlet.used = true,
                    Err(PushError::Full(packet)) => {
                        self.lost += 1;
                        self.lost_bytes += packet.len() as u64;
                    }
                },
                None => into.push(packet),
            }
        }
        for outlet in self.to.iter_mut().flatten() {
            if std::mem::take(&mut outlet.used) {
                outlet.waker.wake();
            }
        }
    }
    /// Polls the other workers' rings once more, after requesting a wakeup for later packets.
    fn prepare_sleep(&mut self, limit: usize, into: &mut Batch) {
        self.listens = true;
        self.waker.request_wakeup();
        for ring in &mut self.from {
            drain_ring(ring, limit.saturating_sub(into.len()), into);
        }
    }
    /// Makes the worker's files readable: there are more packets than they show.
    fn wake_self(&mut self) {
        self.listens = true;
        self.waker.signal();
    }
}

/// Takes what another worker has handed over.
fn drain_ring(ring: &mut Consumer<Packet>, max: usize, into: &mut Batch) -> usize {
    let count = ring.slots().min(max);
    if let Ok(chunk) = ring.read_chunk(count) {
        into.extend(chunk);
    }
    count
}

impl RxQueue for WorkerQueue {
    /// An error of one queue does not stop the others: it is returned after all were served, by a call
    /// that gives no packets.
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        if max == 0 {
            return Ok(0);
        }
        if std::mem::take(&mut self.listens) {
            self.waker.cancel_wakeup();
        }
        if let Some(error) = self.pending_error.take() {
            self.wake_self();
            return Err(error);
        }
        let (start, limit) = (into.len(), into.len() + max);
        let more = self.poll_sources(pool, limit, into);
        if more && into.len() < limit {
            self.wake_self();
        } else if into.len() == start && !self.from.is_empty() {
            self.prepare_sleep(limit, into);
        }
        let received = into.len() - start;
        match self.pending_error.take_if(|_| received == 0) {
            Some(error) => Err(error),
            None => Ok(received),
        }
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }
    fn is_attached(&self) -> bool {
        self.own.iter().all(|queue| queue.is_attached())
    }
    fn counters(&self) -> RxCounters {
        self.sum_counters(|queue| queue.counters())
    }
    fn own_counters(&self) -> RxCounters {
        self.sum_counters(|queue| queue.own_counters())
    }
    /// Packets are distributed by their headers all the same.
    fn set_blind(&mut self, blind: bool) {
        self.own.iter_mut().for_each(|queue| queue.set_blind(blind));
    }
}

impl WorkerQueue {
    /// What the own queues have counted: packets count where they come in, except for those lost here.
    fn sum_counters(&self, counters: impl Fn(&dyn RxQueue) -> RxCounters) -> RxCounters {
        let own = self.own.iter().map(|queue| counters(&**queue));
        let mut sum = own.fold(RxCounters::default(), RxCounters::plus);
        sum.packets = sum.packets.saturating_sub(self.lost);
        sum.bytes = sum.bytes.saturating_sub(self.lost_bytes);
        sum.ring_full += self.lost;
        sum
    }
}

#[cfg(test)]
mod tests;
