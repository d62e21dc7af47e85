//! One line of text for a frame or packet, much as tcpdump writes it.
//!
//! ```
//! use artery_wire::{build::ip4, describe::packet};
//! let bytes = ip4().src("10.0.0.1").dst("10.0.0.2").udp(1234, 53).payload([0; 20]).bytes();
//! assert_eq!(packet(&bytes).to_string(), "IP 10.0.0.1.1234 > 10.0.0.2.53: UDP, length 20");
//! ```

mod icmp6;

use std::fmt::{self, Display, Formatter};

use crate::bytes::clamped_slice;
use crate::{
    Arp, EtherType, Ethernet, Icmp, Icmp6, IcmpType, Ip6Fragment, Ip6Headers, IpProtocol, Ipv4, Ipv6, Tcp,
    TcpFlags, Udp,
};

/// Describes an Ethernet frame: its addresses and tags, then what it carries.
pub fn frame(bytes: &[u8]) -> impl Display + '_ {
    Described(bytes, write_frame)
}

/// Describes an IP packet of either version.
pub fn packet(bytes: &[u8]) -> impl Display + '_ {
    Described(bytes, write_packet)
}

const HEADER: usize = Ipv6::<&[u8]>::LEN;

type Writer = fn(&mut Formatter<'_>, &[u8]) -> fmt::Result;

struct Described<'a>(&'a [u8], Writer);

impl Display for Described<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.1)(f, self.0)
    }
}

fn write_frame(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let Ok(frame) = Ethernet::new(bytes) else {
        return write!(f, "truncated Ethernet, length {}", bytes.len());
    };
    write!(f, "{} > {}, ", frame.src(), frame.dst())?;
    for tag in [frame.vlan(), frame.inner_vlan()].into_iter().flatten() {
        write!(f, "vlan {}, ", tag.id())?;
    }
    match frame.payload_type() {
        EtherType::IPV4 => write_ipv4(f, frame.payload()),
        EtherType::IPV6 => write_ipv6(f, frame.payload()),
        EtherType::ARP => write_arp(f, frame.payload()),
        EtherType(other) => write!(f, "ethertype 0x{other:04x}, length {}", frame.payload().len()),
    }
}

fn write_packet(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match bytes.first() {
        Some(first) if first >> 4 == 4 => write_ipv4(f, bytes),
        Some(first) if first >> 4 == 6 => write_ipv6(f, bytes),
        _ => write!(f, "not IP, length {}", bytes.len()),
    }
}

fn write_arp(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let arp = match Arp::new(bytes) {
        Ok(arp) => arp,
        Err(why) => return write!(f, "ARP, {why}, length {}", bytes.len()),
    };
    if arp.is_request() {
        write!(f, "ARP, Request who-has {} tell {}", arp.target_ip(), arp.sender_ip())
    } else if arp.is_reply() {
        write!(f, "ARP, Reply {} is-at {}", arp.sender_ip(), arp.sender_ether())
    } else {
        write!(f, "ARP, operation {}", arp.operation().0)
    }
}

fn write_ipv4(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let ip = match Ipv4::new(bytes) {
        Ok(ip) => ip,
        Err(why) => return write!(f, "IP, {why}, length {}", bytes.len()),
    };
    let (src, dst) = (ip.src(), ip.dst());
    if ip.fragment_offset() > 0 {
        write!(f, "IP {src} > {dst}: ")?;
        write_protocol_and_length(f, ip.protocol(), ip.payload().len())?;
    } else {
        write_upper(f, &Endpoints { version: "IP", src: &src, dst: &dst }, ip.protocol(), ip.payload())?;
    }
    write_fragment(f, &ip)?;
    if usize::from(ip.total_length()) > bytes.len() { f.write_str(" (cut short)") } else { Ok(()) }
}

fn write_ipv6(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let ip = match Ipv6::new(bytes) {
        Ok(ip) => ip,
        Err(why) => return write!(f, "IP6, {why}, length {}", bytes.len()),
    };
    let ends = Endpoints { version: "IP6", src: &ip.src(), dst: &ip.dst() };
    match Ip6Headers::parse_packet(bytes) {
        Ok(headers) => write_behind(
            f,
            &ends,
            &headers,
            clamped_slice(bytes, headers.offset, HEADER + ip.payload().len()),
        )?,
        Err(fault) => {
            ends.write_addresses(f)?;
            write!(f, "{fault}, length {}", ip.payload().len())?;
        }
    }
    if ip.check_payload_length().is_err() { f.write_str(" (cut short)") } else { Ok(()) }
}

