//! A machine is killed and comes back; then the server is.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::{ms, usual_stream, wait_for_agreement};
use crate::clock::now_us;
use crate::fleet::{Fleet, Site};
use crate::report::Figures;

/// Time before and after a blow.
const WHILE: Duration = Duration::from_secs(2);

/// How long the server stays dead.
const DEAD: Duration = Duration::from_secs(1);

pub(super) async fn run(site: &mut Site, fleet: &mut Fleet, figures: &mut Figures) -> Result<()> {
    fleet.machines[0].publish(usual_stream(12.0)).await?;
    sleep(WHILE).await;
    kill_machine(site, fleet, figures).await?;
    fleet.machines[0].published().await?;
    if fleet.server.is_some() {
        kill_server(site, fleet, figures).await?;
    }
    Ok(())
}

async fn kill_machine(site: &mut Site, fleet: &mut Fleet, figures: &mut Figures) -> Result<()> {
    fleet.machines[1].report().await?;
    let killed_us = now_us();
    fleet.machines[2].process.kill().await?;
    sleep(WHILE).await;
    let report = fleet.machines[1].report().await?;
    figures.add("lag at another peer around kill -9, p99", ms(report.lag.p99_us), "ms");
    figures.add("lag at another peer around kill -9, longest", ms(report.lag.max_us), "ms");
    let heard = report.presence.iter().find(|presence| presence.machine == "3" && !presence.is_there);
    if !report.presence.is_empty() {
        let seconds = heard.map(|presence| presence.at_us.saturating_sub(killed_us) as f64 / 1e6);
        figures.add_time("kill -9 until a peer hears that the machine is gone", seconds);
    }
    let start = tokio::time::Instant::now();
    fleet.machines[2] = fleet.machine(site, 3).await?;
    let agreed = wait_for_agreement(fleet, &[(0, 2)]).await?;
    let took = agreed.map(|_| start.elapsed().as_secs_f64());
    figures.add_time("start of the machine until it has all records again", took);
    Ok(())
}

async fn kill_server(site: &mut Site, fleet: &mut Fleet, figures: &mut Figures) -> Result<()> {
    fleet.machines[0].publish(usual_stream(12.0)).await?;
    sleep(WHILE).await;
    if let Some(server) = &mut fleet.server {
        server.kill().await?;
    }
    sleep(DEAD).await;
    fleet.server = Some(site.serve_nats(false).await?);
    let agreed = wait_for_agreement(fleet, &[(0, 1), (0, 2)]).await?;
    figures.add_time("start of the server until states agree, after kill -9 and 1 s", agreed);
    let (_, longest_wait_us, refused) = fleet.machines[0].published().await?;
    figures.add("publisher waited for the server, longest", ms(longest_wait_us), "ms");
    figures.add("batches that the engine refused meanwhile", refused as f64, "");
    Ok(())
}
