//! Ends of flows, and their numbers, by which one of several next hops is chosen.
use artery_l3::path::Method;
use artery_wire::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, flow_hash};
use std::net::IpAddr;

/// The numbers of flows, of one worker.
#[derive(Default)]
pub struct FlowHasher {
    /// Packets that were numbered one by one, for per-packet methods.
    packet_count: u32,
}

/// Successive multiples of this, a golden section of the circle of numbers, are spread evenly over it.
const STEP: u32 = 0x9e37_79b9;

impl FlowHasher {
    /// The number of a frame's flow, by which `method` chooses a next hop; per-packet
    /// methods get consecutive numbers.
    #[inline]
    pub fn flow_number(&mut self, frame: &[u8], method: Method) -> u32 {
        match method {
            Method::Hash => flow_hash(frame),
            Method::Xor => xor_frame(frame),
            Method::PerPacket => {
                self.packet_count = self.packet_count.wrapping_add(1);
                self.packet_count.wrapping_mul(STEP)
            }
        }
    }
}

/// Source and destination address of a packet.
pub fn source_and_destination(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => Ipv4::new(packet).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        6 => Ipv6::new(packet).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        _ => None,
    }
}

/// Addresses and ports of a frame, combined by exclusive or. Fragments have no ports.
fn xor_frame(frame: &[u8]) -> u32 {
    let Ok(ethernet) = Ethernet::new(frame) else { return 0 };
    match ethernet.payload_type() {
        EtherType::IPV4 => Ipv4::new(ethernet.payload()).map_or(0, |ip| {
            let ports = if ip.is_fragment() { [0, 0] } else { parse_ports(ip.protocol(), ip.payload()) };
            xor_flow([ip.src().into(), ip.dst().into()], ports)
        }),
        EtherType::IPV6 => Ipv6::new(ethernet.payload()).map_or(0, |ip| {
            xor_flow([ip.src().into(), ip.dst().into()], parse_ports(ip.next_header(), ip.payload()))
        }),
        _ => 0,
    }
}

/// The same of both ends of a flow.
#[inline]
pub fn xor_flow(addresses: [IpAddr; 2], [from, to]: [u16; 2]) -> u32 {
    let folded = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let half = (bits >> 64) as u64 ^ bits as u64;
            (half >> 32) as u32 ^ half as u32
        }
    };
    let [src, dst] = addresses.map(folded);
    src ^ dst ^ u32::from(from ^ to)
}

fn parse_ports(protocol: IpProtocol, payload: &[u8]) -> [u16; 2] {
    match payload.first_chunk::<4>() {
        Some(&[a, b, c, d]) if protocol == IpProtocol::TCP || protocol == IpProtocol::UDP => {
            [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
        }
        _ => [0, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_l3::path::member_index;
    use artery_wire::build::{Ip4, ether, ip4, ip6};

    fn frame(ip: Ip4) -> Vec<u8> {
        ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(ip).bytes()
    }

    #[test]
    fn exclusive_or_takes_addresses_and_ports_together_and_of_fragments_addresses_only() {
        let mut flows = FlowHasher::default();
        let mut number = |frame: &[u8]| flows.flow_number(frame, Method::Xor);
        let base = ip4().src("10.0.0.1").dst("10.0.0.2");
        assert_eq!(number(&frame(base.clone().udp(7, 1))), 3 ^ 7 ^ 1);
        assert_eq!(number(&frame(base.clone().fragment(0, true).udp(7, 1).payload([1; 16]))), 3);
        assert_eq!(number(&frame(base.raw(200, [9; 8]))), 3);
        let six = ether("02:00:00:00:00:01", "02:00:00:00:00:02");
        let found = number(&six.ip6(ip6().src("2001:db8::4").dst("2001:db8::1").tcp(6, 4)).bytes());
        assert_eq!(found, 5 ^ 6 ^ 4);
        assert_eq!(number(&[]), 0);
    }

    #[test]
    fn packets_of_their_own_number_take_members_in_turn_nearly() {
        let mut flows = FlowHasher::default();
        let mut counts = [0; 3];
        (0..3000).for_each(|_| {
            counts[member_index(Method::PerPacket, flows.flow_number(&[], Method::PerPacket), 3) as usize] +=
                1
        });
        assert!(counts.iter().all(|count| (995..=1005).contains(count)), "{counts:?}");
    }
}
