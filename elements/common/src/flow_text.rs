//! Packets as people write them: `10.1.2.3:1234 > 8.8.8.8:53 udp ttl 9`.
use crate::hex::from_hex;
use artery_wire::build::{Ether, Frame, ether, ip4, ip6};
use artery_wire::{EtherAddr, TcpFlags};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How packets are written, for messages.
const FLOW: &str = "ADDRESS[:PORT] > ADDRESS[:PORT] [udp|tcp|icmp|proto N] [syn] [ack] [fin] [rst] [ttl N] \
                    [len N] [df] [to ETHER], or frame HEX";

/// The error about an invalid text: where, what, and the remedy.
type ParseError = String;

/// A packet that was described.
#[derive(Debug, PartialEq, Eq)]
pub enum PacketSpec {
    /// A packet described by its header fields.
    Flow(FlowSpec),
    /// By all bytes of its frame.
    Frame(Vec<u8>),
}

/// The described fields of a packet.
#[derive(Debug, PartialEq, Eq)]
pub struct FlowSpec {
    ends: AddressPair,
    upper: UpperLayer,
    /// The flags of TCP, if any are given.
    flags: Option<TcpFlags>,
    ttl: u8,
    /// Bytes from the IP header on, if given.
    len: Option<u16>,
    dont_fragment: bool,
    /// The destination MAC address of the frame, if it is given.
    to: Option<EtherAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressPair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpperLayer {
    Udp(u16, u16),
    Tcp(u16, u16),
    Echo,
    Protocol(u8),
}

/// An address with a port, if one is named.
type FlowEndpoint = (IpAddr, Option<u16>);

/// The options of a description, if given.
struct PacketOptions {
    protocol: Option<(String, u8)>,
    flags: Option<TcpFlags>,
    ttl: u8,
    len: Option<u16>,
    dont_fragment: bool,
    to: Option<EtherAddr>,
}

/// Parses a description of a packet.
pub fn parse_packet(text: &str) -> Result<PacketSpec, ParseError> {
    let text = text.replace('>', " > ");
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return Err(format!("which packet? write it as {FLOW}")) };
    if first == "frame" {
        return Ok(PacketSpec::Frame(parse_hex(&words.collect::<String>())?));
    }
    let source = parse_endpoint(first)?;
    match words.next() {
        Some(">") => {}
        Some(word) => return Err(format!("'{word}' stands where '>' is expected: write {FLOW}")),
        None => return Err(format!("where to? write {FLOW}")),
    }
    let destination =
        parse_endpoint(words.next().ok_or_else(|| format!("no destination behind '>': write {FLOW}"))?)?;
    let options = parse_options(words)?;
    let ends = pair_addresses(source.0, destination.0)?;
    let upper = upper_layer(source.1.zip(destination.1), (source.1.or(destination.1)).is_some(), &options)?;
    let PacketOptions { flags, ttl, len, dont_fragment, to, .. } = options;
    if flags.is_some() && !matches!(upper, UpperLayer::Tcp(..)) {
        return Err("syn, ack, fin, rst: only TCP has them; say tcp, too".into());
    }
    if dont_fragment && matches!(ends, AddressPair::V6(..)) {
        return Err("df: no router cuts IPv6 packets in any case; leave it out".into());
    }
    Ok(PacketSpec::Flow(FlowSpec { ends, upper, flags, ttl, len, dont_fragment, to }))
}

/// `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1` or `[2001:db8::1]:53`.
fn parse_endpoint(word: &str) -> Result<FlowEndpoint, ParseError> {
    if let Ok(address) = word.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok((address, None));
    }
    match word.parse::<SocketAddr>() {
        Ok(end) => Ok((end.ip(), Some(end.port()))),
        Err(_) => Err(format!(
            "'{word}' is not a valid address: write 192.0.2.1, 192.0.2.1:53, 2001:db8::1 or [2001:db8::1]:53"
        )),
    }
}

