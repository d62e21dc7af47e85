//! Adopted bridges: their members have the programs, and packets arrive and leave by the bridge.
//!
//! A frame that arrives at a member is the bridge's if the bridge's forwarding database has its source there,
//! and the address that it is for as the bridge's own. A packet that leaves by the bridge leaves by the
//! member that the database has its next hop at.
use super::super::hops::EgressMember;
use super::{Accelerator, RoutedPort};
use crate::fast::layout::Withheld;
use crate::fast::{Deliveries, Error, Mode};
use artery_device::bpf;
use artery_wire::EtherAddr;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _};

/// An entry of a bridge's forwarding database, in the VLAN of untagged frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The member that the address is behind.
    pub member: u32,
    /// Whether the entry goes if no frame comes from the address.
    pub ages: bool,
}

/// The adopted bridges, and all that is known of their members.
#[derive(Debug, Default)]
pub(super) struct Bridges {
    /// By interface: the numbers of ports.
    numbers: BTreeMap<u32, u32>,
    members: BTreeMap<u32, Member>,
    entries: HashMap<(u32, EtherAddr), FdbEntry>,
    /// The addresses of bridges that they take frames for, by the bridge.
    own: HashSet<(u32, EtherAddr)>,
}

#[derive(Debug, Default)]
struct Member {
    bridge: u32,
    mtu: u32,
    is_up: bool,
    /// Whether it is in state forwarding.
    forwards: bool,
    /// Whether what arrives stays with the kernel.
    is_kept: bool,
    withheld: Option<Withheld>,
    /// Whether sources at it are in the programs' table.
    is_receiving: bool,
}

impl Bridges {
    /// The number of the port that a bridge is.
    pub(super) fn number(&self, bridge: u32) -> Option<u32> {
        self.numbers.get(&bridge).copied()
    }

    pub(super) fn number_by_member(&self, member: u32) -> Option<u32> {
        self.number(self.bridge_of(member)?)
    }

    pub(super) fn bridge_of(&self, member: u32) -> Option<u32> {
        self.members.get(&member).map(|member| member.bridge)
    }

    pub(super) fn members(&self, bridge: u32) -> impl Iterator<Item = u32> {
        self.members.iter().filter(move |(_, member)| member.bridge == bridge).map(|(link, _)| *link)
    }

    pub(super) fn is_receiving(&self, member: u32) -> bool {
        self.members.get(&member).is_some_and(|member| member.is_receiving)
    }

    /// Whether packets that come by an interface may be forwarded: a bridge must have its address as its own,
    /// and a member has none.
    pub(super) fn may_forward(&self, link: u32, mac: Option<EtherAddr>) -> bool {
        match self.numbers.contains_key(&link) {
            true => mac.is_some_and(|mac| self.own.contains(&(link, mac))),
            false => !self.members.contains_key(&link),
        }
    }

    pub(super) fn set_member_link(&mut self, member: u32, mtu: u32, is_up: bool) {
        if let Some(member) = self.members.get_mut(&member) {
            (member.mtu, member.is_up) = (mtu, is_up);
        }
    }

    /// The addresses at a member, and whether they age.
    fn sources(&self, link: u32) -> Vec<(EtherAddr, bool)> {
        let Some(bridge) = self.bridge_of(link) else { return Vec::new() };
        let there = self.entries.iter().filter(|((of, _), entry)| *of == bridge && entry.member == link);
        there.map(|((_, mac), entry)| (*mac, entry.ages)).collect()
    }
}

impl Accelerator {
    /// Has packets arrive and leave by a bridge, whose members are yet to be adopted.
    pub fn adopt_bridge(&mut self, link: u32) -> Result<(), Error> {
        let number = *self.free_ports.first().ok_or(Error::TooManyPorts)?;
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        self.memory.enable_fdb(seed as u32)?;
        self.free_ports.remove(&number);
        self.bridges.numbers.insert(link, number);
        Ok(())
    }

    /// Puts a program at a member of an adopted bridge. Nothing is forwarded by it before it is set as a
    /// link, and in state forwarding.
    pub fn adopt_member(&mut self, link: u32, bridge: u32, mode: Mode) -> Result<(), Error> {
        let member = Member { bridge, is_kept: true, ..Member::default() };
        self.bridges.members.insert(link, member);
        if let Err(error) = self.adopt(link, mode) {
            self.bridges.members.remove(&link);
            return Err(error);
        }
        let (number, bridge) = (self.attached[&link].port, self.bridges.number(bridge));
        self.memory.fdb.iter_mut().for_each(|fdb| fdb.set_bridge(number, bridge));
        Ok(())
    }

    /// Takes the program of an interface away.
    pub fn release(&mut self, link: u32) -> Result<(), Error> {
        self.remove_bridge_member(link);
        self.remove_member(link);
        let is_carried = |member: &RoutedPort| member.carrier.is_some_and(|(carrier, _)| carrier == link);
        let vlans: Vec<u32> =
            self.members.iter().filter(|(_, member)| is_carried(member)).map(|(vlan, _)| *vlan).collect();
        vlans.into_iter().for_each(|vlan| self.remove_member(vlan));
        let Some(attached) = self.attached.remove(&link) else { return Ok(()) };
        let number = attached.port;
        drop(attached);
        self.memory.unset_device(number);
        bpf::wait_for_runs().map_err(Error::Waiting)?;
        self.free_ports.insert(number);
        Ok(())
    }

    /// Whether an interface is an adopted bridge.
    pub fn is_bridge(&self, link: u32) -> bool {
        self.bridges.number(link).is_some()
    }

    /// The adopted bridges.
    pub fn bridges(&self) -> impl Iterator<Item = u32> {
        self.bridges.numbers.keys().copied()
    }

