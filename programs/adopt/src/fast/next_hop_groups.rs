//! Next-hop sets of the mirror as groups: one word each, which many routes lead to.
use super::hops::{HopKey, HopTable, NeighborKey};
use super::layout::{MOST_GROUPS, MOST_MEMBERS, ROUTED};
use super::memory::Memory;
use super::numbers::IndexPool;
use crate::kernel::Family;
use crate::mirror::{Hop, NextHopSet, NextHopSetId};
use artery_lpm::Group;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

/// The group of what the kernel keeps.
pub(super) const KERNEL: Group = MOST_GROUPS as Group - 1;
/// Groups below this number are next-hop sets; from here on they are neighbors
/// on directly connected networks.
const NEIGHBORS: Group = MOST_GROUPS as Group / 2;
/// About the most members of a group: what shares are rounded to where they sum up to more. Small ones are
/// rounded up, so that they may be half as many again, which there must be room for.
const MOST_SHARES: u32 = 256;

#[derive(Debug, Default)]
struct GroupState {
    keys: Vec<HopKey>,
    /// Where its members are, and how many, if it has more than one.
    members: Option<(u32, u32)>,
    /// The interface on which destinations are neighbors themselves.
    at_hand: Option<u32>,
    /// The interfaces that it leads out by, on which sources that it leads to may come in.
    links: Vec<u32>,
}

/// Groups by number, with their users.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    states: HashMap<Group, GroupState>,
    members: IndexPool,
    neighbors: IndexPool,
    /// The interfaces that are ports, and their numbers.
    ports: HashMap<u32, u32>,
    /// The interfaces that are tunnels: all next hops there are the other end.
    tunnels: HashSet<u32>,
}

impl GroupTable {
    pub(super) fn new() -> GroupTable {
        GroupTable {
            members: IndexPool::new(0, MOST_MEMBERS as u32),
            neighbors: IndexPool::new(NEIGHBORS, KERNEL),
            ..GroupTable::default()
        }
    }

    /// The group of a next-hop set.
    pub(super) fn group_of(id: NextHopSetId) -> Group {
        // The kernel forwards packets of next-hop sets beyond that number.
        if (1..NEIGHBORS).contains(&id.0) { id.0 } else { KERNEL }
    }

    /// The interface on which destinations of a group are neighbors themselves, if it is such a group.
    pub(super) fn at_hand(&self, group: Group) -> Option<u32> {
        self.states.get(&group)?.at_hand
    }

    /// Builds the group of a next-hop set, or removes it. Returns whether the interface on which its
    /// destinations are neighbors has changed.
    pub(super) fn set_group(
        &mut self,
        memory: &Memory,
        hops: &mut HopTable,
        (family, id): (Family, NextHopSetId),
        way: Option<&NextHopSet>,
    ) -> bool {
        let group = GroupTable::group_of(id);
        if group == KERNEL {
            return false;
        }
        let before = self.at_hand(group);
        let state = match way {
            Some(NextHopSet::Hops(members)) => {
                let mut state = self.build_state(memory, hops, (family, group), members);
                state.links = members.iter().map(|hop| hop.link).collect();
                Some(state)
            }
            _ => {
                memory.set_group(group, 0, 0);
                None
            }
        };
        memory.set_inputs(group, state.as_ref().map_or(0, |state| self.input_ports(state)));
        let after = state.as_ref().and_then(|state| state.at_hand);
        let old = match state {
            Some(state) => self.states.insert(group, state),
            None => self.states.remove(&group),
        };
        old.into_iter().for_each(|old| self.release_state(memory, hops, &old));
        before != after
    }

    fn build_state(
        &mut self,
        memory: &Memory,
        hops: &mut HopTable,
        (family, group): (Family, Group),
        members: &[Hop],
    ) -> GroupState {
        if let [Hop { link, gateway: None, .. }] = members
            && !self.tunnels.contains(link)
        {
            memory.set_group(group, 0, 0);
            return GroupState { at_hand: Some(*link), ..GroupState::default() };
        }
        let key = |hop: &Hop| match self.tunnels.contains(&hop.link) {
            true => Some(HopKey::by_tunnel(family, hop.link)),
            false => Some(HopKey::new(family, (hop.link, hop.gateway?))),
        };
        let keys = members.iter().map(key);
        let Some(keys) = keys.collect::<Option<Vec<HopKey>>>() else {
            memory.set_group(group, 0, 0);
            return GroupState::default();
        };
        let places: Vec<u32> = keys.iter().map(|key| hops.acquire_hop(memory, *key)).collect();
        let mut state = GroupState { keys, ..GroupState::default() };
        if let [place] = places[..] {
            memory.set_group(group, place, 1);
            return state;
        }
        let shares = shares(members);
        let count = shares.iter().sum();
        let Some(first) = self.members.allocate(count) else {
            memory.set_group(group, 0, 0);
            return state;
        };
        let each = places.iter().zip(&shares).flat_map(|(place, share)| (0..*share).map(|_| *place));
        let words = &memory.members[first as usize..];
        words.iter().zip(each).for_each(|(word, place)| word.store(place, Relaxed));
        memory.set_group(group, first, count);
        state.members = Some((first, count));
        state
    }

