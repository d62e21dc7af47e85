//! L: the unified design of 4.4BSD, with the locks of FreeBSD 7.
//!
//! One tree holds prefixes, routes by routers, and an entry for each neighbor, cloned from the prefix it is
//! in. An entry has a mutex that guards all of it, its count of references too. A sender looks up the entry
//! of the destination; if that is a route by a router, its `gwroute` leads to the router's own entry, which
//! has the link address. A reference keeps an entry, not its link information: to read that the mutex is
//! needed, and if it is gone, it is resolved again.

use super::lock::{Exclusive, Locks};
use super::network::{Control, Interface, MOST_HELD, Mac, Packet, Sender, Sent, one_by_one};
use super::tree::{Full, NONE, Tree};
use artery_lpm::Prefix;
use std::collections::VecDeque;

/// It is in the tree.
const UP: u16 = 1;
/// It goes by a router.
const GATEWAY: u16 = 2;
/// It is for one address.
const HOST: u16 = 4;
/// Neighbors' entries are cloned from it.
const CLONING: u16 = 8;
/// It was cloned, and has link information, or has to get it.
const LLINFO: u16 = 16;

/// How often a packet's route is looked up again when others change it meanwhile.
const MOST_TRIES: usize = 8;

/// An entry, by number.
type Id = u32;

/// What the link layer knows of a neighbor.
#[derive(Default)]
struct LinkInfo {
    mac: Option<Mac>,
    is_static: bool,
    held: VecDeque<Packet>,
}

/// An entry of the tree, as its mutex guards it.
struct Entry {
    prefix: Prefix<u32>,
    flags: u16,
    interface: Interface,
    /// Address of the router, for routes by one.
    gateway: u32,
    /// What it was cloned from.
    parent: Option<Id>,
    /// The entry of the router.
    gwroute: Option<Id>,
    link: Option<Box<LinkInfo>>,
    references: u32,
    uses: u64,
}

/// The tree, and the entries that are not in use.
struct Head {
    tree: Tree,
    free: Vec<Id>,
}

pub(super) struct Legacy<L: Locks> {
    head: L::Mutex<Head>,
    entries: Box<[L::Mutex<Entry>]>,
    /// Addresses that the link layer asks for.
    asked: L::Mutex<Vec<u32>>,
}

/// What a look at the entries has found.
enum Step {
    Done(Sent),
    /// The entry is out of the tree.
    Gone,
    /// The router has no entry, or none that is in the tree.
    NoGateway(u32),
    /// The entry has no link information.
    NoLink(Id),
}

impl<L: Locks> Legacy<L> {
    /// A table with room for so many entries.
    pub(super) fn new(most: usize) -> Legacy<L> {
        let head = Head { tree: Tree::new(most), free: (0..most as u32).rev().collect() };
        Legacy {
            head: L::Mutex::new(head),
            entries: (0..most).map(|_| L::Mutex::new(Entry::at(Prefix::ALL))).collect(),
            asked: L::Mutex::new(Vec::new()),
        }
    }

    fn entry(&self, id: Id) -> &L::Mutex<Entry> {
        &self.entries[id as usize]
    }

    /// Finds the entry for an address and takes a reference; a neighbor that has none gets it.
    fn lookup(&self, address: u32) -> Option<Id> {
        let (id, flags) = self.head.with(|head| {
            let id = Some(head.tree.lookup(address)).filter(|id| *id != NONE)?;
            Some((id, self.refer(id)))
        })?;
        if flags & CLONING == 0 {
            return Some(id);
        }
        self.release(id);
        self.clone_for(address)
    }

    /// Takes a reference to an entry of the tree.
    fn refer(&self, id: Id) -> u16 {
        self.entry(id).with(|entry| {
            entry.references += 1;
            entry.uses += 1;
            entry.flags
        })
    }

    /// Gives a reference back. Memory is free when the last one is and the entry is out of the tree.
    fn release(&self, id: Id) {
        let gone = self.entry(id).with(|entry| {
            entry.references -= 1;
            let is_gone = entry.references == 0 && entry.flags & UP == 0;
            is_gone.then(|| [entry.parent.take(), entry.gwroute.take()])
        });
        let Some(refers_to) = gone else { return };
        self.head.with(|head| head.free.push(id));
        refers_to.into_iter().flatten().for_each(|other| self.release(other));
    }

