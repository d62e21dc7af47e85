//! What follows an IP header of either version, with a checksum that is right.

use super::{Ip4, Ip6, length_field};
use crate::{Icmp, Icmp6, Icmp6Type, IcmpType, IpProtocol, Tcp, TcpFlags, Udp, checksum};

/// What follows an IP header.
#[derive(Clone, Debug)]
pub(super) struct Upper {
    pub(super) header: Header,
    payload: Vec<u8>,
}

/// The header after the IP header, if it is one that is known here.
#[derive(Clone, Debug)]
pub(super) enum Header {
    None(IpProtocol),
    Udp { src_port: u16, dst_port: u16 },
    Tcp(Segment),
    Icmp { icmp_type: IcmpType, code: u8, rest: [u8; 4] },
    Icmp6 { icmp_type: Icmp6Type, code: u8, rest: [u8; 4] },
}

/// The fields of a TCP header.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    src_port: u16,
    dst_port: u16,
    seq: u32,
    ack: u32,
    flags: TcpFlags,
    window: u16,
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

            /// Makes it a TCP segment: a SYN with sequence number 0 and window 65535 unless set otherwise.
            pub fn tcp(mut self, src_port: u16, dst_port: u16) -> Self {
                let (seq, ack, flags, window) = (0, 0, TcpFlags::SYN, 65535);
                self.upper.header = Header::Tcp(Segment { src_port, dst_port, seq, ack, flags, window });
                self
            }

            /// Sets the sequence number of a TCP segment.
            pub fn seq(mut self, seq: u32) -> Self {
                self.upper.segment().seq = seq;
                self
            }

            /// Sets the acknowledgment number of a TCP segment.
            pub fn ack(mut self, ack: u32) -> Self {
                self.upper.segment().ack = ack;
                self
            }

            /// Sets the flags of a TCP segment.
            pub fn flags(mut self, flags: TcpFlags) -> Self {
                self.upper.segment().flags = flags;
                self
            }

            /// Sets the window of a TCP segment.
            pub fn window(mut self, window: u16) -> Self {
                self.upper.segment().window = window;
                self
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

impl Upper {
    fn segment(&mut self) -> &mut Segment {
        let Header::Tcp(segment) = &mut self.header else { panic!("say tcp(...) first") };
        segment
    }

    pub(super) fn protocol(&self) -> IpProtocol {
        match self.header {
            Header::None(protocol) => protocol,
            Header::Udp { .. } => IpProtocol::UDP,
            Header::Tcp(_) => IpProtocol::TCP,
            Header::Icmp { .. } => IpProtocol::ICMP,
            Header::Icmp6 { .. } => IpProtocol::ICMPV6,
        }
    }

    /// Header and payload; `pseudo` sums the pseudo-header for a protocol and a length.
    pub(super) fn bytes(&self, pseudo: impl Fn(IpProtocol, u16) -> u16) -> Vec<u8> {
        let mut bytes = vec![0; self.header_len()];
        bytes.extend(&self.payload);
        let length = length_field(bytes.len());
        self.fill_header(&mut bytes, length);
        let checksum = !checksum::add(pseudo(self.protocol(), length), checksum::sum(&bytes));
        match self.header {
            Header::None(_) => {}
            Header::Udp { .. } => view_udp(&mut bytes).set_checksum(checksum::never_zero(checksum)),
            Header::Tcp(_) => view_tcp(&mut bytes).set_checksum(checksum),
            Header::Icmp { .. } => view_icmp(&mut bytes).fill_checksum(),
            Header::Icmp6 { .. } => view_icmp6(&mut bytes).set_checksum(checksum),
        }
        bytes
    }

    fn header_len(&self) -> usize {
        match self.header {
            Header::None(_) => 0,
            Header::Udp { .. } => Udp::<&[u8]>::LEN,
            Header::Tcp(_) => Tcp::<&[u8]>::MIN_LEN,
            Header::Icmp { .. } => Icmp::<&[u8]>::LEN,
            Header::Icmp6 { .. } => Icmp6::<&[u8]>::LEN,
        }
    }

    fn fill_header(&self, bytes: &mut [u8], length: u16) {
        match self.header {
            Header::None(_) => {}
            Header::Udp { src_port, dst_port } => {
                let mut header = view_udp(bytes);
                header.set_src_port(src_port);
                header.set_dst_port(dst_port);
                header.set_length(length);
            }
            Header::Tcp(ref segment) => segment.fill_header(bytes),
            Header::Icmp { icmp_type, code, rest } => {
                let mut header = view_icmp(bytes);
                header.set_icmp_type(icmp_type);
                header.set_code(code);
                header.set_rest(rest);
            }
            Header::Icmp6 { icmp_type, code, rest } => {
                let mut header = view_icmp6(bytes);
                header.set_icmp_type(icmp_type);
                header.set_code(code);
                header.set_rest(rest);
            }
        }
    }
}

impl Segment {
    fn fill_header(&self, bytes: &mut [u8]) {
        let mut header = Tcp::init(bytes).expect("room was made for the header");
        header.set_src_port(self.src_port);
        header.set_dst_port(self.dst_port);
        header.set_seq(self.seq);
        header.set_ack(self.ack);
        header.set_flags(self.flags);
        header.set_window(self.window);
    }
}

fn view_udp(bytes: &mut [u8]) -> Udp<&mut [u8]> {
    Udp::new(bytes).expect("room was made for the header")
}

fn view_tcp(bytes: &mut [u8]) -> Tcp<&mut [u8]> {
    Tcp::new(bytes).expect("the header is filled")
}

fn view_icmp(bytes: &mut [u8]) -> Icmp<&mut [u8]> {
    Icmp::new(bytes).expect("room was made for the header")
}

fn view_icmp6(bytes: &mut [u8]) -> Icmp6<&mut [u8]> {
    Icmp6::new(bytes).expect("room was made for the header")
}
