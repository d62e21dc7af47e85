//! IPv6 packets in the making, with extension headers if wanted.

use std::net::Ipv6Addr;

use super::{Header, Literal, Upper, echo_numbers, length_field};
use crate::{Icmp6Type, IpProtocol, Ipv6, checksum};

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

/// An IPv6 packet in the making.
#[derive(Clone, Debug)]
pub struct Ip6 {
    src: Ipv6Addr,
    dst: Ipv6Addr,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    extensions: Vec<(IpProtocol, Vec<u8>)>,
    pub(super) upper: Upper,
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

    /// Adds an extension header after those there are. Of `body`, what follows the header's length field,
    /// there must be as much as makes whole units of 8 bytes; an authentication header is counted in words.
    pub fn extension(mut self, protocol: u8, body: impl AsRef<[u8]>) -> Ip6 {
        let (protocol, body, len) = (IpProtocol(protocol), body.as_ref(), body.as_ref().len() + 2);
        assert!(len.is_multiple_of(8) && len <= 2048, "{len} bytes are no extension header");
        let length = if protocol == IpProtocol::AUTHENTICATION { len / 4 - 2 } else { len / 8 - 1 };
        self.extensions.push((protocol, [&[length as u8], body].concat()));
        self
    }

    /// Adds a fragment header: what follows belongs at `offset`, a multiple of 8.
    pub fn fragment(mut self, offset: usize, more: bool, id: u32) -> Ip6 {
        assert!(offset.is_multiple_of(8) && offset < 1 << 16, "{offset} is not a fragment offset");
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