    /// Puts a neighbor's entry into the tree, unless another thread was faster, and takes a reference.
    fn clone_for(&self, address: u32) -> Option<Id> {
        let (id, is_new) = self.head.with(|head| {
            let parent = Some(head.tree.lookup(address)).filter(|id| *id != NONE)?;
            let flags = self.refer(parent);
            if flags & CLONING == 0 {
                return Some((parent, false));
            }
            let interface = self.entry(parent).with(|entry| entry.interface);
            let (prefix, flags) = (Prefix::of(address, 32), HOST | LLINFO);
            // The clone keeps the reference to its parent.
            let id = self.add(head, prefix, |entry| {
                *entry = Entry { flags, interface, parent: Some(parent), references: 1, ..Entry::at(prefix) };
            });
            match id {
                Ok(id) => Some((id, true)),
                // The neighbor gets no entry for lack of memory; the caller drops the reference.
                Err(Full) => Some((parent, false)),
            }
        })?;
        if is_new {
            self.resolve(id);
        } else if self.entry(id).with(|entry| entry.flags & CLONING != 0) {
            self.release(id);
            return None;
        }
        Some(id)
    }

    /// Adds an entry to the tree.
    fn add(&self, head: &mut Head, prefix: Prefix<u32>, fill: impl FnOnce(&mut Entry)) -> Result<Id, Full> {
        let id = head.free.pop().ok_or(Full)?;
        if let Err(full) = head.tree.insert(prefix, id) {
            head.free.push(id);
            return Err(full);
        }
        self.entry(id).with(|entry| {
            fill(entry);
            entry.flags |= UP;
        });
        Ok(id)
    }

    /// RESOLVE: the link layer makes its part of an entry and asks for the address.
    fn resolve(&self, id: Id) {
        let address = self.entry(id).with(|entry| {
            let is_wanted = entry.flags & (UP | LLINFO) == UP | LLINFO && entry.link.is_none();
            is_wanted.then(|| {
                entry.link = Some(Box::default());
                entry.prefix.first()
            })
        });
        if let Some(address) = address {
            self.asked.with(|asked| asked.push(address));
        }
    }

    fn output(&self, packet: Packet) -> Sent {
        for _ in 0..MOST_TRIES {
            let Some(id) = self.lookup(packet.destination) else { return Sent::NoRoute };
            let sent = self.check(id, packet);
            self.release(id);
            if let Some(sent) = sent {
                return sent;
            }
        }
        Sent::NoRoute
    }

    /// Finds the link address for a packet whose entry is referred to; none if the entry has left the tree.
    fn check(&self, id: Id, packet: Packet) -> Option<Sent> {
        for _ in 0..MOST_TRIES {
            match self.resolve_entry(id, packet) {
                Step::Done(sent) => return Some(sent),
                Step::Gone => return None,
                Step::NoLink(id) => self.resolve(id),
                Step::NoGateway(address) => {
                    if !self.find_gateway(id, address) {
                        return Some(Sent::NoRoute);
                    }
                }
            }
        }
        Some(Sent::NoRoute)
    }

    /// Looks at an entry, and at the router's while the entry is locked.
    fn resolve_entry(&self, id: Id, packet: Packet) -> Step {
        self.entry(id).with(|entry| {
            if entry.flags & UP == 0 {
                return Step::Gone;
            }
            if entry.flags & GATEWAY == 0 {
                return entry.link_step(id, packet);
            }
            let Some(router) = entry.gwroute else { return Step::NoGateway(entry.gateway) };
            self.entry(router).with(|router_entry| match router_entry.flags & UP {
                0 => Step::NoGateway(entry.gateway),
                _ => router_entry.link_step(router, packet),
            })
        })
    }

    /// Lets a route know the entry of its router; false if there is no way to that.
    fn find_gateway(&self, id: Id, address: u32) -> bool {
        let Some(router) = self.lookup(address) else { return false };
        if self.entry(router).with(|entry| entry.flags & LLINFO == 0) {
            self.release(router);
            return false;
        }
        // Another thread may have found it too: the last one counts.
        if let Some(other) = self.entry(id).with(|entry| entry.gwroute.replace(router)) {
            self.release(other);
        }
        true
    }

    /// Takes an entry out of the tree; the caller releases it later.
    fn unlink(&self, head: &mut Head, prefix: Prefix<u32>) -> Option<Id> {
        let id = head.tree.remove(prefix)?;
        self.entry(id).with(|entry| {
            entry.flags &= !UP;
            entry.link = None;
            entry.references += 1;
        });
        Some(id)
    }

    /// Takes an entry out of the tree, and frees it if it has no references.
    fn delete(&self, prefix: Prefix<u32>) -> bool {
        let id = self.head.with(|head| self.unlink(head, prefix));
        id.inspect(|id| self.release(*id)).is_some()
    }

    /// Adds an entry in the place of what the prefix may have.
    fn replace_entry(&self, entry: Entry) -> Result<(), Full> {
        self.delete(entry.prefix);
        self.head.with(|head| self.add(head, entry.prefix, |to| *to = entry))?;
        Ok(())
    }

