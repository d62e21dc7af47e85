//! Which established connections are forwarded past rules.
use super::{Error, Session};
use crate::blockers::{self, Blocker};
use crate::connections::{ConnectionTracker, FamilyConsent};
use crate::policy::{Interface, Policy};
use std::time::{Duration, Instant};

/// How long there must have been no rules.
const WITHOUT_RULES: Duration = Duration::from_secs(5);

/// What is done with packets of connections that the kernel's connection tracking has established, where
/// rules of the user keep a family in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Established {
    /// They stay with the kernel like all others.
    InKernel,
    /// They are forwarded past the rules that let them through.
    AsRulesAllow,
    /// They are forwarded past all rules, which the operator has allowed.
    Forwarded,
}

/// Which established connections are forwarded past rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstablishedOptions {
    /// Whether rules decide, and which.
    pub which: Established,
    /// Whether connections are forwarded, too, that began while no process listened, so that the kernel does
    /// not tell their end: its entries are read each second.
    pub existing: bool,
}

impl Default for EstablishedOptions {
    fn default() -> EstablishedOptions {
        EstablishedOptions { which: Established::InKernel, existing: false }
    }
}

impl Session {
    /// Whether connections could be forwarded past rules, if there are any, and are not followed yet.
    /// Without such rules programs know nothing of connections, and are shorter.
    pub(super) fn lacks_tracker(&self) -> bool {
        let follows = match self.established {
            Established::InKernel => false,
            Established::AsRulesAllow => blockers::tracks_any(),
            Established::Forwarded => true,
        };
        follows && self.tracker.is_none()
    }

    /// Follows connections from now on. If it can't be done, what rules keep stays with the kernel.
    pub(super) fn begin_following(&mut self, now: Instant) {
        self.report_progress();
        let Err(error) = self.open_tracker(now) else { return self.report_progress() };
        if error.is_shortage() {
            self.needs_resync = true;
            return;
        }
        self.established = Established::InKernel;
        self.unfollowed = Some(error.to_string());
    }

    fn open_tracker(&mut self, now: Instant) -> Result<(), Error> {
        let tracker = ConnectionTracker::open(now, self.follows_existing)
            .map_err(|error| Error::Kernel("following connections", error))?;
        self.accelerator.enable_flows()?;
        self.watch.follow_connections(true);
        self.tracker = Some(tracker);
        Ok(())
    }

    /// Has programs know nothing of connections once there were no rules for a while. Who replaces rules may
    /// remove the old ones first.
    pub(super) fn end_following(&mut self, now: Instant) {
        let is_needed = self.established == Established::Forwarded
            || self.blockers.iter().any(blockers::is_passable)
            || self.tracker.is_none();
        if is_needed {
            self.without_rules = None;
            return;
        }
        let since = *self.without_rules.get_or_insert(now);
        if now.saturating_duration_since(since) < WITHOUT_RULES {
            return;
        }
        self.without_rules = None;
        self.tracker.iter_mut().for_each(|tracker| tracker.forget_all(&mut self.accelerator));
        self.report_progress();
        // Programs that stay for want of memory do no harm, and are tried again.
        if self.accelerator.disable_flows().is_ok() {
            self.watch.follow_connections(false);
            self.tracker = None;
        }
    }

    /// Marks the blockers that established connections are forwarded past; says for which families there
    /// are any, and gives the rules that are asked about each.
    pub(super) fn pass_established(&self, guards: &mut Vec<Blocker>) -> (Policy, [FamilyConsent; 2]) {
        let asks_rules = self.established == Established::AsRulesAllow;
        let (policy, paths) = match self.established {
            Established::InKernel => return Default::default(),
            Established::AsRulesAllow => blockers::pass_by_rules(guards),
            Established::Forwarded => (Policy::default(), blockers::pass_established(guards)),
        };
        let consent = paths.map(|path| FamilyConsent {
            is_given: path.is_open && path.has_rules,
            asks_rules,
            minds_windows: path.minds_windows,
            translates: path.translates,
        });
        (policy, consent)
    }

    /// Tells the follower of connections which interfaces have the numbers of ports.
    pub(super) fn follow_ports(&mut self) {
        let Some(tracker) = &mut self.tracker else { return };
        let named = self.named_ports.iter().filter_map(|port| {
            let number = self.accelerator.port(port.index)?;
            Some((number, Interface { index: port.index, name: port.name.clone() }))
        });
        tracker.set_ports(named.collect(), &mut self.accelerator);
    }
}
