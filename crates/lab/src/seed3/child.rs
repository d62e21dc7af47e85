//! Runs as processes of their own: each starts afresh, and valgrind can count the instructions of one.

use super::case::{Case, Run};
use crate::program;
use anyhow::{Context as _, ensure};
use std::path::Path;
use std::process::{Command, Output};

/// The subcommand that carries out one run.
pub const SUBCOMMAND: &str = "seed3-run";

/// The caches of a Pentium Pro: what 1999 had.
const PENTIUM_PRO: [&str; 3] = ["--I1=8192,4,32", "--D1=8192,2,32", "--LL=262144,4,32"];

/// What one packet costs by cachegrind's count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Instructions {
    /// Instructions.
    pub instructions: f64,
    /// Misses of a Pentium Pro's first-level data cache.
    pub misses: f64,
}

/// Carries out one run in a child.
pub(super) fn run(case: Case, packets: u64, burst: usize) -> anyhow::Result<Run> {
    let output = finish(&mut command(&program::this()?, case, packets, burst), case)?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{case}: the run printed no result"))
}

/// Counts instructions of one packet: twice the packets cost so many more, and start and end cost nothing more.
pub(super) fn instructions(
    valgrind: &Path,
    case: Case,
    packets: u64,
    burst: usize,
) -> anyhow::Result<Instructions> {
    let count = |packets: u64| {
        let mut command = Command::new(valgrind);
        command.args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]);
        command.args(PENTIUM_PRO);
        let run = arguments(case, packets, burst);
        let output = finish(command.arg(program::this()?).args(run), case)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let figures = (figure(&text, "I refs:"), figure(&text, "D1 misses:"));
        figures.0.zip(figures.1).with_context(|| format!("valgrind printed no counts:\n{text}"))
    };
    let (once, twice) = (count(packets)?, count(2 * packets)?);
    let each = |once: u64, twice: u64| twice.saturating_sub(once) as f64 / packets as f64;
    Ok(Instructions { instructions: each(once.0, twice.0), misses: each(once.1, twice.1) })
}

fn command(program: &Path, case: Case, packets: u64, burst: usize) -> Command {
    let mut command = Command::new(program);
    command.args(arguments(case, packets, burst));
    command
}

fn arguments(case: Case, packets: u64, burst: usize) -> Vec<String> {
    let (case, packets, burst) = (case.to_string(), packets.to_string(), burst.to_string());
    [SUBCOMMAND.into(), case, "--packets".into(), packets, "--burst".into(), burst].to_vec()
}

fn finish(command: &mut Command, case: Case) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("can't run {:?}", command.get_program()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{case}: the run ended with {}\n{stderr}", output.status);
    Ok(output)
}

/// The first figure behind `label` in what cachegrind prints, such as `==1== D1  misses:  1,234  ( 1 rd + …)`.
fn figure(text: &str, label: &str) -> Option<u64> {
    let mut lines = text.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
    let rest = lines.find_map(|line| line.strip_prefix(label).map(str::to_owned))?;
    rest.split_whitespace().next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_cachegrind_prints() {
        let text = "==7== Cachegrind\n==7== I   refs:      1,234,567\n==7== D   refs:  5\n\
                    ==7== D1  misses:       89,012  (80,000 rd + 9,012 wr)\n";
        assert_eq!((figure(text, "I refs:"), figure(text, "D1 misses:")), (Some(1_234_567), Some(89_012)));
        assert_eq!(figure(text, "LL misses:"), None);
    }
}
