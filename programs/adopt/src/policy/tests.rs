//! Random rules, through a plain interpreter that sees single packets.
use super::packet::{ConnectionField, Header, Interface, PortField, RouteField};
use super::ruleset::*;
use super::sets::{Set, SetValue};
use super::*;
use crate::fast::FlowKey;
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// A packet with all that rules here ask about.
#[derive(Clone, Copy, Debug)]
struct OnePacket {
    protocol: u8,
    /// The last bytes of addresses in 10.0.0.0/24.
    hosts: [u8; 2],
    ports: [u16; 2],
    is_reply: bool,
    /// These differ between packets of a connection.
    ttl: u8,
    pushes: bool,
    /// Whether routes lead by its ports to both addresses; otherwise these are this machine's.
    is_routed: bool,
}

impl OnePacket {
    fn input(&self) -> &'static str {
        if self.is_reply { "wan0" } else { "lan0" }
    }
    fn key(&self, at: [usize; 2]) -> FlowKey {
        let address = |at: usize| IpAddr::from(Ipv4Addr::new(10, 0, 0, self.hosts[at]));
        let [a, b] = self.ports[at[0]].to_be_bytes();
        let [c, d] = self.ports[at[1]].to_be_bytes();
        let (source, destination) = (address(at[0]), address(at[1]));
        FlowKey { source, destination, ports: [a, b, c, d], protocol: self.protocol }
    }
}

#[derive(Clone, Debug)]
enum Ask {
    Protocol(u8),
    Source(u8, u8),
    DestinationPort {
        from: u16,
        to: u16,
        is_inverted: bool,
    },
    InSet {
        sources: Vec<u8>,
        is_inverted: bool,
    },
    Input(bool),
    Reply(bool),
    Established(bool),
    Syn,
    Mark {
        mask: u8,
        value: u8,
        is_of_iptables: bool,
    },
    /// Whether the source, or the destination, is an address of this machine.
    Local {
        is_source: bool,
        is_of_iptables: bool,
    },
    /// Whether the source has no route by the input.
    NoWayBack {
        is_of_iptables: bool,
    },
    /// By which interface a route leads to the source.
    WayBack(bool),
    RoutingHeader,
    // What differs from packet to packet.
    Ttl(u8),
    Pushes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Accept,
    Drop,
    Log,
    Nothing,
    /// Gives the connection to a flow table.
    AddFlow,
    /// Sets bits of the mark.
    Mark {
        keeps: u8,
        sets: u8,
    },
    Jump,
    Goto,
    Return,
}

#[derive(Clone, Debug)]
struct TestRule(Vec<Ask>, Do);

impl Ask {
    fn is_so(&self, packet: &OnePacket, mark: u8) -> bool {
        match self {
            Ask::Protocol(protocol) => packet.protocol == *protocol,
            Ask::Source(host, mask) => packet.hosts[0] & mask == host & mask,
            Ask::DestinationPort { from, to, is_inverted } => {
                (*from..=*to).contains(&packet.ports[1]) != *is_inverted
            }
            Ask::InSet { sources, is_inverted } => sources.contains(&packet.hosts[0]) != *is_inverted,
            Ask::Input(is_lan) => (packet.input() == "lan0") == *is_lan,
            Ask::Reply(is_reply) => packet.is_reply == *is_reply,
            Ask::Established(is_established) => *is_established,
            Ask::Syn | Ask::RoutingHeader => false,
            Ask::Mark { mask, value, .. } => mark & mask == *value,
            Ask::Local { .. } | Ask::NoWayBack { .. } => !packet.is_routed,
            Ask::WayBack(is_lan) => packet.is_routed && (packet.input() == "lan0") == *is_lan,
            Ask::Ttl(least) => packet.ttl >= *least,
            // Of UDP it is another byte of the packet, or none.
            Ask::Pushes => packet.pushes,
        }
    }

    fn varies(&self) -> bool {
        matches!(self, Ask::Ttl(_) | Ask::Pushes)
    }
    fn asks_routes(&self) -> bool {
        matches!(self, Ask::Local { .. } | Ask::NoWayBack { .. } | Ask::WayBack(_))
    }

