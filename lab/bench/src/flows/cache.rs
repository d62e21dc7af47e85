//! A table of flows in front of the FIB, as a cache of its answers: what it does not know, or knew before
//! routes changed, the FIB is asked for.

use super::feed::Lookups;
use super::tables::{ACK, BATCH, BUDGET, install, table};
use super::traffic::Packets;
use artery_flow::{Answer, Flow4, FlowId, FlowLimits, FlowSettings, FlowTable, Scope, Tick};
use artery_lpm::Group;
use artery_storage::HugePages;

pub(super) struct Cache {
    table: FlowTable<Flow4>,
    found: Vec<Option<FlowId>>,
    asked: Vec<Asked>,
    addresses: Vec<u32>,
    answers: Vec<Group>,
    counts: Counts,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) packets: u64,
    /// The table knew the answer.
    pub(super) hits: u64,
    /// The table knew the flow, and what it knew was from before routes changed.
    pub(super) renewals: u64,
}

impl Counts {
    /// Converts a counter to percent of packets.
    pub(super) fn percent(&self, of: u64) -> f64 {
        100.0 * of as f64 / self.packets.max(1) as f64
    }
}

/// A packet of a batch that the FIB is asked for, and its flow, if that is known.
struct Asked {
    place: usize,
    flow: Option<FlowId>,
}

impl Cache {
    /// A table with room for so many flows, at its best: on huge pages, and it counts no packets of flows.
    pub(super) fn new(flows: u32) -> anyhow::Result<Cache> {
        let settings = FlowSettings { counts: false, ..FlowSettings::default() };
        let mut table = table(FlowLimits { flows, young: flows }, settings, &HugePages)?;
        table.populate_memory(flows);
        Ok(Cache {
            table,
            found: Vec::new(),
            asked: Vec::new(),
            addresses: Vec::new(),
            answers: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Adds all flows of these packets, whose answers are yet to be asked for.
    pub(super) fn fill(&mut self, packets: &Packets, scope: Scope) -> anyhow::Result<()> {
        install(&mut self.table, packets.flows(), |flow| packets.key(scope, flow)).map(|_| ())
    }

    /// Says where packets go, batch by batch.
    pub(super) fn pass(
        &mut self,
        fib: &Lookups<'_>,
        keys: &[Flow4],
        addresses: &[u32],
        groups: &mut [Group],
        now: Tick,
    ) {
        let batches = keys.chunks(BATCH).zip(addresses.chunks(BATCH)).zip(groups.chunks_mut(BATCH));
        for ((keys, addresses), groups) in batches {
            self.table.find_batch(keys, &mut self.found);
            self.recall(fib.generation, addresses, groups, now);
            if !self.asked.is_empty() {
                self.lookup_missing(fib, keys, groups, now);
            }
            self.table.maintain_flows(now, BUDGET);
        }
        self.counts.packets += keys.len() as u64;
    }

    /// Takes the answers of flows that are known, and gathers the others.
    #[inline]
    fn recall(&mut self, generation: u32, addresses: &[u32], groups: &mut [Group], now: Tick) {
        self.asked.clear();
        self.addresses.clear();
        for (place, (flow, group)) in self.found.iter().zip(groups).enumerate() {
            let answer = flow.and_then(|id| self.table.touch_flow(id, &ACK, now));
            match answer.filter(|answer| answer.generation == generation) {
                Some(answer) => *group = answer.action,
                None => {
                    self.asked.push(Asked { place, flow: *flow });
                    self.addresses.push(addresses[place]);
                }
            }
        }
        self.counts.hits += (self.found.len() - self.asked.len()) as u64;
    }

    /// Asks the FIB, and remembers what it says.
    fn lookup_missing(&mut self, fib: &Lookups<'_>, keys: &[Flow4], groups: &mut [Group], now: Tick) {
        self.answers.resize(self.addresses.len(), 0);
        fib.batch(&self.addresses, &mut self.answers);
        let answer = |group: &Group| Answer { action: *group, generation: fib.generation };
        // Those that are known first: a flow that comes may take the place of one of them.
        for (asked, group) in self.asked.iter().zip(&self.answers) {
            groups[asked.place] = *group;
            if let Some(id) = asked.flow {
                self.table.update_answer(id, answer(group));
                self.counts.renewals += 1;
            }
        }
        for (asked, group) in self.asked.iter().zip(&self.answers).filter(|(asked, _)| asked.flow.is_none()) {
            // Where the table is full of flows that are in use, a new one goes without.
            let _ = self.table.insert(&keys[asked.place], answer(group), &ACK, now);
        }
    }

    /// What became of packets since this was asked last.
    pub(super) fn drain_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::testing::small;
    use super::super::tables::at;
    use super::super::timing::SLICE;
    use super::super::traffic::{Distribution, Slice};
    use super::*;

    #[test]
    fn a_cache_says_what_the_fib_says_whatever_its_size_and_whatever_changes() {
        let mut feed = small();
        let packets = Packets::new(feed.prefixes(), 3000, Distribution::Uniform);
        for (scope, room) in [(Scope::Connection, 3000), (Scope::Connection, 100), (Scope::Destination, 3000)]
        {
            let (mut cache, mut slice) = (Cache::new(room).unwrap(), Slice::default());
            let (mut groups, mut expected) = (vec![0; SLICE], vec![0; SLICE]);
            for n in 0..60 {
                slice.advance(&packets, scope);
                if n % 20 == 19 {
                    (0..50).for_each(|_| feed.change().unwrap());
                }
                let fib = feed.lookups();
                cache.pass(&fib, &slice.keys, &slice.addresses, &mut groups, at(1));
                fib.batch(&slice.addresses, &mut expected);
                assert_eq!(groups, expected, "slice {n} of {scope:?}, {room}");
            }
            let counts = cache.drain_counts();
            let part = counts.percent(counts.hits);
            assert!(if room == 100 { part < 10.0 } else { part > 50.0 }, "{room}: {counts:?}");
            assert!(counts.renewals > 0, "{counts:?}");
        }
    }
}
