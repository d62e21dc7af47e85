//! Machines without a certificate of the fleet publish: no machine may take that, nor may they receive
//! anything.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::usual_stream;
use crate::fleet::{Fleet, Site};
use crate::report::Figures;

/// Time for what must not come.
const WAIT: Duration = Duration::from_secs(2);

pub(super) async fn run(site: &mut Site, fleet: &mut Fleet, figures: &mut Figures) -> Result<()> {
    let mut known = 0;
    for (number, has_certificate, what) in
        [(8, true, "another authority's certificate"), (9, false, "no certificate")]
    {
        let mut stranger = fleet.stranger(site, number, has_certificate).await?;
        sleep(WAIT).await;
        stranger.publish(usual_stream(1.0)).await?;
        // What the fleet publishes meanwhile is for its own machines alone.
        fleet.machines[0].publish(usual_stream(1.0)).await?;
        let (sent, ..) = stranger.published().await?;
        let (own, ..) = fleet.machines[0].published().await?;
        sleep(WAIT).await;
        known += own * (fleet.machines.len() as u64 - 1);
        let mut taken = 0;
        for machine in &mut fleet.machines {
            taken += machine.report().await?.received;
        }
        figures.add(format!("records sent by a machine with {what}"), sent as f64, "");
        figures.add("of those, taken by the fleet", taken as f64 - known as f64, "");
        figures.add("records of the fleet that it got", stranger.report().await?.received as f64, "");
    }
    Ok(())
}
