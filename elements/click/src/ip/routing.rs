//! A routing table that the copies of an element on all workers share: one writer under a lock that no
//! packet takes, and readers.
use super::next_hops::{HopReader, NextHops};
use super::outputs::{self, NONE, Unrouted};
use super::slots::{SlotOrder, Slots};
use artery_engine::{Args, Batch, Context, Element, Packet};
use artery_lpm::{Family, Group, NO_GROUP, Policy, Prefix, RouteReader, RouteTable, TableError};
use artery_rcu::Turn;
use artery_storage::HugePages;
use std::sync::{Arc, Mutex, MutexGuard};

/// An address family that packets are routed by.
pub(crate) trait Routed: Family {
    /// The destination of a packet, from its annotation.
    fn packet_destination(packet: &Packet) -> Self;
    /// Sets the destination annotation to a gateway.
    fn set_destination(packet: &mut Packet, gateway: Self);
}

impl Routed for u32 {
    #[inline]
    fn packet_destination(packet: &Packet) -> u32 {
        packet.dst_ip().to_bits()
    }
    #[inline]
    fn set_destination(packet: &mut Packet, gateway: u32) {
        packet.set_dst_ip(gateway.into());
    }
}

impl Routed for u128 {
    #[inline]
    fn packet_destination(packet: &Packet) -> u128 {
        u128::from_be_bytes(packet.annotation(artery_engine::anno::DST_IP6))
    }
    #[inline]
    fn set_destination(packet: &mut Packet, gateway: u128) {
        packet.set_annotation(artery_engine::anno::DST_IP6, gateway.to_be_bytes());
    }
}

/// A next hop: an output, and the gateway, unless packets go to their destination directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hop<A> {
    pub(crate) gateway: Option<A>,
    pub(crate) output: u16,
}

/// A prefix and its next hop.
pub(crate) type RouteEntry<A> = (Prefix<A>, Hop<A>);

/// What the copies of an element share.
pub(crate) struct Routing<A: Routed> {
    writer: Mutex<TableWriter<A>>,
    routes: RouteReader<A>,
    hops: HopReader<Hop<A>>,
}

impl<A: Routed> Routing<A> {
    /// An empty table. With an `order`, routes are listed in that, else by prefix.
    pub(crate) fn new(
        args: &Args<'_>,
        policy: Policy<A>,
        order: Option<SlotOrder>,
    ) -> Result<Routing<A>, TableError> {
        let table = RouteTable::new(args.domain(), policy, Arc::new(HugePages))?;
        let hops = NextHops::new(args.domain());
        let (routes, reader) = (table.reader(), hops.reader());
        let writer = TableWriter { table, given: Vec::new(), hops, slots: order.map(Slots::new) };
        Ok(Routing { writer: Mutex::new(writer), routes, hops: reader })
    }

    /// Locks the table for a change.
    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, TableWriter<A>> {
        self.writer.lock().unwrap_or_else(|error| error.into_inner())
    }
}

/// The writer's half of the table.
pub(crate) struct TableWriter<A: Routed> {
    pub(crate) table: RouteTable<A>,
    /// The routes of the arguments, for elements whose other routes come from a file that may be read again.
    pub(crate) given: Vec<RouteEntry<A>>,
    hops: NextHops<Hop<A>>,
    slots: Option<Slots<A>>,
}

impl<A: Routed> TableWriter<A> {
    /// The next hop of exactly this prefix.
    pub(crate) fn get(&self, prefix: Prefix<A>) -> Option<Hop<A>> {
        self.hops.hop(self.table.get(prefix)?)
    }

    /// Where packets for an address go.
    pub(crate) fn lookup_hop(&self, address: A) -> Option<Hop<A>> {
        let (_, group) = self.table.lookup(address)?;
        self.hops.hop(group)
    }

    /// Adds a route, or replaces that of its prefix.
    pub(crate) fn insert(&mut self, prefix: Prefix<A>, hop: Hop<A>) -> Result<(), TableError> {
        let group = self.hops.acquire(hop);
        // Published before the route, so that a reader that sees the route knows its next hop.
        self.hops.publish();
        match self.table.insert(prefix, group) {
            Ok(replaced) => {
                replaced.into_iter().for_each(|group| self.hops.release(group));
                self.slots.iter_mut().for_each(|slots| slots.assign_slot(prefix));
                Ok(())
            }
            Err(error) => {
                self.hops.release(group);
                Err(error)
            }
        }
    }

