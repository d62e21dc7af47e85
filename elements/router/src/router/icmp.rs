//! Messages of the router itself: ICMP errors and echo replies, and their source addresses.
use super::verdict::{IcmpReply, IngressInfo, TablesView, is_forwardable};
use artery_forward::flow;
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_lpm::Prefix;
use artery_wire::{Forbidden, Icmp6, Icmp6Answer, Icmp6Type, IcmpAnswer, Ip6Headers, IpProtocol, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The time to live of echo replies, as of the router's other messages (RFC 1122 section 3.2.1.7).
pub(super) const HOP_LIMIT: u8 = 64;
const HEADER6: usize = 40;
const FRAGMENT_HEADER: usize = 8;

/// Chooses source addresses for ICMP messages.
#[derive(Clone, Copy)]
pub(crate) struct IcmpSource<'a> {
    pub(crate) ports: &'a [PortView],
    /// The port whose addresses are preferred.
    pub(crate) port: Option<PortId>,
    /// Whether an address of a port may be used.
    pub(crate) is_usable: &'a dyn Fn(PortId, IpAddr) -> bool,
}

impl IcmpSource<'_> {
    /// The port with its number.
    pub(crate) fn ingress_port(&self) -> Option<(PortId, &PortView)> {
        self.port.and_then(|id| Some((id, self.ports.get(usize::from(id.0))?)))
    }

    /// The preferred port first, then the others.
    fn all_ports(&self) -> impl Iterator<Item = (PortId, &PortView)> {
        self.ingress_port().into_iter().chain((0..).map(PortId).zip(self.ports))
    }

    /// The IPv4 source address for a message to `to`: of the port, one on its link if there is one; else
    /// any of the router.
    pub(crate) fn ipv4_source(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let usable = |id: PortId, own: u32| (self.is_usable)(id, IpAddr::V4(own.into())).then(|| own.into());
        let is_near = |own: &&(u32, u8)| Prefix::of(own.0, own.1).contains(to.to_bits());
        let near = self
            .ingress_port()
            .and_then(|(id, port)| port.v4.iter().filter(is_near).find_map(|own| usable(id, own.0)));
        near.or_else(|| {
            self.all_ports().find_map(|(id, port)| port.v4.iter().find_map(|own| usable(id, own.0)))
        })
    }

    /// The IPv6 source address for a message to `to`: a link-local one for a link-local destination; else a
    /// global one of the port or of another, or the link-local one if there is none.
    pub(crate) fn ipv6_source(&self, to: Ipv6Addr) -> Option<Ipv6Addr> {
        let usable = |id: PortId, own: u128| (self.is_usable)(id, IpAddr::V6(own.into())).then(|| own.into());
        let link_local = || self.ingress_port().and_then(|(id, port)| usable(id, port.link_local));
        if to.is_unicast_link_local() {
            return link_local();
        }
        let is_near = |own: &&(u128, u8)| Prefix::of(own.0, own.1).contains(to.to_bits());
        let near = self
            .ingress_port()
            .and_then(|(id, port)| port.v6.iter().filter(is_near).find_map(|own| usable(id, own.0)));
        let any = || self.all_ports().find_map(|(id, port)| port.v6.iter().find_map(|own| usable(id, own.0)));
        near.or_else(any).or_else(link_local)
    }
}

/// Why no ICMP message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpSuppressed {
    /// The rules forbid it.
    Forbidden(Forbidden),
    /// The router has no usable source address.
    NoAddress,
}

/// An ICMP error that may be sent, with its source address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IcmpErrorMessage {
    V4(IcmpAnswer, Ipv4Addr),
    V6(Icmp6Answer, Ipv6Addr),
}

impl IcmpErrorMessage {
    /// The destination address of the error.
    pub(crate) fn destination(&self) -> IpAddr {
        match self {
            IcmpErrorMessage::V4(answer, _) => answer.destination().into(),
            IcmpErrorMessage::V6(answer, _) => answer.destination().into(),
        }
    }
    /// The packet of the error, from its IP header on; `about` is the packet that caused it.
    pub(crate) fn build_packet(&self, about: &[u8], id: u16) -> Vec<u8> {
        match self {
            IcmpErrorMessage::V4(answer, src) => answer.build_packet(about, *src, id),
            IcmpErrorMessage::V6(answer, src) => answer.build_packet(about, *src),
        }
    }
}

