//! ICMPv6 and neighbor discovery in words.

use std::fmt::{self, Formatter};
use std::net::Ipv6Addr;

use super::{Endpoints, Name};
use crate::nd::{NeighborAdvertisement, NeighborSolicitation, Redirect, RouterAdvertisement};
use crate::{Icmp6, Icmp6Type, Ip6Headers, Ipv6, Udp};

pub(super) fn write_icmp6(
    f: &mut Formatter<'_>,
    ends: &Endpoints<'_>,
    bytes: &[u8],
    icmp: &Icmp6<&[u8]>,
) -> fmt::Result {
    ends.write_addresses(f)?;
    f.write_str("ICMP6 ")?;
    match icmp.icmp_type() {
        Icmp6Type::ECHO_REQUEST => write!(f, "echo request, id {}, seq {}", icmp.echo_id(), icmp.echo_seq())?,
        Icmp6Type::ECHO_REPLY => write!(f, "echo reply, id {}, seq {}", icmp.echo_id(), icmp.echo_seq())?,
        icmp_type if icmp_type.is_error() => write_error(f, icmp)?,
        _ => write_discovery(f, bytes, icmp)?,
    }
    write!(f, ", length {}", bytes.len())
}

fn write_discovery(f: &mut Formatter<'_>, bytes: &[u8], icmp: &Icmp6<&[u8]>) -> fmt::Result {
    match icmp.icmp_type() {
        Icmp6Type::ROUTER_SOLICITATION => return f.write_str("router solicitation"),
        Icmp6Type::ROUTER_ADVERTISEMENT => {
            if let Ok(message) = RouterAdvertisement::new(bytes) {
                return write!(f, "router advertisement, lifetime {} s", message.router_lifetime().as_secs());
            }
        }
        Icmp6Type::NEIGHBOR_SOLICITATION => {
            if let Ok(message) = NeighborSolicitation::new(bytes) {
                return write!(f, "neighbor solicitation, who has {}", message.target());
            }
        }
        Icmp6Type::NEIGHBOR_ADVERTISEMENT => {
            if let Ok(message) = NeighborAdvertisement::new(bytes) {
                return write_advertisement(f, &message);
            }
        }
        Icmp6Type::REDIRECT => {
            if let Ok(message) = Redirect::new(bytes) {
                return write!(f, "redirect {} to {}", message.destination(), message.target());
            }
        }
        _ => {}
    }
    write!(f, "type {}, code {}", icmp.icmp_type().0, icmp.code())
}

fn write_advertisement(f: &mut Formatter<'_>, message: &NeighborAdvertisement<&[u8]>) -> fmt::Result {
    write!(f, "neighbor advertisement, {}", message.target())?;
    match message.target_link() {
        Some(link) => write!(f, " is-at {link}")?,
        None => f.write_str(" is there")?,
    }
    for (set, name) in [
        (message.is_router(), "router"),
        (message.is_solicited(), "solicited"),
        (message.overrides(), "override"),
    ] {
        if set {
            write!(f, ", {name}")?;
        }
    }
    Ok(())
}

fn write_error(f: &mut Formatter<'_>, icmp: &Icmp6<&[u8]>) -> fmt::Result {
    let number = u32::from_be_bytes(icmp.rest());
    match (icmp.icmp_type(), icmp.code(), Ipv6::new(icmp.payload())) {
        (Icmp6Type::UNREACHABLE, code, Ok(quoted)) => {
            write_unreachable(f, code, quoted.dst(), icmp.payload())
        }
        (Icmp6Type::PACKET_TOO_BIG, ..) => write!(f, "packet too big, mtu {number}"),
        (Icmp6Type::TIME_EXCEEDED, 0, _) => f.write_str("time exceeded in-transit"),
        (Icmp6Type::TIME_EXCEEDED, 1, _) => f.write_str("reassembly time exceeded"),
        (Icmp6Type::PARAMETER_PROBLEM, 0, _) => write!(f, "parameter problem at byte {number}"),
        (Icmp6Type::PARAMETER_PROBLEM, 1, _) => write!(f, "unknown next header at byte {number}"),
        (Icmp6Type::PARAMETER_PROBLEM, 2, _) => write!(f, "unknown option at byte {number}"),
        (other, code, _) => write!(f, "type {}, code {code}", other.0),
    }
}

fn write_unreachable(f: &mut Formatter<'_>, code: u8, dst: Ipv6Addr, quoted: &[u8]) -> fmt::Result {
    match code {
        0 => write!(f, "{dst} unreachable - no route"),
        1 => write!(f, "{dst} unreachable - admin prohibited"),
        2 => write!(f, "{dst} unreachable - beyond scope"),
        3 => write!(f, "{dst} unreachable - address"),
        4 => write_port(f, dst, quoted),
        code => write!(f, "{dst} unreachable, code {code}"),
    }
}

