//! Routes and neighbors that change while packets go round.

use super::circuit::Circuit;
use super::network;
use anyhow::Context as _;
use artery_forward::shared::RouterTables;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Changes per second, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Churn {
    pub(super) routes: u64,
    pub(super) neighbors: u64,
}

/// How often it is looked which changes are due.
const TICK: Duration = Duration::from_micros(500);

impl Churn {
    /// Does something while changes are made, by a thread that no packet waits for.
    pub(super) fn during<T>(
        self,
        circuit: &Circuit,
        act: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if self == Churn::default() {
            return act();
        }
        let resources = circuit.handle().resources();
        let tables = RouterTables::of(&resources, "ip").context("the router has tables")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (is_over, case) = (is_over.clone(), circuit.case().clone());
            std::thread::spawn(move || {
                let changes = network::Changes::new(&case)?;
                self.make(&tables, changes, &is_over)
            })
        };
        let done = act();
        is_over.store(true, Relaxed);
        thread.join().map_err(|_| anyhow::anyhow!("the thread that makes changes panicked"))??;
        done
    }

    fn make(
        self,
        tables: &RouterTables,
        mut changes: network::Changes,
        is_over: &AtomicBool,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let (mut routes, mut neighbors) = (0, 0);
        while !is_over.load(Relaxed) {
            let seconds = start.elapsed().as_secs_f64();
            while (routes as f64) < seconds * self.routes as f64 {
                changes.route(&mut tables.lock())?;
                routes += 1;
            }
            while (neighbors as f64) < seconds * self.neighbors as f64 {
                changes.neighbor(&mut tables.lock(), start.elapsed())?;
                neighbors += 1;
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}
