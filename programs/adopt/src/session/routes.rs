//! The kernel's answer to where it sends a packet (RTM_GETROUTE).
use artery_netlink::build::attribute;
use artery_netlink::request::{self as netlink, Attributes};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const GET_ROUTE: u16 = 26;
/// Bytes of `struct rtmsg`, and where the type of the route is in it.
const ROUTE_HEADER: usize = 12;
const ROUTE_TYPE: usize = 7;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const INPUT: u16 = 3;
const OUTPUT: u16 = 4;
const GATEWAY: u16 = 5;
const PREFERRED_SOURCE: u16 = 7;
const METRICS: u16 = 8;
const VIA: u16 = 18;
const ENCAPSULATION: u16 = 22;
/// Of the metrics: which are locked, by bits, and the MTU.
const LOCKED: u16 = 1;
const MTU: u16 = 2;

/// A packet, as the kernel is asked about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteQuestion {
    pub(super) destination: IpAddr,
    pub(super) source: Option<IpAddr>,
    pub(super) tos: u8,
    /// The interface that it comes in by; a packet of the machine itself comes in by none.
    pub(super) input: Option<u32>,
    /// The interface that it must leave by.
    pub(super) output: Option<u32>,
}

impl RouteQuestion {
    /// A packet of the machine itself to this destination.
    pub(super) fn to(destination: IpAddr) -> RouteQuestion {
        RouteQuestion { destination, source: None, tos: 0, input: None, output: None }
    }

    /// Asks the kernel, whose error may say that it has none.
    pub(super) fn ask_kernel(&self) -> io::Result<RouteAnswer> {
        let answer = netlink::query_one(NETLINK_ROUTE, GET_ROUTE, &self.encode())?;
        RouteAnswer::parse(&answer.ok_or_else(netlink::nonsense)?.body)
    }

    fn encode(&self) -> Vec<u8> {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let (family, bits) = if self.destination.is_ipv4() { (AF_INET, 32) } else { (AF_INET6, 128) };
        let source_bits = if self.source.is_some() { bits } else { 0 };
        let mut body = vec![family, bits, source_bits, self.tos, 0, 0, 0, 0, 0, 0, 0, 0];
        body.extend(attribute(DESTINATION, &octets(self.destination)));
        body.extend(self.source.into_iter().flat_map(|source| attribute(SOURCE, &octets(source))));
        for (number, link) in [(INPUT, self.input), (OUTPUT, self.output)] {
            body.extend(link.into_iter().flat_map(|link| attribute(number, &link.to_ne_bytes())));
        }
        body
    }
}

/// What the kernel does with such packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteAnswer {
    /// The type of the route (RTN_*).
    pub(super) kind: u8,
    pub(super) output: Option<u32>,
    /// The next hop, unless that is the destination itself.
    pub(super) gateway: Option<IpAddr>,
    /// The source that the kernel chooses for packets of the machine.
    pub(super) source: Option<Ipv4Addr>,
    /// The MTU of the route, or the path MTU to the destination, unless the interface says.
    pub(super) mtu: Option<u32>,
    /// Whether that takes no word of routers.
    pub(super) is_mtu_locked: bool,
    /// Whether the route puts a header of its own in front of packets.
    pub(super) encapsulates: bool,
}

impl RouteAnswer {
    /// Types of routes that packets leave by, and that lead to the machine itself.
    pub(super) const UNICAST: u8 = 1;
    pub(super) const LOCAL: u8 = 2;

    pub(super) fn parse(body: &[u8]) -> io::Result<RouteAnswer> {
        let attributes = Attributes::after_header(ROUTE_HEADER, body)?;
        let metrics = attributes.nested(METRICS)?;
        let metric = |number| metrics.as_ref().and_then(|metrics| metrics.number(number));
        let source = attributes.value(PREFERRED_SOURCE).and_then(|value| value.first_chunk::<4>());
        let via = attributes.value(VIA).and_then(|value| address(value.get(2..)?));
        Ok(RouteAnswer {
            kind: *body.get(ROUTE_TYPE).ok_or_else(netlink::nonsense)?,
            output: attributes.number(OUTPUT),
            gateway: attributes.value(GATEWAY).and_then(address).or(via),
            source: source.map(|octets| Ipv4Addr::from(*octets)),
            mtu: metric(MTU),
            is_mtu_locked: metric(LOCKED).is_some_and(|locked| locked & 1 << MTU != 0),
            encapsulates: attributes.value(ENCAPSULATION).is_some(),
        })
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        _ => octets.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An answer of the kernel about IPv4, out by interface 7.
    pub(in super::super) fn answer(kind: u8, more: &[Vec<u8>]) -> Vec<u8> {
        let header = vec![AF_INET, 32, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0];
        [&[header, attribute(OUTPUT, &7_u32.to_ne_bytes())], more].concat().concat()
    }

    /// The same with an MTU, which routers may change or not.
    pub(in super::super) fn mtu(mtu: u32, is_locked: bool) -> Vec<u8> {
        let number = |kind, number: u32| attribute(kind, &number.to_ne_bytes());
        let locked = if is_locked { number(LOCKED, 1 << MTU) } else { Vec::new() };
        attribute(METRICS, &[number(MTU, mtu), locked].concat())
    }

    #[test]
    fn an_answer_has_the_next_hop_of_either_family() {
        let gateway = |more: &[Vec<u8>]| RouteAnswer::parse(&answer(RouteAnswer::UNICAST, more)).unwrap();
        assert_eq!((gateway(&[]).output, gateway(&[]).gateway), (Some(7), None));
        let v4 = attribute(GATEWAY, &[192, 0, 2, 9]);
        assert_eq!(gateway(&[v4]).gateway, Some([192, 0, 2, 9].into()));
        let v6 = attribute(VIA, &[[10, 0].as_slice(), &[0xfe; 16]].concat());
        assert_eq!(gateway(&[v6]).gateway, Some([0xfe; 16].into()));
        let answer = gateway(&[mtu(500, true)]);
        assert_eq!((answer.mtu, answer.is_mtu_locked, answer.encapsulates), (Some(500), true, false));
        assert!(gateway(&[attribute(ENCAPSULATION, &[])]).encapsulates);
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error() {
        let whole = answer(1, &[attribute(GATEWAY, &[192, 0, 2, 9]), mtu(1400, true)]);
        (0..whole.len()).for_each(|length| drop(RouteAnswer::parse(&whole[..length])));
    }
}