fn pair_addresses(source: IpAddr, destination: IpAddr) -> Result<AddressPair, ParseError> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(AddressPair::V4(source, destination)),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Ok(AddressPair::V6(source, destination)),
        _ => Err(format!(
            "{source} and {destination} are of different families: no packet has both; take two of one"
        )),
    }
}

fn parse_options<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<PacketOptions, ParseError> {
    let mut options =
        PacketOptions { protocol: None, flags: None, ttl: 64, len: None, dont_fragment: false, to: None };
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("'{word}' is the last word; its value is missing"));
        match word {
            "udp" => options.protocol = Some((word.into(), 17)),
            "tcp" => options.protocol = Some((word.into(), 6)),
            "icmp" | "icmp6" | "icmpv6" => options.protocol = Some((word.into(), 1)),
            "syn" => options.add_flag(TcpFlags::SYN),
            "ack" => options.add_flag(TcpFlags::ACK),
            "fin" => options.add_flag(TcpFlags::FIN),
            "rst" => options.add_flag(TcpFlags::RST),
            "proto" => options.protocol = Some((word.into(), parse_number(word, value()?)?)),
            "ttl" | "hlim" => options.ttl = parse_number(word, value()?)?,
            "len" => options.len = Some(parse_number(word, value()?)?),
            "df" => options.dont_fragment = true,
            "to" => options.to = Some(parse_mac(value()?)?),
            _ => return Err(format!("'{word}' means nothing here: write {FLOW}")),
        }
    }
    Ok(options)
}

impl PacketOptions {
    fn add_flag(&mut self, flag: TcpFlags) {
        self.flags = Some(self.flags.unwrap_or_default() | flag);
    }
}

fn parse_number<T: std::str::FromStr>(word: &str, value: &str) -> Result<T, ParseError> {
    let most = (1u128 << (8 * size_of::<T>())) - 1;
    value.parse().map_err(|_| format!("{word} {value}: not a number from 0 to {most}"))
}

fn parse_mac(word: &str) -> Result<EtherAddr, ParseError> {
    word.parse().map_err(|_| format!("to {word}: no Ethernet address; write it as 02:00:00:00:00:01"))
}

fn upper_layer(
    ports: Option<(u16, u16)>,
    has_port: bool,
    options: &PacketOptions,
) -> Result<UpperLayer, ParseError> {
    let said = options.protocol.as_ref().map(|(word, number)| (word.as_str(), *number));
    let missing = |word| format!("{word}: both ends need a port, as in 192.0.2.1:1234 > 192.0.2.9:53 {word}");
    match (said, ports) {
        (Some(("udp", _)), Some((from, to))) => Ok(UpperLayer::Udp(from, to)),
        (None, Some((from, to))) => Ok(UpperLayer::Udp(from, to)),
        (Some(("tcp", _)), Some((from, to))) => Ok(UpperLayer::Tcp(from, to)),
        (Some((word @ ("udp" | "tcp"), _)), None) => Err(missing(word)),
        (None, None) if has_port => Err(missing("udp")),
        (Some((word, _)), _) if has_port => {
            Err(format!("{word} has no ports: leave them out, or say udp or tcp"))
        }
        (Some(("proto", number)), _) => Ok(UpperLayer::Protocol(number)),
        (Some(_), _) | (None, None) => Ok(UpperLayer::Echo),
    }
}

fn parse_hex(text: &str) -> Result<Vec<u8>, ParseError> {
    from_hex(text).map_err(|why| format!("frame: {why}"))
}

impl FlowSpec {
    /// The same, with these flags of TCP if none are given; otherwise it is a SYN then.
    pub fn with_default_flags(self, flags: TcpFlags) -> FlowSpec {
        FlowSpec { flags: self.flags.or(Some(flags)), ..self }
    }

    /// The frame to this MAC address, or to the broadcast or group address if the destination requires that.
    pub fn build_frame(&self, station: EtherAddr, from: EtherAddr) -> Result<Vec<u8>, ParseError> {
        let to = self.to.unwrap_or_else(|| self.ends.destination_mac(station));
        let bare = self.frame_with(ether(to, from), &[]);
        let headers = bare.bytes().len() - 14;
        let Some(len) = self.len else { return Ok(bare.into()) };
        match usize::from(len).checked_sub(headers) {
            Some(more) => Ok(self.frame_with(ether(to, from), &vec![0; more]).into()),
            None => {
                Err(format!("len {len}: shorter than the headers of such a packet; take {headers} or more"))
            }
        }
    }

