//! Summaries of packets as text: the fields that a line can have, shared by ToIPSummaryDump and
//! FromIPSummaryDump. Names and spellings are those of Click's IPSummaryDump 1.3.

mod describe;
mod draft;
mod ip_options;
mod options;
mod read;
mod tcp_options;

pub(super) use describe::{SummaryOptions, describe_packet, first_timestamp};
pub(super) use draft::{Defaults, FlowEnds, PacketDraft};
pub(super) use read::{apply_column, named_protocol};

/// The version in the first line of a file, after `!IPSummaryDump`.
pub(super) const VERSION: (u32, u32) = (1, 3);

/// One column of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    None,
    Timestamp,
    Seconds,
    Microseconds,
    AllMicroseconds,
    FirstTimestamp,
    Count,
    Paint,
    Direction,
    Aggregate,
    WireLength,
    EtherSource,
    EtherDestination,
    EtherType,
    Source,
    Destination,
    Tos,
    Dscp,
    Ecn,
    Ttl,
    Fragment,
    FragmentOffset,
    Id,
    Checksum,
    Protocol,
    HeaderLength,
    Length,
    CaptureLength,
    Options,
    SourcePort,
    DestinationPort,
    TcpSequence,
    TcpAcknowledgement,
    TcpOffset,
    TcpFlags,
    TcpWindow,
    TcpUrgent,
    TcpOptions,
    TcpOptionsButTime,
    TcpSack,
    UdpLength,
    IcmpType,
    IcmpCode,
    IcmpTypeName,
    IcmpCodeName,
    IcmpFlow,
    IcmpSequence,
    IcmpNextMtu,
    Payload,
    PayloadLength,
    PayloadMd5,
    PayloadMd5Hex,
}

use Field::*;

/// Names of fields; the first name of a field is the one that is written. The number is the order of
/// application when a packet is made: fields that others depend on come first.
const NAMES: &[(&str, Field, u16)] = &[
    ("none", None, 100),
    ("timestamp", Timestamp, 100),
    ("ntimestamp", Timestamp, 100),
    ("utimestamp", Timestamp, 100),
    ("ts", Timestamp, 100),
    ("ts_sec", Seconds, 100),
    ("sec", Seconds, 100),
    ("ts_usec", Microseconds, 100),
    ("usec", Microseconds, 100),
    ("ts_usec1", AllMicroseconds, 100),
    ("usec1", AllMicroseconds, 100),
    ("first_timestamp", FirstTimestamp, 100),
    ("first_ntimestamp", FirstTimestamp, 100),
    ("first_utimestamp", FirstTimestamp, 100),
    ("first_ts", FirstTimestamp, 100),
    ("count", Count, 100),
    ("pkt_count", Count, 100),
    ("packet_count", Count, 100),
    ("link", Paint, 100),
    ("paint", Paint, 100),
    ("direction", Direction, 100),
    ("aggregate", Aggregate, 100),
    ("agg", Aggregate, 100),
    ("wire_len", WireLength, 100),
    ("wire_length", WireLength, 100),
    ("eth_src", EtherSource, 200),
    ("ether_src", EtherSource, 200),
    ("eth_dst", EtherDestination, 200),
    ("ether_dst", EtherDestination, 200),
    ("eth_type", EtherType, 200),
    ("ether_type", EtherType, 200),
    ("ip_frag", Fragment, 298),
    ("ip_fragoff", FragmentOffset, 299),
    ("ip_hl", HeaderLength, 299),
    ("ip_src", Source, 300),
    ("ip_dst", Destination, 300),
    ("ip_tos", Tos, 300),
    ("ip_dscp", Dscp, 300),
    ("ip_ecn", Ecn, 300),
    ("ip_ttl", Ttl, 300),
    ("ip_id", Id, 300),
    ("ip_proto", Protocol, 300),
    ("ip_p", Protocol, 300),
    ("ip_opt", Options, 300),
    ("ip_len", Length, 301),
    ("length", Length, 301),
    ("ip_sum", Checksum, 302),
    ("sport", SourcePort, 400),
    ("dport", DestinationPort, 400),
    ("tcp_seq", TcpSequence, 400),
    ("tcp_seqno", TcpSequence, 400),
    ("tcp_ack", TcpAcknowledgement, 400),
    ("tcp_ackno", TcpAcknowledgement, 400),
    ("tcp_off", TcpOffset, 400),
    ("tcp_flags", TcpFlags, 400),
    ("tcp_window", TcpWindow, 400),
    ("tcp_win", TcpWindow, 400),
    ("tcp_urp", TcpUrgent, 400),
    ("tcp_opt", TcpOptions, 400),
    ("tcp_ntopt", TcpOptionsButTime, 400),
    ("tcp_sack", TcpSack, 400),
    ("udp_len", UdpLength, 400),
    ("icmp_type", IcmpType, 400),
    ("icmp_type_name", IcmpTypeName, 400),
    ("icmp_code", IcmpCode, 401),
    ("icmp_code_name", IcmpCodeName, 401),
    ("icmp_flowid", IcmpFlow, 402),
    ("icmp_seq", IcmpSequence, 402),
    ("icmp_nextmtu", IcmpNextMtu, 402),
    ("payload", Payload, 500),
    ("payload_len", PayloadLength, 501),
    ("payload_length", PayloadLength, 501),
    ("payload_md5", PayloadMd5, 501),
    ("payload_md5_hex", PayloadMd5Hex, 501),
    ("ip_capture_len", CaptureLength, 502),
];