/// Writes what extension headers lead to.
fn write_behind(
    f: &mut Formatter<'_>,
    ends: &Endpoints<'_>,
    headers: &Ip6Headers<'_>,
    bytes: &[u8],
) -> fmt::Result {
    if headers.is_later_fragment() {
        ends.write_addresses(f)?;
        write_protocol_and_length(f, headers.protocol, bytes.len())?;
    } else {
        write_upper(f, ends, headers.protocol, bytes)?;
    }
    match headers.fragment {
        Some(Ip6Fragment { id, offset, more, .. }) => {
            write!(f, " (frag {id}:{}@{offset}{})", bytes.len(), if more { "+" } else { "" })
        }
        None => Ok(()),
    }
}

/// Writes identification, offset and a plus sign when more fragments follow.
fn write_fragment(f: &mut Formatter<'_>, ip: &Ipv4<&[u8]>) -> fmt::Result {
    if !ip.is_fragment() {
        return Ok(());
    }
    let more = if ip.more_fragments() { "+" } else { "" };
    write!(f, " (frag {}:{}@{}{more})", ip.id(), ip.payload().len(), ip.fragment_offset())
}

/// Source and destination of a packet.
struct Endpoints<'a> {
    version: &'a str,
    src: &'a dyn Display,
    dst: &'a dyn Display,
}

impl Endpoints<'_> {
    fn write_addresses(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} > {}: ", self.version, self.src, self.dst)
    }

    fn write_with_ports(&self, f: &mut Formatter<'_>, src_port: u16, dst_port: u16) -> fmt::Result {
        write!(f, "{} {}.{src_port} > {}.{dst_port}: ", self.version, self.src, self.dst)
    }
}

fn write_upper(
    f: &mut Formatter<'_>,
    ends: &Endpoints<'_>,
    protocol: IpProtocol,
    bytes: &[u8],
) -> fmt::Result {
    match protocol {
        IpProtocol::UDP => {
            if let Ok(udp) = Udp::new(bytes) {
                return write_udp(f, ends, &udp);
            }
        }
        IpProtocol::TCP => {
            if let Ok(tcp) = Tcp::new(bytes) {
                return write_tcp(f, ends, &tcp);
            }
        }
        IpProtocol::ICMP => {
            if let Ok(icmp) = Icmp::new(bytes) {
                return write_icmp(f, ends, &icmp, bytes.len());
            }
        }
        IpProtocol::ICMPV6 => {
            if let Ok(icmp) = Icmp6::new(bytes) {
                return icmp6::write_icmp6(f, ends, bytes, &icmp);
            }
        }
        _ => {}
    }
    ends.write_addresses(f)?;
    write_protocol_and_length(f, protocol, bytes.len())
}

/// The length is the datagram's own, as the header says: the bytes of a first fragment hold less.
fn write_udp(f: &mut Formatter<'_>, ends: &Endpoints<'_>, udp: &Udp<&[u8]>) -> fmt::Result {
    ends.write_with_ports(f, udp.src_port(), udp.dst_port())?;
    match usize::from(udp.length()).checked_sub(Udp::<&[u8]>::LEN) {
        Some(length) => write!(f, "UDP, length {length}"),
        None => write!(f, "UDP, bad length {}", udp.length()),
    }
}

fn write_tcp(f: &mut Formatter<'_>, ends: &Endpoints<'_>, tcp: &Tcp<&[u8]>) -> fmt::Result {
    let (flags, length) = (tcp.flags(), tcp.payload().len());
    ends.write_with_ports(f, tcp.src_port(), tcp.dst_port())?;
    write!(f, "Flags [{flags}]")?;
    if length > 0 {
        write!(f, ", seq {}:{}", tcp.seq(), tcp.seq().wrapping_add(length as u32))?;
    } else if flags.intersects(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST) {
        write!(f, ", seq {}", tcp.seq())?;
    }
    if flags.contains(TcpFlags::ACK) {
        write!(f, ", ack {}", tcp.ack())?;
    }
    write!(f, ", win {}, length {length}", tcp.window())
}

fn write_icmp(f: &mut Formatter<'_>, ends: &Endpoints<'_>, icmp: &Icmp<&[u8]>, length: usize) -> fmt::Result {
    ends.write_addresses(f)?;
    f.write_str("ICMP ")?;
    match icmp.icmp_type() {
        IcmpType::ECHO_REQUEST => write!(f, "echo request, id {}, seq {}", icmp.echo_id(), icmp.echo_seq())?,
        IcmpType::ECHO_REPLY => write!(f, "echo reply, id {}, seq {}", icmp.echo_id(), icmp.echo_seq())?,
        _ => write_icmp_error(f, icmp)?,
    }
    write!(f, ", length {length}")
}

