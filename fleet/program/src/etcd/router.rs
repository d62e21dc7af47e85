//! Gives the router of this machine its part of the fleet's configuration, by its control socket, and looks
//! what it has. The router goes on whether this thread and etcd live or not.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use artery_control::ControlClient;
use serde_json::Value;

use super::document::Document;
use super::prepare::{Preparation, Progress, parse_progress};
use super::revision::{Candidate, Check, Content, MemberState, Prepared, Revision};
use super::{FromMembership, Wanted};
use crate::config::{Config, Etcd};
use crate::hand_over::Confirmations;

/// How often it is looked for what is wanted.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the router is asked what it has.
const LOOK: Duration = Duration::from_secs(1);
/// The pause before a configuration that the router refused is tried again, as while it has a pending one.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// For how long the router holds members down that most machines find down, and how often.
const HOLD: Duration = Duration::from_secs(4);
const RENEW: Duration = Duration::from_secs(1);
/// How long the router may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Handlers of `artery router`.
const CONFIGURATION: &str = "router_config";
const CHECK: &str = "router_check";
const APPLY: &str = "router_apply";
const PLAN: &str = "router_plan";
/// How long the router remembers a planned change at most, also if this process has died.
const PLAN_SECONDS: u64 = 60;

pub(crate) struct RouterConfiguration {
    config: Arc<Config>,
    etcd: Etcd,
    channels: FromMembership,
    client: Option<ControlClient<UnixStream>>,
    state: MemberState,
    /// What the router had before the first revision.
    before: Option<String>,
    /// What it had after the last one.
    taken: Option<String>,
    checked: Option<u64>,
    confirmations: Confirmations,
    preparation: Option<Preparation>,
    /// Members that the router was last made to hold down, and when.
    held: Option<(BTreeSet<String>, Instant)>,
    refused: Option<Instant>,
    looked: Option<Instant>,
}

impl RouterConfiguration {
    pub(crate) fn new(
        config: Arc<Config>,
        etcd: Etcd,
        channels: FromMembership,
        confirmations: Confirmations,
    ) -> RouterConfiguration {
        RouterConfiguration {
            config,
            etcd,
            channels,
            client: None,
            state: MemberState::default(),
            before: None,
            taken: None,
            checked: None,
            confirmations,
            preparation: None,
            held: None,
            refused: None,
            looked: None,
        }
    }

    pub(crate) fn run(mut self) {
        loop {
            let wanted = self.channels.wanted.borrow().clone();
            if let Err(error) = self.step(&wanted) {
                // A router that ended is waited for. Each that comes is given the revision.
                if self.client.take().is_some() {
                    eprintln!("artery-fleet: the router's configuration can't be reached: {error:#}");
                }
                self.state = MemberState { is_router_connected: false, ..self.state.clone() };
            }
            let state = &self.state;
            self.channels.state.send_if_modified(|known| {
                let is_new = known != state;
                known.clone_from(state);
                is_new
            });
            std::thread::sleep(PAUSE);
        }
    }

    fn step(&mut self, wanted: &Wanted) -> Result<()> {
        if self.client.is_none() {
            self.client = Some(connect(&self.config.control)?);
            self.state.revision = None;
            (self.preparation, self.state.prepared) = (None, None);
            (self.refused, self.looked, self.held) = (None, None, None);
        }
        self.state.is_router_connected = true;
        let candidate = wanted.candidate.as_ref();
        if let Some(candidate) = candidate.filter(|candidate| self.checked != Some(candidate.id)) {
            self.check(candidate)?;
        }
        self.hold_down(wanted.held_down.as_ref())?;
        self.prepare(wanted)?;
        let revision = wanted.revision.as_ref();
        if let Some(revision) = revision.filter(|revision| self.is_due(revision)) {
            self.take_revision(revision)?;
            self.looked = None;
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.poll_router()?;
            self.looked = Some(Instant::now());
        }
        Ok(())
    }

