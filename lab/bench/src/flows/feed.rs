//! Routes of a full feed, compiled into the FIB that forwards, and changed a route at a time.

use crate::fib;
use anyhow::ensure;
use artery_lpm::{Group, Policy, Prefix, RouteReader, RouteTable};
use artery_rcu::{Domain, Reader, Turn};
use artery_storage::HugePages;
use artery_wire::Random;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Groups that routes change to: as many as the feed has at least.
const GROUPS: u64 = 64;

pub(super) struct Feed {
    table: RouteTable<u32>,
    reader: RouteReader<u32>,
    turns: Reader,
    prefixes: Vec<Prefix<u32>>,
    random: Random,
    generation: u32,
}

/// What a worker looks addresses up with for one turn.
pub(super) struct Lookups<'a> {
    reader: &'a RouteReader<u32>,
    turn: Turn<'a>,
    /// What remembered answers have to belong to.
    pub(super) generation: u32,
}

impl Feed {
    /// The routes of a file; of a synthetic table if there is none.
    pub(super) fn new(table: Option<&Path>) -> anyhow::Result<Feed> {
        let options = fib::Options { table: table.map(PathBuf::from), ..fib::Options::default() };
        Feed::of(fib::routes::<u32>(&options, &fib::load(table)?))
    }

    pub(super) fn of(routes: Vec<(Prefix<u32>, Group)>) -> anyhow::Result<Feed> {
        ensure!(!routes.is_empty(), "the file has no routes of IPv4, which this experiment forwards by");
        let domain = Domain::new();
        let prefixes = routes.iter().map(|route| route.0).collect();
        let mut table = RouteTable::new(&domain, Policy::default(), Arc::new(HugePages))?;
        table.load_routes(routes)?;
        let (reader, turns) = (table.reader(), domain.reader());
        Ok(Feed { table, reader, turns, prefixes, random: Random::new(5), generation: 1 })
    }

    /// The prefixes, in order.
    pub(super) fn prefixes(&self) -> &[Prefix<u32>] {
        &self.prefixes
    }

    pub(super) fn lookups(&mut self) -> Lookups<'_> {
        Lookups { reader: &self.reader, turn: self.turns.turn(), generation: self.generation }
    }

    /// Changes the route of a random prefix, which raises the generation: cached answers must
    /// be looked up again.
    pub(super) fn change(&mut self) -> anyhow::Result<()> {
        let prefix = self.prefixes[self.random.below(self.prefixes.len() as u64) as usize];
        self.table.insert(prefix, 1 + self.random.below(GROUPS) as Group)?;
        self.generation += 1;
        Ok(())
    }
}

impl Lookups<'_> {
    /// Looks addresses up, as many as there are groups.
    #[inline]
    pub(super) fn batch(&self, addresses: &[u32], groups: &mut [Group]) {
        self.reader.lookup_batch(&self.turn, addresses, groups);
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(in crate::flows) fn small() -> Feed {
        Feed::of((0..1000).map(|n| (Prefix::of((n + 256) << 16, 16), 1 + n % 64)).collect()).unwrap()
    }

    #[test]
    fn a_change_is_seen_and_counted() {
        let mut feed = small();
        let addresses: Vec<u32> = feed.prefixes().iter().map(|prefix| prefix.first()).collect();
        let groups = |feed: &mut Feed| {
            let mut groups = vec![0; addresses.len()];
            let lookups = feed.lookups();
            lookups.batch(&addresses, &mut groups);
            (lookups.generation, groups)
        };
        let before = groups(&mut feed);
        (0..20).for_each(|_| feed.change().unwrap());
        let after = groups(&mut feed);
        assert_eq!(after.0, before.0 + 20);
        let changed = before.1.iter().zip(&after.1).filter(|(before, after)| before != after).count();
        assert!((1..=20).contains(&changed), "{changed}");
    }
}
