//! What `scrub` makes of a packet's header: fields that are known to make trouble are set to harmless values.
use crate::dissect::{Dissected, read_u16};
use crate::facts::Family;
use crate::rule::Scrub;
use artery_wire::{IpProtocol, Ipv4, TcpFlags, checksum};

const DONT_FRAGMENT: u16 = 0x4000;
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_SEGMENT_SIZE: u8 = 2;
const OPTION_SCALE: u8 = 3;

/// Applies `scrub` options to a packet. `id` is a random identification.
pub fn apply(bytes: &mut [u8], seen: &Dissected, scrub: &Scrub, id: u16) {
    match seen.family {
        Family::Inet => scrub_ipv4(bytes, scrub, id),
        Family::Inet6 => scrub_ipv6(bytes, scrub),
    }
    if let Some(most) = scrub.max_mss
        && seen.protocol == IpProtocol::TCP
        && seen.flags.contains(TcpFlags::SYN)
        && !seen.is_later_fragment
    {
        limit_segment_size(bytes, seen, most);
    }
}

fn scrub_ipv4(bytes: &mut [u8], scrub: &Scrub, id: u16) {
    let Ok(mut header) = Ipv4::new(bytes) else { return };
    let was_valid = header.checksum_is_valid();
    if scrub.clears_df {
        header.set_fragment_field(header.fragment_field() & !DONT_FRAGMENT);
    }
    if scrub.randomises_id && !header.is_fragment() {
        header.set_id(id);
    }
    if let Some(least) = scrub.min_ttl {
        header.set_ttl(header.ttl().max(least));
    }
    if let Some(tos) = scrub.tos {
        header.set_tos(tos);
    }
    if was_valid {
        header.fill_checksum();
    }
}

fn scrub_ipv6(bytes: &mut [u8], scrub: &Scrub) {
    if let Some(least) = scrub.min_ttl {
        bytes[7] = bytes[7].max(least);
    }
    if let Some(tos) = scrub.tos {
        set_class(bytes, tos);
    }
}

/// Sets the type of service or traffic class; bits of ECN stay.
pub(crate) fn set_tos(bytes: &mut [u8], family: Family, tos: u8) {
    const ECN: u8 = 3;
    match family {
        Family::Inet => {
            let Ok(mut header) = Ipv4::new(bytes) else { return };
            let (old, new) = (header.tos(), tos & !ECN | header.tos() & ECN);
            header.set_tos(new);
            header.set_checksum(checksum::update(header.checksum(), old.into(), new.into()));
        }
        Family::Inet6 => {
            let old = (read_u16(bytes, 0) >> 4) as u8;
            set_class(bytes, tos & !ECN | old & ECN);
        }
    }
}

fn set_class(bytes: &mut [u8], class: u8) {
    bytes[0] = 0x60 | class >> 4;
    bytes[1] = class << 4 | bytes[1] & 15;
}

/// Lowers the maximum segment size option of a SYN.
fn limit_segment_size(bytes: &mut [u8], seen: &Dissected, most: u16) {
    let upper = seen.upper as usize;
    let Some(at) = find_tcp_option(bytes, seen, OPTION_SEGMENT_SIZE, 4).map(|at| at + 2) else { return };
    let old = read_u16(bytes, at);
    if old <= most {
        return;
    }
    bytes[at..at + 2].copy_from_slice(&most.to_be_bytes());
    // An option may begin at an uneven offset: its bytes then lie in the other halves of two words.
    let (was, is) =
        if (at - upper).is_multiple_of(2) { (old, most) } else { (old.swap_bytes(), most.swap_bytes()) };
    let sum = checksum::update(read_u16(bytes, upper + 16), was, is);
    bytes[upper + 16..upper + 18].copy_from_slice(&sum.to_be_bytes());
}

/// The maximum segment size option of a SYN.
pub(crate) fn segment_size(bytes: &[u8], seen: &Dissected) -> Option<u16> {
    find_tcp_option(bytes, seen, OPTION_SEGMENT_SIZE, 4).map(|at| read_u16(bytes, at + 2))
}

/// The window scale option of a SYN.
pub(crate) fn window_scale(bytes: &[u8], seen: &Dissected) -> Option<u8> {
    find_tcp_option(bytes, seen, OPTION_SCALE, 3).map(|at| bytes[at + 2])
}

