use super::*;
use crate::{MemoryTx, TxQueue, memory_pair};
use artery_wire::build::{ether, ip4};
use std::time::{Duration, Instant};

/// A memory port with a file, as devices have.
struct WithFile(crate::MemoryRx, OwnedFd);

impl RxQueue for WithFile {
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
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
    let shares = share_queues(vec![rx], 3).unwrap();
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
    let mut shares = share_queues(vec![rx], 2).unwrap();
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
        batch.free_packets();
        assert!(kept < 16 && is_ready(other.fd().unwrap(), Duration::from_secs(5)));
        assert_eq!(other.receive(pool, 64, &mut batch), Ok(16 - kept));
        batch.free_packets();
    }
    assert_eq!((owner.counters().packets, other.counters().packets), (48, 0), "counted where they came in");
}

#[test]
fn what_a_worker_does_not_fetch_is_dropped_and_counted() {
    let pool = Pool::new(4096, 1).unwrap();
    let (mut tx, rx) = queue(4096);
    let mut owner = share_queues(vec![rx], 2).unwrap().swap_remove(0);
    let (mut batch, mut kept) = (Batch::default(), 0);
    for _ in 0..50 {
        batch.extend((0..60).map(|flow| pool.packet_from(&frame(flow, 0)).unwrap()));
        tx.transmit(&mut batch).unwrap();
        owner.receive(pool, 64, &mut batch).unwrap();
        kept += batch.len();
        batch.free_packets();
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
    let mut shares = share_queues(rxs, 2).unwrap();
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
    let mut share = share_queues(rxs, 1).unwrap().remove(0);
    (0..).zip(&mut txs).for_each(|(flow, tx)| send(tx, pool, flow, 200));
    let mut batch = Batch::default();
    assert_eq!(share.receive(pool, 63, &mut batch), Ok(63));
    assert_eq!(count(&mut batch, [0, 1, 2]), [21; 3]);
    for max in [1, 2] {
        for _ in 0..3 {
            assert_eq!(share.receive(pool, max, &mut batch), Ok(max));
        }
        assert_eq!(count(&mut batch, [0, 1, 2]), [max; 3], "{max} at a time");
    }
    let rest = share.receive(pool, 1000, &mut batch);
    assert_eq!(rest, Ok(600 - 63 - 3 - 6), "what one does not need others get");
}

#[test]
fn neither_own_queues_nor_what_is_handed_over_starves() {
    let pool = Pool::new(4096, 1).unwrap();
    let (mut txs, rxs): (Vec<MemoryTx>, Vec<Box<dyn RxQueue>>) = (0..2).map(|_| queue(800)).unzip();
    let mut shares = share_queues(rxs, 3).unwrap();
    let flow = flow_of(0, 3);
    let other = (flow + 1..).find(|flow| (u64::from(flow_hash(&frame(*flow, 0))) * 3) >> 32 == 0).unwrap();
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
    let mut shares = share_queues(vec![rx], 2).unwrap();
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

/// A queue that fails while its flag is set.
struct Failing(Box<dyn RxQueue>, Arc<AtomicBool>, Arc<AtomicBool>);

impl RxQueue for Failing {
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
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
    let mut share = share_queues(vec![bad, good], 1).unwrap().remove(0);
    let gone = DeviceError::Gone { name: "left".into() };
    let mut batch = Batch::default();
    for _ in 0..2 {
        fails.store(true, SeqCst);
        send(&mut tx, pool, 1, 5);
        assert_eq!(share.receive(pool, 4, &mut batch), Ok(4), "the other first");
        assert_eq!(share.receive(pool, 4, &mut batch), Err(gone.clone()));
        assert!(is_ready(share.fd().unwrap(), Duration::ZERO), "for nothing was looked for");
        assert_eq!(share.receive(pool, 4, &mut batch), Ok(1));
        assert_eq!(share.receive(pool, 4, &mut batch), Ok(0), "it was reported");
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
    let mut shares = share_queues(vec![good, bad], 3).unwrap();
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
    let mut shares = share_queues(vec![rx], 2).unwrap();
    let mut batch = Batch::default();
    assert_eq!((shares[0].receive(pool, 0, &mut batch), asked.load(SeqCst)), (Ok(0), false));
    assert_eq!(shares[1].receive(pool, 4, &mut batch), Ok(0));
    assert_eq!(shares[1].receive(pool, 0, &mut batch), Ok(0));
    send(&mut tx, pool, flow_of(1, 2), 1);
    assert_eq!(shares[0].receive(pool, 4, &mut batch), Ok(0));
    assert!(is_ready(shares[1].fd().unwrap(), Duration::ZERO));
}

/// A producer that hands packets over, one step at a time.
#[derive(Clone, Copy)]
struct Ringer {
    packets: u32,
    step: fn(&mut Ringer, &Waker, &mut u32),
}

impl Ringer {
    fn put(&mut self, _: &Waker, waiting: &mut u32) {
        if self.packets > 0 {
            (self.packets, *waiting, self.step) = (self.packets - 1, *waiting + 1, Ringer::answer);
        }
    }
    fn answer(&mut self, waker: &Waker, _: &mut u32) {
        self.step = if waker.claim_wakeup() { Ringer::sound } else { Ringer::put };
    }
    fn sound(&mut self, waker: &Waker, _: &mut u32) {
        waker.signal();
        self.step = Ringer::put;
    }
}

/// What a worker does, one step after the other: poll, request a wakeup, poll again, and then wait.
struct Listener {
    at: u32,
    got: u32,
    wakes: u32,
}

impl Listener {
    fn step(&mut self, waker: &Waker, waiting: &mut u32, own_queue: bool) {
        let asleep = self.at == 5;
        if asleep && !own_queue && !is_ready(waker.file.as_fd(), Duration::ZERO) {
            return;
        }
        self.wakes += u32::from(asleep);
        match self.at {
            0 | 5 => waker.cancel_wakeup(),
            2 | 3 => Waker::ASK[self.at as usize - 2](waker),
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
        let (waker, mut waiting) = (Waker::new().unwrap(), 0);
        let mut ringers = [Ringer { packets: 4, step: Ringer::put }; 2];
        let mut listener = Listener { at: 0, got: 0, wakes: 0 };
        for (who, own_queue) in steps {
            match ringers.get_mut(who) {
                Some(ringer) => (ringer.step)(ringer, &waker, &mut waiting),
                None => listener.step(&waker, &mut waiting, own_queue),
            }
        }
        for ringer in &mut ringers {
            (0..12).for_each(|_| (ringer.step)(ringer, &waker, &mut waiting));
        }
        listener.wakes = 0;
        (0..60).for_each(|_| listener.step(&waker, &mut waiting, false));
        proptest::prop_assert_eq!((listener.got, waiting), (8, 0), "nothing is slept through");
        proptest::prop_assert!(listener.wakes <= 3, "it is woken {} times more", listener.wakes);
        proptest::prop_assert!(!is_ready(waker.file.as_fd(), Duration::ZERO));
    }
}

#[test]
fn a_waker_that_is_signalled_late_wakes_once() {
    let waker = Waker::new().unwrap();
    waker.request_wakeup();
    assert!(waker.claim_wakeup());
    // The worker was woken by its own queue, and finds nothing the next time.
    waker.cancel_wakeup();
    waker.request_wakeup();
    waker.signal();
    assert!(is_ready(waker.file.as_fd(), Duration::ZERO));
    waker.cancel_wakeup();
    waker.request_wakeup();
    assert!(!is_ready(waker.file.as_fd(), Duration::ZERO));
}

#[test]
fn no_ring_is_lost_between_threads() {
    const EACH: usize = 20_000;
    let (waker, waiting) = (Waker::new().unwrap(), std::sync::atomic::AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0..EACH {
                    waiting.fetch_add(1, Relaxed);
                    waker.wake();
                    if number % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (mut got, mut turn) = (0, 0);
        while got < 2 * EACH {
            waker.cancel_wakeup();
            let before = got;
            got += waiting.swap(0, Relaxed);
            if got == before {
                waker.request_wakeup();
                got += waiting.swap(0, Relaxed);
            }
            turn += 1;
            // Now and then it is woken by something else.
            let wait = Duration::from_secs(if turn % 3 == 0 { 0 } else { 10 });
            if got == before {
                let woken = is_ready(waker.file.as_fd(), wait);
                assert!(woken || wait.is_zero(), "slept through a ring, having {got}");
            }
        }
    });
    for _ in 0..2 {
        waker.cancel_wakeup();
        waker.request_wakeup();
    }
    assert!(!is_ready(waker.file.as_fd(), Duration::ZERO));
}