    fn frame_with(&self, link: Ether, payload: &[u8]) -> Frame {
        match self.ends {
            AddressPair::V4(source, destination) => {
                let packet = ip4().src(source).dst(destination).ttl(self.ttl);
                let packet = if self.dont_fragment { packet.dont_fragment() } else { packet };
                let flags = self.flags.unwrap_or(TcpFlags::SYN);
                link.ip4(match self.upper {
                    UpperLayer::Udp(from, to) => packet.udp(from, to).payload(payload),
                    UpperLayer::Tcp(from, to) => packet.tcp(from, to).flags(flags).payload(payload),
                    UpperLayer::Echo => packet.icmp_echo(1, 1).payload(payload),
                    UpperLayer::Protocol(number) => packet.raw(number, payload),
                })
            }
            AddressPair::V6(source, destination) => {
                let packet = ip6().src(source).dst(destination).hop_limit(self.ttl);
                let flags = self.flags.unwrap_or(TcpFlags::SYN);
                link.ip6(match self.upper {
                    UpperLayer::Udp(from, to) => packet.udp(from, to).payload(payload),
                    UpperLayer::Tcp(from, to) => packet.tcp(from, to).flags(flags).payload(payload),
                    UpperLayer::Echo => packet.icmp_echo(1, 1).payload(payload),
                    UpperLayer::Protocol(number) => packet.raw(number, payload),
                })
            }
        }
    }
}

impl AddressPair {
    fn destination_mac(self, station: EtherAddr) -> EtherAddr {
        match self {
            AddressPair::V4(_, to) if to.is_broadcast() => EtherAddr::BROADCAST,
            AddressPair::V4(_, to) if to.is_multicast() => EtherAddr::multicast_v4(to),
            AddressPair::V6(_, to) if to.is_multicast() => EtherAddr::multicast_v6(to),
            _ => station,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::{Ethernet, Ipv4, Ipv6, Udp};

    const STATION: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 1]);

