//! Good packets by number: when each was sent, which arrived, and which of those that did not are excused.

use super::stalls::Stalls;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a packet may be under way before it counts as lost.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// One stream of numbered packets.
pub(super) struct Ledger {
    began: Instant,
    packets: Mutex<Packets>,
}

#[derive(Default)]
struct Packets {
    /// By number: when it was sent, and whether it arrived.
    all: Vec<(Duration, bool)>,
    received: u64,
    duplicated: u64,
    /// When the latest of those that arrived was sent.
    latest: Option<Duration>,
}

/// What became of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) duplicated: u64,
    /// Lost in a time that explains it.
    pub(super) excused: u64,
    /// Lost while the machine stalled.
    pub(super) stalled: u64,
    /// When those were sent that were lost without a reason, since the soak began.
    pub(super) lost: Vec<Duration>,
}

impl Ledger {
    /// One without packets; times count from `began`.
    pub(super) fn new(began: Instant) -> Ledger {
        Ledger { began, packets: Mutex::default() }
    }

    /// Notes that a packet is sent now, and gives its number.
    pub(super) fn send(&self) -> u64 {
        let now = self.began.elapsed();
        let mut packets = self.lock();
        packets.all.push((now, false));
        packets.all.len() as u64 - 1
    }

    /// Notes that a packet arrived; numbers of no packet are left aside.
    pub(super) fn arrive(&self, number: u64) {
        let mut packets = self.lock();
        let Some((sent, has_arrived)) = packets.all.get_mut(number as usize) else { return };
        let (sent, again) = (*sent, std::mem::replace(has_arrived, true));
        packets.received += u64::from(!again);
        packets.duplicated += u64::from(again);
        packets.latest = packets.latest.max(Some(sent));
    }

    /// Whether a packet arrived that was sent at this time or later.
    pub(super) fn has_arrived_since(&self, time: Duration) -> bool {
        self.lock().latest >= Some(time)
    }

    /// Counts what was sent; what is still under way is left out.
    pub(super) fn count(&self, excuses: &Excuses, stalls: &Stalls) -> Count {
        let settled = self.began.elapsed().saturating_sub(UNDER_WAY);
        let packets = self.lock();
        let mut count =
            Count { received: packets.received, duplicated: packets.duplicated, ..Count::default() };
        for (sent, has_arrived) in packets.all.iter().filter(|(sent, arrived)| *arrived || *sent < settled) {
            count.sent += 1;
            match has_arrived {
                true => {}
                false if excuses.cover(*sent) => count.excused += 1,
                false if stalls.cover(*sent) => count.stalled += 1,
                false => count.lost.push(*sent),
            }
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, Packets> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Times in which packets may be lost.
#[derive(Default)]
pub(super) struct Excuses(Vec<(Duration, Option<Duration>)>);

impl Excuses {
    /// From this time on, until [`Excuses::end`].
    pub(super) fn begin(&mut self, from: Duration) {
        self.0.push((from, None));
    }

    /// Up to this time.
    pub(super) fn end(&mut self, to: Duration) {
        if let Some((_, end)) = self.0.last_mut() {
            *end = Some(to);
        }
    }

    /// How long they are together.
    pub(super) fn total(&self) -> Duration {
        self.0.iter().filter_map(|(from, to)| to.map(|to| to.saturating_sub(*from))).sum()
    }

    fn cover(&self, time: Duration) -> bool {
        let holds = |(from, to): &(Duration, Option<Duration>)| {
            // What was sent a moment before may have been on its way when it began.
            *from <= time + UNDER_WAY / 20 && to.is_none_or(|to| time <= to)
        };
        self.0.iter().any(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sent at these seconds; those with a mark arrived.
    fn ledger(sent: &[(u64, bool)]) -> Ledger {
        let ledger =
            Ledger::new(Instant::now().checked_sub(100 * SECOND).expect("a clock that runs for long"));
        for (number, (second, arrives)) in sent.iter().enumerate() {
            ledger.send();
            ledger.lock().all[number].0 = *second as u32 * SECOND;
            if *arrives {
                ledger.arrive(number as u64);
            }
        }
        ledger
    }

    #[test]
    fn what_is_lost_outside_of_excuses_is_named_by_its_time() {
        let ledger = ledger(&[(1, true), (10, false), (20, false), (30, false), (40, true)]);
        let mut excuses = Excuses::default();
        excuses.begin(19 * SECOND);
        excuses.end(21 * SECOND);
        let stalls = Stalls::watch();
        stalls.end();
        let count = ledger.count(&excuses, &stalls);
        assert_eq!((count.sent, count.received, count.excused), (5, 2, 1));
        assert_eq!(count.lost, [10 * SECOND, 30 * SECOND]);
        excuses.begin(30 * SECOND);
        assert_eq!(ledger.count(&excuses, &stalls).lost, [10 * SECOND], "an excuse that has not ended");
        assert_eq!(excuses.total(), 2 * SECOND);
    }

    #[test]
    fn packets_under_way_are_not_lost_yet_and_copies_and_strangers_are_told_apart() {
        let ledger = ledger(&[(5, true), (100, false)]);
        ledger.arrive(0);
        ledger.arrive(99);
        let stalls = Stalls::watch();
        stalls.end();
        let count = ledger.count(&Excuses::default(), &stalls);
        assert_eq!((count.sent, count.received, count.duplicated, count.lost.len()), (1, 1, 1, 0));
        assert!(ledger.has_arrived_since(5 * SECOND) && !ledger.has_arrived_since(6 * SECOND));
    }
}
