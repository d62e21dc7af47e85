//! The highest rate that an engine sustains: all records come at both peers, and 99 of 100 within 100 ms.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::ms;
use crate::fleet::Fleet;
use crate::orders::Publish;
use crate::report::Figures;

/// Records a second that are tried, one after another, until one is too many.
const RATES: [u32; 10] =
    [5_000, 10_000, 20_000, 50_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000];

const SECONDS: f64 = 3.0;

/// The largest lag of 99 in 100 records, in microseconds.
const LAG_LIMIT_US: u64 = 100_000;

/// After this time all records that will ever come have come.
const TAIL: Duration = Duration::from_millis(500);

pub(super) async fn run(fleet: &mut Fleet, batch: u32, figures: &mut Figures) -> Result<()> {
    let (mut highest, mut lag_us) = (0, 0);
    for rate in RATES {
        let publish = Publish { rate: Some(rate), seconds: SECONDS, batch };
        let Some(p99_us) = try_rate(fleet, publish).await? else { break };
        (highest, lag_us) = (rate, p99_us);
    }
    figures.add(format!("sustained, batches of {batch}"), f64::from(highest), "records/s");
    figures.add("p99 of lag at that rate", ms(lag_us), "ms");
    Ok(())
}

/// Publishes at a rate; returns the 99th percentile of lag in microseconds, or nothing if that is too much.
async fn try_rate(fleet: &mut Fleet, publish: Publish) -> Result<Option<u64>> {
    let mut before = Vec::new();
    for machine in &mut fleet.machines[1..] {
        before.push(machine.report().await?.received);
    }
    fleet.machines[0].publish(publish).await?;
    let (sent, ..) = fleet.machines[0].published().await?;
    sleep(TAIL).await;
    let mut worst = 0;
    let mut is_complete = true;
    for (machine, before) in fleet.machines[1..].iter_mut().zip(before) {
        let report = machine.report().await?;
        is_complete &= report.received - before >= sent;
        worst = worst.max(report.lag.p99_us);
    }
    Ok((is_complete && worst <= LAG_LIMIT_US).then_some(worst))
}
