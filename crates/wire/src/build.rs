//! Packets written readably, with correct lengths and checksums: for tests and generators, not the packet path.
//!
//! Addresses are given as text, bytes or address types; text that is not an address is a mistake in the program
//! and panics.
//!
//! ```
//! use artery_wire::build::{ether, ip4};
//! let packet = ip4().src("10.0.0.1").dst("10.0.0.2").ttl(1).udp(1234, 53).payload("hello");
//! let frame = ether("02:00:00:00:00:02", "02:00:00:00:00:01").vlan(7).ip4(packet);
//! assert_eq!(frame.bytes().len(), 14 + 4 + 20 + 8 + 5);
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::nd::{self, AdvertisementFlags, Station};
use crate::{
    Arp, ArpOperation, EtherAddr, EtherType, Ethernet, Icmp, Icmp6, Icmp6Type, IcmpType, IpProtocol, Ipv4,
    Ipv6, Tcp, TcpFlags, Udp, VlanTag, checksum,
};

/// What may be written where an address is wanted.
pub trait Literal<A> {
    /// Returns the address.
    fn address(self) -> A;
}

macro_rules! literals {
    ($($address:ty: $octets:ty),*) => {$(
        impl Literal<$address> for $address {
            fn address(self) -> $address {
                self
            }
        }
        impl Literal<$address> for $octets {
            fn address(self) -> $address {
                self.into()
            }
        }
        impl Literal<$address> for &str {
            fn address(self) -> $address {
                self.parse().unwrap_or_else(|_| panic!("{self:?} is not a {}", stringify!($address)))
            }
        }
    )*};
}

literals!(Ipv4Addr: [u8; 4], Ipv6Addr: [u8; 16], EtherAddr: [u8; 6]);

/// Begins an IPv4 packet: from 10.0.0.1 to 10.0.0.2, time to live 64, without payload.
pub fn ip4() -> Ip4 {
    Ip4 {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        tos: 0,
        id: 0,
        fragment: (false, false, 0),
        ttl: 64,
        options: Vec::new(),
        upper: Upper::default(),
    }
}

/// Begins an IPv6 packet: from 2001:db8::1 to 2001:db8::2, hop limit 64, without payload.
pub fn ip6() -> Ip6 {
    Ip6 {
        src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        extensions: Vec::new(),
        upper: Upper::default(),
    }
}

/// Begins a frame.
pub fn ether(dst: impl Literal<EtherAddr>, src: impl Literal<EtherAddr>) -> Ether {
    Ether { dst: dst.address(), src: src.address(), tags: Vec::new() }
}

/// Builds the broadcast frame that asks who has `target`.
pub fn arp_request(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv4Addr>,
    target_ip: impl Literal<Ipv4Addr>,
) -> Frame {
    let (me, target) = ((sender.address(), sender_ip.address()), (EtherAddr::ZERO, target_ip.address()));
    ether(EtherAddr::BROADCAST, me.0).arp(ArpOperation::REQUEST, me, target)
}

/// Builds the frame that tells `target` that `sender` has `sender_ip`.
pub fn arp_reply(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv4Addr>,
    target: impl Literal<EtherAddr>,
    target_ip: impl Literal<Ipv4Addr>,
) -> Frame {
    let (me, you) = ((sender.address(), sender_ip.address()), (target.address(), target_ip.address()));
    ether(you.0, me.0).arp(ArpOperation::REPLY, me, you)
}

/// Builds the multicast frame that asks who has `target_ip`; from `::`, it probes whether anyone has.
pub fn neighbor_solicitation(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv6Addr>,
    target_ip: impl Literal<Ipv6Addr>,
) -> Frame {
    let me = Station { ether: sender.address(), ip: sender_ip.address() };
    Frame(nd::neighbor_solicitation(me, target_ip.address(), None))
}

