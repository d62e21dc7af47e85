//! Reads the packet that an ICMP error quotes, without trusting it.
//!
//! Errors that end connections or shorten packets (RFC 1191, RFC 8201) are for the sender of the packet. A
//! sender behind a shared address is found only by the quoted headers (RFC 7690).
use artery_flow::{Flow4, Flow6, FlowKey};
use artery_wire::{Icmp, Icmp6, Icmp6Type, IcmpType, Ip6Headers, IpProtocol, Ipv4, Ipv6};
use std::net::IpAddr;

/// Bytes of an error before the quoted head.
pub(super) const HEAD: usize = Icmp::<&[u8]>::LEN;

/// The packet that an error is about, as far as it is quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuotedHeader {
    /// The source and the destination.
    pub(super) addresses: [IpAddr; 2],
    /// The ports of both.
    pub(super) ports: [u16; 2],
    pub(super) protocol: IpProtocol,
    /// Where the ports are, from the quoted IP header on.
    pub(super) upper: usize,
    /// Where the packet ends by its header, or the quotation before that.
    pub(super) end: usize,
}

/// A flow key that can be built from its parts.
pub(super) trait KeyFromParts: FlowKey {
    /// The key of packets between such ends; none if these are of another family.
    fn from_parts(addresses: [IpAddr; 2], ports: [u16; 2], protocol: IpProtocol) -> Option<Self>;
}

impl KeyFromParts for Flow4 {
    fn from_parts(addresses: [IpAddr; 2], ports: [u16; 2], protocol: IpProtocol) -> Option<Flow4> {
        let [IpAddr::V4(src), IpAddr::V4(dst)] = addresses else { return None };
        Some(Flow4::new([src, dst], ports, protocol, 0))
    }
}

impl KeyFromParts for Flow6 {
    fn from_parts(addresses: [IpAddr; 2], ports: [u16; 2], protocol: IpProtocol) -> Option<Flow6> {
        let [IpAddr::V6(src), IpAddr::V6(dst)] = addresses else { return None };
        Some(Flow6::new([src, dst], ports, protocol, 0))
    }
}

impl QuotedHeader {
    /// The quoted packet of an ICMP error, given from its IP header on: a complete error to the sender of the
    /// packet that it quotes. None for other packets, and for errors about protocols without ports.
    pub(super) fn parse_packet(packet: &[u8]) -> Option<QuotedHeader> {
        let (to, about) = match packet.first()? >> 4 {
            4 => {
                let ip = Ipv4::new(packet).ok().filter(|ip| !ip.is_fragment())?;
                let message = Some(ip.payload()).filter(|_| ip.protocol() == IpProtocol::ICMP)?;
                (IpAddr::V4(ip.dst()), QuotedHeader::of_message(message)?)
            }
            6 => {
                let ip = Ipv6::new(packet).ok()?;
                (IpAddr::V6(ip.dst()), QuotedHeader::of_message6(parse_icmpv6(packet)?)?)
            }
            _ => return None,
        };
        (about.addresses[0] == to).then_some(about)
    }

    /// The same of a message of ICMP.
    pub(super) fn of_message(message: &[u8]) -> Option<QuotedHeader> {
        let icmp = Icmp::new(message).ok()?;
        let tells = [IcmpType::UNREACHABLE, IcmpType::TIME_EXCEEDED, IcmpType::PARAMETER_PROBLEM];
        let quoted = Some(icmp.payload()).filter(|_| tells.contains(&icmp.icmp_type()))?;
        let ip = Ipv4::new(quoted).ok().filter(|ip| ip.fragment_offset() == 0)?;
        let addresses = [ip.src(), ip.dst()].map(IpAddr::V4);
        QuotedHeader::new(quoted, addresses, ip.protocol(), ip.header_len(), ip.total_length().into())
    }

    /// The same of a message of ICMPv6.
    pub(super) fn of_message6(message: &[u8]) -> Option<QuotedHeader> {
        let icmp = Icmp6::new(message).ok()?;
        let tells = [
            Icmp6Type::UNREACHABLE,
            Icmp6Type::PACKET_TOO_BIG,
            Icmp6Type::TIME_EXCEEDED,
            Icmp6Type::PARAMETER_PROBLEM,
        ];
        let quoted = Some(icmp.payload()).filter(|_| tells.contains(&icmp.icmp_type()))?;
        let (ip, headers) = (Ipv6::new(quoted).ok()?, Ip6Headers::parse_packet(quoted).ok()?);
        let addresses = [ip.src(), ip.dst()].map(IpAddr::V6);
        let length = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        if headers.is_later_fragment() {
            return None;
        }
        QuotedHeader::new(quoted, addresses, headers.protocol, headers.offset, length)
    }

    fn new(
        quoted: &[u8],
        addresses: [IpAddr; 2],
        protocol: IpProtocol,
        upper: usize,
        length: usize,
    ) -> Option<QuotedHeader> {
        let [a, b, c, d] = *quoted.get(upper..)?.first_chunk()?;
        let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        let is_fit = protocol.has_ports() && !ports.contains(&0) && addresses[0] != addresses[1];
        is_fit.then_some(QuotedHeader { addresses, ports, protocol, upper, end: length.min(quoted.len()) })
    }

    /// The key of the flow in the other direction.
    pub(super) fn reply_key<K: KeyFromParts>(&self) -> Option<K> {
        K::from_parts(self.addresses, self.ports, self.protocol).map(|key| key.reversed())
    }
}

