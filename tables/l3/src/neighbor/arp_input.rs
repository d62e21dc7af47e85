//! What to do with a received ARP message (RFC 826, RFC 1027, RFC 3927, RFC 5227), in BSD's order.
//!
//! This only decides: what to answer, what to report to a table, whether another host uses an address of
//! ours. Whether a table *accepts* the update (static entries, moved neighbors) is up to its protocol.

use super::claim::OwnAddress;
use super::protocol::{NeighborUpdate, NeighborUpdateKind};
use crate::PortId;
use artery_lpm::Prefix;
use artery_wire::{Arp, ArpOperation, EtherAddr};
use std::net::Ipv4Addr;

/// What matters of the port on which a message came.
#[derive(Clone, Copy, Debug)]
pub struct ArpPort<'a> {
    /// The port that received the message.
    pub id: PortId,
    /// Link address of the port.
    pub link: EtherAddr,
    /// Addresses that the port owns.
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

/// State of other tables that decides about answers; read only when it matters.
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
    /// The update for the port's neighbor table.
    pub update: Option<ArpUpdate>,
    /// Another host uses, or is about to use, an address of ours: pass it to the address's claim.
    pub conflict: Option<ArpConflict>,
    /// Why the message was not handled, or what to log about it.
    pub note: Option<ArpNote>,
}

/// The fields of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpReply {
    /// Where the frame goes.
    pub destination: EtherAddr,
    /// The link address that the reply announces.
    pub sender_link: EtherAddr,
    /// The address that it belongs to.
    pub sender: Ipv4Addr,
    /// Link address of the sender of the request.
    pub target_link: EtherAddr,
    /// The asker's address; 0.0.0.0 if it has none yet.
    pub target: Ipv4Addr,
}

/// An update for a neighbor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpUpdate {
    /// The neighbor that the update is about.
    pub address: Ipv4Addr,
    /// The update for the neighbor table.
    pub heard: NeighborUpdate,
    /// Whether it may become known by this: it is on-link and talks to us.
    pub for_us: bool,
}

/// A conflict: another host has an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpConflict {
    /// The address that is in conflict.
    pub address: Ipv4Addr,
    /// Link address of the other host.
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
    /// The sender's address cannot be the address of one host.
    BadAddress,
    /// The port doesn't learn.
    NotLearning,
    /// The sender is known at another port, and stays there.
    WrongPort,
}

impl ArpNote {
    /// All notes, one counter each.
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

    /// Says whether to log it; the others are only counted.
    pub fn is_logged(self) -> bool {
        matches!(self, ArpNote::GroupSender | ArpNote::NoSender | ArpNote::Conflict | ArpNote::WrongPort)
    }
}

/// What is counted of ARP at a port, under BSD's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArpCounters {
    /// ARP requests sent by this port.
    pub txrequests: u64,
    /// ARP replies sent by this port.
    pub txreplies: u64,
    /// ARP requests received by this port.
    pub rxrequests: u64,
    /// ARP replies received by this port.
    pub rxreplies: u64,
    /// ARP messages received in total.
    pub received: u64,
    /// Packets dropped for want of an entry.
    pub dropped: u64,
    /// Entries removed because their time ran out.
    pub timeouts: u64,
    /// Messages whose sender used an address of ours.
    pub dupips: u64,
    /// Messages with each note, in the order of [`ArpNote::ALL`].
    pub notes: [u64; ArpNote::ALL.len()],
}

impl ArpCounters {
    /// Returns name and value of all, BSD's first.
    pub fn iter_named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'_> {
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
        of_bsd.into_iter().chain(ArpNote::ALL.iter().map(|&note| (note.name(), self.times_noted(note))))
    }

    /// Returns how many messages had a note.
    pub fn times_noted(&self, note: ArpNote) -> u64 {
        self.notes[note as usize]
    }

    /// Counts a received message by what follows from it. A reply counts as sent.
    pub fn count_outcome(&mut self, bytes: &[u8], outcome: &ArpOutcome) {
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
    match Message::parse_checked(bytes, port) {
        Ok(message) => Input { message, port, around }.decide_outcome(),
        Err(note) => ArpOutcome { note: Some(note), ..ArpOutcome::default() },
    }
}

/// A request or reply from another host.
#[derive(Clone, Copy)]
struct Message {
    is_request: bool,
    link: EtherAddr,
    sender: Ipv4Addr,
    target: Ipv4Addr,
}