    /// As nft would write it.
    fn steps(&self, sets: &mut Vec<Set>) -> Vec<Step> {
        let load = |length, source| Step::Load { to: 0, length, source };
        let is = |with: Vec<u8>| Step::Compare { at: 0, order: Order::Equal, with };
        let header = |header, at, length| load(length, Source::Header(header, at));
        let mask = |mask: Vec<u8>| Step::MaskXor { from: 0, to: 0, xor: vec![0; mask.len()], mask };
        match self {
            Ask::Protocol(protocol) => vec![load(1, Source::Protocol), is(vec![*protocol])],
            Ask::Source(host, bits) => vec![
                header(Header::Network, 12, 4),
                mask(vec![255, 255, 255, *bits]),
                is(vec![10, 0, 0, host & bits]),
            ],
            Ask::DestinationPort { from, to, is_inverted } => {
                let (from, to) = (from.to_be_bytes().to_vec(), to.to_be_bytes().to_vec());
                let is_inverted = *is_inverted;
                vec![header(Header::Transport, 2, 2), Step::Range { at: 0, from, to, is_inverted }]
            }
            Ask::InSet { sources, is_inverted } => {
                let mut set = Set::new(4, 0, false, false);
                sources.iter().for_each(|host| set.add_exact(vec![10, 0, 0, *host], SetValue::default()));
                sets.push(set);
                let look = Step::Lookup { set: sets.len() - 1, at: 0, into: None, is_inverted: *is_inverted };
                vec![header(Header::Network, 12, 4), look]
            }
            Ask::Input(is_lan) => {
                let name = if *is_lan { "lan" } else { "wan" };
                vec![load(16, Source::Port { is_input: true, field: PortField::Name }), is(name.into())]
            }
            Ask::Reply(is_reply) => {
                vec![load(1, Source::Connection(ConnectionField::Direction)), is(vec![u8::from(*is_reply)])]
            }
            Ask::Established(is_established) => vec![
                load(4, Source::Connection(ConnectionField::State)),
                mask(2_u32.to_ne_bytes().to_vec()),
                Step::Compare {
                    at: 0,
                    order: if *is_established { Order::NotEqual } else { Order::Equal },
                    with: vec![0; 4],
                },
            ],
            Ask::Syn => {
                let condition = Condition::TcpFlags { mask: 2, value: 2 };
                vec![load(1, Source::Protocol), is(vec![6]), Step::Test(condition)]
            }
            Ask::Mark { mask: bits, value, is_of_iptables: true } => {
                vec![Step::Test(Condition::Mark { mask: u32::from(*bits), value: u32::from(*value) })]
            }
            Ask::Mark { mask: bits, value, .. } => vec![
                load(4, Source::Mark),
                mask(u32::from(*bits).to_ne_bytes().to_vec()),
                is(u32::from(*value).to_ne_bytes().to_vec()),
            ],
            Ask::Local { is_source, is_of_iptables: true } => {
                vec![Step::Test(Condition::AddressType { is_source: *is_source, types: 1 << 2 })]
            }
            Ask::Local { is_source, .. } => {
                let source = Source::Route { is_source: *is_source, field: RouteField::Type };
                vec![load(4, source), is(2_u32.to_ne_bytes().to_vec())]
            }
            Ask::NoWayBack { is_of_iptables: true } => {
                vec![Step::Test(Condition::ReversePath.inverted_if(true))]
            }
            Ask::NoWayBack { .. } => {
                vec![load(1, Source::Route { is_source: true, field: RouteField::IsThere }), is(vec![0])]
            }
            Ask::WayBack(is_lan) => {
                let field = RouteField::Port(PortField::Name);
                let mut name = if *is_lan { b"lan0".to_vec() } else { b"wan0".to_vec() };
                name.resize(16, 0);
                vec![load(16, Source::Route { is_source: true, field }), is(name)]
            }
            Ask::RoutingHeader => vec![Step::Test(Condition::never())],
            Ask::Ttl(least) => vec![
                header(Header::Network, 8, 1),
                Step::Compare { at: 0, order: Order::GreaterOrEqual, with: vec![*least] },
            ],
            Ask::Pushes => vec![header(Header::Transport, 13, 1), mask(vec![8]), is(vec![8])],
        }
    }
}

/// What is done to a packet on its way.
#[derive(Default)]
struct Done {
    is_touched: bool,
    mark: u8,
    is_given_to_flow_table: bool,
}

