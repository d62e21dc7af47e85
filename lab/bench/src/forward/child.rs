//! Routers as child processes: each starts with fresh state, and runs on request.

use super::case::Case;
use super::churn::Churn;
use super::circuit::{Circuit, Run};
use crate::child::command;
use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

/// The subcommand that runs one router.
pub const SUBCOMMAND: &str = "forward-run";

/// What to do in a run: for how long, and what to change meanwhile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) time: Duration,
    pub(super) churn: Churn,
}

impl Order {
    pub(super) fn quiet(time: Duration) -> Order {
        Order { time, churn: Churn::default() }
    }
}

/// Runs a router in this process, for the parent process.
pub fn serve(case: &Case) -> anyhow::Result<()> {
    let circuit = Circuit::new(case)?;
    if case.limit.is_some() {
        return say(&circuit.run_out()?.to_string());
    }
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let order: Order = serde_json::from_str(&line).with_context(|| format!("'{line}' is no order"))?;
        let run = order.churn.during(&circuit, || circuit.run(order.time))?;
        say(&serde_json::to_string(&run)?)?;
    }
    circuit.end()
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// A router in a process that was started.
pub(super) struct Remote {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    workers: usize,
}

impl Remote {
    /// Starts one, and waits until it is ready.
    pub(super) fn start(case: &Case) -> anyhow::Result<Remote> {
        let mut child = command(SUBCOMMAND, case)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take().context("it was piped")?);
        let mut remote = Remote { child, orders, answers: BufReader::new(answers), workers: case.workers };
        ensure!(remote.answer()?.trim() == "ready", "a router did not start");
        Ok(remote)
    }

    pub(super) fn run(&mut self, order: Order) -> anyhow::Result<Run> {
        self.begin(order)?;
        self.end()
    }
    /// Lets it begin to run.
    pub(super) fn begin(&mut self, order: Order) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context("it was piped")?;
        writeln!(orders, "{}", serde_json::to_string(&order)?)?;
        Ok(orders.flush()?)
    }
    /// Waits for the end of its run.
    pub(super) fn end(&mut self) -> anyhow::Result<Run> {
        let answer = self.answer()?;
        serde_json::from_str(&answer).with_context(|| format!("'{answer}' is not a result"))
    }
    /// Its number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "a router ended without an answer");
        Ok(line)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It ends when no order can come any more.
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// Routers that take turns.
pub(crate) struct Race(Vec<Remote>);

impl Race {
    /// Starts them, one after the other.
    pub(crate) fn start<'a>(cases: impl IntoIterator<Item = &'a Case>) -> anyhow::Result<Race> {
        Ok(Race(cases.into_iter().map(Remote::start).collect::<anyhow::Result<_>>()?))
    }

    /// Lets each of them run for some time, one after the other: millions of packets a second.
    pub(crate) fn round(&mut self, time: Duration) -> anyhow::Result<Vec<f64>> {
        self.0.iter_mut().map(|router| Ok(router.run(Order::quiet(time))?.mpps())).collect()
    }
}
