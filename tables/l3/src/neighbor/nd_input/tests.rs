use super::*;
use artery_lpm::Prefix;
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

fn heard(
    text: &str,
    link: Option<EtherAddr>,
    kind: NeighborUpdateKind,
    router: Option<bool>,
) -> Option<NdUpdate> {
    Some(NdUpdate { address: address(text), heard: NeighborUpdate { link, kind, router }, for_us: true })
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
    assert_eq!(at(&forwarded), outcome_noted(NdNote::Invalid(NdFault::HopLimit)));
    let good = question(ME);
    for len in 0..good.len() {
        assert!(matches!(at(&good[..len]).note, Some(NdNote::Invalid(_))), "{len}");
    }
}

#[test]
fn our_own_messages_are_ignored() {
    for packet in [question(ME), probe(TENTATIVE), advertisement(0x20, ME, Some(MY_LINK))] {
        assert_eq!(on(&packet, MY_LINK, |_| {}), outcome_noted(NdNote::OwnSender));
    }
}

#[test]
fn link_addresses_of_groups_or_none_are_ignored() {
    for link in [EtherAddr::BROADCAST, EtherAddr([0x33, 0x33, 0, 0, 0, 1]), EtherAddr::ZERO] {
        assert_eq!(on(&question(ME), link, |_| {}), outcome_noted(NdNote::NoSender));
        assert_eq!(at(&solicitation(YOU, ME, &source_link(link))).heard, None);
        assert_eq!(at(&advertisement(0x60, YOU, Some(link))), outcome_noted(NdNote::NoSender));
    }
}

#[test]
fn a_question_for_our_address_is_answered_to_who_asked_and_makes_it_known() {
    let outcome = at(&question(ME));
    let me = LinkEndpoint { ether: MY_LINK, ip: address(ME) };
    let to = LinkEndpoint { ether: LINK, ip: address(YOU) };
    let flags = AdvertisementFlags { router: true, solicited: true, overrides: true };
    assert_eq!(outcome.reply, Some(NdReply { from: me, to, target: me, flags }));
    assert_eq!(outcome.heard, heard(YOU, Some(LINK), NeighborUpdateKind::Solicitation, None));
    assert_eq!(outcome.note, None);
}

#[test]
fn a_question_without_link_address_is_answered_to_the_frame_s_sender() {
    let outcome = at(&solicitation(YOU, ME, &[]));
    assert_eq!(outcome.reply.unwrap().to.ether, LINK);
    assert_eq!(outcome.heard, heard(YOU, None, NeighborUpdateKind::Solicitation, None));
}

#[test]
fn a_port_that_does_not_route_says_so() {
    assert!(!on(&question(ME), LINK, |port| port.routes = false).reply.unwrap().flags.router);
}

#[test]
fn a_probe_for_our_address_is_answered_to_all_and_nobody_is_learnt() {
    let outcome = at(&probe(ME));
    let reply = outcome.reply.unwrap();
    assert_eq!(reply.to, LinkEndpoint::multicast_group(ALL_NODES));
    assert_eq!(reply.flags, AdvertisementFlags { router: true, solicited: false, overrides: true });
    assert_eq!((outcome.heard, outcome.conflict), (None, None));
}

#[test]
fn a_probe_for_an_address_that_we_claim_is_a_conflict_and_a_question_for_it_is_not() {
    assert_eq!(at(&probe(TENTATIVE)), conflict(TENTATIVE));
    assert_eq!(at(&question(TENTATIVE)), outcome_noted(NdNote::NotForUs));
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
    assert_eq!(at(&question("2001:db8::9")), outcome_noted(NdNote::NotForUs));
}

#[test]
fn a_question_from_another_network_is_not_answered() {
    assert_eq!(at(&solicitation(FAR, ME, &source_link(LINK))), outcome_noted(NdNote::NotNeighbor));
    assert!(at(&solicitation("fe80::2", ME, &source_link(LINK))).reply.is_some());
}

