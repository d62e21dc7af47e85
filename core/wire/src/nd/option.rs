//! The options of neighbor discovery messages (RFC 4861 section 4.6).

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::bytes::{ether_at, ipv6_at, read_array, u32_at};
use crate::{EtherAddr, Malformed};

pub(super) const SOURCE_LINK: u8 = 1;
pub(super) const TARGET_LINK: u8 = 2;
pub(super) const PREFIX: u8 = 3;
pub(super) const REDIRECTED: u8 = 4;
pub(super) const MTU: u8 = 5;

/// Options are counted in units of 8 bytes.
pub(super) const UNIT: usize = 8;

const PREFIX_UNITS: usize = 4;
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// An option of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdOption<'a> {
    /// The link address of the sender.
    SourceLink(EtherAddr),
    /// The link address of the message's target.
    TargetLink(EtherAddr),
    /// A prefix of the link.
    Prefix(PrefixInformation),
    /// The first bytes of the packet that brought about a redirect, padding included.
    Redirected(&'a [u8]),
    /// The MTU of the link.
    Mtu(u32),
    /// An option of another kind.
    Other {
        /// Option type (RFC 4861 section 4.6).
        kind: u8,
        /// What follows kind and length.
        body: &'a [u8],
    },
}

/// A prefix of a link, and what it may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The lowest address of the prefix.
    pub prefix: Ipv6Addr,
    /// How many bits of it count, as sent: more than 128 make no sense.
    pub len: u8,
    /// Whether its addresses are on the link (L).
    pub on_link: bool,
    /// Whether hosts may make addresses of it (A).
    pub autonomous: bool,
    /// For how long it is valid; none is for ever.
    pub valid: Option<Duration>,
    /// For how long addresses made of it are preferred; none is for ever.
    pub preferred: Option<Duration>,
}

/// Goes over options, each an error once it is malformed: nothing after that one can be found.
///
/// An option of no length, or longer than the message, is malformed, as is one that has not the length that
/// its kind has on Ethernet.
#[derive(Clone, Debug)]
pub struct NdOptions<'a>(&'a [u8]);

impl<'a> NdOptions<'a> {
    /// Goes over the options that `bytes` hold.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> NdOptions<'a> {
        NdOptions(bytes)
    }

    /// Checks that all options are sound.
    pub fn check_all(&self) -> Result<(), Malformed> {
        self.clone().try_for_each(|option| option.map(|_| ()))
    }

    /// Returns the first source link address.
    pub fn source_link(&self) -> Option<EtherAddr> {
        self.clone().flatten().find_map(|option| match option {
            NdOption::SourceLink(address) => Some(address),
            _ => None,
        })
    }

    /// Returns the first target link address.
    pub fn target_link(&self) -> Option<EtherAddr> {
        self.clone().flatten().find_map(|option| match option {
            NdOption::TargetLink(address) => Some(address),
            _ => None,
        })
    }

    fn parse_next(&mut self) -> Result<NdOption<'a>, Malformed> {
        let [kind, units, ..] = *self.0 else { return Err(Malformed::Truncated) };
        let len = usize::from(units) * UNIT;
        if len == 0 {
            return Err(Malformed::Length);
        }
        let (option, rest) = self.0.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.0 = rest;
        parse_option(kind, option)
    }
}

impl<'a> Iterator for NdOptions<'a> {
    type Item = Result<NdOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let option = self.parse_next();
        if option.is_err() {
            self.0 = &[];
        }
        Some(option)
    }
}

/// Reads a whole option of one unit or more.
fn parse_option(kind: u8, option: &[u8]) -> Result<NdOption<'_>, Malformed> {
    let units = option.len() / UNIT;
    Ok(match (kind, units) {
        (SOURCE_LINK, 1) => NdOption::SourceLink(ether_at(option, 2)),
        (TARGET_LINK, 1) => NdOption::TargetLink(ether_at(option, 2)),
        (PREFIX, PREFIX_UNITS) => NdOption::Prefix(PrefixInformation::parse_option(option)),
        (MTU, 1) => NdOption::Mtu(u32_at(option, 4)),
        (REDIRECTED, _) => NdOption::Redirected(&option[UNIT..]),
        (SOURCE_LINK | TARGET_LINK | PREFIX | MTU, _) => return Err(Malformed::Length),
        _ => NdOption::Other { kind, body: &option[2..] },
    })
}

