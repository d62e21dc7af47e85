//! The Internet checksum (RFC 1071): sums, updates and pseudo-headers.
//!
//! A *sum* is the 16-bit ones' complement sum in the order of the wire; a *checksum* is its complement. Where
//! parts are summed apart, each but the last must have an even length.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::IpProtocol;

/// Returns the checksum of `bytes`, to be stored in their zeroed checksum field.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Says whether the sum of a header (and what it covers) with its checksum is that of an intact one.
#[inline]
pub fn is_valid(sum: u16) -> bool {
    sum == 0xffff
}

/// Returns the sum of `bytes`; an uneven length is padded with a zero byte.
///
/// Eight bytes are added at once, in the machine's byte order: the sum does not depend on it, save for the
/// order of its own two bytes (RFC 1071 section 2 B).
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    let mut lanes = [0_u64; 4]; // four chains of carries instead of one
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = add_with_carry(*lane, u64::from_ne_bytes(*word));
        }
    }
    let total = lanes.into_iter().fold(0, add_with_carry);
    u16::from_be(fold(add_tail(total, rest)))
}

/// Returns the sum of an IPv4 header without options: [`sum`], without loops.
#[inline]
pub fn ipv4_header_sum(header: &[u8; 20]) -> u16 {
    u16::from_be(fold(ipv4_header_total(header)))
}

/// Returns whether the checksum of an IPv4 header without options is right: [`is_valid`] of its sum, in fewer
/// steps. Always inlined: the call cost a nanosecond a packet.
#[inline(always)]
pub fn is_ipv4_header_valid(header: &[u8; 20]) -> bool {
    is_total_valid(ipv4_header_total(header))
}

/// Returns whether something with its checksum is right: `total` is the sum of its words in the
/// machine's order, not folded, which may be of any even length as long as carries out of 64 bits
/// are added (see [`add_with_carry`]).
#[inline(always)]
pub fn is_total_valid(total: u64) -> bool {
    // A sum is right if it is a positive multiple of 65535. A number is one if it is a small number (the
    // quotient) after multiplication by the inverse of 65535 modulo 2^64, and large if not.
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const _: () = assert!(INVERSE.wrapping_mul(65535) == 1);
    let quotient = total.wrapping_mul(INVERSE);
    quotient.wrapping_sub(1) < u64::MAX / 65535
}

/// The sum of a header's words, not folded.
#[inline(always)]
fn ipv4_header_total(header: &[u8; 20]) -> u64 {
    let (words, _) = header.as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

/// Returns the ones' complement sum of two sums.
#[inline]
pub fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// Returns the 16-bit ones' complement sum of the four parts of `total`.
#[inline]
pub fn fold(total: u64) -> u16 {
    let total = (total >> 32) + (total & 0xffff_ffff);
    let total = (total >> 32) + (total & 0xffff_ffff); // below 2^32
    let total = (total >> 16) + (total & 0xffff);
    let total = (total >> 16) + (total & 0xffff); // below 2^16
    total as u16
}

/// Returns `checksum` as it must be once a 16-bit field that it covers goes from `old` to `new`
/// (RFC 1624 equation 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// Returns `checksum` as it must be once a 32-bit field, such as an address, goes from `old` to `new`.
#[inline]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let high = update(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update(high, old as u16, new as u16)
}

/// Returns the sum of the pseudo-header that TCP and UDP prepend on IPv4 (RFC 9293 section 3.1).
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, length: u16) -> u16 {
    let addresses = u64::from(src.to_bits()) + u64::from(dst.to_bits());
    fold(addresses + u64::from(protocol.0) + u64::from(length))
}

/// Returns the sum of the pseudo-header that upper layers prepend on IPv6 (RFC 8200 section 8.1).
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, length: u32) -> u16 {
    let addresses = add(sum(&src.octets()), sum(&dst.octets()));
    add(addresses, fold(u64::from(protocol.0) + u64::from(length)))
}

/// Returns a checksum as UDP sends it: 0 would say that there is none (RFC 768).
#[inline]
pub fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Adds words to a sum that is not folded.
#[inline(always)]
pub fn add_with_carry(total: u64, word: u64) -> u64 {
    let (sum, carry) = total.overflowing_add(word);
    sum + u64::from(carry)
}

