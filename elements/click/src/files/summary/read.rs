//! Columns of a summary as a packet.
use super::draft::{ICMP, PacketDraft, TCP, UDP, UDP_LITE};
use super::tcp_options::OptionSet;
use super::{Field, ip_options, number, read_flags, tcp_options};
use crate::ip::name::{IcmpTypeName, Protocol, read_icmp_code};
use artery_engine::names::Names;
use artery_engine::{ArgValue, Time};
use artery_lang::args;
use artery_wire::EtherAddr;
use std::net::Ipv4Addr;

/// The offset for `f`, a later fragment: any offset is valid.
const SOME_OFFSET: u16 = 100;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Applies a column to the packet; returns whether it could be parsed. Columns of
/// other protocols are ignored.
pub(in crate::files) fn apply_column(
    draft: &mut PacketDraft,
    field: Field,
    text: &str,
    names: &Names,
) -> bool {
    let done = match field {
        Field::None | Field::PayloadMd5 | Field::PayloadMd5Hex => None,
        Field::EtherSource | Field::EtherDestination | Field::EtherType => {
            apply_link(draft, field, text, names)
        }
        Field::Payload => apply_payload(draft, text),
        Field::PayloadLength => parse_u32(text).map(|len| {
            prepare_payload(draft);
            draft.account_payload(len as usize);
        }),
        Field::Length | Field::HeaderLength | Field::Options | Field::CaptureLength => {
            apply_header(draft, field, text)
        }
        field if field.rank() < 200 => apply_annotation(draft, field, text),
        field if field.rank() < 400 => apply_network(draft, field, text, names),
        field => apply_transport(draft, field, text, names),
    };
    done.is_some()
}

fn parse_u32(text: &str) -> Option<u32> {
    args::parse_unsigned(text).ok()?.try_into().ok()
}
fn parse_u16(text: &str) -> Option<[u8; 2]> {
    Some(u16::try_from(parse_u32(text)?).ok()?.to_be_bytes())
}
fn parse_u8(text: &str) -> Option<u8> {
    parse_u32(text)?.try_into().ok()
}

fn apply_annotation(draft: &mut PacketDraft, field: Field, text: &str) -> Option<()> {
    let time = || args::parse_seconds(text).ok().map(Time);
    match field {
        Field::Timestamp => (draft.seconds, draft.nanos) = time().map(|t| (t.seconds(), t.subsec_nanos()))?,
        Field::Seconds => draft.seconds = parse_u32(text)?.into(),
        Field::Microseconds => draft.nanos = parse_u32(text).filter(|n| *n < 1_000_000)? * 1000,
        Field::AllMicroseconds => {
            let all = args::parse_unsigned(text).ok()?;
            (draft.seconds, draft.nanos) = (all / 1_000_000, (all % 1_000_000) as u32 * 1000);
        }
        Field::FirstTimestamp => draft.first = Some(time()?),
        Field::Count => draft.extra_packets = parse_u32(text)?.saturating_sub(1),
        Field::Paint | Field::Direction => {
            draft.paint = match text {
                ">" | "L" => 0,
                "<" | "R" | "X" => 1,
                // An annotation of one byte holds the lowest byte.
                _ => parse_u32(text)? as u8,
            }
        }
        Field::Aggregate => draft.aggregate = parse_u32(text)?,
        _ => draft.wanted = parse_u32(text)? as usize,
    }
    Some(())
}

fn apply_link(draft: &mut PacketDraft, field: Field, text: &str, names: &Names) -> Option<()> {
    let address = || EtherAddr::parse(text, names).ok();
    let (at, bytes) = match field {
        Field::EtherSource => (6, address()?.0.to_vec()),
        Field::EtherDestination => (0, address()?.0.to_vec()),
        _ => (12, u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()?.to_be_bytes().to_vec()),
    };
    draft.make_link();
    draft.write_bytes(at, &bytes);
    if at == 12 && bytes != [0x08, 0x00] && bytes != [0x86, 0xdd] {
        draft.may_be_ip = false;
    }
    Some(())
}

fn apply_network(draft: &mut PacketDraft, field: Field, text: &str, names: &Names) -> Option<()> {
    let address = || Ipv4Addr::parse(text, names).ok().map(|address| address.octets().to_vec());
    let (at, bytes) = match field {
        Field::Source => (12, address()?),
        Field::Destination => (16, address()?),
        Field::Fragment | Field::FragmentOffset => (6, parse_fragment(draft, text)?.to_be_bytes().to_vec()),
        Field::Id => (4, parse_u16(text)?.to_vec()),
        Field::Checksum => (10, parse_u16(text)?.to_vec()),
        Field::Ttl => (8, vec![parse_u8(text)?]),
        Field::Protocol => (9, vec![parse_protocol(text)?]),
        Field::Tos => (1, vec![parse_u8(text)?]),
        _ => return apply_service(draft, field, text),
    };
    if draft.make_ip(0) {
        draft.write_ip(at, &bytes);
    }
    Some(())
}

