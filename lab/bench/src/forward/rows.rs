//! The rows: rates beside the yardstick, under changes, of two workers; what each stage
//! takes; what cachegrind counts.

use super::case::{Case, Meets, Traffic};
use super::child::{Order, Race, Remote, SUBCOMMAND};
use super::churn::Churn;
use super::circuit::Run;
use super::plan::Plan;
use super::report::Report;
use super::rival::FastClick;
use crate::cachegrind::{Caches, each_packet};
use crate::child::command;
use crate::engine_bench::macswap_rate;
use artery_rig::program::tool;
use std::time::Duration;

/// The row that others are compared with.
const Y: &str = "y: testpmd macswap on null ports";
/// Changes a second that should not affect the rate.
const CHURN: Churn = Churn { routes: 10_000, neighbors: 100 };

/// A row of the first kind, and which part of the yardstick it should reach.
struct Row {
    name: String,
    case: Case,
    least: Option<f64>,
    rates: Vec<f64>,
}

/// Full tables, one destination, and neighbors on one link.
fn rows(plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: String, case: Case, least| rows.push(Row { name, case, least, rates: Vec::new() });
    if plan.options.traffic.is_none() {
        for (hosts, least) in [(1000, 0.85), (200_000, 0.45)] {
            let case = Case { workers: plan.options.workers.into(), ..Case::of_hosts(hosts) };
            add(format!("l2-{}k-hosts-rnd", hosts / 1000), case, Some(least));
        }
    }
    if plan.options.switch {
        return rows;
    }
    for family in plan.options.families() {
        for (traffic, least4, least6) in [(Traffic::Random, 0.49, 0.37), (Traffic::One, 0.85, 0.0)] {
            let wanted = plan.options.traffic.is_none_or(|wanted| wanted == traffic);
            let Some((case, routes)) = plan.full(family, traffic).filter(|_| wanted) else { continue };
            let least = if family == 4 { least4 } else { least6 };
            let name = match traffic {
                // As FD.io's CSIT calls its tests.
                Traffic::Random => format!("ip{family}scale{}k-rnd", routes / 1000),
                Traffic::One => format!("ip{family}scale{}k-one", routes / 1000),
            };
            add(name, case, Some(least).filter(|least| *least > 0.0));
        }
        if plan.options.traffic.is_none() {
            for count in [16, 65_536] {
                let case = Case { neighbors: Some(count), ..plan.bare(family) };
                add(format!("ip{family}-on-link-{count}-neighbors"), case, None);
            }
        }
    }
    rows
}

/// Flows of the rows with a filter.
const FLOWS: [u32; 2] = [1000, 100_000];

/// How long packets come before rates are taken: by then each flow has its states.
const OPENING: Duration = Duration::from_secs(1);

/// With a packet filter that keeps states: a switch with the rules of May 2021, and a router with a hundred.
/// All flows are known, and have a state at either port. Each row is beside the same without the filter.
pub(super) fn filtered(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let cases = |flows: u32| {
        [None, Some(1000)].map(|hosts| {
            let case = |meets| Case { hosts, ..Case::of_flows_that_meet(flows, meets) };
            let what = if hosts.is_some() { "l2-1k-hosts" } else { "ip4" };
            let row = |name: String, meets| Row { name, case: case(meets), least: None, rates: Vec::new() };
            let (name, filter) =
                (format!("{what}-{}k-flows", flows / 1000), if hosts.is_some() { "link1" } else { "pf100" });
            [row(name.clone(), Meets::Nothing), row(format!("{name}-{filter}"), Meets::Filter)]
        })
    };
    let mut rows: Vec<Row> = FLOWS.into_iter().flat_map(cases).flatten().collect();
    let mut race = Race::start(rows.iter().map(|row| &row.case))?;
    race.round(OPENING)?;
    let yardstick = turns(plan, &mut rows, &mut race)?;
    if !yardstick.is_empty() {
        report.rates(Y, 1, &yardstick)?;
    }
    for pair in rows.chunks(2) {
        let [plain, with] = pair else { continue };
        report.rates(&plain.name, 1, &plain.rates)?;
        report.rates(&with.name, 1, &with.rates)?;
        let (row, least) = (format!("{} / without", with.name), 0.8);
        if with.case.hosts.is_some() {
            report.ratio(&row, &with.rates, &plain.rates, least)?;
        } else {
            report.ratio(&format!("{} / y", with.name), &with.rates, &yardstick, 0.4)?;
        }
    }
    Ok(())
}

/// Lets rows take turns, as often as planned. Gives the rates of the yardstick among them.
fn turns(plan: &Plan, rows: &mut [Row], race: &mut Race) -> anyhow::Result<Vec<f64>> {
    let mut yardstick = Vec::new();
    for _ in 0..plan.rounds {
        yardstick.extend(macswap_rate());
        for (row, rate) in rows.iter_mut().zip(race.round(plan.time)?) {
            row.rates.push(rate);
        }
    }
    Ok(yardstick)
}

