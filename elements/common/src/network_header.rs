//! Finds the IP header in frames of the link types that traces have.
use artery_device::LinkType;
use artery_engine::Packet;
use artery_wire::Ipv4;

const NULL: LinkType = LinkType(0);
const PPP: LinkType = LinkType(9);
const PPP_HDLC: LinkType = LinkType(50);
const HDLC: LinkType = LinkType(104);

/// Whether IP packets can be found in frames of this type.
pub fn is_known(link: LinkType) -> bool {
    [LinkType::ETHER, LinkType::IP, LinkType::SLL, NULL, PPP, PPP_HDLC, HDLC].contains(&link)
}

/// Marks the IP header and sets the destination annotation; false without an IP packet
/// whose header is complete.
pub fn mark_network_header(packet: &mut Packet, link: LinkType) -> bool {
    let Some(offset) = network_offset(packet.data(), link) else { return false };
    let Some(bytes) = packet.data().get(offset..) else { return false };
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => {
            let Ok(header) = Ipv4::new(bytes) else { return false };
            let (dst, len) = (header.dst(), header.header_len());
            packet.set_network_header(offset);
            packet.set_transport_header(offset + len);
            packet.set_dst_ip(dst);
            true
        }
        Some(6) if bytes.len() >= 40 => {
            packet.set_network_header(offset);
            packet.set_transport_header(offset + 40);
            true
        }
        _ => false,
    }
}

/// Where the IP header should be.
fn network_offset(frame: &[u8], link: LinkType) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let is_ip = |at: usize| matches!(word(at), Some(0x0800 | 0x86dd));
    let is_ppp_ip = |at: usize| matches!(word(at), Some(0x0021 | 0x0057));
    match link {
        LinkType::IP => Some(0),
        LinkType::ETHER if is_ip(12) => Some(14),
        LinkType::ETHER if word(12) == Some(0x8100) && is_ip(16) => Some(18),
        LinkType::SLL if is_ip(14) => Some(16),
        NULL => is_internet(frame).then_some(4),
        HDLC if is_ip(2) => Some(4),
        PPP_HDLC if word(0)? >> 8 == 0xff => is_ppp_ip(2).then_some(4),
        PPP_HDLC if matches!(word(0)? >> 8, 0x0f | 0x8f) && is_ip(2) => Some(4),
        PPP => {
            let start = if word(0)? == 0xff03 { 2 } else { 0 };
            match frame.get(start) {
                Some(0x21 | 0x57) => Some(start + 1),
                _ => is_ppp_ip(start).then_some(start + 2),
            }
        }
        _ => None,
    }
}

/// Whether the address family before a loopback packet is IP, in either byte order.
fn is_internet(frame: &[u8]) -> bool {
    let Some(family) = frame.first_chunk::<4>() else { return false };
    let [a, b, c, d] = family.map(u16::from);
    let family = if a | b << 8 != 0 { a | b << 8 } else { c << 8 | d };
    matches!(family, 2 | 24 | 28 | 30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Pool;
    use artery_wire::build::ip4;

    #[test]
    fn the_header_is_found_behind_every_known_link_header() {
        let pool = Pool::new(64, 8).unwrap();
        let ip = ip4().dst("10.9.8.7").udp(1, 2).bytes();
        let heads: &[(LinkType, &[u8])] = &[
            (LinkType::IP, &[]),
            (LinkType::ETHER, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
            (LinkType::ETHER, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 5, 8, 0]),
            (LinkType::SLL, &[0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
            (NULL, &[2, 0, 0, 0]),
            (NULL, &[0, 0, 0, 2]),
            (HDLC, &[0x0f, 0, 8, 0]),
            (PPP_HDLC, &[0xff, 3, 0, 0x21]),
            (PPP, &[0xff, 3, 0, 0x21]),
            (PPP, &[0x21]),
        ];
        for (link, head) in heads {
            let frame = [head, &ip[..]].concat();
            let mut packet = pool.packet_from(&frame).unwrap();
            assert!(mark_network_header(&mut packet, *link), "{link}");
            assert_eq!(packet.network(), Some(&ip[..]), "{link}");
            assert_eq!(packet.dst_ip().to_string(), "10.9.8.7");
            for len in 0..frame.len() {
                let _ = mark_network_header(&mut pool.packet_from(&frame[..len]).unwrap(), *link);
            }
        }
    }

    #[test]
    fn other_packets_are_no_ip_packets() {
        let pool = Pool::new(64, 8).unwrap();
        for link in [LinkType::ETHER, LinkType::IP, LinkType::SLL, NULL, LinkType(147)] {
            assert!(!mark_network_header(&mut pool.packet_from(&[0; 60]).unwrap(), link));
        }
        assert!(!is_known(LinkType(147)));
    }
}
