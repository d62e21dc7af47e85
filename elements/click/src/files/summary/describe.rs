//! A packet as columns of a summary.
use super::{Field, ip_options, tcp_options};
use super::{flags_text, has_ports, long, word};
use crate::ether::ether_text::format_dashed;
use crate::ip::name;
use artery_engine::{Packet, Time, anno};
use artery_lang::args::quote_bytes;
use artery_wire::EtherAddr;
use std::net::Ipv4Addr;

#[derive(Clone, Copy)]
pub(in crate::files) struct SummaryOptions {
    /// Whether the extra length annotation counts as data.
    pub(in crate::files) extra_length: bool,
    /// Whether an IP length beyond the packet's end is reported as an error.
    pub(in crate::files) careful: bool,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const UDP_LITE: u8 = 136;
const MIN_IP: usize = 20;

/// The headers of a packet, with all bounds checked.
struct PacketView<'a> {
    packet: &'a Packet,
    /// Bytes behind the end of the IP packet.
    pad: usize,
    /// From the IP header to the end of the IP packet; none unless the header is sound as far as it is there.
    ip: Option<&'a [u8]>,
    /// What follows the IP header.
    transport: Option<&'a [u8]>,
    /// The IP protocol of `transport`, if its header is present and the packet is a first fragment.
    protocol: Option<u8>,
    extra: u32,
    manner: SummaryOptions,
    /// The first error found in the packet.
    fault: Option<String>,
}

/// The columns with blanks between, and the error of the packet. Afterwards the packet's extra length
/// annotation is the length missing from its headers.
pub(in crate::files) fn describe_packet(
    packet: &mut Packet,
    fields: &[Field],
    manner: SummaryOptions,
) -> (String, Option<String>) {
    let needs_headers = fields.iter().any(|field| field.rank() >= 290);
    let mut view = PacketView::new(packet, manner, needs_headers);
    let columns: Vec<String> =
        fields.iter().map(|field| view.format_column(*field).unwrap_or_else(|| "-".into())).collect();
    let (extra, fault) = (view.extra, view.fault);
    packet.set_annotation(anno::EXTRA_LENGTH, extra.to_ne_bytes());
    (columns.join(" "), fault)
}

