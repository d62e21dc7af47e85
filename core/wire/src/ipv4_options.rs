//! The options of IPv4 headers (RFC 791 section 3.1, RFC 1812 section 5.2.4).

use std::net::Ipv4Addr;

use crate::bytes::ipv4_at;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Places within an option.
const LENGTH: usize = 1;
const POINTER: usize = 2;
const ADDRESSES: usize = 3;

const MIN_HEADER: usize = 20;
const COPIED: u8 = 0x80;
const ADDRESS: usize = 4;

/// Goes over the options of a header, each an error once it is malformed; no-operations are left out, and
/// what follows the end of the list is not looked at.
#[derive(Clone, Debug)]
pub struct Ipv4Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// An option with a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Option type: copied flag, class and number.
    pub kind: u8,
    /// Where in the header the option begins.
    pub at: usize,
    /// The option, its kind and length first: two bytes or more.
    pub bytes: &'a [u8],
}

/// An option has a length that cannot be its own, which stands at this place of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4OptionFault {
    /// What a parameter problem points to.
    pub pointer: u8,
}

/// A source route whose pointer makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRoute<'a> {
    option: Ipv4Option<'a>,
    pointer: usize,
}

impl<'a> Ipv4Options<'a> {
    /// Goes over what a header has after its first 20 bytes.
    pub fn new(options: &'a [u8]) -> Ipv4Options<'a> {
        Ipv4Options { bytes: options, at: MIN_HEADER }
    }

    /// Returns the first source route that makes sense.
    pub fn source_route(&self) -> Option<SourceRoute<'a>> {
        self.clone().flatten().find_map(|option| option.source_route())
    }

    fn parse_next(&mut self) -> Result<Ipv4Option<'a>, Ipv4OptionFault> {
        let fault = Ipv4OptionFault { pointer: (self.at + LENGTH).min(usize::from(u8::MAX)) as u8 };
        let len = self.bytes.get(LENGTH).map_or(0, |len| usize::from(*len));
        let bytes = self.bytes.get(..len).filter(|option| option.len() > LENGTH).ok_or(fault)?;
        let option = Ipv4Option { kind: bytes[0], at: self.at, bytes };
        self.advance(len);
        Ok(option)
    }

    fn advance(&mut self, len: usize) {
        self.bytes = &self.bytes[len..];
        self.at += len;
    }
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Ipv4OptionFault>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.bytes.first() == Some(&NO_OPERATION) {
            self.advance(1);
        }
        if matches!(self.bytes.first(), None | Some(&END)) {
            return None;
        }
        let option = self.parse_next();
        if option.is_err() {
            self.bytes = &[];
        }
        Some(option)
    }
}

impl<'a> Ipv4Option<'a> {
    /// Records the route that the packet takes.
    pub const RECORD_ROUTE: u8 = 7;
    /// Records when the packet was where.
    pub const TIMESTAMP: u8 = 68;
    /// Names routers to be visited, with others between.
    pub const LOOSE_ROUTE: u8 = 131;
    /// Names all routers to be visited.
    pub const STRICT_ROUTE: u8 = 137;
    /// Asks every router to look at the packet, RFC 2113.
    pub const ROUTER_ALERT: u8 = 148;

    /// Says whether all fragments of the packet have the option.
    pub fn is_copied(&self) -> bool {
        self.kind & COPIED != 0
    }

    /// Reads it as a source route, if it is one and its pointer makes sense.
    pub fn source_route(&self) -> Option<SourceRoute<'a>> {
        let pointer = usize::from(*self.bytes.get(POINTER)?);
        let is_route = matches!(self.kind, Ipv4Option::LOOSE_ROUTE | Ipv4Option::STRICT_ROUTE);
        let sound = pointer > ADDRESSES && pointer.is_multiple_of(ADDRESS) && pointer <= self.bytes.len() + 1;
        (is_route && sound).then_some(SourceRoute { option: *self, pointer })
    }
}

