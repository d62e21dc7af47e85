//! What packets of many flows cost from port to port in routers that run, beside the bare loop.

use super::plan::Plan;
use crate::engine_bench::macswap_rate;
use crate::forward::{Case, Race};
use artery_rig::console::progress;

/// Flows of the routers that remember none.
const STATELESS: [u32; 2] = [100_000, 1_000_000];

#[derive(Clone, Debug, Default)]
pub(super) struct Routers {
    pub(super) rows: Vec<Row>,
    /// Million packets a second of testpmd's macswap on null ports, by round; none where it can't be run.
    pub(super) yardstick: Vec<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) flows: u32,
    pub(super) remembers: bool,
    /// Million packets a second, by round.
    pub(super) rates: Vec<f64>,
}

impl Routers {
    /// What rounds of a router are of the bare loop beside them.
    pub(super) fn shares(&self, row: &Row) -> Vec<f64> {
        row.rates.iter().zip(&self.yardstick).map(|(rate, y)| rate / y).collect()
    }
}

/// Rows without rates: routers that remember flows, and those that don't.
fn rows_of(plan: &Plan) -> Vec<Row> {
    let stateful = plan.routed.iter().map(|flows| (*flows, true));
    let stateless = STATELESS.into_iter().filter(|flows| plan.routed.contains(flows));
    let all = stateful.chain(stateless.map(|flows| (flows, false)));
    all.map(|(flows, remembers)| Row { flows, remembers, rates: Vec::new() }).collect()
}

/// Measures all routers, which take turns with the bare loop.
pub(super) fn measure(plan: &Plan) -> anyhow::Result<Routers> {
    progress("routers");
    let mut rows = rows_of(plan);
    let cases: Vec<Case> = rows.iter().map(|row| Case::of_flows(row.flows, row.remembers)).collect();
    let mut race = Race::start(&cases)?;
    // In the first, flows come; in those that count, they are known.
    race.round(plan.router_time)?;
    let mut yardstick = Vec::new();
    for round in 1..=plan.router_rounds {
        progress(&format!("routers: round {round} of {}", plan.router_rounds));
        yardstick.extend(macswap_rate());
        for (row, rate) in rows.iter_mut().zip(race.round(plan.router_time)?) {
            row.rates.push(rate);
        }
    }
    Ok(Routers { rows, yardstick })
}
