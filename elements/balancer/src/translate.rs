//! Rewrites addresses and ports of a packet, with the checksums that cover them (RFC 3022, 4.1 and 4.2), and
//! those that an ICMP error quotes (RFC 5508, 4.2).
//!
//! Checksums are updated, not computed (RFC 1624): an invalid one stays invalid, for the receiver to detect.
use super::about::{HEAD, QuotedHeader};
use artery_common::ip_header;
use artery_engine::Packet;
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6, checksum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The end of a packet to rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketEnd {
    Source,
    Destination,
}

/// Rewrites one end of a packet to this address and, if given, this port. Returns whether the packet allows
/// that: it is TCP or UDP and of the address's family; others stay unchanged.
///
/// In an ICMP error about a packet in the other direction, the end of the quoted packet changes
/// too. In a fragment other than the first, only the address changes: the rest is in the first,
/// with a checksum for all.
pub(super) fn translate_packet(
    packet: &mut Packet,
    end: PacketEnd,
    address: IpAddr,
    port: Option<u16>,
) -> bool {
    match address {
        IpAddr::V4(address) => translate_ipv4(packet, end, address, port),
        IpAddr::V6(address) => translate_ipv6(packet, end, address, port),
    }
}

fn translate_ipv4(packet: &mut Packet, end: PacketEnd, new: Ipv4Addr, port: Option<u16>) -> bool {
    let Ok(ip) = Ipv4::new(ip_header::bytes(packet)) else { return false };
    let is_later = ip.fragment_offset() > 0;
    let (header_len, protocol) = (ip.header_len(), ip.protocol());
    let is_left = ip_header::needs_checksum(packet, header_len);
    let Ok(mut ip) = Ipv4::new(ip_header::bytes_mut(packet)) else { return false };
    let old = if end == PacketEnd::Source { ip.src() } else { ip.dst() };
    let change = AddressRewrite { end, old: &old.octets(), new: &new.octets(), port, is_left };
    if !is_later && !change.rewrite_upper(protocol, ip.payload_mut()) {
        return false;
    }
    ip.set_checksum(checksum::update_u32(ip.checksum(), old.to_bits(), new.to_bits()));
    match end {
        PacketEnd::Source => ip.set_src(new),
        PacketEnd::Destination => ip.set_dst(new),
    }
    true
}

fn translate_ipv6(packet: &mut Packet, end: PacketEnd, new: Ipv6Addr, port: Option<u16>) -> bool {
    let Ok(headers) = Ip6Headers::parse_packet(ip_header::bytes(packet)) else { return false };
    let (offset, protocol, is_later) = (headers.offset, headers.protocol, headers.is_later_fragment());
    let is_left = ip_header::needs_checksum(packet, offset);
    let Ok(mut ip) = Ipv6::new(ip_header::bytes_mut(packet)) else { return false };
    let old = if end == PacketEnd::Source { ip.src() } else { ip.dst() };
    let change = AddressRewrite { end, old: &old.octets(), new: &new.octets(), port, is_left };
    let Some(upper) = ip.payload_mut().get_mut(offset - Ipv6::<&[u8]>::LEN..) else { return false };
    if !is_later && !change.rewrite_upper(protocol, upper) {
        return false;
    }
    match end {
        PacketEnd::Source => ip.set_src(new),
        PacketEnd::Destination => ip.set_dst(new),
    }
    true
}

/// The change to make: an address that is in the IP header, and perhaps a port.
#[derive(Clone, Copy)]
struct AddressRewrite<'a> {
    end: PacketEnd,
    old: &'a [u8],
    new: &'a [u8],
    port: Option<u16>,
    /// The checksum is still to be computed: its field holds the sum of the pseudo-header, which
    /// covers only the addresses.
    is_left: bool,
}

