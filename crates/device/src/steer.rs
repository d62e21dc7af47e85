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
pub(crate) struct Steered {
    own: Vec<Box<dyn RxQueue>>,
    /// Where to hand packets to, by worker; `None` for itself, and everywhere when nothing is handed over.
    to: Vec<Option<Outlet>>,
    from: Vec<Consumer<Packet>>,
    /// Which of `own` and `from`, in this order, is served first the next time.
    first: usize,
    /// Which of them, as they are served, gave all they were asked for.
    full: Vec<bool>,
    bell: Arc<Bell>,
    /// Whether the bell was asked for, or rung here.
    listens: bool,
    /// Ready when an own queue is or the bell is rung.
    files: OwnedFd,
    /// What an own queue has received, before it is dealt.
    received: Batch,
    /// An error that was not told yet.
    trouble: Option<DeviceError>,
    /// What was told of each own queue since it last received without error.
    told: Vec<Option<DeviceError>>,
    lost: u64,
    lost_bytes: u64,
}

/// The way to another worker.
struct Outlet {
    ring: Producer<Packet>,
    bell: Arc<Bell>,
    /// Whether something was put in since the bell was last looked at.
    used: bool,
}

/// Wakes a worker that waits for its files.
struct Bell {
    file: OwnedFd,
    /// Whether the worker has found nothing and may be asleep.
    wanted: AtomicBool,
}

impl Bell {
    /// What it takes to ask to be rung for, in this order. The other way round, a ring for what was taken out by an
    /// earlier look could take the new wish and be heard: nobody would be rung for, nor woken.
    const ASK: [fn(&Bell); 2] = [Bell::hear, Bell::wish];

    fn new() -> Result<Bell, Errno> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { file, wanted: AtomicBool::new(false) })
    }
    /// Rings if the worker may be asleep. What was put into its ring before is seen by it then.
    fn ring(&self) {
        if self.answer() {
            self.sound();
        }
    }
    /// Takes the wish to be rung for, if there is one: whoever has it is to sound the bell, however late.
    fn answer(&self) -> bool {
        fence(SeqCst);
        self.wanted.load(Relaxed) && self.wanted.swap(false, SeqCst)
    }
    fn sound(&self) {
        // The only error is a counter at its limit, which wakes just as well.
        let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
    }
    /// Asks to be rung for. What was put into a ring before is to be looked for after this.
    ///
    /// Who took an earlier wish may have sounded the bell since: that is heard first, and what it told of is found by
    /// the look that follows. Who sounds it even later wakes the worker in vain, but not for ever.
    fn want(&self) {
        Bell::ASK.iter().for_each(|step| step(self));
    }
    fn wish(&self) {
        self.wanted.store(true, SeqCst);
        fence(SeqCst);
    }
    /// Ends a wish to be rung for; a bell that was rung is silenced.
    fn silence(&self) {
        if !self.wanted.swap(false, SeqCst) {
            self.hear();
        }
    }
    fn hear(&self) {
        let _ = rustix::io::read(&self.file, &mut [0u8; 8]);
    }
}

/// Shares queues out among workers. Each gets every so manieth; when there are too few for each to have one, those that
/// have deal all that comes to all.
pub(crate) fn steer(queues: Vec<Box<dyn RxQueue>>, workers: usize) -> Result<Vec<Steered>, Errno> {
    let owners = queues.len().min(workers);
    let deals = queues.len() < workers;
    let mut shares = Vec::new();
    for _ in 0..workers {
        let bell = Arc::new(Bell::new()?);
        let files = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&files, &bell.file, EventData::new_u64(0), EventFlags::IN)?;
        shares.push(Steered::new(workers, bell, files));
    }
    for (number, queue) in queues.into_iter().enumerate() {
        let owner = &mut shares[number % workers];
        if let Some(file) = queue.fd() {
            epoll::add(&owner.files, file, EventData::new_u64(0), EventFlags::IN)?;
        }
        owner.own.push(queue);
        owner.told.push(None);
    }
    for (from, to) in (0..owners).flat_map(|from| (0..workers).map(move |to| (from, to))) {
        if deals && from != to {
            let (ring, outlet) = RingBuffer::new(RING);
            shares[to].from.push(outlet);
            let bell = shares[to].bell.clone();
            shares[from].to[to] = Some(Outlet { ring, bell, used: false });
        }
    }
    shares.iter_mut().for_each(|share| share.full = vec![false; share.own.len() + share.from.len()]);
    Ok(shares)
}

