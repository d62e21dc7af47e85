//! Kinds of first header that a pcap file can have.
use artery_wire::NumberNames;
use std::fmt;

/// A link type as pcap files number them (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

/// Link types with names, as the ENCAP argument of FromDump and ToDump spells them.
const NAMES: NumberNames = NumberNames(
    "
    NULL 0  IP 101  ETHER 1  FDDI 10  ATM 100  RFC1483 100  ATM_RFC1483 100  802_11 105  802.11 105
    802_11_RADIO 127  802.11_RADIO 127  SLL 113  AIRONET 120  HDLC 104  PPP_HDLC 50  PPP 9  SUNATM 123
    PRISM 119",
);

impl LinkType {
    /// Ethernet frames, without their checksum (`DLT_EN10MB`).
    pub const ETHER: LinkType = LinkType(1);
    /// IP without a link header.
    pub const IP: LinkType = LinkType(101);
    /// The header that Linux gives packets captured on no particular interface.
    pub const SLL: LinkType = LinkType(113);

    /// Reads the field of a file header: without the bits about checksums, and with the numbers by which some
    /// systems call raw IP replaced by the usual one.
    pub fn from_header(field: u32) -> LinkType {
        match field & 0x03ff_ffff {
            12 | 14 => LinkType::IP,
            number => LinkType(number),
        }
    }
    /// Looks up a name, or `#` and a number, as in `ENCAP ETHER`.
    pub fn from_name(name: &str) -> Option<LinkType> {
        if let Some(number) = name.strip_prefix('#') {
            return number.parse().ok().filter(|n| *n <= 0x03ff_ffff).map(LinkType);
        }
        NAMES.number_of(name).map(LinkType)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.name_of(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "#{}", self.0),
        }
    }
}