impl Field {
    /// The field of this name. Blanks may stand for underscores, as in old files, and `src` for `ip_src`.
    pub(crate) fn find_field(name: &str) -> Option<Field> {
        let known = NAMES.iter().find(|(known, ..)| *known == name).map(|(_, field, _)| *field);
        known.or_else(|| match name {
            _ if name.contains(' ') => Field::find_field(&name.replacen(' ', "_", 1)),
            _ if !name.contains('_') => Field::find_field(&format!("ip_{name}")),
            _ => Option::None,
        })
    }

    /// Whether packets can be made from it: the payload can't be recovered from a digest.
    pub(crate) fn is_read(self) -> bool {
        !matches!(self, PayloadMd5 | PayloadMd5Hex)
    }

    /// All of them, some more than once.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Field> {
        NAMES.iter().map(|(_, field, _)| *field)
    }

    /// What files call it.
    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    /// Fields with lower ranks are applied to a packet first.
    pub(crate) fn rank(self) -> u16 {
        self.entry().2
    }

    fn entry(self) -> &'static (&'static str, Field, u16) {
        NAMES.iter().find(|(_, field, _)| *field == self).expect("every field has a name")
    }
}

/// Letters of TCP's flags, from the lowest bit on.
const FLAGS: &[u8] = b"FSRPAUECN";

/// TCP's flags as letters.
fn flags_text(flags: u16) -> String {
    match flags {
        0 => ".".into(),
        0x18 => "PA".into(),
        _ => {
            let set = FLAGS.iter().enumerate().filter(|(bit, _)| flags & (1 << bit) != 0);
            set.map(|(_, letter)| char::from(*letter)).collect()
        }
    }
}

/// Parses TCP flags from letters; older files use other letters for two of them, or a number.
fn read_flags(text: &str) -> Option<u16> {
    if text == "." {
        return Some(0);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return artery_lang::args::parse_unsigned(text)
            .ok()
            .filter(|flags| *flags < 0x1000)
            .map(|flags| flags as u16);
    }
    let bit = |letter: u8| match letter {
        b'X' => Some(6),
        b'W' | b'Y' => Some(7),
        letter => FLAGS.iter().position(|known| *known == letter),
    };
    text.bytes().try_fold(0, |flags, letter| Some(flags | 1 << bit(letter)?)).filter(|_| !text.is_empty())
}

/// Whether headers of an IP protocol begin with two ports.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 136)
}

/// A big-endian word; zero where there are no such bytes.
fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_be_bytes(*word))
}

/// The same for four bytes.
fn long(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |long| u32::from_be_bytes(*long))
}

/// A number in front of a text, in C's spelling, and what follows it.
fn number(text: &str) -> Option<(u32, &str)> {
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let digit =
        |c: char| if is_hex { c.is_ascii_hexdigit() || c == 'x' || c == 'X' } else { c.is_ascii_digit() };
    let end = text.find(|c: char| !digit(c)).unwrap_or(text.len());
    let value = artery_lang::args::parse_unsigned(&text[..end]).ok()?;
    Some((u32::try_from(value).ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_all_their_spellings() {
        for (text, name) in [
            ("src", "ip_src"),
            ("ip src", "ip_src"),
            ("len", "ip_len"),
            ("tcp seqno", "tcp_seq"),
            ("ts", "timestamp"),
            ("ntimestamp", "timestamp"),
            ("paint", "link"),
            ("sport", "sport"),
            ("payload len", "payload_len"),
        ] {
            assert_eq!(Field::find_field(text).map(Field::name), Some(name), "{text}");
        }
        assert_eq!(Field::find_field("nonsense"), Option::None);
        assert_eq!(Field::find_field("tcp_nonsense"), Option::None);
    }

    #[test]
    fn flags_are_letters() {
        for (flags, text) in [(0, "."), (0x18, "PA"), (0x12, "SA"), (0x1ff, "FSRPAUECN")] {
            assert_eq!(flags_text(flags), text);
            assert_eq!(read_flags(text), Some(flags));
        }
        assert_eq!(read_flags("XW"), Some(0xc0));
        assert_eq!(read_flags("24"), Some(0x18));
        assert_eq!(read_flags("Q"), Option::None);
        assert_eq!(read_flags(""), Option::None);
    }

    #[test]
    fn numbers_end_where_their_digits_do() {
        assert_eq!(number("12:34"), Some((12, ":34")));
        assert_eq!(number("0x1f;"), Some((31, ";")));
        assert_eq!(number("x"), Option::None);
        assert_eq!(number("99999999999"), Option::None);
    }
}
