//! The chain of IPv6 extension headers up to the upper layer (RFC 8200 section 4).
//!
//! The way is bounded: by the packet's length, and by a most number of headers. It ends at what cannot be
//! looked through: an encrypted payload, no next header, a fragment other than the first, an unknown
//! protocol.

use std::error::Error;
use std::fmt;

use crate::bytes::{clamped_slice, u16_at, u32_at};
use crate::{Ip6Options, IpProtocol, Ipv6, Malformed};

/// Most extension headers that are looked through: a packet that makes sense has fewer
/// (RFC 8504 section 5.3).
pub const MAX_EXTENSION_HEADERS: usize = 16;

const NEXT_HEADER: usize = 0;
const LENGTH: usize = 1;
const UNIT: usize = 8;
const AUTHENTICATION_UNIT: usize = 4;

/// Places within a routing header.
const ROUTING_TYPE: usize = 2;
const SEGMENTS_LEFT: usize = 3;

/// Places within a fragment header.
const FRAGMENT_OFFSET: usize = 2;
const FRAGMENT_ID: usize = 4;
const MORE_FRAGMENTS: u16 = 1;

/// Place of the field in the fixed header.
const FIRST_NEXT_HEADER: usize = 6;

/// What a packet's headers lead to, and what was met on the way. Places count from the fixed header on.
#[derive(Clone, Debug)]
pub struct Ip6Headers<'a> {
    /// The protocol of what follows the last header that could be looked through.
    pub protocol: IpProtocol,
    /// Offset of its first byte from the fixed header.
    pub offset: usize,
    /// Where the field is that names the protocol: what a parameter problem about an unknown one points to.
    pub named_at: usize,
    /// Options for every router on the way.
    pub hop_by_hop: Option<Ip6Options<'a>>,
    /// Options for the destination. There are at most two headers of them (RFC 8200 section 4.1); more are
    /// not read.
    pub destination: [Option<Ip6Options<'a>>; 2],
    /// The first routing header.
    pub routing: Option<Ip6Routing>,
    /// Which part of a longer packet this is.
    pub fragment: Option<Ip6Fragment>,
}

/// A routing header (RFC 8200 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip6Routing {
    /// Where the header begins.
    pub at: usize,
    /// Its type; type 0 is not to be obeyed any more (RFC 5095).
    pub kind: u8,
    /// How many nodes are still to be visited.
    pub segments_left: u8,
}

/// A fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip6Fragment {
    /// Where the header begins.
    pub at: usize,
    /// Where in the whole packet's fragmentable part this fragment belongs, in bytes.
    pub offset: usize,
    /// Whether more fragments follow.
    pub more: bool,
    /// What all fragments of the packet share.
    pub id: u32,
}

/// Why the chain of headers ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip6Fault {
    /// The fixed header is malformed.
    Fixed(Malformed),
    /// A header is not all there, or says that it is shorter than it can be.
    Truncated {
        /// Where the header begins.
        at: usize,
    },
    /// The first fragment of a packet does not hold all headers.
    Incomplete {
        /// Where the header begins that is not all there.
        at: usize,
    },
    /// Hop-by-hop options are elsewhere than right after the fixed header.
    Misplaced {
        /// Where the field is that names them.
        named_at: usize,
    },
    /// There are more headers than anyone needs.
    TooMany,
}

impl Ip6Fault {
    /// Returns code and pointer of the parameter problem to send, where there is one.
    pub fn parameter_problem(self) -> Option<(u8, u32)> {
        match self {
            Ip6Fault::Misplaced { named_at } => Some((1, named_at as u32)),
            Ip6Fault::Incomplete { .. } => Some((3, 0)), // RFC 7112 section 5
            Ip6Fault::Fixed(_) | Ip6Fault::Truncated { .. } | Ip6Fault::TooMany => None,
        }
    }
}

