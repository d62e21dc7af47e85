//! What the kernel does with a forwarded packet, by its own word (RTM_GETROUTE).
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A socket on which the kernel is asked.
pub(crate) struct Question {
    socket: Socket,
    pub(crate) link: u32,
}

/// A next hop: interface and gateway.
pub(crate) type Out = (u32, Option<IpAddr>);

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
const RTN_UNICAST: u8 = 1;
const RTNH_F_DEAD: u8 = 1;
/// Asks for the route, instead of what becomes of one packet.
const RTM_F_FIB_MATCH: u32 = 0x2000;

impl Question {
    /// Asks for packets that come in by an interface.
    pub(crate) fn new(link: u32) -> Question {
        let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
        socket.bind_auto().unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        Question { socket, link }
    }

    /// Where a packet is forwarded to; none where it isn't.
    pub(crate) fn ask(&self, source: IpAddr, destination: IpAddr) -> Option<Out> {
        self.ask_with_tos(0, source, destination)
    }

    /// The same for a type of service.
    pub(crate) fn ask_with_tos(&self, tos: u8, source: IpAddr, destination: IpAddr) -> Option<Out> {
        outs(&self.answer(0, tos, source, destination)).first().copied()
    }

    /// Where packets of other flows to the same destination may be forwarded to, too.
    pub(crate) fn ask_all(&self, source: IpAddr, destination: IpAddr) -> Vec<Out> {
        outs(&self.answer(RTM_F_FIB_MATCH, 0, source, destination))
    }

    fn answer(&self, flags: u32, tos: u8, source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let (family, bits) = if destination.is_ipv4() { (2, 32) } else { (10, 128) };
        let mut payload = vec![family, bits, bits, tos, 0, 0, 0, 0];
        payload.extend(flags.to_ne_bytes());
        payload.extend(attribute(RTA_DST, &octets(destination)));
        payload.extend(attribute(RTA_SRC, &octets(source)));
        payload.extend(attribute(RTA_IIF, &self.link.to_ne_bytes()));
        let len = (payload.len() + 16) as u32;
        let header = [&len.to_ne_bytes()[..], &26u16.to_ne_bytes(), &1u16.to_ne_bytes(), &[0; 8]].concat();
        self.socket.send(&[header, payload].concat(), 0).unwrap();
        self.socket.recv_from_full().unwrap().0
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (value.len() + 4) as u16;
    [&len.to_ne_bytes(), &kind.to_ne_bytes(), value].concat()
}

/// The next hops that an answer names, except those that the kernel skips.
fn outs(answer: &[u8]) -> Vec<Out> {
    // Anything but RTM_NEWROUTE is an error.
    if answer[4..6] != 24u16.to_ne_bytes() || answer[16 + 7] != RTN_UNICAST {
        return Vec::new();
    }
    let attributes = &answer[28..];
    let Some(hops) = each(attributes).find_map(|(kind, value)| (kind == RTA_MULTIPATH).then_some(value))
    else {
        let link = each(attributes).find_map(|(kind, value)| (kind == RTA_OIF).then_some(value));
        let link = link.map_or(0, |value| u32::from_ne_bytes(value.try_into().unwrap()));
        return vec![(link, gateway(attributes))];
    };
    let mut outs = Vec::new();
    let mut rest = hops;
    while rest.len() >= 8 {
        let len = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let link = u32::from_ne_bytes(rest[4..8].try_into().unwrap());
        if rest[2] & RTNH_F_DEAD == 0 {
            outs.push((link, gateway(&rest[8..len])));
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    outs
}

fn gateway(attributes: &[u8]) -> Option<IpAddr> {
    each(attributes).find_map(|(kind, value)| match kind {
        RTA_GATEWAY => Some(address(value)),
        RTA_VIA => Some(address(&value[2..])),
        _ => None,
    })
}

fn each(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, _) = rest.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = &rest[4..len];
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]), value))
    })
}

fn address(value: &[u8]) -> IpAddr {
    match value.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(value).unwrap()).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(value).unwrap()).into(),
    }
}
