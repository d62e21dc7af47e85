//! Frames with BFD control packets over a single hop (RFC 5881): recognized, checked and written.
use super::classify::has_address;
use artery_engine::DropReason;
use artery_forward::fast_path::LINK;
use artery_l3::router::PortView;
use artery_wire::build::{ip4, ip6};
use artery_wire::{BfdControl, EtherType, Ethernet, Ip6Headers, IpProtocol, Ipv4, Ipv6, Udp, checksum};
use std::net::IpAddr;

/// The TTL or hop limit of packets that no router has forwarded (RFC 5881 section 5).
const ONE_HOP: u8 = 255;
/// Class selector 6, which network control has (RFC 4594 section 3.1).
const NETWORK_CONTROL: u8 = 0xc0;

/// A UDP datagram to BFD's port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: IpAddr,
    to: IpAddr,
    ttl: u8,
    /// From its UDP header on.
    udp: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// The datagram in a frame to an address of the router, with the port's MAC address as destination. Other
    /// frames are not BFD. Neither are fragments, which no session sends.
    pub(super) fn parse_frame(frame: &'a [u8], port: &PortView, ports: &[PortView]) -> Option<Datagram<'a>> {
        let ethernet = Ethernet::new(frame).ok()?;
        let packet = frame.get(LINK..)?;
        let datagram = match ethernet.ether_type() {
            EtherType::IPV4 => parse_ipv4(packet)?,
            EtherType::IPV6 => parse_ipv6(packet)?,
            _ => return None,
        };
        let is_ours = || ports.iter().any(|port| has_address(port, datagram.to));
        (ethernet.dst() == port.address && is_ours()).then_some(datagram)
    }

    /// The control packet in it, if it has come over one hop and is valid. Without `has_checksum` the sender,
    /// on this machine, left the checksum to its network card.
    pub(super) fn parse_control(&self, has_checksum: bool) -> Result<BfdControl, DropReason> {
        if self.ttl != ONE_HOP {
            return Err(DropReason::Forwarded);
        }
        let udp = Udp::new(self.udp)?;
        udp.check_length().map_err(|_| DropReason::Malformed)?;
        if has_checksum && !self.checksum_is_valid(&udp) {
            return Err(DropReason::BadChecksum);
        }
        BfdControl::parse_packet(udp.payload()).map_err(|_| DropReason::Malformed)
    }

    fn checksum_is_valid(&self, udp: &Udp<&[u8]>) -> bool {
        let length = udp.length();
        let pseudo = match (self.from, self.to) {
            // RFC 768: none was computed.
            (IpAddr::V4(_), _) if udp.checksum() == 0 => return true,
            (IpAddr::V4(from), IpAddr::V4(to)) => checksum::pseudo_v4(from, to, IpProtocol::UDP, length),
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                checksum::pseudo_v6(from, to, IpProtocol::UDP, length.into())
            }
            _ => return false,
        };
        let bytes = self.udp.get(..length.into()).unwrap_or_default();
        udp.checksum() != 0 && checksum::is_valid(checksum::add(pseudo, checksum::sum(bytes)))
    }
}

fn parse_ipv4(packet: &[u8]) -> Option<Datagram<'_>> {
    let ip = Ipv4::validate(packet).ok()?;
    let is_udp = ip.protocol() == IpProtocol::UDP && !ip.is_fragment();
    let udp = packet.get(ip.header_len()..ip.total_length().into())?;
    let datagram = Datagram { from: ip.src().into(), to: ip.dst().into(), ttl: ip.ttl(), udp };
    (is_udp && is_to_bfd(udp)).then_some(datagram)
}

fn parse_ipv6(packet: &[u8]) -> Option<Datagram<'_>> {
    let ip = Ipv6::validate(packet).ok()?;
    let headers = Ip6Headers::parse_packet(packet).ok()?;
    let is_udp = headers.protocol == IpProtocol::UDP && headers.fragment.is_none();
    let udp = packet.get(headers.offset..Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length()))?;
    let datagram = Datagram { from: ip.src().into(), to: ip.dst().into(), ttl: ip.hop_limit(), udp };
    (is_udp && is_to_bfd(udp)).then_some(datagram)
}

fn is_to_bfd(udp: &[u8]) -> bool {
    Udp::new(udp).is_ok_and(|udp| udp.dst_port() == BfdControl::UDP_PORT)
}

