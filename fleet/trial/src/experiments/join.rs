//! The time until a new machine has all records of another one, and what that does to a third.

use anyhow::{Result, ensure};

use super::{Amount, mib, ms, usual_stream};
use crate::fleet::{Fleet, Site};
use crate::report::Figures;

/// How often it is measured, each time with a machine that knows nothing.
const TIMES: usize = 3;

pub(super) async fn run(
    site: &mut Site,
    fleet: &mut Fleet,
    amount: Amount,
    figures: &mut Figures,
) -> Result<()> {
    let start = tokio::time::Instant::now();
    fleet.machines[0].load(amount.records).await?;
    figures
        .add_time(format!("{} records made and stored", amount.records), Some(start.elapsed().as_secs_f64()));
    figures.add(
        "memory before, machine with the records",
        mib(fleet.machines[0].process.usage()?.resident_kib),
        "MiB",
    );

    let mut seconds = Vec::new();
    for _ in 0..TIMES {
        fleet.machines[1].process.kill().await?;
        fleet.machines[1] = fleet.machine(site, 2).await?;
        fleet.settle().await;
        let (records, took) = fleet.machines[1].join(1).await?;
        ensure!(records >= amount.records, "a new machine got {records} of {} records", amount.records);
        seconds.push(took);
    }
    figures.add_time(
        format!("until a new machine has them, shortest of {TIMES}"),
        seconds.iter().copied().reduce(f64::min),
    );
    figures.add_time(
        format!("until a new machine has them, longest of {TIMES}"),
        seconds.iter().copied().reduce(f64::max),
    );
    figures.add(
        "memory after, machine with the records",
        mib(fleet.machines[0].process.usage()?.resident_kib),
        "MiB",
    );
    figures.add("memory after, new machine", mib(fleet.machines[1].process.usage()?.resident_kib), "MiB");
    if let Some(server) = &fleet.server {
        figures.add("memory after, server", mib(server.usage()?.resident_kib), "MiB");
    }
    lag_beside_a_joiner(fleet, figures).await
}

/// A third machine, which has all records already, must not notice that another one fetches them.
async fn lag_beside_a_joiner(fleet: &mut Fleet, figures: &mut Figures) -> Result<()> {
    fleet.machines[2].join(1).await?;
    fleet.machines[2].report().await?;
    fleet.machines[0].publish(usual_stream(6.0)).await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    fleet.machines[1].join(1).await?;
    fleet.machines[0].published().await?;
    let lag = fleet.machines[2].report().await?.lag;
    figures.add("lag at a third machine meanwhile, p99", ms(lag.p99_us), "ms");
    figures.add("lag at a third machine meanwhile, longest", ms(lag.max_us), "ms");
    Ok(())
}
