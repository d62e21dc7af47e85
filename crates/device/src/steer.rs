//! Dealing the packets of few queues to many workers, each flow to one of them.
//!
//! A card spreads flows over its queues; where it has fewer queues than the router has workers, the workers that own a
//! queue receive for all and hand over what is not theirs, by a ring for each pair. A flow always goes to the same
//! worker by the same way, so its packets stay in order. Handing a packet over costs two caches what both touch; a
//! router is faster with as many queues as workers, and this is for when that can't be had.
use crate::{DeviceError, RxCounters, RxQueue};
use artery_packet::{Batch, Packet, Pool};
use artery_wire::flow_hash;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

/// Packets that wait for one worker from one other.
const RING: usize = 1024;

/// The share of one worker.
pub(crate) struct Steered {
    own: Vec<Box<dyn RxQueue>>,
    /// Where to hand packets to, by worker; `None` for itself, and everywhere when nothing is handed over.
    to: Vec<Option<Outlet>>,
    from: Vec<Consumer<Packet>>,
    bell: Arc<Bell>,
    /// Whether it was asked to be rung.
    wants: bool,
    /// Ready when an own queue is or the bell is rung.
    files: OwnedFd,
    /// What an own queue has received, before it is dealt.
    received: Batch,
    lost: u64,
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
    fn new() -> Result<Bell, Errno> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { file, wanted: AtomicBool::new(false) })
    }
    /// Rings if the worker may be asleep. What was put into its ring before is seen by it then.
    fn ring(&self) {
        fence(SeqCst);
        if self.wanted.load(Relaxed) && self.wanted.swap(false, SeqCst) {
            // The only error is a counter at its limit, which wakes just as well.
            let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }
    /// Asks to be rung for. What was put into a ring before is to be looked for after this.
    fn want(&self) {
        self.wanted.store(true, SeqCst);
        fence(SeqCst);
    }
    /// Ends a wish to be rung for; a bell that was rung is silenced.
    fn silence(&self) {
        if !self.wanted.swap(false, SeqCst) {
            let _ = rustix::io::read(&self.file, &mut [0u8; 8]);
        }
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
        let (own, from, received) = (Vec::new(), Vec::new(), Batch::default());
        let to = (0..workers).map(|_| None).collect();
        shares.push(Steered { own, to, from, bell, wants: false, files, received, lost: 0 });
    }
    for (number, queue) in queues.into_iter().enumerate() {
        let owner = &mut shares[number % workers];
        if let Some(file) = queue.fd() {
            epoll::add(&owner.files, file, EventData::new_u64(0), EventFlags::IN)?;
        }
        owner.own.push(queue);
    }
    for (from, to) in (0..owners).flat_map(|from| (0..workers).map(move |to| (from, to))) {
        if deals && from != to {
            let (ring, outlet) = RingBuffer::new(RING);
            shares[to].from.push(outlet);
            let bell = shares[to].bell.clone();
            shares[from].to[to] = Some(Outlet { ring, bell, used: false });
        }
    }
    Ok(shares)
}

impl Steered {
    /// Takes what others have handed over.
    fn take(&mut self, max: usize, into: &mut Batch) {
        let end = into.len() + max;
        for ring in &mut self.from {
            let count = ring.slots().min(end.saturating_sub(into.len()));
            if let Ok(chunk) = ring.read_chunk(count) {
                into.extend(chunk);
            }
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
                    Err(_) => self.lost += 1,
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
    /// Receives by the own queues until `into` has `limit` packets.
    fn receive_own(
        &mut self,
        pool: &'static Pool,
        limit: usize,
        into: &mut Batch,
    ) -> Result<(), DeviceError> {
        let deals = self.to.iter().any(Option::is_some);
        for number in 0..self.own.len() {
            let room = limit.saturating_sub(into.len());
            if !deals {
                self.own[number].receive(pool, room, into)?;
                continue;
            }
            let result = self.own[number].receive(pool, room, &mut self.received);
            self.deal(into);
            result?;
        }
        Ok(())
    }
}

impl RxQueue for Steered {
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        let start = into.len();
        if std::mem::take(&mut self.wants) {
            self.bell.silence();
        }
        self.take(max, into);
        self.receive_own(pool, start + max, into)?;
        if into.len() == start && !self.from.is_empty() {
            self.wants = true;
            self.bell.want();
            self.take(max, into);
        }
        Ok(into.len() - start)
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
    /// What the own queues have counted: packets count where they come in.
    fn sum(&self, counters: impl Fn(&dyn RxQueue) -> RxCounters) -> RxCounters {
        let own = self.own.iter().map(|queue| counters(&**queue));
        let mut sum = own.fold(RxCounters::default(), RxCounters::plus);
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
            for (number, flow) in (0..EACH).flat_map(|number| (0..FLOWS).map(move |flow| (number, flow))) {
                let packet = loop {
                    match pool.packet_from(&frame(flow, number)) {
                        Some(packet) => break packet,
                        None => std::thread::yield_now(),
                    }
                };
                batch.push(packet);
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
        assert_eq!(owner.counters().ring_full as usize, 3000 - kept - RING);
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
}