impl<'a> SourceRoute<'a> {
    /// Returns the source route option.
    pub fn option(&self) -> Ipv4Option<'a> {
        self.option
    }

    /// Says whether all routers are named.
    pub fn is_strict(&self) -> bool {
        self.option.kind == Ipv4Option::STRICT_ROUTE
    }

    /// Returns the next to be visited, until all were.
    pub fn next_hop(&self) -> Option<Ipv4Addr> {
        let at = self.pointer - 1;
        (at + ADDRESS <= self.option.bytes.len()).then(|| ipv4_at(self.option.bytes, at))
    }

    /// Goes over the addresses that routers have put in, the last first.
    pub fn reverse_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + 'a {
        let recorded = &self.option.bytes[ADDRESSES..self.pointer - 1];
        recorded.chunks_exact(ADDRESS).rev().map(|address| ipv4_at(address, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_are_read_in_order_up_to_the_end_of_the_list() {
        let bytes = [1, 7, 3, 4, 1, 148, 4, 0, 0, 0, 7, 3];
        let options: Vec<_> = Ipv4Options::new(&bytes).collect();
        let route = Ipv4Option { kind: 7, at: 21, bytes: &[7, 3, 4] };
        let alert = Ipv4Option { kind: Ipv4Option::ROUTER_ALERT, at: 25, bytes: &[148, 4, 0, 0] };
        assert_eq!(options, [Ok(route), Ok(alert)]);
        assert!(alert.is_copied() && !route.is_copied());
    }

    #[test]
    fn a_length_that_cannot_be_is_pointed_to() {
        for bytes in [&[1, 7][..], &[1, 7, 0], &[1, 7, 1], &[1, 7, 4, 4]] {
            let options: Vec<_> = Ipv4Options::new(bytes).collect();
            assert_eq!(options, [Err(Ipv4OptionFault { pointer: 22 })], "{bytes:?}");
        }
    }

    #[test]
    fn a_source_route_tells_where_to_go_and_where_from() {
        let bytes = [131, 11, 8, 1, 1, 1, 1, 2, 2, 2, 2];
        let route = Ipv4Options::new(&bytes).source_route().unwrap();
        assert_eq!((route.next_hop(), route.is_strict()), (Some(Ipv4Addr::new(2, 2, 2, 2)), false));
        assert!(route.reverse_addresses().eq([Ipv4Addr::new(1, 1, 1, 1)]));
        let bytes = [137, 11, 12, 1, 1, 1, 1, 2, 2, 2, 2];
        let route = Ipv4Options::new(&bytes).source_route().unwrap();
        assert_eq!((route.next_hop(), route.is_strict()), (None, true));
        assert!(route.reverse_addresses().eq([Ipv4Addr::new(2, 2, 2, 2), Ipv4Addr::new(1, 1, 1, 1)]));
    }

    #[test]
    fn a_pointer_that_makes_no_sense_makes_no_route() {
        for pointer in [0, 1, 3, 5, 7, 9, 16, 255] {
            let bytes = [131, 11, pointer, 1, 1, 1, 1, 2, 2, 2, 2];
            assert_eq!(Ipv4Options::new(&bytes).source_route(), None, "{pointer}");
        }
        assert_eq!(Ipv4Options::new(&[131, 2]).source_route(), None);
        assert_eq!(Ipv4Options::new(&[7, 7, 4, 0, 0, 0, 0]).source_route(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(
            bytes in prop::collection::vec(
                prop::sample::select(&[0_u8, 1, 2, 3, 4, 7, 8, 11, 131, 137][..]),
                0..60,
            ),
        ) {
            let options: Vec<_> = Ipv4Options::new(&bytes).collect();
            prop_assert!(options.iter().rev().skip(1).all(Result::is_ok));
            for option in options.iter().flatten() {
                prop_assert_eq!(&bytes[option.at - 20..][..option.bytes.len()], option.bytes);
                if let Some(route) = option.source_route() {
                    let back = route.reverse_addresses().count();
                    prop_assert!(back <= 14 && (route.next_hop().is_none() || back < 14));
                }
            }
        }
    }
}