impl AddressRewrite<'_> {
    /// Rewrites the data after the IP header; returns whether that was possible.
    #[inline]
    fn rewrite_upper(&self, protocol: IpProtocol, bytes: &mut [u8]) -> bool {
        match protocol {
            IpProtocol::TCP | IpProtocol::UDP => self.rewrite_segment(protocol, bytes),
            IpProtocol::ICMP => {
                QuotedHeader::of_message(bytes).is_some_and(|about| self.rewrite_error(&about, false, bytes))
            }
            IpProtocol::ICMPV6 => {
                QuotedHeader::of_message6(bytes).is_some_and(|about| self.rewrite_error(&about, true, bytes))
            }
            _ => false,
        }
    }

    /// The words of the address, old and new.
    #[inline]
    fn address_words(&self) -> impl Iterator<Item = (u16, u16)> {
        read_words(self.old).zip(read_words(self.new))
    }

    #[inline]
    fn rewrite_segment(&self, protocol: IpProtocol, bytes: &mut [u8]) -> bool {
        let at = checksum_at(protocol);
        if bytes.len() < at + 2 {
            return false;
        }
        let sum = read_word(bytes, at);
        // The sum of a pseudo-header is not complemented.
        let flip = if self.is_left { 0xffff } else { 0 };
        let updated = |sum, (old, new)| checksum::update(sum, old, new);
        let mut new = self.address_words().fold(sum ^ flip, updated) ^ flip;
        if let Some(port) = self.port {
            let old = replace_word(bytes, if self.end == PacketEnd::Source { 0 } else { 2 }, port);
            new = if self.is_left { new } else { updated(new, (old, port)) };
        }
        replace_word(bytes, at, if self.is_left { new } else { as_sent(protocol, sum, new) });
        true
    }

    /// Rewrites an error about a packet whose other end is rewritten too.
    #[cold]
    fn rewrite_error(&self, about: &QuotedHeader, is_v6: bool, message: &mut [u8]) -> bool {
        let (sum, quoted) = (read_word(message, ERROR_CHECKSUM), &mut message[HEAD..]);
        let mut head = QuotedHead { bytes: quoted, about, is_v6, sum };
        self.rewrite_quoted(&mut head);
        // ICMPv6 has a pseudo-header.
        let addresses = || self.address_words().filter(|_| is_v6);
        let updated = |sum, (old, new)| checksum::update(sum, old, new);
        let sum = match self.is_left {
            true => !addresses().fold(!sum, updated),
            false => addresses().fold(head.sum, updated),
        };
        replace_word(message, ERROR_CHECKSUM, sum);
        true
    }

    fn rewrite_quoted(&self, head: &mut QuotedHead<'_>) {
        let is_source = self.end == PacketEnd::Destination;
        let first = if head.is_v6 { 8 } else { 12 };
        let at = first + if is_source { 0 } else { self.new.len() };
        for (n, new) in read_words(self.new).enumerate() {
            let old = head.set_word(at + 2 * n, new);
            if !head.is_v6 {
                head.correct_checksum(IPV4_CHECKSUM, old, new);
            }
            head.correct_upper(old, new);
        }
        if let Some(port) = self.port {
            let old = head.set_word(head.about.upper + if is_source { 0 } else { 2 }, port);
            head.correct_upper(old, port);
        }
    }
}

/// The head of a packet in an error, and the error's checksum.
struct QuotedHead<'a> {
    bytes: &'a mut [u8],
    about: &'a QuotedHeader,
    is_v6: bool,
    sum: u16,
}

impl QuotedHead<'_> {
    /// Sets a word; returns the one before.
    fn set_word(&mut self, at: usize, new: u16) -> u16 {
        let old = replace_word(self.bytes, at, new);
        self.sum = checksum::update(self.sum, old, new);
        old
    }

    /// Corrects a checksum after a change of what it covers.
    fn correct_checksum(&mut self, at: usize, old: u16, new: u16) {
        let sum = checksum::update(read_word(self.bytes, at), old, new);
        self.set_word(at, sum);
    }

    /// Corrects that of TCP or UDP, if it is quoted.
    fn correct_upper(&mut self, old: u16, new: u16) {
        let QuotedHeader { protocol, upper, end, .. } = *self.about;
        let at = upper + checksum_at(protocol);
        if matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) && at + 2 <= end {
            let before = read_word(self.bytes, at);
            self.set_word(at, as_sent(protocol, before, checksum::update(before, old, new)));
        }
    }
}

