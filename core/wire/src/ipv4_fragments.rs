//! An IPv4 packet in parts that fit an MTU (RFC 791 section 3.2, RFC 1812 section 4.2.2.7).

use std::error::Error;
use std::fmt;

use crate::{Ipv4, Ipv4Options, Malformed};

const MIN_HEADER: usize = 20;
const MAX_HEADER: usize = 60;

/// Bits of the fragment field.
const MORE_FRAGMENTS: u16 = 0x2000;
/// The end of the longest packet there is.
const MAX_END: usize = 65_535;
/// Fragments begin at multiples of this many bytes.
const UNIT: usize = 8;

/// Why a packet is not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CannotSplit {
    /// The packet forbids it (DF).
    DontFragment,
    /// The MTU leaves no room for 8 bytes after the header.
    NoRoom,
    /// The header is malformed, or lengths and place do not fit together.
    Malformed(Malformed),
}

impl fmt::Display for CannotSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CannotSplit::DontFragment => "must not be fragmented",
            CannotSplit::NoRoom => "no room for a fragment",
            CannotSplit::Malformed(malformed) => return malformed.fmt(f),
        })
    }
}

impl Error for CannotSplit {}

/// Goes over the fragments of a packet, in order; a packet that fits is its own only one.
///
/// Those after the first have only the options that say so.
#[derive(Clone, Debug)]
pub struct Ipv4Fragments<'a> {
    header: Header,
    /// The header of those after the first.
    later: Header,
    rest: &'a [u8],
    field: u16,
    mtu: usize,
}

/// A fragment: a header of its own, and a part of the packet's payload.
#[derive(Clone, Debug)]
pub struct Ipv4FragmentParts<'a> {
    header: Header,
    payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: [u8; MAX_HEADER],
    len: usize,
}

impl<'a> Ipv4Fragments<'a> {
    /// Begins to split a packet, which its total length ends. What is no longer than `mtu` is never
    /// refused for its size.
    pub fn split_packet(packet: &'a [u8], mtu: usize) -> Result<Ipv4Fragments<'a>, CannotSplit> {
        let ip = Ipv4::validate_lengths(packet).map_err(CannotSplit::Malformed)?;
        let (header_len, total) = (ip.header_len(), usize::from(ip.total_length()));
        if ip.fragment_offset() + total > MAX_END + header_len {
            return Err(CannotSplit::Malformed(Malformed::Length));
        }
        if total > mtu {
            check_room(&ip, mtu)?;
        }
        let (header, later) = (Header::copy_header(ip.header()), Header::after_first(&ip));
        Ok(Ipv4Fragments { header, later, rest: &packet[header_len..total], field: ip.fragment_field(), mtu })
    }
}

fn check_room(ip: &Ipv4<&[u8]>, mtu: usize) -> Result<(), CannotSplit> {
    if ip.dont_fragment() {
        return Err(CannotSplit::DontFragment);
    }
    if mtu < ip.header_len() + UNIT { Err(CannotSplit::NoRoom) } else { Ok(()) }
}

impl<'a> Iterator for Ipv4Fragments<'a> {
    type Item = Ipv4FragmentParts<'a>;

    fn next(&mut self) -> Option<Ipv4FragmentParts<'a>> {
        if self.header.len == 0 {
            // the last one was made
            return None;
        }
        let room = self.mtu.saturating_sub(self.header.len);
        let fits = self.rest.len() <= room || self.rest.is_empty();
        let (payload, rest) = self.rest.split_at(if fits { self.rest.len() } else { room & !(UNIT - 1) });
        let mut header = self.header;
        header.set_fields(payload.len(), if fits { self.field } else { self.field | MORE_FRAGMENTS });
        self.header = if fits { Header { len: 0, ..header } } else { self.later };
        self.field += (payload.len() / UNIT) as u16 * u16::from(!fits);
        self.rest = rest;
        Some(Ipv4FragmentParts { header, payload })
    }
}

impl Ipv4FragmentParts<'_> {
    /// Returns the fragment's IPv4 header.
    pub fn header(&self) -> &[u8] {
        &self.header.bytes[..self.header.len]
    }

    /// Returns the part of the packet's payload.
    pub fn payload(&self) -> &[u8] {
        self.payload
    }

    /// Returns the fragment as one buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.header(), self.payload].concat()
    }
}

impl Header {
    fn copy_header(header: &[u8]) -> Header {
        let mut bytes = [0; MAX_HEADER];
        bytes[..header.len()].copy_from_slice(header);
        Header { bytes, len: header.len() }
    }