/// The parts of the type of service.
fn apply_service(draft: &mut PacketDraft, field: Field, text: &str) -> Option<()> {
    let (mask, bits) = match field {
        Field::Dscp => (0xfc, parse_u8(text)? << 2),
        _ => (0x03, parse_ecn(text)?),
    };
    if draft.make_ip(0) {
        let old = draft.bytes[draft.link + 1];
        draft.write_ip(1, &[old & !mask | bits & mask]);
    }
    Some(())
}

fn parse_ecn(text: &str) -> Option<u8> {
    match text {
        "no" | "0" => Some(0),
        "ect1" | "ECT(1)" | "1" => Some(1),
        "ect2" | "ECT(0)" | "2" => Some(2),
        "ce" | "CE" | "3" => Some(3),
        _ => None,
    }
}

/// A protocol as summaries have it.
fn parse_protocol(text: &str) -> Option<u8> {
    match text {
        "T" => Some(TCP),
        "U" => Some(UDP),
        "I" => Some(ICMP),
        _ => parse_u8(text),
    }
}

fn parse_fragment(draft: &PacketDraft, text: &str) -> Option<u16> {
    match text {
        "." => return Some(0),
        "!" => return Some(DONT_FRAGMENT),
        "F" => return Some(MORE_FRAGMENTS),
        "f" => return Some(SOME_OFFSET),
        _ => {}
    }
    let (offset, marks) = number(text).unwrap_or((0, text));
    let offset = if draft.defaults.old_offsets { offset } else { offset >> 3 };
    let mark = |word, mark| match mark {
        '!' => Some(word | DONT_FRAGMENT),
        '+' => Some(word | MORE_FRAGMENTS),
        _ => None,
    };
    marks.chars().try_fold(u16::try_from(offset).ok()? & 0x1fff, mark)
}

/// Lengths, and options, which lengthen the header.
fn apply_header(draft: &mut PacketDraft, field: Field, text: &str) -> Option<()> {
    if field == Field::Options {
        let options = ip_options::parse_options(text).ok()?;
        draft.has_ip_options = true;
        if draft.make_ip(0) && !options.is_empty() {
            lengthen_ip(draft, 20 + options.len().next_multiple_of(4));
            draft.write_ip(20, &options);
        }
        return Some(());
    }
    let value = parse_u32(text)? as usize;
    if !draft.make_ip(0) {
        return Some(());
    }
    match field {
        Field::Length => draft.wanted = draft.link + value,
        Field::HeaderLength if value < 256 => {
            draft.has_ip_options = true;
            let len = value.next_multiple_of(4);
            lengthen_ip(draft, len.min(60));
            draft.write_ip(0, &[0x40 | (len / 4) as u8 & 0xf]);
        }
        Field::HeaderLength => return None,
        _ => {}
    }
    Some(())
}

/// Extends the IP header to `len` bytes.
fn lengthen_ip(draft: &mut PacketDraft, len: usize) {
    if len > draft.ip_header_len() {
        draft.grow_to(draft.link + len);
        draft.transport = draft.link + len;
        draft.write_ip(0, &[0x40 | (len / 4) as u8]);
    }
}

fn apply_transport(draft: &mut PacketDraft, field: Field, text: &str, names: &Names) -> Option<()> {
    use Field::{
        IcmpCode, IcmpCodeName, IcmpFlow, IcmpNextMtu, IcmpSequence, IcmpType, IcmpTypeName, TcpOptions,
        TcpOptionsButTime, TcpSack,
    };
    match field {
        Field::SourcePort | Field::DestinationPort => {
            let port = parse_u16(text)?;
            if draft.make_ip(0) && draft.make_transport() && draft.may_have_ports() {
                draft.write_transport(if field == Field::SourcePort { 0 } else { 2 }, &port);
            }
        }
        Field::UdpLength => {
            let len = parse_u32(text)? as u16;
            let is_udp =
                draft.make_ip(0) && draft.make_transport() && matches!(draft.protocol(), 0 | UDP | UDP_LITE);
            if is_udp {
                draft.grow_to(draft.transport + 8);
                draft.write_transport(4, &len.to_be_bytes());
            }
        }
        IcmpType | IcmpTypeName | IcmpCode | IcmpCodeName | IcmpFlow | IcmpSequence | IcmpNextMtu => {
            return apply_icmp(draft, field, text, names);
        }
        TcpOptions => return apply_options(draft, text, OptionSet::All),
        TcpOptionsButTime => return apply_options(draft, text, OptionSet::ButTime),
        TcpSack => return apply_options(draft, text, OptionSet::Sack),
        _ => return apply_tcp(draft, field, text),
    }
    Some(())
}