    fn frame(text: &str) -> Vec<u8> {
        match parse_packet(text).unwrap() {
            PacketSpec::Flow(flow) => flow.build_frame(STATION, STATION).unwrap(),
            PacketSpec::Frame(bytes) => bytes,
        }
    }
    fn wrong(text: &str) -> String {
        match parse_packet(text) {
            Err(wrong) => wrong,
            Ok(PacketSpec::Flow(flow)) => flow.build_frame(STATION, STATION).unwrap_err(),
            Ok(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_datagram_has_the_ends_and_options_that_were_said() {
        let bytes = frame("10.1.2.3:1234 > 8.8.8.8:53 udp ttl 9 len 100 df");
        let link = Ethernet::new(&bytes[..]).unwrap();
        assert_eq!(link.dst(), STATION);
        let ip = Ipv4::new(link.payload()).unwrap();
        assert_eq!((ip.src(), ip.dst()), ([10, 1, 2, 3].into(), [8, 8, 8, 8].into()));
        assert_eq!((ip.ttl(), ip.total_length(), ip.dont_fragment(), bytes.len()), (9, 100, true, 114));
        assert!(ip.checksum_is_valid());
        let udp = Udp::new(ip.payload()).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port()), (1234, 53));
        assert_eq!(frame("10.1.2.3:1234>8.8.8.8:53"), frame("10.1.2.3:1234 > 8.8.8.8:53 udp"));
    }

    #[test]
    fn ipv6_ends_stand_in_brackets_where_ports_follow() {
        let bytes = frame("[2001:db8::1]:1 > [2001:db8::2]:2 tcp hlim 3");
        let ip = Ipv6::new(Ethernet::new(&bytes[..]).unwrap().payload()).unwrap().hop_limit();
        assert_eq!((ip, bytes.len()), (3, 14 + 40 + 20));
        assert_eq!(frame("2001:db8::1 > 2001:db8::2 icmp"), frame("[2001:db8::1] > [2001:db8::2]"));
    }

    #[test]
    fn a_segment_has_the_flags_that_were_said_or_a_syn() {
        let flags = |text: &str| frame(text)[14 + 20 + 13];
        assert_eq!(flags("10.0.0.1:1 > 10.0.0.2:2 tcp"), TcpFlags::SYN.0);
        assert_eq!(flags("10.0.0.1:1 > 10.0.0.2:2 tcp fin ack"), (TcpFlags::FIN | TcpFlags::ACK).0);
        let PacketSpec::Flow(flow) = parse_packet("10.0.0.1:1 > 10.0.0.2:2 tcp").unwrap() else { panic!() };
        let bytes = flow.with_default_flags(TcpFlags::ACK).build_frame(STATION, STATION).unwrap();
        assert_eq!(bytes[14 + 20 + 13], TcpFlags::ACK.0);
    }

    #[test]
    fn groups_and_all_are_reached_by_frames_to_them() {
        for (text, to) in [
            ("10.0.0.9 > 255.255.255.255 icmp", "ff:ff:ff:ff:ff:ff"),
            ("10.0.0.9 > 224.0.0.5 proto 89", "01:00:5e:00:00:05"),
            ("fe80::1 > ff02::2 icmp", "33:33:00:00:00:02"),
            ("10.0.0.9 > 224.0.0.5 to 02:00:00:00:00:07", "02:00:00:00:00:07"),
        ] {
            assert_eq!(Ethernet::new(&frame(text)[..]).unwrap().dst(), to.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_frame_can_be_given_byte_by_byte() {
        assert_eq!(frame("frame 0200 00:00:00:01 ab"), [2, 0, 0, 0, 0, 1, 0xab]);
        assert!(
            wrong_frame("frame 020").contains("odd number")
                && wrong_frame("frame xy").contains("hexadecimal")
        );
    }
    fn wrong_frame(text: &str) -> String {
        parse_packet(text).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_said_with_where_and_a_remedy() {
        for (text, expected) in [
            ("", "which packet? write it as "),
            ("10.0.0.1", "where to? write "),
            ("10.0.0.1 >", "no destination behind '>'"),
            ("10.0.0.1 to 10.0.0.2", "'to' stands where '>' is expected"),
            ("10.0.0 > 10.0.0.2", "'10.0.0' is not a valid address: write 192.0.2.1,"),
            ("10.0.0.1 > 2001:db8::1", "10.0.0.1 and 2001:db8::1 are of different families"),
            ("10.0.0.1 > 10.0.0.2 udp", "udp: both ends need a port, as in "),
            ("10.0.0.1:1 > 10.0.0.2", "udp: both ends need a port, as in "),
            ("10.0.0.1:1 > 10.0.0.2:2 icmp", "icmp has no ports: leave them out"),
            ("10.0.0.1 > 10.0.0.2 ttl 256", "ttl 256: not a number from 0 to 255"),
            ("10.0.0.1 > 10.0.0.2 ttl", "'ttl' is the last word; its value is missing"),
            ("10.0.0.1 > 10.0.0.2 fast", "'fast' means nothing here: write "),
            (
                "10.0.0.1 > 10.0.0.2 len 20",
                "len 20: shorter than the headers of such a packet; take 28 or more",
            ),
            ("10.0.0.1 > 10.0.0.2 len 70000", "len 70000: not a number from 0 to 65535"),
            ("10.0.0.1:1 > 10.0.0.2:2 udp syn", "syn, ack, fin, rst: only TCP has them"),
            ("2001:db8::1 > 2001:db8::2 df", "df: no router cuts IPv6 packets"),
            ("10.0.0.1 > 10.0.0.2 to me", "to me: no Ethernet address; write it as "),
        ] {
            assert!(wrong(text).starts_with(expected), "{text}: {}", wrong(text));
        }
    }
}
