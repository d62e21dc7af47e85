//! Fragments: the first of a datagram has ports, and later ones go to the same member for a while.
//!
//! Fragments that arrive before the first have no member: keeping them would be reassembly, which is the
//! task of another element. Few datagrams are remembered, and briefly (RFC 8900, 3.3 and 3.7): the
//! fragments of a datagram leave its sender one after the other, and a fast sender reuses an identification
//! within seconds (RFC 4963).
use super::about::KeyFromParts;
use artery_flow::{KeyedPacket, PacketInfo};
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Most datagrams that are remembered.
const MOST: usize = 1024;
/// How long a datagram is remembered.
const TIME: Duration = Duration::from_secs(2);

/// What fragments of a datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatagramKey {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    /// 0 with IPv6, the identification of which is for all protocols (RFC 8200, 4.5).
    protocol: IpProtocol,
}

/// A fragment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentPart<K> {
    /// The first, with the flow that it belongs to.
    First(KeyedPacket<K>),
    Later,
}

impl<K: KeyFromParts> FragmentPart<K> {
    /// What a packet is part of, from its IP header on; none if it is whole, or a first fragment without a
    /// whole header of a protocol with ports (RFC 1858, 3).
    pub(super) fn parse_fragment(packet: &[u8]) -> Option<(DatagramKey, FragmentPart<K>)> {
        match packet.first()? >> 4 {
            4 => FragmentPart::parse_ipv4(packet),
            _ => FragmentPart::parse_ipv6(packet),
        }
    }

    fn parse_ipv4(packet: &[u8]) -> Option<(DatagramKey, FragmentPart<K>)> {
        let ip = Ipv4::new(packet).ok().filter(Ipv4::is_fragment)?;
        let (src, dst, protocol) = (ip.src().into(), ip.dst().into(), ip.protocol());
        let datagram = DatagramKey { src, dst, id: ip.id().into(), protocol };
        if ip.fragment_offset() > 0 {
            return Some((datagram, FragmentPart::Later));
        }
        let seen = parse_first_fragment([src, dst], protocol, ip.payload(), ip.total_length().into())?;
        Some((datagram, FragmentPart::First(seen)))
    }

    fn parse_ipv6(packet: &[u8]) -> Option<(DatagramKey, FragmentPart<K>)> {
        let (ip, headers) = (Ipv6::new(packet).ok()?, Ip6Headers::parse_packet(packet).ok()?);
        let (src, dst) = (ip.src().into(), ip.dst().into());
        let datagram = DatagramKey { src, dst, id: headers.fragment?.id, protocol: IpProtocol(0) };
        if headers.is_later_fragment() {
            return Some((datagram, FragmentPart::Later));
        }
        let length = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        let payload = packet.get(headers.offset..length.min(packet.len()))?;
        let seen = parse_first_fragment([src, dst], headers.protocol, payload, length as u32)?;
        Some((datagram, FragmentPart::First(seen)))
    }
}

/// The flow that a first fragment belongs to, and what it shows.
fn parse_first_fragment<K: KeyFromParts>(
    addresses: [IpAddr; 2],
    protocol: IpProtocol,
    payload: &[u8],
    bytes: u32,
) -> Option<KeyedPacket<K>> {
    let [a, b, c, d] = *payload.first_chunk()?;
    let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let flags = match protocol {
        IpProtocol::TCP => Tcp::new(payload).ok()?.flags(),
        _ => TcpFlags::default(),
    };
    let is_fit = protocol.has_ports() && !ports.contains(&0) && addresses[0] != addresses[1];
    let key = K::from_parts(addresses, ports, protocol).filter(|_| is_fit)?;
    Some(KeyedPacket { key, info: PacketInfo { protocol, flags, bytes } })
}

/// Recent datagrams, with the target of their first fragments.
#[derive(Debug)]
pub(super) struct FragmentTracker<T> {
    datagrams: HashMap<DatagramKey, TrackedDatagram<T>>,
    /// In the order of arrival, with a number for each.
    order: VecDeque<(DatagramKey, u64)>,
    inserted: u64,
}

#[derive(Clone, Copy, Debug)]
struct TrackedDatagram<T> {
    to: T,
    number: u64,
    at: Duration,
}

impl<T> Default for FragmentTracker<T> {
    fn default() -> FragmentTracker<T> {
        FragmentTracker { datagrams: HashMap::new(), order: VecDeque::new(), inserted: 0 }
    }
}

impl<T: Copy> FragmentTracker<T> {
    /// Records the target of a first fragment. If the table is full, the oldest one is removed.
    pub(super) fn insert_datagram(&mut self, datagram: DatagramKey, to: T, now: Duration) {
        if self.order.len() >= MOST {
            self.forget_oldest();
        }
        self.inserted += 1;
        self.order.push_back((datagram, self.inserted));
        self.datagrams.insert(datagram, TrackedDatagram { to, number: self.inserted, at: now });
    }

    /// Where the first fragment of a datagram went.
    pub(super) fn lookup_datagram(&self, datagram: &DatagramKey) -> Option<T> {
        self.datagrams.get(datagram).map(|went| went.to)
    }

