//! What a packet is, by its first bytes: a line of description, and the header fields by name.
use super::records::Snapshot;
use artery_wire::{Arp, EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Tcp, Udp, describe};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A header field and its value, as people read it.
pub(super) type Field = (&'static str, String);

/// Where a packet's headers are.
enum Shape {
    /// It begins with a link header.
    Frame,
    /// A network header is that far into it.
    Network(usize),
    /// Neither kind of header is known to be there.
    Unknown,
}

/// One line that says what the packet is.
pub(super) fn describe(snapshot: &Snapshot) -> String {
    let bytes = whole(snapshot);
    match shape(snapshot, &bytes) {
        Shape::Frame => describe::frame(&bytes).to_string(),
        Shape::Network(0) => describe::packet(&bytes).to_string(),
        Shape::Network(at) => format!("{at} bytes, {}", describe::packet(&bytes[at..])),
        Shape::Unknown => {
            let shown: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            let more = if bytes.len() > 16 { "…" } else { "" };
            format!("{} bytes: {shown}{more}", snapshot.length)
        }
    }
}

/// The fields of all headers that are there.
pub(super) fn fields(snapshot: &Snapshot) -> Vec<Field> {
    let bytes = whole(snapshot);
    match shape(snapshot, &bytes) {
        Shape::Frame => frame_fields(&bytes),
        Shape::Network(at) => packet_fields(&bytes[at..]),
        Shape::Unknown => Vec::new(),
    }
}

/// Whether it is, or carries, a packet of version 6.
pub(super) fn is_v6(snapshot: &Snapshot) -> bool {
    fields(snapshot).iter().any(|(name, _)| *name == HOP_LIMIT)
}

/// The annotation with the destination or next hop, for a packet of that version.
pub(super) fn next_hop(snapshot: &Snapshot, is_v6: bool) -> IpAddr {
    let [a, b, c, d, ..] = snapshot.dst;
    if is_v6 { Ipv6Addr::from(snapshot.dst).into() } else { Ipv4Addr::new(a, b, c, d).into() }
}

/// All bytes, with zeros for those that were not recorded: lengths in headers must agree with the bytes.
fn whole(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = snapshot.data.clone();
    bytes.resize(snapshot.length.clamp(bytes.len(), 1 << 17), 0);
    bytes
}

fn shape(snapshot: &Snapshot, bytes: &[u8]) -> Shape {
    let network = snapshot.network.and_then(|at| usize::try_from(at).ok());
    if is_frame(bytes) && network != Some(0) {
        return Shape::Frame;
    }
    match network.filter(|at| bytes.get(*at..).is_some_and(is_packet)) {
        Some(at) => Shape::Network(at),
        None if is_packet(bytes) => Shape::Network(0),
        None => Shape::Unknown,
    }
}

fn is_frame(bytes: &[u8]) -> bool {
    Ethernet::new(bytes).is_ok_and(|frame| match frame.payload_type() {
        EtherType::IPV4 | EtherType::IPV6 => is_packet(frame.payload()),
        EtherType::ARP => Arp::new(frame.payload()).is_ok(),
        _ => false,
    })
}

fn is_packet(bytes: &[u8]) -> bool {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => Ipv4::new(bytes).is_ok(),
        Some(6) => Ipv6::new(bytes).is_ok(),
        _ => false,
    }
}

fn frame_fields(bytes: &[u8]) -> Vec<Field> {
    let Ok(frame) = Ethernet::new(bytes) else { return Vec::new() };
    let vlan = frame.vlan().map_or("none".to_string(), |tag| tag.id().to_string());
    let mut fields =
        vec![("ether src", frame.src().to_string()), ("ether dst", frame.dst().to_string()), ("vlan", vlan)];
    fields.extend(match frame.payload_type() {
        EtherType::ARP => arp_fields(frame.payload()),
        _ => packet_fields(frame.payload()),
    });
    fields
}

fn arp_fields(bytes: &[u8]) -> Vec<Field> {
    let Ok(arp) = Arp::new(bytes) else { return Vec::new() };
    vec![
        ("arp operation", arp.operation().0.to_string()),
        ("arp sender", format!("{} at {}", arp.sender_ip(), arp.sender_ether())),
        ("arp target", format!("{} at {}", arp.target_ip(), arp.target_ether())),
    ]
}

fn packet_fields(bytes: &[u8]) -> Vec<Field> {
    if let Ok(ip) = Ipv4::new(bytes).map_err(drop).and_then(|ip| (ip.version() == 4).then_some(ip).ok_or(()))
    {
        let mut fields = vec![
            ("ip src", ip.src().to_string()),
            ("ip dst", ip.dst().to_string()),
            ("ttl", ip.ttl().to_string()),
            ("tos", format!("0x{:02x}", ip.tos())),
            ("ip id", ip.id().to_string()),
            ("ip length", ip.total_length().to_string()),
            ("fragment", fragment(&ip)),
            ("protocol", ip.protocol().0.to_string()),
            ("ip options", hex(ip.options())),
            (IP_CHECKSUM, format!("0x{:04x}", ip.checksum())),
        ];
        if ip.fragment_offset() == 0 {
            fields.extend(transport_fields(ip.protocol(), ip.payload()));
        }
        return fields;
    }
    let Ok(ip) = Ipv6::new(bytes) else { return Vec::new() };
    let mut fields = vec![
        ("ip src", ip.src().to_string()),
        ("ip dst", ip.dst().to_string()),
        (HOP_LIMIT, ip.hop_limit().to_string()),
        ("traffic class", format!("0x{:02x}", ip.traffic_class())),
        ("flow label", format!("0x{:05x}", ip.flow_label())),
        ("payload length", ip.payload_length().to_string()),
        ("next header", ip.next_header().0.to_string()),
    ];
    fields.extend(transport_fields(ip.next_header(), ip.payload()));
    fields
}

/// What packets of version 6 alone have.
const HOP_LIMIT: &str = "hop limit";
/// Its change follows from that of other fields of the header, and is left out beside these.
pub(super) const IP_CHECKSUM: &str = "ip checksum";
/// The same for a transport header.
pub(super) const CHECKSUM: &str = "checksum";

fn fragment(ip: &Ipv4<&[u8]>) -> String {
    let flags = [(ip.dont_fragment(), " df"), (ip.more_fragments(), " mf")];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    format!("offset {}{flags}", ip.fragment_offset())
}

fn transport_fields(protocol: IpProtocol, bytes: &[u8]) -> Vec<Field> {
    match protocol {
        IpProtocol::UDP => Udp::new(bytes).map_or(Vec::new(), |udp| {
            vec![
                ("src port", udp.src_port().to_string()),
                ("dst port", udp.dst_port().to_string()),
                ("udp length", udp.length().to_string()),
                (CHECKSUM, format!("0x{:04x}", udp.checksum())),
            ]
        }),
        IpProtocol::TCP => Tcp::new(bytes).map_or(Vec::new(), |tcp| {
            vec![
                ("src port", tcp.src_port().to_string()),
                ("dst port", tcp.dst_port().to_string()),
                ("seq", tcp.seq().to_string()),
                ("ack", tcp.ack().to_string()),
                ("flags", tcp.flags().to_string()),
                ("window", tcp.window().to_string()),
                ("tcp options", hex(tcp.options())),
                (CHECKSUM, format!("0x{:04x}", tcp.checksum())),
            ]
        }),
        IpProtocol::ICMP => bytes.first_chunk::<2>().map_or(Vec::new(), |[kind, code]| {
            vec![("icmp type", kind.to_string()), ("icmp code", code.to_string())]
        }),
        _ => Vec::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "none".to_string();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
