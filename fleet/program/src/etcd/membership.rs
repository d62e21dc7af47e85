//! Says by a lease that this machine lives, follows the keys of the fleet, and undoes a revision that no one
//! confirms or that this machine can't take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use etcd_client::{EventType, LeaseKeepAliveStream, LeaseKeeper, WatchStream};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use super::health::{DrainDecider, held_down};
use super::revision::{Check, Member, MemberState, to_json};
use super::store::{Pair, REQUEST_LIMIT, Store, to_error};
use super::view::{CHECK, CONFIG, DRAINED, Keys, MACHINE, View};
use super::{ToRouter, Wanted};
use crate::announce::Report;
use crate::config::{Config, Etcd};
use crate::envelope::Refusal;

/// The pause before the next server is asked.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How often it is decided whether this machine is drained.
const DECIDE: Duration = Duration::from_millis(250);

pub(crate) struct Membership {
    machine: String,
    lease_seconds: u64,
    /// Tells this process from others of the same machine's name.
    run: u64,
    store: Store,
    /// Granted, but it may have ended meanwhile.
    lease: Option<i64>,
    view: Arc<View>,
    wanted: watch::Sender<Wanted>,
    state: watch::Receiver<MemberState>,
    check: watch::Receiver<Option<Check>>,
    announcement: watch::Receiver<Report>,
    /// Whether this machine was announced when its state was published.
    was_announced: bool,
    drain: DrainDecider,
    keys: Keys,
    /// The revision that is pending, and when it is undone.
    pending: Option<(u64, Instant)>,
}

impl Membership {
    pub(crate) fn new(
        config: &Config,
        etcd: &Etcd,
        run: u64,
        view: Arc<View>,
        to_router: ToRouter,
        announcement: watch::Receiver<Report>,
    ) -> Result<Membership> {
        let ToRouter { wanted, state, check } = to_router;
        Ok(Membership {
            machine: config.machine.clone(),
            lease_seconds: etcd.lease_seconds,
            run,
            store: Store::new(config, etcd)?,
            lease: None,
            view,
            wanted,
            state,
            check,
            announcement,
            was_announced: false,
            drain: DrainDecider::default(),
            keys: Keys::default(),
            pending: None,
        })
    }

    /// Follows etcd without end; servers that fail are left for others.
    pub(crate) async fn run(&mut self) {
        loop {
            let Err(error) = self.follow().await;
            self.view.lose(format!("{}: {error:#}", self.store.endpoint()));
            // What most machines find is not known any more.
            self.wanted.send_modify(|wanted| wanted.held_down = None);
            self.store.turn_to_next();
            sleep(RETRY_AFTER).await;
        }
    }

