//! Which packets are members' answers, to be sent on in the service's name, and errors about packets to
//! members. Only flows that were translated have such: health checks, and clients that use a member's own
//! address, get their answers as they are.
use super::about::{KeyFromParts, QuotedHeader};
use super::chooser::is_opening;
use super::computed::AnswerRule;
use super::fragments::{FragmentPart, FragmentTracker};
use super::nat_flows::NatFlows;
use super::placement::Placement;
use super::service::Service;
use artery_flow::{Flow4, Flow6, Scope};
use std::time::Duration;

/// Classifies members' answers on one worker; remembers those in fragments.
#[derive(Debug, Default)]
pub(super) struct ReplyClassifier {
    fragments: FragmentTracker<()>,
}

/// The services and flows that distinguish answers from other packets.
#[derive(Clone, Copy)]
pub(super) struct ServiceContext<'a> {
    pub(super) service: &'a Service,
    pub(super) placement: Placement<'a>,
    pub(super) flows: &'a NatFlows,
    /// Of which flows packets are answers beside those that are known.
    pub(super) rule: &'a AnswerRule,
}

impl ReplyClassifier {
    /// Whether a packet, from its IP header on, is an answer: its source is where a member serves, and
    /// it belongs to a translated flow. Or it is an error about a packet of such a flow, from any host
    /// on the members' side.
    #[inline]
    pub(super) fn is_reply(&mut self, packet: &[u8], served: ServiceContext<'_>, now: Duration) -> bool {
        match packet.first().map_or(0, |first| first >> 4) {
            4 => self.has_of::<Flow4>(packet, served, now),
            6 => self.has_of::<Flow6>(packet, served, now),
            _ => false,
        }
    }

    #[inline]
    fn has_of<K: KeyFromParts>(&mut self, packet: &[u8], served: ServiceContext<'_>, now: Duration) -> bool {
        match K::parse_packet(packet, Scope::Connection, 0) {
            Some(seen) => {
                if is_opening(&seen.info) {
                    served.forget_replaced(&seen.key);
                }
                served.is_reply_key(&seen.key, now)
            }
            None => self.has_other::<K>(packet, served, now),
        }
    }

    #[cold]
    fn has_other<K: KeyFromParts>(
        &mut self,
        packet: &[u8],
        served: ServiceContext<'_>,
        now: Duration,
    ) -> bool {
        if let Some(about) = QuotedHeader::parse_packet(packet) {
            return about.reply_key::<K>().is_some_and(|answer| served.is_reply_key(&answer, now));
        }
        self.fragments.expire_old(now);
        match FragmentPart::<K>::parse_fragment(packet) {
            Some((datagram, FragmentPart::First(seen))) => {
                let is_answer = served.is_reply_key(&seen.key, now);
                if is_answer {
                    self.fragments.insert_datagram(datagram, (), now);
                }
                is_answer
            }
            Some((datagram, FragmentPart::Later)) => self.fragments.lookup_datagram(&datagram).is_some(),
            None => false,
        }
    }
}

impl ServiceContext<'_> {
    /// Removes the translated flow that a client's direct connection to a member replaces, as both use the
    /// same client port: the member can't distinguish them, and answers the newer one.
    #[cold]
    fn forget_replaced<K: KeyFromParts>(&self, opening: &K) {
        let ([_, to], [_, port]) = (opening.addresses(), opening.ports());
        if self.placement.choice.has_member_at(to, port, self.service.port) {
            self.flows.remove_flow(&opening.reversed());
        }
    }

    /// Whether packets with this key are a member's answers to a flow that was translated, as far as is
    /// known, or as can be computed where that is wanted.
    #[inline]
    fn is_reply_key<K: KeyFromParts>(&self, answer: &K, now: Duration) -> bool {
        let ServiceContext { service, placement, flows, rule } = *self;
        let ([from, _], [port, _]) = (answer.addresses(), answer.ports());
        service.protocol.is_none_or(|own| own == answer.protocol())
            && placement.choice.has_member_at(from, port, service.port)
            && (flows.is_answer(answer, now) || rule.is_computed(answer, service, placement))
    }
}

#[cfg(test)]
mod tests {
    use crate::flow_balancer::CLASS;
    use artery_engine::Bench;
    use artery_flow::stream::{AnyKey, StreamItem, write_header, write_item};
    use artery_flow::{Answer, FlowRecord, FlowState};
    use artery_wire::build::{Ip4, ip4};
    use artery_wire::{IcmpType, IpProtocol, TcpFlags};
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use std::time::Duration;

