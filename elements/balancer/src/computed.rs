//! Answers to flows that another balancer has translated: those that the table of members explains.
//!
//! Balancers that share an address may get the answers of each other's flows. Where they choose members
//! alike, a flow that is not known here most likely has the member that the table gives it. So an answer is
//! turned round and looked up; it is the service's if the table gives its sender. Flows for which that is not
//! so are exceptions, which balancers tell each other of.
use super::about::KeyFromParts;
use super::placement::{Placement, flow_hashes};
use super::service::Service;
use artery_lpm::load::AnyPrefix;
use std::str::FromStr;

/// Of which flows packets of members are answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerRule {
    /// Only flows that are known here.
    #[default]
    Known,
    /// Also flows that the table gives to the sender, unless they go to these.
    Computed(Vec<AnyPrefix>),
}

impl AnswerRule {
    /// Whether the table explains packets with this key as a member's answers.
    #[cold]
    pub(super) fn is_computed<K: KeyFromParts>(
        &self,
        answer: &K,
        service: &Service,
        Placement { choice, seed }: Placement<'_>,
    ) -> bool {
        let ([from, client], [port, client_port]) = (answer.addresses(), answer.ports());
        match self {
            AnswerRule::Computed(except) if !except.iter().any(|prefix| prefix.contains(client)) => {}
            _ => return false,
        }
        let to = service.port.unwrap_or(port);
        let flow = K::from_parts([client, service.address], [client_port, to], answer.protocol());
        let id = flow.and_then(|flow| choice.table_member(flow_hashes(&flow, seed)));
        let member = id.and_then(|id| choice.member(id.action()));
        member.is_some_and(|member| member.address == from && member.port.unwrap_or(to) == port)
    }
}

impl FromStr for AnswerRule {
    type Err = String;