/// Rates of all rows that take turns, with the yardstick among them.
pub(super) fn rates(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let mut rows = rows(plan);
    let mut race = Race::start(rows.iter().map(|row| &row.case))?;
    let traffic = plan.options.traffic.unwrap_or(Traffic::Random);
    let rival = FastClick::new(plan, traffic)
        .filter(|_| plan.options.workers == 1 && !plan.options.switch)
        .transpose()?;
    let (mut yardstick, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        yardstick.extend(macswap_rate());
        for (row, rate) in rows.iter_mut().zip(race.round(plan.time)?) {
            row.rates.push(rate);
        }
        if let Some(rival) = &rival {
            theirs.push(rival.rate()?);
        }
    }
    if yardstick.is_empty() {
        report.add_note("no y: DPDK's testpmd is not installed, or there are no huge pages");
    } else {
        report.rates(Y, 1, &yardstick)?;
    }
    for row in &rows {
        report.rates(&row.name, row.case.workers, &row.rates)?;
        if let Some(least) = row.least.filter(|_| row.case.workers == 1) {
            report.ratio(&format!("{} / y", row.name), &row.rates, &yardstick, least)?;
        }
    }
    match theirs.is_empty() {
        true => report.add_note("FastClick left out: set $FASTCLICK to its click program"),
        false => report.rates(&format!("FastClick, IPv4, {traffic:?}, from a file"), 1, &theirs)?,
    }
    for pair in rows.chunks(2).filter(|pair| pair[0].case.neighbors.is_some()) {
        let row = format!("{} / those of 16", pair[1].name);
        report.ratio(&row, &pair[1].rates, &pair[0].rates, 0.9)?;
    }
    Ok(())
}

fn mpps(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(Run::mpps).collect()
}

/// The full table while routes and neighbors change, beside the same in peace.
pub(super) fn changes(plan: &Plan, family: u8, report: &mut Report) -> anyhow::Result<()> {
    let Some((case, _)) = plan.full(family, Traffic::Random) else { return Ok(()) };
    let mut router = Remote::start(&case)?;
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..plan.pairs {
        quiet.push(router.run(Order::quiet(plan.time))?);
        busy.push(router.run(Order { time: plan.time, churn: CHURN })?);
    }
    let row = format!("ip{family}, {} route and {} neighbor changes a second", CHURN.routes, CHURN.neighbors);
    report.runs(&row, case.workers, &busy)?;
    report.ratio(&format!("{row} / quiet"), &mpps(&busy), &mpps(&quiet), 0.95)
}

/// Two workers of one process, beside two processes with one each.
pub(super) fn two_workers(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let family = plan.options.families()[0];
    let Some((case, _)) = plan.full(family, Traffic::Random) else { return Ok(()) };
    let mut together = Remote::start(&Case { workers: 2, ..case.clone() })?;
    let one = |cpu| Remote::start(&Case { workers: 1, cpu, ..case.clone() });
    let mut apart = [one(0)?, one(1)?];
    let (mut in_one, mut in_two) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        in_one.push(together.run(Order::quiet(plan.time))?.mpps());
        apart.iter_mut().try_for_each(|router| router.begin(Order::quiet(plan.time)))?;
        let both = apart.iter_mut().map(Remote::end).collect::<anyhow::Result<Vec<_>>>()?;
        in_two.push(both.iter().map(Run::mpps).sum());
    }
    report.rates("two workers", together.workers(), &in_one)?;
    report.rates("two processes", 2, &in_two)?;
    report.ratio("two workers / two processes", &in_one, &in_two, 0.95)
}

/// What a packet takes in each element, with taking the time.
pub(super) fn stages(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    for family in plan.options.families() {
        for traffic in [Traffic::Random, Traffic::One] {
            let Some((case, _)) = plan.full(family, traffic) else { continue };
            let mut router = Remote::start(&Case { profile: true, workers: 1, ..case })?;
            let runs = (0..plan.rounds).map(|_| router.run(Order::quiet(plan.time)));
            let runs = runs.collect::<anyhow::Result<Vec<Run>>>()?;
            for (stage, name) in ["FromDevice", "forward", "ToDevice"].into_iter().enumerate() {
                let nanos: Vec<f64> = runs.iter().map(|run| run.stages[stage]).collect();
                report.add(&format!("ip{family}, {traffic:?}: {name}"), "ns/packet", &nanos)?;
            }
        }
    }
    Ok(())
}

/// Instructions and misses of a packet in simulated caches: this machine's first and second level.
pub(super) fn counts(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let (Some(valgrind), Some(caches)) = (tool("valgrind"), Caches::here()) else {
        report.add_note("nothing counted: valgrind is not installed, or can't simulate these caches");
        return Ok(());
    };
    for family in plan.options.families() {
        for traffic in [Traffic::Random, Traffic::One] {
            let Some((case, _)) = plan.full(family, traffic) else { continue };
            let count = each_packet(&valgrind, &caches, plan.counted, |packets| {
                command(SUBCOMMAND, &Case { limit: Some(packets), workers: 1, ..case.clone() })
            })?;
            for (what, figure) in
                [("instructions", count.instructions), ("D1 misses", count.d1), ("L2 misses", count.last)]
            {
                report.add(&format!("ip{family}, {traffic:?}: {what}"), "a packet", &[figure])?;
            }
        }
    }
    Ok(())
}
