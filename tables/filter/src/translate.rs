//! Rewrites addresses and ports of packets and adjusts checksums; [`pool`] chooses the new ones.
use crate::dissect::{Dissected, FilterDropReason, dissect_quoted, has_identifier, read_u16};
use crate::facts::Family;
use artery_wire::{Icmp6, IpProtocol, Ipv6, checksum};
use std::ops::Range;

pub mod pool;

/// Source and destination as a packet shall have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiveTuple {
    /// Addresses of source and destination, as numbers.
    pub addresses: [u128; 2],
    /// Ports; of ICMP queries as [`Dissected`] has them.
    pub ports: [u16; 2],
}

/// Gives a packet other ends. `seen` is what it was, and is changed with it.
pub fn rewrite_ends(bytes: &mut [u8], seen: &mut Dissected, to: FiveTuple) {
    let upper = seen.upper as usize;
    let sum_at = if seen.is_later_fragment { None } else { checksum_at(seen.protocol).map(|at| upper + at) };
    let mut sum = Sum::read_at(bytes, sum_at.filter(|at| at + 2 <= seen.end as usize), seen.protocol);
    let covers_addresses = seen.protocol != IpProtocol::ICMP;
    let mut header = Sum::read_at(bytes, (seen.family == Family::Inet).then_some(10), IpProtocol::IPIP);
    for end in [0, 1] {
        if to.addresses[end] != seen.addresses[end] {
            let place = address_place(seen.family, end);
            header.update_bytes(&bytes[place.clone()], to.addresses[end], place.len());
            if covers_addresses {
                sum.update_bytes(&bytes[place.clone()], to.addresses[end], place.len());
            }
            let length = place.len();
            bytes[place].copy_from_slice(&to.addresses[end].to_be_bytes()[16 - length..]);
        }
        if to.ports[end] != seen.ports[end]
            && let Some(at) = port_at(seen, end)
        {
            sum.update_bytes(&bytes[at..at + 2], to.ports[end].into(), 2);
            bytes[at..at + 2].copy_from_slice(&to.ports[end].to_be_bytes());
        }
    }
    header.write_to(bytes);
    sum.write_to(bytes);
    (seen.addresses, seen.ports) = (to.addresses, to.ports);
}

fn address_place(family: Family, end: usize) -> Range<usize> {
    let (at, length) = match family {
        Family::Inet => (12, 4),
        Family::Inet6 => (8, 16),
    };
    at + end * length..at + (end + 1) * length
}

/// Where an end's port stands: of ICMP queries the identifier, at the end that it belongs to.
fn port_at(seen: &Dissected, end: usize) -> Option<usize> {
    let upper = seen.upper as usize;
    let at = match seen.protocol {
        _ if seen.is_later_fragment => return None,
        IpProtocol::ICMP | IpProtocol::ICMPV6 => {
            let is_its = has_identifier(seen.protocol, seen.icmp.0) && seen.icmp_end() == end;
            is_its.then_some(upper + 4)?
        }
        protocol if protocol.has_ports() => upper + 2 * end,
        _ => return None,
    };
    (at + 2 <= seen.end as usize).then_some(at)
}

/// Where the checksum of a header behind IP's stands. That of SCTP covers no address and can't be adjusted:
/// ports of SCTP stay.
fn checksum_at(protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP => Some(6),
        IpProtocol::ICMP | IpProtocol::ICMPV6 => Some(2),
        _ => None,
    }
}

/// A checksum that follows what it covers.
pub(crate) struct Sum {
    at: Option<usize>,
    sum: u16,
    is_udp: bool,
}

impl Sum {
    /// The checksum at a place, if there is one; that of UDP may be left out.
    pub(crate) fn read_at(bytes: &[u8], at: Option<usize>, protocol: IpProtocol) -> Sum {
        let sum = at.map_or(0, |at| read_u16(bytes, at));
        let is_udp = protocol == IpProtocol::UDP;
        Sum { at: at.filter(|_| !(is_udp && sum == 0)), sum, is_udp }
    }

    /// Adjusts the checksum for bytes, at an even offset, that become the lowest of a number.
    pub(crate) fn update_bytes(&mut self, old: &[u8], new: u128, length: usize) {
        let new = &new.to_be_bytes()[16 - length..];
        for (old, new) in old.as_chunks::<2>().0.iter().zip(new.as_chunks::<2>().0) {
            self.sum = checksum::update(self.sum, u16::from_be_bytes(*old), u16::from_be_bytes(*new));
        }
    }