/// Builds the frame that tells `target`, who asked, that `sender` has `sender_ip` and is no router.
pub fn neighbor_advertisement(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv6Addr>,
    target: impl Literal<EtherAddr>,
    target_ip: impl Literal<Ipv6Addr>,
) -> Frame {
    let me = Station { ether: sender.address(), ip: sender_ip.address() };
    let you = Station { ether: target.address(), ip: target_ip.address() };
    let flags = AdvertisementFlags { router: false, solicited: true, overrides: true };
    Frame(nd::neighbor_advertisement(me, you, me, flags))
}

/// Begins an IPv4 packet with an ICMP echo request.
pub fn icmp_echo(src: impl Literal<Ipv4Addr>, dst: impl Literal<Ipv4Addr>, id: u16, seq: u16) -> Ip4 {
    ip4().src(src).dst(dst).icmp_echo(id, seq)
}

/// An IPv4 packet in the making.
#[derive(Clone, Debug)]
pub struct Ip4 {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    tos: u8,
    id: u16,
    fragment: (bool, bool, usize),
    ttl: u8,
    options: Vec<u8>,
    upper: Upper,
}

/// An IPv6 packet in the making.
#[derive(Clone, Debug)]
pub struct Ip6 {
    src: Ipv6Addr,
    dst: Ipv6Addr,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    extensions: Vec<(IpProtocol, Vec<u8>)>,
    upper: Upper,
}

/// An Ethernet header in the making.
#[derive(Clone, Debug)]
pub struct Ether {
    dst: EtherAddr,
    src: EtherAddr,
    tags: Vec<u16>,
}

/// A frame that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

/// What follows an IP header.
#[derive(Clone, Debug)]
struct Upper {
    header: Header,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Header {
    None(IpProtocol),
    Udp { src_port: u16, dst_port: u16 },
    Tcp { src_port: u16, dst_port: u16, seq: u32, ack: u32, flags: TcpFlags, window: u16 },
    Icmp { icmp_type: IcmpType, code: u8, rest: [u8; 4] },
    Icmp6 { icmp_type: Icmp6Type, code: u8, rest: [u8; 4] },
}

impl Default for Upper {
    fn default() -> Upper {
        const FOR_EXPERIMENTS: IpProtocol = IpProtocol(253); // RFC 3692
        Upper { header: Header::None(FOR_EXPERIMENTS), payload: Vec::new() }
    }
}

macro_rules! upper_layers {
    ($builder:ty) => {
        impl $builder {
            /// Makes it a UDP datagram.
            pub fn udp(mut self, src_port: u16, dst_port: u16) -> Self {
                self.upper.header = Header::Udp { src_port, dst_port };
                self
            }

            /// Makes it a TCP segment: a SYN with sequence number 0 and window 65535 unless told otherwise.
            pub fn tcp(mut self, src_port: u16, dst_port: u16) -> Self {
                let (seq, ack, flags, window) = (0, 0, TcpFlags::SYN, 65535);
                self.upper.header = Header::Tcp { src_port, dst_port, seq, ack, flags, window };
                self
            }

            /// Sets the sequence number of a TCP segment.
            pub fn seq(self, number: u32) -> Self {
                self.with_tcp(|header| {
                    if let Header::Tcp { seq, .. } = header {
                        *seq = number
                    }
                })
            }

            /// Sets the acknowledgment number of a TCP segment.
            pub fn ack(self, number: u32) -> Self {
                self.with_tcp(|header| {
                    if let Header::Tcp { ack, .. } = header {
                        *ack = number
                    }
                })
            }

            /// Sets the flags of a TCP segment.
            pub fn flags(self, bits: TcpFlags) -> Self {
                self.with_tcp(|header| {
                    if let Header::Tcp { flags, .. } = header {
                        *flags = bits
                    }
                })
            }

            /// Sets the window of a TCP segment.
            pub fn window(self, bytes: u16) -> Self {
                self.with_tcp(|header| {
                    if let Header::Tcp { window, .. } = header {
                        *window = bytes
                    }
                })
            }

            /// Makes it a packet of another protocol with these bytes after the IP header.
            pub fn raw(mut self, protocol: u8, payload: impl AsRef<[u8]>) -> Self {
                self.upper.header = Header::None(IpProtocol(protocol));
                self.payload(payload)
            }

            /// Sets what follows the last header.
            pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
                self.upper.payload = payload.as_ref().to_vec();
                self
            }

            fn with_tcp(mut self, change: impl FnOnce(&mut Header)) -> Self {
                assert!(matches!(self.upper.header, Header::Tcp { .. }), "say tcp(...) first");
                change(&mut self.upper.header);
                self
            }
        }

        impl From<$builder> for Vec<u8> {
            fn from(packet: $builder) -> Vec<u8> {
                packet.bytes()
            }
        }
    };
}

