//! Runs as processes of their own: each starts afresh, and valgrind can count the misses of one.

use super::case::{Case, Run};
use anyhow::{Context as _, ensure};
use artery_bench::cachegrind::{self, Caches, Count, finish};
use artery_rig::program;
use std::path::Path;
use std::process::Command;

/// The subcommand that carries out one run.
pub const SUBCOMMAND: &str = "misses2008-run";

/// Carries out one run in a child. One in which a packet came to harm is an error, not a figure.
pub(super) fn run(case: &Case) -> anyhow::Result<Run> {
    let output = finish(&mut command(&program::this()?, case, case.packets))?;
    let run: Run = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}: the run printed no result", case.depth))?;
    ensure!(run.card.examined.wrong == 0, "{}: packets were sent that are not as they must be", case.depth);
    ensure!(run.card.spent.packets > 0, "{}: others had the processor all the time", case.depth);
    Ok(run)
}

/// Counts the misses of a packet in simulated caches.
pub(super) fn count(valgrind: &Path, caches: &Caches, case: &Case) -> anyhow::Result<Count> {
    let program = program::this()?;
    cachegrind::each_packet(valgrind, caches, case.packets, |packets| command(&program, case, packets))
}

fn command(program: &Path, case: &Case, packets: u64) -> Command {
    let mut command = Command::new(program);
    command.args([SUBCOMMAND, &case.depth.to_string(), &case.buffers.to_string()]);
    command.args(["--packets", &packets.to_string(), "--burst", &case.burst.to_string()]);
    if let Some(rate) = case.rate {
        command.args(["--rate", &rate.to_string()]);
    }
    let flags = [("--prefetch", case.prefetch), ("--count", case.count)];
    command.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misses2008::case::Buffers;
    use artery_engine::Monitor;

    #[test]
    fn everything_chosen_is_said_to_the_child() {
        let case = Case {
            depth: crate::misses2008::Depth::Router(Monitor(None)),
            buffers: Buffers::Cycled(64),
            packets: 10,
            burst: 8,
            rate: Some(1000.0),
            prefetch: true,
            count: true,
        };
        let words = command(Path::new("x"), &case, 20);
        let words: Vec<_> = words.get_args().map(|word| word.to_str().unwrap()).collect();
        let wanted = "misses2008-run off cycled:64 --packets 20 --burst 8 --rate 1000 --prefetch --count";
        assert_eq!(words.join(" "), wanted);
    }
}
