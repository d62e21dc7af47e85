//! A sink that only knows what it was told: for tests, and for who wants to look.
use super::{Keep, Sink, Way, WayId};
use crate::kernel::{Family, Link};
use artery_table::{Address, Prefix};
use artery_wire::EtherAddr;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// What was told to a sink.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    /// The ways.
    pub ways: HashMap<WayId, Way>,
    /// The routes of IPv4.
    pub v4: BTreeMap<Prefix<u32>, WayId>,
    /// The routes of IPv6.
    pub v6: BTreeMap<Prefix<u128>, WayId>,
    /// The neighbors that packets can be sent to.
    pub neighbors: HashMap<(u32, IpAddr), EtherAddr>,
    /// The interfaces.
    pub links: HashMap<u32, Link>,
    /// Which packets of IPv4 and IPv6 stay with the kernel.
    pub keep: [Keep; 2],
}

impl Plain {
    /// The way of packets to an address; none where no prefix holds it.
    pub fn lookup(&self, address: IpAddr) -> Option<&Way> {
        let id = match address {
            IpAddr::V4(address) => longest(&self.v4, address.to_bits()),
            IpAddr::V6(address) => longest(&self.v6, address.to_bits()),
        }?;
        if id == WayId::KERNEL { Some(&Way::Kernel) } else { self.ways.get(&id) }
    }
}

fn longest<A: Address>(routes: &BTreeMap<Prefix<A>, WayId>, address: A) -> Option<WayId> {
    (0..=A::BITS).rev().find_map(|len| routes.get(&Prefix::of(address, len))).copied()
}

impl Sink for Plain {
    fn way(&mut self, id: WayId, way: Option<&Way>) {
        assert_ne!(id, WayId::KERNEL, "nothing is told of the kernel's way");
        set(&mut self.ways, id, way.cloned());
    }
    fn route4(&mut self, prefix: Prefix<u32>, way: Option<WayId>) {
        self.has(way);
        match way {
            Some(way) => drop(self.v4.insert(prefix, way)),
            None => drop(self.v4.remove(&prefix)),
        }
    }
    fn route6(&mut self, prefix: Prefix<u128>, way: Option<WayId>) {
        self.has(way);
        match way {
            Some(way) => drop(self.v6.insert(prefix, way)),
            None => drop(self.v6.remove(&prefix)),
        }
    }
    fn neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        set(&mut self.neighbors, (link, address), mac);
    }
    fn link(&mut self, index: u32, link: Option<&Link>) {
        set(&mut self.links, index, link.cloned());
    }
    fn keep(&mut self, family: Family, keep: &Keep) {
        self.keep[(family == Family::V6) as usize] = keep.clone();
    }
}

impl Plain {
    /// A way must be told before a route leads to it.
    fn has(&self, way: Option<WayId>) {
        let known = way.is_none_or(|id| id == WayId::KERNEL || self.ways.contains_key(&id));
        assert!(known, "{way:?} was not told");
    }
}

fn set<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
