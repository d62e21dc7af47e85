//! What to do with a received Neighbor Discovery message (RFC 4861, 6.2, 7.2 and 8.2; RFC 4862, 5.4; RFC
//! 9131).
//!
//! This only decides: what to answer, what to report to a table, whether another host uses an address of
//! ours. [`NdMessage`] says whether a message is valid; the table's protocol decides what to do with the
//! update. We route, so redirects are for others (RFC 4861, 8.2).

use super::claim::OwnAddress;
use super::protocol::{NeighborUpdate, NeighborUpdateKind};
use crate::PortId;
use artery_wire::nd::{ALL_NODES, AdvertisementFlags, LinkEndpoint, NdFault, NdMessage};
use artery_wire::nd::{NeighborAdvertisement, NeighborSolicitation};
use artery_wire::{EtherAddr, Ipv6};
use std::net::Ipv6Addr;

/// What matters of the port on which a message came.
#[derive(Clone, Copy, Debug)]
pub struct NdPort<'a> {
    /// The port that received the message.
    pub id: PortId,
    /// Link address of the port.
    pub link: EtherAddr,
    /// Addresses that the port owns.
    pub addresses: &'a [OwnAddress<u128>],
    /// Addresses of ours that other hosts may have too (RFC 4291, 2.6), such as that of all
    /// routers of a network.
    pub anycast: &'a [Ipv6Addr],
    /// Whether it forwards, and says so (flag R).
    pub routes: bool,
    /// Whether it learns; it answers in any case.
    pub learns: bool,
}

/// State of other tables that decides about answers; read only when it matters.
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
    /// The update for the port's neighbor table.
    pub heard: Option<NdUpdate>,
    /// Another host uses, or is about to use, an address of ours: pass it to the address's claim.
    pub conflict: Option<NdConflict>,
    /// Whether the message is a router solicitation that wants an answer.
    pub asks_for_routers: bool,
    /// Why the message was not handled, or what to log about it.
    pub note: Option<NdNote>,
}

/// The fields of an advertisement, as [`neighbor_advertisement`](artery_wire::nd::neighbor_advertisement)
/// takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdReply {
    /// The sender of the advertisement.
    pub from: LinkEndpoint<Ipv6Addr>,
    /// Destination of the advertisement.
    pub to: LinkEndpoint<Ipv6Addr>,
    /// The address that the advertisement is about, and its link address.
    pub target: LinkEndpoint<Ipv6Addr>,
    /// Flags of the advertisement: router, solicited, override.
    pub flags: AdvertisementFlags,
}

/// An update for a neighbor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdUpdate {
    /// The neighbor that the update is about.
    pub address: Ipv6Addr,
    /// The update for the neighbor table.
    pub heard: NeighborUpdate,
    /// Whether it may become known by this: it is on-link, and the message was for us, or for all.
    pub for_us: bool,
}

/// A conflict: another host has an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdConflict {
    /// The address that is in conflict.
    pub address: Ipv6Addr,
    /// Link address of the other host.
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
    /// It solicits an address that is not ours, or not yet.
    NotForUs,
    /// Another host uses an address of ours.
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
        NdNote::NAMES[self.name_index()]
    }

    /// Says whether a log should tell of it; the others are only counted.
    pub fn is_logged(self) -> bool {
        matches!(self, NdNote::NoSender | NdNote::NotNeighbor | NdNote::Conflict)
    }

    fn name_index(self) -> usize {
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
    /// Neighbor Discovery messages received in total.
    pub received: u64,
    /// Advertisements sent as answers.
    pub answered: u64,
    /// Messages from which a table update was made.
    pub heard: u64,
    /// Messages that showed another host with an address of ours.
    pub duplicates: u64,
    /// Messages with each note, in the order of [`NdNote::NAMES`].
    pub notes: [u64; NdNote::NAMES.len()],
}

