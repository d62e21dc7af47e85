//! A layer 2 switch after veb(4): its ports, its MAC table, and how it forwards frames.
//!
//! [`Switch`] is what all workers share. A worker reads two published values, the configuration ([`View`])
//! and the MAC table ([`MacTable`]), and calls the pure functions of [`decide`] to forward a frame. Whoever
//! changes either holds a lock that no frame waits for: a worker that can't learn at once learns with the
//! next frame.
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
pub mod command;
#[forbid(unsafe_code)]
pub mod config;
#[forbid(unsafe_code)]
pub mod counts;
#[forbid(unsafe_code)]
pub mod decide;
#[forbid(unsafe_code)]
mod explain;
#[forbid(unsafe_code)]
mod groups;
#[forbid(unsafe_code)]
mod learn;
#[forbid(unsafe_code)]
mod mac;
#[allow(unsafe_code)]
mod mac_lines;
#[forbid(unsafe_code)]
mod meter;
#[forbid(unsafe_code)]
pub mod quick;
#[forbid(unsafe_code)]
mod rules;
#[forbid(unsafe_code)]
mod show;
#[forbid(unsafe_code)]
mod sight;
#[forbid(unsafe_code)]
mod snoop;
#[forbid(unsafe_code)]
pub mod stp;
#[forbid(unsafe_code)]
mod view;

pub use config::{Config, Port, PortState, Role, SwitchError, flag_bit};
pub use explain::Question;
pub use groups::{Audience, GroupView, Heard, MOST_GROUPS};
pub use learn::{AddressError, Learned, Limits, Move, seconds};
pub use mac::{MOST_ENTRIES, MOST_PORTS, MacEntry, MacEntryKind, MacKey, MacProbe, MacTable};
pub use rules::{Direction, Mark};
pub use show::{Spanning, SpanningPort};
pub use sight::FrameView;
pub use view::View;

use artery_rcu::{Domain, Published, Turn};
use command::Command;
use counts::Counts;
use decide::FloodKind;
use groups::Groups;
use learn::Learner;
use meter::Meter;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// A switch, as all workers share it.
pub struct Switch {
    config: Mutex<Config>,
    view: Published<View>,
    learner: Mutex<Learner>,
    table: Arc<Published<Arc<MacTable>>>,
    /// Whether nothing can be learned until an address goes: then workers skip learning.
    is_full: AtomicBool,
    storms: Box<[[Meter; 3]]>,
    groups: Mutex<Groups>,
    group_view: Published<GroupView>,
    counts: Mutex<Vec<Arc<Counts>>>,
}

impl Switch {
    /// A switch with this configuration and an empty MAC table.
    pub fn new(domain: &Arc<Domain>, config: Config) -> Result<Switch, SwitchError> {
        let mut learner = Learner::new(domain, config.limits).map_err(|_| SwitchError::NoMemory)?;
        (0..).zip(&config.ports).for_each(|(at, port)| learner.set_port_limit(at, port.limit));
        Ok(Switch {
            view: Published::new(domain, View::new(&config)),
            table: learner.published_table(),
            is_full: AtomicBool::new(learner.is_full()),
            storms: config.ports.iter().map(|_| Default::default()).collect(),
            groups: Mutex::default(),
            group_view: Published::new(domain, GroupView::default()),
            config: Mutex::new(config),
            learner: Mutex::new(learner),
            counts: Mutex::default(),
        })
    }

