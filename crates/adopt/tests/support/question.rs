//! What the kernel does with a forwarded packet, by its own word (RTM_GETROUTE).
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A socket on which the kernel is asked.
pub(crate) struct Question {
    socket: Socket,
    link: u32,
}

/// A way out: interface and gateway.
pub(crate) type Out = (u32, Option<IpAddr>);

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
const RTN_UNICAST: u8 = 1;

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
        let (family, bits) = if destination.is_ipv4() { (2, 32) } else { (10, 128) };
        let mut payload = vec![family, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        payload.extend(attribute(RTA_DST, &octets(destination)));
        payload.extend(attribute(RTA_SRC, &octets(source)));
        payload.extend(attribute(RTA_IIF, &self.link.to_ne_bytes()));
        let len = (payload.len() + 16) as u32;
        let header = [&len.to_ne_bytes()[..], &26u16.to_ne_bytes(), &1u16.to_ne_bytes(), &[0; 8]].concat();
        self.socket.send(&[header, payload].concat(), 0).unwrap();
        let (answer, _) = self.socket.recv_from_full().unwrap();
        read(&answer)
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

fn read(answer: &[u8]) -> Option<Out> {
    // Anything but RTM_NEWROUTE is an error.
    if answer[4..6] != 24u16.to_ne_bytes() || answer[16 + 7] != RTN_UNICAST {
        return None;
    }
    let (mut link, mut gateway) = (0, None);
    let mut rest = &answer[28..];
    while rest.len() >= 4 {
        let len = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let value = &rest[4..len];
        match u16::from_ne_bytes([rest[2], rest[3]]) {
            RTA_OIF => link = u32::from_ne_bytes(value.try_into().unwrap()),
            RTA_GATEWAY => gateway = Some(address(value)),
            RTA_VIA => gateway = Some(address(&value[2..])),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((link, gateway))
}

fn address(value: &[u8]) -> IpAddr {
    match value.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(value).unwrap()).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(value).unwrap()).into(),
    }
}
