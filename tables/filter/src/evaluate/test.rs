//! The test of one rule against one packet: all its conditions, in a cache line or so.
use super::Surroundings;
use super::address::{Addresses, EndTest};
use super::index::{Askers, Sets};
use super::memo::Memo;
use super::query::End;
use super::threshold::Threshold;
use crate::facts::{Direction, Facts, Family, Interface, Tag};
use crate::rule::{Comparison, Flags};
use artery_wire::IpProtocol;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The conditions of a rule.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Test {
    pub(super) source: EndTest,
    pub(super) destination: EndTest,
    pub(super) source_port: PortTest,
    pub(super) destination_port: PortTest,
    /// Index into [`Conditions::places`]: the interfaces that match.
    pub(super) place: u16,
    pub(super) direction: Option<Direction>,
    pub(super) family: Option<Family>,
    pub(super) protocol: Option<IpProtocol>,
    pub(super) flags: Flags,
    pub(super) icmp: Option<(u8, Option<u8>)>,
    /// Index into [`Conditions::rare`] plus one; 0 is none.
    pub(super) rare: u32,
}

/// Conditions that few rules have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) is_fragment: bool,
    pub(super) tos: Option<u8>,
    pub(super) priority: Option<u8>,
    pub(super) tagged: Option<(bool, Tag)>,
    /// Whether it is negated, and one of [`Conditions::places`].
    pub(super) received_on: Option<(bool, u16)>,
    pub(super) probability: Option<u32>,
    pub(super) rate: Option<Arc<Threshold>>,
    /// Whether it has matched, for rules that do so once.
    pub(super) once: Option<Arc<AtomicBool>>,
}

/// What tests refer to by number.
pub(super) struct Conditions {
    /// Sets of interfaces: for each whether it is in, the last for those that were not known
    /// when rules were compiled.
    pub(super) places: Vec<Box<[bool]>>,
    pub(super) rare: Vec<Rare>,
    pub(super) addresses: Addresses,
}

/// A range of ports, or what is outside of one. A range that ends before it begins is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortTest {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) is_outside: bool,
    /// Whether there is a condition on the port.
    pub(super) is_there: bool,
}

impl PortTest {
    pub(super) fn new(comparison: Option<Comparison<u16>>) -> PortTest {
        let test = |first: u16, last: u16, is_outside| PortTest { first, last, is_outside, is_there: true };
        let none = test(1, 0, false);
        match comparison {
            None => PortTest { is_there: false, ..test(0, u16::MAX, false) },
            Some(Comparison::Equal(port)) => test(port, port, false),
            Some(Comparison::Unequal(port)) => test(port, port, true),
            Some(Comparison::Less(port)) => port.checked_sub(1).map_or(none, |last| test(0, last, false)),
            Some(Comparison::LessOrEqual(port)) => test(0, port, false),
            Some(Comparison::Greater(u16::MAX)) => none,
            Some(Comparison::Greater(port)) => test(port + 1, u16::MAX, false),
            Some(Comparison::GreaterOrEqual(port)) => test(port, u16::MAX, false),
            Some(Comparison::Range(first, last)) => test(first, last, false),
            Some(Comparison::Between(below, above)) => match (below.checked_add(1), above.checked_sub(1)) {
                (Some(first), Some(last)) => test(first, last, false),
                _ => none,
            },
            Some(Comparison::Except(first, last)) => test(first, last, true),
        }
    }

    #[inline]
    fn matches_port(self, port: u16) -> bool {
        (self.first <= port && port <= self.last) != self.is_outside
    }
}

/// Whether packets have ports that rules can test: those of the protocols that have any,
/// unless they are fragments.
pub(super) fn has_ports(facts: &Facts) -> bool {
    !facts.is_fragment && matches!(facts.protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP)
}

impl Test {
    /// Whether a packet meets the rule's conditions. Once for each packet and rule, as this counts
    /// for `max-pkt-rate` and `once`.
    #[inline]
    pub(super) fn matches_packet(
        &self,
        facts: &Facts,
        conditions: &Conditions,
        surroundings: &mut Surroundings<'_, '_>,
        (sets, memo): (Option<&Sets>, &mut Memo),
    ) -> bool {
        self.matches_header(facts, conditions)
            && {
                let at = (&conditions.addresses, &*surroundings, sets, &mut *memo);
                self.source.matches_address(facts.source, End::Source, facts.interface, at)
            }
            && {
                let at = (&conditions.addresses, &*surroundings, sets, &mut *memo);
                self.destination.matches_address(facts.destination, End::Destination, facts.interface, at)
            }
            && (self.rare == 0
                || conditions.rare[self.rare as usize - 1].matches_packet(facts, conditions, surroundings))
    }