/// The message of a whole packet of ICMPv6.
fn parse_icmpv6(packet: &[u8]) -> Option<&[u8]> {
    let headers = Ip6Headers::parse_packet(packet).ok()?;
    let length = Ipv6::<&[u8]>::LEN + usize::from(Ipv6::new(packet).ok()?.payload_length());
    let is_whole = headers.protocol == IpProtocol::ICMPV6 && headers.fragment.is_none();
    packet.get(headers.offset..length.min(packet.len())).filter(|_| is_whole)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use artery_wire::build::{Ip4, Ip6, ip4, ip6};

    /// An error of a router to the service, about an answer to a client.
    pub(crate) fn too_long(about: impl AsRef<[u8]>) -> Ip4 {
        let icmp = ip4().src("203.0.113.1").dst("192.0.2.1").icmp(IcmpType::UNREACHABLE, 4, [0, 0, 5, 20]);
        icmp.payload(about)
    }
    pub(crate) fn too_long6(about: impl AsRef<[u8]>) -> Ip6 {
        let icmp = ip6().src("2001:db8:ff::1").dst("2001:db8::1");
        icmp.icmp(Icmp6Type::PACKET_TOO_BIG, 0, 1300u32.to_be_bytes()).payload(about)
    }
    pub(crate) fn answer(client: u16) -> Ip4 {
        ip4().src("192.0.2.1").dst("198.51.100.7").tcp(80, client).payload([7; 60])
    }
    pub(crate) fn answer6(client: u16) -> Ip6 {
        ip6().src("2001:db8::1").dst("2001:db8:7::7").tcp(80, client).payload([7; 60])
    }

    #[test]
    fn an_error_tells_of_the_flow_that_its_packet_answers() {
        let key = |about: QuotedHeader| about.reply_key::<Flow4>().map(|key| (key.addresses(), key.ports()));
        let ends = [IpAddr::from([198, 51, 100, 7]), IpAddr::from([192, 0, 2, 1])];
        let about = QuotedHeader::parse_packet(&too_long(answer(5).bytes()).bytes()).unwrap();
        assert_eq!((key(about), about.reply_key::<Flow6>()), (Some((ends, [5, 80])), None));
        let options = ip4().src("192.0.2.1").dst("198.51.100.7").options([7, 7, 4, 0, 0, 0, 0]).udp(80, 5);
        let found = key(QuotedHeader::parse_packet(&too_long(options.bytes()).bytes()).unwrap());
        assert_eq!(found, Some((ends, [5, 80])));
        let about = QuotedHeader::parse_packet(&too_long6(answer6(5).bytes()).bytes()).unwrap();
        assert_eq!(about.reply_key::<Flow6>().unwrap().ports(), [5, 80]);
        let behind =
            ip6().src("2001:db8::1").dst("2001:db8:7::7").fragment(0, true, 7).udp(80, 5).payload([1; 9]);
        assert_eq!(QuotedHeader::parse_packet(&too_long6(behind.bytes()).bytes()).unwrap().upper, 48);
    }

    #[test]
    fn eight_bytes_behind_the_quoted_header_are_enough_and_four_too() {
        for length in 0..=answer(5).bytes().len() {
            let about = QuotedHeader::parse_packet(&too_long(&answer(5).bytes()[..length]).bytes());
            assert_eq!(about.is_some(), length >= 24, "{length}");
            assert!(about.is_none_or(|about| about.end == length));
        }
        for length in 0..=answer6(5).bytes().len() {
            let about = QuotedHeader::parse_packet(&too_long6(&answer6(5).bytes()[..length]).bytes());
            assert_eq!(about.is_some(), length >= 44, "{length}");
        }
    }

    #[test]
    fn what_is_cut_anywhere_or_is_any_bytes_is_read_without_harm() {
        let behind = ip6().src("2001:db8::1").extension(60, [1, 4, 0, 0, 0, 0]).udp(80, 5);
        for whole in [too_long(answer(5).bytes()).bytes(), too_long6(behind.bytes()).bytes()] {
            for length in 0..=whole.len() {
                QuotedHeader::parse_packet(&whole[..length]);
            }
            for at in 0..whole.len() {
                for byte in [0, 1, 0x0f, 0x45, 0x60, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] = byte;
                    let about = QuotedHeader::parse_packet(&bytes);
                    assert!(
                        about.is_none_or(|about| about.upper + 4 <= whole.len() && about.end <= whole.len())
                    );
                }
            }
        }
    }

    #[test]
    fn other_packets_are_about_nothing() {
        let quoted = answer(5).bytes();
        let icmp =
            |icmp_type| ip4().src("203.0.113.1").dst("192.0.2.1").icmp(icmp_type, 0, [0; 4]).payload(&quoted);
        let others = [
            quoted.clone(),
            icmp(IcmpType::ECHO_REQUEST).bytes(),
            icmp(IcmpType::REDIRECT).bytes(),
            icmp(IcmpType::SOURCE_QUENCH).bytes(),
            too_long(&quoted).fragment(0, true).bytes(),
            too_long(&quoted).dst("192.0.2.2").bytes(),
            too_long(ip4().src("192.0.2.1").dst("198.51.100.7").icmp_echo(1, 2).bytes()).bytes(),
            too_long(ip4().src("192.0.2.1").dst("198.51.100.7").fragment(8, false).udp(80, 5).bytes())
                .bytes(),
            too_long(answer(0).bytes()).bytes(),
            too_long(answer(5).dst("192.0.2.1").bytes()).bytes(),
            too_long(answer6(5).bytes()).bytes(),
            too_long6(answer6(5).fragment(8, false, 1).bytes()).bytes(),
        ];
        for (number, packet) in others.iter().enumerate() {
            assert_eq!(QuotedHeader::parse_packet(packet), None, "{number}");
        }
        for number in [3, 11, 12] {
            assert!(QuotedHeader::parse_packet(&icmp(IcmpType(number)).bytes()).is_some());
        }
    }
}
