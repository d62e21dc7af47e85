//! The table as a cache in front of the FIB, and the FIB alone, by number of flows.

use super::cache::Cache;
use super::feed::Feed;
use super::plan::Plan;
use super::timing::{SLICE, by_turns, nanos};
use super::traffic::{Distribution, Packets, Slice};
use anyhow::ensure;
use artery_flow::{Scope, Tick};
use artery_lpm::Group;
use artery_rig::console::progress;
use std::time::{Duration, Instant};

/// Flows that tables have room for that are not made for all: 4 MB and 64 MB of entries.
const ROOMS: [u32; 2] = [1 << 16, 1 << 20];

/// Who says where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The compiled FIB alone.
    Fib,
    /// A table of flows of this scope in front of it: with room for so many, or for all.
    Table(Scope, Option<u32>),
}

impl Who {
    /// What it is called in results.
    pub(super) fn name(self) -> String {
        let Who::Table(scope, room) = self else { return "FIB alone".into() };
        let scope = if scope == Scope::Connection { "connections" } else { "destinations" };
        match room {
            Some(room) => format!("table, {scope}, {room} at most"),
            None => format!("table, {scope}"),
        }
    }

    fn all(flows: u32) -> Vec<Who> {
        let rooms = ROOMS.into_iter().filter(|room| *room < flows).map(Some);
        let rooms: Vec<Option<u32>> = [None].into_iter().chain(rooms).collect();
        let tables = |scope| rooms.iter().map(move |room| Who::Table(scope, *room));
        let (connections, destinations) = (tables(Scope::Connection), tables(Scope::Destination));
        [Who::Fib].into_iter().chain(connections).chain(destinations).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) flows: u32,
    pub(super) distribution: Distribution,
    pub(super) who: Who,
    /// Nanoseconds a packet, run by run.
    pub(super) nanos: Vec<f64>,
    /// Percent of packets whose flow was in the table.
    pub(super) hits: Option<f64>,
}

pub(super) fn measure(plan: &Plan, feed: &mut Feed) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for flows in plan.sizes {
        for distribution in Distribution::ALL {
            progress(&format!("{flows} flows, {}, with a table and without", distribution.name()));
            let packets = Packets::new(feed.prefixes(), *flows, distribution);
            rows.extend(beside(plan, feed, &packets, distribution)?);
        }
    }
    Ok(rows)
}

/// Everybody with the same packets.
fn beside(
    plan: &Plan,
    feed: &mut Feed,
    packets: &Packets,
    distribution: Distribution,
) -> anyhow::Result<Vec<Row>> {
    let all = Who::all(packets.flows());
    let mut contenders: Vec<Contender> =
        all.iter().map(|who| Contender::new(*who, packets)).collect::<Result<_, _>>()?;
    contenders.iter_mut().try_for_each(|contender| contender.warm_up(feed, packets))?;
    let nanos = by_turns(plan, &mut contenders, |contender| contender.run(feed, packets, plan.trial))?;
    let row = |(contender, nanos): (&mut Contender, Vec<f64>)| Row {
        flows: packets.flows(),
        distribution,
        who: contender.who,
        nanos,
        hits: contender.hits(),
    };
    Ok(contenders.iter_mut().zip(nanos).map(row).collect())
}

/// One of those that say where packets go.
pub(super) struct Contender {
    who: Who,
    scope: Scope,
    cache: Option<Cache>,
    slice: Slice,
    groups: Vec<Group>,
    begin: Instant,
}

impl Contender {
    pub(super) fn new(who: Who, packets: &Packets) -> anyhow::Result<Contender> {
        let (scope, cache) = match who {
            Who::Fib => (Scope::Connection, None),
            Who::Table(scope, room) => {
                let mut cache = Cache::new(room.unwrap_or(packets.flows()))?;
                if room.is_none() {
                    cache.fill(packets, scope)?;
                }
                (scope, Some(cache))
            }
        };
        let (slice, groups) = (Slice::default(), vec![0; SLICE]);
        Ok(Contender { who, scope, cache, slice, groups, begin: Instant::now() })
    }

    pub(super) fn who(&self) -> Who {
        self.who
    }

    /// Looks all packets up, and makes sure that the answers are those of the FIB.
    pub(super) fn warm_up(&mut self, feed: &mut Feed, packets: &Packets) -> anyhow::Result<()> {
        for _ in 0..packets.slices() {
            self.checked_slice(feed, packets)?;
        }
        self.counts();
        Ok(())
    }

    /// Looks a slice up, and makes sure that the answers are those of the FIB as it is now.
    pub(super) fn checked_slice(&mut self, feed: &mut Feed, packets: &Packets) -> anyhow::Result<()> {
        self.slice.advance(packets, self.scope);
        self.lookup_slice(feed);
        let mut expected = vec![0; SLICE];
        feed.lookups().batch(&self.slice.addresses, &mut expected);
        ensure!(self.groups == expected, "{}: an answer is not the FIB's", self.who.name());
        Ok(())
    }

    /// Returns nanoseconds for each packet.
    fn run(&mut self, feed: &mut Feed, packets: &Packets, budget: Duration) -> anyhow::Result<f64> {
        self.run_among(feed, packets, budget, |_, _| Ok(()))
    }

    /// The same, while something happens to routes between slices.
    pub(super) fn run_among(
        &mut self,
        feed: &mut Feed,
        packets: &Packets,
        budget: Duration,
        mut happen: impl FnMut(&mut Feed, Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let prepare = |(this, feed): &mut (&mut Contender, &mut Feed), taken| {
            this.slice.advance(packets, this.scope);
            happen(feed, taken)
        };
        nanos(budget, &mut (self, feed), prepare, |(this, feed)| this.lookup_slice(feed))
    }

    #[inline]
    fn lookup_slice(&mut self, feed: &mut Feed) {
        let (fib, Slice { keys, addresses, .. }) = (feed.lookups(), &self.slice);
        match &mut self.cache {
            Some(cache) => {
                cache.pass(&fib, keys, addresses, &mut self.groups, Tick::from_time(self.begin.elapsed()));
            }
            None => fib.batch(addresses, &mut self.groups),
        }
    }

    /// What became of packets since this was asked last.
    pub(super) fn counts(&mut self) -> Option<super::cache::Counts> {
        self.cache.as_mut().map(Cache::drain_counts)
    }

    fn hits(&mut self) -> Option<f64> {
        self.counts().map(|counts| counts.percent(counts.hits))
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::testing::small;
    use super::*;

    #[test]
    fn tables_of_all_kinds_are_measured_beside_the_fib() {
        let mut feed = small();
        let plan = Plan { sizes: &[100_000], rounds: 1, trial: Duration::from_micros(1), ..Plan::QUICK };
        let rows = measure(&plan, &mut feed).unwrap();
        assert_eq!(rows.len(), 2 * 5);
        for row in &rows {
            assert!(row.nanos.iter().all(|nanos| *nanos > 0.0), "{row:?}");
            match row.who {
                Who::Fib => assert_eq!(row.hits, None),
                Who::Table(_, None) => assert_eq!(row.hits, Some(100.0), "{row:?}"),
                Who::Table(_, Some(_)) => assert!(row.hits.unwrap() < 99.0, "{row:?}"),
            }
        }
    }
}
