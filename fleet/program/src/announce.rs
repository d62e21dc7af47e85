//! Announces this machine to the network once it has what it needs, and withdraws it when its router fails or
//! it shall leave. `docs/decisions/0044-announcing.md` says why so.

mod addresses;
mod command;
mod driver;
mod state;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::config::Announce;
use crate::etcd::{Agreement, View};
use crate::follow::Own;
use crate::mesh::Local;
use crate::peers::Peers;
use crate::probe::{Health, RouterHealth};
use addresses::Addresses;
use command::Announcer;
pub(crate) use driver::Actuator;
use driver::Driver;
use state::{ANNOUNCED, Decider, Drain, Seen, State, Wanted};

/// How often it is decided while the router's health stays as it is.
const TICK: Duration = Duration::from_millis(20);

/// What the rest of the process knows of the announcement, and asks of it.
pub(crate) struct Announcement {
    leaves: AtomicBool,
    /// Whether this process ends.
    ends: AtomicBool,
    /// Whether it leaves also while no peer is present.
    leaves_alone: AtomicBool,
    /// What is missing while this machine hands over.
    lack: Mutex<String>,
    report: watch::Sender<Report>,
}

/// How the announcement is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Report {
    /// None before the first decision, and where nothing is announced or left.
    pub(crate) state: Option<(&'static str, String)>,
    pub(crate) since: Option<Instant>,
    pub(crate) failure: Option<String>,
    pub(crate) withdrawals: u64,
    pub(crate) is_handing_over: bool,
    /// Who has taken over, once the process ends because this machine has left.
    pub(crate) left: Option<String>,
}

impl Report {
    pub(crate) fn is_announced(&self) -> bool {
        self.state.as_ref().is_some_and(|(state, _)| *state == ANNOUNCED)
    }
}

/// The announcement in the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnnouncementReport {
    /// `waiting`, `announced`, `withdrawn`, `drained`, `draining`.
    pub(crate) state: String,
    /// The same in words, with what it waits for or why.
    pub(crate) explanation: String,
    pub(crate) state_ms: u64,
    /// Why what is wanted can't be done; it is tried again.
    pub(crate) failure: Option<String>,
    /// How often the router failed while this machine was announced.
    pub(crate) withdrawals: u64,
}

impl Announcement {
    pub(crate) fn new() -> Announcement {
        Announcement {
            leaves: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            leaves_alone: AtomicBool::new(false),
            lack: Mutex::default(),
            report: watch::Sender::default(),
        }
    }

    pub(crate) fn leave(&self, is_alone: bool) {
        self.leaves_alone.fetch_or(is_alone, Relaxed);
        self.leaves.store(true, Relaxed);
    }