    /// The link layer frees what it knows of a neighbor; the entry stays.
    #[cfg(test)]
    fn free_link(&self, address: u32) {
        let id = self.head.with(|head| head.tree.get(Prefix::of(address, 32)));
        if let Some(id) = id {
            self.entry(id).with(|entry| entry.link = None);
        }
    }

    /// Which entry an address leads to: that of the neighbor, where there is one.
    #[cfg(test)]
    fn route(&self, address: u32) -> Option<super::network::testing::RouteView> {
        let id = self.lookup(address)?;
        let view = self.entry(id).with(|entry| entry.view());
        self.release(id);
        Some(view)
    }

    /// How many nodes are visited on the way to an address.
    pub(super) fn depth(&self, address: u32) -> usize {
        self.head.with(|head| head.tree.find(address).nodes)
    }
}

impl Entry {
    fn at(prefix: Prefix<u32>) -> Entry {
        let (flags, interface, gateway, references, uses) = (0, 0, 0, 0, 0);
        Entry { prefix, flags, interface, gateway, parent: None, gwroute: None, link: None, references, uses }
    }

    /// What the link information says about a packet.
    fn link_step(&mut self, id: Id, packet: Packet) -> Step {
        match &mut self.link {
            Some(link) => Step::Done(match link.mac {
                Some(mac) => Sent::Out(self.interface, mac),
                None => link.hold(packet),
            }),
            None if self.flags & LLINFO != 0 => Step::NoLink(id),
            None => Step::Done(Sent::NoRoute),
        }
    }

    #[cfg(test)]
    fn view(&self) -> super::network::testing::RouteView {
        super::network::testing::RouteView { prefix: self.prefix, is_neighbor: self.flags & LLINFO != 0 }
    }
}

impl LinkInfo {
    fn hold(&mut self, packet: Packet) -> Sent {
        if self.held.len() == MOST_HELD {
            self.held.pop_front();
        }
        self.held.push_back(packet);
        Sent::Held
    }
}

impl<L: Locks> Control for Legacy<L> {
    fn connect(&self, prefix: Prefix<u32>, interface: Interface) -> Result<(), Full> {
        self.replace_entry(Entry { flags: CLONING, interface, ..Entry::at(prefix) })
    }

    /// Walks the whole tree, which is locked meanwhile, for the entries that were cloned from the prefix.
    fn disconnect(&self, prefix: Prefix<u32>) -> usize {
        let gone = self.head.with(|head| {
            let Some(parent) = head.tree.get(prefix) else { return Vec::new() };
            let mut clones = Vec::new();
            head.tree.walk(|clone, id| {
                if self.entry(id).with(|entry| entry.parent == Some(parent)) {
                    clones.push(clone);
                }
            });
            clones.into_iter().chain([prefix]).filter_map(|prefix| self.unlink(head, prefix)).collect()
        });
        gone.iter().for_each(|id| self.release(*id));
        gone.len().saturating_sub(1)
    }

    fn add_route(&self, prefix: Prefix<u32>, gateway: u32) -> Result<(), Full> {
        self.replace_entry(Entry { flags: GATEWAY, gateway, ..Entry::at(prefix) })
    }

    fn delete_route(&self, prefix: Prefix<u32>) -> bool {
        self.delete(prefix)
    }

    fn learn(&self, address: u32, mac: Mac) -> Vec<Packet> {
        let Some(id) = self.lookup(address) else { return Vec::new() };
        self.resolve(id);
        let held = self.entry(id).with(|entry| {
            let link = entry.link.as_mut().filter(|link| !link.is_static);
            link.map(|link| {
                link.mac = Some(mac);
                std::mem::take(&mut link.held)
            })
        });
        self.release(id);
        held.unwrap_or_default().into()
    }

    fn forget(&self, address: u32) -> bool {
        self.delete(Prefix::of(address, 32))
    }
}

/// A thread that sends.
pub(super) struct LegacySender<'a, L: Locks>(pub(super) &'a Legacy<L>);

