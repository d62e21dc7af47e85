//! `artery-fleet apply`, `confirm` and `diff`: the fleet's configuration is checked by all machines that
//! live, taken by all, and undone if one fails or no one confirms it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::time::sleep;

use super::document::{Document, changes};
use super::revision::{Candidate, Content, Pending, Revision, random, to_json};
use super::store::Store;
use super::view::{CANDIDATE, CONFIG, Keys, MACHINE};
use crate::config::{Config, Etcd};
use crate::envelope::Refusal;

/// How long all machines together may take to check a configuration, and to take it.
const CHECK_LIMIT: Duration = Duration::from_secs(30);
const TAKE_LIMIT: Duration = Duration::from_secs(30);
/// How long it is waited until the exceptions of a planned change are at all machines.
const PREPARE_LIMIT: Duration = Duration::from_secs(15);
/// A candidate whose command has ended is gone after so many seconds.
const CANDIDATE_LEASE: u64 = 20;
/// How often it is prolonged.
const PROLONG: Duration = Duration::from_secs(4);
/// How often it is looked how far machines are.
const LOOK: Duration = Duration::from_millis(100);

/// A conversation with etcd by a command.
struct Conversation {
    runtime: tokio::runtime::Runtime,
    store: Store,
}

impl Conversation {
    fn open(config: &Config) -> Result<Conversation> {
        let etcd: &Etcd = config.etcd.as_ref().context(
            "the configuration has no [etcd]: without etcd each machine's router has a file of its own, \
             which 'artery apply' takes",
        )?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = {
            let _inside = runtime.enter();
            Store::new(config, etcd)?
        };
        Ok(Conversation { runtime, store })
    }
}

/// Has all machines take a file.
pub(crate) fn apply(config: &Config, file: &Path, confirm: Option<Duration>) -> Result<()> {
    let (text, document) = read(file)?;
    let Conversation { runtime, mut store } = Conversation::open(config)?;
    runtime.block_on(async {
        let mut change = Change { store: &mut store, file, confirm, lease: None };
        change.apply(text, &document).await
    })
}

/// Shows what a file would change; whether that is anything.
pub(crate) fn diff(config: &Config, file: &Path) -> Result<bool> {
    let (_, document) = read(file)?;
    let Conversation { runtime, mut store } = Conversation::open(config)?;
    let keys = runtime.block_on(read_keys(&mut store))?;
    let lines = changes(present(&keys)?.as_ref(), &document);
    lines.iter().for_each(|line| println!("{line}"));
    Ok(!lines.is_empty())
}

/// Confirms the revision that waits for it.
pub(crate) fn confirm(config: &Config) -> Result<()> {
    let Conversation { runtime, mut store } = Conversation::open(config)?;
    runtime.block_on(async {
        let keys = read_keys(&mut store).await?;
        let revision = keys.revision.as_ref().filter(|revision| revision.pending.is_some());
        let revision = revision.context("nothing waits to be confirmed")?;
        let late = machines_without(&keys, revision);
        ensure!(
            late.is_empty(),
            "revision {} can't be confirmed: {} has not taken it, or is gone",
            revision.number,
            late.join(", ")
        );
        confirm_revision(&mut store, &keys, revision).await?;
        println!("confirmed revision {}", revision.number);
        Ok(())
    })
}

fn read(file: &Path) -> Result<(String, Document)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    let document = Document::parse(&text)
        .with_context(|| format!("{} is not a configuration of a fleet", file.display()))?;
    Ok((text, document))
}

/// Reads all keys, and says which are refused.
async fn read_keys(store: &mut Store) -> Result<Keys> {
    let (keys, refused) = read_again(store).await?;
    for (key, refusal) in refused {
        eprintln!("artery-fleet: the key {key} in etcd is refused: {}", refusal.explanation());
    }
    Ok(keys)
}

/// All keys, and those that are refused.
async fn read_again(store: &mut Store) -> Result<(Keys, Vec<(String, Refusal)>)> {
    let (snapshot, mut refused) = (store.all().await?, Vec::new());
    let keys = Keys::of(&snapshot, |key, refusal| refused.push((key.to_string(), refusal)));
    Ok((keys, refused))
}

/// The configuration that the fleet has.
fn present(keys: &Keys) -> Result<Option<Document>> {
    let content = keys.revision.as_ref().and_then(|revision| revision.content.as_ref());
    content.map(|content| Document::parse(&content.text)).transpose()
}

/// Machines of a pending revision that have not taken it.
fn machines_without<'a>(keys: &Keys, revision: &'a Revision) -> Vec<&'a str> {
    let has = |name: &&str| {
        let member = keys.machines.get(*name);
        member.is_some_and(|member| member.state.revision == Some(revision.number))
    };
    let machines = revision.pending.iter().flat_map(|pending| &pending.machines).map(String::as_str);
    machines.filter(|name| !has(name)).collect()
}