fn write_icmp_error(f: &mut Formatter<'_>, icmp: &Icmp<&[u8]>) -> fmt::Result {
    let [a, b, c, d] = icmp.rest();
    match (icmp.icmp_type(), icmp.code(), Ipv4::new(icmp.payload())) {
        (IcmpType::UNREACHABLE, code, Ok(quoted)) => write_unreachable(f, code, [c, d], &quoted),
        (IcmpType::REDIRECT, _, Ok(quoted)) => write!(f, "redirect {} to {a}.{b}.{c}.{d}", quoted.dst()),
        (IcmpType::TIME_EXCEEDED, 0, _) => f.write_str("time exceeded in-transit"),
        (IcmpType::TIME_EXCEEDED, 1, _) => f.write_str("reassembly time exceeded"),
        (IcmpType::PARAMETER_PROBLEM, 0, _) => write!(f, "parameter problem at byte {a}"),
        (other, code, _) => write!(f, "type {}, code {code}", other.0),
    }
}

fn write_unreachable(f: &mut Formatter<'_>, code: u8, mtu: [u8; 2], quoted: &Ipv4<&[u8]>) -> fmt::Result {
    let dst = quoted.dst();
    match (code, Udp::new(quoted.payload())) {
        (0, _) => write!(f, "net {dst} unreachable"),
        (1, _) => write!(f, "host {dst} unreachable"),
        (2, _) => write!(f, "{dst} protocol {} unreachable", quoted.protocol().0),
        // TCP has its ports where UDP has them
        (3, Ok(ports)) if quoted.protocol().has_ports() => {
            write!(f, "{dst} {} port {} unreachable", Name(quoted.protocol()), ports.dst_port())
        }
        (4, _) => write!(f, "{dst} unreachable - need to frag (mtu {})", u16::from_be_bytes(mtu)),
        (13, _) => write!(f, "host {dst} unreachable - admin prohibited"),
        (code, _) => write!(f, "{dst} unreachable, code {code}"),
    }
}

fn write_protocol_and_length(f: &mut Formatter<'_>, protocol: IpProtocol, length: usize) -> fmt::Result {
    write!(f, "{}, length {length}", Name(protocol))
}

