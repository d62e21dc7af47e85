//! Next hops: the neighbors that groups lead to, and how to send to each.
use super::layout::{Hop, MOST_HOPS, Withheld};
use super::memory::Memory;
use super::numbers::IndexPool;
use crate::kernel::Family;
use artery_wire::EtherAddr;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A neighbor: its interface and address.
pub(super) type NeighborKey = (u32, IpAddr);

/// What a next hop is for: packets of one family that are sent to a neighbor. Those of IPv4 may go by a
/// neighbor of IPv6 (RFC 8950).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HopKey {
    is_v6: bool,
    neighbor: NeighborKey,
}

impl HopKey {
    /// For packets of this family.
    pub(super) fn new(family: Family, neighbor: NeighborKey) -> HopKey {
        HopKey { is_v6: family == Family::V6, neighbor }
    }
}

/// An interface that packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EgressInterface {
    pub(super) mac: EtherAddr,
    pub(super) mtu: u32,
    pub(super) vlan: Option<u16>,
    /// None for a bridge, whose forwarding database says for each neighbor which member it is.
    pub(super) device: Option<u32>,
    pub(super) port: u32,
}

/// A member of a bridge that frames leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EgressMember {
    pub(super) device: u32,
    pub(super) mtu: u32,
    /// Why nothing leaves by it.
    pub(super) withheld: Option<Withheld>,
}

#[derive(Debug)]
struct HopEntry {
    at: u32,
    users: u32,
}

/// The neighbors that are in use, and the link addresses of all that are known.
#[derive(Debug)]
pub(super) struct HopTable {
    entries: HashMap<HopKey, HopEntry>,
    macs: HashMap<NeighborKey, EtherAddr>,
    exits: HashMap<u32, EgressInterface>,
    /// By the bridge and the address: the member that an address is behind.
    fdb: HashMap<(u32, EtherAddr), u32>,
    /// Members of bridges that are in state forwarding.
    members: HashMap<u32, EgressMember>,
    /// Interfaces by which packets of a family (IPv6 if true) don't leave.
    withheld: HashMap<(bool, u32), Withheld>,
    /// Interfaces by which IPv4 leaves also where it came in.
    returning: HashSet<u32>,
    numbers: IndexPool,
    /// Hops that were unset; they are written again once no run of a program sends by the old ones.
    changed: HashSet<HopKey>,
}

impl HopTable {
    pub(super) fn new() -> HopTable {
        HopTable {
            entries: HashMap::new(),
            macs: HashMap::new(),
            exits: HashMap::new(),
            fdb: HashMap::new(),
            members: HashMap::new(),
            withheld: HashMap::new(),
            returning: HashSet::new(),
            // Hop 0 is never ready: neighbors share it when the array is full.
            numbers: IndexPool::new(1, MOST_HOPS as u32),
            changed: HashSet::new(),
        }
    }

