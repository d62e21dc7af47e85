//! What to do with a received Neighbor Discovery message (RFC 4861, 6.2, 7.2 and 8.2; RFC 4862, 5.4; RFC 9131).
//!
//! A decision and nothing else: what to answer, what a table is to hear, whether somebody uses an address of ours.
//! Whether a message may be believed at all is said by [`NdMessage`]; what a table makes of what it hears, by its
//! protocol. We route, so redirects are for others (RFC 4861, 8.2).

use super::claim::OwnAddress;
use super::protocol::{Heard, HeardKind};
use crate::PortId;
use artery_wire::nd::{ALL_NODES, AdvertisementFlags, NdFault, NdMessage, Station};
use artery_wire::nd::{NeighborAdvertisement, NeighborSolicitation};
use artery_wire::{EtherAddr, Ipv6};
use std::net::Ipv6Addr;

/// What matters of the port on which a message came.
#[derive(Clone, Copy, Debug)]
pub struct NdPort<'a> {
    /// The port.
    pub id: PortId,
    /// Its link address.
    pub link: EtherAddr,
    /// Its own addresses.
    pub addresses: &'a [OwnAddress<u128>],
    /// Addresses of ours that other stations may have too (RFC 4291, 2.6), such as that of all routers of a network.
    pub anycast: &'a [Ipv6Addr],
    /// Whether it forwards, and says so (flag R).
    pub routes: bool,
    /// Whether it learns; it answers in any case.
    pub learns: bool,
}

/// What has to be asked of other tables; only when it matters.
#[derive(Clone, Copy)]
pub struct NdSurroundings<'a> {
    /// The link address that is published at this port for the address.
    pub published: &'a dyn Fn(Ipv6Addr) -> Option<EtherAddr>,
}

/// What follows from a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdOutcome {
    /// A neighbor advertisement to send.
    pub reply: Option<NdReply>,
    /// What the port's table is to hear.
    pub heard: Option<NdHeard>,
    /// Somebody else uses, or is about to use, an address of ours: for its claim.
    pub conflict: Option<NdConflict>,
    /// Whether somebody asks for routers.
    pub asks_for_routers: bool,
    /// Why something was not done, or what is to be logged.
    pub note: Option<NdNote>,
}

/// The fields of an advertisement, as [`neighbor_advertisement`](artery_wire::nd::neighbor_advertisement) takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdReply {
    /// Who sends it.
    pub from: Station<Ipv6Addr>,
    /// Who is to have it.
    pub to: Station<Ipv6Addr>,
    /// What it tells.
    pub target: Station<Ipv6Addr>,
    /// With which flags.
    pub flags: AdvertisementFlags,
}

/// What a table is to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdHeard {
    /// Of which neighbor.
    pub address: Ipv6Addr,
    /// What it said.
    pub heard: Heard,
    /// Whether it may become known by this: it is on-link, and the message was for us, or for all.
    pub for_us: bool,
}

/// Somebody else with an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdConflict {
    /// The address.
    pub address: Ipv6Addr,
    /// Who uses it.
    pub with: EtherAddr,
}

/// Why something was not done with a message, or what a log should say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NdNote {
    /// It may not be believed.
    Invalid(NdFault),
    /// It is our own, come back.
    OwnSender,
    /// The sender's link address is that of a group or of none.
    NoSender,
    /// The sender is on none of our networks.
    NotNeighbor,
    /// It asks for an address that is not ours, or not yet.
    NotForUs,
    /// Somebody uses an address of ours.
    Conflict,
    /// The port doesn't learn.
    NotLearning,
    /// It tells a host to use another router, and we are none.
    Redirect,
}

impl NdNote {
    /// The names of all, in the order of [`NdCounters::notes`].
    pub const NAMES: [&'static str; 8] = [
        "invalid",
        "own-sender",
        "no-sender",
        "not-neighbor",
        "not-for-us",
        "conflict",
        "not-learning",
        "redirect",
    ];

