//! S: the split design of FreeBSD 8. Routes know interfaces and routers, nothing of link addresses.
//!
//! The tree is read under a lock for readers and writers; an entry still has a mutex that guards its count of
//! references. What a lookup gives, interface and next hop, goes to the link layer, which keeps neighbors by
//! interface (`lltable.rs`) and finds the link address alone.

use super::lltable::{Lle, Lltable};
use super::lock::{Exclusive, Locks, Shared};
use super::network::{Control, INTERFACES, Interface, Mac, Packet, Sender, Sent, one_by_one};
use super::tree::{Full, NONE, Tree};
use artery_lpm::Prefix;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// An entry, by number.
pub(super) type Id = u32;

/// What a packet is handed to the link layer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) interface: Interface,
    /// The router, or the destination itself.
    pub(super) address: u32,
}

/// A route, as its mutex guards it.
struct Route {
    prefix: Prefix<u32>,
    interface: Interface,
    gateway: Option<u32>,
    references: u32,
    uses: u64,
}

/// A route that others may keep: whether it is still in the tree can be seen without its mutex.
struct Entry<L: Locks> {
    is_up: AtomicBool,
    route: L::Mutex<Route>,
}

/// The tree, and the entries that are not in use.
struct Head {
    tree: Tree,
    free: Vec<Id>,
}

pub(super) struct Split<L: Locks> {
    head: L::Rw<Head>,
    entries: Box<[Entry<L>]>,
    /// How many routes were deleted, for those who keep some.
    deleted: AtomicU64,
    links: [Lltable<L, u32>; INTERFACES],
}

impl<L: Locks> Split<L> {
    /// Tables with room for so many routes; neighbors take what they need.
    pub(super) fn new(most: usize) -> Split<L> {
        let empty = || Route { prefix: Prefix::ALL, interface: 0, gateway: None, references: 0, uses: 0 };
        let entry = |_| Entry { is_up: AtomicBool::new(false), route: L::Mutex::new(empty()) };
        let head = Head { tree: Tree::new(most), free: (0..most as u32).rev().collect() };
        Split {
            head: L::Rw::new(head),
            entries: (0..most).map(entry).collect(),
            deleted: AtomicU64::new(0),
            links: std::array::from_fn(|_| Lltable::new()),
        }
    }

    fn entry(&self, id: Id) -> &Entry<L> {
        &self.entries[id as usize]
    }

    /// Finds the route for an address and takes a reference.
    #[inline]
    pub(super) fn lookup(&self, address: u32) -> Option<(Id, Hop)> {
        self.head.read(|head| {
            let id = Some(head.tree.lookup(address)).filter(|id| *id != NONE)?;
            let hop = self.entry(id).route.with(|route| {
                route.references += 1;
                route.uses += 1;
                Hop { interface: route.interface, address: route.gateway.unwrap_or(address) }
            });
            Some((id, hop))
        })
    }

    /// Gives a reference back. Memory is free when the last one is and the route is out of the tree.
    #[inline]
    pub(super) fn release(&self, id: Id) {
        let entry = self.entry(id);
        let is_gone = entry.route.with(|route| {
            route.references -= 1;
            route.references == 0 && !entry.is_up.load(Relaxed)
        });
        if is_gone {
            self.head.write(|head| head.free.push(id));
        }
    }

    /// Whether a route that is referred to is still in the tree.
    #[inline]
    pub(super) fn is_up(&self, id: Id) -> bool {
        self.entry(id).is_up.load(Acquire)
    }

    /// How many routes were deleted so far.
    #[inline]
    pub(super) fn deleted(&self) -> u64 {
        self.deleted.load(Acquire)
    }

    /// The link layer's part of sending.
    #[inline]
    pub(super) fn link_output(&self, hop: Hop, packet: Packet) -> Sent {
        match self.links[usize::from(hop.interface)].resolve(hop.address, packet) {
            Some(mac) => Sent::Out(hop.interface, mac),
            None => Sent::Held,
        }
    }

    /// A reference to a neighbor, to be kept.
    pub(super) fn neighbor(&self, hop: Hop) -> L::Ref<Lle<L>> {
        self.links[usize::from(hop.interface)].refer(hop.address)
    }

    fn output(&self, packet: Packet) -> Sent {
        let Some((id, hop)) = self.lookup(packet.destination) else { return Sent::NoRoute };
        let sent = self.link_output(hop, packet);
        self.release(id);
        sent
    }

    fn insert_route(&self, route: Route) -> Result<(), Full> {
        self.delete(route.prefix);
        self.head.write(|head| {
            let id = head.free.pop().ok_or(Full)?;
            if let Err(full) = head.tree.insert(route.prefix, id) {
                head.free.push(id);
                return Err(full);
            }
            self.entry(id).route.with(|to| *to = route);
            self.entry(id).is_up.store(true, Release);
            Ok(())
        })
    }

    fn delete(&self, prefix: Prefix<u32>) -> bool {
        let Some(id) = self.head.write(|head| head.tree.remove(prefix)) else { return false };
        self.entry(id).route.with(|route| {
            self.entry(id).is_up.store(false, Release);
            route.references += 1;
        });
        self.release(id);
        self.deleted.fetch_add(1, Release);
        true
    }