impl<'a> PacketView<'a> {
    fn new(packet: &'a Packet, manner: SummaryOptions, needs_headers: bool) -> PacketView<'a> {
        let extra = u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH));
        let mut view = PacketView {
            packet,
            pad: 0,
            ip: None,
            transport: None,
            protocol: None,
            extra,
            manner,
            fault: None,
        };
        if needs_headers {
            view.find_ip();
            view.find_transport();
            // From here on, lengths are those in the header.
            if view.ip.is_some() {
                view.extra = 0;
            }
        }
        view
    }

    fn is_bad(&mut self, what: impl Into<String>) {
        self.fault.get_or_insert_with(|| what.into());
    }

    fn find_ip(&mut self) {
        let Some(bytes) = self.packet.network() else { return };
        let Some(&[first, _, high, low]) = bytes.first_chunk() else {
            return self.is_bad("truncated IP header");
        };
        let (version, header, length) =
            (first >> 4, usize::from(first & 0xf) * 4, usize::from(u16::from_be_bytes([high, low])));
        if version != 4 {
            return self.is_bad(format!("IP version {version}"));
        }
        if header < MIN_IP {
            return self.is_bad(format!("IP header length {}", header / 4));
        }
        if length < header {
            return self.is_bad(format!("IP length {length}"));
        }
        let there = bytes.len() + self.extra as usize;
        if self.manner.careful && there < length {
            self.is_bad(format!("truncated IP missing {}", length - there));
        }
        self.pad = bytes.len().saturating_sub(length);
        self.ip = Some(&bytes[..bytes.len() - self.pad]);
    }

    fn find_transport(&mut self) {
        let Some(ip) = self.ip else { return };
        let transport = self.packet.transport();
        self.transport = transport.map(|bytes| &bytes[..bytes.len().saturating_sub(self.pad)]);
        let header = usize::from(ip[0] & 0xf) * 4;
        if ip.len() <= header || !is_first_fragment(ip) {
            return;
        }
        let offset =
            self.transport.filter(|_| ip[9] == TCP).and_then(|tcp| tcp.get(12)).map(|byte| byte >> 4);
        if let Some(offset @ ..5) = offset {
            return self.is_bad(format!("TCP header length {offset}"));
        }
        self.protocol = self.transport.map(|_| ip[9]);
    }

    /// The IP header, when `n` bytes of it are there.
    fn ip_header(&mut self, n: usize) -> Option<&'a [u8]> {
        match self.ip {
            Some(ip) if ip.len() >= n => Some(ip),
            Some(_) => {
                self.is_bad("truncated IP header capture");
                None
            }
            None => {
                self.is_bad("no IP header");
                None
            }
        }
    }

    /// The header of `protocol`, when the packet has it and `n` bytes of it are there.
    fn transport_header(&mut self, protocol: u8, n: usize) -> Option<&'a [u8]> {
        let bytes = self.transport.filter(|_| self.protocol == Some(protocol));
        let found = bytes.filter(|bytes| bytes.len() >= n);
        if found.is_none() {
            let name = match protocol {
                TCP => "TCP",
                UDP => "UDP",
                _ => "ICMP",
            };
            self.report_missing(name, |other| other == protocol, n);
        }
        found
    }

    /// Reports a missing header, unless the packet is of another protocol.
    fn report_missing(&mut self, name: &str, is_meant: impl Fn(u8) -> bool, n: usize) {
        let Some(ip) = self.ip else { return self.is_bad("no IP header") };
        if ip.get(9).is_some_and(|protocol| !is_meant(*protocol)) {
            return;
        }
        let there = self.transport.map_or(0, <[u8]>::len) + self.extra as usize;
        match () {
            () if !is_first_fragment(ip) => self.is_bad(format!("fragmented {name} header")),
            () if there >= n => self.is_bad(format!("truncated {name} header capture")),
            () => self.is_bad(format!("truncated {name} header")),
        }
    }

    /// A column; none where it does not apply.
    fn format_column(&mut self, field: Field) -> Option<String> {
        match field {
            Field::None => None,
            Field::EtherSource | Field::EtherDestination | Field::EtherType => self.format_link(field),
            Field::PayloadLength => Some(self.payload_length().to_string()),
            Field::Payload => self.payload_bytes().map(quote_bytes),
            Field::PayloadMd5 => self.payload_bytes().map(|bytes| to_letters(md5::compute(bytes).0)),
            Field::PayloadMd5Hex => self.payload_bytes().map(|bytes| format!("{:x}", md5::compute(bytes))),
            field if field.rank() < 200 => Some(self.format_annotation(field)),
            field if field.rank() < 400 || field == Field::CaptureLength => self.format_network(field),
            field => self.transport_column(field),
        }
    }

    fn format_annotation(&self, field: Field) -> String {
        let time = self.packet.timestamp();
        let number = |at| u32::from_ne_bytes(self.packet.annotation(at));
        let [paint] = self.packet.annotation(anno::PAINT);
        match field {
            Field::Timestamp => time.to_string(),
            Field::Seconds => time.seconds().to_string(),
            Field::Microseconds => (time.subsec_nanos() / 1000).to_string(),
            Field::AllMicroseconds => (time.0 / 1000).to_string(),
            Field::FirstTimestamp => first_timestamp(self.packet).to_string(),
            Field::Count => (u64::from(number(anno::EXTRA_PACKETS)) + 1).to_string(),
            Field::Direction if paint == 0 => ">".into(),
            Field::Direction if paint == 1 => "<".into(),
            Field::Paint | Field::Direction => paint.to_string(),
            Field::Aggregate => number(anno::AGGREGATE).to_string(),
            _ => self.packet.len().to_string(),
        }
    }

    fn format_link(&mut self, field: Field) -> Option<String> {
        let end = self.packet.len() as isize;
        let network = self.packet.network_offset().unwrap_or(end);
        let start = self.packet.mac_offset().or((network > 0).then_some(0));
        if start.is_none_or(|start| start + 14 != network) {
            self.is_bad("Ethernet header");
            return None;
        }
        let header = self.packet.mac().or(Some(self.packet.data()))?;
        let address =
            |at: usize| header.get(at..)?.first_chunk().map(|bytes| format_dashed(EtherAddr(*bytes)));
        match field {
            Field::EtherSource => address(6),
            Field::EtherDestination => address(0),
            _ => Some(format!("{:04X}", word(header, 12))),
        }
    }

    fn format_network(&mut self, field: Field) -> Option<String> {
        let address = |ip: &[u8], at| Ipv4Addr::from(long(ip, at)).to_string();
        Some(match field {
            Field::Length => {
                let length = self.ip.map_or(self.packet.len() as u32, |ip| word(ip, 2).into());
                let extra = if self.manner.extra_length { self.extra } else { 0 };
                length.wrapping_add(extra).to_string()
            }
            Field::CaptureLength => {
                self.ip.map_or(self.packet.len(), |ip| ip.len().min(word(ip, 2).into())).to_string()
            }
            Field::Source => address(self.ip_header(16)?, 12),
            Field::Destination => address(self.ip_header(20)?, 16),
            Field::Tos => self.ip_header(2)?[1].to_string(),
            Field::Dscp => (self.ip_header(2)?[1] >> 2).to_string(),
            Field::Ecn => ["no", "ect1", "ect2", "ce"][usize::from(self.ip_header(2)?[1] & 3)].into(),
            Field::Ttl => self.ip_header(9)?[8].to_string(),
            Field::Fragment => fragment_text(word(self.ip_header(8)?, 6)).into(),
            Field::FragmentOffset => fragment_offset(word(self.ip_header(8)?, 6)),
            Field::Id => word(self.ip_header(6)?, 4).to_string(),
            Field::Checksum => word(self.ip_header(12)?, 10).to_string(),
            Field::HeaderLength => ((self.ip_header(1)?[0] & 0xf) * 4).to_string(),
            Field::Protocol => match self.ip_header(10)?[9] {
                TCP => "T".into(),
                UDP => "U".into(),
                ICMP => "I".into(),
                other => other.to_string(),
            },
            _ => {
                let header = self.ip.map_or(MIN_IP, |ip| usize::from(ip[0] & 0xf) * 4);
                let ip = if header > MIN_IP { self.ip_header(header)? } else { self.ip_header(0)? };
                ip_options::format_options(ip.get(MIN_IP..header).unwrap_or(&[]))
            }
        })
    }

    fn transport_column(&mut self, field: Field) -> Option<String> {
        use tcp_options::OptionSet;
        Some(match field {
            Field::SourcePort => self.read_port(0)?.to_string(),
            Field::DestinationPort => self.read_port(2)?.to_string(),
            Field::TcpSequence => long(self.transport_header(TCP, 8)?, 4).to_string(),
            Field::TcpAcknowledgement => long(self.transport_header(TCP, 12)?, 8).to_string(),
            Field::TcpOffset => (self.transport_header(TCP, 13)?[12] >> 4 << 2).to_string(),
            Field::TcpFlags => flags_text(word(self.transport_header(TCP, 14)?, 12) & 0x1ff),
            Field::TcpWindow => word(self.transport_header(TCP, 16)?, 14).to_string(),
            Field::TcpUrgent => word(self.transport_header(TCP, 20)?, 18).to_string(),
            Field::TcpOptions => tcp_options::format_options(self.tcp_options()?, OptionSet::All),
            Field::TcpOptionsButTime => tcp_options::format_options(self.tcp_options()?, OptionSet::ButTime),
            Field::TcpSack => tcp_options::format_options(self.tcp_options()?, OptionSet::Sack),
            Field::UdpLength => word(self.transport_header(UDP, 6)?, 4).to_string(),
            _ => return self.format_icmp(field),
        })
    }

    fn read_port(&mut self, at: usize) -> Option<u16> {
        let bytes =
            self.transport.filter(|bytes| bytes.len() >= at + 2 && self.protocol.is_some_and(has_ports));
        if bytes.is_none() {
            self.report_missing("TCP/UDP", |protocol| matches!(protocol, TCP | UDP), at + 2);
        }
        bytes.map(|bytes| word(bytes, at))
    }

    fn tcp_options(&mut self) -> Option<&'a [u8]> {
        let len = self.transport.map_or(0, <[u8]>::len);
        let header = self.transport_header(TCP, 13)?;
        let end = usize::from(header[12] >> 4) * 4;
        if end <= 20 {
            return Some(&[]);
        }
        let options = header.get(20..end);
        if options.is_none() {
            self.report_missing("TCP", |protocol| protocol == TCP, len + 1);
        }
        options
    }

    fn format_icmp(&mut self, field: Field) -> Option<String> {
        let header = self.transport_header(ICMP, 1)?;
        let kind = header[0];
        let is_sequenced = matches!(kind, 0 | 8 | 13..=16);
        Some(match field {
            Field::IcmpType => kind.to_string(),
            Field::IcmpTypeName => name::icmp_type(kind).map_or_else(|| kind.to_string(), str::to_string),
            Field::IcmpCode => self.transport_header(ICMP, 2)?[1].to_string(),
            Field::IcmpCodeName => {
                let code = self.transport_header(ICMP, 2)?[1];
                name::icmp_code(kind, code).map_or_else(|| code.to_string(), str::to_string)
            }
            Field::IcmpFlow if is_sequenced => word(self.transport_header(ICMP, 6)?, 4).to_string(),
            Field::IcmpSequence if is_sequenced => word(self.transport_header(ICMP, 8)?, 6).to_string(),
            Field::IcmpNextMtu if kind == 3 && self.transport_header(ICMP, 2)?[1] == 4 => {
                word(self.transport_header(ICMP, 8)?, 6).to_string()
            }
            _ => return None,
        })
    }

    fn payload_length(&self) -> u32 {
        let counts = self.ip.is_none() || self.manner.extra_length;
        self.payload_range().1.wrapping_add(if counts { self.extra } else { 0 })
    }

    /// The payload, as far as it is present; None without any.
    fn payload_bytes(&self) -> Option<&'a [u8]> {
        let (start, len) = self.payload_range();
        if len == 0 {
            return Some(&[]);
        }
        let data = self.packet.data();
        let rest = data[..data.len() - self.pad].get(start..).filter(|rest| !rest.is_empty())?;
        Some(&rest[..rest.len().min(len as usize)])
    }

    /// Where the payload begins, and its length by the IP header.
    fn payload_range(&self) -> (usize, u32) {
        let (Some(ip), Some(network)) = (self.ip, self.packet.network_offset()) else {
            return (0, (self.packet.len() - self.pad) as u32);
        };
        let header = usize::from(ip[0] & 0xf) * 4;
        let transport = self.packet.transport_offset().unwrap_or(network + header as isize);
        let own = match ip.get(9) {
            Some(&TCP) if is_first_fragment(ip) => {
                let offset =
                    self.transport.and_then(|tcp| tcp.get(12)).map(|byte| usize::from(byte >> 4) * 4);
                offset.filter(|offset| *offset >= 20).unwrap_or(20)
            }
            Some(&(UDP | UDP_LITE)) if is_first_fragment(ip) => 8,
            _ => 0,
        };
        let start = transport + own as isize;
        let len = u32::from(word(ip, 2)).wrapping_sub((start - network) as u32);
        (usize::try_from(start).unwrap_or(0), len)
    }
}