    fn bench(members: &str) -> Bench {
        let config = format!("SERVICE 192.0.2.1:53 udp, {members}, FORWARD nat");
        Bench::setup(&CLASS, &config).inputs(2).outputs(3).build().unwrap()
    }
    /// Sends packets from a client's ports until one is translated to this member's place,
    /// and returns that port.
    fn client_of(bench: &mut Bench, (member, port): (&str, u16)) -> u16 {
        let goes_there = |client: &u16| {
            bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").udp(*client, 53).bytes());
            let sent = bench.next_sent(0).unwrap();
            sent.data() == ip4().src("198.51.100.7").dst(member).udp(*client, port).bytes()
        };
        (5..500).find(goes_there).unwrap()
    }
    fn answer((from, port): (&str, u16), client: u16) -> Ip4 {
        ip4().src(from).dst("198.51.100.7").udp(port, client).payload([1; 24])
    }
    #[track_caller]
    fn passes(bench: &mut Bench, packet: Ip4) {
        bench.push(1, packet.bytes());
        bench.expect(1, packet.bytes());
    }
    #[track_caller]
    fn is_the_services(bench: &mut Bench, packet: Ip4, expected: Ip4) {
        bench.push(1, packet.bytes());
        bench.expect(2, expected.bytes());
    }

    #[test]
    fn members_at_one_address_are_told_apart_by_their_ports_and_by_those_alone() {
        let mut bench = bench("MEMBER a 10.0.0.1:5301, MEMBER b 10.0.0.1:5302, MEMBER c 10.0.0.2");
        let places = [("10.0.0.1", 5301), ("10.0.0.1", 5302), ("10.0.0.2", 53)];
        for place in places {
            let client = client_of(&mut bench, place);
            is_the_services(&mut bench, answer(place, client), answer(("192.0.2.1", 53), client));
            for other in places.into_iter().filter(|other| *other != place) {
                passes(&mut bench, answer(other, client));
            }
            passes(&mut bench, answer(("10.0.0.1", 53), client));
            passes(&mut bench, answer(("10.0.0.2", 5301), client));
            passes(&mut bench, answer(place, client).tcp(place.1, client));
        }
        let client = client_of(&mut bench, places[0]);
        bench.write("remove_member", "a").unwrap();
        passes(&mut bench, answer(places[0], client));
        bench.write("add_member", "d 10.0.0.4:54").unwrap();
        let client = client_of(&mut bench, ("10.0.0.4", 54));
        is_the_services(&mut bench, answer(("10.0.0.4", 54), client), answer(("192.0.2.1", 53), client));
    }

    #[test]
    fn what_a_member_sends_to_who_did_not_use_the_service_passes_as_it_is() {
        for state in ["true", "false"] {
            let mut bench = bench(&format!("MEMBER a 10.0.0.1, STATE {state}"));
            let client = client_of(&mut bench, ("10.0.0.1", 53));
            is_the_services(&mut bench, answer(("10.0.0.1", 53), client), answer(("192.0.2.1", 53), client));
            passes(&mut bench, answer(("10.0.0.1", 53), client + 1));
            passes(&mut bench, answer(("10.0.0.1", 53), client).dst("198.51.100.8"));
            bench.advance_time(Duration::from_secs(190));
            passes(&mut bench, answer(("10.0.0.1", 53), client));
        }
    }

    #[test]
    fn an_imported_flow_has_its_answers_as_long_as_it_is_imported_again() {
        let at = |address: &str, port| (address.parse().unwrap(), port);
        let mut bench = bench("MEMBER a 10.0.0.1, MEMBER b 10.0.0.2");
        let import = |bench: &mut Bench, member: &str| {
            let ends = [at("198.51.100.7", 5), at("192.0.2.1", 53)];
            let record = FlowRecord {
                key: AnyKey::new(ends, IpProtocol::UDP).unwrap(),
                answer: Answer { action: 0, generation: 0 },
                state: FlowState::UdpStream,
                idle: Duration::ZERO,
                packets: 3,
                bytes: 90,
                version: 1,
                is_young: false,
                is_pinned: false,
                is_imported: false,
                epoch: 0,
            };
            let mut stream = Vec::new();
            write_header(&mut stream);
            for item in [StreamItem::Member(0, member), StreamItem::Flow(record), StreamItem::End(1)] {
                write_item(&item, &mut stream);
            }
            bench.write("import_flows", &BASE64_STANDARD.encode(&stream)).unwrap();
        };
        // No answer comes meanwhile, which would keep the flow known.
        for _ in 0..3 {
            import(&mut bench, "a");
            bench.advance_time(Duration::from_secs(150));
        }
        // A record with another member than the flow has says nothing of its answers.
        import(&mut bench, "b");
        passes(&mut bench, answer(("10.0.0.2", 53), 5));
        is_the_services(&mut bench, answer(("10.0.0.1", 53), 5), answer(("192.0.2.1", 53), 5));
        bench.advance_time(Duration::from_secs(190));
        passes(&mut bench, answer(("10.0.0.1", 53), 5));
    }