fn apply_tcp(draft: &mut PacketDraft, field: Field, text: &str) -> Option<()> {
    let (at, bytes) = match field {
        Field::TcpSequence => (4, parse_u32(text)?.to_be_bytes().to_vec()),
        Field::TcpAcknowledgement => (8, parse_u32(text)?.to_be_bytes().to_vec()),
        Field::TcpWindow => (14, parse_u16(text)?.to_vec()),
        Field::TcpUrgent => (18, parse_u16(text)?.to_vec()),
        Field::TcpFlags => (12, read_flags(text)?.to_be_bytes().to_vec()),
        _ => (12, vec![parse_u8(text)?]),
    };
    if !draft.make_ip(TCP) || !draft.make_transport() {
        return Some(());
    }
    match field {
        Field::TcpFlags => {
            let offset = draft.bytes.get(draft.transport + 12).map_or(0, |byte| byte & 0xf0);
            draft.write_transport(12, &[offset | bytes[0] & 0xf, bytes[1]]);
        }
        Field::TcpOffset => {
            draft.has_tcp_options = true;
            let len = usize::from(bytes[0]).next_multiple_of(4).min(60);
            if len > draft.tcp_header_len() {
                draft.grow_to(draft.transport + len);
            }
            let flags = draft.bytes.get(draft.transport + 12).map_or(0, |byte| byte & 0xf);
            draft.write_transport(12, &[(len as u8) << 2 | flags]);
        }
        _ => draft.write_transport(at, &bytes),
    }
    Some(())
}

fn apply_options(draft: &mut PacketDraft, text: &str, which: OptionSet) -> Option<()> {
    let options = tcp_options::parse_options(text, which).ok()?;
    if !draft.make_ip(TCP) || !draft.make_transport() {
        return Some(());
    }
    draft.has_tcp_options = true;
    if !options.is_empty() {
        let len = 20 + options.len().next_multiple_of(4);
        draft.grow_to(draft.transport + len);
        let flags = draft.bytes[draft.transport + 12] & 0xf;
        let len = len.max(draft.tcp_header_len());
        draft.write_transport(12, &[(len as u8) << 2 | flags]);
        draft.write_transport(20, &options);
    }
    Some(())
}

/// Whether messages of this type have an identifier and a sequence number.
fn is_sequenced(kind: u8) -> bool {
    matches!(kind, 0 | 8 | 13..=16)
}

fn apply_icmp(draft: &mut PacketDraft, field: Field, text: &str, names: &Names) -> Option<()> {
    let (at, bytes) = match field {
        Field::IcmpType | Field::IcmpTypeName => (0, vec![IcmpTypeName::parse(text, names).ok()?.0]),
        Field::IcmpCode | Field::IcmpCodeName => {
            let code = draft.icmp_type.map_or_else(|| parse_u8(text), |kind| read_icmp_code(kind, text));
            (1, vec![code?])
        }
        Field::IcmpFlow => (4, parse_u16(text)?.to_vec()),
        _ => (6, parse_u16(text)?.to_vec()),
    };
    if !draft.make_ip(ICMP) || !draft.make_transport() {
        return Some(());
    }
    draft.grow_to(draft.transport + 8);
    let fits = match (at, field) {
        (0, _) => {
            draft.icmp_type = Some(bytes[0]);
            if matches!(bytes[0], 13 | 14) {
                draft.grow_to(draft.transport + 20);
            }
            true
        }
        (1, _) => {
            draft.icmp_code = Some(bytes[0]);
            true
        }
        (_, Field::IcmpNextMtu) => {
            draft.icmp_type.is_none_or(|t| t == 3) && draft.icmp_code.is_none_or(|c| c == 4)
        }
        _ => draft.icmp_type.is_none_or(is_sequenced),
    };
    if fits {
        draft.write_transport(at, &bytes);
    }
    Some(())
}

/// Adds the headers before the payload, as far as there are any.
fn prepare_payload(draft: &mut PacketDraft) {
    if draft.make_ip(0) {
        draft.make_transport();
    }
}

fn apply_payload(draft: &mut PacketDraft, text: &str) -> Option<()> {
    let bytes = args::string_bytes(text)?;
    prepare_payload(draft);
    if bytes.is_empty() {
        return Some(());
    }
    draft.account_payload(bytes.len());
    let start = draft.payload_start();
    draft.grow_to(start + bytes.len());
    draft.write_bytes(start, &bytes);
    Some(())
}

/// A protocol by name, number or letter.
pub(in crate::files) fn named_protocol(text: &str, names: &Names) -> Option<u8> {
    Protocol::parse(text, names).ok().map(|protocol| protocol.0).or_else(|| parse_protocol(text))
}