/// Where an option of TCP begins that has this length.
pub(crate) fn find_tcp_option(bytes: &[u8], seen: &Dissected, kind: u8, length: usize) -> Option<usize> {
    let upper = seen.upper as usize;
    let end = (upper + usize::from(bytes.get(upper + 12)? >> 4) * 4).min(seen.end as usize);
    let mut at = upper + 20;
    while at < end {
        match bytes[at] {
            OPTION_END => return None,
            OPTION_NOTHING => at += 1,
            found => {
                let own = usize::from(*bytes[..end].get(at + 1)?);
                if own < 2 || at + own > end {
                    return None;
                }
                if found == kind {
                    return (own >= length).then_some(at);
                }
                at += own;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dissect::dissect_packet;
    use artery_wire::build::{ip4, ip6};
    use proptest::prelude::*;

    /// A SYN with options, whose checksum is right.
    fn syn(options: &[u8]) -> Vec<u8> {
        assert!(options.len().is_multiple_of(4));
        let mut bytes = ip4().tcp(1, 2).payload(options).bytes();
        bytes[32] = ((20 + options.len()) / 4 * 16) as u8;
        fill(&mut bytes);
        bytes
    }

    fn fill(bytes: &mut [u8]) {
        bytes[36..38].fill(0);
        let sum = !upper_sum(bytes);
        bytes[36..38].copy_from_slice(&sum.to_be_bytes());
    }

    fn upper_sum(bytes: &[u8]) -> u16 {
        let ip = Ipv4::new(bytes).unwrap();
        let length = (bytes.len() - 20) as u16;
        checksum::add(
            checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), length),
            checksum::sum(&bytes[20..]),
        )
    }

    #[test]
    fn the_segment_size_is_lowered_wherever_it_stands_and_never_raised() {
        for (options, expected) in
            [(vec![2, 4, 5, 180], 1000), (vec![1, 2, 4, 5, 180, 1, 1, 0], 1000), (vec![2, 4, 2, 0], 512)]
        {
            let mut bytes = syn(&options);
            let seen = dissect_packet(&bytes).unwrap();
            apply(&mut bytes, &seen, &Scrub { max_mss: Some(1000), ..Scrub::default() }, 0);
            assert_eq!(segment_size(&bytes, &seen), Some(expected));
            assert!(checksum::is_valid(upper_sum(&bytes)));
        }
    }

    #[test]
    fn fields_are_set_as_asked_and_the_checksum_stays_right() {
        let mut bytes = ip4().id(5).ttl(3).dont_fragment().udp(1, 2).bytes();
        let seen = dissect_packet(&bytes).unwrap();
        let scrub = Scrub {
            clears_df: true,
            randomises_id: true,
            min_ttl: Some(9),
            tos: Some(16),
            ..Scrub::default()
        };
        apply(&mut bytes, &seen, &scrub, 77);
        assert_eq!(bytes, ip4().id(77).ttl(9).tos(16).udp(1, 2).bytes());
        let mut bytes = ip6().hop_limit(3).flow_label(0xabcde).udp(1, 2).bytes();
        let seen = dissect_packet(&bytes).unwrap();
        apply(&mut bytes, &seen, &scrub, 77);
        assert_eq!(bytes, ip6().hop_limit(9).flow_label(0xabcde).traffic_class(16).udp(1, 2).bytes());
    }

    #[test]
    fn service_is_set_and_congestion_bits_stay() {
        let mut bytes = ip4().tos(0x53).udp(1, 2).bytes();
        set_tos(&mut bytes, Family::Inet, 0xb8);
        assert_eq!(bytes, ip4().tos(0xbb).udp(1, 2).bytes());
        let mut bytes = ip6().traffic_class(0x53).udp(1, 2).bytes();
        set_tos(&mut bytes, Family::Inet6, 0xb8);
        assert_eq!(bytes, ip6().traffic_class(0xbb).udp(1, 2).bytes());
    }

    proptest! {
        #[test]
        fn any_options_are_survived(options in prop::collection::vec(any::<u8>(), 40)) {
            let mut bytes = syn(&options);
            let seen = dissect_packet(&bytes).unwrap();
            let had = segment_size(&bytes, &seen);
            apply(&mut bytes, &seen, &Scrub { max_mss: Some(500), ..Scrub::default() }, 0);
            prop_assert_eq!(segment_size(&bytes, &seen), had.map(|size| size.min(500)));
            prop_assert!(checksum::is_valid(upper_sum(&bytes)));
            let _ = window_scale(&bytes, &seen);
        }
    }
}
