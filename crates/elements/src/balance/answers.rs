//! Which packets are members' answers, to be sent on in the service's name, and errors about packets to members.
use super::about::{About, Between};
use super::fragments::{Fragments, Part};
use super::service::Service;
use artery_table::balance::Choice;
use artery_table::flow::{Flow4, Flow6, Scope};
use artery_wire::IpProtocol;
use std::net::IpAddr;
use std::time::Duration;

/// What one worker remembers of answers: those that come in fragments.
#[derive(Debug, Default)]
pub(super) struct Answers {
    fragments: Fragments<()>,
}

impl Answers {
    /// Whether a packet, from its IP header on, is an answer: it comes from where a member serves. Or an error, whoever on the
    /// members' side sends it, about a packet to there.
    #[inline]
    pub(super) fn has(&mut self, packet: &[u8], service: &Service, choice: &Choice, now: Duration) -> bool {
        match packet.first().map_or(0, |first| first >> 4) {
            4 => self.has_of::<Flow4>(packet, service, choice, now),
            6 => self.has_of::<Flow6>(packet, service, choice, now),
            _ => false,
        }
    }

    #[inline]
    fn has_of<K: Between>(
        &mut self,
        packet: &[u8],
        service: &Service,
        choice: &Choice,
        now: Duration,
    ) -> bool {
        match K::of(packet, Scope::Connection, 0) {
            Some(seen) => is_member(service, choice, source(&seen.key), seen.sight.protocol),
            None => self.has_other::<K>(packet, service, choice, now),
        }
    }

    #[cold]
    fn has_other<K: Between>(
        &mut self,
        packet: &[u8],
        service: &Service,
        choice: &Choice,
        now: Duration,
    ) -> bool {
        if let Some(about) = About::of(packet) {
            let to = (about.addresses[1], about.ports[1]);
            return is_member(service, choice, to, about.protocol);
        }
        self.fragments.forget(now);
        match Part::<K>::of(packet) {
            Some((datagram, Part::First(seen))) => {
                let is_answer = is_member(service, choice, source(&seen.key), seen.sight.protocol);
                if is_answer {
                    self.fragments.went(datagram, (), now);
                }
                is_answer
            }
            Some((datagram, Part::Later)) => self.fragments.of(&datagram).is_some(),
            None => false,
        }
    }
}

#[inline]
fn source<K: Between>(key: &K) -> (IpAddr, u16) {
    (key.addresses()[0], key.ports()[0])
}

/// Whether a member serves at a place.
#[inline]
fn is_member(
    service: &Service,
    choice: &Choice,
    (address, port): (IpAddr, u16),
    protocol: IpProtocol,
) -> bool {
    service.protocol.is_none_or(|own| own == protocol) && choice.has_member_at(address, port, service.port)
}

#[cfg(test)]
mod tests {
    use super::super::flow_balancer::CLASS;
    use artery_engine::Bench;
    use artery_wire::IcmpType;
    use artery_wire::build::{Ip4, ip4};

    fn bench(members: &str) -> Bench {
        let config = format!("SERVICE 192.0.2.1:53 udp, {members}, FORWARD nat");
        Bench::setup(&CLASS, &config).inputs(2).outputs(3).build().unwrap()
    }
    fn answer(from: &str, port: u16) -> Ip4 {
        ip4().src(from).dst("198.51.100.7").udp(port, 5).payload([1; 24])
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
        for (from, port) in [("10.0.0.1", 5301), ("10.0.0.1", 5302), ("10.0.0.2", 53)] {
            is_the_services(&mut bench, answer(from, port), answer("192.0.2.1", 53));
        }
        passes(&mut bench, answer("10.0.0.1", 53));
        passes(&mut bench, answer("10.0.0.2", 5301));
        passes(&mut bench, answer("10.0.0.1", 5301).tcp(5301, 5));
        bench.write("remove_member", "a").unwrap();
        passes(&mut bench, answer("10.0.0.1", 5301));
        bench.write("add_member", "d 10.0.0.4:54").unwrap();
        is_the_services(&mut bench, answer("10.0.0.4", 54), answer("192.0.2.1", 53));
    }

    #[test]
    fn an_error_about_a_packet_to_a_member_is_the_services() {
        let mut bench = bench("MEMBER a 10.0.0.1:5301");
        let to = |to: &str, port| ip4().src("198.51.100.7").dst(to).udp(5, port).payload([3; 10]).bytes();
        let error = |from: &str, about: Vec<u8>| {
            ip4().src(from).dst("198.51.100.7").icmp(IcmpType::UNREACHABLE, 3, [0; 4]).payload(&about[..28])
        };
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
        passes(&mut bench, parts("10.0.0.1")[1].clone());
        for (part, expected) in parts("10.0.0.1").into_iter().zip(parts("192.0.2.1")) {
            is_the_services(&mut bench, part, expected);
        }
        parts("10.0.0.9").into_iter().for_each(|part| passes(&mut bench, part));
    }
}