    /// Reads `known`, or `computed [except PREFIX …]`.
    fn from_str(text: &str) -> Result<AnswerRule, String> {
        let mut words = text.split_whitespace();
        let (rule, except) = (words.next(), words.next());
        match (rule, except) {
            (Some("known"), None) => return Ok(AnswerRule::Known),
            (Some("computed"), None | Some("except")) => {}
            _ => return Err("wants known, computed, or computed except PREFIX PREFIX …".to_string()),
        }
        let prefix = |word: &str| {
            let wrong = |_| format!("'{word}' is not a valid prefix, such as 10.0.0.0/8");
            word.parse::<AnyPrefix>().map_err(wrong)
        };
        let prefixes: Vec<_> = words.map(prefix).collect::<Result<_, _>>()?;
        match except.is_some() && prefixes.is_empty() {
            true => Err("a prefix is missing after 'except'".to_string()),
            false => Ok(AnswerRule::Computed(prefixes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_balancer::CLASS;
    use artery_engine::Bench;
    use artery_wire::build::{ip4, ip6};
    use artery_wire::{IcmpType, TcpFlags};

    const SERVICE: &str = "SERVICE 192.0.2.1:80 tcp, FORWARD nat, MEMBER a 10.0.0.1:8080, MEMBER b 10.0.0.2, \
        MEMBER c 10.0.0.3:8080";
    const PLACES: [(&str, u16); 3] = [("10.0.0.1", 8080), ("10.0.0.2", 80), ("10.0.0.3", 8080)];

    fn bench(more: &str) -> Bench {
        let setup = Bench::setup(&CLASS, &format!("{SERVICE}{more}")).inputs(2).outputs(3);
        setup.build().unwrap_or_else(|errors| panic!("{errors:?}"))
    }
    fn answer((from, port): (&str, u16), client: u16) -> Vec<u8> {
        ip4().src(from).dst("198.51.100.7").tcp(port, client).payload([7; 9]).bytes()
    }
    /// Whether an answer is sent on in the service's name; else it passes as it is.
    fn is_translated(bench: &mut Bench, place: (&str, u16), client: u16) -> bool {
        bench.push(1, answer(place, client));
        match bench.next_sent(2) {
            Some(sent) => {
                assert_eq!(sent.data(), answer(("192.0.2.1", 80), client));
                true
            }
            None => {
                bench.expect(1, answer(place, client));
                false
            }
        }
    }
    /// The place that a client's first packet goes to.
    fn place_of(bench: &mut Bench, client: u16) -> usize {
        let packet = ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(TcpFlags::SYN);
        bench.push(0, packet.bytes());
        let to = bench.next_sent(0).unwrap().dst_ip().to_string();
        PLACES.iter().position(|(address, _)| *address == to).unwrap()
    }

    #[test]
    fn answers_to_flows_of_another_balancer_are_the_services_if_the_table_gives_their_sender() {
        for method in ["maglev", "hash", "xor"] {
            let mut one = bench(&format!(", METHOD {method}, SEED 5"));
            let mut other = bench(&format!(", METHOD {method}, SEED 5, ANSWERS computed"));
            for client in 1..200 {
                let place = place_of(&mut one, client);
                for (n, sender) in PLACES.into_iter().enumerate() {
                    assert_eq!(is_translated(&mut other, sender, client), n == place, "{method} {client}");
                    assert_eq!(is_translated(&mut one, sender, client), n == place, "{method} {client}");
                }
                assert!(!is_translated(&mut other, ("10.0.0.9", 80), client));
            }
            assert_eq!(other.read("flows", "").unwrap(), "0");
        }
    }

    #[test]
    fn nothing_is_computed_unless_that_is_wanted_nor_for_networks_that_are_left_out() {
        let count = |bench: &mut Bench| {
            let clients = (1..200).flat_map(|client| PLACES.map(|place| (place, client)));
            clients.filter(|(place, client)| is_translated(bench, *place, *client)).count()
        };
        assert_eq!(count(&mut bench("")), 0);
        assert_eq!(count(&mut bench(", ANSWERS known")), 0);
        assert_eq!(count(&mut bench(", ANSWERS computed except 198.51.100.0/24 2001:db8::/32")), 0);
        assert_eq!(count(&mut bench(", ANSWERS computed except 198.51.100.8 10.0.0.0/8")), 199);
        let mut other = bench(", ANSWERS computed");
        let refusal = other.write("method", "least-loaded").unwrap_err().to_string();
        assert!(refusal.contains("METHOD least-loaded") && refusal.contains("use maglev"), "{refusal}");
        other.write("method", "hash").unwrap();
        assert_eq!(count(&mut other), 199);
    }

    #[test]
    fn an_error_about_a_packet_of_such_a_flow_is_the_services_too() {
        let (mut one, mut other) = (bench(""), bench(", ANSWERS computed"));
        let place = PLACES[place_of(&mut one, 5)];
        let error = |from: &str, (to, port)| {
            let about = ip4().src("198.51.100.7").dst(to).tcp(5, port).bytes();
            let icmp = ip4().src(from).dst("198.51.100.7").icmp(IcmpType::UNREACHABLE, 3, [0; 4]);
            icmp.payload(&about[..28]).bytes()
        };
        other.push(1, error("10.0.0.254", place));
        assert_eq!(other.next_sent(2).unwrap().data(), error("192.0.2.1", ("192.0.2.1", 80)));
        for wrong in PLACES.into_iter().filter(|other| *other != place) {
            other.push(1, error("10.0.0.254", wrong));
            other.expect(1, error("10.0.0.254", wrong));
        }
    }

    #[test]
    fn the_same_holds_for_ipv6() {
        let config = "SERVICE [2001:db8::1]:53 udp, MEMBER a [2001:db8:2::a]:5353, MEMBER b 2001:db8:2::b, \
            FORWARD nat";
        let bench = |more: &str| {
            Bench::setup(&CLASS, &format!("{config}{more}")).inputs(2).outputs(3).build().unwrap()
        };
        let (mut one, mut other) = (bench(""), bench(", ANSWERS computed"));
        let mut counts = [0; 2];
        for client in 1..101 {
            one.push(0, ip6().src("2001:db8::7").dst("2001:db8::1").udp(client, 53).payload([1; 9]).bytes());
            let sent = one.next_sent(0).unwrap();
            let is_a = sent.data()
                == ip6().src("2001:db8::7").dst("2001:db8:2::a").udp(client, 5353).payload([1; 9]).bytes();
            counts[usize::from(is_a)] += 1;
            for (n, (from, port)) in [("2001:db8:2::b", 53), ("2001:db8:2::a", 5353)].into_iter().enumerate()
            {
                let answer =
                    |from, port| ip6().src(from).dst("2001:db8::7").udp(port, client).payload([2; 9]);
                other.push(1, answer(from, port).bytes());
                match n == usize::from(is_a) {
                    true => other.expect(2, answer("2001:db8::1", 53).bytes()),
                    false => other.expect(1, answer(from, port).bytes()),
                };
            }
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }

    #[test]
    fn rules_are_read_and_nonsense_is_refused() {
        let prefixes: Vec<AnyPrefix> = ["10.0.0.0/8", "::1"].map(|prefix| prefix.parse().unwrap()).into();
        for (text, expected) in [
            ("known", AnswerRule::Known),
            ("computed", AnswerRule::Computed(Vec::new())),
            ("computed except 10.0.0.0/8 ::1", AnswerRule::Computed(prefixes)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for text in ["", "all", "known except 10.0.0.0/8", "computed 10.0.0.0/8", "computed except"] {
            assert!(text.parse::<AnswerRule>().is_err(), "{text}");
        }
        let wrong = "computed except 10.0.0.0/33".parse::<AnswerRule>().unwrap_err();
        assert!(wrong.contains("'10.0.0.0/33'"), "{wrong}");
        for (more, said) in [
            (", ANSWERS some", "ANSWERS some: wants known"),
            (", METHOD least-loaded, ANSWERS computed", "METHOD least-loaded"),
            (", CHECK tcp, ANSWERS computed", "CHECK needs 'except'"),
        ] {
            let refusal = Bench::config_error(&CLASS, &format!("{SERVICE}{more}"));
            assert!(refusal.contains(said), "{refusal}");
        }
        bench(", CHECK tcp, ANSWERS computed except 198.51.100.8");
        let direct = "SERVICE 192.0.2.1:80, ANSWERS computed";
        assert!(Bench::config_error(&CLASS, direct).contains("FORWARD nat"));
    }
}
