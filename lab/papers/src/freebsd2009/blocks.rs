//! P: the split design, where each connected socket keeps its route and its neighbor in its control block.
//!
//! What is kept is checked by flags alone: the route must be in the tree, the neighbor's address valid. So a
//! route that is deleted is noticed with the next packet, and one that is added for a longer prefix is not.

use super::lltable::Lle;
use super::lock::Locks;
use super::network::{Packet, Sender, Sent, one_by_one};
use super::split::{Hop, Id, Split};

/// What is kept: references, which keep both from being used for anything else.
pub(super) struct Kept<L: Locks> {
    pub(super) route: Id,
    pub(super) hop: Hop,
    pub(super) neighbor: L::Ref<Lle<L>>,
}

impl<L: Locks> Kept<L> {
    /// Looks both up and keeps them.
    pub(super) fn find(tables: &Split<L>, destination: u32) -> Option<Kept<L>> {
        let (route, hop) = tables.lookup(destination)?;
        Some(Kept { route, hop, neighbor: tables.neighbor(hop) })
    }
    /// Where packets leave, if what is kept is still good for that.
    #[inline]
    pub(super) fn out(&self, tables: &Split<L>) -> Option<Sent> {
        if !tables.is_up(self.route) {
            return None;
        }
        self.neighbor.mac().map(|mac| Sent::Out(self.hop.interface, mac))
    }
    /// Whether nothing can make it good again.
    pub(super) fn is_dead(&self, tables: &Split<L>) -> bool {
        !tables.is_up(self.route) || self.neighbor.is_deleted()
    }
    /// Where a packet goes if it can't leave yet, or what is kept is good for nothing.
    pub(super) fn hold(&self, tables: &Split<L>, packet: Packet) -> Option<Sent> {
        (!self.is_dead(tables)).then(|| tables.link_output(self.hop, packet))
    }
}

/// A thread that sends for sockets.
pub(super) struct Blocks<'a, L: Locks> {
    tables: &'a Split<L>,
    /// By socket: the destination and what is kept.
    blocks: Vec<Option<(u32, Kept<L>)>>,
}

impl<'a, L: Locks> Blocks<'a, L> {
    /// For so many sockets; packets of others are not kept anything for.
    pub(super) fn new(tables: &'a Split<L>, sockets: usize) -> Blocks<'a, L> {
        Blocks { tables, blocks: (0..sockets).map(|_| None).collect() }
    }

    #[inline]
    fn output(&mut self, packet: Packet) -> Sent {
        if let Some(Some((destination, kept))) = self.blocks.get(packet.socket as usize)
            && *destination == packet.destination
            && let Some(out) = kept.out(self.tables)
        {
            return out;
        }
        self.find(packet)
    }

    /// Looks up again unless the kept entry only waits for its address.
    #[inline(never)]
    fn find(&mut self, packet: Packet) -> Sent {
        let socket = packet.socket as usize;
        let kept = self.blocks.get_mut(socket).and_then(Option::take);
        if let Some((destination, kept)) = kept {
            let held = (destination == packet.destination).then(|| kept.hold(self.tables, packet)).flatten();
            if let Some(sent) = held {
                self.blocks[socket] = Some((destination, kept));
                return sent;
            }
            self.tables.release(kept.route);
        }
        let Some(kept) = Kept::find(self.tables, packet.destination) else { return Sent::NoRoute };
        let sent = kept.out(self.tables).unwrap_or_else(|| self.tables.link_output(kept.hop, packet));
        match self.blocks.get_mut(socket) {
            Some(block) => *block = Some((packet.destination, kept)),
            None => self.tables.release(kept.route),
        }
        sent
    }
}

impl<L: Locks> Sender for Blocks<'_, L> {
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        one_by_one(packets, sent, |packet| self.output(packet));
    }
}

impl<L: Locks> Drop for Blocks<'_, L> {
    fn drop(&mut self) {
        for (_, kept) in self.blocks.drain(..).flatten() {
            self.tables.release(kept.route);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::{Plain, Watched, take_tally};
    use super::super::network::Control;
    use super::super::network::testing::*;
    use super::*;

    #[test]
    fn it_follows_changes_and_gives_everything_back() {
        let tables = Split::<Plain>::new(10);
        let mut sender = Blocks::new(&tables, 8);
        follows_changes(&tables, &mut sender);
        drop(sender);
        assert_eq!(tables.in_use(), 1);
    }

    #[test]
    fn what_is_kept_takes_no_lock_and_counts_nothing() {
        let tables = Split::<Watched>::new(10);
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        let mut sender = Blocks::new(&tables, 2);
        one_by(&mut sender, "8.8.8.8", 1);
        take_tally();
        assert_eq!(one_by(&mut sender, "8.8.8.8", 1), Sent::Out(0, A));
        assert_eq!((take_tally().rmw, one_by(&mut sender, "8.8.8.9", 1)), (0, Sent::Out(0, A)));
        assert!(take_tally().locks > 0, "a reconnected socket looks up");
    }

    #[test]
    fn a_better_route_that_is_added_is_not_noticed() {
        let tables = Split::<Plain>::new(10);
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        tables.learn(ip("10.0.0.2"), B);
        let mut sender = Blocks::new(&tables, 2);
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
        tables.add_route(prefix("8.0.0.0/8"), ip("10.0.0.2")).unwrap();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A), "the defect of then, kept on purpose");
        assert_eq!(one_by(&mut sender, "8.8.8.8", 1), Sent::Out(0, B));
    }
}