    fn is_due(&self, revision: &Revision) -> bool {
        let was_refused = self.state.failure.as_ref().is_some_and(|(number, _)| *number == revision.number);
        let may_be_tried = self.refused.is_none_or(|refused| refused.elapsed() >= RETRY_AFTER);
        self.state.revision != Some(revision.number) && (!was_refused || may_be_tried)
    }

    fn check(&mut self, candidate: &Candidate) -> Result<()> {
        let checked = match self.render(&candidate.content) {
            Ok(text) => self.write(CHECK, 0, &text)?,
            Err(error) => Err(format!("{error:#}")),
        };
        self.checked = Some(candidate.id);
        let mistakes = checked.err().unwrap_or_default();
        let check = Check { candidate: candidate.id, mistakes };
        self.channels.check.send_replace(Some(check));
        Ok(())
    }

    /// Has the router hold members down that are so for the whole fleet. While etcd is gone, that ends,
    /// and then none are: the router goes by its own checks, and compares flows with the table of machines
    /// that reach all members.
    fn hold_down(&mut self, held: Option<&BTreeSet<String>>) -> Result<()> {
        let last = self.held.as_ref();
        let is_due = |last: &(BTreeSet<String>, Instant)| match held {
            Some(held) => last.0 != *held || last.1.elapsed() >= RENEW,
            None => last.1.elapsed() >= if last.0.is_empty() { RENEW } else { HOLD },
        };
        if !last.is_none_or(is_due) {
            return Ok(());
        }
        let held = held.cloned().unwrap_or_default();
        let names: String = held.iter().map(|name| format!(" {name}")).collect();
        let handler = format!("{}.hold_down", self.config.balancer);
        // A router without this balancer refuses it, and has no members.
        let _ = self.client()?.write(&handler, &format!("{}{names}", HOLD.as_secs()))?;
        self.held = Some((held, Instant::now()));
        Ok(())
    }

    /// Has peers know the flows that a planned change will make exceptions. Once the change counts nothing is
    /// done any more: the router forgets the plan when it takes the revision.
    fn prepare(&mut self, wanted: &Wanted) -> Result<()> {
        let planned = wanted.candidate.as_ref().filter(|candidate| candidate.is_planned);
        let Some(candidate) = planned else { return self.abandon_plan() };
        let content = wanted.revision.as_ref().and_then(|revision| revision.content.as_ref());
        if content == Some(&candidate.content) {
            return Ok(());
        }
        let known = self.preparation.as_ref().map(|preparation| preparation.candidate);
        if known != Some(candidate.id) {
            self.abandon_plan()?;
            self.preparation = Some(Preparation::new(candidate.id));
            let planned = match self.render(&candidate.content) {
                Ok(text) => self.write(PLAN, PLAN_SECONDS, &text)?,
                Err(error) => Err(format!("{error:#}")),
            };
            if let Err(failure) = planned {
                self.state.prepared = Some(Prepared { candidate: candidate.id, failure });
            }
        }
        if self.state.prepared.is_none() && self.is_prepared(&wanted.machines)? {
            self.state.prepared = Some(Prepared { candidate: candidate.id, failure: String::new() });
        }
        Ok(())
    }

    fn is_prepared(&mut self, machines: &[String]) -> Result<bool> {
        // A router without this balancer has no flows.
        let Some(text) = self.read(&format!("{}.plan_json", self.config.balancer))? else { return Ok(true) };
        let workers = parse_progress(&text).context("the router's reply to plan_json")?;
        let RouterConfiguration { preparation, confirmations, .. } = self;
        Ok(preparation
            .as_mut()
            .is_some_and(|preparation| preparation.poll(&workers, machines, confirmations) == Progress::Done))
    }

    /// Has the router forget a change that was planned.
    fn abandon_plan(&mut self) -> Result<()> {
        self.state.prepared = None;
        if self.preparation.take().is_some() {
            // It has none if it refuses.
            let _ = self.write(PLAN, 0, "")?;
        }
        Ok(())
    }

