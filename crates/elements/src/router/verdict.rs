//! What is to become of a packet, and what it is judged by.
//!
//! A verdict follows from the packet's bytes, how it came, and what the router's tables say: judging changes nothing,
//! sends nothing and counts nothing. So it can be asked at any time, also by whoever wants to know why.
use artery_engine::DropReason;
use artery_rcu::Turn;
use artery_table::PortId;
use artery_table::path::{Decision, Explained, Method, Outcome, PathReader};
use artery_table::router::PortView;
use artery_wire::{EtherAddr, Ethernet, Icmp6Error, IcmpError};
use std::net::IpAddr;

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It leaves now.
    Forward(Leave),
    /// It leaves when the link address of its next hop is known.
    Hold(Leave),
    /// It is an echo request to the router, to be answered.
    Answer,
    /// It is a fragment of a packet to the router, which may be an echo request.
    Reassemble,
    /// It is for the host.
    Host,
    /// It is a message between neighbors.
    Neighbor(Message),
    /// It ends here for this reason, and its sender is told.
    Error(Told, DropReason),
    /// It ends here.
    Discard(DropReason),
}

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    /// By which port, to which link address, how long.
    pub(crate) decision: Decision,
    /// The neighbor it goes to.
    pub(crate) next_hop: IpAddr,
    /// Whether it is a hop further: from outside, and not made or sent by ourselves.
    pub(crate) is_hop: bool,
    /// Whether it is cut into fragments.
    pub(crate) is_cut: bool,
    /// The better first hop that its sender is told of (RFC 1812 section 5.2.7.2, RFC 4861 section 8.2).
    pub(crate) redirect: Option<IpAddr>,
}

/// Messages between neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// ARP.
    Arp,
    /// Neighbor Discovery.
    Nd,
}

/// What a packet's sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// By ICMP.
    V4(IcmpError),
    /// By ICMPv6.
    V6(Icmp6Error),
}

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A port received it.
    Port(PortId),
    /// The host sends it.
    Host,
    /// The router itself does.
    Router,
}

impl Origin {
    /// The port that received it.
    pub(crate) fn port(self) -> Option<PortId> {
        if let Origin::Port(port) = self { Some(port) } else { None }
    }
}

/// Whose station a frame was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Station {
    /// The router's.
    Ours,
    /// All of the link.
    All,
    /// A group.
    Group,
    /// Another one.
    Other,
}

impl Station {
    /// That of a frame's destination, where `ours` received it.
    pub(crate) fn of(destination: EtherAddr, ours: EtherAddr) -> Station {
        if destination == ours {
            Station::Ours
        } else if destination.is_broadcast() {
            Station::All
        } else if destination.is_group() {
            Station::Group
        } else {
            Station::Other
        }
    }
    /// Whether the frame was for more than one.
    pub(crate) fn is_many(self) -> bool {
        matches!(self, Station::All | Station::Group)
    }
}

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// From where.
    pub(crate) from: Origin,
    /// In a frame to whom.
    pub(crate) to: Station,
    /// Where it goes instead of its destination, as its destination annotation says.
    pub(crate) towards: Option<IpAddr>,
}

impl Came {
    /// By a port, to the router's own station.
    pub(crate) fn by(port: PortId) -> Came {
        Came { from: Origin::Port(port), to: Station::Ours, towards: None }
    }
    /// From the router itself.
    pub(crate) const FROM_US: Came = Came { from: Origin::Router, to: Station::Ours, towards: None };
}

/// What a packet is judged by beside itself.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The router's ports.
    pub(crate) ports: &'a [PortView],
    /// Decides about IPv4.
    pub(crate) v4: &'a PathReader<u32>,
    /// Decides about IPv6.
    pub(crate) v6: &'a PathReader<u128>,
    /// The turn in which that holds.
    pub(crate) turn: &'a Turn<'a>,
}

impl<'a> View<'a> {
    /// How a frame came from somewhere, or why it ends on arrival.
    pub(crate) fn came(&self, frame: &[u8], from: Origin) -> Result<Came, DropReason> {
        let to = Ethernet::new(frame).map_err(|_| DropReason::TooShort)?.dst();
        let to = match from.port() {
            Some(port) => Station::of(to, self.port(port).ok_or(DropReason::PortDown)?.address),
            None => Station::Ours,
        };
        Ok(Came { from, to, towards: None })
    }
    /// The neighbor to which a packet to `to` leaves.
    pub(crate) fn next_hop(&self, found: &Explained, to: IpAddr) -> IpAddr {
        match found.neighbor {
            // Neighbors of both families are in one list.
            Some(neighbor) if !found.on_link => self.v4.address_of(neighbor),
            _ => to,
        }
    }
    /// A port.
    pub(crate) fn port(&self, port: PortId) -> Option<&'a PortView> {
        self.ports.get(usize::from(port.0))
    }
}

/// Whether packets that the tables say so of go on to another station.
pub(crate) fn leads_on(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed)
}

/// Tells the number of a packet's flow to a method that chooses by it.
pub(crate) type FlowOf<'a> = &'a mut dyn FnMut(Method) -> u32;

#[cfg(test)]
#[path = "testing.rs"]
pub(super) mod testing;