/// Whether a packet is accepted with nothing done to it, and whether its connection comes to a flow table.
fn passes(chains: &[Vec<TestRule>; 2], accepts: bool, packet: &OnePacket) -> (bool, bool) {
    fn walk(chains: &[Vec<TestRule>; 2], chain: usize, packet: &OnePacket, done: &mut Done) -> Option<bool> {
        for TestRule(asks, action) in &chains[chain] {
            if !asks.iter().all(|ask| ask.is_so(packet, done.mark)) {
                continue;
            }
            match action {
                Do::Accept => return Some(true),
                Do::Drop => return Some(false),
                Do::Log => done.is_touched = true,
                Do::Nothing => {}
                Do::AddFlow => done.is_given_to_flow_table = true,
                Do::Mark { keeps, sets } => {
                    done.mark = done.mark & keeps ^ sets;
                    done.is_touched |= done.mark != 0;
                }
                Do::Return => return None,
                Do::Jump | Do::Goto if chain == 0 => {
                    let end = walk(chains, 1, packet, done);
                    if end.is_some() || *action == Do::Goto {
                        return end;
                    }
                }
                Do::Jump | Do::Goto => {}
            }
        }
        None
    }
    let mut done = Done::default();
    let is_accepted = walk(chains, 0, packet, &mut done).unwrap_or(accepts);
    (is_accepted && !done.is_touched, done.is_given_to_flow_table)
}

fn ruleset(chains: &[Vec<TestRule>; 2], accepts: bool) -> Ruleset {
    let mut ruleset = Ruleset::default();
    for (at, rules) in chains.iter().enumerate() {
        let mut written = Vec::new();
        for TestRule(asks, action) in rules {
            let mut steps: Vec<Step> = asks.iter().flat_map(|ask| ask.steps(&mut ruleset.sets)).collect();
            if let Do::Mark { keeps, sets } = action {
                let [mask, xor] = [keeps, sets].map(|bits| u32::from(*bits).to_ne_bytes().to_vec());
                steps.push(Step::Load { to: 0, length: 4, source: Source::Mark });
                steps.push(Step::MaskXor { from: 0, to: 0, mask, xor });
            }
            steps.push(match action {
                Do::Mark { .. } => Step::SetMark { at: 0 },
                Do::Accept => Step::Decide(Verdict::Accept),
                Do::Drop => Step::Decide(Verdict::Drop),
                Do::Log => Step::Effect("log".into()),
                Do::Return => Step::Decide(Verdict::Return),
                Do::AddFlow => Step::AddFlow { table: Some(0) },
                Do::Jump if at == 0 => Step::Decide(Verdict::Jump(1)),
                Do::Goto if at == 0 => Step::Decide(Verdict::Goto(1)),
                Do::Nothing | Do::Jump | Do::Goto => Step::Nothing,
            });
            written.push(Rule { name: String::new(), steps });
        }
        ruleset.chains.push(Chain { name: String::new(), remedy: String::new(), rules: written });
    }
    ruleset.flow_tables.push(FlowTable::new("f", &["lan0"]));
    let hook = Hook::Forward;
    ruleset.bases.push(BaseChain { chain: 0, hook, priority: 0, family: None, accepts });
    ruleset
}

fn an_ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        prop_oneof![Just(6), Just(17)].prop_map(Ask::Protocol),
        (0..8_u8, prop_oneof![Just(255), Just(0xfe), Just(4)])
            .prop_map(|(host, mask)| Ask::Source(host, mask)),
        (0..8_u16, 0..8_u16, any::<bool>()).prop_map(|(from, more, is_inverted)| {
            Ask::DestinationPort { from, to: from + more, is_inverted }
        }),
        (prop::collection::vec(0..8_u8, 0..4), any::<bool>())
            .prop_map(|(sources, is_inverted)| Ask::InSet { sources, is_inverted }),
        any::<bool>().prop_map(Ask::Input),
        any::<bool>().prop_map(Ask::Reply),
        any::<bool>().prop_map(Ask::Established),
        Just(Ask::Syn),
        Just(Ask::RoutingHeader),
        (0..3_u8, 0..3_u8, any::<bool>()).prop_map(|(mask, value, is_of_iptables)| Ask::Mark {
            mask,
            value,
            is_of_iptables
        }),
        any::<[bool; 2]>().prop_map(|[is_source, is_of_iptables]| Ask::Local { is_source, is_of_iptables }),
        any::<bool>().prop_map(|is_of_iptables| Ask::NoWayBack { is_of_iptables }),
        any::<bool>().prop_map(Ask::WayBack),
        (0..3_u8).prop_map(Ask::Ttl),
        Just(Ask::Pushes),
    ]
}