impl Message {
    fn parse_checked(bytes: &[u8], port: &ArpPort<'_>) -> Result<Message, ArpNote> {
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

    /// Says whether the sender announces itself to all.
    fn is_gratuitous(self) -> bool {
        self.sender == self.target
    }

    /// Says whether the sender probes for an address that it wants (RFC 5227, 1.1).
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
    fn decide_outcome(&self) -> ArpOutcome {
        if let Some(address) = self.disputed_address() {
            return self.dispute_address(address);
        }
        let (heard, note) = match self.learn_sender() {
            Ok(heard) => (heard, None),
            Err(note) => (None, Some(note)),
        };
        let reply = if self.message.is_request { self.answer_request() } else { None };
        ArpOutcome { reply, update: heard, conflict: None, note }
    }

    /// The address of ours that the sender uses, or is about to take while we are (RFC 5227, 2.1.1 and 2.4).
    fn disputed_address(&self) -> Option<OwnAddress<u32>> {
        let Message { sender, target, .. } = self.message;
        let wanted = if self.message.is_probe() {
            self.own_address(target).filter(|own| own.is_tentative)
        } else {
            None
        };
        if sender.is_unspecified() { wanted } else { self.own_address(sender) }
    }

    /// The sender gets a reply that the address is ours, if it is, and is never learnt.
    fn dispute_address(&self, own: OwnAddress<u32>) -> ArpOutcome {
        let address = Ipv4Addr::from_bits(own.address);
        let is_told = self.message.is_request && !own.is_tentative;
        ArpOutcome {
            reply: is_told.then(|| self.build_reply(address, self.port.link)),
            update: None,
            conflict: Some(ArpConflict { address, with: self.message.link }),
            note: Some(ArpNote::Conflict),
        }
    }

    /// The table update about the sender, if any.
    fn learn_sender(&self) -> Result<Option<ArpUpdate>, ArpNote> {
        let Message { sender, link, .. } = self.message;
        if sender.is_unspecified() {
            return Ok(None);
        }
        if !is_unicast_host(sender) || self.is_network_end(sender) {
            return Err(ArpNote::BadAddress);
        }
        if !self.port.learns {
            return Err(ArpNote::NotLearning);
        }
        if (self.around.elsewhere)(sender).is_some() {
            return Err(ArpNote::WrongPort);
        }
        let heard = NeighborUpdate { link: Some(link), kind: self.update_kind(), router: None };
        Ok(Some(ArpUpdate { address: sender, heard, for_us: self.is_for_us() && self.is_on_link(sender) }))
    }

    fn update_kind(&self) -> NeighborUpdateKind {
        if self.message.is_gratuitous() {
            NeighborUpdateKind::Unsolicited
        } else if self.message.is_request {
            NeighborUpdateKind::Solicitation
        } else if self.is_for_us() {
            NeighborUpdateKind::Advertisement { solicited: true, overrides: true }
        } else {
            NeighborUpdateKind::Unsolicited
        }
    }

    /// The answer to a request: for an address of ours, one that is published, or one behind us.
    fn answer_request(&self) -> Option<ArpReply> {
        let target = self.message.target;
        match self.own_address(target) {
            Some(own) if own.is_tentative => return None,
            Some(_) => return Some(self.build_reply(target, self.port.link)),
            None => {}
        }
        match (self.around.published)(target) {
            // The owner of the address solicits itself.
            Some(link) if link == self.message.link => None,
            Some(link) => Some(self.build_reply(target, link)),
            None => self.is_behind_us(target).then(|| self.build_reply(target, self.port.link)),
        }
    }

    /// Says whether we answer for another network (RFC 1027): for hosts on this one, about
    /// hosts that are not.
    ///
    /// A host that probes for an address must not get a reply that says it is taken.
    fn is_behind_us(&self, target: Ipv4Addr) -> bool {
        let Message { sender, .. } = self.message;
        self.port.is_proxy
            && !sender.is_unspecified()
            && !self.message.is_gratuitous()
            && is_unicast_host(target)
            && (self.around.leaves_by)(target).is_some_and(|port| port != self.port.id)
            && (self.around.leaves_by)(sender) == Some(self.port.id)
    }

    fn build_reply(&self, sender: Ipv4Addr, sender_link: EtherAddr) -> ArpReply {
        let asker = self.message;
        // Replies about link-local addresses are broadcast, so that conflicts show (RFC 3927, 2.5).
        let destination = if sender.is_link_local() { EtherAddr::BROADCAST } else { asker.link };
        ArpReply { destination, sender_link, sender, target_link: asker.link, target: asker.sender }
    }

    fn own_address(&self, address: Ipv4Addr) -> Option<OwnAddress<u32>> {
        self.port.addresses.iter().find(|own| own.address == address.to_bits()).copied()
    }

    fn is_for_us(&self) -> bool {
        self.own_address(self.message.target).is_some_and(|own| !own.is_tentative)
    }

    fn is_on_link(&self, address: Ipv4Addr) -> bool {
        self.port.addresses.iter().any(|own| own.network.contains(address.to_bits()))
    }

    /// Says whether this is the first or last address of a network, which no host has (RFC 1122, 3.2.1.3).
    fn is_network_end(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        let is_end = |network: Prefix<u32>| bits == network.first() || bits == network.last();
        self.port.addresses.iter().any(|own| own.network.len() < 31 && is_end(own.network))
    }
}

fn is_unicast_host(address: Ipv4Addr) -> bool {
    !(address.is_multicast()
        || address.is_broadcast()
        || address.is_loopback()
        || address.octets()[0] == 0
        || address.octets()[0] >= 240)
}

#[cfg(test)]
mod tests;