impl PrefixInformation {
    fn parse_option(option: &[u8]) -> PrefixInformation {
        let [len, flags] = read_array(option, 2);
        PrefixInformation {
            prefix: ipv6_at(option, 16),
            len,
            on_link: flags & ON_LINK != 0,
            autonomous: flags & AUTONOMOUS != 0,
            valid: parse_lifetime(u32_at(option, 4)),
            preferred: parse_lifetime(u32_at(option, 8)),
        }
    }
}

/// All ones stand for ever.
fn parse_lifetime(seconds: u32) -> Option<Duration> {
    (seconds != u32::MAX).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xa]);

    fn link(kind: u8) -> Vec<u8> {
        [&[kind, 1][..], &A.0].concat()
    }

    fn all(bytes: &[u8]) -> Vec<Result<NdOption<'_>, Malformed>> {
        NdOptions::new(bytes).collect()
    }

    #[test]
    fn options_are_read_in_order() {
        let mtu = [5, 1, 0, 0, 0, 0, 5, 0xdc];
        let redirected = [[4, 2, 0, 0, 0, 0, 0, 0], [9; 8]].concat();
        let bytes = [link(1), mtu.to_vec(), redirected, vec![14, 1, 1, 2, 3, 4, 5, 6], link(2)].concat();
        let expected = [
            Ok(NdOption::SourceLink(A)),
            Ok(NdOption::Mtu(1500)),
            Ok(NdOption::Redirected(&[9; 8])),
            Ok(NdOption::Other { kind: 14, body: &[1, 2, 3, 4, 5, 6] }),
            Ok(NdOption::TargetLink(A)),
        ];
        assert_eq!(all(&bytes), expected);
        let options = NdOptions::new(&bytes);
        assert_eq!(options.source_link(), Some(A));
        assert_eq!(options.target_link(), Some(A));
        assert_eq!(options.check_all(), Ok(()));
    }

    #[test]
    fn a_prefix_is_read_with_its_lifetimes() {
        let mut bytes = vec![3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let prefix: Ipv6Addr = "2001:db8:1::".parse().unwrap();
        bytes.extend(prefix.octets());
        let valid = Some(Duration::from_secs(3600));
        let expected =
            PrefixInformation { prefix, len: 64, on_link: true, autonomous: true, valid, preferred: None };
        assert_eq!(all(&bytes), [Ok(NdOption::Prefix(expected))]);
    }

    #[test]
    fn an_option_without_length_ends_the_reading() {
        let bytes = [link(1), vec![1, 0, 0, 0, 0, 0, 0, 0], link(2)].concat();
        assert_eq!(all(&bytes), [Ok(NdOption::SourceLink(A)), Err(Malformed::Length)]);
        assert_eq!(NdOptions::new(&bytes).target_link(), None);
    }

    #[test]
    fn an_option_cut_short_is_malformed_at_every_length() {
        for kind in 0..6 {
            let bytes = [&[kind, 4][..], &[0; 30]].concat();
            for len in 1..32 {
                assert_eq!(all(&bytes[..len]), [Err(Malformed::Truncated)], "{kind} {len}");
            }
        }
    }

    #[test]
    fn link_addresses_of_other_lengths_are_malformed() {
        for (kind, units) in [(1, 2), (2, 3), (3, 1), (3, 5), (5, 2)] {
            let mut bytes = vec![0; units * 8];
            bytes[..2].copy_from_slice(&[kind, units as u8]);
            assert_eq!(all(&bytes), [Err(Malformed::Length)], "{kind}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(0_u8..8, 0..200)) {
            let options = all(&bytes);
            prop_assert!(options.len() <= bytes.len() / 8 + 1);
            prop_assert!(options.iter().rev().skip(1).all(Result::is_ok));
            prop_assert_eq!(NdOptions::new(&bytes).check_all().is_ok(), options.iter().all(Result::is_ok));
        }
    }
}