    /// The configuration, as of this turn.
    #[inline]
    pub fn view<'t>(&'t self, turn: &'t Turn<'_>) -> &'t View {
        self.view.read(turn)
    }

    /// The MAC table, as of this turn.
    #[inline]
    pub fn table<'t>(&'t self, turn: &'t Turn<'_>) -> &'t MacTable {
        self.table.read(turn)
    }

    /// Counters for a worker.
    pub fn new_counts(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::new(self.config().ports.len()));
        lock_unpoisoned(&self.counts).push(counts.clone());
        counts
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        lock_unpoisoned(&self.config)
    }

    /// Learns that an address was seen at a port, unless another thread is changing the table.
    pub fn learn_address(&self, key: MacKey, port: u16, sticks: bool, now: Duration) -> Learned {
        let mut learner = match self.learner.try_lock() {
            Ok(learner) => learner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Learned::Busy,
        };
        let learned = learner.learn_address(key, port, sticks, now);
        self.update_full(&learner);
        learned
    }

    /// Whether an address that isn't known can't be learned anyway.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// The place of a port that is part of the switch, and not one that gets copies.
    pub fn place_of_member(&self, name: &str) -> Result<u16, SwitchError> {
        let mut config = self.config();
        config.member_mut(name)?;
        Ok(config.find_port(name).map_or(0, |at| at as u16))
    }

    fn update_full(&self, learner: &Learner) {
        if learner.is_full() != self.is_full() {
            self.is_full.store(learner.is_full(), Relaxed);
        }
    }

    /// Whether a port may send another frame to many at this time.
    #[inline]
    pub fn may_flood(&self, view: &View, port: u16, many: FloodKind, now: Duration) -> bool {
        let kind = many as usize;
        match (view.storm_limit(port, kind), self.storms.get(usize::from(port))) {
            (Some(limit), Some(meters)) => meters[kind].try_acquire(limit, now),
            _ => true,
        }
    }

    /// Forgets a part of the addresses that are too old: of all, when it was called a hundred times.
    pub fn sweep_addresses(&self, now: Duration) {
        let mut learner = lock_unpoisoned(&self.learner);
        learner.sweep_buckets(now);
        self.update_full(&learner);
    }

    /// Does what a command says. What [`Command::RuleFile`] and [`Command::Destroy`] say is refused: a table
    /// reads no files and ends nothing.
    pub fn apply_command(&self, command: &Command, now: Duration) -> Result<(), SwitchError> {
        let mut config = self.config();
        let mut changed = config.clone();
        changed.apply_command(command)?;
        let mut learner = lock_unpoisoned(&self.learner);
        if changed.limits != config.limits {
            learner.set_limits(changed.limits).map_err(|_| SwitchError::NoMemory)?;
        }
        self.apply_to_addresses(&changed, &mut learner, command, now)?;
        self.update_full(&learner);
        drop(learner);
        if !matches!(command, Command::Static { .. } | Command::DelAddress { .. } | Command::Flush) {
            self.view.publish(View::new(&changed));
            *config = changed;
        }
        self.apply_to_groups(&config, command);
        Ok(())
    }

    fn apply_to_groups(&self, config: &Config, command: &Command) {
        match command {
            Command::Snoop(false) => self.forget_groups(),
            Command::Querier(_) => lock_unpoisoned(&self.groups).restart_queries(),
            Command::Del(name) => {
                let at = config.find_port(name).map(|at| at as u16);
                at.into_iter().for_each(|at| lock_unpoisoned(&self.groups).forget_port(at));
            }
            _ => {}
        }
    }

    fn apply_to_addresses(
        &self,
        config: &Config,
        learner: &mut Learner,
        command: &Command,
        now: Duration,
    ) -> Result<(), SwitchError> {
        let key = |address, vlan: &Option<command::VlanId>| {
            MacKey::from_address(address, vlan.map_or(config.default_vlan(), command::VlanId::get))
        };
        let place = |name: &str| config.find_port(name).map(|at| at as u16);
        let refused = |key, why| SwitchError::Address {
            address: show::format_address(key, config.default_vlan()),
            why,
        };
        match command {
            Command::Static { port, address, vlan } => {
                let key = key(*address, vlan);
                config.clone().member_mut(port)?;
                let at = place(port).unwrap_or_default();
                learner.add_static(key, at, now).map_err(|why| refused(key, why))
            }
            Command::DelAddress { address, vlan } => {
                let key = key(*address, vlan);
                learner.delete_address(key).map_err(|why| refused(key, why))
            }
            Command::Flush => {
                learner.flush_matching(|_, entry| !entry.is_static());
                Ok(())
            }
            Command::FlushAll => {
                learner.flush_matching(|_, _| true);
                Ok(())
            }
            Command::Del(name) | Command::Add(name) => {
                if let Some(at) = place(name) {
                    learner.flush_matching(|_, entry| entry.port() == at);
                    learner.set_port_limit(at, None);
                }
                Ok(())
            }
            Command::PortMaxAddresses { port, limit } => {
                place(port).into_iter().for_each(|at| learner.set_port_limit(at, *limit));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Says whether the link of a port is up.
    pub fn set_running(&self, port: u16, is_running: bool) {
        self.change_port(port, |port| std::mem::replace(&mut port.is_running, is_running) != is_running);
    }

    /// Says what the spanning tree lets a port do.
    pub fn set_state(&self, port: u16, state: PortState) {
        self.change_port(port, |port| std::mem::replace(&mut port.state, state) != state);
    }

    /// Forgets what was learned at a port, as the spanning tree wants it when the network changes.
    pub fn flush_port(&self, port: u16) {
        let mut learner = lock_unpoisoned(&self.learner);
        learner.flush_matching(|_, entry| entry.port() == port && !entry.is_static());
        self.update_full(&learner);
        lock_unpoisoned(&self.groups).mark_changed();
    }

    fn change_port(&self, port: u16, change: impl FnOnce(&mut Port) -> bool) {
        let mut config = self.config();
        let Some(of) = config.ports.get_mut(usize::from(port)) else { return };
        if change(of) {
            let is_open = of.is_running && of.state == PortState::Forwarding;
            self.view.publish(View::new(&config));
            if !is_open {
                lock_unpoisoned(&self.groups).forget_port(port);
            }
        }
    }

    /// Takes over the addresses and groups that another switch knows, by the names of ports.
    pub fn adopt_state(&self, old: &Switch, now: Duration) {
        let names: Vec<Option<u16>> = {
            let ours = self.config();
            let place = |port: &Port| ours.find_port(&port.name).map(|at| at as u16);
            old.config().ports.iter().map(place).collect()
        };
        let known = lock_unpoisoned(&old.learner).list_addresses(now);
        let mut learner = lock_unpoisoned(&self.learner);
        for (key, entry) in known {
            if let Some(Some(port)) = names.get(usize::from(entry.port())) {
                learner.import_entry(key, *port, entry);
            }
        }
        self.update_full(&learner);
        if self.config().snoops {
            let place = |port: u16| names.get(usize::from(port)).copied().flatten();
            lock_unpoisoned(&self.groups).adopt_state(&lock_unpoisoned(&old.groups), place);
        }
    }

    /// Everything that workers have counted.
    fn all_counts(&self) -> Vec<Arc<Counts>> {
        lock_unpoisoned(&self.counts).clone()
    }
}

/// What is held while a panic comes is left as it was before, or as it is after: both are legal.
fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
