//! Frames around a router that are not filtered: those for other Ethernet addresses, and Neighbor Discovery.
use artery_filter::facts::Direction;
use artery_l3::router::PortView;
use artery_wire::{EtherType, Ethernet, Icmp6Type, IpProtocol, Ipv6};
use std::net::Ipv6Addr;

/// The hop limit of packets from the link itself (RFC 4861 section 7.1).
const HOPS: u8 = 255;

/// Whether a frame at a port of a router is not filtered. The router drops frames for other Ethernet
/// addresses, which must not create a state or be answered. Neighbor Discovery passes as ARP does.
#[inline]
pub(super) fn is_unfiltered(frame: &[u8], port: &PortView, direction: Direction) -> bool {
    let Some([a, b, c, d, e, f, _, _, _, _, _, _, kind @ ..]) = frame.first_chunk::<14>() else {
        return false;
    };
    let destination = [*a, *b, *c, *d, *e, *f];
    let is_for_another =
        direction == Direction::In && destination != port.address.0 && destination[0] & 1 == 0;
    is_for_another || (*kind == EtherType::IPV6.0.to_be_bytes() && is_of_neighbors(frame, port, direction))
}

/// Whether a frame of IPv6 is a solicitation or an advertisement that the router does not forward.
fn is_of_neighbors(frame: &[u8], port: &PortView, direction: Direction) -> bool {
    let Some(Ok(packet)) = frame.get(Ethernet::<&[u8]>::LEN..).map(Ipv6::new) else { return false };
    if packet.next_header() != IpProtocol::ICMPV6 || packet.hop_limit() != HOPS {
        return false;
    }
    let kinds = [Icmp6Type::NEIGHBOR_SOLICITATION, Icmp6Type::NEIGHBOR_ADVERTISEMENT];
    let is_one = packet.payload().first().is_some_and(|kind| kinds.contains(&Icmp6Type(*kind)));
    // A packet that leaves with this hop limit was not forwarded.
    is_one && (direction == Direction::Out || ends_here(packet.dst(), port))
}

/// Whether packets to an address at a port end in the router.
fn ends_here(address: Ipv6Addr, port: &PortView) -> bool {
    let own = port.v6.iter().chain(&port.virtual_v6);
    let is_own = own.into_iter().any(|(own, _)| *own == address.to_bits());
    address.is_multicast() || address.is_unicast_link_local() || is_own
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_l3::router::{OwnEngines, PortSpec, Settings, Tables};
    use artery_rcu::Domain;
    use artery_wire::build::{ether, ip4, ip6};

    const OWN: &str = "02:00:00:00:00:01";

    fn port() -> PortView {
        let engines = |places: &_, seed| Box::new(OwnEngines::new(places, seed)) as Box<_>;
        let mut tables = Tables::new(&Domain::new(), Settings::default(), engines).unwrap();
        let id = tables.add_port(PortSpec::new("em0", OWN.parse().unwrap())).unwrap();
        tables.add_address(id, "2001:db8::1".parse().unwrap(), 64).unwrap();
        tables.ports().remove(0)
    }

    #[test]
    fn frames_for_other_ethernet_addresses_are_not_filtered_where_they_arrive() {
        let port = port();
        for (to, direction, expected) in [
            (OWN, Direction::In, false),
            ("ff:ff:ff:ff:ff:ff", Direction::In, false),
            ("02:00:00:00:00:07", Direction::In, true),
            ("02:00:00:00:00:07", Direction::Out, false),
        ] {
            let frame = ether(to, "02:00:00:00:00:09").ip4(ip4().udp(1, 2)).bytes();
            assert_eq!(is_unfiltered(&frame, &port, direction), expected, "{to} {direction:?}");
        }
        assert!(!is_unfiltered(&[2, 0, 0], &port, Direction::In));
    }

    #[test]
    fn only_neighbor_discovery_of_the_link_is_not_filtered() {
        let port = port();
        for (to, hops, kind, expected) in [
            ("ff02::1:ff00:1", 255, Icmp6Type::NEIGHBOR_SOLICITATION, [true, true]),
            ("fe80::1", 255, Icmp6Type::NEIGHBOR_ADVERTISEMENT, [true, true]),
            ("2001:db8::1", 255, Icmp6Type::NEIGHBOR_SOLICITATION, [true, true]),
            // The router would forward it.
            ("2001:db8:1::9", 255, Icmp6Type::NEIGHBOR_SOLICITATION, [false, true]),
            ("2001:db8::1", 254, Icmp6Type::NEIGHBOR_SOLICITATION, [false, false]),
            ("2001:db8::1", 255, Icmp6Type::ECHO_REQUEST, [false, false]),
        ] {
            let packet = ip6().src("2001:db8::9").dst(to).hop_limit(hops).icmp(kind, 0, [0; 4]);
            let frame = ether(OWN, "02:00:00:00:00:09").ip6(packet).bytes();
            let found = [Direction::In, Direction::Out].map(|way| is_unfiltered(&frame, &port, way));
            assert_eq!(found, expected, "{to} {hops} {kind:?}");
            for length in 0..frame.len().min(55) {
                assert!(!is_unfiltered(&frame[..length], &port, Direction::In), "{length}");
            }
        }
    }
}