    /// Where sources that a group leads to may come in, by bits.
    fn input_ports(&self, state: &GroupState) -> u64 {
        let ports = state.links.iter().filter_map(|link| self.ports.get(link));
        ports.fold(1 << ROUTED, |inputs, port| inputs | 1 << port)
    }

    /// Notes that an interface is a tunnel, before any next-hop set leads to it.
    pub(super) fn add_tunnel(&mut self, link: u32) {
        self.tunnels.insert(link);
    }

    /// Notes that there is no such tunnel any more.
    pub(super) fn remove_tunnel(&mut self, link: u32) {
        self.tunnels.remove(&link);
    }

    /// Notes the number of the port that an interface is, or that it is none.
    pub(super) fn set_port(&mut self, memory: &Memory, link: u32, port: Option<u32>) {
        let before = match port {
            Some(port) => self.ports.insert(link, port),
            None => self.ports.remove(&link),
        };
        if before != port {
            let there = self.states.iter().filter(|(_, state)| state.links.contains(&link));
            there.for_each(|(group, state)| memory.set_inputs(*group, self.input_ports(state)));
        }
    }

    fn release_state(&mut self, memory: &Memory, hops: &mut HopTable, old: &GroupState) {
        old.keys.iter().for_each(|key| hops.release_hop(memory, *key));
        if let Some((first, count)) = old.members {
            self.members.free_range(first, count);
        }
    }

    /// Returns a group for a neighbor. Without room it is the group that leaves packets to the kernel.
    pub(super) fn acquire_neighbor(
        &mut self,
        memory: &Memory,
        hops: &mut HopTable,
        key: NeighborKey,
    ) -> Group {
        let Some(group) = self.neighbors.allocate(1) else { return KERNEL };
        let family = if key.1.is_ipv6() { Family::V6 } else { Family::V4 };
        let hop = HopKey::new(family, key);
        memory.set_group(group, hops.acquire_hop(memory, hop), 1);
        let state = GroupState { keys: vec![hop], links: vec![key.0], ..GroupState::default() };
        memory.set_inputs(group, self.input_ports(&state));
        self.states.insert(group, state);
        group
    }

    /// Takes back what [`acquire_neighbor`](Self::acquire_neighbor) gave.
    pub(super) fn release_neighbor(&mut self, memory: &Memory, hops: &mut HopTable, group: Group) {
        let Some(state) = self.states.remove(&group) else { return };
        memory.set_group(group, 0, 0);
        memory.set_inputs(group, 0);
        self.release_state(memory, hops, &state);
        self.neighbors.free_range(group, 1);
    }

    /// Whether something waits for runs to end.
    pub(super) fn is_waiting(&self) -> bool {
        self.members.is_waiting() || self.neighbors.is_waiting()
    }

    /// All runs have ended that had begun before the last change.
    pub(super) fn reclaim_waiting(&mut self) {
        self.members.reclaim_waiting();
        self.neighbors.reclaim_waiting();
    }
}

/// How many members each hop has: its weight, or its part of [`MOST_SHARES`], at least one.
fn shares(hops: &[Hop]) -> Vec<u32> {
    let total: u32 = hops.iter().map(|hop| u32::from(hop.weight.max(1))).sum();
    let share = |hop: &Hop| {
        let weight = u32::from(hop.weight.max(1));
        if total <= MOST_SHARES { weight } else { (weight * MOST_SHARES / total).max(1) }
    };
    hops.iter().take(MOST_SHARES as usize / 2).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_weights_or_parts_of_what_there_is_room_for() {
        let of = |weights: &[u16]| {
            let hop = |weight: &u16| Hop { link: 1, gateway: None, weight: *weight };
            shares(&weights.iter().map(hop).collect::<Vec<_>>())
        };
        assert_eq!(of(&[1, 1, 2]), [1, 1, 2]);
        assert_eq!(of(&[256, 256, 512, 1]), [63, 63, 127, 1]);
        assert!(of(&[256; 300]).iter().sum::<u32>() <= MOST_SHARES);
        let uneven = of(&[&[256][..], &[1; 127]].concat()).iter().sum();
        assert!(IndexPool::new(0, 1024).allocate(uneven).is_some(), "there is room for {uneven}");
    }
}
