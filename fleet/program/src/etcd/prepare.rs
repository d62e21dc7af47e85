//! When a planned change is prepared here: the router has compared all its flows with the table that the
//! change will make, and all machines that live have the exceptions.

use anyhow::{Result, ensure};
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::hand_over::Confirmations;

/// What the router says of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct WorkerProgress {
    worker: u16,
    is_planned: bool,
    /// Whether METHOD gives a flow the same member everywhere.
    has_exceptions: bool,
    has_compared_all: bool,
    /// Whether the health of members that the change adds is known.
    has_checked_all: bool,
    next_exception: u64,
}

pub(super) fn parse_progress(text: &str) -> Result<Vec<WorkerProgress>> {
    let workers: Result<Vec<_>, _> = text.lines().map(serde_json::from_str).collect();
    let workers = workers?;
    ensure!(!workers.is_empty(), "it names no worker");
    Ok(workers)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The router compares its flows with the table.
    Comparing,
    /// What it found is on its way to peers.
    Mirroring,
    Done,
}

pub(super) struct Preparation {
    pub(super) candidate: u64,
    /// The question to peers that is under way.
    asked: Option<JoinHandle<Vec<String>>>,
}

impl Preparation {
    pub(super) fn new(candidate: u64) -> Preparation {
        Preparation { candidate, asked: None }
    }

    pub(super) fn poll(
        &mut self,
        workers: &[WorkerProgress],
        machines: &[String],
        confirmations: &Confirmations,
    ) -> Progress {
        let needs_none = |worker: &WorkerProgress| !worker.is_planned || !worker.has_exceptions;
        if workers.iter().all(needs_none) {
            return Progress::Done;
        }
        if !workers.iter().all(|worker| worker.has_compared_all && worker.has_checked_all) {
            return Progress::Comparing;
        }
        if let Some(asked) = self.asked.take_if(|asked| asked.is_finished())
            && confirmations.finish(asked).is_some_and(|lacking| lacking.is_empty())
        {
            return Progress::Done;
        }
        let is_sent = |worker: &WorkerProgress| confirmations.has_sent(worker.worker, worker.next_exception);
        if self.asked.is_none() && workers.iter().all(is_sent) {
            self.asked = Some(confirmations.begin(machines));
        }
        Progress::Mirroring
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routers_reply_is_a_line_for_each_worker() {
        let line = r#"{"worker":0,"is_planned":true,"has_exceptions":true,"has_compared_all":true,
            "has_checked_all":true,"next_exception":7}"#
            .replace('\n', "");
        let workers = parse_progress(&format!("{line}\n{line}\n")).unwrap();
        assert_eq!((workers.len(), workers[1].next_exception), (2, 7));
        for text in ["", "x", "{}", &line[..20], &line.replace("true", "1")] {
            assert!(parse_progress(text).is_err(), "{text}");
        }
    }
}