fn rules() -> impl Strategy<Value = Vec<TestRule>> {
    let action = prop_oneof![
        3 => Just(Do::Accept),
        3 => Just(Do::Drop),
        1 => Just(Do::Log),
        1 => Just(Do::Nothing),
        1 => Just(Do::AddFlow),
        1 => (0..3_u8, 0..2_u8).prop_map(|(keeps, sets)| Do::Mark { keeps, sets }),
        2 => Just(Do::Jump),
        1 => Just(Do::Goto),
        1 => Just(Do::Return),
    ];
    let rule =
        (prop::collection::vec(an_ask(), 0..4), action).prop_map(|(asks, action)| TestRule(asks, action));
    prop::collection::vec(rule, 0..8)
}

fn packet() -> impl Strategy<Value = OnePacket> {
    let protocol = prop_oneof![Just(6_u8), Just(17)];
    (protocol, [0..8_u8, 0..8_u8], [0..8_u16, 0..8_u16], any::<bool>()).prop_map(
        |(protocol, hosts, ports, is_reply)| OnePacket {
            protocol,
            hosts,
            ports,
            is_reply,
            ttl: 0,
            pushes: false,
            is_routed: true,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_packet_passes_that_rules_stop_and_what_depends_on_the_connection_alone_is_known(
        rules in [rules(), rules()],
        accepts in any::<bool>(),
        packet in packet(),
        is_routed in any::<bool>(),
    ) {
        let policy = Policy::of(ruleset(&rules, accepts));
        let ports = ["lan0", "wan0"].map(|name| Interface { index: 1, name: name.into() });
        let (there, back) = (packet.key([0, 1]), packet.key([1, 0]));
        let view = ConnectionView {
            arrives: there,
            leaves: there,
            tuples: if packet.is_reply { [back, there] } else { [there, back] },
            direction: u8::from(packet.is_reply),
            status: ESTABLISHED,
            input: Some(&ports[usize::from(packet.is_reply)]),
            output: Some(&ports[usize::from(!packet.is_reply)]),
            is_routed,
        };
        let at_any_port = ConnectionView { input: None, output: None, is_routed: false, ..view };
        let with = |ttl| [false, true].map(|pushes| OnePacket { ttl, pushes, ..packet });
        let all = [0, 1, 2, 3].into_iter().flat_map(with);
        // Where it is not known whether routes lead to the source, they may not.
        let of_routes: &[bool] = if is_routed { &[true] } else { &[true, false] };
        let as_routed = |one: OnePacket| {
            of_routes.iter().map(move |is_routed| OnePacket { is_routed: *is_routed, ..one })
        };
        let all = all.flat_map(as_routed);
        let done = all.map(|packet| passes(&rules, accepts, &packet));
        let (pass, given): (Vec<bool>, Vec<bool>) = done.unzip();
        let is_open = policy.obstacle(&view).is_none();
        prop_assert!(!is_open || pass.iter().all(|passes| *passes), "{pass:?}");
        // Less is known of a packet that may have come by another port, and of one of any connection.
        prop_assert!(policy.obstacle(&at_any_port).is_some() || is_open);
        let is_open_to_all = policy.survey(Family::V4).is_empty();
        prop_assert!(!is_open_to_all || policy.obstacle(&at_any_port).is_none());
        let sure = policy.survey(Family::V4).iter().any(|one| one.is_sure);
        prop_assert!(!sure || pass.iter().all(|passes| !passes), "what is said to stop all stops not all");
        let asks = || rules.iter().flatten().flat_map(|rule| &rule.0);
        let is_known = !asks().any(Ask::varies) && (is_routed || !asks().any(Ask::asks_routes));
        if is_known {
            prop_assert_eq!(is_open, pass[0]);
        }
        // Where a mark may be set, packets stay with the kernel anyway.
        if !rules.iter().flatten().any(|rule| matches!(rule.1, Do::Mark { .. })) {
            let may_be_given = !policy.flow_tables(&view).unwrap().is_empty();
            prop_assert!(may_be_given || !given.contains(&true), "{given:?}");
            let is_given = packet.protocol == 6 && given.contains(&true);
            prop_assert!(policy.has_flow_tables(Family::V4) || !is_given);
            prop_assert!(!is_known || may_be_given == given[0]);
        }
    }
}
