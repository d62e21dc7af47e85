//! `artery-bench forward`: what forwarding costs from port to port, in memory, on one processor.
//!
//! Frames go round in a router, from the transmit queue of one port to the receive queue of another; an
//! element of its own makes each of them the next of 262,144 packets, in the time that is measured. Each
//! router is a process of its own. Those to be compared take turns within a round, with DPDK's testpmd among
//! them, so that what disturbs the machine disturbs all.

mod case;
mod child;
mod churn;
mod circuit;
mod floods;
mod hosts;
mod network;
mod plan;
mod play;
mod report;
mod rival;
mod rows;

pub use case::{Case, Traffic};
pub(crate) use child::Race;
pub use child::{SUBCOMMAND, serve};
pub(crate) use network::is_far;

use crate::fib::timing::Pinned;
use artery_rig::machine::Machine;
use clap::Args;
use plan::Plan;
use report::Report;
use std::path::PathBuf;

/// Which rows to measure, and how.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Routes: text or an MRT dump, packed by gzip or not; without, a synthetic table of the Internet's shape
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// Only this family, 4 or 6
    #[arg(long, value_parser = ["4", "6"])]
    pub family: Option<String>,
    /// Only packets of this kind, and nothing but their rate
    #[arg(long, value_enum)]
    pub traffic: Option<Traffic>,
    /// Only frames through a switch, and nothing but their rate
    #[arg(long, alias = "stations", conflicts_with = "traffic")]
    pub switch: bool,
    /// Only packets of known flows through a packet filter, in a switch and around a router, and
    /// nothing but their rate
    #[arg(long, conflicts_with_all = ["traffic", "switch"])]
    pub filter: bool,
    /// Only known traffic through a switch and a packet filter while floods of strangers come
    #[arg(long, conflicts_with_all = ["traffic", "switch", "filter"])]
    pub floods: bool,
    /// So many workers, each with frames of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub workers: u8,
    /// Print JSON, one measurement a line
    #[arg(long)]
    pub json: bool,
    /// Fewer and shorter runs
    #[arg(long)]
    pub quick: bool,
}

impl Options {
    fn families(&self) -> Vec<u8> {
        if self.switch || self.filter {
            return Vec::new();
        }
        let wanted = |family: &u8| self.family.as_deref().is_none_or(|wanted| wanted == family.to_string());
        [4, 6].into_iter().filter(wanted).collect()
    }
}

/// Measures all that was asked for, and prints it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut report = Report::new(Machine::here(), options.json);
    if options.floods {
        let _pinned = Pinned::to(0);
        floods::measure(options, &mut report)?;
        return report.end();
    }
    let plan = Plan::new(options)?;
    if options.filter {
        rows::filtered(&plan, &mut report)?;
        return report.end();
    }
    rows::rates(&plan, &mut report)?;
    if options.traffic.is_none() && !options.switch {
        for family in options.families() {
            rows::changes(&plan, family, &mut report)?;
        }
        rows::two_workers(&plan, &mut report)?;
        rows::stages(&plan, &mut report)?;
        rows::counts(&plan, &mut report)?;
    }
    report.end()
}
