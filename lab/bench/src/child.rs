//! Runs as processes of their own: each starts afresh, and valgrind can count what one costs.
//!
//! What a child is to run goes to it as JSON, in one word behind a hidden subcommand of this program.

use crate::cachegrind::finish;
use anyhow::Context as _;
use artery_rig::console::progress;
use artery_rig::program;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// The command that runs a case.
pub fn command(subcommand: &str, case: &impl Serialize) -> anyhow::Result<Command> {
    let mut command = Command::new(program::this()?);
    command.arg(subcommand).arg(serde_json::to_string(case)?);
    Ok(command)
}

/// Reads the case in the child, as clap reads an argument.
pub fn read<Case: DeserializeOwned>(case: &str) -> Result<Case, serde_json::Error> {
    serde_json::from_str(case)
}

/// Runs a case in a child, to its end.
pub fn run<Run: DeserializeOwned>(subcommand: &str, case: &impl Serialize) -> anyhow::Result<Run> {
    let output = finish(&mut command(subcommand, case)?)?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{subcommand} printed no result"))
}

/// Does all tasks on all processors: for what is counted, which does not depend on what else runs.
pub fn by_all_processors<Task: Sync, R: Send>(
    what: &str,
    tasks: &[Task],
    act: impl Fn(&Task) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(task) = tasks.get(at) else { return Ok(()) };
            let result = act(task)?;
            let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            done.push((at, result));
            progress(&format!("{what}: {} of {}", done.len(), tasks.len()));
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
    })?;
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
