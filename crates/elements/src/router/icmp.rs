//! What the router says itself: errors, answers to echo requests, and in whose name.
use super::verdict::Told;
use artery_table::router::PortView;
use artery_table::{PortId, Prefix};
use artery_wire::{Forbidden, Icmp6, Icmp6Answer, Icmp6Type, IcmpAnswer, Ip6Headers, IpProtocol, Ipv4, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The time to live of echo replies.
const HOP_LIMIT: u8 = 64;
const HEADER6: usize = 40;
const FRAGMENT_HEADER: usize = 8;

/// Finds addresses to speak from.
#[derive(Clone, Copy)]
pub(crate) struct Speaker<'a> {
    /// The router's ports.
    pub(crate) ports: &'a [PortView],
    /// The port on whose behalf.
    pub(crate) port: Option<PortId>,
    /// Whether an address of a port may be used.
    pub(crate) is_usable: &'a dyn Fn(PortId, IpAddr) -> bool,
}

impl Speaker<'_> {
    /// The port with its number.
    pub(crate) fn port(&self) -> Option<(PortId, &PortView)> {
        self.port.and_then(|id| Some((id, self.ports.get(usize::from(id.0))?)))
    }

    /// The port first, then the others.
    fn all(&self) -> impl Iterator<Item = (PortId, &PortView)> {
        self.port().into_iter().chain((0..).map(PortId).zip(self.ports))
    }

    /// An IPv4 address for what is said to `to`: of the port, one on its link if there is one; else any of the router.
    pub(crate) fn v4(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let usable = |id: PortId, own: u32| (self.is_usable)(id, IpAddr::V4(own.into())).then(|| own.into());
        let is_near = |own: &&(u32, u8)| Prefix::of(own.0, own.1).contains(to.to_bits());
        let near = self
            .port()
            .and_then(|(id, port)| port.v4.iter().filter(is_near).find_map(|own| usable(id, own.0)));
        near.or_else(|| self.all().find_map(|(id, port)| port.v4.iter().find_map(|own| usable(id, own.0))))
    }

    /// An IPv6 address for what is said to `to`: a link-local one to such an address, else a global one of the port or of
    /// another, and if there is none, the link-local one.
    pub(crate) fn v6(&self, to: Ipv6Addr) -> Option<Ipv6Addr> {
        let usable = |id: PortId, own: u128| (self.is_usable)(id, IpAddr::V6(own.into())).then(|| own.into());
        let link_local = || self.port().and_then(|(id, port)| usable(id, port.link_local));
        if to.is_unicast_link_local() {
            return link_local();
        }
        let is_near = |own: &&(u128, u8)| Prefix::of(own.0, own.1).contains(to.to_bits());
        let near = self
            .port()
            .and_then(|(id, port)| port.v6.iter().filter(is_near).find_map(|own| usable(id, own.0)));
        let any = || self.all().find_map(|(id, port)| port.v6.iter().find_map(|own| usable(id, own.0)));
        near.or_else(any).or_else(link_local)
    }
}

/// Why nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The rules forbid it.
    Forbidden(Forbidden),
    /// The router has no address to say it from.
    NoAddress,
}

/// An error that may be sent, and from whom.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Error {
    /// By ICMP.
    V4(IcmpAnswer, Ipv4Addr),
    /// By ICMPv6.
    V6(Icmp6Answer, Ipv6Addr),
}

impl Error {
    /// To whom it goes.
    pub(crate) fn to(&self) -> IpAddr {
        match self {
            Error::V4(answer, _) => answer.to().into(),
            Error::V6(answer, _) => answer.to().into(),
        }
    }
    /// Itself, from its IP header on; `about` is the packet that was asked about.
    pub(crate) fn packet(&self, about: &[u8], id: u16) -> Vec<u8> {
        match self {
            Error::V4(answer, src) => answer.packet(about, *src, id),
            Error::V6(answer, src) => answer.packet(about, *src),
        }
    }
}

/// The error about a packet, given from its IP header on. `is_many` says that it came in a frame for more than one.
pub(crate) fn error(told: Told, packet: &[u8], is_many: bool, from: Speaker<'_>) -> Result<Error, Silence> {
    match told {
        Told::V4(error) => {
            let answer = error.about(packet, is_many, |address| is_broadcast(from.ports, address));
            let answer = answer.map_err(Silence::Forbidden)?;
            from.v4(answer.to()).map(|src| Error::V4(answer, src)).ok_or(Silence::NoAddress)
        }
        Told::V6(error) => {
            let answer = error.about(packet, is_many).map_err(Silence::Forbidden)?;
            from.v6(answer.to()).map(|src| Error::V6(answer, src)).ok_or(Silence::NoAddress)
        }
    }
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

/// The reply to an ICMPv6 echo request (RFC 4443 section 4.2): its message alone, whatever headers came before.
pub(crate) fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Ipv6::new(packet).ok()?;
    let headers = Ip6Headers::read(packet).ok()?;
    let message = packet.get(headers.offset..HEADER6 + usize::from(ip.payload_length()))?;
    let mut bytes = vec![0; HEADER6];
    bytes.extend(message);
    write_header6(&mut bytes, ip.dst(), ip.src(), IpProtocol::ICMPV6)?;
    let mut icmp = Icmp6::new(&mut bytes[HEADER6..]).ok()?;
    icmp.set_icmp_type(Icmp6Type::ECHO_REPLY);
    icmp.set_code(0);
    icmp.fill_checksum(ip.dst(), ip.src());
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

/// Splits a packet of our own, without extension headers, into fragments that are no longer than the MTU (RFC 8200
/// section 4.5).
pub(crate) fn fragments6(packet: &[u8], mtu: usize, id: u32) -> Option<Vec<Vec<u8>>> {
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

/// Who sent a packet, and to whom.
pub(crate) fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => Ipv4::new(packet).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        6 => Ipv6::new(packet).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        _ => None,
    }
}
