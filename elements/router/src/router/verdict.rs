//! The verdict on a packet, and its inputs.
//!
//! A verdict follows from the packet's bytes, its ingress, and the router's tables: classifying changes
//! nothing, sends nothing and counts nothing. So it can be repeated at any time, also to explain it.
use artery_engine::DropReason;
use artery_l3::PortId;
use artery_l3::neighbor::Link;
use artery_l3::path::{Explained, ForwardDecision, Method, Outcome, PathReader};
use artery_l3::router::PortView;
use artery_rcu::Turn;
use artery_wire::{EtherAddr, Ethernet, Icmp6Error, IcmpError};
use std::net::IpAddr;

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterVerdict {
    /// It is sent to its next hop now.
    Forward(EgressPlan),
    /// It is sent when the link address of its next hop is known.
    Hold(EgressPlan),
    /// It is an echo request to the router, to be answered.
    EchoReply,
    /// It is a fragment of a packet to the router, which may be an echo request.
    Reassemble,
    /// It is for the host.
    Host,
    /// It is a message between neighbors.
    Neighbor(NeighborMessage),
    /// It is discarded for this reason, and its sender gets an ICMP error.
    Error(IcmpReply, DropReason),
    /// It is discarded without an error.
    Discard(DropReason),
}

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EgressPlan {
    /// By which port, to which link address, how long.
    pub(crate) decision: ForwardDecision,
    /// The IP address of the next hop.
    pub(crate) next_hop: IpAddr,
    /// Whether the hop limit is decremented: for packets that a port received, not for those of the
    /// host and the router.
    pub(crate) is_hop: bool,
    /// Whether it is cut into fragments.
    pub(crate) is_cut: bool,
    /// The better first hop in the ICMP redirect to its sender (RFC 1812 section 5.2.7.2,
    /// RFC 4861 section 8.2).
    pub(crate) redirect: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeighborMessage {
    Arp,
    Nd,
}

/// The ICMP error to a packet's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpReply {
    V4(IcmpError),
    V6(Icmp6Error),
}

/// The origin of a packet.
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

/// The owner of a frame's destination MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkDestination {
    Ours,
    /// The broadcast address of the link.
    All,
    Group,
    /// Another host's MAC address.
    Other,
}

impl LinkDestination {
    /// That of a frame's destination, where `ours` received it.
    pub(crate) fn of(destination: EtherAddr, ours: EtherAddr) -> LinkDestination {
        if destination == ours {
            LinkDestination::Ours
        } else if destination.is_broadcast() {
            LinkDestination::All
        } else if destination.is_group() {
            LinkDestination::Group
        } else {
            LinkDestination::Other
        }
    }
    /// Whether the frame was for more than one.
    pub(crate) fn is_many(self) -> bool {
        matches!(self, LinkDestination::All | LinkDestination::Group)
    }
}

/// How a packet reached the router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IngressInfo {
    pub(crate) from: Origin,
    /// The owner of the frame's destination address.
    pub(crate) to: LinkDestination,
    /// The address in the destination annotation, which the packet is routed by instead of its destination.
    pub(crate) redirected_to: Option<IpAddr>,
}

impl IngressInfo {
    /// Received on a port, with the port's MAC address as destination.
    pub(crate) fn by_port(port: PortId) -> IngressInfo {
        IngressInfo { from: Origin::Port(port), to: LinkDestination::Ours, redirected_to: None }
    }
    /// From the router itself.
    pub(crate) const FROM_ROUTER: IngressInfo =
        IngressInfo { from: Origin::Router, to: LinkDestination::Ours, redirected_to: None };
}

/// The inputs of a verdict besides the packet.
#[derive(Clone, Copy)]
pub(crate) struct TablesView<'a> {
    pub(crate) ports: &'a [PortView],
    pub(crate) v4: &'a PathReader<u32>,
    pub(crate) v6: &'a PathReader<u128>,
    /// The turn for which the tables are valid.
    pub(crate) turn: &'a Turn<'a>,
}

impl<'a> TablesView<'a> {
    /// The ingress of a frame, or why it is discarded on arrival.
    pub(crate) fn ingress_info(&self, frame: &[u8], from: Origin) -> Result<IngressInfo, DropReason> {
        let to = Ethernet::new(frame)?.dst();
        let to = match from.port() {
            Some(port) => LinkDestination::of(to, self.port(port).ok_or(DropReason::PortDown)?.address),
            None => LinkDestination::Ours,
        };
        Ok(IngressInfo { from, to, redirected_to: None })
    }
    /// The neighbor to which a packet to `to` leaves.
    pub(crate) fn next_hop(&self, found: &Explained, to: IpAddr) -> IpAddr {
        match found.neighbor {
            // Neighbors of both families are in one list.
            Some(neighbor) if !found.on_link => self.v4.address_of(neighbor),
            _ => to,
        }
    }
    pub(crate) fn port(&self, port: PortId) -> Option<&'a PortView> {
        self.ports.get(usize::from(port.0))
    }
    /// The link state of a neighbor on a port's link.
    pub(crate) fn neighbor_link(&self, port: PortId, address: IpAddr) -> Link {
        let TablesView { v4, v6, turn, .. } = self;
        let link = match address {
            IpAddr::V4(address) => {
                v4.find_neighbor(turn, port, address.to_bits()).map(|id| v4.neighbor_link(id))
            }
            IpAddr::V6(address) => {
                v6.find_neighbor(turn, port, address.to_bits()).map(|id| v6.neighbor_link(id))
            }
        };
        link.unwrap_or(Link::UNKNOWN)
    }
}

/// Whether packets with this outcome go on to another host or router.
pub(crate) fn is_forwardable(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed)
}

/// Computes a packet's flow number for a method that chooses by it.
pub(crate) type FlowOf<'a> = &'a mut dyn FnMut(Method) -> u32;

#[cfg(test)]
#[path = "testing.rs"]
pub(super) mod testing;
