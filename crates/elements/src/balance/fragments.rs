//! Fragments: the first of a datagram has ports, the later ones follow it for a while.
//!
//! Those that come before the first follow nothing: keeping them would be reassembly, which is another element's. What is
//! remembered is little and short-lived (RFC 8900, 3.3 and 3.7): the fragments of a datagram leave its sender one after the
//! other, and a sender in a hurry uses an identification again within seconds (RFC 4963).
use super::about::Between;
use artery_table::flow::{Seen, Sight};
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Most datagrams that are remembered.
const MOST: usize = 1024;
/// For how long.
const TIME: Duration = Duration::from_secs(2);

/// What fragments of a datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Datagram {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    /// 0 with IPv6, the identification of which is for all protocols (RFC 8200, 4.5).
    protocol: IpProtocol,
}

/// A fragment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<K> {
    /// The first, with the flow that it belongs to.
    First(Seen<K>),
    Later,
}

impl<K: Between> Part<K> {
    /// What a packet is part of, from its IP header on; none if it is whole, or a first fragment without a whole header of a
    /// protocol with ports (RFC 1858, 3).
    pub(super) fn of(packet: &[u8]) -> Option<(Datagram, Part<K>)> {
        match packet.first()? >> 4 {
            4 => Part::of4(packet),
            _ => Part::of6(packet),
        }
    }

    fn of4(packet: &[u8]) -> Option<(Datagram, Part<K>)> {
        let ip = Ipv4::new(packet).ok().filter(Ipv4::is_fragment)?;
        let (src, dst, protocol) = (ip.src().into(), ip.dst().into(), ip.protocol());
        let datagram = Datagram { src, dst, id: ip.id().into(), protocol };
        if ip.fragment_offset() > 0 {
            return Some((datagram, Part::Later));
        }
        let seen = seen([src, dst], protocol, ip.payload(), ip.total_length().into())?;
        Some((datagram, Part::First(seen)))
    }

    fn of6(packet: &[u8]) -> Option<(Datagram, Part<K>)> {
        let (ip, headers) = (Ipv6::new(packet).ok()?, Ip6Headers::read(packet).ok()?);
        let (src, dst) = (ip.src().into(), ip.dst().into());
        let datagram = Datagram { src, dst, id: headers.fragment?.id, protocol: IpProtocol(0) };
        if headers.is_later_fragment() {
            return Some((datagram, Part::Later));
        }
        let length = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        let payload = packet.get(headers.offset..length.min(packet.len()))?;
        let seen = seen([src, dst], headers.protocol, payload, length as u32)?;
        Some((datagram, Part::First(seen)))
    }
}

/// The flow that a first fragment belongs to, and what it shows.
fn seen<K: Between>(
    addresses: [IpAddr; 2],
    protocol: IpProtocol,
    payload: &[u8],
    bytes: u32,
) -> Option<Seen<K>> {
    let [a, b, c, d] = *payload.first_chunk()?;
    let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let flags = match protocol {
        IpProtocol::TCP => Tcp::new(payload).ok()?.flags(),
        _ => TcpFlags::default(),
    };
    let is_fit = protocol.has_ports() && !ports.contains(&0) && addresses[0] != addresses[1];
    let key = K::between(addresses, ports, protocol).filter(|_| is_fit)?;
    Some(Seen { key, sight: Sight { protocol, flags, bytes } })
}

/// Where datagrams went whose first fragments came a short while ago.
#[derive(Debug)]
pub(super) struct Fragments<T> {
    went: HashMap<Datagram, Went<T>>,
    /// In the order in which they came, with a number for each.
    order: VecDeque<(Datagram, u64)>,
    came: u64,
}

#[derive(Clone, Copy, Debug)]
struct Went<T> {
    to: T,
    number: u64,
    at: Duration,
}

impl<T> Default for Fragments<T> {
    fn default() -> Fragments<T> {
        Fragments { went: HashMap::new(), order: VecDeque::new(), came: 0 }
    }
}

impl<T: Copy> Fragments<T> {
    /// Remembers where a first fragment went. The oldest one makes room.
    pub(super) fn went(&mut self, datagram: Datagram, to: T, now: Duration) {
        if self.order.len() >= MOST {
            self.forget_oldest();
        }
        self.came += 1;
        self.order.push_back((datagram, self.came));
        self.went.insert(datagram, Went { to, number: self.came, at: now });
    }

    /// Where the first fragment of a datagram went.
    pub(super) fn of(&self, datagram: &Datagram) -> Option<T> {
        self.went.get(datagram).map(|went| went.to)
    }

