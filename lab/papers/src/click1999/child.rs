//! Runs as processes of their own: each starts afresh, and valgrind can count the instructions of one.

use super::case::{Case, Run};
use anyhow::Context as _;
use artery_bench::cachegrind::{self, Count, PENTIUM_PRO, finish};
use artery_rig::program;
use std::path::Path;
use std::process::Command;

/// The subcommand that carries out one run.
pub const SUBCOMMAND: &str = "click1999-run";

/// Carries out one run in a child.
pub(super) fn run(case: Case, packets: u64, burst: usize) -> anyhow::Result<Run> {
    let output = finish(&mut command(&program::this()?, case, packets, burst))?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{case}: the run printed no result"))
}

/// Counts instructions of one packet, and misses of the caches that 1999 had.
pub(super) fn instructions(valgrind: &Path, case: Case, packets: u64, burst: usize) -> anyhow::Result<Count> {
    let program = program::this()?;
    cachegrind::each_packet(valgrind, &PENTIUM_PRO, packets, |packets| {
        command(&program, case, packets, burst)
    })
}

fn command(program: &Path, case: Case, packets: u64, burst: usize) -> Command {
    let mut command = Command::new(program);
    command.args([SUBCOMMAND, &case.to_string()]);
    command.args(["--packets", &packets.to_string(), "--burst", &burst.to_string()]);
    command
}