fn write_port(f: &mut Formatter<'_>, dst: Ipv6Addr, quoted: &[u8]) -> fmt::Result {
    if let Ok(headers) = Ip6Headers::parse_packet(quoted) {
        // TCP has its ports where UDP has them
        if let (true, Ok(ports)) = (headers.protocol.has_ports(), Udp::new(&quoted[headers.offset..])) {
            return write!(f, "{dst} {} port {} unreachable", Name(headers.protocol), ports.dst_port());
        }
    }
    write!(f, "{dst} port unreachable")
}

#[cfg(test)]
mod tests {
    use crate::build::{Ip6, ip6, neighbor_advertisement, neighbor_solicitation};
    use crate::describe::{frame, packet};
    use crate::{EtherAddr, Icmp6Type, nd};

    const A: &str = "02:00:00:00:00:0a";
    const B: &str = "02:00:00:00:00:0b";

    #[track_caller]
    fn expect(message: Ip6, text: &str) {
        let expected = format!("IP6 2001:db8::1 > 2001:db8::2: {text}");
        assert_eq!(packet(&message.bytes()).to_string(), expected);
    }

    #[test]
    fn echoes_are_written_with_their_numbers() {
        let echo = ip6().icmp_echo(5, 6).payload([0; 56]);
        expect(echo.clone(), "ICMP6 echo request, id 5, seq 6, length 64");
        expect(echo.icmp_echo_reply(5, 6), "ICMP6 echo reply, id 5, seq 6, length 64");
    }

    #[test]
    fn neighbors_are_written_as_question_and_answer() {
        let question = neighbor_solicitation(A, "fe80::a", "fe80::b").bytes();
        let text =
            "33:33:ff:00:00:0b, IP6 fe80::a > ff02::1:ff00:b: ICMP6 neighbor solicitation, who has fe80::b";
        assert_eq!(frame(&question).to_string(), format!("{A} > {text}, length 32"));
        let answer = neighbor_advertisement(B, "fe80::b", A, "fe80::a").bytes();
        let text = "IP6 fe80::b > fe80::a: ICMP6 neighbor advertisement, fe80::b is-at";
        let expected = format!("{B} > {A}, {text} {B}, solicited, override, length 32");
        assert_eq!(frame(&answer).to_string(), expected);
    }

    #[test]
    fn routers_are_written_with_what_they_say() {
        let (solicitation, advertisement) = (Icmp6Type::ROUTER_SOLICITATION, Icmp6Type::ROUTER_ADVERTISEMENT);
        expect(ip6().icmp(solicitation, 0, [0; 4]), "ICMP6 router solicitation, length 8");
        let message = ip6().icmp(advertisement, 0, [64, 0, 7, 8]).payload([0; 8]);
        expect(message, "ICMP6 router advertisement, lifetime 1800 s, length 16");
        let [from, to] = ["fe80::1", "fe80::2"]
            .map(|ip| nd::LinkEndpoint { ether: EtherAddr::ZERO, ip: ip.parse().unwrap() });
        let redirect = nd::redirect(from, to, "fe80::9".parse().unwrap(), None, &ip6().bytes()).unwrap();
        let text = "IP6 fe80::1 > fe80::2: ICMP6 redirect 2001:db8::2 to fe80::9, length 88";
        assert_eq!(packet(&redirect[14..]).to_string(), text);
    }

    #[test]
    fn errors_are_written_with_what_they_quote() {
        let quoted = ip6().dst("2001:db8::9").udp(1, 33434).bytes();
        for (icmp_type, code, text) in [
            (Icmp6Type::UNREACHABLE, 0, "2001:db8::9 unreachable - no route"),
            (Icmp6Type::UNREACHABLE, 3, "2001:db8::9 unreachable - address"),
            (Icmp6Type::UNREACHABLE, 4, "2001:db8::9 UDP port 33434 unreachable"),
            (Icmp6Type::UNREACHABLE, 6, "2001:db8::9 unreachable, code 6"),
            (Icmp6Type::PACKET_TOO_BIG, 0, "packet too big, mtu 1280"),
            (Icmp6Type::TIME_EXCEEDED, 0, "time exceeded in-transit"),
            (Icmp6Type::PARAMETER_PROBLEM, 2, "unknown option at byte 1280"),
            (Icmp6Type(200), 3, "type 200, code 3"),
        ] {
            let error = ip6().icmp(icmp_type, code, [0, 0, 5, 0]).payload(&quoted);
            expect(error, &format!("ICMP6 {text}, length 56"));
        }
    }

    #[test]
    fn messages_cut_short_are_written_by_their_numbers() {
        let short = ip6().icmp(Icmp6Type::NEIGHBOR_SOLICITATION, 0, [0; 4]).payload([0; 15]);
        expect(short, "ICMP6 type 135, code 0, length 23");
    }
}
