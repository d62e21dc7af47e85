//! A sink that only records what it received: for tests, and for inspection.
use super::{Exclusion, FibBinding, NextHopSet, NextHopSetId, Sink};
use crate::kernel::{Family, Link};
use artery_lpm::{Address, Prefix};
use artery_wire::EtherAddr;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// The routes of a VRF.
#[derive(Clone, Debug, Default)]
pub struct VrfRoutes {
    /// The routes of IPv4.
    pub v4: BTreeMap<Prefix<u32>, NextHopSetId>,
    /// The routes of IPv6.
    pub v6: BTreeMap<Prefix<u128>, NextHopSetId>,
}

/// Everything that a sink received.
#[derive(Clone, Debug, Default)]
pub struct RecordingSink {
    /// Next-hop sets by their number.
    pub next_hop_sets: HashMap<NextHopSetId, NextHopSet>,
    /// The routes of IPv4.
    pub v4: BTreeMap<Prefix<u32>, NextHopSetId>,
    /// The routes of IPv6.
    pub v6: BTreeMap<Prefix<u128>, NextHopSetId>,
    /// The neighbors that packets can be sent to.
    pub neighbors: HashMap<(u32, IpAddr), EtherAddr>,
    /// Interfaces by the kernel's index.
    pub links: HashMap<u32, Link>,
    /// Which packets of IPv4 and IPv6 stay with the kernel.
    pub exclusions: [Exclusion; 2],
    /// Whether routes of VRFs are received, too.
    pub follows_vrfs: bool,
    /// Routes by number of their table.
    pub vrfs: BTreeMap<u32, VrfRoutes>,
    /// By which routes packets that come in by an interface are forwarded, where not by those of no VRF.
    pub bindings: HashMap<u32, FibBinding>,
}

impl RecordingSink {
    /// The next hops for an address; `None` where no prefix contains it.
    pub fn lookup(&self, address: IpAddr) -> Option<&NextHopSet> {
        self.lookup_in(&self.v4, &self.v6, address)
    }

    /// The same for a packet that came in by an interface, by the routes that it is bound to.
    pub fn lookup_from(&self, link: u32, address: IpAddr) -> Option<&NextHopSet> {
        match self.bindings.get(&link).copied().unwrap_or_default() {
            FibBinding::Main => self.lookup(address),
            FibBinding::Vrf(table) => {
                let routes = &self.vrfs[&table];
                self.lookup_in(&routes.v4, &routes.v6, address)
            }
            FibBinding::Kernel => Some(&NextHopSet::Kernel),
        }
    }

    fn lookup_in(
        &self,
        v4: &BTreeMap<Prefix<u32>, NextHopSetId>,
        v6: &BTreeMap<Prefix<u128>, NextHopSetId>,
        address: IpAddr,
    ) -> Option<&NextHopSet> {
        let id = match address {
            IpAddr::V4(address) => lookup_longest(v4, address.to_bits()),
            IpAddr::V6(address) => lookup_longest(v6, address.to_bits()),
        }?;
        if id == NextHopSetId::KERNEL { Some(&NextHopSet::Kernel) } else { self.next_hop_sets.get(&id) }
    }
}

fn lookup_longest<A: Address>(
    routes: &BTreeMap<Prefix<A>, NextHopSetId>,
    address: A,
) -> Option<NextHopSetId> {
    (0..=A::BITS).rev().find_map(|len| routes.get(&Prefix::of(address, len))).copied()
}

impl Sink for RecordingSink {
    fn set_next_hops(&mut self, _: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
        assert_ne!(id, NextHopSetId::KERNEL, "the kernel's set is never sent");
        set_or_remove(&mut self.next_hop_sets, id, way.cloned());
    }
    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.assert_known(way);
        match way {
            Some(way) => drop(self.v4.insert(prefix, way)),
            None => drop(self.v4.remove(&prefix)),
        }
    }
    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.assert_known(way);
        match way {
            Some(way) => drop(self.v6.insert(prefix, way)),
            None => drop(self.v6.remove(&prefix)),
        }
    }
    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        set_or_remove(&mut self.neighbors, (link, address), mac);
    }
    fn set_link(&mut self, index: u32, link: Option<&Link>) {
        set_or_remove(&mut self.links, index, link.cloned());
    }
    fn exclude(&mut self, family: Family, keep: &Exclusion) {
        self.exclusions[(family == Family::V6) as usize] = keep.clone();
    }
    fn follows_vrf(&self, _: &Link) -> bool {
        self.follows_vrfs
    }
    fn bind_link(&mut self, link: u32, binding: FibBinding) {
        set_or_remove(&mut self.bindings, link, (binding != FibBinding::Main).then_some(binding));
    }
    fn begin_vrf(&mut self, table: u32) {
        self.vrfs.entry(table).or_default();
    }
    fn remove_vrf(&mut self, table: u32) {
        assert!(
            !self.bindings.values().any(|binding| *binding == FibBinding::Vrf(table)),
            "{table} is in use"
        );
        self.vrfs.remove(&table);
    }
    fn set_vrf_route4(&mut self, table: u32, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.assert_known(way);
        let routes = self.vrfs.get_mut(&table).expect("the VRF was begun before its routes");
        match way {
            Some(way) => drop(routes.v4.insert(prefix, way)),
            None => drop(routes.v4.remove(&prefix)),
        }
    }
    fn set_vrf_route6(&mut self, table: u32, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.assert_known(way);
        let routes = self.vrfs.get_mut(&table).expect("the VRF was begun before its routes");
        match way {
            Some(way) => drop(routes.v6.insert(prefix, way)),
            None => drop(routes.v6.remove(&prefix)),
        }
    }
}

impl RecordingSink {
    /// Asserts that a next-hop set was received before the first route that leads to it.
    fn assert_known(&self, way: Option<NextHopSetId>) {
        let known = way.is_none_or(|id| id == NextHopSetId::KERNEL || self.next_hop_sets.contains_key(&id));
        assert!(known, "{way:?} was not received");
    }
}

fn set_or_remove<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
