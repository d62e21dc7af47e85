//! Bytes of layers, from the innermost out, so that lengths and checksums are known.

use super::layer::Layer;
use artery_wire::build::{Ip4, Ip6, ether, ip4, ip6};
use artery_wire::{
    ArpOperation, EtherType, Icmp6Type, IcmpType, IpProtocol, NumberNames, TcpFlags, VlanTag, checksum,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination of the packet that a transport header is in: part of its checksum.
type Ends = Option<(IpAddr, IpAddr)>;

/// Makes a frame of its layers.
pub(super) fn frame(layers: &[Layer]) -> Result<Vec<u8>, String> {
    match layers {
        [inner @ .., last] if last.name() == "padding" => {
            let padding: usize = last.word_number(0)?;
            Ok([build(inner, None)?, vec![0; padding]].concat())
        }
        all => build(all, None),
    }
}

fn build(layers: &[Layer], ends: Ends) -> Result<Vec<u8>, String> {
    let Some((layer, inner)) = layers.split_first() else { return Ok(Vec::new()) };
    match layer.name() {
        "eth" => ethernet(layer, inner),
        "vlan" => vlan(layer, inner),
        "arp" => arp(layer),
        "ip" => ipv4(layer, inner),
        "ip6" => ipv6(layer, inner),
        "hbh" | "dstopts" | "routing" => extension(layer, inner, ends),
        "frag" => fragment(layer, inner, ends),
        "udp" => udp(layer, inner, ends),
        "tcp" => tcp(layer, inner, ends),
        "icmp" => icmp(layer, inner),
        "icmp6" => icmp6(layer, inner, ends),
        _ => payload(layer, inner),
    }
}

fn ethernet(layer: &Layer, inner: &[Layer]) -> Result<Vec<u8>, String> {
    let (src, dst) = (layer.word_mac(0)?, layer.word_mac(2)?);
    let kind = ether_type(layer, inner)?;
    Ok(ether(dst, src).raw(EtherType(kind), build(inner, None)?).into())
}

fn vlan(layer: &Layer, inner: &[Layer]) -> Result<Vec<u8>, String> {
    let tag = VlanTag::new(layer.word_number(0)?, layer.number("prio")?.unwrap_or(0), layer.has("dei"));
    let kind = ether_type(layer, inner)?;
    Ok([&tag.0.to_be_bytes()[..], &kind.to_be_bytes(), &build(inner, None)?].concat())
}

/// The type that is written, or that of the next layer.
fn ether_type(layer: &Layer, inner: &[Layer]) -> Result<u16, String> {
    let known = inner.first().and_then(|next| match next.name() {
        "vlan" => Some(EtherType::VLAN),
        "arp" => Some(EtherType::ARP),
        "ip" => Some(EtherType::IPV4),
        "ip6" => Some(EtherType::IPV6),
        _ => None,
    });
    match layer.number("type")? {
        Some(written) => Ok(written),
        None => known.map(|known| known.0).ok_or_else(|| {
            format!("{}: it is not clear which type follows; write 'type 0x88b5', say", layer.name())
        }),
    }
}

fn arp(layer: &Layer) -> Result<Vec<u8>, String> {
    let operation = match layer.word(0) {
        "request" => ArpOperation::REQUEST,
        "reply" => ArpOperation::REPLY,
        _ => ArpOperation(layer.word_number(0)?),
    };
    let sender = (layer.word_mac(1)?, layer.word_value(2)?);
    let target = (layer.word_mac(4)?, layer.word_value(5)?);
    Ok(Vec::from(ether([0; 6], [0; 6]).arp(operation, sender, target)).split_off(14))
}

fn ipv4(layer: &Layer, inner: &[Layer]) -> Result<Vec<u8>, String> {
    let (src, dst): (Ipv4Addr, Ipv4Addr) = (layer.word_value(0)?, layer.word_value(2)?);
    let body = build(inner, Some((src.into(), dst.into())))?;
    let mut packet = ip4()
        .src(src)
        .dst(dst)
        .ttl(layer.number("ttl")?.unwrap_or(64))
        .tos(layer.number("tos")?.unwrap_or(0))
        .id(layer.number("id")?.unwrap_or(0))
        .options(layer.bytes("options")?.unwrap_or_default());
    if layer.has("df") {
        packet = packet.dont_fragment();
    }
    let offset: u16 = layer.number("offset")?.unwrap_or(0);
    if !offset.is_multiple_of(8) {
        return Err(format!("ip: offset {offset} is not a multiple of 8"));
    }
    packet = packet.fragment(offset.into(), layer.has("mf"));
    let mut bytes = packet.raw(protocol(layer, "proto", inner)?, body).bytes();
    spoil_ipv4(layer, &mut bytes)?;
    Ok(bytes)
}

/// Writes what a builder does not: fields that do not fit the packet.
fn spoil_ipv4(layer: &Layer, bytes: &mut [u8]) -> Result<(), String> {
    let header = usize::from(bytes[0] & 15) * 4;
    if let Some(length) = layer.number::<u16>("length")? {
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
    }
    if let Some(ihl) = layer.number::<u8>("ihl")? {
        bytes[0] = bytes[0] & 0xf0 | ihl & 15;
    }
    if let Some(version) = layer.number::<u8>("version")? {
        bytes[0] = version << 4 | bytes[0] & 15;
    }
    if layer.has("evil") {
        bytes[6] |= 0x80; // RFC 3514
    }
    bytes[10..12].fill(0);
    let right = checksum::checksum(&bytes[..header]);
    let written = layer.number::<u16>("checksum")?.unwrap_or(right);
    bytes[10..12].copy_from_slice(&written.to_be_bytes());
    Ok(())
}

fn ipv6(layer: &Layer, inner: &[Layer]) -> Result<Vec<u8>, String> {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (layer.word_value(0)?, layer.word_value(2)?);
    let body = build(inner, Some((src.into(), dst.into())))?;
    let packet = ip6()
        .src(src)
        .dst(dst)
        .hop_limit(layer.number("hlim")?.unwrap_or(64))
        .traffic_class(layer.number("class")?.unwrap_or(0))
        .flow_label(layer.number("flow")?.unwrap_or(0));
    let mut bytes = packet.raw(protocol(layer, "next", inner)?, body).bytes();
    if let Some(length) = layer.number::<u16>("length")? {
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
    }
    if let Some(version) = layer.number::<u8>("version")? {
        bytes[0] = version << 4 | bytes[0] & 15;
    }
    Ok(bytes)
}

/// What the header before a layer says of it.
const PROTOCOLS: [(&str, IpProtocol); 10] = [
    ("ip", IpProtocol::IPIP),
    ("ip6", IpProtocol::IPV6),
    ("hbh", IpProtocol::HOP_BY_HOP),
    ("dstopts", IpProtocol::DESTINATION_OPTIONS),
    ("routing", IpProtocol::ROUTING),
    ("frag", IpProtocol::FRAGMENT),
    ("udp", IpProtocol::UDP),
    ("tcp", IpProtocol::TCP),
    ("icmp", IpProtocol::ICMP),
    ("icmp6", IpProtocol::ICMPV6),
];

/// The protocol that is written, or that of the next layer.
fn protocol(layer: &Layer, field: &'static str, inner: &[Layer]) -> Result<u8, String> {
    let known = inner.first().and_then(|next| PROTOCOLS.iter().find(|(name, _)| *name == next.name()));
    match layer.number(field)? {
        Some(written) => Ok(written),
        None => known.map(|(_, protocol)| protocol.0).ok_or_else(|| {
            format!("{}: it is not clear which protocol follows; write '{field} 17', say", layer.name())
        }),
    }
}

fn extension(layer: &Layer, inner: &[Layer], ends: Ends) -> Result<Vec<u8>, String> {
    let body = layer.word_bytes(0)?;
    let length = body.len() + 2;
    if !length.is_multiple_of(8) {
        return Err(format!("{}: write 6, 14, 22 … bytes, what follows the header's length", layer.name()));
    }
    let head = [protocol(layer, "next", inner)?, (length / 8 - 1) as u8];
    Ok([&head[..], &body, &build(inner, ends)?].concat())
}

fn fragment(layer: &Layer, inner: &[Layer], ends: Ends) -> Result<Vec<u8>, String> {
    let offset: u16 = layer.number("offset")?.unwrap_or(0);
    if !offset.is_multiple_of(8) {
        return Err(format!("frag: offset {offset} is not a multiple of 8"));
    }
    let place = (offset | u16::from(layer.has("more"))).to_be_bytes();
    let id = layer.number::<u32>("id")?.unwrap_or(0).to_be_bytes();
    Ok([&[protocol(layer, "next", inner)?, 0][..], &place, &id, &build(inner, ends)?].concat())
}

/// A transport header of either version, as the builders make it with a right checksum.
fn transport(ends: Ends, of4: impl FnOnce(Ip4) -> Ip4, of6: impl FnOnce(Ip6) -> Ip6) -> Vec<u8> {
    match ends {
        Some((IpAddr::V6(src), IpAddr::V6(dst))) => of6(ip6().src(src).dst(dst)).bytes().split_off(40),
        Some((IpAddr::V4(src), IpAddr::V4(dst))) => of4(ip4().src(src).dst(dst)).bytes().split_off(20),
        _ => of4(ip4()).bytes().split_off(20),
    }
}

fn udp(layer: &Layer, inner: &[Layer], ends: Ends) -> Result<Vec<u8>, String> {
    let (src, dst) = (layer.word_number(0)?, layer.word_number(2)?);
    let body = build(inner, None)?;
    let mut bytes =
        transport(ends, |ip| ip.udp(src, dst).payload(&body), |ip| ip.udp(src, dst).payload(&body));
    if let Some(length) = layer.number::<u16>("length")? {
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
    }
    write_checksum(layer, &mut bytes, 6)?;
    Ok(bytes)
}

fn write_checksum(layer: &Layer, bytes: &mut [u8], at: usize) -> Result<(), String> {
    if let Some(written) = layer.number::<u16>("checksum")? {
        bytes[at..at + 2].copy_from_slice(&written.to_be_bytes());
    }
    Ok(())
}

fn tcp(layer: &Layer, inner: &[Layer], ends: Ends) -> Result<Vec<u8>, String> {
    let (src, dst): (u16, u16) = (layer.word_number(0)?, layer.word_number(2)?);
    let mut options = layer.bytes("options")?.unwrap_or_default();
    options.resize(options.len().next_multiple_of(4), 0);
    let header = layer.number("header")?.unwrap_or(5 + options.len() as u8 / 4);
    let flags = tcp_flags(layer.string("flags").unwrap_or("S"))?;
    let (seq, ack) = (layer.number("seq")?.unwrap_or(0), layer.number("ack")?.unwrap_or(0));
    let window = layer.number("win")?.unwrap_or(65535);
    let body = [options, build(inner, None)?].concat();
    let mut bytes = transport(
        ends,
        |ip| ip.tcp(src, dst).flags(flags).seq(seq).ack(ack).window(window).payload(&body),
        |ip| ip.tcp(src, dst).flags(flags).seq(seq).ack(ack).window(window).payload(&body),
    );
    let urgent: u16 = layer.number("urg")?.unwrap_or(0);
    let changed = [header << 4, bytes[13]];
    // The builder's checksum covers a header without options, and no urgent pointer.
    let old = u16::from_be_bytes([bytes[16], bytes[17]]);
    let sum = checksum::update(old, u16::from_be_bytes([bytes[12], bytes[13]]), u16::from_be_bytes(changed));
    let sum = checksum::update(sum, 0, urgent);
    bytes[12..14].copy_from_slice(&changed);
    bytes[18..20].copy_from_slice(&urgent.to_be_bytes());
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    write_checksum(layer, &mut bytes, 16)?;
    Ok(bytes)
}

/// Reads flags in tcpdump's letters: `S.` is SYN and ACK.
fn tcp_flags(letters: &str) -> Result<TcpFlags, String> {
    if letters == "none" {
        return Ok(TcpFlags(0));
    }
    letters.chars().try_fold(TcpFlags(0), |flags, letter| {
        let bit = "FSRP.UEW".find(letter);
        let bit = bit.ok_or_else(|| format!("tcp: flag '{letter}' is unknown; flags are F S R P . U E W"))?;
        Ok(flags | TcpFlags(1 << bit))
    })
}

/// Types of ICMP that have a name here.
pub(super) const ICMP_TYPES: NumberNames = NumberNames(
    "
    echo 8  echo-reply 0  unreachable 3  redirect 5  time-exceeded 11  parameter-problem 12",
);

/// Types of ICMPv6 that have a name here.
pub(super) const ICMP6_TYPES: NumberNames = NumberNames(
    "
    unreachable 1  too-big 2  time-exceeded 3  parameter-problem 4  echo 128  echo-reply 129  rs 133
    ra 134  ns 135  na 136  redirect 137",
);

fn icmp_type(layer: &Layer, names: NumberNames) -> Result<u8, String> {
    match names.number_of(layer.word(0)) {
        Some(number) => Ok(number as u8),
        None => layer.word_number(0).map_err(|_| {
            let known: Vec<&str> = names.iter().map(|(name, _)| name).collect();
            format!("{}: unknown type '{}'; types are {}", layer.name(), layer.word(0), known.join(", "))
        }),
    }
}

/// The second word of a header of ICMP of either version.
fn icmp_rest(layer: &Layer) -> Result<[u8; 4], String> {
    let mut rest = [0; 4];
    if let Some(bytes) = layer.bytes("rest")? {
        rest = bytes.try_into().map_err(|_| "rest: write 4 bytes, 8 hexadecimal digits".to_owned())?;
    }
    for (field, at) in [("id", 0), ("seq", 2)] {
        if let Some(value) = layer.number::<u16>(field)? {
            rest[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
    if let Some(mtu) = layer.number::<u32>("mtu")? {
        rest = mtu.to_be_bytes();
    }
    if let Some(pointer) = layer.number::<u32>("pointer")? {
        rest = if layer.name() == "icmp" { [pointer as u8, 0, 0, 0] } else { pointer.to_be_bytes() };
    }
    Ok(rest)
}

fn icmp(layer: &Layer, inner: &[Layer]) -> Result<Vec<u8>, String> {
    let kind = IcmpType(icmp_type(layer, ICMP_TYPES)?);
    let rest = match layer.value::<Ipv4Addr>("gateway")? {
        Some(gateway) => gateway.octets(),
        None => icmp_rest(layer)?,
    };
    let message = ip4().icmp(kind, layer.number("code")?.unwrap_or(0), rest).payload(build(inner, None)?);
    let mut bytes = message.bytes().split_off(20);
    write_checksum(layer, &mut bytes, 2)?;
    Ok(bytes)
}

fn icmp6(layer: &Layer, inner: &[Layer], ends: Ends) -> Result<Vec<u8>, String> {
    let kind = Icmp6Type(icmp_type(layer, ICMP6_TYPES)?);
    let rest = match layer.number::<u8>("flags")? {
        Some(flags) => [flags, 0, 0, 0],
        None => icmp_rest(layer)?,
    };
    let mut body = Vec::new();
    for field in ["target", "to"] {
        if let Some(address) = layer.value::<Ipv6Addr>(field)? {
            body.extend(address.octets());
        }
    }
    body.extend(layer.bytes("option")?.unwrap_or_default());
    body.extend(build(inner, None)?);
    let Some((IpAddr::V6(src), IpAddr::V6(dst))) = ends else {
        return Err("icmp6: it needs an ip6 layer outside".to_owned());
    };
    let message = ip6().src(src).dst(dst).icmp(kind, layer.number("code")?.unwrap_or(0), rest).payload(body);
    let mut bytes = message.bytes().split_off(40);
    write_checksum(layer, &mut bytes, 2)?;
    Ok(bytes)
}

fn payload(layer: &Layer, inner: &[Layer]) -> Result<Vec<u8>, String> {
    if let Some(next) = inner.first() {
        return Err(format!("nothing can follow {layer}, such as {next}"));
    }
    match layer.name() {
        "hex" => layer.word_bytes(0),
        "zeros" => Ok(vec![0; layer.word_number(0)?]),
        "bytes" => {
            let (length, from): (usize, u8) = (layer.word_number(0)?, layer.number("from")?.unwrap_or(0));
            Ok((0..length).map(|at| from.wrapping_add(at as u8)).collect())
        }
        other => Err(format!("{other} must be the last layer of a frame")),
    }
}