upper_layers!(Ip4);
upper_layers!(Ip6);

impl Ip4 {
    /// Sets the source address.
    pub fn src(self, addr: impl Literal<Ipv4Addr>) -> Ip4 {
        Ip4 { src: addr.address(), ..self }
    }

    /// Sets the destination address.
    pub fn dst(self, addr: impl Literal<Ipv4Addr>) -> Ip4 {
        Ip4 { dst: addr.address(), ..self }
    }

    /// Sets the time to live.
    pub fn ttl(self, ttl: u8) -> Ip4 {
        Ip4 { ttl, ..self }
    }

    /// Sets the type of service.
    pub fn tos(self, tos: u8) -> Ip4 {
        Ip4 { tos, ..self }
    }

    /// Sets the identification.
    pub fn id(self, id: u16) -> Ip4 {
        Ip4 { id, ..self }
    }

    /// Forbids fragmentation.
    pub fn dont_fragment(self) -> Ip4 {
        Ip4 { fragment: (true, self.fragment.1, self.fragment.2), ..self }
    }

    /// Makes it a fragment whose payload belongs at `offset`, a multiple of 8.
    pub fn fragment(self, offset: usize, more: bool) -> Ip4 {
        assert!(offset.is_multiple_of(8) && offset < 1 << 16, "{offset} is no fragment offset");
        Ip4 { fragment: (self.fragment.0, more, offset), ..self }
    }

    /// Sets the options, padded with zeroes (end of list) to a multiple of 4.
    pub fn options(self, options: impl AsRef<[u8]>) -> Ip4 {
        let mut options = options.as_ref().to_vec();
        assert!(options.len() <= 40, "no room for {} bytes of options", options.len());
        options.resize(options.len().next_multiple_of(4), 0);
        Ip4 { options, ..self }
    }

    /// Makes it an ICMP message; `rest` is the second word of its header.
    pub fn icmp(mut self, icmp_type: IcmpType, code: u8, rest: [u8; 4]) -> Ip4 {
        self.upper.header = Header::Icmp { icmp_type, code, rest };
        self
    }

    /// Makes it an ICMP echo request.
    pub fn icmp_echo(self, id: u16, seq: u16) -> Ip4 {
        self.icmp(IcmpType::ECHO_REQUEST, 0, echo_numbers(id, seq))
    }

    /// Makes it an ICMP echo reply.
    pub fn icmp_echo_reply(self, id: u16, seq: u16) -> Ip4 {
        self.icmp(IcmpType::ECHO_REPLY, 0, echo_numbers(id, seq))
    }

    /// Returns the packet from its IP header on.
    pub fn bytes(&self) -> Vec<u8> {
        let upper = self.upper.bytes(|protocol, len| checksum::pseudo_v4(self.src, self.dst, protocol, len));
        let header_len = Ipv4::<&[u8]>::MIN_LEN + self.options.len();
        let mut bytes = vec![0; Ipv4::<&[u8]>::MIN_LEN];
        bytes.extend(&self.options);
        bytes.extend(&upper);
        self.fill_header(&mut bytes, header_len);
        bytes
    }

    fn fill_header(&self, bytes: &mut [u8], header_len: usize) {
        let total_length = length_field(bytes.len());
        let (dont_fragment, more, offset) = self.fragment;
        Ipv4::init(&mut *bytes).expect("the bytes begin with a whole header");
        bytes[0] = 0x40 | (header_len / 4) as u8;
        let mut header = Ipv4::new(bytes).expect("the header length fits the options");
        header.set_tos(self.tos);
        header.set_total_length(total_length);
        header.set_id(self.id);
        header.set_fragment(dont_fragment, more, offset);
        header.set_ttl(self.ttl);
        header.set_protocol(self.upper.protocol());
        header.set_src(self.src);
        header.set_dst(self.dst);
        header.fill_checksum();
    }
}