    /// Has the thread that announces end, and with it a call that is under way.
    pub(crate) fn end(&self) {
        self.ends.store(true, Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaves.load(Relaxed)
    }

    pub(crate) fn leaves_alone(&self) -> bool {
        self.leaves_alone.load(Relaxed)
    }

    pub(crate) fn reports(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    pub(crate) fn set_lack(&self, lack: String) {
        *self.lack.lock().unwrap_or_else(PoisonError::into_inner) = lack;
    }

    /// This machine has left; says so to those who wait for it.
    pub(crate) fn finish(&self, taken_over: String) {
        self.report.send_modify(|report| report.left = Some(taken_over));
    }

    pub(crate) fn status(&self, now: Instant) -> Option<AnnouncementReport> {
        let report = self.report.borrow();
        let (state, explanation) = report.state.clone()?;
        let state_ms = report.since.map_or(0, |since| now.duration_since(since).as_millis() as u64);
        let (failure, withdrawals) = (report.failure.clone(), report.withdrawals);
        Some(AnnouncementReport { state: state.to_string(), explanation, state_ms, failure, withdrawals })
    }
}

impl AnnouncementReport {
    pub(crate) fn to_text(&self) -> String {
        let AnnouncementReport { explanation, state_ms, withdrawals, .. } = self;
        let failure = self.failure.as_ref().map(|failure| format!("; {failure}")).unwrap_or_default();
        let seconds = state_ms / 1000;
        format!("{explanation} ({seconds} s); the router failed {withdrawals} times while announced{failure}")
    }
}

/// The way that the configuration names; errors say what is wrong with it.
pub(crate) fn open_actuator(announce: &Announce) -> Result<Box<dyn Actuator>> {
    Ok(match &announce.command {
        Some(command) => Box::new(Announcer::open(command)?),
        None => Box::new(Addresses::open(&announce.device, announce.parse_addresses()?)?),
    })
}

/// Decides, and has what was decided done.
pub(crate) struct Announcing {
    peers: Arc<Peers>,
    own: Arc<Own>,
    announcement: Arc<Announcement>,
    health: Arc<Health>,
    configured: usize,
    machine: String,
    /// What is known of etcd, if the configuration has it.
    view: Option<Arc<View>>,
    decider: Decider,
    /// None where the configuration announces nothing: then it is only left.
    driver: Option<Driver>,
    withdrawals: u64,
}

impl Announcing {
    pub(crate) fn new(local: &Local, actuator: Option<Box<dyn Actuator>>, health: Arc<Health>) -> Announcing {
        let Local { config, own, peers, announcement, view, .. } = local.clone();
        let decider =
            Decider::new(config.router_timeout(), (config.peer_wait(), config.settle()), Instant::now());
        let (configured, driver) = (config.peers.len(), actuator.map(Driver::new));
        let machine = config.machine.clone();
        Announcing {
            peers,
            own,
            announcement,
            health,
            configured,
            machine,
            view,
            decider,
            driver,
            withdrawals: 0,
        }
    }

    pub(crate) fn run(mut self) {
        while !self.announcement.ends.load(Relaxed) {
            let health = self.health.get();
            let leaves = self.announcement.is_leaving();
            if self.driver.is_some() || leaves {
                self.step(&health, leaves, Instant::now());
            }
            self.health.wait_for_change(&health, TICK);
        }
    }

    fn step(&mut self, health: &RouterHealth, leaves: bool, now: Instant) {
        let was_announced = *self.decider.state() == State::Announced;
        let before = self.decider.state().to_string();
        let seen = Seen {
            router: health.clone(),
            is_followed: self.own.is_router_connected.load(Relaxed),
            has_checked: self.own.has_checked.load(Relaxed),
            agreement: self.view.as_ref().map_or(Agreement::Agrees, |view| view.agreement(&self.machine)),
            unreached: self.view.as_ref().and_then(|view| view.drained(&self.machine)),
            peers: &self.peers.joining(now),
            configured: self.configured,
            leaves,
            is_done: self.driver.as_ref().is_none_or(|driver| driver.is_done(Wanted::Withdrawn)),
        };
        if self.decider.decide(&seen, now) {
            self.peers.request_all(now);
        }
        if let Some(driver) = &mut self.driver {
            driver.drive(self.decider.wanted(), now);
        }
        let state = self.decider.state();
        self.withdrawals += u64::from(was_announced && matches!(state, State::Withdrawn(_)));
        if state.to_string() != before && !matches!(state, State::Waiting(_)) {
            eprintln!("artery-fleet: {state}");
        }
        self.report();
    }

    fn report(&self) {
        let state = self.decider.state();
        let is_handing_over = *state == State::Draining(Drain::HandingOver);
        let lack = self.announcement.lack.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let explanation = match is_handing_over && !lack.is_empty() {
            true => format!("draining: {lack}"),
            false => state.to_string(),
        };
        let report = Report {
            state: Some((state.name(), explanation)),
            since: Some(self.decider.since()),
            failure: self.driver.as_ref().and_then(|driver| driver.failure().map(String::from)),
            withdrawals: self.withdrawals,
            is_handing_over,
            left: None,
        };
        self.announcement.report.send_if_modified(|known| {
            let is_new = known.left.is_none() && *known != report;
            if is_new {
                *known = report;
            }
            is_new
        });
    }
}
