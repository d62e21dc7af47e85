//! What to do with a received ARP message (RFC 826, RFC 1027, RFC 3927, RFC 5227), in BSD's order.
//!
//! A decision and nothing else: what to answer, what a table is to hear, whether somebody uses an address of ours.
//! Whether a table *takes* what it hears (static entries, moved stations) is for its protocol.

use super::claim::OwnAddress;
use super::protocol::{Heard, HeardKind};
use crate::{PortId, Prefix};
use artery_wire::{Arp, ArpOperation, EtherAddr};
use std::net::Ipv4Addr;

/// What matters of the port on which a message came.
#[derive(Clone, Copy, Debug)]
pub struct ArpPort<'a> {
    /// The port.
    pub id: PortId,
    /// Its link address.
    pub link: EtherAddr,
    /// Its own addresses.
    pub addresses: &'a [OwnAddress<u32>],
    /// Whether it speaks ARP at all (BSD: not `NOARP`).
    pub speaks: bool,
    /// Whether it learns (BSD: not `STATICARP`); it answers in any case.
    pub learns: bool,
    /// Whether senders may have a group's link address (BSD: `allow_multicast`).
    pub allows_groups: bool,
    /// Whether it answers for all addresses that are reached by another port (BSD: `proxyall`).
    pub is_proxy: bool,
}

/// What has to be asked of other tables; only when it matters.
#[derive(Clone, Copy)]
pub struct ArpSurroundings<'a> {
    /// Another port at which the address is a known neighbor.
    pub elsewhere: &'a dyn Fn(Ipv4Addr) -> Option<PortId>,
    /// The link address that is published at this port for the address.
    pub published: &'a dyn Fn(Ipv4Addr) -> Option<EtherAddr>,
    /// The port by which packets to the address leave.
    pub leaves_by: &'a dyn Fn(Ipv4Addr) -> Option<PortId>,
}

/// What follows from a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArpOutcome {
    /// A reply to send.
    pub reply: Option<ArpReply>,
    /// What the port's table is to hear.
    pub heard: Option<ArpHeard>,
    /// Somebody else uses, or is about to use, an address of ours: for its claim.
    pub conflict: Option<ArpConflict>,
    /// Why something was not done, or what is to be logged.
    pub note: Option<ArpNote>,
}

/// The fields of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpReply {
    /// Where the frame goes.
    pub destination: EtherAddr,
    /// The link address that is told.
    pub sender_link: EtherAddr,
    /// The address that it belongs to.
    pub sender: Ipv4Addr,
    /// Who asked.
    pub target_link: EtherAddr,
    /// The asker's address; 0.0.0.0 if it has none yet.
    pub target: Ipv4Addr,
}

/// What a table is to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpHeard {
    /// Of which neighbor.
    pub address: Ipv4Addr,
    /// What it said.
    pub heard: Heard,
    /// Whether it may become known by this: it is on-link and talks to us.
    pub for_us: bool,
}

/// Somebody else with an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpConflict {
    /// The address.
    pub address: Ipv4Addr,
    /// Who uses it.
    pub with: EtherAddr,
}

/// Why something was not done with a message, or what a log should say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpNote {
    /// It is cut short, or not about IPv4 on Ethernet.
    Malformed,
    /// It is neither a request nor a reply.
    Operation,
    /// The port doesn't speak ARP.
    Silent,
    /// The sender's link address is that of a group.
    GroupSender,
    /// It is our own, come back.
    OwnSender,
    /// The sender's link address is that of all, or of none.
    NoSender,
    /// The sender uses an address of ours.
    Conflict,
    /// The sender's address can't be one station's.
    BadAddress,
    /// The port doesn't learn.
    NotLearning,
    /// The sender is known at another port, and stays there.
    WrongPort,
}

impl ArpNote {
    /// All of them.
    pub const ALL: [ArpNote; 10] = [
        ArpNote::Malformed,
        ArpNote::Operation,
        ArpNote::Silent,
        ArpNote::GroupSender,
        ArpNote::OwnSender,
        ArpNote::NoSender,
        ArpNote::Conflict,
        ArpNote::BadAddress,
        ArpNote::NotLearning,
        ArpNote::WrongPort,
    ];