    /// Returns the index of a hop, for one more user. Without room it is the hop that leaves
    /// packets to the kernel.
    pub(super) fn acquire_hop(&mut self, memory: &Memory, key: HopKey) -> u32 {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.users += 1;
            return entry.at;
        }
        let Some(at) = self.numbers.allocate(1) else { return 0 };
        self.entries.insert(key, HopEntry { at, users: 1 });
        self.write_hop(memory, key);
        at
    }

    /// Takes back what [`acquire_hop`](Self::acquire_hop) gave.
    pub(super) fn release_hop(&mut self, memory: &Memory, key: HopKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            memory.unset_hop(entry.at);
            self.numbers.free_range(entry.at, 1);
            self.entries.remove(&key);
            self.changed.remove(&key);
        }
    }

    /// Notes a neighbor's link address, or that there is none. Says whether there was one.
    pub(super) fn set_neighbor(&mut self, memory: &Memory, key: NeighborKey, mac: Option<EtherAddr>) -> bool {
        let before = match mac {
            Some(mac) => self.macs.insert(key, mac),
            None => self.macs.remove(&key),
        };
        if before != mac {
            [false, true]
                .into_iter()
                .for_each(|is_v6| self.unset_changed(memory, HopKey { is_v6, neighbor: key }));
        }
        before.is_some()
    }

    /// Notes how packets leave by an interface, or that none do.
    pub(super) fn set_exit(&mut self, memory: &Memory, link: u32, exit: Option<EgressInterface>) {
        let before = match exit {
            Some(exit) => self.exits.insert(link, exit),
            None => self.exits.remove(&link),
        };
        if before != exit {
            self.change_all(memory, link);
        }
    }

    /// Notes which member of a bridge an address is behind, or that it is not known.
    pub(super) fn set_fdb(&mut self, memory: &Memory, bridge: u32, mac: EtherAddr, member: Option<u32>) {
        let before = match member {
            Some(member) => self.fdb.insert((bridge, mac), member),
            None => self.fdb.remove(&(bridge, mac)),
        };
        if before != member {
            self.change_where(memory, |key, known| key.0 == bridge && known == Some(&mac));
        }
    }

    /// Notes how frames leave by a member of a bridge, or that none do.
    pub(super) fn set_member(
        &mut self,
        memory: &Memory,
        (bridge, member): (u32, u32),
        exit: Option<EgressMember>,
    ) {
        let before = match exit {
            Some(exit) => self.members.insert(member, exit),
            None => self.members.remove(&member),
        };
        if before != exit {
            self.change_all(memory, bridge);
        }
    }

    /// Leaves packets of a family (IPv6 if true) that would go out by an interface to the
    /// kernel, or no longer.
    pub(super) fn set_withheld(&mut self, memory: &Memory, key: (bool, u32), why: Option<Withheld>) {
        let before = match why {
            Some(why) => self.withheld.insert(key, why),
            None => self.withheld.remove(&key),
        };
        if before != why {
            self.change_all(memory, key.1);
        }
    }

    /// Lets IPv4 leave by an interface that it came by, or leaves that to the kernel.
    pub(super) fn set_returning(&mut self, memory: &Memory, link: u32, returns: bool) {
        let has_changed = if returns { self.returning.insert(link) } else { self.returning.remove(&link) };
        if has_changed {
            self.change_all(memory, link);
        }
    }

    fn change_all(&mut self, memory: &Memory, link: u32) {
        self.change_where(memory, |key, _| key.0 == link);
    }

    /// Writes the hops again of neighbors for which something holds, by their link addresses.
    fn change_where(&mut self, memory: &Memory, holds: impl Fn(&NeighborKey, Option<&EtherAddr>) -> bool) {
        let is_meant = |key: &&HopKey| holds(&key.neighbor, self.macs.get(&key.neighbor));
        let there: Vec<HopKey> = self.entries.keys().filter(is_meant).copied().collect();
        there.into_iter().for_each(|key| self.unset_changed(memory, key));
    }

    /// The device that frames to a link address leave by, and the most bytes of a packet; or why none do, if
    /// that is known.
    fn find_device(
        &self,
        link: u32,
        mac: EtherAddr,
        exit: &EgressInterface,
    ) -> Result<(u32, u32), Option<Withheld>> {
        if let Some(device) = exit.device {
            return Ok((device, exit.mtu));
        }
        let known = self.fdb.get(&(link, mac)).and_then(|member| self.members.get(member));
        let member = known.ok_or(None::<Withheld>)?;
        // What is longer the bridge would drop.
        member.withheld.map_or(Ok((member.device, member.mtu.min(exit.mtu))), |why| Err(Some(why)))
    }

    /// The neighbors that packets were sent to since the last call.
    pub(super) fn drain_used(&self, memory: &Memory) -> Vec<NeighborKey> {
        let used = self.entries.iter().filter(|(_, entry)| memory.clear_used(entry.at));
        let mut used: Vec<NeighborKey> = used.map(|(key, _)| key.neighbor).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    fn unset_changed(&mut self, memory: &Memory, key: HopKey) {
        if let Some(entry) = self.entries.get(&key) {
            memory.unset_hop(entry.at);
            self.changed.insert(key);
        }
    }

    fn write_hop(&self, memory: &Memory, key: HopKey) {
        let HopKey { is_v6, neighbor } = key;
        let link = neighbor.0;
        let Some(entry) = self.entries.get(&key) else { return };
        let Some(exit) = self.exits.get(&link) else {
            return memory.withhold_hop(entry.at, Withheld::NotAdopted);
        };
        let Some(mac) = self.macs.get(&neighbor) else { return };
        if let Some(why) = self.withheld.get(&(is_v6, link)) {
            return memory.withhold_hop(entry.at, *why);
        }
        let (device, mtu) = match self.find_device(link, *mac, exit) {
            Ok(found) => found,
            Err(Some(why)) => return memory.withhold_hop(entry.at, why),
            Err(None) => return,
        };
        let hop = Hop {
            destination: *mac,
            source: exit.mac,
            vlan: exit.vlan,
            mtu,
            device,
            port: exit.port,
            // The kernel redirects packets of IPv6 whatever is set.
            returns: !is_v6 && self.returning.contains(&link),
        };
        memory.write_hop(entry.at, &hop);
    }

    /// Whether something waits for runs to end.
    pub(super) fn is_waiting(&self) -> bool {
        self.numbers.is_waiting() || !self.changed.is_empty()
    }

    /// All runs have ended that had begun before the last change.
    pub(super) fn commit_changes(&mut self, memory: &Memory) {
        self.numbers.reclaim_waiting();
        for key in std::mem::take(&mut self.changed) {
            self.write_hop(memory, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{HOP_READY, HOP_WORDS, READY};
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_neighbor_of_ipv6_has_a_hop_for_each_family_and_one_is_withheld_without_the_other() {
        let Ok(memory) = Memory::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let (mac, neighbor) = (EtherAddr([2, 0, 0, 0, 0, 1]), (7, "2001:db8::2".parse().unwrap()));
        let exit = EgressInterface { mac, mtu: 1500, vlan: None, device: Some(1), port: 1 };
        let mut hops = HopTable::new();
        hops.set_exit(&memory, 7, Some(exit));
        hops.set_neighbor(&memory, neighbor, Some(mac));
        let keys = [Family::V4, Family::V6].map(|family| HopKey::new(family, neighbor));
        let places = keys.map(|key| hops.acquire_hop(&memory, key));
        let are_ready = |hops: &mut HopTable| {
            hops.commit_changes(&memory);
            places.map(|at| memory.hops[at as usize * HOP_WORDS + HOP_READY].load(Relaxed) == READY)
        };
        assert_eq!(are_ready(&mut hops), [true, true]);
        for (is_v6, expected) in [(false, [false, true]), (true, [true, false])] {
            hops.set_withheld(&memory, (is_v6, 7), Some(Withheld::ALL[0]));
            assert_eq!(are_ready(&mut hops), expected);
            hops.set_withheld(&memory, (is_v6, 7), None);
            assert_eq!(are_ready(&mut hops), [true, true]);
        }
        hops.set_neighbor(&memory, neighbor, None);
        assert_eq!(are_ready(&mut hops), [false, false]);
        keys.into_iter().for_each(|key| hops.release_hop(&memory, key));
        assert!(hops.entries.is_empty());
    }
}