impl NdCounters {
    /// Returns name and value of all.
    pub fn iter_named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<'_> {
        let all = [
            ("received", self.received),
            ("answered", self.answered),
            ("heard", self.heard),
            ("duplicates", self.duplicates),
        ];
        all.into_iter().chain(NdNote::NAMES.into_iter().zip(self.notes))
    }

    /// Counts a received message by what follows from it. A reply counts as sent.
    pub fn count_outcome(&mut self, outcome: &NdOutcome) {
        self.received += 1;
        self.answered += u64::from(outcome.reply.is_some());
        self.heard += u64::from(outcome.heard.is_some());
        self.duplicates += u64::from(outcome.conflict.is_some());
        if let Some(note) = outcome.note {
            self.notes[note.name_index()] += 1;
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
    match NdMessage::parse_packet(packet) {
        Ok(message) => {
            // Reading the message read this header.
            let source = Ipv6::new(packet).map_or(Ipv6Addr::UNSPECIFIED, |ip| ip.src());
            Input { source, sender, port, around }.decide_outcome(&message)
        }
        Err(fault) => outcome_noted(NdNote::Invalid(fault)),
    }
}

fn outcome_noted(note: NdNote) -> NdOutcome {
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
    fn decide_outcome(&self, message: &NdMessage<'_>) -> NdOutcome {
        if self.sender == self.port.link {
            return outcome_noted(NdNote::OwnSender);
        }
        if self.sender.is_group() || self.sender == EtherAddr::ZERO {
            return outcome_noted(NdNote::NoSender);
        }
        match message {
            NdMessage::NeighborSolicitation(message) => self.handle_solicitation(message),
            NdMessage::NeighborAdvertisement(message) => self.handle_advertisement(message),
            NdMessage::RouterSolicitation(message) => NdOutcome {
                asks_for_routers: self.port.routes,
                ..self.learn_source(message.source_link(), Some(false))
            },
            NdMessage::RouterAdvertisement(message) => self.learn_source(message.source_link(), Some(true)),
            NdMessage::Redirect(_) => outcome_noted(NdNote::Redirect),
        }
    }

    /// A neighbor solicitation: for resolution, or to probe for duplicates (RFC 4861,
    /// 7.2.3; RFC 4862, 5.4.3).
    fn handle_solicitation(&self, message: &NeighborSolicitation<&[u8]>) -> NdOutcome {
        let target = message.target();
        if self.is_tentative(target) {
            // A solicitation proves nothing about its own target; a duplicate probe reports another claim.
            let is_probe = self.source.is_unspecified();
            return if is_probe { self.conflict_outcome(target) } else { outcome_noted(NdNote::NotForUs) };
        }
        if !self.source.is_unspecified() && !self.is_neighbor(self.source) {
            return outcome_noted(NdNote::NotNeighbor);
        }
        match self.answer_solicitation(target, message.source_link()) {
            Some(reply) => NdOutcome { reply: Some(reply), ..self.learn_source(message.source_link(), None) },
            None => outcome_noted(NdNote::NotForUs),
        }
    }

    /// The answer to a solicitation of an address of ours, or one that is published.
    fn answer_solicitation(&self, target: Ipv6Addr, link: Option<EtherAddr>) -> Option<NdReply> {
        let is_own = self.own_address(target).is_some();
        let is_anycast = self.port.anycast.contains(&target);
        let target_link = match (self.around.published)(target) {
            _ if is_own || is_anycast => self.port.link,
            Some(link) if link != self.sender => link,
            _ => return None,
        };
        // No packet comes from an anycast address (RFC 4291, 2.6), nor from that of another.
        let from = if is_own { target } else { self.source_address()? };
        let is_probe = self.source.is_unspecified();
        let to = match is_probe {
            true => LinkEndpoint::multicast_group(ALL_NODES),
            false => LinkEndpoint { ether: link.unwrap_or(self.sender), ip: self.source },
        };
        Some(NdReply {
            from: LinkEndpoint { ether: self.port.link, ip: from },
            to,
            target: LinkEndpoint { ether: target_link, ip: target },
            flags: AdvertisementFlags {
                router: self.port.routes && (is_own || is_anycast),
                solicited: !is_probe,
                overrides: is_own,
            },
        })
    }

    /// A neighbor advertisement (RFC 4861, 7.2.5; RFC 4862, 5.4.4).
    fn handle_advertisement(&self, message: &NeighborAdvertisement<&[u8]>) -> NdOutcome {
        let target = message.target();
        if self.is_tentative(target) || self.own_address(target).is_some() {
            return self.conflict_outcome(target);
        }
        if self.port.anycast.contains(&target) {
            return outcome_noted(NdNote::NotForUs);
        }
        let kind = NeighborUpdateKind::Advertisement {
            solicited: message.is_solicited(),
            overrides: message.overrides(),
        };
        let heard = NeighborUpdate { link: message.target_link(), kind, router: Some(message.is_router()) };
        self.learn_address(target, heard)
    }

    /// The source link address that a message carries.
    fn learn_source(&self, link: Option<EtherAddr>, router: Option<bool>) -> NdOutcome {
        if self.source.is_unspecified() {
            return NdOutcome::default();
        }
        if !self.is_neighbor(self.source) {
            return outcome_noted(NdNote::NotNeighbor);
        }
        self.learn_address(
            self.source,
            NeighborUpdate { link, kind: NeighborUpdateKind::Solicitation, router },
        )
    }

    fn learn_address(&self, address: Ipv6Addr, heard: NeighborUpdate) -> NdOutcome {
        if self.own_address(address).is_some() || self.is_tentative(address) {
            return self.conflict_outcome(address);
        }
        if !self.port.learns {
            return outcome_noted(NdNote::NotLearning);
        }
        if heard.link.is_some_and(|link| link.is_group() || link == EtherAddr::ZERO) {
            return outcome_noted(NdNote::NoSender);
        }
        let for_us = self.is_neighbor(address);
        NdOutcome { heard: Some(NdUpdate { address, heard, for_us }), ..NdOutcome::default() }
    }

    fn conflict_outcome(&self, address: Ipv6Addr) -> NdOutcome {
        let conflict = Some(NdConflict { address, with: self.sender });
        NdOutcome { conflict, note: Some(NdNote::Conflict), ..NdOutcome::default() }
    }

    /// An address of ours that is in use.
    fn own_address(&self, address: Ipv6Addr) -> Option<&OwnAddress<u128>> {
        self.port.addresses.iter().find(|own| own.address == address.to_bits() && !own.is_tentative)
    }

    fn is_tentative(&self, address: Ipv6Addr) -> bool {
        self.port.addresses.iter().any(|own| own.address == address.to_bits() && own.is_tentative)
    }

    /// An address of ours to speak from, link-local if there is one.
    fn source_address(&self) -> Option<Ipv6Addr> {
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
mod tests;