    /// Returns the name, as counters and logs say it.
    pub fn name(self) -> &'static str {
        NdNote::NAMES[self.place()]
    }

    /// Says whether a log should tell of it; the others are only counted.
    pub fn is_logged(self) -> bool {
        matches!(self, NdNote::NoSender | NdNote::NotNeighbor | NdNote::Conflict)
    }

    fn place(self) -> usize {
        match self {
            NdNote::Invalid(_) => 0,
            NdNote::OwnSender => 1,
            NdNote::NoSender => 2,
            NdNote::NotNeighbor => 3,
            NdNote::NotForUs => 4,
            NdNote::Conflict => 5,
            NdNote::NotLearning => 6,
            NdNote::Redirect => 7,
        }
    }
}

/// What is counted of Neighbor Discovery at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NdCounters {
    /// Messages received.
    pub received: u64,
    /// Advertisements sent as answers.
    pub answered: u64,
    /// Messages from which the table heard something.
    pub heard: u64,
    /// Messages that showed an address of ours with somebody else.
    pub duplicates: u64,
    /// Messages with each note, in the order of [`NdNote::NAMES`].
    pub notes: [u64; NdNote::NAMES.len()],
}

impl NdCounters {
    /// Returns name and value of all.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'_> {
        let all = [
            ("received", self.received),
            ("answered", self.answered),
            ("heard", self.heard),
            ("duplicates", self.duplicates),
        ];
        all.into_iter().chain(NdNote::NAMES.into_iter().zip(self.notes))
    }

    /// Counts a received message by what follows from it. A reply counts as sent.
    pub fn count(&mut self, outcome: &NdOutcome) {
        self.received += 1;
        self.answered += u64::from(outcome.reply.is_some());
        self.heard += u64::from(outcome.heard.is_some());
        self.duplicates += u64::from(outcome.conflict.is_some());
        if let Some(note) = outcome.note {
            self.notes[note.place()] += 1;
        }
    }
}

/// Decides about a received message: an IPv6 packet, that came in a frame from `sender`.
pub fn receive(
    packet: &[u8],
    sender: EtherAddr,
    port: &NdPort<'_>,
    around: &NdSurroundings<'_>,
) -> NdOutcome {
    match NdMessage::read(packet) {
        Ok(message) => {
            // Reading the message read this header.
            let source = Ipv6::new(packet).map_or(Ipv6Addr::UNSPECIFIED, |ip| ip.src());
            Input { source, sender, port, around }.decide(&message)
        }
        Err(fault) => noted(NdNote::Invalid(fault)),
    }
}

fn noted(note: NdNote) -> NdOutcome {
    NdOutcome { note: Some(note), ..NdOutcome::default() }
}

/// A message's sender, where it came in, and what there is to ask.
struct Input<'a> {
    source: Ipv6Addr,
    sender: EtherAddr,
    port: &'a NdPort<'a>,
    around: &'a NdSurroundings<'a>,
}