impl Ip6 {
    /// Sets the source address.
    pub fn src(self, addr: impl Literal<Ipv6Addr>) -> Ip6 {
        Ip6 { src: addr.address(), ..self }
    }

    /// Sets the destination address.
    pub fn dst(self, addr: impl Literal<Ipv6Addr>) -> Ip6 {
        Ip6 { dst: addr.address(), ..self }
    }

    /// Sets the hop limit.
    pub fn hop_limit(self, hop_limit: u8) -> Ip6 {
        Ip6 { hop_limit, ..self }
    }

    /// Sets the traffic class.
    pub fn traffic_class(self, traffic_class: u8) -> Ip6 {
        Ip6 { traffic_class, ..self }
    }

    /// Sets the flow label.
    pub fn flow_label(self, flow_label: u32) -> Ip6 {
        Ip6 { flow_label, ..self }
    }

    /// Adds an extension header after those there are. Of `body`, what follows the header's length field, there must be
    /// as much as makes whole units of 8 bytes; an authentication header is counted in words.
    pub fn extension(mut self, protocol: u8, body: impl AsRef<[u8]>) -> Ip6 {
        let (protocol, body, len) = (IpProtocol(protocol), body.as_ref(), body.as_ref().len() + 2);
        assert!(len.is_multiple_of(8) && len <= 2048, "{len} bytes are no extension header");
        let length = if protocol == IpProtocol::AUTHENTICATION { len / 4 - 2 } else { len / 8 - 1 };
        self.extensions.push((protocol, [&[length as u8], body].concat()));
        self
    }

    /// Adds a fragment header: what follows belongs at `offset`, a multiple of 8.
    pub fn fragment(mut self, offset: usize, more: bool, id: u32) -> Ip6 {
        assert!(offset.is_multiple_of(8) && offset < 1 << 16, "{offset} is no fragment offset");
        let field = offset as u16 | u16::from(more);
        let body = [&[0], &field.to_be_bytes()[..], &id.to_be_bytes()].concat();
        self.extensions.push((IpProtocol::FRAGMENT, body));
        self
    }

    /// Makes it an ICMPv6 message; `rest` is the second word of its header.
    pub fn icmp(mut self, icmp_type: Icmp6Type, code: u8, rest: [u8; 4]) -> Ip6 {
        self.upper.header = Header::Icmp6 { icmp_type, code, rest };
        self
    }

    /// Makes it an ICMPv6 echo request.
    pub fn icmp_echo(self, id: u16, seq: u16) -> Ip6 {
        self.icmp(Icmp6Type::ECHO_REQUEST, 0, echo_numbers(id, seq))
    }

    /// Makes it an ICMPv6 echo reply.
    pub fn icmp_echo_reply(self, id: u16, seq: u16) -> Ip6 {
        self.icmp(Icmp6Type::ECHO_REPLY, 0, echo_numbers(id, seq))
    }

    /// Returns the packet from its IP header on.
    pub fn bytes(&self) -> Vec<u8> {
        let pseudo = |protocol, len: u16| checksum::pseudo_v6(self.src, self.dst, protocol, len.into());
        let upper = self.upper.bytes(pseudo);
        let mut bytes = vec![0; Ipv6::<&[u8]>::LEN];
        let first = self.add_extensions(&mut bytes);
        bytes.extend(&upper);
        let length = length_field(bytes.len() - Ipv6::<&[u8]>::LEN);
        let mut header = Ipv6::init(&mut bytes).expect("the bytes begin with a whole header");
        header.set_traffic_class(self.traffic_class);
        header.set_flow_label(self.flow_label);
        header.set_payload_length(length);
        header.set_next_header(first);
        header.set_hop_limit(self.hop_limit);
        header.set_src(self.src);
        header.set_dst(self.dst);
        bytes
    }