/// Where the checksum of an ICMP error is, and that of an IPv4 header.
const ERROR_CHECKSUM: usize = 2;
const IPV4_CHECKSUM: usize = 10;

/// Where the checksum of UDP or TCP is.
#[inline]
fn checksum_at(protocol: IpProtocol) -> usize {
    if protocol == IpProtocol::UDP { 6 } else { 16 }
}

/// A checksum after an update: an absent UDP checksum stays absent, and no other becomes absent.
#[inline]
fn as_sent(protocol: IpProtocol, before: u16, after: u16) -> u16 {
    match (protocol, before) {
        (IpProtocol::UDP, 0) => 0,
        (IpProtocol::UDP, _) => checksum::never_zero(after),
        _ => after,
    }
}

#[inline]
fn read_words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|word| u16::from_be_bytes(*word))
}

#[inline]
fn read_word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Replaces a word, and returns the old one.
#[inline]
fn replace_word(bytes: &mut [u8], at: usize, new: u16) -> u16 {
    let old = read_word(bytes, at);
    bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    old
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::tests::{answer, answer6, too_long, too_long6};
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, Ip6, ip4, ip6};

    /// The result for a packet; None if it is unchanged.
    fn translated(bytes: Vec<u8>, end: PacketEnd, to: &str) -> Option<Vec<u8>> {
        let bench =
            Bench::setup(&crate::flow_balancer::CLASS, "SERVICE 192.0.2.1").outputs(2).build().unwrap();
        let mut packet = bench.packet(&bytes);
        let to: std::net::SocketAddr = to.parse().unwrap();
        let is_done = translate_packet(&mut packet, end, to.ip(), Some(to.port()));
        assert!(is_done || packet.data() == bytes);
        is_done.then(|| packet.data().to_vec())
    }

    const MEMBER: &str = "10.0.0.1:8080";
    const MEMBER6: &str = "[2001:db8:2::a]:8080";
    fn from_member(client: u16) -> Ip4 {
        answer(client).src("10.0.0.1").tcp(8080, client)
    }
    fn from_member6(client: u16) -> Ip6 {
        answer6(client).src("2001:db8:2::a").tcp(8080, client)
    }

    #[test]
    fn an_error_about_an_answer_goes_to_the_member_as_if_it_were_about_the_members_packet() {
        // Half a checksum can't be updated, and stays unchanged.
        for length in (24..=from_member(5).bytes().len()).filter(|length| *length != 37) {
            let sent =
                translated(too_long(&answer(5).bytes()[..length]).bytes(), PacketEnd::Destination, MEMBER);
            let expected = too_long(&from_member(5).bytes()[..length]).dst("10.0.0.1");
            assert_eq!(sent, Some(expected.bytes()), "{length}");
        }
        for length in (44..=from_member6(5).bytes().len()).filter(|length| *length != 57) {
            let sent =
                translated(too_long6(&answer6(5).bytes()[..length]).bytes(), PacketEnd::Destination, MEMBER6);
            let expected = too_long6(&from_member6(5).bytes()[..length]).dst("2001:db8:2::a");
            assert_eq!(sent, Some(expected.bytes()), "{length}");
        }
    }

    #[test]
    fn an_error_of_a_member_goes_to_the_client_as_if_it_were_the_services_about_the_clients_packet() {
        let error = |from: &str, about: Ip4| {
            let icmp =
                ip4().src(from).dst("198.51.100.7").icmp(artery_wire::IcmpType::UNREACHABLE, 3, [0; 4]);
            icmp.payload(&about.bytes()[..28]).bytes()
        };
        let about = |to: &str, port| ip4().src("198.51.100.7").dst(to).udp(5, port).payload([3; 10]);
        let expected = error("192.0.2.1", about("192.0.2.1", 80));
        for from in ["10.0.0.1", "10.0.0.254"] {
            let sent = translated(error(from, about("10.0.0.1", 8080)), PacketEnd::Source, "192.0.2.1:80");
            assert_eq!(sent.as_ref(), Some(&expected), "{from}");
        }
    }

    #[test]
    fn a_quoted_datagram_without_checksum_stays_without_one() {
        let without = |mut bytes: Vec<u8>| {
            bytes[26..28].fill(0);
            bytes
        };
        let answer = |from: &str, port| without(answer(5).src(from).udp(port, 5).bytes());
        let sent = translated(too_long(answer("192.0.2.1", 80)).bytes(), PacketEnd::Destination, MEMBER);
        assert_eq!(sent, Some(too_long(answer("10.0.0.1", 8080)).dst("10.0.0.1").bytes()));
    }

    #[test]
    fn what_was_wrong_stays_wrong() {
        let mut bytes = too_long(answer(5).bytes()).bytes();
        let last = bytes.len() - 1;
        bytes[last] ^= 0xff;
        let sent = translated(bytes, PacketEnd::Destination, MEMBER).unwrap();
        let ip = Ipv4::new(&sent[..]).unwrap();
        assert!(ip.checksum_is_valid() && !artery_wire::Icmp::new(ip.payload()).unwrap().checksum_is_valid());
    }

    #[test]
    fn behind_extension_headers_ports_are_found_too() {
        let packet = |to: &str, port| {
            let ip = ip6().src("2001:db8:7::7").dst(to).extension(60, [1, 4, 0, 0, 0, 0]);
            ip.udp(5, port).payload([1; 9]).bytes()
        };
        let sent = translated(packet("2001:db8::1", 80), PacketEnd::Destination, MEMBER6);
        assert_eq!(sent, Some(packet("2001:db8:2::a", 8080)));
    }

    #[test]
    fn the_first_fragment_has_ports_and_checksum_for_all_and_later_ones_have_the_address_alone() {
        // As if a datagram with this checksum had been cut.
        let whole = |to: &str, port| ip4().src("198.51.100.7").dst(to).udp(5, port).payload([9; 64]).bytes();
        let part = |to: &str, port, (first, last): (usize, usize)| {
            let upper = whole(to, port)[20 + first..20 + last].to_vec();
            ip4().src("198.51.100.7").dst(to).id(7).fragment(first, last < 72).raw(17, upper).bytes()
        };
        for range in [(0, 24), (24, 48), (48, 72)] {
            let sent = translated(part("192.0.2.1", 80, range), PacketEnd::Destination, MEMBER);
            assert_eq!(sent, Some(part("10.0.0.1", 8080, range)), "{range:?}");
        }
        let later =
            |to: &str| ip6().src("2001:db8:7::7").dst(to).fragment(64, false, 7).raw(17, [4; 20]).bytes();
        let sent = translated(later("2001:db8::1"), PacketEnd::Destination, MEMBER6);
        assert_eq!(sent, Some(later("2001:db8:2::a")));
    }

    #[test]
    fn what_can_not_be_translated_stays_as_it_is_at_any_length() {
        let behind =
            ip6().src("2001:db8::1").dst("2001:db8:7::7").extension(60, [1, 4, 0, 0, 0, 0]).udp(80, 5);
        let samples = [
            too_long(answer(5).bytes()).bytes(),
            too_long6(answer6(5).bytes()).bytes(),
            too_long6(behind.bytes()).bytes(),
            behind.bytes(),
            answer(5).bytes(),
            answer(5).fragment(0, true).bytes(),
        ];
        for whole in samples {
            for length in 0..whole.len() {
                for (end, to) in [(PacketEnd::Source, MEMBER), (PacketEnd::Destination, MEMBER6)] {
                    let sent = translated(whole[..length].to_vec(), end, to);
                    assert!(sent.is_none_or(|sent| sent.len() == length));
                }
            }
        }
        assert_eq!(translated(ip4().icmp_echo(1, 2).bytes(), PacketEnd::Source, MEMBER), None);
        assert_eq!(translated(answer(5).bytes(), PacketEnd::Source, MEMBER6), None);
    }
}
