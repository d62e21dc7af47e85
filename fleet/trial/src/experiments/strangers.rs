//! Machines without a certificate of the fleet's authority publish; nobody must take that.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::usual_stream;
use crate::fleet::{Fleet, Site};
use crate::report::Figures;

/// Time for what must not come.
const WAIT: Duration = Duration::from_secs(2);

pub(super) async fn run(site: &mut Site, fleet: &mut Fleet, figures: &mut Figures) -> Result<()> {
    for (number, has_certificate, what) in
        [(8, true, "another authority's certificate"), (9, false, "no certificate")]
    {
        let mut stranger = fleet.stranger(site, number, has_certificate).await?;
        sleep(WAIT).await;
        stranger.publish(usual_stream(1.0)).await?;
        let (sent, ..) = stranger.published().await?;
        sleep(WAIT).await;
        let mut taken = 0;
        for machine in &mut fleet.machines {
            taken += machine.report().await?.received;
        }
        figures.add(format!("records sent by a machine with {what}"), sent as f64, "");
        figures.add(format!("of those, taken by the fleet ({what})"), taken as f64, "");
        figures.add(
            format!("records that it got itself ({what})"),
            stranger.report().await?.received as f64,
            "",
        );
    }
    Ok(())
}