    pub(crate) fn write_to(self, bytes: &mut [u8]) {
        if let Some(at) = self.at {
            let sum = if self.is_udp { checksum::never_zero(self.sum) } else { self.sum };
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Adds to a field of 32 bits of the header of TCP: sequence numbers that were moved.
pub(crate) fn set_word(bytes: &mut [u8], seen: &Dissected, at: usize, new: u32) {
    let upper = seen.upper as usize;
    let mut sum = Sum::read_at(bytes, Some(upper + 16), IpProtocol::TCP);
    sum.update_bytes(&bytes[upper + at..upper + at + 4], new.into(), 4);
    bytes[upper + at..upper + at + 4].copy_from_slice(&new.to_be_bytes());
    sum.write_to(bytes);
}

/// Moves the numbers of selective acknowledgments (RFC 2018) down by a difference.
pub(crate) fn move_sack(bytes: &mut [u8], seen: &Dissected, difference: u32) {
    const SACK: u8 = 5;
    let Some(at) = crate::scrub::find_tcp_option(bytes, seen, SACK, 10) else { return };
    let upper = seen.upper as usize;
    let (first, end) = (at + 2, at + usize::from(bytes[at + 1]));
    for edge in (first..end.saturating_sub(3)).step_by(4) {
        let old = crate::dissect::read_u32(bytes, edge);
        let new = old.wrapping_sub(difference).to_be_bytes();
        replace_bytes(bytes, upper, upper + 16, edge, &new);
    }
}

/// Replaces bytes that a checksum covers from `from` on, wherever they begin.
fn replace_bytes(bytes: &mut [u8], from: usize, sum_at: usize, at: usize, new: &[u8]) {
    let mut sum = read_u16(bytes, sum_at);
    for (n, new) in new.iter().enumerate() {
        let shift = if (at + n - from).is_multiple_of(2) { 8 } else { 0 };
        sum = checksum::update(sum, u16::from(bytes[at + n]) << shift, u16::from(*new) << shift);
        bytes[at + n] = *new;
    }
    bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Gives the packet that an error of ICMP quotes other ends, and the error itself where it has one of the old
/// addresses. The checksum of the error, which must be right, is recomputed.
pub fn rewrite_error(bytes: &mut [u8], seen: &mut Dissected, to: FiveTuple) -> Result<(), FilterDropReason> {
    if !icmp_checksum_is_valid(bytes, seen) {
        return Err(FilterDropReason::ProtocolChecksum);
    }
    let (from, end) = (seen.upper as usize + 8, seen.end as usize);
    let mut quoted = dissect_quoted(&bytes[from..end])?;
    let old = quoted.addresses;
    rewrite_ends(&mut bytes[from..end], &mut quoted, to);
    let replaced = |address: u128| match old.iter().position(|old| *old == address) {
        Some(end) => to.addresses[end],
        None => address,
    };
    let outer = FiveTuple { addresses: seen.addresses.map(replaced), ports: seen.ports };
    rewrite_ends(bytes, seen, outer);
    fill_icmp_checksum(bytes, seen);
    Ok(())
}

/// Replaces bytes of the packet that an error of ICMP quotes; the quoted checksums stay as they are.
pub(crate) fn replace_in_error(
    bytes: &mut [u8],
    seen: &Dissected,
    at: usize,
    new: &[u8],
) -> Result<(), FilterDropReason> {
    if !icmp_checksum_is_valid(bytes, seen) {
        return Err(FilterDropReason::ProtocolChecksum);
    }
    bytes.get_mut(at..at + new.len()).ok_or(FilterDropReason::Short)?.copy_from_slice(new);
    fill_icmp_checksum(bytes, seen);
    Ok(())
}

fn icmp_checksum_is_valid(bytes: &[u8], seen: &Dissected) -> bool {
    let message = &bytes[seen.upper as usize..seen.end as usize];
    match (seen.family, Ipv6::new(bytes), Icmp6::new(message)) {
        (Family::Inet6, Ok(ip), Ok(icmp)) => icmp.checksum_is_valid(ip.src(), ip.dst()),
        _ => checksum::is_valid(checksum::sum(message)),
    }
}

fn fill_icmp_checksum(bytes: &mut [u8], seen: &Dissected) {
    let at = seen.upper as usize + 2;
    bytes[at..at + 2].fill(0);
    let message = checksum::sum(&bytes[seen.upper as usize..seen.end as usize]);
    let sum = match (seen.family, Ipv6::new(&*bytes)) {
        (Family::Inet6, Ok(ip)) => {
            let length = seen.end - seen.upper;
            checksum::add(checksum::pseudo_v6(ip.src(), ip.dst(), IpProtocol::ICMPV6, length), message)
        }
        _ => message,
    };
    bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dissect::dissect_packet;
    use artery_wire::build::{Ip4, ip4, ip6};
    use artery_wire::{Icmp6Type, IcmpType};
    use proptest::prelude::*;

    fn ends(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> FiveTuple {
        let number = |address| u128::from(u32::from_be_bytes(address));
        FiveTuple { addresses: [number(source), number(destination)], ports }
    }

    #[track_caller]
    fn expect(mut bytes: Vec<u8>, to: FiveTuple, expected: Vec<u8>) {
        let mut seen = dissect_packet(&bytes).unwrap();
        rewrite_ends(&mut bytes, &mut seen, to);
        assert_eq!(bytes, expected);
        assert_eq!(seen, dissect_packet(&expected).unwrap());
    }

    #[test]
    fn every_protocol_has_its_checksum_adjusted() {
        let (a, b) = ([9, 8, 7, 6], [1, 2, 3, 4]);
        let to = ends(a, b, [777, 888]);
        let expect = |packet: Ip4, to, translated: Ip4| expect(packet.bytes(), to, translated.bytes());
        let out = || ip4().src(a).dst(b);
        expect(ip4().udp(1, 2).payload([5; 7]), to, out().udp(777, 888).payload([5; 7]));
        expect(ip4().tcp(1, 2), to, out().tcp(777, 888));
        expect(ip4().raw(47, [1; 9]), ends(a, b, [0, 0]), out().raw(47, [1; 9]));
        expect(ip4().icmp_echo(7, 8), ends(a, b, [9, 8]), out().icmp_echo(9, 8));
        expect(ip4().icmp_echo_reply(7, 8), ends(a, b, [8, 9]), out().icmp_echo_reply(9, 8));
    }

    #[test]
    fn a_datagram_without_checksum_stays_so() {
        let (mut bytes, mut expected) =
            (ip4().udp(1, 2).bytes(), ip4().src([9, 8, 7, 6]).dst([1, 2, 3, 4]).udp(3, 4).bytes());
        [&mut bytes, &mut expected].into_iter().for_each(|bytes| bytes[26..28].fill(0));
        expect(bytes, ends([9, 8, 7, 6], [1, 2, 3, 4], [3, 4]), expected);
    }

    proptest! {
        #[test]
        fn ipv6_is_rewritten_as_if_it_had_been_built_so(
            a: u128,
            b: u128,
            p: u16,
            q: u16,
            payload: Vec<u8>,
            tcp: bool,
        ) {
            let packet = |packet: artery_wire::build::Ip6, p, q| match tcp {
                true => packet.tcp(p, q).payload(&payload).bytes(),
                false => packet.udp(p, q).payload(&payload).bytes(),
            };
            let expected =
                packet(ip6().src(std::net::Ipv6Addr::from(a)).dst(std::net::Ipv6Addr::from(b)), p, q);
            let mut bytes = packet(ip6(), 1, 2);
            let mut seen = dissect_packet(&bytes).unwrap();
            rewrite_ends(&mut bytes, &mut seen, FiveTuple { addresses: [a, b], ports: [p, q] });
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn an_error_is_translated_with_what_it_quotes() {
        let quoted =
            |source: &str, port| ip4().src(source).dst("7.7.7.7").udp(port, 53).payload([1; 9]).bytes();
        let error = |to: &str, quoted: Vec<u8>| {
            ip4().src("5.5.5.5").dst(to).icmp(IcmpType::UNREACHABLE, 3, [0; 4]).payload(quoted).bytes()
        };
        let mut bytes = error("9.9.9.9", quoted("9.9.9.9", 50_001));
        let mut seen = dissect_packet(&bytes).unwrap();
        let to = ends([10, 0, 0, 1], [7, 7, 7, 7], [1234, 53]);
        rewrite_error(&mut bytes, &mut seen, to).unwrap();
        assert_eq!(bytes, error("10.0.0.1", quoted("10.0.0.1", 1234)));
        bytes[30] ^= 1;
        assert_eq!(rewrite_error(&mut bytes, &mut seen, to), Err(FilterDropReason::ProtocolChecksum));
    }

    #[test]
    fn an_error_of_ipv6_is_translated_with_what_it_quotes() {
        let quoted = |source: &str, port| ip6().src(source).dst("7::7").udp(port, 53).payload([1; 9]).bytes();
        let error = |to: &str, quoted: Vec<u8>| {
            ip6().src("5::5").dst(to).icmp(Icmp6Type::UNREACHABLE, 4, [0; 4]).payload(quoted).bytes()
        };
        let mut bytes = error("9::9", quoted("9::9", 50_001));
        let mut seen = dissect_packet(&bytes).unwrap();
        let addresses = ["10::1", "7::7"].map(|text| crate::dissect::address_to_u128(text.parse().unwrap()));
        rewrite_error(&mut bytes, &mut seen, FiveTuple { addresses, ports: [1234, 53] }).unwrap();
        assert_eq!(bytes, error("10::1", quoted("10::1", 1234)));
    }
}