    /// Returns the name, as counters and logs say it.
    pub fn name(self) -> &'static str {
        match self {
            ArpNote::Malformed => "malformed",
            ArpNote::Operation => "operation",
            ArpNote::Silent => "silent-port",
            ArpNote::GroupSender => "group-sender",
            ArpNote::OwnSender => "own-sender",
            ArpNote::NoSender => "no-sender",
            ArpNote::Conflict => "conflict",
            ArpNote::BadAddress => "bad-address",
            ArpNote::NotLearning => "not-learning",
            ArpNote::WrongPort => "wrong-port",
        }
    }

    /// Says whether a log should tell of it; the others are only counted.
    pub fn is_logged(self) -> bool {
        matches!(self, ArpNote::GroupSender | ArpNote::NoSender | ArpNote::Conflict | ArpNote::WrongPort)
    }
}

/// What is counted of ARP at a port, under BSD's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArpCounters {
    /// Requests sent.
    pub txrequests: u64,
    /// Replies sent.
    pub txreplies: u64,
    /// Requests received.
    pub rxrequests: u64,
    /// Replies received.
    pub rxreplies: u64,
    /// Messages received.
    pub received: u64,
    /// Packets dropped for want of an entry.
    pub dropped: u64,
    /// Entries timed out.
    pub timeouts: u64,
    /// Messages whose sender used an address of ours.
    pub dupips: u64,
    /// Messages with each note, in the order of [`ArpNote::ALL`].
    pub notes: [u64; ArpNote::ALL.len()],
}

impl ArpCounters {
    /// Returns name and value of all, BSD's first.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'_> {
        let of_bsd = [
            ("txrequests", self.txrequests),
            ("txreplies", self.txreplies),
            ("rxrequests", self.rxrequests),
            ("rxreplies", self.rxreplies),
            ("received", self.received),
            ("dropped", self.dropped),
            ("timeouts", self.timeouts),
            ("dupips", self.dupips),
        ];
        of_bsd.into_iter().chain(ArpNote::ALL.iter().map(|&note| (note.name(), self.noted(note))))
    }

    /// Returns how many messages had a note.
    pub fn noted(&self, note: ArpNote) -> u64 {
        self.notes[note as usize]
    }

    /// Counts a received message by what follows from it. A reply counts as sent.
    pub fn count(&mut self, bytes: &[u8], outcome: &ArpOutcome) {
        self.received += 1;
        match Arp::new(bytes).map(|arp| arp.operation()) {
            Ok(ArpOperation::REQUEST) => self.rxrequests += 1,
            Ok(ArpOperation::REPLY) => self.rxreplies += 1,
            _ => {}
        }
        self.txreplies += u64::from(outcome.reply.is_some());
        self.dupips += u64::from(outcome.conflict.is_some());
        if let Some(note) = outcome.note {
            self.notes[note as usize] += 1;
        }
    }
}

/// Decides about a received message, given from its ARP header on.
pub fn receive(bytes: &[u8], port: &ArpPort<'_>, around: &ArpSurroundings<'_>) -> ArpOutcome {
    match Message::checked(bytes, port) {
        Ok(message) => Input { message, port, around }.decide(),
        Err(note) => ArpOutcome { note: Some(note), ..ArpOutcome::default() },
    }
}

/// A request or reply of another station.
#[derive(Clone, Copy)]
struct Message {
    is_request: bool,
    link: EtherAddr,
    sender: Ipv4Addr,
    target: Ipv4Addr,
}

impl Message {
    fn checked(bytes: &[u8], port: &ArpPort<'_>) -> Result<Message, ArpNote> {
        let arp = Arp::new(bytes).map_err(|_| ArpNote::Malformed)?;
        let link = arp.sender_ether();
        if !port.speaks {
            Err(ArpNote::Silent)
        } else if !arp.is_request() && !arp.is_reply() {
            Err(ArpNote::Operation)
        } else if link.is_group() && !port.allows_groups {
            Err(ArpNote::GroupSender)
        } else if link == port.link {
            Err(ArpNote::OwnSender)
        } else if link.is_broadcast() || link == EtherAddr::ZERO {
            Err(ArpNote::NoSender)
        } else {
            let (sender, target) = (arp.sender_ip(), arp.target_ip());
            Ok(Message { is_request: arp.is_request(), link, sender, target })
        }
    }

    /// Says whether the sender tells everyone of itself.
    fn is_gratuitous(self) -> bool {
        self.sender == self.target
    }

    /// Says whether the sender asks whether anybody has an address that it wants (RFC 5227, 1.1).
    fn is_probe(self) -> bool {
        self.is_request && self.sender.is_unspecified()
    }
}

