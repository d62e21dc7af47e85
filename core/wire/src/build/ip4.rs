//! IPv4 packets in the making.

use std::net::Ipv4Addr;

use super::{Header, Literal, Upper, echo_numbers, length_field};
use crate::{IcmpType, Ipv4, checksum};

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
    pub(super) upper: Upper,
}

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

    /// Sets the identification field, in host order.
    pub fn id(self, id: u16) -> Ip4 {
        Ip4 { id, ..self }
    }

    /// Sets the Don't Fragment flag.
    pub fn dont_fragment(self) -> Ip4 {
        Ip4 { fragment: (true, self.fragment.1, self.fragment.2), ..self }
    }

    /// Makes it a fragment whose payload belongs at `offset`, a multiple of 8.
    pub fn fragment(self, offset: usize, more: bool) -> Ip4 {
        assert!(offset.is_multiple_of(8) && offset < 1 << 16, "{offset} is not a fragment offset");
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