    /// Adds the extension headers, each with the protocol of what follows it; returns that of the first.
    fn add_extensions(&self, bytes: &mut Vec<u8>) -> IpProtocol {
        let mut protocols =
            self.extensions.iter().map(|(protocol, _)| *protocol).chain([self.upper.protocol()]);
        let first = protocols.next().expect("there is at least the upper layer's");
        for ((_, body), next) in self.extensions.iter().zip(protocols) {
            bytes.push(next.0);
            bytes.extend(body);
        }
        first
    }
}

impl Ether {
    /// Adds a VLAN tag inside those there are.
    pub fn vlan(mut self, id: u16) -> Ether {
        self.tags.push(id);
        self
    }

    /// Completes the frame with an IPv4 packet.
    pub fn ip4(self, packet: Ip4) -> Frame {
        self.raw(EtherType::IPV4, packet.bytes())
    }

    /// Completes the frame with an IPv6 packet.
    pub fn ip6(self, packet: Ip6) -> Frame {
        self.raw(EtherType::IPV6, packet.bytes())
    }

    /// Completes the frame with an ARP packet.
    pub fn arp(
        self,
        operation: ArpOperation,
        sender: (EtherAddr, Ipv4Addr),
        target: (EtherAddr, Ipv4Addr),
    ) -> Frame {
        let mut arp = [0; Arp::<&[u8]>::LEN];
        let mut view = Arp::init(&mut arp).expect("the array is as long as the packet");
        view.set_operation(operation);
        view.set_sender(sender.0, sender.1);
        view.set_target(target.0, target.1);
        self.raw(EtherType::ARP, arp)
    }

    /// Completes the frame with any payload; the outer of two tags is announced as IEEE 802.1ad has it.
    pub fn raw(self, ether_type: EtherType, payload: impl AsRef<[u8]>) -> Frame {
        let mut bytes = vec![0; Ethernet::<&[u8]>::LEN - 2];
        let mut inside = self.tags.len();
        for tag in &self.tags {
            let announced = if inside > 1 { EtherType::QINQ } else { EtherType::VLAN };
            bytes.extend(announced.0.to_be_bytes());
            bytes.extend(VlanTag::new(*tag, 0, false).0.to_be_bytes());
            inside -= 1;
        }
        bytes.extend(ether_type.0.to_be_bytes());
        bytes.extend(payload.as_ref());
        let mut header = Ethernet::new(&mut bytes).expect("the bytes begin with a whole header");
        header.set_dst(self.dst);
        header.set_src(self.src);
        Frame(bytes)
    }
}

impl Frame {
    /// Returns the frame from its destination address on.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.clone()
    }
}

impl From<Frame> for Vec<u8> {
    fn from(frame: Frame) -> Vec<u8> {
        frame.0
    }
}

impl Upper {
    fn protocol(&self) -> IpProtocol {
        match self.header {
            Header::None(protocol) => protocol,
            Header::Udp { .. } => IpProtocol::UDP,
            Header::Tcp { .. } => IpProtocol::TCP,
            Header::Icmp { .. } => IpProtocol::ICMP,
            Header::Icmp6 { .. } => IpProtocol::ICMPV6,
        }
    }

    /// Header and payload; `pseudo` sums the pseudo-header for a protocol and a length.
    fn bytes(&self, pseudo: impl Fn(IpProtocol, u16) -> u16) -> Vec<u8> {
        let mut bytes = vec![0; self.header_len()];
        bytes.extend(&self.payload);
        let length = length_field(bytes.len());
        self.fill_header(&mut bytes, length);
        let checksum = !checksum::add(pseudo(self.protocol(), length), checksum::sum(&bytes));
        match self.header {
            Header::None(_) => {}
            Header::Udp { .. } => udp(&mut bytes).set_checksum(checksum::never_zero(checksum)),
            Header::Tcp { .. } => tcp(&mut bytes).set_checksum(checksum),
            Header::Icmp { .. } => icmp(&mut bytes).fill_checksum(),
            Header::Icmp6 { .. } => icmp6(&mut bytes).set_checksum(checksum),
        }
        bytes
    }