/// A message, where it came in, and what there is to ask.
struct Input<'a> {
    message: Message,
    port: &'a ArpPort<'a>,
    around: &'a ArpSurroundings<'a>,
}

impl Input<'_> {
    fn decide(&self) -> ArpOutcome {
        if let Some(address) = self.disputed() {
            return self.dispute(address);
        }
        let (heard, note) = match self.learn() {
            Ok(heard) => (heard, None),
            Err(note) => (None, Some(note)),
        };
        let reply = if self.message.is_request { self.answer() } else { None };
        ArpOutcome { reply, heard, conflict: None, note }
    }

    /// The address of ours that the sender uses, or is about to take while we are (RFC 5227, 2.1.1 and 2.4).
    fn disputed(&self) -> Option<OwnAddress<u32>> {
        let Message { sender, target, .. } = self.message;
        let wanted =
            if self.message.is_probe() { self.own(target).filter(|own| own.is_tentative) } else { None };
        if sender.is_unspecified() { wanted } else { self.own(sender) }
    }

    /// The sender is told that the address is ours, if it is, and is never learnt.
    fn dispute(&self, own: OwnAddress<u32>) -> ArpOutcome {
        let address = Ipv4Addr::from_bits(own.address);
        let is_told = self.message.is_request && !own.is_tentative;
        ArpOutcome {
            reply: is_told.then(|| self.reply(address, self.port.link)),
            heard: None,
            conflict: Some(ArpConflict { address, with: self.message.link }),
            note: Some(ArpNote::Conflict),
        }
    }

    /// What the table is to hear of the sender, if anything.
    fn learn(&self) -> Result<Option<ArpHeard>, ArpNote> {
        let Message { sender, link, .. } = self.message;
        if sender.is_unspecified() {
            return Ok(None);
        }
        if !is_one_station(sender) || self.is_network_end(sender) {
            return Err(ArpNote::BadAddress);
        }
        if !self.port.learns {
            return Err(ArpNote::NotLearning);
        }
        if (self.around.elsewhere)(sender).is_some() {
            return Err(ArpNote::WrongPort);
        }
        let heard = Heard { link: Some(link), kind: self.kind(), router: None };
        Ok(Some(ArpHeard { address: sender, heard, for_us: self.is_for_us() && self.is_on_link(sender) }))
    }

    fn kind(&self) -> HeardKind {
        if self.message.is_gratuitous() {
            HeardKind::Unsolicited
        } else if self.message.is_request {
            HeardKind::Solicitation
        } else if self.is_for_us() {
            HeardKind::Advertisement { solicited: true, overrides: true }
        } else {
            HeardKind::Unsolicited
        }
    }

    /// The answer to a request: for an address of ours, one that is published, or one behind us.
    fn answer(&self) -> Option<ArpReply> {
        let target = self.message.target;
        match self.own(target) {
            Some(own) if own.is_tentative => return None,
            Some(_) => return Some(self.reply(target, self.port.link)),
            None => {}
        }
        match (self.around.published)(target) {
            // Whoever has the address asks about itself.
            Some(link) if link == self.message.link => None,
            Some(link) => Some(self.reply(target, link)),
            None => self.is_behind_us(target).then(|| self.reply(target, self.port.link)),
        }
    }

    /// Says whether we answer for another network (RFC 1027): for who is on this one, and about who is not.
    ///
    /// A station that claims an address must not be told that it is taken.
    fn is_behind_us(&self, target: Ipv4Addr) -> bool {
        let Message { sender, .. } = self.message;
        self.port.is_proxy
            && !sender.is_unspecified()
            && !self.message.is_gratuitous()
            && is_one_station(target)
            && (self.around.leaves_by)(target).is_some_and(|port| port != self.port.id)
            && (self.around.leaves_by)(sender) == Some(self.port.id)
    }

    fn reply(&self, sender: Ipv4Addr, sender_link: EtherAddr) -> ArpReply {
        let asker = self.message;
        // Link-local addresses are told to all, so that conflicts show (RFC 3927, 2.5).
        let destination = if sender.is_link_local() { EtherAddr::BROADCAST } else { asker.link };
        ArpReply { destination, sender_link, sender, target_link: asker.link, target: asker.sender }
    }

    fn own(&self, address: Ipv4Addr) -> Option<OwnAddress<u32>> {
        self.port.addresses.iter().find(|own| own.address == address.to_bits()).copied()
    }

    fn is_for_us(&self) -> bool {
        self.own(self.message.target).is_some_and(|own| !own.is_tentative)
    }

    fn is_on_link(&self, address: Ipv4Addr) -> bool {
        self.port.addresses.iter().any(|own| own.network.contains(address.to_bits()))
    }

    /// Says whether this is the first or last address of a network, which no station has (RFC 1122, 3.2.1.3).
    fn is_network_end(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        let is_end = |network: Prefix<u32>| bits == network.first() || bits == network.last();
        self.port.addresses.iter().any(|own| own.network.len() < 31 && is_end(own.network))
    }
}

