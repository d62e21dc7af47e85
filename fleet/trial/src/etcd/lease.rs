//! How long after the last sign of life of a machine the others hear that its lease has ended.

use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::PutOptions;
use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, PREFIX, next_change};
use crate::report::Figures;

/// Seconds that leases last; etcd makes shorter ones longer.
const LASTS: [i64; 2] = [2, 5];

const TIMES: usize = 4;

pub(super) async fn run(cluster: &Cluster, figures: &mut Figures) -> Result<()> {
    for lasts in LASTS {
        let mut seconds = Vec::new();
        for machine in 0..TIMES {
            seconds.push(expire(cluster, lasts, machine).await?);
        }
        let name = format!("lease of {lasts} s until a watch tells, servers: {}", cluster.servers.len());
        figures.add_time(format!("{name}, shortest"), seconds.iter().copied().reduce(f64::min));
        figures.add_time(format!("{name}, longest"), seconds.iter().copied().reduce(f64::max));
    }
    Ok(())
}

/// Keeps a lease alive for a while, then no longer; returns the time from then until the watch tells.
async fn expire(cluster: &Cluster, lasts: i64, machine: usize) -> Result<f64> {
    let mut client = cluster.client(&[0]).await?;
    let mut watch = cluster.watch().await?;
    let lease = client.lease_grant(lasts, None).await?.id();
    let key = format!("{PREFIX}alive/{machine}");
    client.put(key, "", Some(PutOptions::new().with_lease(lease))).await?;
    let (is_gone, _) = next_change(&mut watch).await?;
    anyhow::ensure!(!is_gone, "a machine left before it came");
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
    for _ in 0..3 {
        sleep(Duration::from_millis(300)).await;
        keeper.keep_alive().await?;
        answers.message().await?.context("a lease was not prolonged")?;
    }
    let silent_since = Instant::now();
    let (is_gone, _) =
        timeout(Duration::from_secs(30), next_change(&mut watch)).await.context("no push")??;
    anyhow::ensure!(is_gone, "a watch reported a change that was not made");
    Ok(silent_since.elapsed().as_secs_f64())
}