async fn confirm_revision(store: &mut Store, keys: &Keys, revision: &Revision) -> Result<()> {
    let confirmed = to_json(&revision.confirmed());
    let is_done = store.replace(CONFIG, keys.config_changed, confirmed, 0).await?;
    ensure!(is_done, "revision {} was undone, or confirmed by someone else, just now", revision.number);
    Ok(())
}

struct Change<'a> {
    store: &'a mut Store,
    file: &'a Path,
    confirm: Option<Duration>,
    /// That of the candidate, and when it was prolonged.
    lease: Option<(i64, Instant)>,
}

impl Change<'_> {
    async fn apply(&mut self, text: String, document: &Document) -> Result<()> {
        let keys = read_keys(self.store).await?;
        if let Some(revision) = keys.revision.as_ref().filter(|revision| revision.pending.is_some()) {
            bail!(
                "revision {} is not confirmed yet; run 'artery-fleet confirm', or wait until it is undone",
                revision.number
            );
        }
        ensure!(!keys.machines.is_empty(), "no machine of the fleet lives");
        let before = keys.revision.as_ref().and_then(|revision| revision.content.clone());
        let lines = changes(present(&keys)?.as_ref(), document);
        let content = Content { text, seed: before.as_ref().map_or_else(random, |content| content.seed) };
        let is_same = |content: &Content| Document::parse(&content.text).is_ok_and(|old| old == *document);
        if before.as_ref().is_some_and(is_same) {
            println!("{}: nothing to change", self.file.display());
            return Ok(());
        }
        let candidate = Candidate { id: random(), content, is_planned: false };
        let lease = self.store.grant(CANDIDATE_LEASE).await?;
        self.lease = Some((lease, Instant::now()));
        let changed = self.change(&candidate, &keys, before).await;
        // It ends by itself otherwise. Machines forget the planned change then, unless they have taken it.
        let _ = self.store.revoke(lease).await;
        let (number, machines) = changed?;
        lines.iter().for_each(|line| println!("{line}"));
        let until = self.confirm.map_or(String::new(), |time| {
            format!("; undone in {} s, unless 'artery-fleet confirm' is run", time.as_secs())
        });
        println!("{}: revision {number}, taken by {}{until}", self.file.display(), machines.join(", "));
        Ok(())
    }

    /// Has all machines check a configuration, prepare it, and take it; gives the revision's number and the
    /// names of the machines.
    async fn change(
        &mut self,
        candidate: &Candidate,
        keys: &Keys,
        before: Option<Content>,
    ) -> Result<(u64, Vec<String>)> {
        let checked = self.check(candidate).await;
        let machines = checked.with_context(|| format!("{}: nothing was changed", self.file.display()))?;
        let prepared = self.prepare(candidate).await;
        prepared.with_context(|| format!("{}: nothing was changed", self.file.display()))?;
        // A revision that was lost in etcd has its number at machines.
        let taken = keys.machines.values().filter_map(|member| member.state.revision);
        let known = keys.revision.iter().map(|revision| revision.number);
        let number = taken.chain(known).max().unwrap_or(0) + 1;
        let seconds = self.confirm.unwrap_or(TAKE_LIMIT).as_secs();
        let pending = Some(Pending { seconds, machines: machines.clone(), before });
        let content = Some(candidate.content.clone());
        let revision = Revision { number, id: random(), content, pending, undone: None };
        let is_committed = self.store.replace(CONFIG, keys.config_changed, to_json(&revision), 0).await?;
        ensure!(is_committed, "the configuration was changed by someone else meanwhile; nothing was changed");
        self.wait_until_taken(&revision).await?;
        Ok((number, machines))
    }

    /// Has all machines that live check a configuration; gives their names.
    async fn check(&mut self, candidate: &Candidate) -> Result<Vec<String>> {
        let lease = self.lease.map_or(0, |(lease, _)| lease);
        let (keys, refused) = read_again(self.store).await?;
        let refusal = refused.iter().find(|(key, _)| key == CANDIDATE).map(|(_, refusal)| *refusal);
        // A command's goes with its lease, also that of another version. What else is there would stay.
        let is_in_use = keys.candidate_lease != 0 && refusal != Some(Refusal::Malformed);
        let replaced = if is_in_use { 0 } else { keys.candidate_changed };
        let is_first = self.store.replace(CANDIDATE, replaced, to_json(candidate), lease).await?;
        ensure!(is_first, "another configuration is being checked; try again in {CANDIDATE_LEASE} s");
        self.wait_for_checks(candidate).await
    }

    /// Has all machines mirror the flows that the change will make exceptions. A machine that can't, or takes
    /// too long, is named and does not stop the change.
    async fn prepare(&mut self, candidate: &Candidate) -> Result<()> {
        let planned = Candidate { is_planned: true, ..candidate.clone() };
        let keys = self.read_keys(candidate).await?;
        let lease = self.lease.map_or(0, |(lease, _)| lease);
        let is_planned =
            self.store.replace(CANDIDATE, keys.candidate_changed, to_json(&planned), lease).await?;
        ensure!(is_planned, "the candidate in etcd was changed by someone else");
        let deadline = Instant::now() + PREPARE_LIMIT;
        loop {
            let report = self.read_keys(candidate).await?.planned().unwrap_or_default();
            let is_awaited = report.unprepared.iter().any(|(_, failure)| failure.is_empty());
            if is_awaited && Instant::now() < deadline {
                sleep(LOOK).await;
                continue;
            }
            if !report.unprepared.is_empty() {
                eprintln!(
                    "artery-fleet: the change counts though not all flows that it concerns are at all \
                     machines after {} s at most: {}",
                    PREPARE_LIMIT.as_secs(),
                    report.to_text()
                );
            }
            return Ok(());
        }
    }

    /// All keys, as long as the candidate is there.
    async fn read_keys(&mut self, candidate: &Candidate) -> Result<Keys> {
        let (keys, _) = self.read_and_prolong().await?;
        let is_there = keys.candidate.as_ref().is_some_and(|there| there.id == candidate.id);
        ensure!(is_there, "the candidate is gone from etcd, since this command or etcd stood still");
        Ok(keys)
    }

    /// All keys, and those that are refused. The candidate stays meanwhile.
    async fn read_and_prolong(&mut self) -> Result<(Keys, Vec<(String, Refusal)>)> {
        if let Some((lease, prolonged)) = &mut self.lease
            && prolonged.elapsed() >= PROLONG
        {
            *prolonged = Instant::now();
            // Whether it has ended is seen by the candidate.
            let _ = self.store.keep_alive(*lease).await;
        }
        read_again(self.store).await
    }

    async fn wait_for_checks(&mut self, candidate: &Candidate) -> Result<Vec<String>> {
        let deadline = Instant::now() + CHECK_LIMIT;
        loop {
            let (keys, refused) = self.read_and_prolong().await?;
            let strange = refused.iter().filter(|(_, refusal)| *refusal == Refusal::OtherVersion);
            if let Some(machine) = strange.filter_map(|(key, _)| key.strip_prefix(MACHINE)).next() {
                bail!("{machine} is of another version of artery-fleet, and can't check it");
            }
            let check_of =
                |name: &String| keys.checks.get(name).filter(|check| check.candidate == candidate.id);
            let machines: Vec<String> = keys.machines.keys().cloned().collect();
            let silent: Vec<&str> =
                machines.iter().filter(|name| check_of(name).is_none()).map(String::as_str).collect();
            if silent.is_empty() {
                let mistakes = machines.iter().filter_map(|name| Some((name, &check_of(name)?.mistakes)));
                let mistakes: Vec<String> = mistakes
                    .filter(|(_, mistakes)| !mistakes.is_empty())
                    .map(|(name, mistakes)| format!("{name}: {mistakes}"))
                    .collect();
                ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
                return Ok(machines);
            }
            ensure!(
                Instant::now() < deadline,
                "{} did not check it within {} s; does its router run?",
                silent.join(", "),
                CHECK_LIMIT.as_secs()
            );
            sleep(LOOK).await;
        }
    }

    /// Waits until all machines have taken a revision, and confirms it if no one else shall.
    async fn wait_until_taken(&mut self, revision: &Revision) -> Result<()> {
        let deadline = Instant::now() + self.confirm.unwrap_or(TAKE_LIMIT).min(TAKE_LIMIT);
        loop {
            let (keys, _) = self.read_and_prolong().await?;
            let present = keys.revision.as_ref().context("the configuration is gone from etcd")?;
            if present.number != revision.number {
                bail!("{}", present.undone.as_deref().unwrap_or("it was replaced by a later revision"));
            }
            let late = machines_without(&keys, revision);
            if late.is_empty() {
                return match self.confirm {
                    None if present.pending.is_some() => confirm_revision(self.store, &keys, present).await,
                    _ => Ok(()),
                };
            }
            if Instant::now() >= deadline {
                let why = format!("{} did not take it", late.join(", "));
                if let Some(undone) = present.undoing(&why) {
                    self.store.replace(CONFIG, keys.config_changed, to_json(&undone), 0).await?;
                    bail!("{}", undone.undone.unwrap_or(why));
                }
                bail!("{why}");
            }
            sleep(LOOK).await;
        }
    }
}
