//! A machine is cut off, or stands still, for five seconds while others go on.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::{mib, ms, usual_stream, wait_for_agreement};
use crate::fleet::{Fleet, Site};
use crate::process::Process;
use crate::report::Figures;

/// Time before the disturbance.
const BEFORE: Duration = Duration::from_secs(2);

/// How long it lasts.
const LASTS: Duration = Duration::from_secs(5);

/// How often memory is read.
const SAMPLE: Duration = Duration::from_millis(100);

/// The machine that it happens to: its place, and its host.
const VICTIM: (usize, u8) = (2, 3);

/// What happens to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// No packet comes or goes.
    Partition,
    /// It runs no instruction.
    Pause,
}

impl Disturbance {
    fn set(self, site: &Site, fleet: &Fleet, is_on: bool) -> Result<()> {
        match self {
            Disturbance::Partition => site.network.cut(VICTIM.1, is_on),
            Disturbance::Pause => fleet.machines[VICTIM.0].process.pause(is_on),
        }
    }
}

pub(super) async fn run(
    site: &mut Site,
    fleet: &mut Fleet,
    disturbance: Disturbance,
    figures: &mut Figures,
) -> Result<()> {
    fleet.machines[0].publish(usual_stream(20.0)).await?;
    fleet.machines[VICTIM.0].publish(usual_stream(20.0)).await?;
    sleep(BEFORE).await;
    fleet.machines[1].report().await?;
    let before = memory(fleet)?;

    disturbance.set(site, fleet, true)?;
    let highest = watch_memory(fleet).await?;
    // The second machine's lag of the victim's records would count its silence, so it is read before that
    // ends.
    let lag = fleet.machines[1].report().await?.lag;
    disturbance.set(site, fleet, false)?;
    let agreed = wait_for_agreement(fleet, &[(0, VICTIM.0), (VICTIM.0, 0)]).await?;

    figures.add("lag at another peer meanwhile, p99", ms(lag.p99_us), "ms");
    figures.add("lag at another peer meanwhile, longest", ms(lag.max_us), "ms");
    figures.add("records at another peer meanwhile", lag.records as f64, "");
    for (place, name) in [(0, "publisher"), (VICTIM.0, "the machine itself"), (3, "server")] {
        if let (Some(before), Some(highest)) = (before.get(place), highest.get(place)) {
            figures.add(
                format!("memory grew meanwhile, {name}"),
                mib(highest.saturating_sub(*before)),
                "MiB",
            );
        }
    }
    figures.add_time("end of it until states agree", agreed);
    let (_, longest_wait_us, _) = fleet.machines[0].published().await?;
    figures.add("publisher waited for the engine, longest", ms(longest_wait_us), "ms");
    let report = fleet.machines[VICTIM.0].report().await?;
    figures.add("batches missed at the machine", report.missed as f64, "");
    figures.add("whole states it fetched", report.repairs as f64, "");
    figures.add("whole states it could not fetch at once", report.failed_repairs as f64, "");
    Ok(())
}

/// The highest memory of each process while the disturbance lasts.
async fn watch_memory(fleet: &Fleet) -> Result<Vec<u64>> {
    let (start, mut highest) = (Instant::now(), memory(fleet)?);
    while start.elapsed() < LASTS {
        sleep(SAMPLE).await;
        for (high, now) in highest.iter_mut().zip(memory(fleet)?) {
            *high = (*high).max(now);
        }
    }
    Ok(highest)
}

/// The memory of machines, and of the server if there is one, in KiB.
fn memory(fleet: &Fleet) -> Result<Vec<u64>> {
    let machines = fleet.machines.iter().map(|machine| &machine.process);
    let processes: Vec<&Process> = machines.chain(&fleet.server).collect();
    processes.into_iter().map(|process| Ok(process.usage()?.resident_kib)).collect()
}