    /// Has the router become what a revision says; a refusal is noted.
    fn take_revision(&mut self, revision: &Revision) -> Result<()> {
        // A process that finds a router later can't know what it had before.
        if self.before.is_none() && self.taken.is_none() {
            self.before = self.configuration()?;
        }
        let text = match &revision.content {
            Some(content) => self.render(content).map_err(|error| format!("{error:#}")),
            None => self.before.clone().ok_or_else(|| "what the router had before is not known".to_string()),
        };
        let written = match text {
            Ok(text) => {
                let applied = self.write(APPLY, 0, &text)?;
                applied.and_then(|()| {
                    // A router that is started again or reloads reads it.
                    write_file(&self.etcd.router_file, &text).map_err(|error| format!("{error:#}"))
                })
            }
            Err(why) => Err(why),
        };
        match written {
            Ok(()) => {
                (self.state.revision, self.state.failure) = (Some(revision.number), None);
                self.refused = None;
                self.taken = self.configuration()?;
            }
            Err(why) => {
                let failure = Some((revision.number, why));
                if let Some((number, why)) = failure.as_ref().filter(|_| failure != self.state.failure) {
                    eprintln!("artery-fleet: revision {number} can't be taken: {why}");
                }
                self.state.failure = failure;
                self.refused = Some(Instant::now());
            }
        }
        Ok(())
    }

    fn render(&self, content: &Content) -> Result<String> {
        Document::parse(&content.text)?.render(&self.config.machine, content.seed)
    }

    fn poll_router(&mut self) -> Result<()> {
        let now = self.configuration()?;
        self.state.is_changed = self.taken.is_some() && now != self.taken;
        let status = self.read(&format!("{}.status_json", self.config.balancer))?;
        let status: Value = status.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        self.state.digest = status["digest"].as_str().map(str::to_string);
        let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
        let found = |passes: bool| {
            let those = members.iter().filter(|member| member["checked"] == passes);
            those.filter_map(|member| member["name"].as_str().map(str::to_string)).collect()
        };
        (self.state.up, self.state.down) = (found(true), found(false));
        self.state.detection_ms = status["detection_ms"].as_u64().unwrap_or(0);
        Ok(())
    }

    /// The file that makes the router; none if it is no `artery router`.
    fn configuration(&mut self) -> Result<Option<String>> {
        let text = self.read(CONFIGURATION)?;
        // A comment says how long a change waits to be confirmed.
        let lines =
            |text: String| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        Ok(text.map(lines))
    }

    fn client(&mut self) -> Result<&mut ControlClient<UnixStream>> {
        self.client.as_mut().context("the router is not reached")
    }

    /// The value of a handler; none if the router refuses it.
    fn read(&mut self, handler: &str) -> Result<Option<String>> {
        let value = self.client()?.read(handler)?;
        Ok(value.ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Writes a handler of the router's configuration; the inner error is a refusal.
    fn write(&mut self, handler: &str, seconds: u64, text: &str) -> Result<Result<(), String>> {
        let request = format!("{seconds} {}\n{text}", self.etcd.router_file.display());
        let reply = self.client()?.write(handler, &request)?;
        Ok(reply.map(drop).map_err(|refusal| match refusal.text.contains("No handler named") {
            true => "the router was not started by 'artery router', or is of an older version".to_string(),
            false => refusal.text.trim_end().to_string(),
        }))
    }
}

fn connect(socket: &Path) -> Result<ControlClient<UnixStream>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(ControlClient::new(stream)?)
}

/// Replaces a file whole. It has the seed, so no one else reads it.
fn write_file(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().ok_or_else(|| anyhow!("{} does not name a file", path.display()))?;
    let beside = path.with_file_name(format!(".{}.new", name.to_string_lossy()));
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().with_context(|| format!("can't write {}", path.display()))
}
