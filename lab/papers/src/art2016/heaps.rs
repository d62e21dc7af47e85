//! Whether a heap of 16 bits can come and go while another processor forwards.
//!
//! A writer adds a route that needs such a heap and withdraws it, again and again. A reader on another
//! thread looks up addresses that a shorter route covers all the time, in the heap and beside it. The writer
//! takes no step before whole bursts have been looked up since the last, so that every heap is there while
//! the other side forwards.
use artery_bench::fib::engine::{BURST, each};
use artery_bench::fib::timing::pin;
use artery_lpm::{Art, ArtReader, Group, NO_GROUP, Prefix, Strides};
use artery_rcu::Domain;
use artery_storage::HugePages;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

/// What became of heaps and lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heaps {
    /// Heaps that came and went.
    pub(super) came_and_went: u64,
    /// Heaps that could not be had.
    pub(super) refused: u64,
    pub(super) lookups: u64,
    /// Lookups that found the route in such a heap.
    pub(super) inside: u64,
    /// Lookups that found no route.
    pub(super) missed: u64,
    /// Lookups that found a route of other addresses.
    pub(super) wrong: u64,
}

/// The network with the route that is always there.
const NETWORK: u32 = 11 << 24;
/// The route that stays has this group.
const ALWAYS: Group = 1;
/// The route that is added and removed has this group.
const AT_TIMES: Group = 2;

/// Allocates and frees heaps for a while. `None` on a machine with one processor, where
/// no reader forwards meanwhile.
pub(super) fn measure(processors: usize, budget: Duration) -> anyhow::Result<Option<Heaps>> {
    if processors < 2 {
        return Ok(None);
    }
    race(&[(Prefix::of(NETWORK, 16), ALWAYS)], budget).map(Some)
}

/// Lets heaps come and go over a table of `routes`.
fn race(routes: &[(Prefix<u32>, Group)], budget: Duration) -> anyhow::Result<Heaps> {
    let domain = Domain::new();
    let mut art = Art::build(&domain, Strides::new(&[16, 16])?, &HugePages, routes.iter().copied())?;
    let reader = art.reader();
    let (bursts, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (came_and_went, refused, mut heaps) = std::thread::scope(|scope| {
        let lookups = scope.spawn(|| {
            pin(1);
            lookup_until_over(&domain, &reader, &bursts, &is_over)
        });
        let (came_and_went, refused) = come_and_go(&mut art, &bursts, budget);
        is_over.store(true, Release);
        (came_and_went, refused, lookups.join().expect("who looks up does not panic"))
    });
    (heaps.came_and_went, heaps.refused) = (came_and_went, refused);
    Ok(heaps)
}

/// Counts the heaps that came and went, and those that could not be had.
fn come_and_go(art: &mut Art<u32>, bursts: &AtomicU64, budget: Duration) -> (u64, u64) {
    let longer = Prefix::of(NETWORK, 24);
    let end = Instant::now() + budget;
    let (mut came_and_went, mut refused) = (0, 0);
    while Instant::now() < end {
        let before = tables(art);
        let is_refused = art.insert(longer, AT_TIMES).is_err();
        refused += u64::from(is_refused);
        let has_come = tables(art) == before + 1;
        wait_for_bursts(bursts, end);
        art.remove(longer);
        came_and_went += u64::from(has_come && tables(art) == before);
        wait_for_bursts(bursts, end);
    }
    (came_and_went, refused)
}

/// Heaps below the root.
fn tables(art: &Art<u32>) -> usize {
    art.memory().levels.iter().skip(1).map(|level| level.tables).sum()
}

/// Waits until a burst has begun and ended since now, but no longer than until `end`.
fn wait_for_bursts(bursts: &AtomicU64, end: Instant) {
    let begun = bursts.load(Acquire);
    while bursts.load(Acquire) < begun + 2 && Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Looks up until the measurement is over: alternately in batches and one by one. Half of the addresses are
/// in the route that is added and removed.
fn lookup_until_over(
    domain: &Arc<Domain>,
    reader: &ArtReader<u32>,
    bursts: &AtomicU64,
    is_over: &AtomicBool,
) -> Heaps {
    let mut standing = domain.reader();
    let mut heaps = Heaps::default();
    let addresses: [u32; BURST] = std::array::from_fn(|n| NETWORK | ((n as u32 & 1) << 8) | n as u32);
    let mut groups = [NO_GROUP; BURST];
    while !is_over.load(Acquire) {
        let turn = standing.turn();
        match bursts.load(Relaxed) % 2 {
            0 => reader.lookup_batch(&turn, &addresses, &mut groups),
            _ => {
                let view = reader.view_at(&turn);
                each(&addresses, &mut groups, |address| view.lookup(address));
            }
        }
        for (address, group) in addresses.iter().zip(groups) {
            heaps.count(address & 0x100 == 0, group);
        }
        bursts.fetch_add(1, Release);
    }
    heaps
}

impl Heaps {
    /// Counts an answer for an address that is in the route that comes and goes, or beside it.
    fn count(&mut self, is_in: bool, group: Group) {
        self.lookups += 1;
        match group {
            NO_GROUP => self.missed += 1,
            AT_TIMES if is_in => self.inside += 1,
            ALWAYS => {}
            _ => self.wrong += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_millis(100);

    #[test]
    fn heaps_come_and_go_while_lookups_find_a_route() {
        let heaps = measure(2, BUDGET).unwrap().unwrap();
        assert!(heaps.came_and_went > 0 && heaps.inside > 0 && heaps.lookups > heaps.inside, "{heaps:?}");
        assert_eq!((heaps.refused, heaps.missed, heaps.wrong), (0, 0, 0), "{heaps:?}");
    }

    #[test]
    fn lookups_without_a_route_are_missed() {
        let heaps = race(&[], BUDGET).unwrap();
        assert!(heaps.missed >= heaps.lookups / 2 && heaps.lookups > 0, "{heaps:?}");
    }

    #[test]
    fn where_a_heap_is_there_already_none_comes() {
        let both = [(Prefix::of(NETWORK, 16), ALWAYS), (Prefix::host(NETWORK | 0x8000), 3)];
        let heaps = race(&both, BUDGET).unwrap();
        assert_eq!((heaps.came_and_went, heaps.missed), (0, 0), "{heaps:?}");
    }

    #[test]
    fn a_route_of_other_addresses_is_wrong() {
        let mut heaps = Heaps::default();
        for (is_in, group) in
            [(false, AT_TIMES), (true, 3), (true, AT_TIMES), (false, ALWAYS), (true, NO_GROUP)]
        {
            heaps.count(is_in, group);
        }
        let wanted = Heaps { lookups: 5, wrong: 2, inside: 1, missed: 1, ..Heaps::default() };
        assert_eq!(heaps, wanted);
    }

    #[test]
    fn one_processor_is_too_few_to_measure() {
        assert_eq!(measure(1, BUDGET).unwrap(), None);
    }
}
