//! Every frame of the router, read by another parser: its lengths agree and its checksums are right.

use etherparse::{IpNumber, LenSource, NetSlice, SlicedPacket, TransportSlice};

/// Panics with the frame unless it is sound.
pub(crate) fn check(frame: &[u8]) {
    if let Err(why) = judge(frame) {
        panic!("{why} in a frame that the router sent: {frame:02x?}");
    }
}

fn judge(frame: &[u8]) -> Result<(), String> {
    let packet = SlicedPacket::from_ethernet(frame).map_err(|error| error.to_string())?;
    let is_first = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            demand(
                header.header_checksum() == header.to_header().calc_header_checksum(),
                "a wrong checksum of IPv4",
            )?;
            demand(ip.payload().len_source == LenSource::Ipv4HeaderTotalLen, "a wrong length of IPv4")?;
            demand(header.ttl() > 0, "a time to live of 0")?;
            header.fragments_offset().value() == 0 && !header.more_fragments()
        }
        Some(NetSlice::Ipv6(ip)) => {
            demand(ip.payload().len_source == LenSource::Ipv6HeaderPayloadLen, "a wrong length of IPv6")?;
            demand(ip.header().hop_limit() > 0, "a hop limit of 0")?;
            !ip.is_payload_fragmented()
        }
        Some(NetSlice::Arp(arp)) => {
            let is_ethernet = (arp.hw_addr_size(), arp.proto_addr_size()) == (6, 4);
            return demand(is_ethernet, "ARP of something else than IPv4 on Ethernet");
        }
        None => return Err("neither IP nor ARP".into()),
    };
    // Of a fragment, the checksum is that of the whole.
    if is_first { judge_transport(&packet) } else { Ok(()) }
}

fn judge_transport(packet: &SlicedPacket<'_>) -> Result<(), String> {
    let Some(transport) = &packet.transport else { return Ok(()) };
    let (sum, expected) = match (&packet.net, transport) {
        (_, TransportSlice::Icmpv4(icmp)) => {
            (icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()))
        }
        (Some(NetSlice::Ipv4(ip)), TransportSlice::Udp(udp)) => {
            let expected = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload());
            (udp.checksum(), expected.map_err(|error| error.to_string())?)
        }
        (Some(NetSlice::Ipv4(ip)), TransportSlice::Tcp(tcp)) => {
            let expected = tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination());
            (tcp.checksum(), expected.map_err(|error| error.to_string())?)
        }
        (Some(NetSlice::Ipv6(ip)), TransportSlice::Udp(udp)) => {
            let expected = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload());
            (udp.checksum(), expected.map_err(|error| error.to_string())?)
        }
        (Some(NetSlice::Ipv6(ip)), TransportSlice::Tcp(tcp)) => {
            let expected = tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination());
            (tcp.checksum(), expected.map_err(|error| error.to_string())?)
        }
        (Some(NetSlice::Ipv6(ip)), TransportSlice::Icmpv6(icmp)) => {
            let is_right = icmp.is_checksum_valid(ip.header().source(), ip.header().destination());
            return demand(is_right, "a wrong checksum of ICMPv6");
        }
        _ => return Ok(()),
    };
    // Ones' complement has two zeros (RFC 1071, section 2): Linux completes a checksum that would be
    // 0x0000 as 0xffff for every protocol, though only UDP must have it so.
    let is_right = sum == expected || (sum, expected) == (0xffff, 0);
    demand(is_right, &format!("a wrong checksum of {}, not {expected:#06x}", protocol(transport)))
}

fn protocol(transport: &TransportSlice<'_>) -> &'static str {
    let number = match transport {
        TransportSlice::Icmpv4(_) => IpNumber::ICMP,
        TransportSlice::Icmpv6(_) => IpNumber::IPV6_ICMP,
        TransportSlice::Udp(_) => IpNumber::UDP,
        TransportSlice::Tcp(_) => IpNumber::TCP,
        TransportSlice::Igmp(_) => IpNumber::IGMP,
    };
    number.keyword_str().unwrap_or("something")
}

fn demand(is_so: bool, otherwise: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise.to_string()) }
}

#[test]
fn frames_with_a_wrong_bit_are_found() {
    use artery_wire::build::{ether, ip4, ip6};
    let frames = [
        ether([2; 6], [4; 6]).ip4(ip4().tcp(1, 2).payload("text")).bytes(),
        ether([2; 6], [4; 6]).ip4(ip4().udp(1, 2).payload("text")).bytes(),
        ether([2; 6], [4; 6]).ip4(ip4().icmp_echo(1, 2)).bytes(),
        ether([2; 6], [4; 6]).ip6(ip6().tcp(1, 2).payload("text")).bytes(),
        ether([2; 6], [4; 6]).ip6(ip6().icmp_echo(1, 2)).bytes(),
    ];
    for frame in frames {
        judge(&frame).unwrap();
        let mut last = frame.clone();
        *last.last_mut().unwrap() ^= 1;
        assert!(judge(&last).is_err());
        assert!(judge(&frame[..frame.len() - 1]).is_err());
        let mut changed = frame;
        changed[14 + 8] ^= 1;
        assert!(judge(&changed).is_err() || changed[14] >> 4 == 6, "a time to live is in no sum of IPv6");
    }
}

#[test]
fn a_checksum_of_either_zero_is_right() {
    use artery_wire::build::{ether, ip6};
    let with = |port: u16| ether([2; 6], [4; 6]).ip6(ip6().tcp(port, 2)).bytes();
    let checksum = |frame: &[u8]| u16::from_be_bytes([frame[70], frame[71]]);
    let mut frame = (0..=u16::MAX).map(with).find(|frame| checksum(frame) == 0).unwrap();
    assert_eq!(judge(&frame), Ok(()));
    frame[70..72].fill(0xff);
    assert_eq!(judge(&frame), Ok(()));
}
