//! Readers and writers at full speed, with values that show whether they were freed while read.
#![cfg(not(loom))]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use artery_rcu::{Domain, Published};

const PUBLICATIONS: u64 = if cfg!(miri) { 40 } else { 200_000 };
const READERS: usize = 3;

static LIVING: AtomicUsize = AtomicUsize::new(0);

/// A number and its complement: the drop breaks the pair, and so does whoever reuses the memory.
struct Canary(u64, u64);

impl Canary {
    fn new(n: u64) -> Canary {
        LIVING.fetch_add(1, Relaxed);
        Canary(n, !n)
    }

    fn is_whole(&self) -> bool {
        black_box(self).1 == !black_box(self).0
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        assert_eq!(self.1, !self.0, "dropped twice");
        self.1 = self.0;
        black_box(&mut self.1);
        LIVING.fetch_sub(1, Relaxed);
    }
}

/// Takes turns, reads, and sometimes sleeps until the flag is set; returns the last number seen.
fn work(
    domain: &std::sync::Arc<Domain>,
    table: &Published<Canary>,
    stop: &AtomicBool,
    start: &Barrier,
) -> u64 {
    let mut reader = domain.reader();
    start.wait();
    let mut last = 0;
    for turns in 0_u64.. {
        if stop.load(Relaxed) {
            break;
        }
        let turn = reader.turn();
        let value = table.read(&turn);
        assert!(value.0 >= last, "went back in time");
        last = value.0;
        for _ in 0..20 {
            assert!(value.is_whole(), "read after free");
        }
        if turns % 64 == 63 {
            reader.park();
            std::thread::yield_now();
        }
    }
    last
}

#[test]
fn readers_never_see_a_freed_value_and_every_value_is_freed() {
    let domain = Domain::new();
    let table = Published::new(&domain, Canary::new(0));
    let (stop, start) = (AtomicBool::new(false), Barrier::new(READERS + 1));
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..READERS).map(|_| scope.spawn(|| work(&domain, &table, &stop, &start))).collect();
        start.wait();
        (1..PUBLICATIONS).for_each(|n| table.publish(Canary::new(n)));
        stop.store(true, Relaxed);
        workers.into_iter().for_each(|worker| assert!(worker.join().unwrap() < PUBLICATIONS));
    });
    assert_eq!(table.read(&domain.reader().turn()).0, PUBLICATIONS - 1);
    domain.run_deferred();
    assert_eq!((domain.pending(), LIVING.load(Relaxed)), (0, 1));
    drop((table, domain));
    assert_eq!(LIVING.load(Relaxed), 0);
}
