//! Every interleaving and every permitted weak ordering of small programs, explored by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p artery-rcu --release --test
//! loom`.
#![cfg(loom)]

use std::sync::Arc;

use artery_rcu::{Domain, Published};
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::thread;

/// A value whose drop is an unsynchronised write: loom fails when any look at it is not ordered before.
struct Canary {
    n: usize,
    alive: AtomicUsize,
}

impl Canary {
    fn new(n: usize) -> Canary {
        Canary { n, alive: AtomicUsize::new(1) }
    }

    /// Looks whether the canary lives, and reads its number.
    fn sing(&self) -> usize {
        assert_eq!(self.alive.load(Relaxed), 1, "read after free");
        self.n
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.alive.with_mut(|alive| *alive = 0);
    }
}

#[test]
fn a_value_is_not_freed_while_a_waking_reader_reads_it() {
    loom::model(|| {
        let domain = Domain::new();
        let table = Arc::new(Published::new(&domain, Canary::new(1)));
        let mut reader = domain.reader();
        let worker = {
            let table = table.clone();
            thread::spawn(move || {
                let turn = reader.turn();
                let value = table.read(&turn);
                let first = value.sing();
                assert_eq!(value.sing(), first);
            })
        };
        table.publish(Canary::new(2));
        domain.run_deferred();
        worker.join().unwrap();
    });
}

#[test]
fn a_value_is_not_freed_while_a_turning_reader_reads_it() {
    loom::model(|| {
        let domain = Domain::new();
        let table = Arc::new(Published::new(&domain, Canary::new(1)));
        let mut reader = domain.reader();
        let worker = {
            let table = table.clone();
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let turn = reader.turn();
                    let seen = table.read(&turn).sing();
                    assert!(seen >= last, "a later turn saw an older value");
                    last = table.read(&turn).sing();
                }
            })
        };
        table.publish(Canary::new(2));
        domain.run_deferred();
        worker.join().unwrap();
    });
}

#[test]
fn a_reader_that_parks_and_wakes_is_waited_for() {
    loom::model(|| {
        let domain = Domain::new();
        let table = Arc::new(Published::new(&domain, Canary::new(1)));
        let mut reader = domain.reader();
        let worker = {
            let table = table.clone();
            thread::spawn(move || {
                table.read(&reader.turn()).sing();
                reader.park();
                table.read(&reader.turn()).sing();
            })
        };
        table.publish(Canary::new(2));
        domain.run_deferred();
        worker.join().unwrap();
    });
}

#[test]
fn two_writers_free_each_value_once_and_not_too_early() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3); // three threads: the full space takes hours
    model.check(|| {
        let domain = Domain::new();
        let table = Arc::new(Published::new(&domain, Canary::new(1)));
        let mut reader = domain.reader();
        let worker = {
            let table = table.clone();
            thread::spawn(move || {
                let turn = reader.turn();
                let value = table.read(&turn);
                assert_eq!(value.sing(), value.n);
            })
        };
        let rival = {
            let table = table.clone();
            thread::spawn(move || table.publish(Canary::new(2)))
        };
        table.publish(Canary::new(3));
        rival.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn a_slot_handed_back_by_a_deferred_action_is_not_reused_under_a_turn() {
    loom::model(|| {
        // A table of slots named by an index, as the forwarding tables have them: no pointer is published.
        let domain = Domain::new();
        let current = Arc::new(AtomicUsize::new(0));
        let slots = Arc::new([AtomicUsize::new(7), AtomicUsize::new(8)]);
        let mut reader = domain.reader();
        let worker = {
            let (current, slots) = (current.clone(), slots.clone());
            thread::spawn(move || {
                let _turn = reader.turn();
                let slot = current.load(Acquire);
                assert_eq!(slots[slot].load(Relaxed), 7 + slot);
            })
        };
        current.store(1, Release);
        let old = slots.clone();
        domain.defer(Box::new(move || old[0].store(99, Relaxed)));
        worker.join().unwrap();
    });
}

#[test]
fn synchronize_returns_only_after_the_turns_under_way() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3); // the waiting loop makes the full space unbounded
    model.check(|| {
        let domain = Domain::new();
        let unlinked = Arc::new(AtomicBool::new(false));
        let freed = Arc::new(AtomicBool::new(false));
        let mut reader = domain.reader();
        let worker = {
            let (unlinked, freed) = (unlinked.clone(), freed.clone());
            thread::spawn(move || {
                let turn = reader.turn();
                if !unlinked.load(Relaxed) {
                    assert!(!freed.load(Relaxed), "freed under a turn that had reached it");
                }
                drop(turn);
            })
        };
        unlinked.store(true, Relaxed);
        domain.synchronize();
        freed.store(true, Relaxed);
        worker.join().unwrap();
    });
}