impl Input<'_> {
    fn decide(&self, message: &NdMessage<'_>) -> NdOutcome {
        if self.sender == self.port.link {
            return noted(NdNote::OwnSender);
        }
        if self.sender.is_group() || self.sender == EtherAddr::ZERO {
            return noted(NdNote::NoSender);
        }
        match message {
            NdMessage::NeighborSolicitation(message) => self.solicitation(message),
            NdMessage::NeighborAdvertisement(message) => self.advertisement(message),
            NdMessage::RouterSolicitation(message) => NdOutcome {
                asks_for_routers: self.port.routes,
                ..self.hear_source(message.source_link(), Some(false))
            },
            NdMessage::RouterAdvertisement(message) => self.hear_source(message.source_link(), Some(true)),
            NdMessage::Redirect(_) => noted(NdNote::Redirect),
        }
    }

    /// Somebody asks for an address, or whether it is free (RFC 4861, 7.2.3; RFC 4862, 5.4.3).
    fn solicitation(&self, message: &NeighborSolicitation<&[u8]>) -> NdOutcome {
        let target = message.target();
        if self.is_tentative(target) {
            // A question tells nothing about its own target; a probe tells of another claim.
            let is_probe = self.source.is_unspecified();
            return if is_probe { self.conflict(target) } else { noted(NdNote::NotForUs) };
        }
        if !self.source.is_unspecified() && !self.is_neighbor(self.source) {
            return noted(NdNote::NotNeighbor);
        }
        match self.answer(target, message.source_link()) {
            Some(reply) => NdOutcome { reply: Some(reply), ..self.hear_source(message.source_link(), None) },
            None => noted(NdNote::NotForUs),
        }
    }

    /// The answer to a question for an address of ours, or one that is published.
    fn answer(&self, target: Ipv6Addr, link: Option<EtherAddr>) -> Option<NdReply> {
        let is_own = self.own(target).is_some();
        let is_anycast = self.port.anycast.contains(&target);
        let target_link = match (self.around.published)(target) {
            _ if is_own || is_anycast => self.port.link,
            Some(link) if link != self.sender => link,
            _ => return None,
        };
        // No packet comes from an anycast address (RFC 4291, 2.6), nor from that of another.
        let from = if is_own { target } else { self.speaker()? };
        let is_probe = self.source.is_unspecified();
        let to = match is_probe {
            true => Station::group(ALL_NODES),
            false => Station { ether: link.unwrap_or(self.sender), ip: self.source },
        };
        Some(NdReply {
            from: Station { ether: self.port.link, ip: from },
            to,
            target: Station { ether: target_link, ip: target },
            flags: AdvertisementFlags {
                router: self.port.routes && (is_own || is_anycast),
                solicited: !is_probe,
                overrides: is_own,
            },
        })
    }

    /// Somebody says where an address is (RFC 4861, 7.2.5; RFC 4862, 5.4.4).
    fn advertisement(&self, message: &NeighborAdvertisement<&[u8]>) -> NdOutcome {
        let target = message.target();
        if self.is_tentative(target) || self.own(target).is_some() {
            return self.conflict(target);
        }
        if self.port.anycast.contains(&target) {
            return noted(NdNote::NotForUs);
        }
        let kind =
            HeardKind::Advertisement { solicited: message.is_solicited(), overrides: message.overrides() };
        let heard = Heard { link: message.target_link(), kind, router: Some(message.is_router()) };
        self.hear(target, heard)
    }

    /// What a message tells of its source by the way.
    fn hear_source(&self, link: Option<EtherAddr>, router: Option<bool>) -> NdOutcome {
        if self.source.is_unspecified() {
            return NdOutcome::default();
        }
        if !self.is_neighbor(self.source) {
            return noted(NdNote::NotNeighbor);
        }
        self.hear(self.source, Heard { link, kind: HeardKind::Solicitation, router })
    }

    fn hear(&self, address: Ipv6Addr, heard: Heard) -> NdOutcome {
        if self.own(address).is_some() || self.is_tentative(address) {
            return self.conflict(address);
        }
        if !self.port.learns {
            return noted(NdNote::NotLearning);
        }
        if heard.link.is_some_and(|link| link.is_group() || link == EtherAddr::ZERO) {
            return noted(NdNote::NoSender);
        }
        let for_us = self.is_neighbor(address);
        NdOutcome { heard: Some(NdHeard { address, heard, for_us }), ..NdOutcome::default() }
    }

    fn conflict(&self, address: Ipv6Addr) -> NdOutcome {
        let conflict = Some(NdConflict { address, with: self.sender });
        NdOutcome { conflict, note: Some(NdNote::Conflict), ..NdOutcome::default() }
    }

    /// An address of ours that is in use.
    fn own(&self, address: Ipv6Addr) -> Option<&OwnAddress<u128>> {
        self.port.addresses.iter().find(|own| own.address == address.to_bits() && !own.is_tentative)
    }

    fn is_tentative(&self, address: Ipv6Addr) -> bool {
        self.port.addresses.iter().any(|own| own.address == address.to_bits() && own.is_tentative)
    }

    /// An address of ours to speak from, link-local if there is one.
    fn speaker(&self) -> Option<Ipv6Addr> {
        let usable = self.port.addresses.iter().filter(|own| !own.is_tentative);
        usable
            .map(|own| Ipv6Addr::from_bits(own.address))
            .min_by_key(|address| !address.is_unicast_link_local())
    }

    fn is_neighbor(&self, address: Ipv6Addr) -> bool {
        address.is_unicast_link_local()
            || self.port.addresses.iter().any(|own| own.network.contains(address.to_bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix;
    use artery_wire::Icmp6Type;
    use artery_wire::build::ip6;
    use artery_wire::nd::solicited_node;

    const MY_LINK: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 1]);
    const LINK: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 2]);
    const PUBLISHED_LINK: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 3]);
    const ME: &str = "2001:db8::1";
    const MY_LOCAL: &str = "fe80::1";
    const TENTATIVE: &str = "2001:db8::7";
    const ANYCAST: &str = "2001:db8::";
    const PUBLISHED: &str = "2001:db8::33";
    const YOU: &str = "2001:db8::2";
    const FAR: &str = "2001:db8:ffff::2";

    fn address(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn source_link(link: EtherAddr) -> Vec<u8> {
        [&[1, 1][..], &link.0].concat()
    }

    fn target_link(link: EtherAddr) -> Vec<u8> {
        [&[2, 1][..], &link.0].concat()
    }

    fn message(icmp_type: Icmp6Type, source: &str, to: Ipv6Addr, rest: [u8; 4], body: &[&[u8]]) -> Vec<u8> {
        let packet = ip6().src(source).dst(to).hop_limit(255);
        packet.icmp(icmp_type, 0, rest).payload(body.concat()).bytes()
    }

    fn solicitation(source: &str, target: &str, options: &[u8]) -> Vec<u8> {
        let target = address(target);
        let body = [&target.octets()[..], options];
        message(Icmp6Type::NEIGHBOR_SOLICITATION, source, solicited_node(target), [0; 4], &body)
    }

    fn question(target: &str) -> Vec<u8> {
        solicitation(YOU, target, &source_link(LINK))
    }

    fn probe(target: &str) -> Vec<u8> {
        solicitation("::", target, &[])
    }

    fn advertisement(flags: u8, target: &str, link: Option<EtherAddr>) -> Vec<u8> {
        let to = if flags & 0x40 != 0 { address(ME) } else { ALL_NODES };
        let body = [&address(target).octets()[..], &link.map(target_link).unwrap_or_default()];
        message(Icmp6Type::NEIGHBOR_ADVERTISEMENT, YOU, to, [flags, 0, 0, 0], &body)
    }

    fn router_solicitation(source: &str, options: &[u8]) -> Vec<u8> {
        message(Icmp6Type::ROUTER_SOLICITATION, source, address("ff02::2"), [0; 4], &[options])
    }

    fn router_advertisement(options: &[u8]) -> Vec<u8> {
        message(Icmp6Type::ROUTER_ADVERTISEMENT, "fe80::2", ALL_NODES, [64, 0, 7, 8], &[&[0; 8], options])
    }

    fn on(packet: &[u8], sender: EtherAddr, change: impl Fn(&mut NdPort<'_>)) -> NdOutcome {
        let own = |text: &str, is_tentative| {
            let address = address(text).to_bits();
            OwnAddress { address, network: Prefix::of(address, 64), is_tentative }
        };
        let addresses = [own(ME, false), own(TENTATIVE, true), own(MY_LOCAL, false)];
        let anycast = [address(ANYCAST)];
        let mut port = NdPort {
            id: PortId(1),
            link: MY_LINK,
            addresses: &addresses,
            anycast: &anycast,
            routes: true,
            learns: true,
        };
        change(&mut port);
        let published = |target| (target == address(PUBLISHED)).then_some(PUBLISHED_LINK);
        receive(packet, sender, &port, &NdSurroundings { published: &published })
    }

    fn at(packet: &[u8]) -> NdOutcome {
        on(packet, LINK, |_| {})
    }

    fn heard(text: &str, link: Option<EtherAddr>, kind: HeardKind, router: Option<bool>) -> Option<NdHeard> {
        Some(NdHeard { address: address(text), heard: Heard { link, kind, router }, for_us: true })
    }

    fn conflict(text: &str) -> NdOutcome {
        NdOutcome {
            conflict: Some(NdConflict { address: address(text), with: LINK }),
            note: Some(NdNote::Conflict),
            ..NdOutcome::default()
        }
    }

    #[test]
    fn what_may_not_be_believed_is_ignored() {
        let mut forwarded = question(ME);
        forwarded[7] = 254;
        assert_eq!(at(&forwarded), noted(NdNote::Invalid(NdFault::HopLimit)));
        let good = question(ME);
        for len in 0..good.len() {
            assert!(matches!(at(&good[..len]).note, Some(NdNote::Invalid(_))), "{len}");
        }
    }

    #[test]
    fn our_own_messages_are_ignored() {
        for packet in [question(ME), probe(TENTATIVE), advertisement(0x20, ME, Some(MY_LINK))] {
            assert_eq!(on(&packet, MY_LINK, |_| {}), noted(NdNote::OwnSender));
        }
    }

    #[test]
    fn link_addresses_of_groups_or_none_are_ignored() {
        for link in [EtherAddr::BROADCAST, EtherAddr([0x33, 0x33, 0, 0, 0, 1]), EtherAddr::ZERO] {
            assert_eq!(on(&question(ME), link, |_| {}), noted(NdNote::NoSender));
            assert_eq!(at(&solicitation(YOU, ME, &source_link(link))).heard, None);
            assert_eq!(at(&advertisement(0x60, YOU, Some(link))), noted(NdNote::NoSender));
        }
    }

    #[test]
    fn a_question_for_our_address_is_answered_to_who_asked_and_makes_it_known() {
        let outcome = at(&question(ME));
        let me = Station { ether: MY_LINK, ip: address(ME) };
        let to = Station { ether: LINK, ip: address(YOU) };
        let flags = AdvertisementFlags { router: true, solicited: true, overrides: true };
        assert_eq!(outcome.reply, Some(NdReply { from: me, to, target: me, flags }));
        assert_eq!(outcome.heard, heard(YOU, Some(LINK), HeardKind::Solicitation, None));
        assert_eq!(outcome.note, None);
    }

    #[test]
    fn a_question_without_link_address_is_answered_to_the_frame_s_sender() {
        let outcome = at(&solicitation(YOU, ME, &[]));
        assert_eq!(outcome.reply.unwrap().to.ether, LINK);
        assert_eq!(outcome.heard, heard(YOU, None, HeardKind::Solicitation, None));
    }

    #[test]
    fn a_port_that_does_not_route_says_so() {
        assert!(!on(&question(ME), LINK, |port| port.routes = false).reply.unwrap().flags.router);
    }

    #[test]
    fn a_probe_for_our_address_is_answered_to_all_and_nobody_is_learnt() {
        let outcome = at(&probe(ME));
        let reply = outcome.reply.unwrap();
        assert_eq!(reply.to, Station::group(ALL_NODES));
        assert_eq!(reply.flags, AdvertisementFlags { router: true, solicited: false, overrides: true });
        assert_eq!((outcome.heard, outcome.conflict), (None, None));
    }

    #[test]
    fn a_probe_for_an_address_that_we_claim_is_a_conflict_and_a_question_for_it_is_not() {
        assert_eq!(at(&probe(TENTATIVE)), conflict(TENTATIVE));
        assert_eq!(at(&question(TENTATIVE)), noted(NdNote::NotForUs));
    }

    #[test]
    fn an_advertisement_of_an_address_of_ours_is_a_conflict() {
        for target in [ME, TENTATIVE] {
            for flags in [0, 0x20, 0x40, 0x60, 0xe0] {
                assert_eq!(at(&advertisement(flags, target, Some(LINK))), conflict(target));
            }
        }
    }

    #[test]
    fn who_sends_from_an_address_of_ours_is_in_conflict_and_not_learnt() {
        for learns in [true, false] {
            let packet = solicitation(ME, MY_LOCAL, &source_link(LINK));
            let outcome = on(&packet, LINK, |port| port.learns = learns);
            assert_eq!((outcome.heard, outcome.conflict), (None, conflict(ME).conflict));
        }
    }

    #[test]
    fn a_question_for_another_address_tells_us_nothing() {
        assert_eq!(at(&question("2001:db8::9")), noted(NdNote::NotForUs));
    }

    #[test]
    fn a_question_from_another_network_is_not_answered() {
        assert_eq!(at(&solicitation(FAR, ME, &source_link(LINK))), noted(NdNote::NotNeighbor));
        assert!(at(&solicitation("fe80::2", ME, &source_link(LINK))).reply.is_some());
    }

    #[test]
    fn an_anycast_address_is_answered_for_without_overriding_from_an_address_of_ours() {
        let reply = at(&question(ANYCAST)).reply.unwrap();
        assert_eq!(reply.from, Station { ether: MY_LINK, ip: address(MY_LOCAL) });
        assert_eq!(reply.target, Station { ether: MY_LINK, ip: address(ANYCAST) });
        assert_eq!(reply.flags, AdvertisementFlags { router: true, solicited: true, overrides: false });
        assert_eq!(at(&advertisement(0, ANYCAST, Some(LINK))), noted(NdNote::NotForUs));
    }

    #[test]
    fn a_published_address_is_answered_for_without_overriding() {
        let reply = at(&question(PUBLISHED)).reply.unwrap();
        assert_eq!(reply.target, Station { ether: PUBLISHED_LINK, ip: address(PUBLISHED) });
        assert_eq!(reply.flags, AdvertisementFlags { router: false, solicited: true, overrides: false });
        assert_eq!(on(&probe(PUBLISHED), PUBLISHED_LINK, |_| {}).reply, None);
        assert_eq!(on(&question(PUBLISHED), LINK, |port| port.addresses = &[]).reply, None);
    }

    #[test]
    fn an_advertisement_is_heard_with_its_flags() {
        for flags in 0..8u8 {
            let outcome = at(&advertisement(flags << 5, YOU, Some(LINK)));
            let kind = HeardKind::Advertisement { solicited: flags & 2 != 0, overrides: flags & 1 != 0 };
            assert_eq!(outcome.heard, heard(YOU, Some(LINK), kind, Some(flags & 4 != 0)));
            assert_eq!(outcome.reply, None);
        }
        let kind = HeardKind::Advertisement { solicited: true, overrides: false };
        assert_eq!(at(&advertisement(0x40, YOU, None)).heard, heard(YOU, None, kind, Some(false)));
    }

    #[test]
    fn an_advertisement_of_an_address_that_is_not_on_link_makes_nobody_known() {
        assert!(!at(&advertisement(0x20, FAR, Some(LINK))).heard.unwrap().for_us);
    }

    #[test]
    fn who_asks_for_routers_is_heard_of_as_none_and_the_question_is_told() {
        let outcome = at(&router_solicitation("fe80::2", &source_link(LINK)));
        assert_eq!(outcome.heard, heard("fe80::2", Some(LINK), HeardKind::Solicitation, Some(false)));
        assert!(outcome.asks_for_routers);
        let nobody = at(&router_solicitation("::", &[]));
        assert_eq!((nobody.heard, nobody.asks_for_routers), (None, true));
        let host = on(&router_solicitation("::", &[]), LINK, |port| port.routes = false);
        assert!(!host.asks_for_routers);
    }

    #[test]
    fn who_advertises_itself_as_a_router_is_heard_of_as_one() {
        let outcome = at(&router_advertisement(&source_link(LINK)));
        assert_eq!(outcome.heard, heard("fe80::2", Some(LINK), HeardKind::Solicitation, Some(true)));
    }

    #[test]
    fn a_redirect_is_not_for_a_router() {
        let body = [&address(YOU).octets()[..], &address(YOU).octets(), &target_link(LINK)];
        let packet = message(Icmp6Type::REDIRECT, "fe80::2", address(ME), [0; 4], &body);
        assert_eq!(at(&packet), noted(NdNote::Redirect));
    }

    #[test]
    fn a_port_that_does_not_learn_answers() {
        let outcome = on(&question(ME), LINK, |port| port.learns = false);
        assert_eq!((outcome.heard, outcome.note), (None, Some(NdNote::NotLearning)));
        assert!(outcome.reply.is_some());
    }

    #[test]
    fn what_comes_and_what_follows_is_counted_under_names() {
        let mut counters = NdCounters::default();
        for packet in
            [question(ME), probe(ME), probe(TENTATIVE), advertisement(0, YOU, Some(LINK)), vec![0; 9]]
        {
            counters.count(&at(&packet));
        }
        let counted: Vec<_> = counters.each().filter(|&(_, count)| count > 0).collect();
        let expected = [
            ("received", 5),
            ("answered", 2),
            ("heard", 2),
            ("duplicates", 1),
            ("invalid", 1),
            ("conflict", 1),
        ];
        assert_eq!(counted, expected);
    }
}