/// The error about a packet, given from its IP header on. `is_many` is whether it was a
/// link broadcast or multicast.
pub(crate) fn build_error(
    reply: IcmpReply,
    packet: &[u8],
    is_many: bool,
    from: IcmpSource<'_>,
) -> Result<IcmpErrorMessage, IcmpSuppressed> {
    match reply {
        IcmpReply::V4(error) => {
            let answer = error.answer_to(packet, is_many, |address| is_broadcast(from.ports, address));
            let answer = answer.map_err(IcmpSuppressed::Forbidden)?;
            from.ipv4_source(answer.destination())
                .map(|src| IcmpErrorMessage::V4(answer, src))
                .ok_or(IcmpSuppressed::NoAddress)
        }
        IcmpReply::V6(error) => {
            let answer = error.answer_to(packet, is_many).map_err(IcmpSuppressed::Forbidden)?;
            from.ipv6_source(answer.destination())
                .map(|src| IcmpErrorMessage::V6(answer, src))
                .ok_or(IcmpSuppressed::NoAddress)
        }
    }
}

/// The port whose address an error about a packet has: for IPv4 the one that the error leaves by (RFC 1812
/// section 4.3.2.4), for IPv6, and where no route leads back, the one that the packet came by (RFC 4443
/// section 2.2 leaves the choice).
pub(crate) fn error_port(packet: &[u8], came: IngressInfo, view: &TablesView<'_>) -> Option<PortId> {
    let back = match flow::source_and_destination(packet) {
        Some((IpAddr::V4(from), _)) => view.v4.explain_path(view.turn, from.to_bits(), |_| 0).decision,
        _ => return came.from.port(),
    };
    if is_forwardable(back.outcome) { Some(back.port) } else { came.from.port() }
}

/// Whether an address means all hosts on a link of the router, or its network.
pub(crate) fn is_broadcast(ports: &[PortView], address: Ipv4Addr) -> bool {
    let address = address.to_bits();
    let is_end = |(own, len): &(u32, u8)| {
        let link = Prefix::of(*own, *len);
        *len < 31 && (address == link.first() || address == link.last())
    };
    ports.iter().any(|port| port.v4.iter().any(is_end))
}

/// The reply to an ICMPv6 echo request (RFC 4443 section 4.2): only its message, without the extension
/// headers of the request. Its traffic class is that of the request.
pub(crate) fn echo_reply(packet: &[u8], src: Ipv6Addr) -> Option<Vec<u8>> {
    let ip = Ipv6::new(packet).ok()?;
    let headers = Ip6Headers::parse_packet(packet).ok()?;
    let message = packet.get(headers.offset..HEADER6 + usize::from(ip.payload_length()))?;
    let mut bytes = vec![0; HEADER6];
    bytes.extend(message);
    write_header6(&mut bytes, src, ip.src(), IpProtocol::ICMPV6)?;
    Ipv6::new(&mut bytes).ok()?.set_traffic_class(ip.traffic_class());
    let mut icmp = Icmp6::new(&mut bytes[HEADER6..]).ok()?;
    icmp.set_icmp_type(Icmp6Type::ECHO_REPLY);
    icmp.set_code(0);
    icmp.fill_checksum(src, ip.src());
    Some(bytes)
}

fn write_header6(bytes: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr, next: IpProtocol) -> Option<()> {
    let length = u16::try_from(bytes.len().checked_sub(HEADER6)?).ok()?;
    let mut ip = Ipv6::init(bytes).ok()?;
    ip.set_payload_length(length);
    ip.set_next_header(next);
    ip.set_hop_limit(HOP_LIMIT);
    ip.set_src(src);
    ip.set_dst(dst);
    Some(())
}

/// Splits a packet of our own, without extension headers, into fragments that are no longer than the MTU
/// (RFC 8200 section 4.5).
pub(crate) fn fragment_ipv6(packet: &[u8], mtu: usize, id: u32) -> Option<Vec<Vec<u8>>> {
    let ip = Ipv6::new(packet).ok()?;
    let payload = packet.get(HEADER6..HEADER6 + usize::from(ip.payload_length()))?;
    let room = mtu.checked_sub(HEADER6 + FRAGMENT_HEADER)? & !7;
    if room == 0 {
        return None;
    }
    let count = payload.len().div_ceil(room);
    let fragment = |(n, part): (usize, &[u8])| {
        let field = (n * room) as u16 | u16::from(n + 1 < count);
        let mut bytes = packet[..HEADER6].to_vec();
        bytes.extend([ip.next_header().0, 0]);
        bytes.extend(field.to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(part);
        let length = (bytes.len() - HEADER6) as u16;
        let mut header = Ipv6::new(&mut bytes).ok()?;
        header.set_payload_length(length);
        header.set_next_header(IpProtocol::FRAGMENT);
        Some(bytes)
    };
    payload.chunks(room).enumerate().map(fragment).collect()
}
