//! Names of protocols, ports, flags and types that IP patterns may use.
use crate::ip::name;
use artery_wire::NumberNames;

/// Stands for TCP or UDP where a protocol is named.
pub(super) const TCP_OR_UDP: u32 = 256;
/// Stands for any transport protocol.
pub(super) const TRANSPORT: u32 = 257;
/// Other programs use this name for the data after the transport header; here it means [`TRANSPORT`].
pub(super) const PAYLOAD: u32 = 258;
pub(super) const ICMP: u32 = 1;
pub(super) const TCP: u32 = 6;
pub(super) const UDP: u32 = 17;
pub(super) const DCCP: u32 = 33;

/// Protocols that only patterns have names for, and what stands for several ([`PAYLOAD`] and the like).
const PROTOCOLS: NumberNames = NumberNames("eigrp 88  payload 258  tcpudp 256  transp 257");

const TCP_PORTS: NumberNames = NumberNames("login 513  printer 515  shell 514");

const TCP_OPTIONS: NumberNames = NumberNames("ack 0x10  fin 0x01  psh 0x08  rst 0x04  syn 0x02  urg 0x20");

/// Everything that a word can name, in the order in which it is tried.
pub(super) struct Meanings {
    pub(crate) protocol: Option<u32>,
    pub(crate) tcp_port: Option<u32>,
    pub(crate) udp_port: Option<u32>,
    pub(crate) tcp_option: Option<u32>,
    pub(crate) icmp_type: Option<u32>,
}

impl Meanings {
    pub(crate) fn of_word(word: &str) -> Meanings {
        Meanings {
            protocol: name::protocol_number(word).or_else(|| PROTOCOLS.number_of(word)),
            tcp_port: name::port_number(word).or_else(|| TCP_PORTS.number_of(word)),
            udp_port: name::udp_port_number(word),
            tcp_option: TCP_OPTIONS.number_of(word),
            icmp_type: name::icmp_type_number(word),
        }
    }
}

/// A protocol as patterns spell it; empty for None.
pub(super) fn protocol_name(protocol: Option<u32>) -> String {
    match protocol {
        None => String::new(),
        Some(PAYLOAD) => "payload".into(),
        Some(TRANSPORT) => "transp".into(),
        Some(TCP_OR_UDP) => "tcpudp".into(),
        Some(number @ (1 | 2 | 4 | 6 | 17)) => name::protocol_name(number as u8).unwrap_or("").into(),
        Some(number) => format!("ip proto {number}"),
    }
}
