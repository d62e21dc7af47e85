//! F: the split design with the flow table of 2009 in front, by destinations.
//!
//! A hit takes no lock and no reference. A thread cannot be made to run on another's processor here, as the
//! kernel's was to flush flows of a route that goes: instead each looks at one shared word, which is written
//! when a route is deleted, before a batch. A route that is added for a longer prefix is not noticed until a
//! flow was idle, as in 2009.

use super::blocks::Kept;
use super::flows::{FlowKey, Flows};
use super::lock::Locks;
use super::network::{Packet, Sender, Sent, one_by_one};
use super::split::Split;

/// What the seed of hashes is made of at random when a system starts.
const JITTER: u32 = 0x5eed_2009;

/// A thread that sends, with flows of its own.
pub(super) struct Flowed<'a, L: Locks> {
    tables: &'a Split<L>,
    flows: Flows<Kept<L>>,
    now: u32,
    /// Routes that had been deleted when flows were last flushed.
    deleted: u64,
}

impl<'a, L: Locks> Flowed<'a, L> {
    /// With so many chains and at most so many flows.
    pub(super) fn new(tables: &'a Split<L>, chains: usize, most: usize) -> Flowed<'a, L> {
        Flowed { tables, flows: Flows::new(chains, most), now: 0, deleted: tables.deleted() }
    }

    #[inline]
    fn output(&mut self, packet: Packet) -> Sent {
        let key = FlowKey::destination(packet.destination, JITTER);
        match self.flows.find(&key, self.now, |kept| kept.out(self.tables)) {
            Some(out) => out,
            None => self.find(key, packet),
        }
    }

    /// Looks up, and keeps what it finds if it is good and there is room.
    #[inline(never)]
    fn find(&mut self, key: FlowKey, packet: Packet) -> Sent {
        let Some(kept) = Kept::find(self.tables, packet.destination) else { return Sent::NoRoute };
        let Some(out) = kept.out(self.tables) else {
            let sent = self.tables.link_output(kept.hop, packet);
            self.tables.release(kept.route);
            return sent;
        };
        if let Err((_, kept)) = self.flows.insert(key, kept, self.now) {
            self.tables.release(kept.route);
        }
        out
    }

    fn let_go(&self, gone: Vec<Kept<L>>) {
        gone.iter().for_each(|kept| self.tables.release(kept.route));
    }

    /// Frees the flows of routes that were deleted.
    fn flush(&mut self) {
        let deleted = self.tables.deleted();
        if deleted != self.deleted {
            self.deleted = deleted;
            let gone = self.flows.flush(|kept| !self.tables.is_up(kept.route));
            self.let_go(gone);
        }
    }
}

impl<L: Locks> Sender for Flowed<'_, L> {
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        self.flush();
        one_by_one(packets, sent, |packet| self.output(packet));
    }

    fn tick(&mut self, seconds: u32) {
        self.now = seconds;
        let gone = self.flows.clean(seconds, |kept| kept.is_dead(self.tables));
        self.let_go(gone);
    }
}

impl<L: Locks> Drop for Flowed<'_, L> {
    fn drop(&mut self) {
        let gone = self.flows.drain();
        self.let_go(gone);
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
        let mut sender = Flowed::new(&tables, 64, 100);
        follows_changes(&tables, &mut sender);
        drop(sender);
        assert_eq!(tables.in_use(), 1);
    }

    #[test]
    fn a_hit_takes_no_lock_and_counts_nothing() {
        let tables = Split::<Watched>::new(10);
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        let mut sender = Flowed::new(&tables, 64, 1);
        one(&mut sender, "8.8.8.8");
        take_tally();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
        assert_eq!(take_tally().rmw, 0);
        assert_eq!(one(&mut sender, "8.8.8.9"), Sent::Out(0, A), "there is room for one only");
        assert!(take_tally().locks > 0 && sender.flows.len() == 1);
    }

    #[test]
    fn a_deleted_route_is_let_go_before_the_next_batch() {
        let tables = Split::<Plain>::new(10);
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        let mut sender = Flowed::new(&tables, 64, 100);
        one(&mut sender, "8.8.8.8");
        tables.delete_route(prefix("0.0.0.0/0"));
        assert_eq!(tables.in_use(), 3, "the flow refers to it");
        assert_eq!(one(&mut sender, "10.0.0.1"), Sent::Out(0, A));
        assert_eq!(tables.in_use(), 2);
    }

    #[test]
    fn a_better_route_that_is_added_is_not_noticed_until_the_flow_was_idle() {
        let tables = Split::<Plain>::new(10);
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        tables.learn(ip("10.0.0.2"), B);
        let mut sender = Flowed::new(&tables, 64, 100);
        one(&mut sender, "8.8.8.8");
        tables.add_route(prefix("8.0.0.0/8"), ip("10.0.0.2")).unwrap();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A), "the defect of then, kept on purpose");
        sender.tick(60);
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, B));
    }
}