impl<L: Locks> Sender for LegacySender<'_, L> {
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        one_by_one(packets, sent, |packet| self.0.output(packet));
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::{Alone, Plain, Watched, take_tally};
    use super::super::network::testing::*;
    use super::*;

    fn legacy() -> Legacy<Plain> {
        Legacy::new(100)
    }

    fn in_use<L: Locks>(table: &Legacy<L>) -> usize {
        table.entries.len() - table.head.with(|head| head.free.len())
    }

    #[test]
    fn it_follows_changes_with_every_kind_of_locks() {
        let plain = legacy();
        follows_changes(&plain, &mut LegacySender(&plain));
        let alone = Legacy::<Alone>::new(100);
        follows_changes(&alone, &mut LegacySender(&alone));
    }

    #[test]
    fn neighbors_are_in_the_tree_of_routes() {
        let table = legacy();
        furnish(&table);
        let wanted = |text: &str, is_neighbor| Some(RouteView { prefix: prefix(text), is_neighbor });
        assert_eq!(table.route(ip("8.8.8.8")), wanted("0.0.0.0/0", false));
        assert_eq!(table.head.with(|head| head.tree.prefixes()), 3);
        // T15: a lookup of the route of a neighbor returns the clone.
        assert_eq!(table.route(ip("10.0.0.5")), wanted("10.0.0.5/32", true));
        assert_eq!(table.head.with(|head| head.tree.prefixes()), 4);
        assert_eq!(table.asked.with(|asked| asked.clone()), [ip("10.0.0.5")]);
    }

    #[test]
    fn a_prefix_that_is_deleted_leaves_no_orphan() {
        let table = legacy();
        furnish(&table);
        for host in 1..=20 {
            table.learn(ip("10.1.0.0") + host, B);
        }
        table.learn(ip("10.0.0.1"), A);
        assert_eq!(one(&mut LegacySender(&table), "8.8.8.8"), Sent::Out(0, A));
        assert_eq!(in_use(&table), 3 + 21);
        assert_eq!(table.disconnect(prefix("10.1.0.0/16")), 20);
        // Two networks less one, the default route, and its router.
        assert_eq!(in_use(&table), 3);
        // The route still refers to the router when that has gone with its network.
        assert_eq!(table.disconnect(prefix("10.0.0.0/16")), 1);
        assert_eq!(in_use(&table), 1 + 2);
        assert!(table.delete_route(prefix("0.0.0.0/0")));
        assert_eq!(in_use(&table), 0, "its router, and the network that was cloned from, went with it");
    }

    #[test]
    fn link_information_that_was_freed_under_a_reference_is_asked_for_again() {
        let table = legacy();
        furnish(&table);
        table.learn(ip("10.0.0.1"), A);
        // T17: a caller that caches the route does not look it up again.
        let cached = table.lookup(ip("8.8.8.8")).unwrap();
        assert_eq!(table.check(cached, packet("8.8.8.8", 0)), Some(Sent::Out(0, A)));
        table.free_link(ip("10.0.0.1"));
        table.asked.with(Vec::clear);
        assert_eq!(table.check(cached, packet("8.8.8.8", 0)), Some(Sent::Held));
        assert_eq!(table.asked.with(|asked| asked.clone()), [ip("10.0.0.1")]);
        table.learn(ip("10.0.0.1"), B);
        assert_eq!(table.check(cached, packet("8.8.8.8", 0)), Some(Sent::Out(0, B)));
        // When its entry has gone, it has to be looked up.
        table.delete_route(prefix("0.0.0.0/0"));
        assert_eq!(table.check(cached, packet("8.8.8.8", 0)), None);
        let before = in_use(&table);
        table.release(cached);
        assert_eq!(in_use(&table), before - 1, "the last reference frees it");
    }

    #[test]
    fn the_latest_packets_are_held_in_order() {
        let table = legacy();
        holds_the_latest(&table, &mut LegacySender(&table));
    }

    #[test]
    fn static_neighbors_are_not_overwritten() {
        let table = legacy();
        furnish(&table);
        table.learn(ip("10.0.0.1"), A);
        let id = table.lookup(ip("10.0.0.1")).unwrap();
        table.entry(id).with(|entry| entry.link.as_mut().unwrap().is_static = true);
        table.release(id);
        table.learn(ip("10.0.0.1"), B);
        assert_eq!(one(&mut LegacySender(&table), "8.8.8.8"), Sent::Out(0, A));
    }

    #[test]
    fn a_packet_by_a_router_takes_five_locks() {
        let table = Legacy::<Watched>::new(100);
        furnish(&table);
        table.learn(ip("10.0.0.1"), A);
        let mut sender = LegacySender(&table);
        one(&mut sender, "8.8.8.8");
        take_tally();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
        // The tree; the route when it is looked up, checked and released; its router.
        assert_eq!(take_tally().locks, 5);
        one(&mut sender, "10.0.0.1");
        assert_eq!(take_tally().locks, 4);
    }

    #[test]
    fn a_full_table_refuses_neighbors_and_goes_on() {
        let table = Legacy::<Plain>::new(4);
        furnish(&table);
        table.learn(ip("10.0.0.1"), A);
        let mut sender = LegacySender(&table);
        assert_eq!(one(&mut sender, "10.0.0.2"), Sent::NoRoute);
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
        assert_eq!(table.add_route(prefix("9.0.0.0/8"), ip("10.0.0.1")), Err(Full));
    }
}
