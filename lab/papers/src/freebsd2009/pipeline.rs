//! D: the split design as a pipeline. One processor finds routes and hands packets over with their next hops,
//! the other finds neighbors and feeds the driver; and what a hand-over costs.

use super::case::{BATCH, Meter, OVER, Part, Stage};
use super::driver::Driver;
use super::lock::Locks;
use super::network::{Packet, Sent};
use super::split::{Hop, Split};
use super::workload::{Before, Verified};
use artery_bench::fib::timing::pin;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// A packet on its way from one processor to the other; without a next hop it has no route.
#[derive(Clone, Copy)]
pub(super) struct Routed(Packet, Option<Hop>);

/// Places between two processors.
const PLACES: usize = 1024;
/// Packets between two looks at whether the run is over.
const ROUND: u64 = 64 * BATCH as u64;

pub(super) fn ring() -> (Producer<Routed>, Consumer<Routed>) {
    RingBuffer::new(PLACES)
}

/// The first half: routes.
pub(super) fn route<L: Locks>(
    stage: &Stage,
    tables: &Split<L>,
    packets: &[Packet],
    mut to: Producer<Routed>,
) -> Part {
    let (mut count, mut meter, mut routed) = (0u64, Meter::new(), Vec::with_capacity(BATCH));
    for batch in packets.chunks(BATCH).cycle() {
        routed.clear();
        routed.extend(batch.iter().map(|packet| {
            let found = tables.lookup(packet.destination);
            if let Some((id, _)) = found {
                tables.release(id);
            }
            Routed(*packet, found.map(|(_, hop)| hop))
        }));
        if !hand_over(&mut to, &routed, || stage.phase.load(Acquire) == OVER) {
            return meter.follow(OVER, count).unwrap_or_default();
        }
        count += batch.len() as u64;
        if count % ROUND < BATCH as u64
            && let Some(part) = meter.follow(stage.phase.load(Acquire), count)
        {
            return part;
        }
    }
    Part::default()
}

/// Waits for room; returns false if the consumer is gone.
fn hand_over<T: Copy>(to: &mut Producer<T>, batch: &[T], is_over: impl Fn() -> bool) -> bool {
    loop {
        if let Ok(chunk) = to.write_chunk_uninit(batch.len()) {
            chunk.fill_from_iter(batch.iter().copied());
            return true;
        }
        if is_over() {
            return false;
        }
        // With fewer processors than halves, the other one may need this one.
        std::thread::yield_now();
    }
}

/// The second half: neighbors, and the driver.
pub(super) fn link<L: Locks>(
    stage: &Stage,
    thread: usize,
    tables: &Split<L>,
    driver: u32,
    mut from: Consumer<Routed>,
) -> Part {
    let (mut driver, mut count, mut meter) = (Driver::new(driver), 0u64, Meter::new());
    let (mut packets, mut sent) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let (mut before, mut verified, mut reported) = (Before::default(), Verified::default(), 0);
    loop {
        let ready = from.slots().min(BATCH);
        packets.clear();
        sent.clear();
        if let Ok(chunk) = from.read_chunk(ready) {
            let (first, second) = chunk.as_slices();
            packets.extend(first.iter().chain(second).map(|routed| routed.0));
            if let Some(book) = &stage.book {
                book.before(&packets, &mut before);
            }
            sent.extend(first.iter().chain(second).map(|Routed(packet, hop)| match hop {
                Some(hop) => tables.link_output(*hop, *packet),
                None => Sent::NoRoute,
            }));
            chunk.commit_all();
        }
        driver.transmit(&packets, &sent);
        if let Some(book) = &stage.book {
            book.verify(&packets, &sent, &before, &mut verified);
        }
        count += packets.len() as u64;
        if ready == 0 || count - reported >= ROUND {
            reported = count;
            let phase = stage.threads[thread].report(stage, count, count > 0);
            if let Some(mut part) = meter.follow(phase, count) {
                // Packets were routed before the record was read: stale routes can't be detected.
                part.verified = Verified { stale: 0, ..verified };
                return part;
            }
            if ready == 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// Nanoseconds from one processor to the other and back, halved; and of a packet of many,
/// handed over by batches.
pub(super) fn hand_over_nanos(times: u32) -> (f64, f64) {
    (there_and_back(times), in_batches(u64::from(times) * BATCH as u64))
}

fn there_and_back(times: u32) -> f64 {
    let ((mut there, mut at_there), (mut back, mut at_back)) = (RingBuffer::new(4), RingBuffer::new(4));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            for _ in 0..times {
                wait_for(&mut at_there);
                let _ = back.push(0u64);
            }
        });
        let timed = scope.spawn(move || {
            pin(0);
            let start = Instant::now();
            for n in 0..times {
                let _ = there.push(u64::from(n));
                wait_for(&mut at_back);
            }
            start.elapsed().as_nanos() as f64 / f64::from(times) / 2.0
        });
        timed.join().unwrap_or(f64::NAN)
    })
}

fn wait_for<T>(from: &mut Consumer<T>) -> T {
    let mut looks = 0u32;
    loop {
        if let Ok(value) = from.pop() {
            return value;
        }
        looks += 1;
        if looks.is_multiple_of(1000) {
            std::thread::yield_now();
        }
    }
}

fn in_batches(count: u64) -> f64 {
    let (mut to, mut from) = RingBuffer::new(PLACES);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let mut left = count;
            while left > 0 {
                let Ok(chunk) = from.read_chunk(from.slots().min(BATCH)) else { continue };
                let (first, second) = chunk.as_slices();
                left -= (first.len() + second.len()) as u64;
                std::hint::black_box(first.iter().chain(second).map(|item: &[u64; 2]| item[0]).sum::<u64>());
                chunk.commit_all();
            }
        });
        let timed = scope.spawn(move || {
            pin(0);
            let (start, batch) = (Instant::now(), [[1u64, 2]; BATCH]);
            for _ in 0..count / BATCH as u64 {
                hand_over(&mut to, &batch, || false);
            }
            start.elapsed().as_nanos() as f64 / count as f64
        });
        timed.join().unwrap_or(f64::NAN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_handed_over_arrives_and_takes_time() {
        let (one, of_many) = hand_over_nanos(500);
        assert!(one.is_finite() && one > 0.0 && of_many.is_finite() && of_many > 0.0, "{one} {of_many}");
    }
}
