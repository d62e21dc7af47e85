//! Paths that nothing is forwarded by, which are left for another.
use super::{DeadPath, Session};
use crate::blockers::{self, Blocker, OwnHook, Port};
use crate::fast::{self, Mode};
use crate::kernel::Family;
use std::collections::BTreeSet;
use std::time::Instant;

impl Session {
    /// Has all interfaces take another path if nothing is forwarded by this one.
    pub(super) fn leave_dead_path(&mut self, now: Instant) -> Option<(DeadPath, Result<(), fast::Error>)> {
        if !self.is_by_xdp() {
            return None;
        }
        let (untaken, why) = self.find_dead_path(now)?;
        self.report_progress();
        let changed = self.accelerator.change_mode(Mode::Tc);
        self.report_progress();
        match changed {
            Ok(()) => {
                self.mode = Mode::Tc;
                let with_programs = self.ports.iter_mut().filter(|port| port.own.is_some());
                with_programs.for_each(|port| port.own = Some(OwnHook::Tc));
                self.undelivered.clear();
            }
            Err(_) => {
                self.undelivered.extend(untaken);
                self.can_leave_xdp = false;
            }
        }
        self.update_blockers();
        Some((why, changed))
    }

    /// The interfaces whose drivers take nothing, and why nothing is forwarded.
    fn find_dead_path(&mut self, now: Instant) -> Option<(Vec<u32>, DeadPath)> {
        let untaken = self.deliveries.ports_that_take_nothing(now, self.accelerator.deliveries());
        let is_new = |port: &&Port| untaken.contains(&port.index) && !self.undelivered.contains(&port.index);
        if let Some(port) = self.ports.iter().find(is_new) {
            let why = DeadPath::TakesNothing(port.name.clone());
            return Some((untaken, why));
        }
        let withheld = (self.is_all_kept && self.can_leave_xdp).then(|| self.accelerator.withheld_frames());
        let before = std::mem::replace(&mut self.withheld, withheld);
        let has_arrived = before.is_some() && withheld.is_some() && before != withheld;
        has_arrived.then_some((Vec::new(), DeadPath::AllKept))
    }

    pub(super) fn find_broken_pair(&self) -> Option<(String, String)> {
        let (from, to) = self.accelerator.find_broken_pair(&self.drivers.without_redirect)?;
        let name = |index| Some(self.ports.iter().find(|port| port.index == index)?.name.clone());
        Some((name(from)?, name(to)?))
    }
}

/// Whether blockers of XDP, but not of tc, leave no two ports between which frames are forwarded.
pub(super) fn blocks_all(guards: &[Blocker], ports: &[Port], deaf: &BTreeSet<u32>) -> bool {
    let is_of_xdp =
        |guard: &&Blocker| guard.kind == blockers::BlockerKind::Offload || guard.is_met_by_tc(ports);
    let of_xdp: Vec<&Blocker> = guards.iter().filter(is_of_xdp).collect();
    let arrives = |port: &Port, family| !of_xdp.iter().any(|guard| guard.blocks_from(port, family));
    let leaves = |port: &Port, family| {
        let is_deaf = deaf.contains(&port.vlan_on.unwrap_or(port.index));
        !is_deaf && !of_xdp.iter().any(|guard| guard.blocks_to(port, family))
    };
    let mut ports = blockers::routed_ports(ports);
    ports.retain(|port| !port.is_tunnel());
    let ports = &ports;
    let forwards = |family| {
        let mut pairs = ports.iter().flat_map(|from| ports.iter().map(move |to| (from, to)));
        pairs.any(|(from, to)| from.index != to.index && arrives(from, family) && leaves(to, family))
    };
    ports.len() > 1 && !forwards(Family::V4) && !forwards(Family::V6)
}
