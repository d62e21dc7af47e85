//! Runs as processes of their own: each starts afresh, and valgrind can count what one costs.

use super::case::{Case, Run};
use anyhow::Context as _;
use artery_bench::cachegrind::{self, Caches, Count, finish};
use artery_rig::program;
use clap::ValueEnum;
use std::path::Path;
use std::process::Command;

/// The subcommand that carries out one run.
pub const SUBCOMMAND: &str = "freebsd2009-run";

/// Carries out one run in a child.
pub(super) fn run(case: &Case) -> anyhow::Result<Run> {
    let output = finish(&mut command(&program::this()?, case))?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{case:?}: the run printed no result"))
}

/// Counts what a packet costs in simulated caches.
pub(super) fn count(valgrind: &Path, caches: &Caches, case: &Case, packets: u64) -> anyhow::Result<Count> {
    let program = program::this()?;
    cachegrind::each_packet(valgrind, caches, packets, |packets| {
        command(&program, &Case { packets: Some(packets), ..*case })
    })
}

fn command(program: &Path, case: &Case) -> Command {
    let mut command = Command::new(program);
    let word = |value: Option<clap::builder::PossibleValue>| value.map(|v| v.get_name().to_string());
    let words = [case.engine.to_possible_value(), case.workload.to_possible_value()].map(word);
    command.arg(SUBCOMMAND).args(words.into_iter().flatten());
    let figures = [
        ("--threads", case.threads as u64),
        ("--driver", case.driver.into()),
        ("--millis", case.millis),
        ("--samples", case.samples as u64),
        ("--neighbors", case.neighbors.into()),
    ];
    figures.iter().for_each(|(name, value)| _ = command.args([*name, &value.to_string()]));
    command.arg("--locks").args(word(case.locks.to_possible_value()));
    if let Some(packets) = case.packets {
        command.args(["--packets", &packets.to_string()]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freebsd2009::{EngineName, LockKind, Workload};

    #[test]
    fn everything_chosen_is_said_to_the_child() {
        let case = Case {
            threads: 3,
            driver: 100,
            millis: 7,
            samples: 5,
            locks: LockKind::Watched,
            neighbors: 9,
            packets: Some(11),
            ..Case::new(EngineName::F, Workload::Near)
        };
        let words = command(Path::new("x"), &case);
        let words: Vec<_> = words.get_args().map(|word| word.to_str().unwrap()).collect();
        let wanted = "freebsd2009-run f near --threads 3 --driver 100 --millis 7 --samples 5 --neighbors 9 \
                      --locks watched --packets 11";
        assert_eq!(words.join(" "), wanted);
    }
}
