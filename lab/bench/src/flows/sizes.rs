//! How fast flows come, what memory they take, and how fast they are found, by their number.

use super::plan::Plan;
use super::tables::{ACK, BATCH, Numbered, at, install, table};
use super::timing::{SLICE, nanos};
use artery_flow::{Flow4, Flow6, FlowId, FlowLimits, FlowSettings, FlowTable};
use artery_rig::console::progress;
use artery_storage::{HugePages, Pages, Storage};
use artery_wire::Random;
use std::hint::black_box;

/// Flows that may be young in a table that is filled.
const YOUNG: u32 = 1 << 16;

/// What was measured of tables of a size.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) family: u8,
    pub(super) on_huge_pages: bool,
    pub(super) flows: u32,
    /// Million flows a second that are looked for, added and proven, table by table; page
    /// faults are among it.
    pub(super) installs: Vec<f64>,
    /// Bytes of memory that a table takes of the system.
    pub(super) bytes: Vec<f64>,
    /// Nanoseconds to find a flow.
    pub(super) find: Vec<f64>,
    /// To find it and to note a packet.
    pub(super) touch: Vec<f64>,
    /// The same where packets are not counted.
    pub(super) uncounted: Vec<f64>,
}

impl Row {
    /// What kind of table it is.
    pub(super) fn name(&self) -> String {
        format!("IPv{}{}", self.family, if self.on_huge_pages { ", huge pages" } else { "" })
    }
}

pub(super) fn measure(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for flows in plan.sizes {
        progress(&format!("{flows} flows come and are found"));
        rows.push(row::<Flow4>(plan, *flows, &Pages, false)?);
        rows.push(row::<Flow4>(plan, *flows, &HugePages, true)?);
        rows.push(row::<Flow6>(plan, *flows, &Pages, false)?);
    }
    Ok(rows)
}

fn row<K: Numbered>(
    plan: &Plan,
    flows: u32,
    storage: &dyn Storage,
    on_huge_pages: bool,
) -> anyhow::Result<Row> {
    let mut row = Row { family: K::FAMILY, on_huge_pages, flows, ..Row::default() };
    for round in 0..plan.tables {
        let before = resident();
        let mut table = table::<K>(FlowLimits { flows, young: YOUNG }, FlowSettings::default(), storage)?;
        let taken = install(&mut table, flows, K::numbered)?;
        row.installs.push(f64::from(flows) / taken.as_secs_f64() / 1e6);
        row.bytes.push(resident().saturating_sub(before) as f64);
        if round == 0 {
            find(plan, &mut table, &mut row)?;
        }
    }
    Ok(row)
}

fn find<K: Numbered>(plan: &Plan, table: &mut FlowTable<K>, row: &mut Row) -> anyhow::Result<()> {
    let mut search = Search { table, random: Random::new(7), keys: Vec::new(), found: Vec::new() };
    for _ in 0..plan.rounds {
        row.find.push(search.run(plan, false)?);
        row.touch.push(search.run(plan, true)?);
        let counted = search.table.settings();
        search.table.set_settings(FlowSettings { counts: false, ..counted });
        row.uncounted.push(search.run(plan, true)?);
        search.table.set_settings(counted);
    }
    Ok(())
}

/// A search for random flows of a table.
struct Search<'a, K: Numbered> {
    table: &'a mut FlowTable<K>,
    random: Random,
    keys: Vec<K>,
    found: Vec<Option<FlowId>>,
}

impl<K: Numbered> Search<'_, K> {
    /// Nanoseconds for each of random flows; every one is there.
    fn run(&mut self, plan: &Plan, touch: bool) -> anyhow::Result<f64> {
        let prepare = |this: &mut Self, _| {
            let flows = u64::from(this.table.len());
            this.keys.clear();
            this.keys.extend((0..SLICE).map(|_| K::numbered(this.random.below(flows) as u32)));
            Ok(())
        };
        let misses = self.table.stats().misses();
        let nanos = nanos(plan.trial, self, prepare, |this| this.slice(touch))?;
        anyhow::ensure!(self.table.stats().misses() == misses, "a flow that is there was not found");
        Ok(nanos)
    }

    #[inline]
    fn slice(&mut self, touch: bool) {
        let mut sum = 0_u32;
        for keys in self.keys.chunks(BATCH) {
            self.table.find_batch(keys, &mut self.found);
            if touch {
                for id in self.found.iter().flatten() {
                    sum = sum.wrapping_add(
                        self.table.touch_flow(*id, &ACK, at(1)).map_or(0, |answer| answer.action),
                    );
                }
            }
        }
        black_box((sum, &self.found));
    }
}

/// Bytes of memory that this process has.
pub(super) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn flows_come_are_found_and_take_memory() {
        let plan = Plan { sizes: &[50_000], rounds: 1, trial: Duration::from_micros(1), ..Plan::QUICK };
        let rows = measure(&plan).unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!((row.installs.len(), row.find.len()), (plan.tables, 1));
            let all = row.installs.iter().chain(&row.find).chain(&row.touch).chain(&row.uncounted);
            assert!(all.into_iter().all(|figure| *figure > 0.0), "{row:?}");
        }
    }
}