#[test]
fn an_anycast_address_is_answered_for_without_overriding_from_an_address_of_ours() {
    let reply = at(&question(ANYCAST)).reply.unwrap();
    assert_eq!(reply.from, LinkEndpoint { ether: MY_LINK, ip: address(MY_LOCAL) });
    assert_eq!(reply.target, LinkEndpoint { ether: MY_LINK, ip: address(ANYCAST) });
    assert_eq!(reply.flags, AdvertisementFlags { router: true, solicited: true, overrides: false });
    assert_eq!(at(&advertisement(0, ANYCAST, Some(LINK))), outcome_noted(NdNote::NotForUs));
}

#[test]
fn a_published_address_is_answered_for_without_overriding() {
    let reply = at(&question(PUBLISHED)).reply.unwrap();
    assert_eq!(reply.target, LinkEndpoint { ether: PUBLISHED_LINK, ip: address(PUBLISHED) });
    assert_eq!(reply.flags, AdvertisementFlags { router: false, solicited: true, overrides: false });
    assert_eq!(on(&probe(PUBLISHED), PUBLISHED_LINK, |_| {}).reply, None);
    assert_eq!(on(&question(PUBLISHED), LINK, |port| port.addresses = &[]).reply, None);
}

#[test]
fn an_advertisement_is_heard_with_its_flags() {
    for flags in 0..8u8 {
        let outcome = at(&advertisement(flags << 5, YOU, Some(LINK)));
        let kind = NeighborUpdateKind::Advertisement { solicited: flags & 2 != 0, overrides: flags & 1 != 0 };
        assert_eq!(outcome.heard, heard(YOU, Some(LINK), kind, Some(flags & 4 != 0)));
        assert_eq!(outcome.reply, None);
    }
    let kind = NeighborUpdateKind::Advertisement { solicited: true, overrides: false };
    assert_eq!(at(&advertisement(0x40, YOU, None)).heard, heard(YOU, None, kind, Some(false)));
}

#[test]
fn an_advertisement_of_an_address_that_is_not_on_link_makes_nobody_known() {
    assert!(!at(&advertisement(0x20, FAR, Some(LINK))).heard.unwrap().for_us);
}

#[test]
fn who_asks_for_routers_is_heard_of_as_none_and_the_question_is_told() {
    let outcome = at(&router_solicitation("fe80::2", &source_link(LINK)));
    assert_eq!(outcome.heard, heard("fe80::2", Some(LINK), NeighborUpdateKind::Solicitation, Some(false)));
    assert!(outcome.asks_for_routers);
    let nobody = at(&router_solicitation("::", &[]));
    assert_eq!((nobody.heard, nobody.asks_for_routers), (None, true));
    let host = on(&router_solicitation("::", &[]), LINK, |port| port.routes = false);
    assert!(!host.asks_for_routers);
}

#[test]
fn who_advertises_itself_as_a_router_is_heard_of_as_one() {
    let outcome = at(&router_advertisement(&source_link(LINK)));
    assert_eq!(outcome.heard, heard("fe80::2", Some(LINK), NeighborUpdateKind::Solicitation, Some(true)));
}

#[test]
fn a_redirect_is_not_for_a_router() {
    let body = [&address(YOU).octets()[..], &address(YOU).octets(), &target_link(LINK)];
    let packet = message(Icmp6Type::REDIRECT, "fe80::2", address(ME), [0; 4], &body);
    assert_eq!(at(&packet), outcome_noted(NdNote::Redirect));
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
    for packet in [question(ME), probe(ME), probe(TENTATIVE), advertisement(0, YOU, Some(LINK)), vec![0; 9]] {
        counters.count_outcome(&at(&packet));
    }
    let counted: Vec<_> = counters.iter_named().filter(|&(_, count)| count > 0).collect();
    let expected =
        [("received", 5), ("answered", 2), ("heard", 2), ("duplicates", 1), ("invalid", 1), ("conflict", 1)];
    assert_eq!(counted, expected);
}