    /// Removes the route of a prefix; returns its next hop.
    pub(crate) fn delete(&mut self, prefix: Prefix<A>) -> Option<Hop<A>> {
        let group = self.table.remove(prefix)?;
        let hop = self.hops.hop(group);
        self.hops.release(group);
        self.slots.iter_mut().for_each(|slots| slots.free_slot(prefix));
        hop
    }

    /// All routes, in the order in which they are listed.
    pub(crate) fn routes(&self) -> Box<dyn Iterator<Item = RouteEntry<A>> + '_> {
        match &self.slots {
            Some(slots) => Box::new(slots.prefixes().filter_map(|prefix| Some((prefix, self.get(prefix)?)))),
            None => Box::new(
                self.table.iter().filter_map(|(prefix, group)| Some((prefix, self.hops.hop(group)?))),
            ),
        }
    }

    /// Replaces all routes at once; of several for a prefix the last counts. On an error the old ones stay.
    pub(crate) fn replace_all(&mut self, routes: &[RouteEntry<A>]) -> Result<(), TableError> {
        let old: Vec<Group> = self.table.iter().map(|(_, group)| group).collect();
        let mut new: Vec<(Prefix<A>, Group)> =
            routes.iter().map(|(prefix, hop)| (*prefix, self.hops.acquire(*hop))).collect();
        self.hops.publish();
        if let Err(error) = self.table.load_routes(new.iter().copied()) {
            new.iter().for_each(|(_, group)| self.hops.release(*group));
            return Err(error);
        }
        old.into_iter().for_each(|group| self.hops.release(group));
        if let Some(slots) = &mut self.slots {
            slots.clear();
            new.iter().for_each(|(prefix, _)| slots.assign_slot(*prefix));
        }
        // Release the next hops of routes that were ignored.
        new.reverse();
        let mut seen = std::collections::HashSet::with_capacity(new.len());
        for (prefix, group) in new {
            if !seen.insert(prefix) {
                self.hops.release(group);
            }
        }
        Ok(())
    }
}

/// An element that routes by such a table.
pub(crate) struct TableLookup<A: Routed> {
    pub(crate) routing: Arc<Routing<A>>,
    routes: RouteReader<A>,
    hops: HopReader<Hop<A>>,
    /// For the packets of a batch: destinations, groups of their routes, outputs. Kept to reuse their memory.
    addresses: Vec<A>,
    groups: Vec<Group>,
    outputs: Vec<u16>,
    unrouted: Unrouted,
}

impl<A: Routed> TableLookup<A> {
    pub(crate) fn new(routing: Arc<Routing<A>>, unrouted: Unrouted) -> TableLookup<A> {
        let (routes, hops) = (routing.routes.clone(), routing.hops.clone());
        let (addresses, groups, outputs) = (Vec::new(), Vec::new(), Vec::new());
        TableLookup { routing, routes, hops, addresses, groups, outputs, unrouted }
    }

    /// Computes the outputs of all packets in a batch, and sets their destination
    /// annotations to the gateways.
    fn route_batch(&mut self, batch: &mut Batch, turn: &Turn<'_>) {
        self.addresses.clear();
        self.addresses.extend(batch.iter().map(A::packet_destination));
        self.groups.resize(self.addresses.len(), NO_GROUP);
        self.routes.lookup_batch(turn, &self.addresses, &mut self.groups);
        // Read after the groups, so that it has every group that a route was seen with.
        let hops = self.hops.all(turn);
        self.outputs.clear();
        for (packet, group) in batch.iter_mut().zip(&self.groups) {
            let hop = hops.get(*group as usize).copied().flatten();
            if let Some(gateway) = hop.and_then(|hop| hop.gateway) {
                A::set_destination(packet, gateway);
            }
            self.outputs.push(hop.map_or(NONE, |hop| hop.output));
        }
    }
}

impl<A: Routed> Element for TableLookup<A> {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.route_batch(batch, cx.turn());
        let destination = |packet: &Packet| A::packet_destination(packet).to_ip();
        outputs::send_by_outputs(batch, &self.outputs, &self.unrouted, destination, cx);
    }
}