fn is_one_station(address: Ipv4Addr) -> bool {
    !(address.is_multicast()
        || address.is_broadcast()
        || address.is_loopback()
        || address.octets()[0] == 0
        || address.octets()[0] >= 240)
}

#[cfg(test)]
mod tests {
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

    fn heard(address: Ipv4Addr, kind: HeardKind, for_us: bool) -> Option<ArpHeard> {
        Some(ArpHeard { address, heard: Heard { link: Some(LINK), kind, router: None }, for_us })
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
        assert!(on(&bytes, |port| port.allows_groups = true).heard.is_some());
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
            assert_eq!((outcome.conflict, outcome.heard), (conflict, None));
            assert_eq!((outcome.reply, outcome.note), (told(ME, MY_LINK, ME), Some(ArpNote::Conflict)));
        }
        let outcome = at(&reply(ME, YOU));
        assert_eq!((outcome.conflict, outcome.heard, outcome.reply), (conflict, None, None));
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
            assert_eq!((outcome.conflict, outcome.reply, outcome.heard), (conflict, None, None));
        }
        let question = at(&request(YOU, TENTATIVE));
        assert_eq!((question.conflict, question.reply), (None, None));
        assert_eq!(question.heard, heard(YOU, HeardKind::Solicitation, false));
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
        assert_eq!(at(&request(YOU, ME)).heard, heard(YOU, HeardKind::Solicitation, true));
        assert_eq!(at(&request(YOU, THEM)).heard, heard(YOU, HeardKind::Solicitation, false));
        assert_eq!(at(&request(YOU, YOU)).heard, heard(YOU, HeardKind::Unsolicited, false));
        let answer = HeardKind::Advertisement { solicited: true, overrides: true };
        assert_eq!(at(&reply(YOU, ME)).heard, heard(YOU, answer, true));
        assert_eq!(at(&reply(YOU, THEM)).heard, heard(YOU, HeardKind::Unsolicited, false));
        assert_eq!(at(&reply(YOU, YOU)).heard, heard(YOU, HeardKind::Unsolicited, false));
    }

    #[test]
    fn step_7_a_stranger_to_our_networks_does_not_become_known_by_asking() {
        assert_eq!(at(&request(FAR, ME)).heard, heard(FAR, HeardKind::Solicitation, false));
        assert_eq!(at(&request(FAR, ME)).reply, told(ME, MY_LINK, FAR));
    }

    #[test]
    fn step_7_an_address_that_no_station_can_have_is_not_learnt() {
        for bad in
            ["0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "10.0.0.0", "10.0.0.255"]
        {
            let outcome = at(&request(bad.parse().unwrap(), ME));
            assert_eq!((outcome.heard, outcome.note), (None, Some(ArpNote::BadAddress)), "{bad}");
        }
    }

    #[test]
    fn step_8_a_neighbor_of_another_port_stays_there() {
        for bytes in [request(ELSEWHERE, ME), reply(ELSEWHERE, ME), reply(ELSEWHERE, ELSEWHERE)] {
            let outcome = at(&bytes);
            assert_eq!((outcome.heard, outcome.note), (None, Some(ArpNote::WrongPort)));
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
        assert_eq!(at(&request(YOU, PUBLISHED)).heard, heard(YOU, HeardKind::Solicitation, false));
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
        for bytes in
            [&request(YOU, ME)[..], &request(ME, ME), &reply(YOU, ME), &reply(ELSEWHERE, ME), &[0; 4]]
        {
            counters.count(bytes, &at(bytes));
        }
        let counted: Vec<_> = counters.each().filter(|&(_, count)| count > 0).collect();
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
            if let Some(heard) = outcome.heard {
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
}
