//! The checks of veb(4) on an IP header before its packet filter: packets that no host would accept are
//! dropped, whatever the rules.
use artery_filter::dissect::FilterDropReason;
use artery_wire::checksum::is_ipv4_header_valid;
use artery_wire::{Ipv4, Ipv6, Malformed};
use std::net::Ipv6Addr;

/// Bytes of a header of IPv4 without options.
const HEADER4: usize = 20;

/// Why a packet is dropped; None where its header is as it should be (RFC 1122 section 3.2.1,
/// RFC 4291 section 2).
pub(super) fn header_fault(packet: &[u8]) -> Option<FilterDropReason> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4_header_fault(packet),
        Some(6) => ipv6_header_fault(packet),
        _ => Some(FilterDropReason::Short),
    }
}

/// Whether the checksum of an IPv4 header without options is valid. Any other header
/// is left to [`header_fault`].
#[inline(always)]
pub(super) fn has_good_checksum(packet: &[u8]) -> bool {
    let header: Option<&[u8; HEADER4]> = packet.first_chunk();
    header.is_none_or(|header| header[0] != 0x45 || is_ipv4_header_valid(header))
}

fn ipv4_header_fault(packet: &[u8]) -> Option<FilterDropReason> {
    let header = match Ipv4::validate(packet) {
        Ok(header) => header,
        Err(Malformed::Checksum) => return Some(FilterDropReason::ProtocolChecksum),
        Err(_) => return Some(FilterDropReason::Short),
    };
    let (source, destination) = (header.src(), header.dst());
    let is_wrong = source.is_loopback() || destination.is_loopback() || source.is_multicast();
    is_wrong.then_some(FilterDropReason::Normalize)
}

fn ipv6_header_fault(packet: &[u8]) -> Option<FilterDropReason> {
    let Ok(header) = Ipv6::new(packet) else { return Some(FilterDropReason::Short) };
    let (source, destination) = (header.src(), header.dst());
    let is_of_host = |address: Ipv6Addr| address.is_loopback() || address.to_ipv4_mapped().is_some();
    // Scope 1 does not leave its interface.
    let is_of_interface = |address: Ipv6Addr| address.is_multicast() && address.octets()[1] & 0xf == 1;
    let is_wrong = source.is_multicast()
        || destination.is_unspecified()
        || [source, destination].into_iter().any(is_of_host)
        || is_of_interface(destination);
    is_wrong.then_some(FilterDropReason::Normalize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{ip4, ip6};

    #[test]
    fn headers_that_no_host_takes_are_known() {
        let four = |source: &str, destination: &str| ip4().src(source).dst(destination).udp(1, 2).bytes();
        assert_eq!(header_fault(&four("10.0.0.1", "10.0.0.2")), None);
        assert_eq!(header_fault(&four("10.0.0.1", "224.0.0.251")), None);
        for (source, destination) in
            [("127.0.0.1", "10.0.0.2"), ("10.0.0.1", "127.9.9.9"), ("224.0.0.1", "10.0.0.2")]
        {
            let found = header_fault(&four(source, destination));
            assert_eq!(found, Some(FilterDropReason::Normalize), "{source} {destination}");
        }
        let mut wrong = four("10.0.0.1", "10.0.0.2");
        wrong[8] ^= 1;
        assert_eq!(header_fault(&wrong), Some(FilterDropReason::ProtocolChecksum));
        assert!(!has_good_checksum(&wrong) && has_good_checksum(&four("10.0.0.1", "10.0.0.2")));
        let short = four("10.0.0.1", "10.0.0.2");
        assert_eq!(header_fault(&short[..short.len() - 1]), Some(FilterDropReason::Short));

        let six = |source: &str, destination: &str| ip6().src(source).dst(destination).udp(1, 2).bytes();
        assert_eq!(header_fault(&six("2001:db8::1", "2001:db8::2")), None);
        assert_eq!(header_fault(&six("::", "ff02::1")), None);
        for (source, destination) in [
            ("ff02::1", "2001:db8::2"),
            ("2001:db8::1", "::"),
            ("::1", "2001:db8::2"),
            ("2001:db8::1", "::1"),
            ("::ffff:10.0.0.1", "2001:db8::2"),
            ("2001:db8::1", "ff01::1"),
        ] {
            let found = header_fault(&six(source, destination));
            assert_eq!(found, Some(FilterDropReason::Normalize), "{source} {destination}");
        }
    }

    #[test]
    fn whatever_bytes_there_are_nothing_panics() {
        let whole = ip4().udp(1, 2).bytes();
        (0..whole.len()).for_each(|length| assert!(header_fault(&whole[..length]).is_some()));
        assert!(header_fault(&[]).is_some() && has_good_checksum(&[]) && has_good_checksum(&[0x45; 3]));
    }
}