    /// Whether what no table and no route is needed for is so.
    #[inline]
    fn matches_header(&self, facts: &Facts, conditions: &Conditions) -> bool {
        self.direction.is_none_or(|direction| direction == facts.direction)
            && self.family.is_none_or(|family| family == facts.family())
            && self.protocol.is_none_or(|protocol| protocol == facts.protocol)
            && conditions.is_at(self.place, facts.interface)
            && self.ports_hold(facts)
            && self.flags_hold(facts)
            && self.icmp.is_none_or(|icmp| icmp_holds(icmp, facts))
    }

    #[inline]
    fn ports_hold(&self, facts: &Facts) -> bool {
        let asks = self.source_port.is_there || self.destination_port.is_there;
        !asks
            || (has_ports(facts)
                && self.source_port.matches_port(facts.source_port)
                && self.destination_port.matches_port(facts.destination_port))
    }

    /// Only TCP is tested for flags. A fragment shows none, so it does not match.
    #[inline]
    fn flags_hold(&self, facts: &Facts) -> bool {
        self.flags.of == 0
            || facts.protocol != IpProtocol::TCP
            || (!facts.is_fragment && facts.tcp_flags & self.flags.of == self.flags.set)
    }
}

fn icmp_holds((kind, code): (u8, Option<u8>), facts: &Facts) -> bool {
    matches!(facts.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6)
        && !facts.is_fragment
        && facts.icmp.0 == kind
        && code.is_none_or(|code| code == facts.icmp.1)
}

impl Askers {
    /// The rules among these that use tables.
    pub(super) fn of_tests(tests: &[Test]) -> Askers {
        let by_end = [End::Source, End::Destination].map(|end| {
            let asked = tests.iter().map(|test| match end {
                End::Source => test.source.table_query(end),
                End::Destination => test.destination.table_query(end),
            });
            asked.enumerate().filter_map(|(place, asked)| Some((place, asked?))).collect()
        });
        Askers { words: tests.len().div_ceil(64), by_end }
    }
}

impl Rare {
    /// What is drawn or counted comes last: only packets that match otherwise count.
    fn matches_packet(
        &self,
        facts: &Facts,
        conditions: &Conditions,
        surroundings: &mut Surroundings<'_, '_>,
    ) -> bool {
        (!self.is_fragment || facts.is_fragment)
            && self.tos.is_none_or(|tos| tos == facts.tos)
            && self.priority.is_none_or(|priority| priority == facts.priority)
            && self.tagged.is_none_or(|(is_negated, tag)| (tag == facts.tag) != is_negated)
            && self.received_on.is_none_or(|(is_negated, place)| {
                facts.received_on.is_some_and(|interface| conditions.is_at(place, interface)) != is_negated
            })
            && !self.is_expired()
            && self.probability.is_none_or(|probability| (surroundings.random)() < probability)
            && self.rate.as_ref().is_none_or(|rate| match surroundings.is_question {
                true => rate.would_pass(surroundings.now),
                false => rate.count_event(surroundings.now),
            })
            && (surroundings.is_question || !self.once.as_ref().is_some_and(|once| once.swap(true, Relaxed)))
    }

    /// Whether it was to match but once, and has.
    pub(super) fn is_expired(&self) -> bool {
        self.once.as_ref().is_some_and(|once| once.load(Relaxed))
    }

    /// Whether there is any condition.
    pub(super) fn has_conditions(&self) -> bool {
        self.is_fragment
            || self.tos.is_some()
            || self.priority.is_some()
            || self.tagged.is_some()
            || self.received_on.is_some()
            || self.is_order_dependent()
    }

    /// Whether the result depends on the number or the time of evaluations.
    pub(super) fn is_order_dependent(&self) -> bool {
        self.tagged.is_some() || self.probability.is_some() || self.rate.is_some() || self.once.is_some()
    }
}

impl Conditions {
    /// Whether an interface is in a set of them.
    #[inline]
    pub(super) fn is_at(&self, place: u16, interface: Interface) -> bool {
        let set = &self.places[usize::from(place)];
        set[usize::from(interface.0).min(set.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_ports_hold_as_the_comparisons_they_come_from() {
        let edges = [0, 1, 2, 79, 80, 81, 443, 65534, 65535];
        for a in edges {
            for b in edges {
                let comparisons = [
                    Comparison::Equal(a),
                    Comparison::Unequal(a),
                    Comparison::Less(a),
                    Comparison::LessOrEqual(a),
                    Comparison::Greater(a),
                    Comparison::GreaterOrEqual(a),
                    Comparison::Range(a, b),
                    Comparison::Between(a, b),
                    Comparison::Except(a, b),
                ];
                for comparison in comparisons {
                    for port in edges {
                        let holds = PortTest::new(Some(comparison)).matches_port(port);
                        assert_eq!(holds, comparison.matches_value(port), "{comparison:?} of {port}");
                    }
                }
            }
        }
    }
}