    fn after_first(ip: &Ipv4<&[u8]>) -> Header {
        let mut header = Header::copy_header(&ip.header()[..MIN_HEADER]);
        for option in Ipv4Options::new(ip.options()).flatten().filter(|option| option.is_copied()) {
            header.bytes[header.len..][..option.bytes.len()].copy_from_slice(option.bytes);
            header.len += option.bytes.len();
        }
        header.len = header.len.next_multiple_of(4);
        header.bytes[0] = 0x40 | (header.len / 4) as u8;
        header
    }

    fn set_fields(&mut self, payload: usize, field: u16) {
        let total = (self.len + payload) as u16;
        let mut ip = Ipv4::new(&mut self.bytes[..self.len]).expect("the header was made of one");
        ip.set_total_length(total);
        ip.set_fragment_field(field);
        ip.fill_checksum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::ip4;
    use proptest::prelude::*;

    fn split(packet: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, CannotSplit> {
        Ok(Ipv4Fragments::split_packet(packet, mtu)?.map(|fragment| fragment.to_bytes()).collect())
    }

    #[test]
    fn only_options_that_say_so_are_in_all_fragments() {
        let packet = ip4().options([7, 3, 4, 1, 131, 3, 4, 0]).raw(17, [5; 64]).bytes();
        let fragments = split(&packet, 60).unwrap();
        let options: Vec<_> =
            fragments.iter().map(|bytes| Ipv4::new(bytes).unwrap().options().to_vec()).collect();
        assert_eq!(options, [vec![7, 3, 4, 1, 131, 3, 4, 0], vec![131, 3, 4, 0]]);
    }

    #[test]
    fn what_cannot_be_split_is_said_why() {
        let packet = ip4().udp(1, 2).payload([0; 100]);
        assert_eq!(split(&packet.clone().dont_fragment().bytes(), 60), Err(CannotSplit::DontFragment));
        assert!(split(&packet.clone().dont_fragment().bytes(), 128).is_ok());
        assert_eq!(split(&packet.bytes(), 27), Err(CannotSplit::NoRoom));
        assert_eq!(split(&packet.bytes()[..127], 60), Err(CannotSplit::Malformed(Malformed::Length)));
        let beyond = packet.fragment(65_528, false).bytes();
        assert_eq!(split(&beyond, 60), Err(CannotSplit::Malformed(Malformed::Length)));
    }

    #[test]
    fn a_packet_without_payload_fits_any_mtu_it_is_not_longer_than() {
        let packet = ip4().options([1; 4]).bytes();
        assert_eq!(split(&packet, 24).unwrap().concat(), packet);
        assert_eq!(split(&packet, 23), Err(CannotSplit::NoRoom));
    }

    proptest! {
        #[test]
        fn fragments_in_order_make_the_packet(
            len in 0_usize..5000,
            mtu in 68_usize..2000,
            from in 0_usize..4000,
            more: bool,
            options in prop::collection::vec(Just(1_u8), 0..40),
            padding in 0_usize..30,
        ) {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let packet = ip4().id(77).options(options).fragment(from * 8, more).raw(17, &payload).bytes();
            let fragments = split(&[&packet[..], &vec![0xee; padding]].concat(), mtu).unwrap();
            if packet.len() <= mtu {
                prop_assert_eq!(&fragments, &[packet]);
            }
            let mut joined = Vec::new();
            for (n, bytes) in fragments.iter().enumerate() {
                let ip = Ipv4::new(bytes).unwrap();
                prop_assert!(ip.checksum_is_valid() && bytes.len() <= mtu && ip.id() == 77);
                prop_assert_eq!(usize::from(ip.total_length()), bytes.len());
                prop_assert_eq!(ip.fragment_offset(), from * 8 + joined.len());
                prop_assert_eq!(ip.more_fragments(), more || n + 1 < fragments.len());
                joined.extend_from_slice(ip.payload());
            }
            prop_assert_eq!(joined, payload);
        }

        #[test]
        fn any_bytes_are_split_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            words: u8,
            mtu in 0_usize..200,
        ) {
            let len = bytes.len() as u16;
            if let Some(fixed) = bytes.first_chunk_mut::<4>() {
                fixed[0] = 0x40 | words & 0xf;
                fixed[2..].copy_from_slice(&len.to_be_bytes());
            }
            let fragments = split(&bytes, mtu).unwrap_or_default();
            prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
        }
    }
}
