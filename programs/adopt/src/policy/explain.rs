//! What rules do with one packet, for who asks.
use super::packet::{Packet, State};
use super::ruleset::{BaseChain, Hook};
use super::{ConnectionView, MOST_REPORTED, Policy, PolicyObstacle, SEEN_REPLY, Side, state_at};

impl Policy {
    /// All that stands in the way of packets of a connection's direction, or may.
    pub fn obstacles(&self, connection: &ConnectionView<'_>) -> Vec<PolicyObstacle> {
        let seen = |base: &BaseChain| connection.seen_at(base);
        self.describe_all(connection, seen)
    }

    /// The same of the first packet of a connection that is not known yet. What it is translated to is not
    /// known either, if the kernel translates.
    pub fn obstacles_to_first(
        &self,
        connection: &ConnectionView<'_>,
        translates: bool,
    ) -> Vec<PolicyObstacle> {
        let seen = |base: &BaseChain| {
            let mut packet = Packet {
                state: state_at(base, State::New),
                status: (0, SEEN_REPLY),
                ..connection.seen_at(base)
            };
            let is_behind = |hook| translates && super::translation_side(base, hook) != Side::Before;
            if is_behind(Hook::Prerouting) {
                (packet.destination, packet.ports[1], packet.is_routed[1]) = (None, None, false);
            }
            if is_behind(Hook::Postrouting) {
                (packet.source, packet.ports[0], packet.is_routed[0]) = (None, None, false);
            }
            if translates {
                (packet.tuples, packet.echo[1]) = (None, None);
            }
            packet
        };
        self.describe_all(connection, seen)
    }

    fn describe_all<'a>(
        &self,
        connection: &ConnectionView<'_>,
        seen: impl Fn(&BaseChain) -> Packet<'a>,
    ) -> Vec<PolicyObstacle> {
        let found = self.evaluate(connection.family(), seen, MOST_REPORTED);
        found.iter().map(|one| self.describe(one)).collect()
    }
}
