//! `artery-bench flows`: what a table of flows costs, what it is good for, and what it is not.
//!
//! As a cache in front of the FIB, by number of flows, beside the bare FIB on a full feed; under routes that
//! change; while it grows and shrinks; in a flood. How fast flows come and what memory they take, which of
//! them move when servers come and go, and what a packet costs from port to port in routers that run, beside
//! the bare loop of DPDK. What is promised of flows is judged by these figures.

mod cache;
mod churn;
mod claims;
mod crossover;
mod feed;
mod flood;
mod moved;
mod pauses;
mod plan;
mod report;
mod routers;
mod sizes;
mod tables;
mod timing;
mod traffic;

pub use crate::results::OnFeed as Options;

use crate::fib::timing::Pinned;
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use feed::Feed;
use plan::Plan;
use report::{Figures, Report};

/// Measures, judges, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let plan = options.delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let machine = Machine::here();
    options.delivery.begin(&machine)?;
    let (prefixes, figures) = measure(&plan, options)?;
    options.delivery.deliver(&Report { machine, plan, prefixes, figures })
}

/// All figures, and how many prefixes the feed has.
fn measure(plan: &Plan, options: &Options) -> anyhow::Result<(usize, Figures)> {
    let mut feed = Feed::new(options.table.as_deref())?;
    // Routers are processes of their own, which choose their processors.
    let routers = routers::measure(plan)?;
    let _pinned = Pinned::to(0);
    let crossover = crossover::measure(plan, &mut feed)?;
    let churn = churn::measure(plan, &mut feed)?;
    let sizes = sizes::measure(plan)?;
    progress("growing and shrinking");
    let pauses = pauses::measure(plan)?;
    progress("floods");
    let floods = flood::measure()?;
    progress("members that go and come");
    let moved = moved::measure(plan)?;
    Ok((feed.prefixes().len(), Figures { crossover, churn, sizes, pauses, floods, moved, routers }))
}
