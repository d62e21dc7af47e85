//! Next hops: the neighbors that ways lead to, and how to send to each.
use super::layout::{Hop, MOST_HOPS, Withheld};
use super::memory::Memory;
use super::numbers::Numbers;
use artery_wire::EtherAddr;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A neighbor: its interface and address.
pub(super) type Key = (u32, IpAddr);

/// An interface that packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) mac: EtherAddr,
    pub(super) mtu: u32,
    pub(super) vlan: Option<u16>,
    pub(super) device: u32,
    pub(super) port: u32,
}

#[derive(Debug)]
struct Entry {
    at: u32,
    users: u32,
}

/// The neighbors that are in use, and the link addresses of all that are known.
#[derive(Debug)]
pub(super) struct Hops {
    entries: HashMap<Key, Entry>,
    macs: HashMap<Key, EtherAddr>,
    exits: HashMap<u32, Exit>,
    /// Interfaces by which packets of a family (IPv6 if true) don't leave.
    withheld: HashMap<(bool, u32), Withheld>,
    /// Interfaces by which IPv4 leaves also where it came in.
    returning: HashSet<u32>,
    numbers: Numbers,
    /// What was unset, and is to be put anew once no run sends by what it was.
    changed: HashSet<Key>,
}

impl Hops {
    pub(super) fn new() -> Hops {
        Hops {
            entries: HashMap::new(),
            macs: HashMap::new(),
            exits: HashMap::new(),
            withheld: HashMap::new(),
            returning: HashSet::new(),
            // The first is never ready: it is for whom there is no room.
            numbers: Numbers::new(1, MOST_HOPS as u32),
            changed: HashSet::new(),
        }
    }

    /// The place of a hop, for one more user. Where there is no room it is one that leads to the kernel.
    pub(super) fn take(&mut self, memory: &Memory, key: Key) -> u32 {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.users += 1;
            return entry.at;
        }
        let Some(at) = self.numbers.take(1) else { return 0 };
        self.entries.insert(key, Entry { at, users: 1 });
        self.put(memory, key);
        at
    }

    /// Takes back what [`take`](Self::take) gave.
    pub(super) fn give_back(&mut self, memory: &Memory, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            memory.unset_hop(entry.at);
            self.numbers.give_back(entry.at, 1);
            self.entries.remove(&key);
            self.changed.remove(&key);
        }
    }

    /// Notes a neighbor's link address, or that there is none. Says whether there was one.
    pub(super) fn set_neighbor(&mut self, memory: &Memory, key: Key, mac: Option<EtherAddr>) -> bool {
        let before = match mac {
            Some(mac) => self.macs.insert(key, mac),
            None => self.macs.remove(&key),
        };
        if before != mac {
            self.change(memory, key);
        }
        before.is_some()
    }

    /// Notes how packets leave by an interface, or that none do.
    pub(super) fn set_exit(&mut self, memory: &Memory, link: u32, exit: Option<Exit>) {
        let before = match exit {
            Some(exit) => self.exits.insert(link, exit),
            None => self.exits.remove(&link),
        };
        if before != exit {
            self.change_all(memory, link);
        }
    }

    /// Leaves packets of a family (IPv6 if true) that would go out by an interface to the kernel, or no longer.
    pub(super) fn withhold(&mut self, memory: &Memory, key: (bool, u32), why: Option<Withheld>) {
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
        let there: Vec<Key> = self.entries.keys().filter(|key| key.0 == link).copied().collect();
        there.into_iter().for_each(|key| self.change(memory, key));
    }

    /// The neighbors that packets were sent to since the last call.
    pub(super) fn take_used(&self, memory: &Memory) -> Vec<Key> {
        let used = self.entries.iter().filter(|(_, entry)| memory.take_used(entry.at));
        used.map(|(key, _)| *key).collect()
    }

    fn change(&mut self, memory: &Memory, key: Key) {
        if let Some(entry) = self.entries.get(&key) {
            memory.unset_hop(entry.at);
            self.changed.insert(key);
        }
    }

    fn put(&self, memory: &Memory, key: Key) {
        let (Some(entry), Some(mac)) = (self.entries.get(&key), self.macs.get(&key)) else { return };
        let Some(exit) = self.exits.get(&key.0) else { return };
        // Packets of IPv4 may go by a neighbor of IPv6 (RFC 8950).
        let is_v6 = key.1.is_ipv6();
        let by_v6 = || self.withheld.get(&(true, key.0)).filter(|_| is_v6);
        if let Some(why) = self.withheld.get(&(false, key.0)).or_else(by_v6) {
            return memory.withhold_hop(entry.at, *why);
        }
        let hop = Hop {
            destination: *mac,
            source: exit.mac,
            vlan: exit.vlan,
            mtu: exit.mtu,
            device: exit.device,
            port: exit.port,
            // The kernel redirects packets of IPv6 whatever is set.
            returns: !is_v6 && self.returning.contains(&key.0),
        };
        memory.put_hop(entry.at, &hop);
    }

    /// Whether something waits for runs to end.
    pub(super) fn is_waiting(&self) -> bool {
        self.numbers.is_waiting() || !self.changed.is_empty()
    }

    /// All runs have ended that had begun before the last change.
    pub(super) fn settle(&mut self, memory: &Memory) {
        self.numbers.settle();
        for key in std::mem::take(&mut self.changed) {
            self.put(memory, key);
        }
    }
}