impl fmt::Display for Ip6Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ip6Fault::Fixed(malformed) => malformed.fmt(f),
            Ip6Fault::Truncated { at } => write!(f, "truncated extension header at byte {at}"),
            Ip6Fault::Incomplete { at } => write!(f, "first fragment without the header at byte {at}"),
            Ip6Fault::Misplaced { named_at } => {
                write!(f, "misplaced hop-by-hop options, named at byte {named_at}")
            }
            Ip6Fault::TooMany => f.write_str("too many extension headers"),
        }
    }
}

impl Error for Ip6Fault {}

impl<'a> Ip6Headers<'a> {
    /// Goes through the headers of a packet, up to where its payload length or its bytes end.
    pub fn parse_packet(packet: &'a [u8]) -> Result<Ip6Headers<'a>, Ip6Fault> {
        let ip = Ipv6::new(packet).map_err(Ip6Fault::Fixed)?;
        let packet = clamped_slice(packet, 0, Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length()));
        let mut headers = Ip6Headers {
            protocol: ip.next_header(),
            offset: Ipv6::<&[u8]>::LEN,
            named_at: FIRST_NEXT_HEADER,
            hop_by_hop: None,
            destination: [None, None],
            routing: None,
            fragment: None,
        };
        for _ in 0..=MAX_EXTENSION_HEADERS {
            if !headers.step_header(packet)? {
                return Ok(headers);
            }
        }
        Err(Ip6Fault::TooMany)
    }

    /// Says whether this is a fragment other than the first: what it holds begins anywhere
    /// in the upper layer.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }

    /// Goes past one extension header; says whether there was one.
    fn step_header(&mut self, packet: &'a [u8]) -> Result<bool, Ip6Fault> {
        if self.is_later_fragment() {
            return Ok(false);
        }
        match self.protocol {
            IpProtocol::HOP_BY_HOP if self.offset != Ipv6::<&[u8]>::LEN => {
                return Err(Ip6Fault::Misplaced { named_at: self.named_at });
            }
            IpProtocol::HOP_BY_HOP => {
                let header = self.extension_header(packet)?;
                self.hop_by_hop = Some(Ip6Options::new(&header[2..], self.offset + 2));
                self.pass_header(header);
            }
            IpProtocol::ROUTING => {
                let header = self.extension_header(packet)?;
                self.record_routing(header);
                self.pass_header(header);
            }
            IpProtocol::FRAGMENT => {
                let header = self.extension_header(packet)?;
                self.record_fragment(header);
                self.pass_header(&header[..UNIT]);
            }
            IpProtocol::DESTINATION_OPTIONS => {
                let header = self.extension_header(packet)?;
                let options = Ip6Options::new(&header[2..], self.offset + 2);
                if let Some(free) = self.destination.iter_mut().find(|options| options.is_none()) {
                    *free = Some(options);
                }
                self.pass_header(header);
            }
            IpProtocol::AUTHENTICATION => {
                let header = self.extension_header(packet)?;
                self.pass_header(header);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The header that begins here, whole; at least 8 bytes.
    fn extension_header(&self, packet: &'a [u8]) -> Result<&'a [u8], Ip6Fault> {
        let rest = clamped_slice(packet, self.offset, packet.len());
        let len = rest.get(LENGTH).and_then(|length| header_len(self.protocol, *length));
        len.and_then(|len| rest.get(..len)).ok_or(match self.fragment {
            Some(fragment) if fragment.more => Ip6Fault::Incomplete { at: self.offset },
            _ => Ip6Fault::Truncated { at: self.offset },
        })
    }

    fn pass_header(&mut self, header: &[u8]) {
        self.protocol = IpProtocol(header[NEXT_HEADER]);
        self.named_at = self.offset + NEXT_HEADER;
        self.offset += header.len();
    }

    fn record_routing(&mut self, header: &[u8]) {
        let (kind, segments_left) = (header[ROUTING_TYPE], header[SEGMENTS_LEFT]);
        self.routing.get_or_insert(Ip6Routing { at: self.offset, kind, segments_left });
    }

    fn record_fragment(&mut self, header: &[u8]) {
        let field = u16_at(header, FRAGMENT_OFFSET);
        self.fragment = Some(Ip6Fragment {
            at: self.offset,
            offset: usize::from(field & !7),
            more: field & MORE_FRAGMENTS != 0,
            id: u32_at(header, FRAGMENT_ID),
        });
    }
}

/// The length of an extension header whose length field is `length`; a fragment header's is reserved. An
/// authentication header counts in words, without two (RFC 4302 section 2.2), and has none that leaves no
/// room for its fixed fields.
fn header_len(protocol: IpProtocol, length: u8) -> Option<usize> {
    match (protocol, length) {
        (IpProtocol::FRAGMENT, _) => Some(UNIT),
        (IpProtocol::AUTHENTICATION, 0) => None,
        (IpProtocol::AUTHENTICATION, _) => Some((usize::from(length) + 2) * AUTHENTICATION_UNIT),
        _ => Some((usize::from(length) + 1) * UNIT),
    }
}

/// Where the last of these headers, the fixed one and extension headers whose lengths count in units of 8
/// bytes, names what follows it; `None` where they do not end together.
pub fn naming_place(headers: &[u8]) -> Option<usize> {
    let (mut named_at, mut at) = (FIRST_NEXT_HEADER, Ipv6::<&[u8]>::LEN);
    while at < headers.len() {
        named_at = at + NEXT_HEADER;
        at += (usize::from(*headers.get(at + LENGTH)?) + 1) * UNIT;
    }
    (at == headers.len()).then_some(named_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::ip6;
    use proptest::prelude::*;

    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;

    #[track_caller]
    fn fault(bytes: &[u8]) -> Ip6Fault {
        Ip6Headers::parse_packet(bytes).unwrap_err()
    }

    #[test]
    fn without_extension_headers_the_upper_layer_is_there_at_once() {
        let bytes = ip6().udp(1, 2).bytes();
        let headers = Ip6Headers::parse_packet(&bytes).unwrap();
        assert_eq!((headers.protocol, headers.offset, headers.named_at), (IpProtocol::UDP, 40, 6));
        assert!(headers.hop_by_hop.is_none() && headers.routing.is_none() && headers.fragment.is_none());
    }

    #[test]
    fn all_kinds_of_header_are_gone_through() {
        let bytes = ip6()
            .extension(HOP_BY_HOP, [5, 2, 0, 0, 1, 0])
            .extension(DESTINATION, [1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .extension(ROUTING, [4, 2, 0, 0, 0, 0])
            .fragment(0, true, 0xdead_beef)
            .extension(AUTHENTICATION, [0; 14])
            .udp(1, 2)
            .bytes();
        let headers = Ip6Headers::parse_packet(&bytes).unwrap();
        let sum = 40 + 8 + 16 + 8 + 8 + 16;
        assert_eq!((headers.protocol, headers.offset, headers.named_at), (IpProtocol::UDP, sum, sum - 16));
        assert_eq!(headers.routing, Some(Ip6Routing { at: 64, kind: 4, segments_left: 2 }));
        let fragment = Ip6Fragment { at: 72, offset: 0, more: true, id: 0xdead_beef };
        assert_eq!((headers.fragment, headers.is_later_fragment()), (Some(fragment), false));
        assert_eq!(headers.hop_by_hop.unwrap().check_options(true).unwrap().alert, Some(0));
    }

    #[test]
    fn a_later_fragment_is_not_looked_into() {
        let bytes = ip6().fragment(1448, false, 7).raw(HOP_BY_HOP, [0xff; 30]).bytes();
        let headers = Ip6Headers::parse_packet(&bytes).unwrap();
        assert_eq!((headers.protocol, headers.offset), (IpProtocol::HOP_BY_HOP, 48));
        assert_eq!(headers.fragment, Some(Ip6Fragment { at: 40, offset: 1448, more: false, id: 7 }));
        assert!(headers.is_later_fragment());
    }

    #[test]
    fn what_cannot_be_looked_through_ends_the_way() {
        for protocol in [IpProtocol::ESP, IpProtocol::NO_NEXT_HEADER, IpProtocol::IPV6, IpProtocol(200)] {
            let bytes = ip6().extension(DESTINATION, [0; 6]).raw(protocol.0, []).bytes();
            let headers = Ip6Headers::parse_packet(&bytes).unwrap();
            assert_eq!((headers.protocol, headers.offset, headers.named_at), (protocol, 48, 40));
        }
    }

    #[test]
    fn hop_by_hop_options_come_first_or_not_at_all() {
        let bytes = ip6().extension(DESTINATION, [0; 6]).extension(HOP_BY_HOP, [0; 6]).bytes();
        assert_eq!(fault(&bytes), Ip6Fault::Misplaced { named_at: 40 });
        assert_eq!(fault(&bytes).parameter_problem(), Some((1, 40)));
        let bytes = ip6().extension(HOP_BY_HOP, [0; 6]).extension(HOP_BY_HOP, [0; 6]).bytes();
        assert_eq!(fault(&bytes), Ip6Fault::Misplaced { named_at: 40 });
    }

    #[test]
    fn a_header_cut_short_is_a_fault_at_every_length() {
        for kind in [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION] {
            let bytes = ip6().extension(kind, [0; 14]).bytes();
            (40..56)
                .for_each(|len| assert_eq!(fault(&bytes[..len]), Ip6Fault::Truncated { at: 40 }, "{len}"));
            assert!(Ip6Headers::parse_packet(&bytes).is_ok());
        }
        let bytes = ip6().extension(AUTHENTICATION, [0; 6]).bytes();
        assert_eq!(fault(&bytes), Ip6Fault::Truncated { at: 40 });
        let bytes = ip6().fragment(0, true, 1).extension(DESTINATION, [0; 6]).bytes();
        (40..48).for_each(|len| assert_eq!(fault(&bytes[..len]), Ip6Fault::Truncated { at: 40 }));
        (48..56).for_each(|len| assert_eq!(fault(&bytes[..len]), Ip6Fault::Incomplete { at: 48 }));
        assert_eq!(fault(&bytes[..50]).parameter_problem(), Some((3, 0)));
        assert_eq!(fault(&bytes[..39]), Ip6Fault::Fixed(Malformed::Truncated));
    }

    #[test]
    fn headers_beyond_the_payload_length_are_not_there() {
        let mut bytes = ip6().extension(DESTINATION, [0; 6]).bytes();
        Ipv6::new(&mut bytes).unwrap().set_payload_length(7);
        assert_eq!(fault(&bytes), Ip6Fault::Truncated { at: 40 });
    }

    #[test]
    fn headers_without_end_are_a_fault() {
        let with = |count: usize| {
            let packet = (0..count).fold(ip6(), |packet, _| packet.extension(DESTINATION, [0; 6]));
            packet.udp(1, 2).bytes()
        };
        assert_eq!(Ip6Headers::parse_packet(&with(MAX_EXTENSION_HEADERS)).unwrap().protocol, IpProtocol::UDP);
        assert_eq!(fault(&with(MAX_EXTENSION_HEADERS + 1)), Ip6Fault::TooMany);
    }

    proptest! {
        #[test]
        fn any_headers_lead_somewhere_in_the_packet(
            first in prop::sample::select(&[0_u8, 43, 44, 51, 60, 17][..]),
            mut body in prop::collection::vec(
                prop::sample::select(&[0_u8, 1, 2, 43, 44, 51, 60, 17][..]),
                0..120,
            ),
            cut in 0_usize..40,
        ) {
            body.truncate(body.len().saturating_sub(cut));
            let bytes = ip6().raw(first, &body).bytes();
            if let Ok(headers) = Ip6Headers::parse_packet(&bytes) {
                prop_assert!((40..=bytes.len()).contains(&headers.offset));
                prop_assert_eq!(IpProtocol(bytes[headers.named_at]), headers.protocol);
                let options = headers.hop_by_hop.into_iter().flatten();
                prop_assert!(options.flatten().all(|option| bytes[option.at] == option.kind));
            }
        }
    }
}