impl Steered {
    fn new(workers: usize, bell: Arc<Bell>, files: OwnedFd) -> Steered {
        Steered {
            own: Vec::new(),
            to: (0..workers).map(|_| None).collect(),
            from: Vec::new(),
            first: 0,
            full: Vec::new(),
            bell,
            listens: false,
            files,
            received: Batch::default(),
            trouble: None,
            told: Vec::new(),
            lost: 0,
            lost_bytes: 0,
        }
    }
    /// Receives from own queues and others' rings until `into` has `limit` packets, sharing the room among them; returns
    /// whether there may be more.
    fn serve(&mut self, pool: &'static Pool, limit: usize, into: &mut Batch) -> bool {
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
            Some(ring) => fetch(&mut self.from[ring], max, into),
        }
    }
    /// Receives by an own queue; returns how many packets came by it, for whomever. An error is kept.
    fn receive_own(&mut self, number: usize, pool: &'static Pool, max: usize, into: &mut Batch) -> usize {
        let deals = self.to.iter().any(Option::is_some);
        let to = if deals { &mut self.received } else { &mut *into };
        let result = self.own[number].receive(pool, max, to);
        if deals {
            self.deal(into);
        }
        match result {
            Ok(count) => {
                self.told[number] = None;
                count
            }
            Err(error) => {
                self.keep(number, error);
                0
            }
        }
    }
    /// Keeps an error of a queue, unless it is the one that was last told of it. It may come again with every call.
    fn keep(&mut self, number: usize, error: DeviceError) {
        if self.trouble.is_none() && self.told[number].as_ref() != Some(&error) {
            self.told[number] = Some(error.clone());
            self.trouble = Some(error);
        }
    }
    /// Keeps what is this worker's of the received packets, and hands over the others.
    fn deal(&mut self, into: &mut Batch) {
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
                outlet.bell.ring();
            }
        }
    }
    /// Looks at others' rings once more, having asked to be rung for what comes from now on.
    fn listen(&mut self, limit: usize, into: &mut Batch) {
        self.listens = true;
        self.bell.want();
        for ring in &mut self.from {
            fetch(ring, limit.saturating_sub(into.len()), into);
        }
    }
    /// Makes the own files ready: there is more than they tell of.
    fn rouse(&mut self) {
        self.listens = true;
        self.bell.sound();
    }
}

/// Takes what another worker has handed over.
fn fetch(ring: &mut Consumer<Packet>, max: usize, into: &mut Batch) -> usize {
    let count = ring.slots().min(max);
    if let Ok(chunk) = ring.read_chunk(count) {
        into.extend(chunk);
    }
    count
}

impl RxQueue for Steered {
    /// An error of one queue keeps no other from being served; it is told when all were, by a call that gives nothing.
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        if max == 0 {
            return Ok(0);
        }
        if std::mem::take(&mut self.listens) {
            self.bell.silence();
        }
        if let Some(error) = self.trouble.take() {
            self.rouse();
            return Err(error);
        }
        let (start, limit) = (into.len(), into.len() + max);
        let more = self.serve(pool, limit, into);
        if more && into.len() < limit {
            self.rouse();
        } else if into.len() == start && !self.from.is_empty() {
            self.listen(limit, into);
        }
        let received = into.len() - start;
        match self.trouble.take_if(|_| received == 0) {
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
        self.sum(|queue| queue.counters())
    }
    fn own_counters(&self) -> RxCounters {
        self.sum(|queue| queue.own_counters())
    }
    /// Flows are told apart by their headers still.
    fn set_blind(&mut self, blind: bool) {
        self.own.iter_mut().for_each(|queue| queue.set_blind(blind));
    }
}

impl Steered {
    /// What the own queues have counted: packets count where they come in, except for those lost here.
    fn sum(&self, counters: impl Fn(&dyn RxQueue) -> RxCounters) -> RxCounters {
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
