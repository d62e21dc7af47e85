//! Which established connections are forwarded past rules.
use super::Session;
use crate::blockers::{self, Blocker};
use crate::connections::FamilyConsent;
use crate::policy::{Interface, Policy};

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

impl Session {
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
