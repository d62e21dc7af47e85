//! Adopted bridges: which interfaces are their members now.
use super::{Error, Session};
use crate::blockers::{self, Blocker, Bridging, OwnHook, Port};
use crate::bridges::BridgeFollower;
use crate::fast::{self, Mode, Withheld};
use crate::kernel::Family;
use std::collections::BTreeSet;
use std::time::Instant;

impl Session {
    /// Follows bridges from now on, if there is one among the ports.
    pub(super) fn follow_bridges(&mut self) -> Result<(), Error> {
        if self.ports.iter().any(|port| port.bridging == Bridging::Bridge) {
            let follower = BridgeFollower::open();
            self.bridges = Some(follower.map_err(|error| Error::Kernel("following bridges", error))?);
        }
        Ok(())
    }

    /// Has packets arrive and leave by a port. Bridges come before their members, and tunnels before all
    /// that have programs, which are made for them.
    pub(super) fn adopt_port(&mut self, port: &Port, mode: Mode) -> Result<(), fast::Error> {
        match port.bridging {
            Bridging::None if port.is_tunnel() => self.accelerator.adopt_tunnel(port.index),
            Bridging::None => self.accelerator.adopt(port.index, mode),
            Bridging::Bridge => self.accelerator.adopt_bridge(port.index),
            Bridging::Member(bridge) => self.accelerator.adopt_member(port.index, bridge, mode),
        }
    }

    /// Applies what has changed of bridges. Says whether there may be more.
    pub(super) fn poll_bridges(&mut self, now: Instant) -> Result<bool, Error> {
        let Some(bridges) = &mut self.bridges else { return Ok(false) };
        let more = bridges.poll(now, &mut self.accelerator);
        more.map_err(|error| Error::Kernel("following bridges", error))
    }

    /// Adopts interfaces that have become members of adopted bridges, and takes the programs of those away
    /// that no longer are.
    pub(super) fn follow_members(&mut self) {
        if self.bridges.is_none() {
            return;
        }
        let routed = blockers::routed_ports(&self.ports);
        // Where interfaces can't be read, that keeps everything.
        let Ok(wanted) = blockers::with_members(&routed) else { return };
        let wanted: Vec<Port> = wanted.into_iter().filter(is_member).collect();
        let is_wanted =
            |port: &Port| wanted.iter().any(|new| (new.index, new.bridging) == (port.index, port.bridging));
        let left: Vec<Port> =
            self.ports.iter().filter(|port| is_member(port) && !is_wanted(port)).cloned().collect();
        left.iter().for_each(|port| self.release_port(port));
        self.refused.retain(|(port, _)| is_wanted(port));
        let is_known = |port: &Port| {
            let of_session =
                self.ports.iter().any(|old| (old.index, old.bridging) == (port.index, port.bridging));
            of_session || self.refused.iter().any(|(refused, _)| refused.index == port.index)
        };
        let new: Vec<Port> = wanted.iter().filter(|port| !is_known(port)).cloned().collect();
        new.iter().for_each(|port| self.adopt_new_member(port));
        if !left.is_empty() || !new.is_empty() {
            self.bridges.iter_mut().for_each(BridgeFollower::request_resync);
        }
    }

    fn release_port(&mut self, port: &Port) {
        self.report_progress();
        // The kernel may refuse to wait for runs of programs; the number of the port stays in use then.
        let _ = self.accelerator.release(port.index);
        self.ports.retain(|old| old.index != port.index);
        self.numbers.remove(&port.index);
    }

    /// Adopts a member. One that was a port of its own is one of the bridge's from now on.
    fn adopt_new_member(&mut self, port: &Port) {
        self.release_port(port);
        let adopted = self.adopt_port(port, self.mode);
        self.report_progress();
        if let Err(error) = adopted {
            return self.refused.push((port.clone(), error.to_string()));
        }
        let own = if self.mode.is_tc() { OwnHook::Tc } else { OwnHook::Xdp };
        self.ports.push(Port { own: Some(own), ..port.clone() });
        self.resend_links();
    }

    /// Leaves to the kernel what arrives at members, or leaves by them, where something keeps it.
    pub(super) fn withhold_members(&mut self, ports: &[Port], guards: &[Blocker], deaf: &BTreeSet<u32>) {
        for port in ports.iter().filter(|port| is_member(port)) {
            let of_member = |guard: &&Blocker| guard.port == Some(port.index);
            let is_any = |keeps: fn(&Blocker, &Port, Family) -> bool| {
                guards.iter().filter(of_member).any(|guard| {
                    [Family::V4, Family::V6].into_iter().any(|family| keeps(guard, port, family))
                })
            };
            let to = match is_any(Blocker::blocks_to) {
                true => Some(Withheld::Policy),
                false => deaf.contains(&port.index).then_some(Withheld::NoRedirect),
            };
            self.accelerator.set_member_withheld(port.index, is_any(Blocker::blocks_from), to);
        }
    }
}

fn is_member(port: &Port) -> bool {
    matches!(port.bridging, Bridging::Member(_))
}