    /// The members of an adopted bridge that have programs.
    pub fn bridge_members(&self, bridge: u32) -> impl Iterator<Item = u32> {
        self.bridges.members(bridge)
    }

    /// Says whether a member is in state forwarding, and after how many ticks a frame of each source is to go
    /// by the kernel.
    pub fn set_member_state(&mut self, link: u32, forwards: bool, interval: u64) {
        let Some(member) = self.bridges.members.get_mut(&link) else { return };
        member.forwards = forwards;
        if let (Some(attached), Some(fdb)) = (self.attached.get(&link), &self.memory.fdb) {
            fdb.set_interval(attached.port, interval);
        }
        self.review_member(link);
    }

    /// Leaves what arrives at a member, or leaves by it, to the kernel, or no longer.
    pub fn set_member_withheld(&mut self, link: u32, from: bool, to: Option<Withheld>) {
        let Some(member) = self.bridges.members.get_mut(&link) else { return };
        (member.is_kept, member.withheld) = (from, to);
        self.review_member(link);
    }

    /// Notes an entry of a bridge's forwarding database, or that there is none.
    pub fn set_fdb_entry(&mut self, bridge: u32, mac: EtherAddr, entry: Option<FdbEntry>) {
        let key = (bridge, mac);
        let before = match entry {
            Some(entry) => self.bridges.entries.insert(key, entry),
            None => self.bridges.entries.remove(&key),
        };
        if before == entry {
            return;
        }
        if let Some(old) = before.filter(|old| entry.is_none_or(|new| new.member != old.member)) {
            self.set_source(old.member, mac, None);
        }
        if let Some(new) = entry {
            self.set_source(new.member, mac, Some(new.ages));
        }
        self.hops.set_fdb(&self.memory, bridge, mac, entry.map(|entry| entry.member));
    }

    /// Notes whether a bridge takes frames for an address as its own.
    pub fn set_fdb_own(&mut self, bridge: u32, mac: EtherAddr, is_own: bool) {
        let key = (bridge, mac);
        let has_changed = if is_own { self.bridges.own.insert(key) } else { self.bridges.own.remove(&key) };
        if has_changed {
            self.set_flags();
        }
    }

    /// All entries that are known of a bridge, and its own addresses.
    pub fn fdb_addresses(&self, bridge: u32) -> (Vec<EtherAddr>, Vec<EtherAddr>) {
        let of_bridge = |(of, mac): &(u32, EtherAddr)| (*of == bridge).then_some(*mac);
        let entries = self.bridges.entries.keys().filter_map(of_bridge).collect();
        (entries, self.bridges.own.iter().filter_map(of_bridge).collect())
    }

    /// What was sent to each bridge, and was lost at its members.
    pub(super) fn bridge_deliveries(&self) -> Vec<(u32, Deliveries)> {
        let dropped_at =
            |member: u32| self.attached.get(&member).map_or(0, |it| self.memory.dropped_frames(it.port));
        let deliveries = |(bridge, number): (&u32, &u32)| {
            let dropped = self.bridges.members(*bridge).map(dropped_at).sum();
            let sent = self.memory.sent_frames(*number) + self.sent_by_tunnels(*bridge);
            (*bridge, Deliveries { sent, dropped })
        };
        self.bridges.numbers.iter().map(deliveries).collect()
    }

    /// Has programs forward frames from an address at a member, or leave them to the kernel.
    fn set_source(&mut self, link: u32, mac: EtherAddr, ages: Option<bool>) {
        let (Some(attached), Some(fdb)) = (self.attached.get(&link), &mut self.memory.fdb) else { return };
        match ages.filter(|_| self.bridges.is_receiving(link)) {
            // Where there is no room, its frames stay with the kernel.
            Some(ages) => drop(fdb.insert(attached.port, mac, ages)),
            None => fdb.remove(attached.port, mac),
        }
    }

    /// Does what has changed of a member.
    pub(super) fn review_member(&mut self, link: u32) {
        let (Some(member), Some(attached)) = (self.bridges.members.get_mut(&link), self.attached.get(&link))
        else {
            return;
        };
        let (forwards, bridge) = (member.forwards && member.is_up, member.bridge);
        let exit = EgressMember { device: attached.port, mtu: member.mtu, withheld: member.withheld };
        let is_receiving = forwards && !member.is_kept;
        let has_changed = std::mem::replace(&mut member.is_receiving, is_receiving) != is_receiving;
        if has_changed {
            for (mac, ages) in self.bridges.sources(link) {
                self.set_source(link, mac, Some(ages));
            }
        }
        self.hops.set_member(&self.memory, (bridge, link), forwards.then_some(exit));
    }

    /// Forgets that an interface is a member of a bridge.
    pub(super) fn remove_bridge_member(&mut self, link: u32) {
        self.set_member_state(link, false, 0);
        if self.bridges.members.remove(&link).is_none() {
            return;
        }
        if let (Some(attached), Some(fdb)) = (self.attached.get(&link), &mut self.memory.fdb) {
            fdb.set_bridge(attached.port, None);
        }
    }

    /// Forgets a bridge that is gone. What its members have is the kernel's from now on.
    pub(super) fn remove_bridge(&mut self, link: u32) {
        let Some(number) = self.bridges.numbers.remove(&link) else { return };
        let members: Vec<u32> = self.bridges.members(link).collect();
        members.into_iter().for_each(|member| self.set_member_state(member, false, 0));
        let (entries, _) = self.fdb_addresses(link);
        entries.into_iter().for_each(|mac| self.set_fdb_entry(link, mac, None));
        self.bridges.own.retain(|(bridge, _)| *bridge != link);
        self.free_ports.insert(number);
    }
}
