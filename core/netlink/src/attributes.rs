//! Attributes of netlink: length, type, value, one after the other, each at a multiple of four bytes.
use super::{AF_INET, AF_INET6, Family};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes in front of a value.
const HEADER: usize = 4;
/// The bits of a type that say how its value is written (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const FLAGS: u16 = 0xc000;

/// Goes through attributes; ends where the bytes are no attribute any more.
#[derive(Clone)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes in these bytes.
    pub fn new(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes(bytes)
    }

    /// The attributes after a header of this many bytes; none if the message is shorter.
    pub fn after_header(payload: &'a [u8], header: usize) -> Attributes<'a> {
        Attributes(payload.get(header..).unwrap_or_default())
    }

    /// Whether all of the bytes are attributes.
    pub fn is_whole(mut self) -> bool {
        self.by_ref().for_each(drop);
        self.0.is_empty()
    }

    /// The value of the first attribute of a type.
    pub fn find_value(mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find_map(|(kind, value)| (kind == wanted).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let [a, b, c, d] = *self.0.first_chunk::<HEADER>()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = self.0.get(HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & !FLAGS, value))
    }
}

/// The number in the first bytes of a value, in the order of the machine; 0 where there are too few.
#[inline]
pub(crate) fn read_u32(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// The number in the first two bytes of a value; 0 where there are too few.
#[inline]
pub(crate) fn read_u16(value: &[u8]) -> u16 {
    value.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes))
}

/// The first byte of a value; 0 where there is none.
#[inline]
pub(crate) fn read_u8(value: &[u8]) -> u8 {
    value.first().copied().unwrap_or(0)
}

/// The address of a family in a value.
#[inline]
pub(crate) fn parse_address(family: Family, value: &[u8]) -> Option<IpAddr> {
    Some(match family {
        Family::V4 => Ipv4Addr::from(*value.first_chunk::<4>()?).into(),
        Family::V6 => Ipv6Addr::from(*value.first_chunk::<16>()?).into(),
    })
}

/// The address in a value that begins with its family (struct rtvia).
pub(crate) fn address_with_family(value: &[u8]) -> Option<IpAddr> {
    let (family, rest) = value.split_first_chunk::<2>()?;
    match u16::from_ne_bytes(*family) {
        family if family == AF_INET.into() => parse_address(Family::V4, rest),
        family if family == AF_INET6.into() => parse_address(Family::V6, rest),
        _ => None,
    }
}

/// The text in a value, up to its zero.
pub fn parse_text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}