    fn header_len(&self) -> usize {
        match self.header {
            Header::None(_) => 0,
            Header::Udp { .. } => Udp::<&[u8]>::LEN,
            Header::Tcp { .. } => Tcp::<&[u8]>::MIN_LEN,
            Header::Icmp { .. } => Icmp::<&[u8]>::LEN,
            Header::Icmp6 { .. } => Icmp6::<&[u8]>::LEN,
        }
    }

    fn fill_header(&self, bytes: &mut [u8], length: u16) {
        match self.header {
            Header::None(_) => {}
            Header::Udp { src_port, dst_port } => {
                let mut header = udp(bytes);
                header.set_src_port(src_port);
                header.set_dst_port(dst_port);
                header.set_length(length);
            }
            Header::Tcp { src_port, dst_port, seq, ack, flags, window } => {
                let mut header = Tcp::init(bytes).expect("room was made for the header");
                header.set_src_port(src_port);
                header.set_dst_port(dst_port);
                header.set_seq(seq);
                header.set_ack(ack);
                header.set_flags(flags);
                header.set_window(window);
            }
            Header::Icmp { icmp_type, code, rest } => {
                let mut header = icmp(bytes);
                header.set_icmp_type(icmp_type);
                header.set_code(code);
                header.set_rest(rest);
            }
            Header::Icmp6 { icmp_type, code, rest } => {
                let mut header = icmp6(bytes);
                header.set_icmp_type(icmp_type);
                header.set_code(code);
                header.set_rest(rest);
            }
        }
    }
}

fn udp(bytes: &mut [u8]) -> Udp<&mut [u8]> {
    Udp::new(bytes).expect("room was made for the header")
}

fn tcp(bytes: &mut [u8]) -> Tcp<&mut [u8]> {
    Tcp::new(bytes).expect("the header is filled")
}

fn icmp(bytes: &mut [u8]) -> Icmp<&mut [u8]> {
    Icmp::new(bytes).expect("room was made for the header")
}

fn icmp6(bytes: &mut [u8]) -> Icmp6<&mut [u8]> {
    Icmp6::new(bytes).expect("room was made for the header")
}

fn echo_numbers(id: u16, seq: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
    [a, b, c, d]
}

fn length_field(len: usize) -> u16 {
    len.try_into().unwrap_or_else(|_| panic!("{len} bytes are too many for an IP packet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_ones() {
        let plain = ip4().udp(1, 2).payload([0; 2]).bytes();
        let checksum = Udp::new(&plain[20..]).unwrap().checksum();
        let cancelled = ip4().udp(1, 2).payload(checksum.to_be_bytes()).bytes();
        assert_eq!(Udp::new(&cancelled[20..]).unwrap().checksum(), 0xffff);
    }

    #[test]
    fn addresses_may_be_text_bytes_or_addresses() {
        let text = ip4().src("1.2.3.4").dst("5.6.7.8").bytes();
        assert_eq!(ip4().src([1, 2, 3, 4]).dst(Ipv4Addr::new(5, 6, 7, 8)).bytes(), text);
        let frame = ether("0:0:0:0:0:1", [2; 6]).raw(EtherType(1), text);
        assert_eq!(frame.bytes()[..12], [0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    #[should_panic(expected = "\"1.2.3\" is not a Ipv4Addr")]
    fn text_that_is_no_address_is_refused() {
        ip4().src("1.2.3");
    }

    #[test]
    #[should_panic(expected = "too many for an IP packet")]
    fn a_payload_beyond_the_length_field_is_refused() {
        ip4().udp(1, 2).payload(vec![0; 65536]).bytes();
    }

    #[test]
    fn options_are_padded_and_counted_in_the_header_length() {
        let bytes = ip4().options([1, 1, 1]).udp(7, 8).bytes();
        let ip = Ipv4::new(&bytes).unwrap();
        assert_eq!((ip.header_len(), ip.options(), ip.payload().len()), (24, &[1, 1, 1, 0][..], 8));
        assert!(ip.checksum_is_valid());
    }
}