    #[test]
    fn a_direct_connection_from_the_port_of_a_translated_one_gets_its_answers_as_they_are() {
        let config = "SERVICE 192.0.2.1:80 tcp, MEMBER a 10.0.0.1, FORWARD nat";
        let mut bench = Bench::setup(&CLASS, config).inputs(2).outputs(3).build().unwrap();
        let from_client = |to: &str, port| ip4().src("198.51.100.7").dst(to).tcp(port, 80);
        let answer = |from: &str, port| {
            ip4().src(from).dst("198.51.100.7").tcp(80, port).flags(TcpFlags::SYN | TcpFlags::ACK)
        };
        for port in [5, 6] {
            bench.push(0, from_client("192.0.2.1", port).flags(TcpFlags::SYN).bytes());
            bench.expect(0, from_client("10.0.0.1", port).flags(TcpFlags::SYN).bytes());
            is_the_services(&mut bench, answer("10.0.0.1", port), answer("192.0.2.1", port));
        }
        // Neither a later segment nor a connection to another port of the member removes it.
        passes(&mut bench, from_client("10.0.0.1", 5).flags(TcpFlags::ACK));
        passes(&mut bench, ip4().src("198.51.100.7").dst("10.0.0.1").tcp(5, 22).flags(TcpFlags::SYN));
        is_the_services(&mut bench, answer("10.0.0.1", 5), answer("192.0.2.1", 5));
        passes(&mut bench, from_client("10.0.0.1", 5).flags(TcpFlags::SYN));
        passes(&mut bench, answer("10.0.0.1", 5));
        is_the_services(&mut bench, answer("10.0.0.1", 6), answer("192.0.2.1", 6));
        bench.push(0, from_client("192.0.2.1", 5).flags(TcpFlags::SYN).bytes());
        bench.expect(0, from_client("10.0.0.1", 5).flags(TcpFlags::SYN).bytes());
        is_the_services(&mut bench, answer("10.0.0.1", 5), answer("192.0.2.1", 5));
    }

    #[test]
    fn an_error_about_a_packet_to_a_member_is_the_services() {
        let mut bench = bench("MEMBER a 10.0.0.1:5301");
        let to = |to: &str, port| ip4().src("198.51.100.7").dst(to).udp(5, port).payload([3; 10]).bytes();
        let error = |from: &str, about: Vec<u8>| {
            ip4().src(from).dst("198.51.100.7").icmp(IcmpType::UNREACHABLE, 3, [0; 4]).payload(&about[..28])
        };
        let client = client_of(&mut bench, ("10.0.0.1", 5301));
        assert_eq!(client, 5);
        passes(&mut bench, error("10.0.0.1", ip4().src("198.51.100.7").dst("10.0.0.1").udp(6, 5301).bytes()));
        // The second is from a router before the member.
        for from in ["10.0.0.1", "10.0.0.254"] {
            let expected = error("192.0.2.1", to("192.0.2.1", 53));
            is_the_services(&mut bench, error(from, to("10.0.0.1", 5301)), expected);
        }
        passes(&mut bench, error("10.0.0.1", to("10.0.0.1", 22)));
        passes(&mut bench, error("10.0.0.254", to("10.0.0.9", 5301)));
        passes(&mut bench, ip4().src("10.0.0.1").dst("198.51.100.7").icmp_echo_reply(1, 2));
    }

    #[test]
    fn an_answer_in_fragments_is_the_services_from_its_first_to_its_last() {
        let mut bench = bench("MEMBER a 10.0.0.1:53");
        let parts = |from: &str| {
            let part = || ip4().src(from).dst("198.51.100.7").id(7);
            [
                part().fragment(0, true).udp(53, 5).payload([1; 24]),
                part().fragment(32, false).raw(17, [1; 24]),
            ]
        };
        parts("10.0.0.1").into_iter().for_each(|part| passes(&mut bench, part));
        assert_eq!(client_of(&mut bench, ("10.0.0.1", 53)), 5);
        for (part, expected) in parts("10.0.0.1").into_iter().zip(parts("192.0.2.1")) {
            is_the_services(&mut bench, part, expected);
        }
        parts("10.0.0.9").into_iter().for_each(|part| passes(&mut bench, part));
    }
}
