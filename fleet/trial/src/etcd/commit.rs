//! How long a transaction takes, and how soon a watch at another server tells of it.

use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use hdrhistogram::Histogram;
use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, PREFIX, next_change};
use crate::clock::now_us;
use crate::report::Figures;

const TRANSACTIONS: u64 = 500;

/// A configuration is committed now and then, so each transaction finds the servers at rest.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) async fn run(cluster: &Cluster, figures: &mut Figures) -> Result<()> {
    let size = cluster.servers.len();
    let mut client = cluster.client(&[0]).await?;
    let mut watch = cluster.watch().await?;
    let pushes = tokio::spawn(async move {
        let mut lag = Histogram::<u64>::new(3).expect("three digits are within what histograms can have");
        for _ in 0..TRANSACTIONS {
            let (_, value) =
                timeout(Duration::from_secs(10), next_change(&mut watch)).await.context("no push")??;
            let sent_us: u64 = String::from_utf8(value)?.parse()?;
            lag.record(now_us().saturating_sub(sent_us))?;
        }
        anyhow::Ok(lag)
    });
    let mut took = Histogram::<u64>::new(3)?;
    let key = format!("{PREFIX}config");
    for version in 0..TRANSACTIONS {
        let begun = Instant::now();
        let transaction = Txn::new()
            .when([Compare::version(key.as_str(), CompareOp::Equal, version as i64)])
            .and_then([TxnOp::put(key.as_str(), now_us().to_string(), None)]);
        let response = client.txn(transaction).await?;
        anyhow::ensure!(response.succeeded(), "a transaction found another version than {version}");
        took.record(begun.elapsed().as_micros() as u64)?;
        sleep(PAUSE).await;
    }
    let pushed = pushes.await??;
    for (name, histogram) in [("transaction", &took), ("until a watch at another server tells", &pushed)] {
        for (quantile, word) in [(0.5, "p50"), (0.99, "p99"), (1.0, "longest")] {
            let us = histogram.value_at_quantile(quantile);
            figures.add(format!("{name}, {word}, servers: {size}"), us as f64 / 1000.0, "ms");
        }
    }
    Ok(())
}