    /// Forgets those whose time is over.
    #[inline]
    pub(super) fn forget(&mut self, now: Duration) {
        while let Some((oldest, number)) = self.order.front() {
            let went = self.went.get(oldest).filter(|went| went.number == *number);
            if went.is_some_and(|went| now.saturating_sub(went.at) < TIME) {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((oldest, number)) = self.order.pop_front()
            && self.went.get(&oldest).is_some_and(|went| went.number == number)
        {
            self.went.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_table::flow::{Flow4, Flow6, FlowKey};
    use artery_wire::build::{Ip4, ip4, ip6};

    fn first(id: u16) -> Ip4 {
        ip4().src("198.51.100.7").dst("192.0.2.1").id(id).fragment(0, true).udp(5, 80).payload([1; 24])
    }
    fn later(id: u16) -> Ip4 {
        ip4().src("198.51.100.7").dst("192.0.2.1").id(id).fragment(32, false).raw(17, [1; 24])
    }
    fn datagram(packet: &Ip4) -> Datagram {
        Part::<Flow4>::of(&packet.bytes()).unwrap().0
    }
    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn the_first_fragment_tells_the_flow_and_later_ones_what_they_are_of() {
        let Some((one, Part::First(seen))) = Part::<Flow4>::of(&first(7).bytes()) else { panic!() };
        assert_eq!((seen.key.ports(), seen.sight.bytes), ([5, 80], 20 + 8 + 24));
        assert_eq!(Part::<Flow4>::of(&later(7).bytes()), Some((one, Part::Later)));
        assert_ne!(datagram(&later(8)), one);
        assert_ne!(datagram(&later(7).src("198.51.100.8")), one);
        let v6 = || ip6().src("2001:db8::7").dst("2001:db8::1");
        let bytes = v6().fragment(0, true, 9).udp(5, 80).payload([1; 24]).bytes();
        let Some((one, Part::First(seen))) = Part::<Flow6>::of(&bytes) else { panic!() };
        assert_eq!(seen.key.ports(), [5, 80]);
        let later = v6().fragment(32, false, 9).raw(17, [1; 24]).bytes();
        assert_eq!(Part::<Flow6>::of(&later), Some((one, Part::Later)));
    }

    #[test]
    fn whole_packets_and_first_fragments_without_a_whole_header_are_part_of_nothing() {
        let whole = ip4().src("198.51.100.7").dst("192.0.2.1").udp(5, 80);
        let tiny = ip4().src("198.51.100.7").dst("192.0.2.1").fragment(0, true).raw(6, [5; 8]);
        let ping = ip4().src("198.51.100.7").dst("192.0.2.1").fragment(0, true).icmp_echo(1, 2);
        for packet in [whole, tiny, ping] {
            assert_eq!(Part::<Flow4>::of(&packet.bytes()), None);
        }
        let v6 = ip6().src("2001:db8::7").dst("2001:db8::1").fragment(0, true, 9).udp(5, 80).payload([1; 24]);
        for bytes in [first(7).bytes(), v6.bytes()] {
            for length in 0..bytes.len() {
                Part::<Flow4>::of(&bytes[..length]);
                Part::<Flow6>::of(&bytes[..length]);
            }
        }
    }

    #[test]
    fn a_datagram_is_forgotten_after_two_seconds_and_goes_where_its_last_first_fragment_went() {
        let (mut fragments, of) = (Fragments::default(), datagram(&first(7)));
        let after = |fragments: &mut Fragments<u8>, ms| {
            fragments.forget(NOW + Duration::from_millis(ms));
            fragments.of(&of)
        };
        assert_eq!(after(&mut fragments, 0), None);
        fragments.went(of, 1, NOW);
        assert_eq!([0, 1999, 2000].map(|ms| after(&mut fragments, ms)), [Some(1), Some(1), None]);
        fragments.went(of, 1, NOW);
        fragments.went(of, 2, NOW + Duration::from_secs(1));
        assert_eq!([2999, 3000].map(|ms| after(&mut fragments, ms)), [Some(2), None]);
        fragments.went(of, 3, NOW + Duration::from_secs(9));
        assert_eq!(after(&mut fragments, 0), Some(3), "a clock that goes back");
    }

    #[test]
    fn no_more_than_so_many_are_remembered_and_the_oldest_make_room() {
        let mut fragments = Fragments::default();
        for id in 0..3000 {
            fragments.went(datagram(&first(id)), id, NOW);
            fragments.went(datagram(&first(9999)), id, NOW);
        }
        assert!(fragments.order.len() <= MOST && fragments.went.len() <= MOST);
        assert_eq!(fragments.of(&datagram(&first(9999))), Some(2999));
        assert_eq!(fragments.of(&datagram(&first(2999 - 511))), Some(2999 - 511));
        assert_eq!(fragments.of(&datagram(&first(2999 - 512))), None);
    }
}
