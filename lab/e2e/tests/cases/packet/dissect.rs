//! Layers of bytes, with all fields that may be written. What is malformed is left as a payload.

use super::build::{ICMP_TYPES, ICMP6_TYPES};
use super::layer::{Layer, hex_text, mac_text};
use artery_wire::{
    Arp, EtherType, Ethernet, Icmp, Icmp6, Icmp6Type, IcmpType, IpProtocol, Ipv4, Ipv6, NumberNames, Tcp,
    Udp, VlanTag,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Payloads of this length and longer are recognized as a pattern; others may look like one by chance.
const SHORTEST_PATTERN: usize = 2;

/// The layers of a frame.
pub(super) fn frame(bytes: &[u8]) -> Vec<Layer> {
    let Ok(header) = Ethernet::new(bytes) else { return vec![Layer::hex(bytes)] };
    let kind = u16::from_be_bytes([bytes[12], bytes[13]]);
    let mut layers = vec![Layer::ethernet(header.src(), header.dst()).with("type", hex_number(kind))];
    ether_payload(&mut layers, kind, &bytes[14..]);
    layers
}

/// An Ethernet header, and the rest as it is.
pub(super) fn header_only(bytes: &[u8]) -> Vec<Layer> {
    let mut layers = frame(bytes);
    layers.truncate(1);
    if layers[0].name() == "eth" {
        payload(&mut layers, &bytes[14..]);
    }
    layers
}

fn hex_number(number: u16) -> String {
    format!("0x{number:04x}")
}

fn ether_payload(layers: &mut Vec<Layer>, kind: u16, bytes: &[u8]) {
    match EtherType(kind) {
        EtherType::VLAN | EtherType::QINQ if bytes.len() >= 4 => {
            let (tag, inner) = bytes.split_at(4);
            let (tag, kind) = ([tag[0], tag[1]], u16::from_be_bytes([tag[2], tag[3]]));
            let tag = VlanTag(u16::from_be_bytes(tag));
            let layer = Layer::new("vlan", &[&tag.id()]).with("prio", tag.priority());
            layers.push(layer.with("type", hex_number(kind)).flag("dei", tag.drop_eligible()));
            ether_payload(layers, kind, inner);
        }
        EtherType::ARP if arp(layers, bytes) => {}
        EtherType::IPV4 | EtherType::IPV6 => {
            let (packet, padding) = split_padding(kind, bytes);
            if kind == EtherType::IPV4.0 {
                ipv4(layers, packet);
            } else {
                ipv6(layers, packet);
            }
            if !padding.is_empty() {
                layers.push(Layer::new("padding", &[&padding.len()]));
            }
        }
        _ => payload(layers, bytes),
    }
}

/// Zeros behind what the packet's length says.
fn split_padding(kind: u16, bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = if kind == EtherType::IPV4.0 {
        Ipv4::new(bytes).map(|ip| usize::from(ip.total_length()).max(ip.header_len()))
    } else {
        Ipv6::new(bytes).map(|ip| 40 + usize::from(ip.payload_length()))
    };
    let length = length.unwrap_or(bytes.len()).min(bytes.len());
    bytes.split_at(length)
}

fn arp(layers: &mut Vec<Layer>, bytes: &[u8]) -> bool {
    let Ok(arp) = Arp::new(bytes) else { return false };
    let operation = match arp.operation().0 {
        1 => "request".to_owned(),
        2 => "reply".to_owned(),
        other => other.to_string(),
    };
    let ends = (mac_text(arp.sender_ether()), mac_text(arp.target_ether()));
    let words: [&dyn std::fmt::Display; 6] =
        [&operation, &ends.0, &arp.sender_ip(), &">", &ends.1, &arp.target_ip()];
    layers.push(Layer::new("arp", &words));
    let padding = bytes.len() - Arp::<&[u8]>::LEN;
    if padding > 0 {
        layers.push(Layer::new("padding", &[&padding]));
    }
    true
}

fn ipv4(layers: &mut Vec<Layer>, bytes: &[u8]) {
    let Ok(ip) = Ipv4::new(bytes) else { return payload(layers, bytes) };
    let layer = Layer::new("ip", &[&ip.src(), &">", &ip.dst()])
        .with("ttl", ip.ttl())
        .with("tos", ip.tos())
        .with("id", ip.id())
        .with("offset", ip.fragment_offset())
        .with("proto", ip.protocol().0);
    let layer = match ip.options() {
        [] => layer,
        options => layer.with("options", hex_text(options)),
    };
    let layer = layer
        .with("length", ip.total_length())
        .with("ihl", ip.ihl())
        .with("version", bytes[0] >> 4)
        .with("checksum", hex_number(ip.checksum()))
        .flag("df", ip.dont_fragment())
        .flag("mf", ip.more_fragments())
        .flag("evil", bytes[6] & 0x80 != 0);
    layers.push(layer);
    let inner = &bytes[ip.header_len()..];
    if ip.fragment_offset() > 0 { payload(layers, inner) } else { upper(layers, ip.protocol(), inner) }
}

fn ipv6(layers: &mut Vec<Layer>, bytes: &[u8]) {
    let Ok(ip) = Ipv6::new(bytes) else { return payload(layers, bytes) };
    let layer = Layer::new("ip6", &[&ip.src(), &">", &ip.dst()])
        .with("hlim", ip.hop_limit())
        .with("class", ip.traffic_class())
        .with("flow", ip.flow_label())
        .with("next", ip.next_header().0)
        .with("length", ip.payload_length())
        .with("version", bytes[0] >> 4);
    layers.push(layer);
    upper(layers, ip.next_header(), &bytes[40..]);
}

fn upper(layers: &mut Vec<Layer>, protocol: IpProtocol, bytes: &[u8]) {
    let known = match protocol {
        IpProtocol::HOP_BY_HOP => extension(layers, "hbh", bytes),
        IpProtocol::DESTINATION_OPTIONS => extension(layers, "dstopts", bytes),
        IpProtocol::ROUTING => extension(layers, "routing", bytes),
        IpProtocol::FRAGMENT => fragment(layers, bytes),
        IpProtocol::UDP => udp(layers, bytes),
        IpProtocol::TCP => tcp(layers, bytes),
        IpProtocol::ICMP => icmp(layers, bytes),
        IpProtocol::ICMPV6 => icmp6(layers, bytes),
        IpProtocol::IPIP if Ipv4::new(bytes).is_ok() => {
            ipv4(layers, bytes);
            true
        }
        _ => false,
    };
    if !known {
        payload(layers, bytes);
    }
}

fn extension(layers: &mut Vec<Layer>, name: &str, bytes: &[u8]) -> bool {
    let Some(length) = bytes.get(1).map(|length| (usize::from(*length) + 1) * 8) else { return false };
    let Some(body) = bytes.get(2..length) else { return false };
    layers.push(Layer::new(name, &[&hex_text(body)]).with("next", bytes[0]));
    upper(layers, IpProtocol(bytes[0]), &bytes[length..]);
    true
}

fn fragment(layers: &mut Vec<Layer>, bytes: &[u8]) -> bool {
    let Some((header, inner)) = bytes.split_first_chunk::<8>() else { return false };
    let place = u16::from_be_bytes([header[2], header[3]]);
    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let layer = Layer::new("frag", &[]).with("id", id).with("offset", place & !7).with("next", header[0]);
    layers.push(layer.flag("more", place & 1 != 0));
    if place & !7 == 0 {
        upper(layers, IpProtocol(header[0]), inner);
    } else {
        payload(layers, inner);
    }
    true
}

fn udp(layers: &mut Vec<Layer>, bytes: &[u8]) -> bool {
    let Ok(udp) = Udp::new(bytes) else { return false };
    let layer = Layer::new("udp", &[&udp.src_port(), &">", &udp.dst_port()]);
    layers.push(layer.with("length", udp.length()).with("checksum", hex_number(udp.checksum())));
    payload(layers, &bytes[8..]);
    true
}

fn tcp(layers: &mut Vec<Layer>, bytes: &[u8]) -> bool {
    let Ok(tcp) = Tcp::new(bytes) else { return false };
    let layer = Layer::new("tcp", &[&tcp.src_port(), &">", &tcp.dst_port()])
        .with("flags", tcp.flags())
        .with("seq", tcp.seq())
        .with("ack", tcp.ack())
        .with("win", tcp.window())
        .with("urg", tcp.urgent());
    let layer = match tcp.options() {
        [] => layer,
        options => layer.with("options", hex_text(options)),
    };
    layers.push(layer.with("header", bytes[12] >> 4).with("checksum", hex_number(tcp.checksum())));
    payload(layers, tcp.payload());
    true
}

fn icmp(layers: &mut Vec<Layer>, bytes: &[u8]) -> bool {
    let Ok(icmp) = Icmp::new(bytes) else { return false };
    let (kind, rest) = (icmp.icmp_type(), icmp.rest());
    let layer = Layer::new("icmp", &[&type_name(ICMP_TYPES, kind.0)]).with("code", icmp.code());
    let layer = match kind {
        IcmpType::ECHO_REPLY | IcmpType::ECHO_REQUEST => echo(layer, rest),
        IcmpType::UNREACHABLE => layer.with("mtu", u32::from_be_bytes(rest)),
        IcmpType::REDIRECT => layer.with("gateway", Ipv4Addr::from(rest)),
        IcmpType::PARAMETER_PROBLEM if rest[1..] == [0; 3] => layer.with("pointer", rest[0]),
        _ => layer.with("rest", hex_text(&rest)),
    };
    layers.push(layer.with("checksum", hex_number(icmp.checksum())));
    if kind.is_error() && Ipv4::new(icmp.payload()).is_ok() {
        ipv4(layers, icmp.payload());
    } else {
        payload(layers, icmp.payload());
    }
    true
}

fn icmp6(layers: &mut Vec<Layer>, bytes: &[u8]) -> bool {
    let Ok(icmp) = Icmp6::new(bytes) else { return false };
    let (kind, rest, inner) = (icmp.icmp_type(), icmp.rest(), icmp.payload());
    let layer = Layer::new("icmp6", &[&type_name(ICMP6_TYPES, kind.0)]).with("code", icmp.code());
    let (layer, inner) = match kind {
        Icmp6Type::ECHO_REQUEST | Icmp6Type::ECHO_REPLY => (echo(layer, rest), inner),
        Icmp6Type::PACKET_TOO_BIG => (layer.with("mtu", u32::from_be_bytes(rest)), inner),
        Icmp6Type::PARAMETER_PROBLEM => (layer.with("pointer", u32::from_be_bytes(rest)), inner),
        Icmp6Type::NEIGHBOR_SOLICITATION | Icmp6Type::NEIGHBOR_ADVERTISEMENT if rest[1..] == [0; 3] => {
            with_addresses(layer.with("flags", hex_number(rest[0].into())), &["target"], inner)
        }
        Icmp6Type::REDIRECT => with_addresses(layer, &["target", "to"], inner),
        _ => (layer.with("rest", hex_text(&rest)), inner),
    };
    layers.push(layer.with("checksum", hex_number(icmp.checksum())));
    if kind.is_error() && Ipv6::new(inner).is_ok() {
        ipv6(layers, inner);
    } else {
        payload(layers, inner);
    }
    true
}

/// Takes addresses from the front, and options of Neighbor Discovery, which are all that follows.
fn with_addresses<'a>(mut layer: Layer, fields: &[&'static str], mut inner: &'a [u8]) -> (Layer, &'a [u8]) {
    for field in fields {
        let Some((address, rest)) = inner.split_first_chunk::<16>() else { return (layer, inner) };
        (layer, inner) = (layer.with(field, Ipv6Addr::from(*address)), rest);
    }
    if inner.is_empty() { (layer, inner) } else { (layer.with("option", hex_text(inner)), &[]) }
}

fn echo(layer: Layer, [a, b, c, d]: [u8; 4]) -> Layer {
    layer.with("id", u16::from_be_bytes([a, b])).with("seq", u16::from_be_bytes([c, d]))
}

fn type_name(names: NumberNames, number: u8) -> String {
    names.name_of(number).map_or_else(|| number.to_string(), str::to_owned)
}

fn payload(layers: &mut Vec<Layer>, bytes: &[u8]) {
    let Some(first) = bytes.first() else { return };
    let counts = bytes.iter().enumerate().all(|(at, byte)| *byte == first.wrapping_add(at as u8));
    layers.push(if counts && bytes.len() >= SHORTEST_PATTERN {
        Layer::new("bytes", &[&bytes.len()]).with("from", first)
    } else if bytes.iter().all(|byte| *byte == 0) {
        Layer::new("zeros", &[&bytes.len()])
    } else {
        Layer::hex(bytes)
    });
}
