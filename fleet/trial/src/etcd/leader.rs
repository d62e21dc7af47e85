//! The leader of three servers is killed: how long no transaction succeeds.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, PREFIX};
use crate::report::Figures;

/// A request that takes longer is given up and made again.
const TRY: Duration = Duration::from_millis(500);

/// How long requests go on after the kill.
const WHILE: Duration = Duration::from_secs(8);

pub(super) async fn run(cluster: &mut Cluster, figures: &mut Figures) -> Result<()> {
    let leader = find_leader(cluster).await?;
    let mut client = cluster.client(&[0, 1, 2]).await?;
    client.put(format!("{PREFIX}leader"), "", None).await?;
    cluster.servers[leader].kill().await?;
    let killed = Instant::now();
    let (mut last, mut longest, mut failed) = (killed, Duration::ZERO, 0);
    while killed.elapsed() < WHILE {
        let put = client.put(format!("{PREFIX}leader"), "", None);
        match timeout(TRY, put).await {
            Ok(Ok(_)) => {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            Ok(Err(_)) | Err(_) => failed += 1,
        }
        sleep(Duration::from_millis(10)).await;
    }
    // Without any answer after the kill the run has failed.
    let gap = (longest > Duration::ZERO).then(|| longest.as_secs_f64());
    figures.add_time("kill -9 of the leader: longest time without a change", gap);
    figures.add("changes that failed meanwhile, and were made again", f64::from(failed), "");
    Ok(())
}

/// The place of the server that leads.
async fn find_leader(cluster: &Cluster) -> Result<usize> {
    for place in 0..cluster.servers.len() {
        let status = cluster.client(&[place as u8]).await?.status().await?;
        let own = status.header().context("a status without a header")?.member_id();
        if status.leader() == own {
            return Ok(place);
        }
    }
    anyhow::bail!("no server says that it leads")
}