fn is_first_fragment(ip: &[u8]) -> bool {
    word(ip, 6) & 0x1fff == 0
}

fn fragment_text(word: u16) -> &'static str {
    match (word & 0x1fff, word & 0x2000 != 0, word & 0x4000 != 0) {
        (0, true, _) => "F",
        (0, false, true) => "!",
        (0, false, false) => ".",
        _ => "f",
    }
}

fn fragment_offset(word: u16) -> String {
    let more = if word & 0x2000 != 0 { "+" } else { "" };
    let whole = if word & 0x4000 != 0 { "!" } else { "" };
    format!("{}{more}{whole}", u32::from(word & 0x1fff) * 8)
}

/// The annotation with the time of the first of the packets that this one stands for.
pub(in crate::files) fn first_timestamp(packet: &Packet) -> Time {
    Time(u64::from_ne_bytes(packet.annotation(anno::FIRST_TIMESTAMP)))
}

/// A digest in 22 letters, digits, `_` and `@`: six bits each, the lowest first.
fn to_letters(digest: [u8; 16]) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";
    let number = u128::from_le_bytes(digest);
    let letter = |n: u32| char::from(LETTERS[(number >> (6 * n) & 63) as usize]);
    (0..22).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_six_bits_each_from_the_lowest_on() {
        let mut digest = [0; 16];
        digest[0] = 0b1100_0001;
        digest[15] = 0xff;
        assert_eq!(to_letters(digest), "bdaaaaaaaaaaaaaaaaaa@d");
    }
}