    /// Ends the lease, so that others need not wait for its end.
    pub(crate) async fn leave(&mut self) {
        if let Some(lease) = self.lease.take() {
            // It ends by itself if that fails.
            let _ = timeout(REQUEST_LIMIT, self.store.revoke(lease)).await;
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible> {
        let (lease, mut keeper, mut answers) = self.renew_lease().await?;
        self.claim_name(lease).await?;
        let snapshot = self.store.all().await?;
        self.keys = Keys::of(&snapshot, |key, refusal| self.view.refuse(key, refusal));
        let mut watch = self.store.watch(snapshot.at + 1).await?;
        self.publish_keys();
        // What was published before may have ended with another lease.
        self.state.mark_changed();
        let mut prolong = tokio::time::interval(Duration::from_secs(self.lease_seconds) / 4);
        let mut decide = tokio::time::interval(DECIDE);
        let (mut alive, limit) = (Instant::now(), Duration::from_secs(self.lease_seconds) / 2);
        loop {
            let undo_at = self.pending.map(|(_, until)| until);
            tokio::select! {
                changed = next_changes(&mut watch) => self.apply_events(changed?)?,
                answer = answers.message() => {
                    let ttl = answer.map_err(to_error)?.context("the lease is not prolonged any more")?.ttl();
                    if ttl <= 0 {
                        self.lease = None;
                        bail!("the lease has ended");
                    }
                    alive = Instant::now();
                }
                _ = prolong.tick() => {
                    anyhow::ensure!(alive.elapsed() < limit, "no answer for {} ms", limit.as_millis());
                    keeper.keep_alive().await.map_err(to_error)?;
                }
                changed = self.state.changed() => {
                    changed.context("the thread that asks the router has ended")?;
                    self.publish_state(lease).await?;
                }
                _ = decide.tick() => {
                    if self.is_announced() != self.was_announced {
                        self.publish_state(lease).await?;
                    }
                    self.decide_drain().await?;
                }
                changed = self.check.changed() => {
                    changed.context("the thread that asks the router has ended")?;
                    let check = self.check.borrow_and_update().clone();
                    let value = check.as_ref().map(to_json).unwrap_or_default();
                    self.store.put_key(&format!("{CHECK}{}", self.machine), value, lease).await?;
                }
                () = at(undo_at) => self.undo("no one confirmed it").await?,
            }
        }
    }

    /// Prolongs the lease of this process, or is granted another one.
    async fn renew_lease(&mut self) -> Result<(i64, LeaseKeeper, LeaseKeepAliveStream)> {
        if let Some(lease) = self.lease {
            let mut client = self.store.client().await?;
            let kept = timeout(REQUEST_LIMIT, client.lease_keep_alive(lease)).await;
            match kept.context("no answer")? {
                Ok((keeper, answers)) => return Ok((lease, keeper, answers)),
                Err(etcd_client::Error::LeaseKeepAliveError(_)) => self.lease = None,
                Err(error) => return Err(to_error(error)),
            }
        }
        let lease = self.store.grant(self.lease_seconds).await?;
        self.lease = Some(lease);
        let mut client = self.store.client().await?;
        let kept = timeout(REQUEST_LIMIT, client.lease_keep_alive(lease)).await;
        let (keeper, answers) = kept.context("no answer")?.map_err(to_error)?;
        Ok((lease, keeper, answers))
    }

    fn member(&mut self) -> Vec<u8> {
        self.was_announced = self.is_announced();
        let (run, is_announced) = (self.run, self.was_announced);
        to_json(&Member { run, is_announced, state: self.state.borrow_and_update().clone() })
    }

    fn is_announced(&self) -> bool {
        self.announcement.borrow().is_announced()
    }

    /// Has this machine drained, or not any more, if what is known of all members says so. Whoever writes the
    /// key names the version that it replaces, so that of two machines the second one knows of the first.
    async fn decide_drain(&mut self) -> Result<()> {
        if let Some(drained) = self.drain.decide(&self.keys, &self.machine, Instant::now()) {
            // If it was changed meanwhile, it is decided again by what it says then.
            self.store.replace(DRAINED, self.keys.drained_changed, to_json(&drained), 0).await?;
        }
        Ok(())
    }

    /// Takes the machine's name, unless another process has it: that one lives, or lived until lately.
    async fn claim_name(&mut self, lease: i64) -> Result<()> {
        let key = format!("{MACHINE}{}", self.machine);
        let snapshot = self.store.all().await?;
        let keys = Keys::of(&snapshot, |_, _| {});
        let own = keys.machines.get(&self.machine).is_some_and(|member| member.run == self.run);
        let value = self.member();
        if own {
            return self.store.put_key(&key, value, lease).await;
        }
        // A key without a lease belongs to none, and would keep the name from this process for ever.
        let lasting = snapshot.pairs.iter().find(|pair| pair.key == key && pair.lease == 0);
        let replaced = lasting.map_or(0, |pair| pair.changed);
        if !self.store.replace(&key, replaced, value, lease).await? {
            self.view.refuse(&key, Refusal::SameName);
            bail!("another machine is called {}, or this one was until its lease ends", self.machine);
        }
        Ok(())
    }

    async fn publish_state(&mut self, lease: i64) -> Result<()> {
        let key = format!("{MACHINE}{}", self.machine);
        let value = self.member();
        self.store.put_key(&key, value, lease).await?;
        let failure = self.state.borrow().failure.clone();
        let pending = self.pending.map(|(number, _)| number);
        match failure.filter(|(number, _)| Some(*number) == pending) {
            Some((_, why)) => self.undo(&format!("{}: {why}", self.machine)).await,
            None => Ok(()),
        }
    }

    /// Puts a revision with what was before in the place of the pending one, unless someone did so.
    async fn undo(&mut self, why: &str) -> Result<()> {
        self.pending = None;
        let undone = self.keys.revision.as_ref().and_then(|revision| revision.undoing(why));
        let Some(revision) = undone else { return Ok(()) };
        self.store.replace(CONFIG, self.keys.config_changed, to_json(&revision), 0).await.map(drop)
    }

    fn apply_events(&mut self, changes: Vec<(EventType, etcd_client::KeyValue)>) -> Result<()> {
        for (kind, pair) in changes {
            let Some(pair) = self.store.pair(&pair) else { continue };
            match kind {
                EventType::Put => self.set(&pair),
                EventType::Delete => self.keys.remove(&pair.key),
            }
        }
        self.publish_keys();
        let own = self.keys.machines.get(&self.machine);
        anyhow::ensure!(own.is_some_and(|member| member.run == self.run), "the lease has ended");
        Ok(())
    }

    fn set(&mut self, pair: &Pair) {
        if let Err(refusal) = self.keys.set(pair) {
            self.view.refuse(&pair.key, refusal);
        }
    }

    /// Tells the status and the router's thread what is so now.
    fn publish_keys(&mut self) {
        let pending =
            self.keys.revision.as_ref().and_then(|revision| {
                revision.pending.as_ref().map(|pending| (revision.number, pending.seconds))
            });
        self.pending = pending.map(|(number, seconds)| {
            let known = self.pending.filter(|(known, _)| *known == number);
            known.unwrap_or_else(|| (number, Instant::now() + Duration::from_secs(seconds)))
        });
        self.view.set(&self.keys, self.pending.map(|(_, until)| until));
        let (revision, candidate) = (&self.keys.revision, &self.keys.candidate);
        let others = self.keys.machines.keys().filter(|name| **name != self.machine).cloned();
        self.wanted.send_modify(|wanted| {
            wanted.machines = others.collect();
            wanted.held_down = Some(held_down(&self.keys));
            if wanted.revision.as_deref() != revision.as_ref() {
                wanted.revision = revision.clone().map(Arc::new);
            }
            if wanted.candidate.as_deref() != candidate.as_ref() {
                wanted.candidate = candidate.clone().map(Arc::new);
            }
        });
    }
}

async fn next_changes(watch: &mut WatchStream) -> Result<Vec<(EventType, etcd_client::KeyValue)>> {
    let message = watch.message().await.map_err(to_error)?.context("a watch ended")?;
    anyhow::ensure!(!message.canceled(), "a watch ended: {}", message.cancel_reason());
    let events = message.events().iter();
    Ok(events.filter_map(|event| Some((event.event_type(), event.kv()?.clone()))).collect())
}

/// Waits until then; for ever without a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