/// Adds fewer than 32 bytes that begin at an even place.
#[inline(always)]
fn add_tail(mut total: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        total = add_with_carry(total, u64::from_ne_bytes(*word));
    }
    let (halves, rest) = rest.as_chunks::<2>(); // at most three, and perhaps a byte
    for half in halves {
        total = add_with_carry(total, u64::from(u16::from_ne_bytes(*half)));
    }
    match rest {
        [last] => add_with_carry(total, u64::from(u16::from_ne_bytes([*last, 0]))),
        _ => total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sum as RFC 1071 first states it: 16 bits at a time, carries folded in.
    fn slow_sum(bytes: &[u8]) -> u16 {
        let mut total = 0_u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total >> 16) + (total & 0xffff);
        }
        total as u16
    }

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_comes_out() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_header_of_zeros_is_not_valid_and_one_of_ones_is() {
        assert!(!is_ipv4_header_valid(&[0; 20]));
        assert!(is_ipv4_header_valid(&[0xff; 20]));
    }

    #[test]
    fn carries_out_of_every_word_are_kept() {
        for len in 0..200 {
            assert_eq!(sum(&vec![0xff; len]), slow_sum(&vec![0xff; len]), "{len}");
        }
    }

    proptest! {
        #[test]
        fn a_header_is_valid_by_its_quotient_if_it_is_by_its_sum(mut header: [u8; 20], correct: bool) {
            if correct {
                header[10..12].fill(0);
                let sum = !slow_sum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            prop_assert_eq!(is_ipv4_header_valid(&header), is_valid(slow_sum(&header)));
            prop_assert!(!correct || is_ipv4_header_valid(&header));
        }

        #[test]
        fn every_length_and_alignment_gives_the_slow_sum(bytes in prop::collection::vec(any::<u8>(), 160)) {
            for from in 0..16 {
                for to in from..bytes.len() {
                    prop_assert_eq!(sum(&bytes[from..to]), slow_sum(&bytes[from..to]), "{}..{}", from, to);
                }
            }
        }

        #[test]
        fn long_slices_give_the_slow_sum(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            prop_assert_eq!(sum(&bytes), slow_sum(&bytes));
            prop_assert_eq!(checksum(&bytes), !slow_sum(&bytes));
        }

        #[test]
        fn a_plain_header_gives_the_slow_sum(header: [u8; 20]) {
            prop_assert_eq!(ipv4_header_sum(&header), slow_sum(&header));
        }

        #[test]
        fn parts_of_even_length_add_up(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            cut in 0_usize..50,
        ) {
            let (one, other) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            prop_assert_eq!(add(sum(one), sum(other)), slow_sum(&bytes));
        }

        /// Zero apart, whose two forms only a sum over more than zeroes can tell: the field at 0
        /// stays as it is.
        #[test]
        fn an_update_is_a_computation_anew(
            mut bytes in prop::collection::vec(any::<u8>(), 12..40),
            new: u32,
            first in 1_u8..,
        ) {
            bytes[0] = first;
            let before = checksum(&bytes);
            let old = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
            bytes[4..8].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_u32(before, old, new), checksum(&bytes));
            let old = u16::from_be_bytes(bytes[10..12].try_into().unwrap());
            let before = checksum(&bytes);
            bytes[10..12].copy_from_slice(&(new as u16).to_be_bytes());
            prop_assert_eq!(update(before, old, new as u16), checksum(&bytes));
        }

        #[test]
        fn a_pseudo_header_sums_like_its_bytes(src: [u8; 4], dst: [u8; 4], protocol: u8, length: u16) {
            let mut bytes = [&src[..], &dst[..], &[0, protocol]].concat();
            bytes.extend(length.to_be_bytes());
            prop_assert_eq!(
                pseudo_v4(src.into(), dst.into(), IpProtocol(protocol), length),
                slow_sum(&bytes)
            );
        }

        #[test]
        fn an_ipv6_pseudo_header_sums_like_its_bytes(
            src: [u8; 16],
            dst: [u8; 16],
            protocol: u8,
            length: u32,
        ) {
            let mut bytes = [&src[..], &dst[..]].concat();
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
            prop_assert_eq!(
                pseudo_v6(src.into(), dst.into(), IpProtocol(protocol), length),
                slow_sum(&bytes)
            );
        }

        #[test]
        fn folding_is_summing_the_four_parts(total: u64) {
            prop_assert_eq!(fold(total), slow_sum(&total.to_be_bytes()));
        }
    }

    #[test]
    fn udp_never_sends_zero() {
        assert_eq!((never_zero(0), never_zero(1), never_zero(0xffff)), (0xffff, 1, 0xffff));
    }
}
