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
mod tests {
    use super::*;
    use crate::{MemoryTx, TxQueue, memory_pair};
    use artery_wire::build::{ether, ip4};
    use std::time::{Duration, Instant};

    /// A memory port with a file, as devices have.
    struct WithFile(crate::MemoryRx, OwnedFd);

    impl RxQueue for WithFile {
        fn receive(
            &mut self,
            pool: &'static Pool,
            max: usize,
            into: &mut Batch,
        ) -> Result<usize, DeviceError> {
            self.0.receive(pool, max, into)
        }
        fn fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.1.as_fd())
        }
        fn counters(&self) -> RxCounters {
            self.0.counters()
        }
    }

    fn queue(capacity: usize) -> (MemoryTx, Box<dyn RxQueue>) {
        let (left, right) = memory_pair(capacity);
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        (left.tx, Box::new(WithFile(right.rx, file)))
    }

    /// Packet `number` of a flow.
    fn frame(flow: u16, number: u32) -> Vec<u8> {
        let ip = ip4().udp(flow, 9).payload(number.to_be_bytes());
        ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(ip).bytes()
    }

    fn flow_and_number(frame: &[u8]) -> (u16, u32) {
        let word = frame[42..46].try_into().unwrap();
        (u16::from_be_bytes([frame[34], frame[35]]), u32::from_be_bytes(word))
    }

    fn is_ready(file: BorrowedFd<'_>, wait: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&limit)).unwrap() > 0
    }

    #[test]
    fn every_flow_has_one_worker_and_keeps_its_order() {
        const FLOWS: u16 = 40;
        const EACH: u32 = 200;
        let pool = Pool::new(2048, 1).unwrap();
        let (mut tx, rx) = queue(256);
        let shares = steer(vec![rx], 3).unwrap();
        let received = std::sync::Mutex::new(vec![Vec::new(); 3]);
        let total = std::sync::atomic::AtomicUsize::new(0);
        let all = usize::from(FLOWS) * EACH as usize;
        std::thread::scope(|scope| {
            for (worker, mut share) in shares.into_iter().enumerate() {
                let (received, total) = (&received, &total);
                scope.spawn(move || {
                    let (mut batch, mut got) = (Batch::default(), Vec::new());
                    let end = Instant::now() + Duration::from_secs(20);
                    while total.load(SeqCst) < all && Instant::now() < end {
                        share.receive(pool, 64, &mut batch).unwrap();
                        total.fetch_add(batch.len(), SeqCst);
                        got.extend(batch.drain().map(|packet| flow_and_number(packet.data())));
                    }
                    received.lock().unwrap()[worker] = got;
                });
            }
            let mut batch = Batch::default();
            let end = Instant::now() + Duration::from_secs(20);
            let packets = (0..EACH).flat_map(|number| (0..FLOWS).map(move |flow| (number, flow)));
            for (sent, (number, flow)) in packets.enumerate() {
                // No ring overflows, however long a worker has to wait for a processor.
                while sent - total.load(SeqCst) >= RING / 2 && Instant::now() < end {
                    std::thread::yield_now();
                }
                batch.push(pool.packet_from(&frame(flow, number)).unwrap());
                while !batch.is_empty() && tx.transmit(&mut batch).unwrap() == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let received = received.into_inner().unwrap();
        assert_eq!(received.iter().map(Vec::len).sum::<usize>(), all);
        for flow in 0..FLOWS {
            let of_flow = |got: &Vec<(u16, u32)>| -> Vec<u32> {
                got.iter().filter(|(f, _)| *f == flow).map(|(_, number)| *number).collect()
            };
            let workers: Vec<Vec<u32>> =
                received.iter().map(of_flow).filter(|numbers| !numbers.is_empty()).collect();
            assert_eq!(workers, [(0..EACH).collect::<Vec<u32>>()], "flow {flow}");
        }
        assert!(received.iter().all(|got| !got.is_empty()), "every worker has some flows");
    }

    #[test]
    fn a_worker_that_waits_is_woken_by_what_is_handed_to_it() {
        let pool = Pool::new(64, 1).unwrap();
        let (mut tx, rx) = queue(64);
        let mut shares = steer(vec![rx], 2).unwrap();
        let mut other = shares.pop().unwrap();
        let mut owner = shares.pop().unwrap();
        let mut batch = Batch::default();
        for _ in 0..3 {
            assert_eq!(other.receive(pool, 8, &mut batch), Ok(0));
            assert!(!is_ready(other.fd().unwrap(), Duration::ZERO));
            batch.extend((0..16).map(|flow| pool.packet_from(&frame(flow, 0)).unwrap()));
            tx.transmit(&mut batch).unwrap();
            owner.receive(pool, 64, &mut batch).unwrap();
            let kept = batch.len();
            batch.free();
            assert!(kept < 16 && is_ready(other.fd().unwrap(), Duration::from_secs(5)));
            assert_eq!(other.receive(pool, 64, &mut batch), Ok(16 - kept));
            batch.free();
        }
        assert_eq!(
            (owner.counters().packets, other.counters().packets),
            (48, 0),
            "counted where they came in"
        );
    }

    #[test]
    fn what_a_worker_does_not_fetch_is_dropped_and_counted() {
        let pool = Pool::new(4096, 1).unwrap();
        let (mut tx, rx) = queue(4096);
        let mut owner = steer(vec![rx], 2).unwrap().swap_remove(0);
        let (mut batch, mut kept) = (Batch::default(), 0);
        for _ in 0..50 {
            batch.extend((0..60).map(|flow| pool.packet_from(&frame(flow, 0)).unwrap()));
            tx.transmit(&mut batch).unwrap();
            owner.receive(pool, 64, &mut batch).unwrap();
            kept += batch.len();
            batch.free();
        }
        let counters = owner.counters();
        assert_eq!(counters.ring_full as usize, 3000 - kept - RING);
        let bytes = frame(0, 0).len() as u64;
        assert_eq!((counters.packets + counters.ring_full, counters.bytes), (3000, counters.packets * bytes));
    }

    #[test]
    fn one_worker_serves_many_queues_and_none_is_handed_over() {
        let pool = Pool::new(64, 1).unwrap();
        let (mut txs, rxs): (Vec<MemoryTx>, Vec<Box<dyn RxQueue>>) = (0..5).map(|_| queue(8)).unzip();
        let mut shares = steer(rxs, 2).unwrap();
        assert_eq!(shares.iter().map(|share| share.own.len()).collect::<Vec<_>>(), [3, 2]);
        let mut batch = Batch::default();
        for tx in &mut txs {
            batch.push(pool.packet_from(&frame(1, 0)).unwrap());
            tx.transmit(&mut batch).unwrap();
        }
        assert_eq!(shares[0].receive(pool, 2, &mut batch), Ok(2), "no more than asked for");
        assert_eq!(shares[0].receive(pool, 64, &mut batch), Ok(1));
        assert_eq!(shares[1].receive(pool, 64, &mut batch), Ok(2));
    }

    /// A flow that is the given one's of so many workers.
    fn flow_of(worker: u64, workers: u64) -> u16 {
        let is_its = |flow: &u16| (u64::from(flow_hash(&frame(*flow, 0))) * workers) >> 32 == worker;
        (1..).find(is_its).unwrap()
    }

    fn send(tx: &mut MemoryTx, pool: &'static Pool, flow: u16, count: u32) {
        let mut batch = Batch::default();
        batch.extend((0..count).map(|number| pool.packet_from(&frame(flow, number)).unwrap()));
        assert_eq!(tx.transmit(&mut batch), Ok(count as usize));
    }

    /// How many packets of each of some flows a batch has, which is emptied.
    fn count<const N: usize>(batch: &mut Batch, flows: [u16; N]) -> [usize; N] {
        let got: Vec<u16> = batch.drain().map(|packet| flow_and_number(packet.data()).0).collect();
        flows.map(|flow| got.iter().filter(|of| **of == flow).count())
    }

    #[test]
    fn own_queues_share_the_room_and_take_turns_at_being_first() {
        let pool = Pool::new(1024, 1).unwrap();
        let (mut txs, rxs): (Vec<MemoryTx>, Vec<Box<dyn RxQueue>>) = (0..3).map(|_| queue(200)).unzip();
        let mut share = steer(rxs, 1).unwrap().remove(0);
        for (flow, tx) in txs.iter_mut().enumerate() {
            send(tx, pool, flow as u16, 200);
        }
        let mut batch = Batch::default();
        assert_eq!(share.receive(pool, 63, &mut batch), Ok(63));
        assert_eq!(count(&mut batch, [0, 1, 2]), [21; 3]);
        for max in [1, 2] {
            for _ in 0..3 {
                assert_eq!(share.receive(pool, max, &mut batch), Ok(max));
            }
            assert_eq!(count(&mut batch, [0, 1, 2]), [max; 3], "{max} at a time");
        }
        assert_eq!(
            share.receive(pool, 1000, &mut batch),
            Ok(600 - 63 - 3 - 6),
            "what one does not need others get"
        );
    }

    #[test]
    fn neither_own_queues_nor_what_is_handed_over_starves() {
        let pool = Pool::new(4096, 1).unwrap();
        let (mut txs, rxs): (Vec<MemoryTx>, Vec<Box<dyn RxQueue>>) = (0..2).map(|_| queue(800)).unzip();
        let mut shares = steer(rxs, 3).unwrap();
        let flow = flow_of(0, 3);
        let other =
            (flow + 1..).find(|flow| (u64::from(flow_hash(&frame(*flow, 0))) * 3) >> 32 == 0).unwrap();
        send(&mut txs[0], pool, flow, 800);
        send(&mut txs[1], pool, other, 800);
        let mut batch = Batch::default();
        for _ in 0..10 {
            shares[1].receive(pool, 64, &mut batch).unwrap();
        }
        assert!(batch.is_empty());
        for _ in 0..20 {
            assert_eq!(shares[0].receive(pool, 16, &mut batch), Ok(16));
            assert_eq!(count(&mut batch, [flow, other]), [8, 8]);
        }
    }

    #[test]
    fn a_flow_for_another_worker_is_handed_over_without_sleeping_in_between() {
        let pool = Pool::new(2048, 1).unwrap();
        let (mut tx, rx) = queue(1000);
        let mut shares = steer(vec![rx], 2).unwrap();
        send(&mut tx, pool, flow_of(1, 2), 1000);
        let (mut batch, mut calls) = (Batch::default(), 0);
        while is_ready(shares[0].fd().unwrap(), Duration::ZERO) || calls == 0 {
            assert_eq!(shares[0].receive(pool, 64, &mut batch), Ok(0));
            calls += 1;
            assert!(calls <= 1000 / 64, "{calls} calls, and it is ready still");
        }
        assert_eq!((calls, shares[0].counters().packets), (1000 / (64 * ROUNDS) + 1, 1000));
        assert_eq!(shares[1].receive(pool, 2000, &mut batch), Ok(1000));
    }

    /// Fails when it is told to.
    struct Failing(Box<dyn RxQueue>, Arc<AtomicBool>, Arc<AtomicBool>);

    impl RxQueue for Failing {
        fn receive(
            &mut self,
            pool: &'static Pool,
            max: usize,
            into: &mut Batch,
        ) -> Result<usize, DeviceError> {
            self.2.store(true, SeqCst);
            if self.1.load(SeqCst) {
                return Err(DeviceError::Gone { name: "left".into() });
            }
            self.0.receive(pool, max, into)
        }
        fn fd(&self) -> Option<BorrowedFd<'_>> {
            self.0.fd()
        }
        fn counters(&self) -> RxCounters {
            self.0.counters()
        }
    }

    #[test]
    fn a_queue_that_fails_keeps_no_other_from_being_served_and_is_told_once() {
        let pool = Pool::new(256, 1).unwrap();
        let ((mut bad_tx, bad), (mut tx, good)) = (queue(8), queue(8));
        let fails = Arc::new(AtomicBool::new(true));
        let bad = Box::new(Failing(bad, fails.clone(), Arc::default()));
        let mut share = steer(vec![bad, good], 1).unwrap().remove(0);
        let gone = DeviceError::Gone { name: "left".into() };
        let mut batch = Batch::default();
        for _ in 0..2 {
            fails.store(true, SeqCst);
            send(&mut tx, pool, 1, 5);
            assert_eq!(share.receive(pool, 4, &mut batch), Ok(4), "the other first");
            assert_eq!(share.receive(pool, 4, &mut batch), Err(gone.clone()));
            assert!(is_ready(share.fd().unwrap(), Duration::ZERO), "for nothing was looked for");
            assert_eq!(share.receive(pool, 4, &mut batch), Ok(1));
            assert_eq!(share.receive(pool, 4, &mut batch), Ok(0), "it was told");
            assert!(!is_ready(share.fd().unwrap(), Duration::ZERO));
            fails.store(false, SeqCst);
            send(&mut bad_tx, pool, 1, 1);
            assert_eq!(share.receive(pool, 4, &mut batch), Ok(1), "it works again");
        }
    }

    #[test]
    fn a_worker_whose_queue_fails_is_still_woken_by_others() {
        let pool = Pool::new(256, 1).unwrap();
        let ((mut tx, good), (_, bad)) = (queue(8), queue(8));
        let bad = Box::new(Failing(bad, Arc::new(AtomicBool::new(true)), Arc::default()));
        let mut shares = steer(vec![good, bad], 3).unwrap();
        let mut batch = Batch::default();
        assert!(shares[1].receive(pool, 4, &mut batch).is_err());
        assert!(!is_ready(shares[1].fd().unwrap(), Duration::ZERO));
        send(&mut tx, pool, flow_of(1, 3), 3);
        assert_eq!(shares[0].receive(pool, 4, &mut batch), Ok(0));
        assert!(is_ready(shares[1].fd().unwrap(), Duration::ZERO));
        assert_eq!(shares[1].receive(pool, 4, &mut batch), Ok(3));
    }

    #[test]
    fn who_has_no_room_asks_no_queue_and_may_still_be_woken() {
        let pool = Pool::new(256, 1).unwrap();
        let (asked, (mut tx, rx)) = (Arc::new(AtomicBool::new(false)), queue(8));
        let rx = Box::new(Failing(rx, Arc::default(), asked.clone()));
        let mut shares = steer(vec![rx], 2).unwrap();
        let mut batch = Batch::default();
        assert_eq!((shares[0].receive(pool, 0, &mut batch), asked.load(SeqCst)), (Ok(0), false));
        assert_eq!(shares[1].receive(pool, 4, &mut batch), Ok(0));
        assert_eq!(shares[1].receive(pool, 0, &mut batch), Ok(0));
        send(&mut tx, pool, flow_of(1, 2), 1);
        assert_eq!(shares[0].receive(pool, 4, &mut batch), Ok(0));
        assert!(is_ready(shares[1].fd().unwrap(), Duration::ZERO));
    }

    /// Somebody who hands packets over, one step at a time.
    #[derive(Clone, Copy)]
    struct Ringer {
        packets: u32,
        step: fn(&mut Ringer, &Bell, &mut u32),
    }

    impl Ringer {
        fn put(&mut self, _: &Bell, waiting: &mut u32) {
            if self.packets > 0 {
                (self.packets, *waiting, self.step) = (self.packets - 1, *waiting + 1, Ringer::answer);
            }
        }
        fn answer(&mut self, bell: &Bell, _: &mut u32) {
            self.step = if bell.answer() { Ringer::sound } else { Ringer::put };
        }
        fn sound(&mut self, bell: &Bell, _: &mut u32) {
            bell.sound();
            self.step = Ringer::put;
        }
    }

    /// What a worker does, one step after the other: look, ask to be rung for, look again, and then wait.
    struct Listener {
        at: u32,
        got: u32,
        wakes: u32,
    }

    impl Listener {
        fn step(&mut self, bell: &Bell, waiting: &mut u32, own_queue: bool) {
            let asleep = self.at == 5;
            if asleep && !own_queue && !is_ready(bell.file.as_fd(), Duration::ZERO) {
                return;
            }
            self.wakes += u32::from(asleep);
            match self.at {
                0 | 5 => bell.silence(),
                2 | 3 => Bell::ASK[self.at as usize - 2](bell),
                _ => self.got += std::mem::take(waiting),
            }
            self.at = if asleep { 1 } else { self.at + 1 };
        }
    }

    proptest::proptest! {
        #[test]
        fn in_every_order_a_bell_wakes_whoever_waits_and_comes_to_rest(
            steps in proptest::collection::vec((0..4usize, proptest::bool::weighted(0.2)), 0..80),
        ) {
            let (bell, mut waiting) = (Bell::new().unwrap(), 0);
            let mut ringers = [Ringer { packets: 4, step: Ringer::put }; 2];
            let mut listener = Listener { at: 0, got: 0, wakes: 0 };
            for (who, own_queue) in steps {
                match ringers.get_mut(who) {
                    Some(ringer) => (ringer.step)(ringer, &bell, &mut waiting),
                    None => listener.step(&bell, &mut waiting, own_queue),
                }
            }
            for ringer in &mut ringers {
                (0..12).for_each(|_| (ringer.step)(ringer, &bell, &mut waiting));
            }
            listener.wakes = 0;
            (0..60).for_each(|_| listener.step(&bell, &mut waiting, false));
            proptest::prop_assert_eq!((listener.got, waiting), (8, 0), "nothing is slept through");
            proptest::prop_assert!(listener.wakes <= 3, "it is woken {} times more", listener.wakes);
            proptest::prop_assert!(!is_ready(bell.file.as_fd(), Duration::ZERO));
        }
    }

    #[test]
    fn a_bell_that_is_rung_late_wakes_once_and_is_silent_then() {
        let bell = Bell::new().unwrap();
        bell.want();
        assert!(bell.answer());
        // The worker was woken by its own queue, and finds nothing the next time.
        bell.silence();
        bell.want();
        bell.sound();
        assert!(is_ready(bell.file.as_fd(), Duration::ZERO));
        bell.silence();
        bell.want();
        assert!(!is_ready(bell.file.as_fd(), Duration::ZERO));
    }

    #[test]
    fn no_ring_is_lost_between_threads() {
        const EACH: usize = 20_000;
        let (bell, waiting) = (Bell::new().unwrap(), std::sync::atomic::AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..EACH {
                        waiting.fetch_add(1, Relaxed);
                        bell.ring();
                        if number % 16 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let (mut got, mut turn) = (0, 0);
            while got < 2 * EACH {
                bell.silence();
                let before = got;
                got += waiting.swap(0, Relaxed);
                if got == before {
                    bell.want();
                    got += waiting.swap(0, Relaxed);
                }
                turn += 1;
                // Now and then it is woken by something else.
                let wait = Duration::from_secs(if turn % 3 == 0 { 0 } else { 10 });
                if got == before {
                    let woken = is_ready(bell.file.as_fd(), wait);
                    assert!(woken || wait.is_zero(), "slept through a ring, having {got}");
                }
            }
        });
        for _ in 0..2 {
            bell.silence();
            bell.want();
        }
        assert!(!is_ready(bell.file.as_fd(), Duration::ZERO));
    }
}
