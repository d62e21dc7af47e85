//! What a switch looks at in a frame.
use super::mac::bits_of;
use artery_wire::{Arp, EtherAddr, EtherType};

/// Bytes of two addresses and a type.
const HEADER: usize = 14;
/// Bytes of a tag.
pub(super) const TAG: usize = 4;
/// Reverse ARP (RFC 903).
pub(super) const RARP: EtherType = EtherType(0x8035);
/// The addresses reserved for bridges (IEEE 802.1Q, table 8-1), without their last four bits.
const RESERVED: u64 = 0x0180_c200_0000;

/// A frame as it came.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    /// Where it goes, as a number of 48 bits.
    pub destination: u64,
    /// Where it comes from, as a number of 48 bits.
    pub source: u64,
    /// EtherType that follows the addresses.
    pub ether_type: EtherType,
    bytes: &'a [u8],
}

/// The parts of a header that are read at once: destination, source and type.
#[inline(always)]
pub(super) fn read_header(bytes: &[u8]) -> Option<(u64, u64, u16)> {
    let header = bytes.first_chunk::<HEADER>()?;
    let word = |at: usize| header[at..].first_chunk::<8>().map_or(0, |word| u64::from_be_bytes(*word));
    let (first, second) = (word(0), word(6));
    Some((first >> 16, second >> 16, second as u16))
}

/// Whether an address is one of a group.
#[inline(always)]
pub(super) fn is_group(address: u64) -> bool {
    address >> 40 & 1 != 0
}

impl<'a> FrameView<'a> {
    /// The frame in these bytes; none if they are too few for a header.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<FrameView<'a>> {
        let (destination, source, ether_type) = read_header(bytes)?;
        Some(FrameView { destination, source, ether_type: EtherType(ether_type), bytes })
    }

    /// Whether it goes to a group.
    pub fn is_for_group(&self) -> bool {
        is_group(self.destination)
    }

    /// Whether it goes to the broadcast address.
    pub fn is_for_all(&self) -> bool {
        self.destination == bits_of(EtherAddr::BROADCAST)
    }

    /// Whether its source is the address of a single host.
    pub fn has_source(&self) -> bool {
        !is_group(self.source) && self.source != 0
    }

    /// Whether it goes to the bridge group address, as spanning tree messages do.
    pub fn is_for_bridges(&self) -> bool {
        self.destination == RESERVED
    }

    /// The last four bits of its destination, if that is an address that bridges keep to themselves.
    pub fn reserved(&self) -> Option<u8> {
        (self.destination & !0xf == RESERVED).then_some(self.destination as u8 & 0xf)
    }

    /// The control field of its tag of 802.1Q, if it has one. A tag cut short is none.
    pub fn tag(&self) -> Option<u16> {
        let bytes = self.bytes.get(HEADER..HEADER + TAG).filter(|_| self.ether_type == EtherType::VLAN)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What it carries: behind its tag, where `is_tagged` says that this counts.
    pub fn inner_payload(&self, is_tagged: bool) -> (EtherType, &'a [u8]) {
        let at = if is_tagged { HEADER + TAG } else { HEADER };
        match self.bytes.get(at - 2..) {
            Some([a, b, payload @ ..]) => (EtherType(u16::from_be_bytes([*a, *b])), payload),
            _ => (EtherType(0), &[]),
        }
    }

    /// The priority that a header of IPv4 or IPv6 asks for: the first three bits of its type of service (RFC
    /// 791) or traffic class (RFC 8200); otherwise 0.
    pub(super) fn precedence(&self, is_tagged: bool) -> u8 {
        match self.inner_payload(is_tagged) {
            (EtherType::IPV4, [_, tos, ..]) => tos >> 5,
            (EtherType::IPV6, [first, ..]) => (first & 0xf) >> 1,
            _ => 0,
        }
    }

    /// Whether it carries IPv4, IPv6, ARP or RARP.
    pub fn is_ip(&self, is_tagged: bool) -> bool {
        [EtherType::IPV4, EtherType::IPV6, EtherType::ARP, RARP].contains(&self.inner_payload(is_tagged).0)
    }

    /// What it says by ARP or RARP, and which of both.
    pub(super) fn parse_arp(&self, is_tagged: bool) -> Option<(EtherType, Arp<&'a [u8]>)> {
        let (ether_type, payload) = self.inner_payload(is_tagged);
        let is_arp = [EtherType::ARP, RARP].contains(&ether_type);
        is_arp.then(|| Arp::new(payload).ok()).flatten().map(|arp| (ether_type, arp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{arp_request, ether};
    use proptest::prelude::*;

    const DST: &str = "02:00:00:00:00:01";
    const SRC: &str = "02:00:00:00:00:02";

    #[test]
    fn addresses_tag_and_payload_are_seen() {
        let bytes = ether(DST, SRC).vlan(7).raw(EtherType::IPV4, b"payload").bytes();
        let sight = FrameView::new(&bytes).unwrap();
        assert_eq!((sight.destination, sight.source), (0x0200_0000_0001, 0x0200_0000_0002));
        assert_eq!(sight.tag().map(|tag| tag & 0xfff), Some(7));
        assert_eq!(sight.inner_payload(true), (EtherType::IPV4, &b"payload"[..]));
        assert!(sight.is_ip(true) && !sight.is_ip(false) && sight.parse_arp(true).is_none());
        let question = arp_request(SRC, "10.0.0.1", "10.0.0.2").bytes();
        let sight = FrameView::new(&question).unwrap();
        assert!(sight.is_for_all() && sight.is_for_group() && sight.has_source());
        assert!(sight.parse_arp(false).is_some_and(|(kind, arp)| kind == EtherType::ARP && arp.is_request()));
    }

    #[test]
    fn sixteen_addresses_are_reserved() {
        let reserved = |address: &str| {
            FrameView::new(&ether(address, SRC).raw(EtherType(1), b"").bytes()).unwrap().reserved()
        };
        assert_eq!((reserved("01:80:c2:00:00:00"), reserved("01:80:c2:00:00:0e")), (Some(0), Some(14)));
        assert_eq!((reserved("01:80:c2:00:00:10"), reserved("01:80:c2:00:01:00")), (None, None));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..50), is_tagged: bool) {
            if let Some(sight) = FrameView::new(&bytes) {
                let _ = (sight.tag(), sight.is_ip(is_tagged), sight.parse_arp(is_tagged), sight.reserved());
            } else {
                prop_assert!(bytes.len() < HEADER);
            }
        }
    }
}
