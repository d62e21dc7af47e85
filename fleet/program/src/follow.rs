//! Follows the exceptions of the router on this machine, and makes numbered batches for peers of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::config::Config;
use crate::control::Control;
use crate::envelope::{Envelope, Kind};
use crate::new_run;
use crate::owner::Owner;
use crate::peers::Peers;
use crate::records::{self, Outgoing, Part, parse_parts, select_events, select_part};

/// The pause between two questions, where nothing was new.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause after the router could not be reached.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A batch without records goes out if nothing else did for so long: peers see that they miss nothing, and
/// that the router lives.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The same while not all peers are present, so that one that joins need not wait for a second to be heard.
const GREETING: Duration = Duration::from_millis(100);

/// What this machine has of its own.
pub(crate) struct Own {
    /// Another one for each router that was followed, since flows of the one before are gone with it.
    run: AtomicU64,
    number: AtomicU64,
    /// By worker of the router: the number of the first event that was not sent.
    sent: Mutex<BTreeMap<u16, u64>>,
    pub(crate) records_sent: AtomicU64,
    pub(crate) parts_sent: AtomicU64,
    pub(crate) losses: AtomicU64,
    pub(crate) is_router_connected: AtomicBool,
    /// Whether the router has checked all members that it checks at all.
    pub(crate) has_checked: AtomicBool,
    /// Whether this machine leaves.
    pub(crate) leaves: AtomicBool,
}

pub(crate) trait Outlet {
    /// Sends without waiting for slow peers.
    fn send(&self, envelope: Envelope, bytes: Vec<u8>);
}

impl Own {
    pub(crate) fn new() -> Result<Own> {
        Ok(Own {
            run: AtomicU64::new(new_run()?),
            number: AtomicU64::new(0),
            sent: Mutex::default(),
            records_sent: AtomicU64::new(0),
            parts_sent: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            is_router_connected: AtomicBool::new(false),
            has_checked: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
        })
    }