/// A protocol by name, or by number where few know the name.
struct Name(IpProtocol);

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            IpProtocol::ICMP => "ICMP",
            IpProtocol::IGMP => "IGMP",
            IpProtocol::TCP => "TCP",
            IpProtocol::UDP => "UDP",
            IpProtocol::GRE => "GRE",
            IpProtocol::ICMPV6 => "ICMP6",
            IpProtocol::OSPF => "OSPF",
            IpProtocol::SCTP => "SCTP",
            IpProtocol(number) => return write!(f, "ip-proto-{number}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{arp_reply, arp_request, ether, icmp_echo, ip4, ip6};
    use proptest::prelude::*;

    const A: &str = "02:00:00:00:00:0a";
    const B: &str = "02:00:00:00:00:0b";

    #[track_caller]
    fn expect(packet_bytes: Vec<u8>, text: &str) {
        assert_eq!(packet(&packet_bytes).to_string(), text);
    }

    #[test]
    fn udp_is_written_with_ports_and_length() {
        expect(
            ip4().udp(1234, 53).payload([0; 20]).bytes(),
            "IP 10.0.0.1.1234 > 10.0.0.2.53: UDP, length 20",
        );
        expect(ip6().udp(1, 2).bytes(), "IP6 2001:db8::1.1 > 2001:db8::2.2: UDP, length 0");
    }

    #[test]
    fn tcp_is_written_with_flags_and_the_numbers_that_count() {
        let tcp = ip4().tcp(1234, 80).seq(7).window(8192);
        let ends = "IP 10.0.0.1.1234 > 10.0.0.2.80";
        expect(tcp.bytes(), &format!("{ends}: Flags [S], seq 7, win 8192, length 0"));
        let ack = tcp.flags(TcpFlags::ACK).ack(9);
        expect(ack.bytes(), &format!("{ends}: Flags [.], ack 9, win 8192, length 0"));
        expect(
            ack.payload("abc").bytes(),
            &format!("{ends}: Flags [.], seq 7:10, ack 9, win 8192, length 3"),
        );
    }

    #[test]
    fn icmp_echoes_are_written_with_their_numbers() {
        let ends = "IP 1.0.0.1 > 1.0.0.2";
        let echo = icmp_echo("1.0.0.1", "1.0.0.2", 5, 6).payload([0; 56]);
        expect(echo.bytes(), &format!("{ends}: ICMP echo request, id 5, seq 6, length 64"));
        let reply = echo.icmp_echo_reply(5, 6);
        expect(reply.bytes(), &format!("{ends}: ICMP echo reply, id 5, seq 6, length 64"));
    }

    #[test]
    fn icmp_errors_are_written_with_what_they_quote() {
        let quoted = ip4().dst("9.9.9.9").udp(1, 33434).bytes();
        for (icmp_type, code, text) in [
            (IcmpType::UNREACHABLE, 0, "net 9.9.9.9 unreachable"),
            (IcmpType::UNREACHABLE, 1, "host 9.9.9.9 unreachable"),
            (IcmpType::UNREACHABLE, 3, "9.9.9.9 UDP port 33434 unreachable"),
            (IcmpType::UNREACHABLE, 4, "9.9.9.9 unreachable - need to frag (mtu 1280)"),
            (IcmpType::REDIRECT, 1, "redirect 9.9.9.9 to 0.0.5.0"),
            (IcmpType::TIME_EXCEEDED, 0, "time exceeded in-transit"),
            (IcmpType(42), 3, "type 42, code 3"),
        ] {
            let error = ip4().icmp(icmp_type, code, [0, 0, 5, 0]).payload(&quoted);
            expect(error.bytes(), &format!("IP 10.0.0.1 > 10.0.0.2: ICMP {text}, length 36"));
        }
    }

    #[test]
    fn fragments_are_written_with_their_place() {
        let first = ip4().id(7).fragment(0, true).udp(1, 2).payload([0; 16]);
        expect(first.bytes(), "IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 16 (frag 7:24@0+)");
        let last = ip4().id(7).fragment(24, false).raw(17, [0; 3]);
        expect(last.bytes(), "IP 10.0.0.1 > 10.0.0.2: UDP, length 3 (frag 7:3@24)");
    }

    #[test]
    fn extension_headers_are_looked_through() {
        let ends = "IP6 2001:db8::1.1 > 2001:db8::2.2";
        expect(ip6().extension(60, [0; 6]).udp(1, 2).bytes(), &format!("{ends}: UDP, length 0"));
        let first = ip6().fragment(0, true, 7).udp(1, 2).payload([0; 16]).bytes();
        expect(first, &format!("{ends}: UDP, length 16 (frag 7:24@0+)"));
        let last = ip6().fragment(24, false, 7).raw(17, [0; 3]).bytes();
        expect(last, "IP6 2001:db8::1 > 2001:db8::2: UDP, length 3 (frag 7:3@24)");
        let cut = ip6().extension(60, [0; 14]).bytes()[..50].to_vec();
        let text = "truncated extension header at byte 40, length 10 (cut short)";
        expect(cut, &format!("IP6 2001:db8::1 > 2001:db8::2: {text}"));
    }

    #[test]
    fn frames_are_written_with_addresses_and_tags() {
        let tagged = ether(B, A).vlan(9).vlan(7).ip4(ip4().udp(1, 2)).bytes();
        let text = format!("{A} > {B}, vlan 9, vlan 7, IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 0");
        assert_eq!(frame(&tagged).to_string(), text);
        let other = ether(B, A).raw(EtherType(0x88cc), [0; 4]).bytes();
        assert_eq!(frame(&other).to_string(), format!("{A} > {B}, ethertype 0x88cc, length 4"));
    }

    #[test]
    fn arp_is_written_as_question_and_answer() {
        let request = arp_request(A, "10.0.0.1", "10.0.0.2").bytes();
        let text = format!("{A} > ff:ff:ff:ff:ff:ff, ARP, Request who-has 10.0.0.2 tell 10.0.0.1");
        assert_eq!(frame(&request).to_string(), text);
        let reply = arp_reply(B, "10.0.0.2", A, "10.0.0.1").bytes();
        assert_eq!(frame(&reply).to_string(), format!("{B} > {A}, ARP, Reply 10.0.0.2 is-at {B}"));
    }

    #[test]
    fn what_is_malformed_is_said_to_be() {
        expect(vec![], "not IP, length 0");
        expect(vec![0x45; 19], "IP, truncated header, length 19");
        expect(vec![0x44; 20], "IP, bad header length, length 20");
        expect(ip4().udp(1, 2).bytes()[..24].to_vec(), "IP 10.0.0.1 > 10.0.0.2: UDP, length 4 (cut short)");
        assert_eq!(frame(&[0; 13]).to_string(), "truncated Ethernet, length 13");
    }

    proptest! {
        #[test]
        fn any_bytes_are_described(
            mut bytes in prop::collection::vec(any::<u8>(), 0..90),
            ether_type in 0_usize..4,
        ) {
            let types = [EtherType::IPV4, EtherType::IPV6, EtherType::ARP, EtherType::VLAN];
            if let Some(field) = bytes.get_mut(12..14) {
                field.copy_from_slice(&types[ether_type].0.to_be_bytes());
            }
            prop_assert!(!frame(&bytes).to_string().is_empty());
            if let Some(first) = bytes.first_mut() {
                *first = 0x45;
            }
            prop_assert!(!packet(&bytes).to_string().is_empty());
            if let Some(first) = bytes.first_mut() {
                *first = 0x60;
            }
            prop_assert!(!packet(&bytes).to_string().is_empty());
        }
    }
}
