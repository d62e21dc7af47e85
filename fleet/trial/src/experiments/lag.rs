//! Lag, processor time and memory at the rate that a fleet must carry: one machine publishes, two receive.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::{Amount, mib, ms, usual_stream};
use crate::fleet::Fleet;
use crate::process::{Process, Usage};
use crate::report::Figures;

/// After this time all records that will ever come have come.
const TAIL: Duration = Duration::from_millis(500);

pub(super) async fn run(fleet: &mut Fleet, amount: Amount, figures: &mut Figures) -> Result<()> {
    stream(fleet, 1.0).await?;
    let before = usages(fleet)?;
    for machine in &mut fleet.machines {
        machine.report().await?;
    }
    let records = stream(fleet, amount.seconds).await?;
    let after = usages(fleet)?;

    let mut worst = [0_u64; 3];
    let mut missed = 0;
    for machine in &mut fleet.machines[1..] {
        let report = machine.report().await?;
        missed += report.missed;
        let lag = [report.lag.p50_us, report.lag.p99_us, report.lag.max_us];
        worst = std::array::from_fn(|place| lag[place].max(worst[place]));
    }
    for (name, us) in ["p50", "p99", "longest"].iter().zip(worst) {
        figures.add(format!("lag at the slower peer, {name}"), ms(us), "ms");
    }
    figures.add("batches missed", missed as f64, "");
    let names = ["publisher", "receiver", "other receiver", "server"];
    for ((name, before), after) in names.iter().zip(before).zip(after) {
        let cpu_us = (after.cpu - before.cpu).as_micros() as f64;
        figures.add(format!("processor time a record, {name}"), cpu_us / records as f64, "us");
        figures.add(format!("memory, {name}"), mib(after.resident_kib), "MiB");
    }
    Ok(())
}

/// Has the first machine publish; returns how many records.
async fn stream(fleet: &mut Fleet, seconds: f64) -> Result<u64> {
    fleet.machines[0].publish(usual_stream(seconds)).await?;
    let (records, ..) = fleet.machines[0].published().await?;
    sleep(TAIL).await;
    Ok(records)
}

/// What the three machines have used, and the server if there is one.
fn usages(fleet: &Fleet) -> Result<Vec<Usage>> {
    let machines = fleet.machines.iter().map(|machine| &machine.process);
    machines.chain(&fleet.server).map(Process::usage).collect()
}
