//! The longest pauses while a table grows to four million flows and forgets them all.
//!
//! The same calls are made in each of several runs, and of each the least time counts: what the machine did
//! to one run, it does not do to the same call of all others; what the call itself does, it does each time.

use super::plan::Plan;
use super::sizes::resident;
use super::tables::{BATCH, BUDGET, Numbered, SYN, at};
use artery_flow::{Answer, Flow4, FlowLimits, FlowSettings, FlowTable};
use artery_storage::{HugePages, Pages, Storage};
use std::time::Instant;

const FLOWS: u32 = 4_000_000;

/// What was measured of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) storage: &'static str,
    /// A batch: looked up, added, some checked for idleness.
    pub(super) batch: Pauses,
    /// The last part of that alone.
    pub(super) maintain: Pauses,
    /// The same while as many flows as may be are forgotten, buckets merged, and memory given back.
    pub(super) forget: Pauses,
    /// Bytes given back to the system in the end.
    pub(super) given_back: u64,
}

impl Row {
    /// All calls, by what they do.
    pub(super) fn calls(&self) -> [(&'static str, &Pauses); 3] {
        [
            ("a batch of 64 that come", &self.batch),
            ("maintain, behind it", &self.maintain),
            ("maintain, up to 64 are forgotten", &self.forget),
        ]
    }

    /// The longest pause, in microseconds.
    pub(super) fn longest(&self) -> f64 {
        self.calls().into_iter().map(|(_, pauses)| pauses.longest()[0]).fold(0.0, f64::max)
    }
}

/// The times of calls that are made in the same order in each of several runs: of each the least.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    least: Vec<u32>,
    next: usize,
}

impl Pauses {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        let time = begin.elapsed().as_nanos() as u32;
        match self.least.get_mut(self.next) {
            Some(least) => *least = time.min(*least),
            None => self.least.push(time),
        }
        self.next += 1;
        result
    }

    /// The longest three, in microseconds.
    pub(super) fn longest(&self) -> [f64; 3] {
        let mut least = self.least.clone();
        least.sort_unstable_by(|a, b| b.cmp(a));
        std::array::from_fn(|n| least.get(n).map_or(0.0, |nanos| f64::from(*nanos) / 1000.0))
    }
    /// How many calls there were.
    pub(super) fn calls(&self) -> usize {
        self.least.len()
    }
}

/// Measures a table that takes memory as flows come, and one that has it before.
pub(super) fn measure(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    Ok(vec![
        row(plan, FLOWS, "pages", &Pages, false)?,
        row(plan, FLOWS, "huge pages, populated", &HugePages, true)?,
    ])
}

fn row(
    plan: &Plan,
    flows: u32,
    name: &'static str,
    storage: &dyn Storage,
    is_populated: bool,
) -> anyhow::Result<Row> {
    let none = Pauses::default;
    let mut row = Row { storage: name, batch: none(), maintain: none(), forget: none(), given_back: 0 };
    for _ in 0..plan.pauses {
        let limits = FlowLimits { flows, young: flows };
        let mut table = super::tables::table(limits, FlowSettings::default(), storage)?;
        if is_populated {
            table.populate_memory(flows);
        }
        [&mut row.batch, &mut row.maintain, &mut row.forget].into_iter().for_each(|pauses| pauses.next = 0);
        grow(&mut table, flows, &mut row)?;
        let grown = resident();
        while table.stats().bytes > 4096 {
            row.forget.time(|| table.maintain_flows(at(100), BUDGET));
        }
        row.given_back = grown.saturating_sub(resident());
    }
    Ok(row)
}

fn grow(table: &mut FlowTable<Flow4>, flows: u32, row: &mut Row) -> anyhow::Result<()> {
    let (mut keys, mut found) = (Vec::new(), Vec::new());
    for first in (0..flows).step_by(BATCH) {
        keys.clear();
        keys.extend((first..flows.min(first + BATCH as u32)).map(Flow4::numbered));
        let Row { batch, maintain, .. } = row;
        batch.time(|| {
            table.find_batch(&keys, &mut found);
            keys.iter().try_for_each(|key| table.insert(key, Answer::default(), &SYN, at(1)).map(|_| ()))?;
            maintain.time(|| table.maintain_flows(at(1), BUDGET));
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A table with one pause of so many nanoseconds.
    pub(in crate::flows) fn of(nanos: u32) -> Row {
        let one = Pauses { least: vec![nanos], next: 0 };
        Row { storage: "pages", batch: one.clone(), maintain: one.clone(), forget: one, given_back: 0 }
    }

    #[test]
    fn of_each_call_the_least_counts() {
        let mut pauses = Pauses { least: vec![1000, 5000, 3000, 2_000_000], next: 0 };
        pauses.time(std::thread::yield_now);
        assert!(pauses.least[0] <= 1000);
        (0..3).for_each(|_| pauses.time(|| ()));
        assert!(pauses.longest()[0] < 2000.0, "{pauses:?}");
        assert_eq!(pauses.calls(), 4);
    }

    #[test]
    fn a_table_that_grows_and_shrinks_makes_the_same_calls_each_time() {
        let row = row(&Plan { pauses: 2, ..Plan::QUICK }, 10_000, "pages", &Pages, false).unwrap();
        assert_eq!((row.batch.calls(), row.maintain.calls()), (157, 157));
        assert!(row.forget.calls() >= 157 && row.longest() > 0.0, "{row:?}");
        assert!(row.batch.longest()[0] >= row.maintain.longest()[2], "maintaining is part of a batch");
    }
}
