//! The experiment of 2009 (Li and Macy): routes and neighbors in one table or in two, and what locks cost.
mod blocks;
mod case;
mod child;
mod copied;
mod driver;
mod engine;
mod flowed;
mod flows;
mod legacy;
mod lltable;
mod lock;
mod network;
mod ours;
mod pipeline;
mod split;
mod tree;
mod workload;
mod writes;

pub use case::{Case, LockKind, Run};
pub use child::SUBCOMMAND;
pub use engine::EngineName;
pub use workload::{Verified, Workload};
pub use writes::{SUBCOMMAND as WRITES, run_marked};

use crate::results::Delivery;
use crate::voice::print;

/// Measures, judges, prints, and writes files.
pub fn run(_: &Delivery) -> anyhow::Result<()> {
    Ok(())
}

/// Carries out one run and prints its figures.
pub fn run_one(case: &Case) -> anyhow::Result<()> {
    Ok(print(&serde_json::to_string(&case.run()?)?)?)
}