    /// The run, and the number of what was sent last.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.run.load(Relaxed), self.number.load(Relaxed))
    }

    /// Whether all events of a worker before this number were sent, as far as they were not lost.
    pub(crate) fn has_sent(&self, worker: u16, before: u64) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.get(&worker).is_some_and(|next| *next >= before)
    }

    fn record_sent(&self, positions: &Positions) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&positions.0);
    }

    /// Follows the router without end; a router that ended is waited for.
    pub(crate) fn follow(&self, config: &Config, peers: &Peers, outlet: &dyn Outlet) {
        let mut last_error = String::new();
        loop {
            let Err(error) = self.follow_router(config, peers, outlet);
            self.is_router_connected.store(false, Relaxed);
            self.has_checked.store(false, Relaxed);
            let error = format!("{error:#}");
            if error != last_error {
                eprintln!("artery-fleet: exceptions can't be followed: {error}");
                last_error = error;
            }
            std::thread::sleep(RETRY_AFTER);
        }
    }

    fn follow_router(
        &self,
        config: &Config,
        peers: &Peers,
        outlet: &dyn Outlet,
    ) -> Result<std::convert::Infallible> {
        let mut control = Control::connect(&config.control, &config.balancer)?;
        let mut positions = Positions::default();
        // Each run is another owner of flows, so only a router that has exceptions begins one.
        let mut parts = parse_parts(&control.read("exception_items", "now")?)?;
        self.run.store(new_run()?, Relaxed);
        self.record_sent(&positions);
        // What happened until now, peers learn by a fetch.
        self.note_loss();
        // A router that was started again has nothing of theirs.
        peers.request_all(Instant::now());
        let (mut sent_at, mut awaits_checks) = (None::<Instant>, false);
        loop {
            self.is_router_connected.store(true, Relaxed);
            if !self.has_checked.load(Relaxed) {
                let has_checked = has_checked(&control.read("status_json", "")?)?;
                if has_checked && awaits_checks {
                    // A member that is not checked yet is down as soon as another one is up, and the router
                    // refuses copies of its flows.
                    peers.request_all(Instant::now());
                }
                awaits_checks = !has_checked;
                self.has_checked.store(has_checked, Relaxed);
            }
            let mut is_idle = true;
            for part in &parts {
                positions.0.insert(part.worker, part.next.unwrap_or(0));
                let outgoing = self.select(part, peers)?;
                if outgoing.records > 0 {
                    self.send(outlet, &outgoing);
                    (sent_at, is_idle) = (Some(Instant::now()), false);
                }
            }
            self.record_sent(&positions);
            let is_complete = peers.living(Instant::now()).len() >= config.peers.len();
            let silence = if is_complete { HEARTBEAT } else { GREETING };
            if peers.take_newcomer() || sent_at.is_none_or(|sent_at| sent_at.elapsed() >= silence) {
                self.send(outlet, &records::empty());
                sent_at = Some(Instant::now());
            }
            if is_idle {
                std::thread::sleep(PAUSE);
            }
            parts = parse_parts(&control.read("exception_items", &positions.to_string())?)?;
        }
    }

    fn select(&self, part: &Part, peers: &Peers) -> Result<Outgoing> {
        let (outgoing, has_lost) = select_events(part).context("events of the router")?;
        if has_lost {
            self.note_loss();
            // The router may have another configuration now, and copies of which it does not know the owners.
            peers.request_all(Instant::now());
        }
        Ok(outgoing)
    }

    /// Leaves a number out, so that peers fetch all exceptions.
    fn note_loss(&self) {
        self.number.fetch_add(1, Relaxed);
        self.losses.fetch_add(1, Relaxed);
    }

    fn send(&self, outlet: &dyn Outlet, outgoing: &Outgoing) {
        let number = self.number.fetch_add(1, Relaxed) + 1;
        self.records_sent.fetch_add(outgoing.records, Relaxed);
        let (run, leaves) = (self.run.load(Relaxed), self.leaves.load(Relaxed));
        outlet.send(Envelope { kind: Kind::Changes, run, number, leaves }, outgoing.bytes.clone());
    }

    /// Gives all exceptions of the router to `each`, a part at a time, and then the end. The router makes the
    /// next part once `each` has taken one, so that no more than one is in memory. Copies are among them of
    /// owners that `gone` returns for their names, and `each` gets with that owner.
    pub(crate) fn export(
        &self,
        config: &Config,
        gone: impl Fn(&str) -> Option<Owner>,
        mut each: impl FnMut(Envelope, Option<&Owner>, Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut control = Control::connect(&config.control, &config.balancer)?;
        let (mut asked, mut number, run) = (String::new(), 0, self.run.load(Relaxed));
        let leaves = self.leaves.load(Relaxed);
        loop {
            let parts = parse_parts(&control.read("exceptions_part", &asked)?)?;
            let mut positions = Positions::default();
            for part in &parts {
                if let Some(next) = part.next {
                    positions.0.insert(part.worker, next);
                }
                let selected = select_part(part, &gone).context("exceptions of the router")?;
                for (owner, outgoing) in selected {
                    let envelope = Envelope { kind: Kind::Part, run, number, leaves };
                    each(envelope, owner.as_ref(), outgoing.bytes)?;
                    number += 1;
                    self.parts_sent.fetch_add(1, Relaxed);
                }
            }
            asked = positions.to_string();
            if asked.is_empty() {
                let envelope = Envelope { kind: Kind::End, run, number, leaves };
                return each(envelope, None, records::empty().bytes);
            }
        }
    }
}

/// Whether a router has checked all members, or checks none, by its `status_json`.
fn has_checked(status: &str) -> Result<bool> {
    let status: Value = serde_json::from_str(status).context("the status of the router")?;
    let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(status["detection_ms"].is_null() || members.iter().all(|member| !member["checked"].is_null()))
}

/// Where each worker goes on, as handlers are asked.
#[derive(Default)]
struct Positions(BTreeMap<u16, u64>);

impl std::fmt::Display for Positions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<_> = self.0.iter().map(|(worker, next)| format!("{worker}:{next}")).collect();
        f.write_str(&words.join(" "))
    }
}