    /// Which route an address takes.
    #[cfg(test)]
    pub(super) fn route(&self, address: u32) -> Option<super::network::testing::RouteView> {
        let (id, _) = self.lookup(address)?;
        let prefix = self.entry(id).route.with(|route| route.prefix);
        self.release(id);
        Some(super::network::testing::RouteView { prefix, is_neighbor: false })
    }

    /// Entries that are in use.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.entries.len() - self.head.read(|head| head.free.len())
    }

    /// How many nodes are visited on the way to an address.
    pub(super) fn depth(&self, address: u32) -> usize {
        self.head.read(|head| head.tree.find(address).nodes)
    }

    /// The interface that a neighbor is on.
    fn link_of(&self, address: u32) -> Option<&Lltable<L, u32>> {
        let (id, hop) = self.lookup(address)?;
        self.release(id);
        (hop.address == address).then(|| &self.links[usize::from(hop.interface)])
    }
}

impl<L: Locks> Control for Split<L> {
    fn connect(&self, prefix: Prefix<u32>, interface: Interface) -> Result<(), Full> {
        self.insert_route(Route { prefix, interface, gateway: None, references: 0, uses: 0 })
    }

    /// Takes no look at other routes, nor at neighbors of other interfaces.
    fn disconnect(&self, prefix: Prefix<u32>) -> usize {
        let Some(id) = self.head.read(|head| head.tree.get(prefix)) else { return 0 };
        let interface = self.entry(id).route.with(|route| route.interface);
        self.delete(prefix);
        self.links[usize::from(interface)].forget_all(|address| prefix.contains(*address))
    }

    fn add_route(&self, prefix: Prefix<u32>, gateway: u32) -> Result<(), Full> {
        let interface = self.lookup(gateway).map(|(id, hop)| {
            self.release(id);
            hop.interface
        });
        let interface = interface.unwrap_or(0);
        self.insert_route(Route { prefix, interface, gateway: Some(gateway), references: 0, uses: 0 })
    }

    fn delete_route(&self, prefix: Prefix<u32>) -> bool {
        self.delete(prefix)
    }

    fn learn(&self, address: u32, mac: Mac) -> Vec<Packet> {
        self.link_of(address).map(|link| link.learn(address, mac)).unwrap_or_default()
    }

    fn forget(&self, address: u32) -> bool {
        self.link_of(address).is_some_and(|link| link.forget(address))
    }
}

/// A thread that sends.
pub(super) struct SplitSender<'a, L: Locks>(pub(super) &'a Split<L>);

impl<L: Locks> Sender for SplitSender<'_, L> {
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        one_by_one(packets, sent, |packet| self.0.output(packet));
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::{Alone, Plain, Watched, take_tally};
    use super::super::network::testing::*;
    use super::*;

    #[test]
    fn it_follows_changes_with_every_kind_of_locks() {
        let plain = Split::<Plain>::new(10);
        follows_changes(&plain, &mut SplitSender(&plain));
        let alone = Split::<Alone>::new(10);
        follows_changes(&alone, &mut SplitSender(&alone));
        assert_eq!(plain.in_use(), 1);
    }

    #[test]
    fn neighbors_are_not_in_the_tree_of_routes() {
        let table = Split::<Plain>::new(10);
        furnish(&table);
        for host in 1..100 {
            table.learn(ip("10.0.0.0") + host, A);
        }
        assert_eq!(Shared::read(&table.head, |head: &Head| head.tree.prefixes()), 3);
        // T15: a lookup of the route of a neighbor returns the prefix.
        let wanted = RouteView { prefix: prefix("10.0.0.0/16"), is_neighbor: false };
        assert_eq!(table.route(ip("10.0.0.5")), Some(wanted));
    }

    #[test]
    fn a_prefix_that_is_deleted_takes_its_neighbors_along_and_no_others() {
        let table = Split::<Plain>::new(10);
        furnish(&table);
        (1..=20).for_each(|host| _ = table.learn(ip("10.1.0.0") + host, B));
        table.learn(ip("10.0.0.1"), A);
        assert_eq!(table.disconnect(prefix("10.1.0.0/16")), 20);
        assert_eq!((table.in_use(), table.links[0].len(), table.links[1].len()), (2, 1, 0));
    }

    #[test]
    fn a_route_that_is_referred_to_stays_until_it_is_let_go() {
        let table = Split::<Plain>::new(10);
        furnish(&table);
        let (kept, hop) = table.lookup(ip("8.8.8.8")).unwrap();
        assert_eq!(hop, Hop { interface: 0, address: ip("10.0.0.1") });
        assert!(table.is_up(kept));
        table.delete_route(prefix("0.0.0.0/0"));
        assert!(!table.is_up(kept));
        assert_eq!((table.deleted(), table.in_use()), (1, 3));
        table.release(kept);
        assert_eq!(table.in_use(), 2);
    }

    #[test]
    fn a_packet_takes_five_locks() {
        let table = Split::<Watched>::new(10);
        furnish(&table);
        table.learn(ip("10.0.0.1"), A);
        take_tally();
        assert_eq!(one(&mut SplitSender(&table), "8.8.8.8"), Sent::Out(0, A));
        // The tree, the route, the neighbors of the interface, the neighbor, the route again.
        assert_eq!(take_tally().locks, 5);
    }
}