/// A frame with a control packet, whose MAC addresses are still to be written. None if the addresses
/// are of two families.
pub(super) fn build_frame(
    from: IpAddr,
    to: IpAddr,
    source_port: u16,
    control: &BfdControl,
) -> Option<Vec<u8>> {
    let (kind, packet) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let packet = ip4().src(from).dst(to).ttl(ONE_HOP).tos(NETWORK_CONTROL);
            let packet = packet.udp(source_port, BfdControl::UDP_PORT).payload(control.encode_packet());
            (EtherType::IPV4, packet.bytes())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let packet = ip6().src(from).dst(to).hop_limit(ONE_HOP).traffic_class(NETWORK_CONTROL);
            let packet = packet.udp(source_port, BfdControl::UDP_PORT).payload(control.encode_packet());
            (EtherType::IPV6, packet.bytes())
        }
        _ => return None,
    };
    let mut frame = vec![0; LINK];
    frame[12..].copy_from_slice(&kind.0.to_be_bytes());
    frame.extend(packet);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::BfdState;

    /// A neighbor, by family.
    const NEIGHBORS: [&str; 2] = ["10.0.1.9", "fe80::9"];

    fn port() -> PortView {
        super::super::verdict::testing::small().tables.ports().remove(0)
    }

    fn control() -> BfdControl {
        BfdControl {
            state: BfdState::Down,
            detect_multiplier: 3,
            my_discriminator: 5,
            desired_min_tx: 1_000_000,
            required_min_rx: 50_000,
            ..BfdControl::default()
        }
    }

    /// A frame from a neighbor to the first address of a family that a port has.
    fn received(port: &PortView, from: &str) -> Vec<u8> {
        let from: IpAddr = from.parse().unwrap();
        let to = match from {
            IpAddr::V4(_) => IpAddr::V4(port.v4[0].0.into()),
            IpAddr::V6(_) => IpAddr::V6(port.link_local.into()),
        };
        let mut frame = build_frame(from, to, 49_999, &control()).unwrap();
        frame[..6].copy_from_slice(&port.address.0);
        frame
    }

    #[test]
    fn what_is_written_is_read_again() {
        let port = port();
        for from in NEIGHBORS {
            let frame = received(&port, from);
            let datagram = Datagram::parse_frame(&frame, &port, std::slice::from_ref(&port)).unwrap();
            assert_eq!((datagram.from.to_string().as_str(), datagram.ttl), (from, 255));
            assert_eq!(datagram.parse_control(true), Ok(control()));
            let mut unfinished = frame.clone();
            let checksum = frame.len() - BfdControl::LEN - 2;
            unfinished[checksum] ^= 1;
            let datagram = Datagram::parse_frame(&unfinished, &port, std::slice::from_ref(&port)).unwrap();
            assert_eq!(datagram.parse_control(true), Err(DropReason::BadChecksum));
            assert_eq!(datagram.parse_control(false), Ok(control()));
        }
    }

    #[test]
    fn a_frame_cut_short_is_passed_on_or_refused_at_every_length() {
        let port = port();
        for from in NEIGHBORS {
            let frame = received(&port, from);
            for len in 0..frame.len() {
                let part = Datagram::parse_frame(&frame[..len], &port, std::slice::from_ref(&port));
                assert!(part.is_none(), "{from} {len}");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_passed_on_or_refused_and_never_believed() {
        let port = port();
        for from in NEIGHBORS {
            let good = received(&port, from);
            for at in 0..good.len() {
                for bit in 0..8 {
                    let mut frame = good.clone();
                    frame[at] ^= 1 << bit;
                    let datagram = Datagram::parse_frame(&frame, &port, std::slice::from_ref(&port));
                    let control = datagram.map(|datagram| datagram.parse_control(true));
                    // Fields that no checksum covers and the parser ignores: the source MAC address, and
                    // fields of IPv6.
                    let is_free = (6..12).contains(&at) || from.contains(':') && (14..18).contains(&at);
                    assert!(is_free || !matches!(control, Some(Ok(_))), "{from} byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn packets_that_were_forwarded_are_refused() {
        let port = port();
        for (from, at) in NEIGHBORS.into_iter().zip([LINK + 8, LINK + 7]) {
            let mut frame = received(&port, from);
            frame[at] = 254;
            if at == LINK + 8 {
                Ipv4::new(&mut frame[LINK..]).unwrap().fill_checksum();
            }
            let datagram = Datagram::parse_frame(&frame, &port, std::slice::from_ref(&port)).unwrap();
            assert_eq!(datagram.parse_control(true), Err(DropReason::Forwarded));
        }
    }

    #[test]
    fn other_ports_and_addresses_of_others_are_passed_on() {
        let port = port();
        let is_taken =
            |frame: &[u8]| Datagram::parse_frame(frame, &port, std::slice::from_ref(&port)).is_some();
        let good = received(&port, "10.0.1.9");
        assert!(is_taken(&good));
        // Multihop BFD and echo are not supported.
        for port_number in [4784_u16, 3785] {
            let mut other = good.clone();
            other[LINK + 22..LINK + 24].copy_from_slice(&port_number.to_be_bytes());
            assert!(!is_taken(&other));
        }
        let build =
            |to: &str| build_frame("10.0.1.9".parse().unwrap(), to.parse().unwrap(), 49_999, &control());
        let mut transit = build("10.9.9.9").unwrap();
        transit[..6].copy_from_slice(&port.address.0);
        assert!(!is_taken(&transit));
        assert_eq!(build("fe80::1"), None);
    }
}
