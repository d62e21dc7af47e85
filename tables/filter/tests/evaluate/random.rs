//! Random rule sets and packets, from few values so that they meet.
use artery_filter::facts::{Direction, Facts, Family, Interface, Tag};
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces, mask_address};
use artery_filter::rule::{
    Action, AddressMatch, AnchorCall, BlockReturn, Comparison, Endpoint, Flags, Flush, HostAddress,
    InterfaceName, InterfacePart, Log, On, Pool, PoolAddress, PoolChoice, RouteKind, Rule, Ruleset, Scrub,
    Set, State, StateKeeping, StateOptions,
};
use artery_wire::IpProtocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A generator that a test can begin again from its seed (splitmix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

pub(crate) const TABLES: [&str; 3] = ["bad", "good", "none"];
pub(crate) const TAGS: [&str; 3] = ["", "x", "y"];

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize].clone()
    }

    fn maybe<T>(&mut self, one_in: u64, value: impl FnOnce(&mut Random) -> T) -> Option<T> {
        if self.one_in(one_in) { Some(value(self)) } else { None }
    }

    fn address(&mut self) -> IpAddr {
        let (high, low) = (self.below(2), self.below(8));
        if self.one_in(4) {
            Ipv6Addr::from_bits((0x2001_0db8 << 96) | (u128::from(high) << 64) | u128::from(low)).into()
        } else {
            Ipv4Addr::from_bits((10 << 24) | ((high as u32) << 16) | low as u32).into()
        }
    }

    fn network(&mut self) -> (IpAddr, u8) {
        let address = self.address();
        let length = match address.is_ipv4() {
            true => self.of(&[0, 8, 15, 16, 29, 30, 31, 32, 32]),
            false => self.of(&[0, 32, 63, 64, 125, 127, 128, 128]),
        };
        (mask_address(address, length), length)
    }

    fn port(&mut self) -> u16 {
        self.of(&[0, 1, 2, 3, 80, 81, 82, 83, 65535])
    }

    fn comparison(&mut self) -> Comparison<u16> {
        let (a, b) = (self.port(), self.port());
        self.of(&[
            Comparison::Equal(a),
            Comparison::Equal(b),
            Comparison::Unequal(a),
            Comparison::Less(a),
            Comparison::LessOrEqual(a),
            Comparison::Greater(a),
            Comparison::GreaterOrEqual(a),
            Comparison::Range(a, b),
            Comparison::Between(a, b),
            Comparison::Except(a, b),
        ])
    }

    fn endpoint(&mut self) -> Endpoint {
        let address = match self.below(22) {
            0..=7 => AddressMatch::Any,
            8..=12 => {
                let (network, length) = self.network();
                AddressMatch::Host(HostAddress::Network(network, length))
            }
            13 => {
                let address = self.address();
                let mask = match address {
                    IpAddr::V4(_) => Ipv4Addr::from_bits(0xff00_0003).into(),
                    IpAddr::V6(_) => Ipv6Addr::from_bits((u128::MAX << 100) | 5).into(),
                };
                AddressMatch::Host(HostAddress::Masked(address, mask))
            }
            14 => {
                let (a, b) = (self.address(), self.address());
                AddressMatch::Range(a, if a.is_ipv4() == b.is_ipv4() { b } else { a })
            }
            15..=18 => AddressMatch::Table(self.of(&TABLES).to_string()),
            19 => self.of(&[AddressMatch::NoRoute, AddressMatch::UrpfFailed]),
            20 => AddressMatch::RouteLabel(self.of(&["", "a", "ab"]).to_string()),
            _ => AddressMatch::Host(HostAddress::Dynamic {
                interface: InterfaceName(self.of(&["em0", "em", "wan", "self"]).to_string()),
                part: self.of(&[InterfacePart::Address, InterfacePart::Network]),
                without_aliases: self.one_in(2),
                length: None,
            }),
        };
        Endpoint {
            is_negated: address != AddressMatch::Any && self.one_in(4),
            address,
            port: self.maybe(4, Random::comparison),
            os: None,
        }
    }

    fn on(&mut self) -> On {
        match self.below(8) {
            0 => On::Any,
            1 => On::Domain(self.one_in(2), self.below(2) as u32),
            _ => {
                let name = self.of(&["em0", "em1", "em", "wan", "lo0", "gone"]);
                On::Interface(self.one_in(4), InterfaceName(name.to_string()))
            }
        }
    }

    fn pool(&mut self) -> Pool {
        let address = self.address();
        Pool {
            address: PoolAddress::Host(
                HostAddress::Network(address, if address.is_ipv4() { 32 } else { 128 }),
                None,
            ),
            choice: PoolChoice::Single,
            is_sticky: false,
            has_static_port: false,
            ports: None,
        }
    }

    fn action(&mut self, names: &[&str], depth: u32) -> Action {
        match self.below(10) {
            0..=3 => Action::Pass,
            4..=6 => {
                Action::Block(self.of(&[BlockReturn::Drop, BlockReturn::Return, BlockReturn::Reset(None)]))
            }
            7..=8 => Action::Match,
            _ => Action::Anchor(AnchorCall {
                name: self.maybe(2, |random| random.of(names).to_string()),
                inline: if depth > 0 { Some(Box::new(self.ruleset(&[], depth - 1, 4))) } else { None },
            }),
        }
    }

    /// A rule set of so many rules at most, whose anchors have these names if they have any.
    pub(crate) fn ruleset(&mut self, names: &[&str], depth: u32, most: u64) -> Ruleset {
        let count = self.below(most + 1);
        Ruleset { rules: (0..count).map(|_| self.rule(names, depth)).collect(), ..Ruleset::default() }
    }

    fn rule(&mut self, names: &[&str], depth: u32) -> Rule {
        let mut action = self.action(if names.is_empty() { &["in"] } else { names }, depth);
        if let Action::Anchor(AnchorCall { name: Some(name), inline }) = &mut action
            && (!names.is_empty() || name.contains('/') || name.contains('*'))
        {
            *inline = None;
        }
        let is_anchor = matches!(action, Action::Anchor(_));
        let is_plain_call = is_anchor && self.one_in(2);
        let translates = matches!(action, Action::Match | Action::Pass);
        let flags = self.maybe(6, |random| Flags { set: random.of(&[0, 2, 18]), of: 18, is_any: false });
        let keep = if action == Action::Pass {
            self.of(&[StateKeeping::No, StateKeeping::Keep])
        } else {
            StateKeeping::No
        };
        let mut rule = Rule {
            log: self.maybe(6, |random| Log {
                is_all: random.one_in(2),
                is_matches: random.one_in(12),
                is_user: false,
                interface: random.below(2) as u16,
            }),
            direction: self.maybe(3, |random| random.of(&[Direction::In, Direction::Out])),
            is_quick: self.one_in(8),
            on: self.maybe(4, Random::on),
            family: self.maybe(6, |random| random.of(&[Family::Inet, Family::Inet6])),
            protocol: self.maybe(3, Random::protocol),
            source: self.endpoint(),
            destination: self.endpoint(),
            received_on: self
                .maybe(20, |random| (random.one_in(2), InterfaceName(random.of(&["em0", "wan"]).into()))),
            user: None,
            group: None,
            flags: flags.unwrap_or_default(),
            icmp: self.maybe(20, |random| (random.of(&[0, 8]), random.maybe(2, |random| random.of(&[0, 1])))),
            tos: self.maybe(20, |random| random.of(&[0, 16])),
            priority: self.maybe(20, |random| random.of(&[0, 3])),
            max_packet_rate: self
                .maybe(25, |random| (1 + random.below(3) as u32, 1 + random.below(5) as u32)),
            set: Set {
                priority: self.maybe(8, |random| (random.below(8) as u8, random.below(8) as u8)),
                tos: self.maybe(8, |random| random.below(255) as u8),
                ..Set::default()
            },
            state: State {
                keep,
                options: StateOptions {
                    overload: self.maybe(30, |random| (random.of(&TABLES).to_string(), Flush::No)),
                    ..StateOptions::default()
                },
            },
            probability: self.maybe(20, |random| random.of(&[0, 1 << 30, 1 << 31, u32::MAX])),
            is_fragment: self.one_in(25),
            scrub: Scrub {
                is_given: self.one_in(8),
                clears_df: self.one_in(8),
                min_ttl: self.maybe(8, |random| random.below(64) as u8),
                ..Scrub::default()
            },
            allows_options: self.one_in(4),
            label: String::new(),
            is_once: !is_anchor && self.one_in(20),
            tag: if self.one_in(6) { self.of(&TAGS).to_string() } else { String::new() },
            tagged: self.maybe(8, |random| (random.one_in(3), random.of(&TAGS[1..]).to_string())),
            routing_table: None,
            divert: None,
            nat: if translates && self.one_in(8) { Some(self.pool()) } else { None },
            redirect: if translates && self.one_in(8) { Some(self.pool()) } else { None },
            family_to: None,
            route: if action == Action::Pass && self.one_in(8) {
                Some((RouteKind::RouteTo, self.pool()))
            } else {
                None
            },
            place: Default::default(),
            action,
        };
        if is_plain_call {
            // Calls that lead on, so that some go round.
            (rule.source, rule.destination) = Default::default();
            (rule.direction, rule.on, rule.protocol, rule.family) = Default::default();
        }
        rule
    }

    fn protocol(&mut self) -> IpProtocol {
        self.of(&[IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMP, IpProtocol::ICMPV6, IpProtocol(47)])
    }

    /// A packet of which anything may be, also what no sender would send.
    pub(crate) fn facts(&mut self) -> Facts {
        let source = self.address();
        let mut destination = self.address();
        while destination.is_ipv4() != source.is_ipv4() {
            destination = self.address();
        }
        Facts {
            interface: Interface(self.below(4) as u16),
            received_on: self.maybe(2, |random| Interface(random.below(4) as u16)),
            direction: self.of(&[Direction::In, Direction::Out]),
            protocol: self.protocol(),
            source,
            destination,
            source_port: self.port(),
            destination_port: self.port(),
            tcp_flags: self.of(&[0, 2, 16, 18, 20]),
            icmp: (self.of(&[0, 8]), self.of(&[0, 1])),
            tos: self.of(&[0, 16]),
            is_fragment: self.one_in(8),
            has_options: false,
            priority: self.of(&[0, 3]),
            tag: Tag(0),
            length: 100,
        }
    }

    /// Makes a rule speak of few of many addresses and ports.
    pub(crate) fn scatter(&mut self, rule: &mut Rule) {
        rule.is_quick &= self.one_in(8);
        let length = 16 + self.below(17) as u8;
        let network = mask_address(self.scattered(), length);
        rule.source.address = AddressMatch::Host(HostAddress::Network(network, length));
        rule.source.is_negated = self.one_in(500);
        rule.destination.port = self.maybe(2, |random| {
            let port = random.below(65536) as u16;
            Comparison::Range(port, port.saturating_add(random.below(2000) as u16))
        });
    }

    fn scattered(&mut self) -> IpAddr {
        Ipv4Addr::from_bits((10 << 24) | self.below(1 << 24) as u32).into()
    }

    /// A packet that such rules speak of.
    pub(crate) fn scattered_facts(&mut self) -> Facts {
        let (source, destination) = (self.scattered(), self.scattered());
        Facts { source, destination, destination_port: self.below(65536) as u16, ..self.facts() }
    }

    /// Entries of a table that is big; few of them are about the addresses of packets.
    pub(crate) fn many_entries(&mut self) -> Vec<(IpAddr, u8, bool)> {
        let scattered = (0..1500).map(|n| {
            let bits = (11 << 24) | (n << 12) | self.below(4096) as u32;
            (Ipv4Addr::from_bits(bits).into(), 32, self.one_in(9))
        });
        let mut entries: Vec<_> = scattered.collect();
        entries.extend(self.entries());
        entries
    }

    /// Entries of a table.
    pub(crate) fn entries(&mut self) -> Vec<(IpAddr, u8, bool)> {
        let count = self.below(8);
        let mut entries: Vec<(IpAddr, u8, bool)> = Vec::new();
        for _ in 0..count {
            let (network, length) = self.network();
            if !entries.iter().any(|entry| (entry.0, entry.1) == (network, length)) {
                entries.push((network, length, self.one_in(3)));
            }
        }
        entries
    }
}

/// The interfaces that rules and packets are about.
pub(crate) fn interfaces() -> Interfaces {
    let address =
        |address: &str, length| InterfaceAddress { address: address.parse().unwrap(), length, peer: None };
    let record = |name: &str, groups: &[&str], domain, addresses: &[InterfaceAddress]| InterfaceRecord {
        name: name.into(),
        groups: groups.iter().map(|group| group.to_string()).collect(),
        is_loopback: name == "lo0",
        domain,
        addresses: addresses.to_vec(),
    };
    let em0 = [address("10.0.0.1", 30), address("10.1.0.2", 16), address("2001:db8::1", 64)];
    Interfaces(vec![
        record("em0", &[], 0, &em0),
        record("em1", &["wan"], 0, &[address("10.0.0.5", 32)]),
        record("lo0", &[], 0, &[address("10.0.0.7", 8)]),
        record("vlan0", &["wan"], 1, &[]),
    ])
}
