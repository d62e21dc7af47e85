//! Dealing the packets of few queues to many workers, each flow to one of them.
//!
//! A card spreads flows over its queues; where it has fewer queues than the router has workers, the workers that own a
//! queue receive for all and hand over what is not theirs, by a ring for each pair. A flow always goes to the same
//! worker by the same way, so its packets stay in order. Handing a packet over costs two caches what both touch; a
//! router is faster with as many queues as workers, and this is for when that can't be had.
//!
//! A packet is counted by the worker that received it, once: as given to the router, or as `ring_full` when the worker
//! that it is for has not fetched enough. What still waits in rings when a port is closed was counted as given to the
//! router; it goes back to the pool.
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
/// How often a queue is asked in one call while all it gives is for others.
const ROUNDS: usize = 4;

/// The share of one worker.
pub(crate) struct WorkerQueue {
    own: Vec<Box<dyn RxQueue>>,
    /// Where to hand packets to, by worker; `None` for itself, and everywhere when nothing is handed over.
    to: Vec<Option<WorkerRing>>,
    from: Vec<Consumer<Packet>>,
    /// Which of `own` and `from`, in this order, is served first the next time.
    first: usize,
    /// Which of them, as they are served, gave all they were asked for.
    full: Vec<bool>,
    waker: Arc<Waker>,
    /// Whether the bell was asked for, or rung here.
    listens: bool,
    /// Ready when an own queue is or the bell is rung.
    files: OwnedFd,
    /// What an own queue has received, before it is dealt.
    received: Batch,
    /// An error that was not told yet.
    pending_error: Option<DeviceError>,
    /// What was told of each own queue since it last received without error.
    reported_errors: Vec<Option<DeviceError>>,
    lost: u64,
    lost_bytes: u64,
}

/// The way to another worker.
struct WorkerRing {
    ring: Producer<Packet>,
    waker: Arc<Waker>,
    /// Whether something was put in since the bell was last looked at.
    used: bool,
}

/// Wakes a worker that waits for its files.
struct Waker {
    file: OwnedFd,
    /// Whether the worker has found nothing and may be asleep.
    wanted: AtomicBool,
}

impl Waker {
    /// What it takes to ask to be rung for, in this order. The other way round, a ring for what was taken out by an
    /// earlier look could take the new wish and be heard: nobody would be rung for, nor woken.
    const ASK: [fn(&Waker); 2] = [Waker::drain_signal, Waker::set_wanted];

    fn new() -> Result<Waker, Errno> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { file, wanted: AtomicBool::new(false) })
    }
    /// Rings if the worker may be asleep. What was put into its ring before is seen by it then.
    fn wake(&self) {
        if self.claim_wakeup() {
            self.signal();
        }
    }
    /// Takes the wish to be rung for, if there is one: whoever has it is to sound the bell, however late.
    fn claim_wakeup(&self) -> bool {
        fence(SeqCst);
        self.wanted.load(Relaxed) && self.wanted.swap(false, SeqCst)
    }
    fn signal(&self) {
        // The only error is a counter at its limit, which wakes just as well.
        let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
    }
    /// Asks to be rung for. What was put into a ring before is to be looked for after this.
    ///
    /// Who took an earlier wish may have sounded the bell since: that is heard first, and what it told of is found by
    /// the look that follows. Who sounds it even later wakes the worker in vain, but not for ever.
    fn request_wakeup(&self) {
        Waker::ASK.iter().for_each(|step| step(self));
    }
    fn set_wanted(&self) {
        self.wanted.store(true, SeqCst);
        fence(SeqCst);
    }
    /// Ends a wish to be rung for; a bell that was rung is silenced.
    fn cancel_wakeup(&self) {
        if !self.wanted.swap(false, SeqCst) {
            self.drain_signal();
        }
    }
    fn drain_signal(&self) {
        let _ = rustix::io::read(&self.file, &mut [0u8; 8]);
    }
}

/// Shares queues out among workers. Each gets every so manieth; when there are too few for each to have one, those that
/// have deal all that comes to all.
pub(crate) fn share_queues(queues: Vec<Box<dyn RxQueue>>, workers: usize) -> Result<Vec<WorkerQueue>, Errno> {
    let owners = queues.len().min(workers);
    let deals = queues.len() < workers;
    let mut shares = Vec::new();
    for _ in 0..workers {
        let bell = Arc::new(Waker::new()?);
        let files = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&files, &bell.file, EventData::new_u64(0), EventFlags::IN)?;
        shares.push(WorkerQueue::new(workers, bell, files));
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
            let bell = shares[to].waker.clone();
            shares[from].to[to] = Some(WorkerRing { ring, waker: bell, used: false });
        }
    }
    shares.iter_mut().for_each(|share| share.full = vec![false; share.own.len() + share.from.len()]);
    Ok(shares)
}

impl WorkerQueue {
    fn new(workers: usize, bell: Arc<Waker>, files: OwnedFd) -> WorkerQueue {
        WorkerQueue {
            own: Vec::new(),
            to: (0..workers).map(|_| None).collect(),
            from: Vec::new(),
            first: 0,
            full: Vec::new(),
            waker: bell,
            listens: false,
            files,
            received: Batch::default(),
            pending_error: None,
            reported_errors: Vec::new(),
            lost: 0,
            lost_bytes: 0,
        }
    }
    /// Receives from own queues and others' rings until `into` has `limit` packets, sharing the room among them; returns
    /// whether there may be more.
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
    /// Receives by an own queue; returns how many packets came by it, for whomever. An error is kept.
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
    /// Keeps an error of a queue, unless it is the one that was last told of it. It may come again with every call.
    fn record_error(&mut self, number: usize, error: DeviceError) {
        if self.pending_error.is_none() && self.reported_errors[number].as_ref() != Some(&error) {
            self.reported_errors[number] = Some(error.clone());
            self.pending_error = Some(error);
        }
    }
    /// Keeps what is this worker's of the received packets, and hands over the others.
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
    /// Looks at others' rings once more, having asked to be rung for what comes from now on.
    fn prepare_sleep(&mut self, limit: usize, into: &mut Batch) {
        self.listens = true;
        self.waker.request_wakeup();
        for ring in &mut self.from {
            drain_ring(ring, limit.saturating_sub(into.len()), into);
        }
    }
    /// Makes the own files ready: there is more than they tell of.
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
    /// An error of one queue keeps no other from being served; it is told when all were, by a call that gives nothing.
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
    /// Flows are told apart by their headers still.
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