    /// Removes those whose time is over.
    #[inline]
    pub(super) fn expire_old(&mut self, now: Duration) {
        while let Some((oldest, number)) = self.order.front() {
            let went = self.datagrams.get(oldest).filter(|went| went.number == *number);
            if went.is_some_and(|went| now.saturating_sub(went.at) < TIME) {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((oldest, number)) = self.order.pop_front()
            && self.datagrams.get(&oldest).is_some_and(|went| went.number == number)
        {
            self.datagrams.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_flow::{Flow4, Flow6, FlowKey};
    use artery_wire::build::{Ip4, ip4, ip6};

    fn first(id: u16) -> Ip4 {
        ip4().src("198.51.100.7").dst("192.0.2.1").id(id).fragment(0, true).udp(5, 80).payload([1; 24])
    }
    fn later(id: u16) -> Ip4 {
        ip4().src("198.51.100.7").dst("192.0.2.1").id(id).fragment(32, false).raw(17, [1; 24])
    }
    fn datagram(packet: &Ip4) -> DatagramKey {
        FragmentPart::<Flow4>::parse_fragment(&packet.bytes()).unwrap().0
    }
    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn the_first_fragment_tells_the_flow_and_later_ones_what_they_are_of() {
        let parse = |packet: Ip4| FragmentPart::<Flow4>::parse_fragment(&packet.bytes());
        let Some((one, FragmentPart::First(seen))) = parse(first(7)) else { panic!() };
        assert_eq!((seen.key.ports(), seen.info.bytes), ([5, 80], 20 + 8 + 24));
        assert_eq!(parse(later(7)), Some((one, FragmentPart::Later)));
        assert_ne!(datagram(&later(8)), one);
        assert_ne!(datagram(&later(7).src("198.51.100.8")), one);
        let v6 = || ip6().src("2001:db8::7").dst("2001:db8::1");
        let bytes = v6().fragment(0, true, 9).udp(5, 80).payload([1; 24]).bytes();
        let Some((one, FragmentPart::First(seen))) = FragmentPart::<Flow6>::parse_fragment(&bytes) else {
            panic!()
        };
        assert_eq!(seen.key.ports(), [5, 80]);
        let later = v6().fragment(32, false, 9).raw(17, [1; 24]).bytes();
        assert_eq!(FragmentPart::<Flow6>::parse_fragment(&later), Some((one, FragmentPart::Later)));
    }

    #[test]
    fn whole_packets_and_first_fragments_without_a_whole_header_are_part_of_nothing() {
        let whole = ip4().src("198.51.100.7").dst("192.0.2.1").udp(5, 80);
        let tiny = ip4().src("198.51.100.7").dst("192.0.2.1").fragment(0, true).raw(6, [5; 8]);
        let ping = ip4().src("198.51.100.7").dst("192.0.2.1").fragment(0, true).icmp_echo(1, 2);
        for packet in [whole, tiny, ping] {
            assert_eq!(FragmentPart::<Flow4>::parse_fragment(&packet.bytes()), None);
        }
        let v6 = ip6().src("2001:db8::7").dst("2001:db8::1").fragment(0, true, 9).udp(5, 80).payload([1; 24]);
        for bytes in [first(7).bytes(), v6.bytes()] {
            for length in 0..bytes.len() {
                FragmentPart::<Flow4>::parse_fragment(&bytes[..length]);
                FragmentPart::<Flow6>::parse_fragment(&bytes[..length]);
            }
        }
    }

    #[test]
    fn a_datagram_is_forgotten_after_two_seconds_and_goes_where_its_last_first_fragment_went() {
        let (mut fragments, of) = (FragmentTracker::default(), datagram(&first(7)));
        let after = |fragments: &mut FragmentTracker<u8>, ms| {
            fragments.expire_old(NOW + Duration::from_millis(ms));
            fragments.lookup_datagram(&of)
        };
        assert_eq!(after(&mut fragments, 0), None);
        fragments.insert_datagram(of, 1, NOW);
        assert_eq!([0, 1999, 2000].map(|ms| after(&mut fragments, ms)), [Some(1), Some(1), None]);
        fragments.insert_datagram(of, 1, NOW);
        fragments.insert_datagram(of, 2, NOW + Duration::from_secs(1));
        assert_eq!([2999, 3000].map(|ms| after(&mut fragments, ms)), [Some(2), None]);
        fragments.insert_datagram(of, 3, NOW + Duration::from_secs(9));
        assert_eq!(after(&mut fragments, 0), Some(3), "a clock that goes back");
    }

    #[test]
    fn no_more_than_so_many_are_remembered_and_the_oldest_make_room() {
        let mut fragments = FragmentTracker::default();
        for id in 0..3000 {
            fragments.insert_datagram(datagram(&first(id)), id, NOW);
            fragments.insert_datagram(datagram(&first(9999)), id, NOW);
        }
        assert!(fragments.order.len() <= MOST && fragments.datagrams.len() <= MOST);
        assert_eq!(fragments.lookup_datagram(&datagram(&first(9999))), Some(2999));
        assert_eq!(fragments.lookup_datagram(&datagram(&first(2999 - 511))), Some(2999 - 511));
        assert_eq!(fragments.lookup_datagram(&datagram(&first(2999 - 512))), None);
    }
}
