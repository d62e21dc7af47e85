use super::*;
use proptest::prelude::*;

const PORT: PortId = PortId(1);
const OTHER_PORT: PortId = PortId(2);
const MY_LINK: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 1]);
const LINK: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 2]);
const PUBLISHED_LINK: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 3]);
const ME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TENTATIVE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const AUTO: Ipv4Addr = Ipv4Addr::new(169, 254, 3, 4);
const YOU: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// On another network, reached by the other port.
const FAR: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// Published at the port.
const PUBLISHED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 33);
/// Known at the other port.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);

fn message(operation: u16, link: EtherAddr, sender: Ipv4Addr, target: Ipv4Addr) -> [u8; 28] {
    let mut bytes = [0; 28];
    let mut arp = Arp::init(&mut bytes[..]).unwrap();
    arp.set_operation(ArpOperation(operation));
    arp.set_sender(link, sender);
    arp.set_target(EtherAddr::ZERO, target);
    bytes
}

fn request(sender: Ipv4Addr, target: Ipv4Addr) -> [u8; 28] {
    message(1, LINK, sender, target)
}

fn reply(sender: Ipv4Addr, target: Ipv4Addr) -> [u8; 28] {
    message(2, LINK, sender, target)
}

fn on(bytes: &[u8], change: impl Fn(&mut ArpPort<'_>)) -> ArpOutcome {
    let own = |address: Ipv4Addr, len, is_tentative| {
        let address = address.to_bits();
        OwnAddress { address, network: Prefix::of(address, len), is_tentative }
    };
    let addresses = [own(ME, 24, false), own(TENTATIVE, 24, true), own(AUTO, 16, false)];
    let mut port = ArpPort {
        id: PORT,
        link: MY_LINK,
        addresses: &addresses,
        speaks: true,
        learns: true,
        allows_groups: false,
        is_proxy: false,
    };
    change(&mut port);
    let far = |address: Ipv4Addr| address.octets()[0] == 172;
    receive(
        bytes,
        &port,
        &ArpSurroundings {
            elsewhere: &|address| (address == ELSEWHERE).then_some(OTHER_PORT),
            published: &|address| (address == PUBLISHED).then_some(PUBLISHED_LINK),
            leaves_by: &|address| Some(if far(address) { OTHER_PORT } else { PORT }),
        },
    )
}

fn at(bytes: &[u8]) -> ArpOutcome {
    on(bytes, |_| {})
}

fn noted(note: ArpNote) -> ArpOutcome {
    ArpOutcome { note: Some(note), ..ArpOutcome::default() }
}

fn told(sender: Ipv4Addr, sender_link: EtherAddr, target: Ipv4Addr) -> Option<ArpReply> {
    Some(ArpReply { destination: LINK, sender_link, sender, target_link: LINK, target })
}

fn heard(address: Ipv4Addr, kind: NeighborUpdateKind, for_us: bool) -> Option<ArpUpdate> {
    Some(ArpUpdate { address, heard: NeighborUpdate { link: Some(LINK), kind, router: None }, for_us })
}

#[test]
fn step_1_what_is_not_about_ipv4_on_ethernet_is_ignored() {
    let good = request(YOU, ME);
    for len in 0..28 {
        assert_eq!(at(&good[..len]), noted(ArpNote::Malformed));
    }
    for byte in 0..6 {
        let mut bad = good;
        bad[byte] ^= 1;
        assert_eq!(at(&bad), noted(ArpNote::Malformed));
    }
    for operation in [0, 3, 8, 9, 0x100] {
        assert_eq!(at(&message(operation, LINK, YOU, ME)), noted(ArpNote::Operation));
    }
}

#[test]
fn step_2_a_sender_with_the_link_address_of_a_group_is_ignored_unless_allowed() {
    let bytes = message(1, EtherAddr([1, 0, 0x5e, 0, 0, 1]), YOU, ME);
    assert_eq!(at(&bytes), noted(ArpNote::GroupSender));
    assert!(on(&bytes, |port| port.allows_groups = true).update.is_some());
}

#[test]
fn step_3_our_own_messages_are_ignored_without_a_word() {
    for sender in [ME, YOU, NOBODY] {
        assert_eq!(at(&message(1, MY_LINK, sender, ME)), noted(ArpNote::OwnSender));
    }
    assert!(!ArpNote::OwnSender.is_logged());
}

#[test]
fn step_4_a_sender_with_the_link_address_of_all_or_none_is_ignored_and_logged() {
    for link in [EtherAddr::BROADCAST, EtherAddr::ZERO] {
        let outcome = on(&message(2, link, YOU, ME), |port| port.allows_groups = true);
        assert_eq!(outcome, noted(ArpNote::NoSender));
    }
    assert!(ArpNote::NoSender.is_logged());
}

#[test]
fn step_5_a_station_with_our_address_is_told_so_and_never_learnt() {
    let conflict = Some(ArpConflict { address: ME, with: LINK });
    for target in [ME, YOU, PUBLISHED] {
        let outcome = at(&request(ME, target));
        assert_eq!((outcome.conflict, outcome.update), (conflict, None));
        assert_eq!((outcome.reply, outcome.note), (told(ME, MY_LINK, ME), Some(ArpNote::Conflict)));
    }
    let outcome = at(&reply(ME, YOU));
    assert_eq!((outcome.conflict, outcome.update, outcome.reply), (conflict, None, None));
}

#[test]
fn step_5_a_station_without_address_is_in_no_conflict_and_gets_its_answer() {
    let outcome = at(&request(NOBODY, ME));
    assert_eq!(outcome, ArpOutcome { reply: told(ME, MY_LINK, NOBODY), ..ArpOutcome::default() });
}

#[test]
fn an_address_that_is_being_claimed_is_disputed_by_use_and_by_another_claim_and_not_answered_for() {
    let conflict = Some(ArpConflict { address: TENTATIVE, with: LINK });
    for bytes in [request(TENTATIVE, YOU), reply(TENTATIVE, YOU), request(NOBODY, TENTATIVE)] {
        let outcome = at(&bytes);
        assert_eq!((outcome.conflict, outcome.reply, outcome.update), (conflict, None, None));
    }
    let question = at(&request(YOU, TENTATIVE));
    assert_eq!((question.conflict, question.reply), (None, None));
    assert_eq!(question.update, heard(YOU, NeighborUpdateKind::Solicitation, false));
}

#[test]
fn step_6_a_port_with_static_neighbors_answers_and_does_not_learn() {
    let outcome = on(&request(YOU, ME), |port| port.learns = false);
    let reply = told(ME, MY_LINK, YOU);
    assert_eq!(outcome, ArpOutcome { reply, note: Some(ArpNote::NotLearning), ..ArpOutcome::default() });
}

#[test]
fn step_6_a_port_without_arp_does_neither() {
    for bytes in [request(YOU, ME), reply(YOU, ME), request(ME, ME)] {
        assert_eq!(on(&bytes, |port| port.speaks = false), noted(ArpNote::Silent));
    }
}

#[test]
fn step_7_only_who_talks_to_us_becomes_known_others_are_brought_up_to_date() {
    assert_eq!(at(&request(YOU, ME)).update, heard(YOU, NeighborUpdateKind::Solicitation, true));
    assert_eq!(at(&request(YOU, THEM)).update, heard(YOU, NeighborUpdateKind::Solicitation, false));
    assert_eq!(at(&request(YOU, YOU)).update, heard(YOU, NeighborUpdateKind::Unsolicited, false));
    let answer = NeighborUpdateKind::Advertisement { solicited: true, overrides: true };
    assert_eq!(at(&reply(YOU, ME)).update, heard(YOU, answer, true));
    assert_eq!(at(&reply(YOU, THEM)).update, heard(YOU, NeighborUpdateKind::Unsolicited, false));
    assert_eq!(at(&reply(YOU, YOU)).update, heard(YOU, NeighborUpdateKind::Unsolicited, false));
}

#[test]
fn step_7_a_stranger_to_our_networks_does_not_become_known_by_asking() {
    assert_eq!(at(&request(FAR, ME)).update, heard(FAR, NeighborUpdateKind::Solicitation, false));
    assert_eq!(at(&request(FAR, ME)).reply, told(ME, MY_LINK, FAR));
}

#[test]
fn step_7_an_address_that_no_station_can_have_is_not_learnt() {
    for bad in ["0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "10.0.0.0", "10.0.0.255"]
    {
        let outcome = at(&request(bad.parse().unwrap(), ME));
        assert_eq!((outcome.update, outcome.note), (None, Some(ArpNote::BadAddress)), "{bad}");
    }
}

#[test]
fn step_8_a_neighbor_of_another_port_stays_there() {
    for bytes in [request(ELSEWHERE, ME), reply(ELSEWHERE, ME), reply(ELSEWHERE, ELSEWHERE)] {
        let outcome = at(&bytes);
        assert_eq!((outcome.update, outcome.note), (None, Some(ArpNote::WrongPort)));
    }
    assert!(ArpNote::WrongPort.is_logged());
}

#[test]
fn step_11_a_request_for_our_address_is_answered_to_who_asked_alone() {
    assert_eq!(at(&request(YOU, ME)).reply, told(ME, MY_LINK, YOU));
    assert_eq!(at(&request(YOU, ME)).note, None);
}

#[test]
fn step_11_a_link_local_address_is_told_to_all() {
    let reply = at(&request(YOU, AUTO)).reply.unwrap();
    assert_eq!((reply.destination, reply.target_link), (EtherAddr::BROADCAST, LINK));
}

#[test]
fn step_11_replies_are_not_answered() {
    for target in [ME, PUBLISHED, FAR] {
        assert_eq!(on(&reply(YOU, target), |port| port.is_proxy = true).reply, None);
    }
}

#[test]
fn step_11_a_published_address_is_answered_for_with_its_link_address() {
    assert_eq!(at(&request(YOU, PUBLISHED)).reply, told(PUBLISHED, PUBLISHED_LINK, YOU));
    assert_eq!(at(&request(YOU, PUBLISHED)).update, heard(YOU, NeighborUpdateKind::Solicitation, false));
    assert_eq!(at(&message(1, PUBLISHED_LINK, NOBODY, PUBLISHED)).reply, None);
}

#[test]
fn step_11_a_proxy_answers_for_what_lies_behind_another_port() {
    let proxy = |bytes: &[u8]| on(bytes, |port| port.is_proxy = true).reply;
    assert_eq!(proxy(&request(YOU, FAR)), told(FAR, MY_LINK, YOU));
    assert_eq!(at(&request(YOU, FAR)).reply, None);
}

#[test]
fn step_11_a_proxy_is_silent_about_this_port_for_strangers_and_to_who_claims_an_address() {
    let proxy = |bytes: &[u8]| on(bytes, |port| port.is_proxy = true).reply;
    assert_eq!(proxy(&request(YOU, THEM)), None);
    assert_eq!(proxy(&request(Ipv4Addr::new(172, 16, 0, 9), FAR)), None);
    assert_eq!(proxy(&request(NOBODY, FAR)), None);
    assert_eq!(proxy(&request(FAR, FAR)), None);
    assert_eq!(proxy(&request(YOU, Ipv4Addr::new(224, 0, 0, 5))), None);
}

#[test]
fn what_comes_and_what_follows_is_counted_under_names() {
    let mut counters = ArpCounters::default();
    for bytes in [&request(YOU, ME)[..], &request(ME, ME), &reply(YOU, ME), &reply(ELSEWHERE, ME), &[0; 4]] {
        counters.count_outcome(bytes, &at(bytes));
    }
    let counted: Vec<_> = counters.iter_named().filter(|&(_, count)| count > 0).collect();
    let expected = [
        ("txreplies", 2),
        ("rxrequests", 2),
        ("rxreplies", 2),
        ("received", 5),
        ("dupips", 1),
        ("malformed", 1),
        ("conflict", 1),
        ("wrong-port", 1),
    ];
    assert_eq!(counted, expected);
}

#[test]
fn each_note_has_its_own_place_and_name() {
    for (at, note) in ArpNote::ALL.into_iter().enumerate() {
        assert_eq!(note as usize, at);
    }
    let names: std::collections::HashSet<_> = ArpNote::ALL.map(ArpNote::name).into();
    assert_eq!(names.len(), ArpNote::ALL.len());
}

proptest! {
    #[test]
    fn of_any_fields_nothing_of_ours_is_learnt_and_only_requests_are_answered(
        operation in 0u16..4,
        link: [u8; 6],
        addresses in [0usize..9, 0..9],
        flags: [bool; 4],
    ) {
        let all = [ME, TENTATIVE, AUTO, YOU, THEM, FAR, NOBODY, PUBLISHED, ELSEWHERE];
        let bytes = message(operation, link.into(), all[addresses[0]], all[addresses[1]]);
        let outcome = on(&bytes, |port| {
            [port.speaks, port.learns, port.allows_groups, port.is_proxy] = flags;
        });
        if let Some(heard) = outcome.update {
            prop_assert!(![ME, TENTATIVE, AUTO, NOBODY, ELSEWHERE].contains(&heard.address));
            prop_assert!(flags[0] && flags[1] && heard.heard.link == Some(link.into()));
        }
        if let Some(reply) = outcome.reply {
            prop_assert!(operation == 1 && flags[0] && reply.sender != TENTATIVE);
            prop_assert_eq!(reply.target_link, EtherAddr(link));
        }
    }

    #[test]
    fn any_bytes_are_decided_about(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let outcome = at(&bytes);
        prop_assert!(outcome.note.is_some() || Arp::new(&bytes).is_ok());
    }
}
