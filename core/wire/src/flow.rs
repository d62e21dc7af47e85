//! A number for the flow that a packet belongs to.
use crate::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6};

/// A number for the flow of an Ethernet frame: equal for all packets of a flow and for both directions of it,
/// spread evenly over flows. A flow is what has the same two addresses and, for TCP and UDP, the same two
/// ports; fragments, of which only the first has ports, go by their addresses. What is not IP has 0.
#[inline]
pub fn flow_hash(frame: &[u8]) -> u32 {
    let Ok(ethernet) = Ethernet::new(frame) else { return 0 };
    match ethernet.payload_type() {
        EtherType::IPV4 => of_v4(ethernet.payload()),
        EtherType::IPV6 => of_v6(ethernet.payload()),
        _ => 0,
    }
}

fn of_v4(packet: &[u8]) -> u32 {
    let Ok(ip) = Ipv4::new(packet) else { return 0 };
    let ports = if ip.is_fragment() { [0, 0] } else { read_ports(ip.protocol(), ip.payload()) };
    combine_ends([u64::from(ip.src().to_bits()), u64::from(ip.dst().to_bits())], ports, ip.protocol())
}

fn of_v6(packet: &[u8]) -> u32 {
    let Ok(ip) = Ipv6::new(packet) else { return 0 };
    let half = |address: std::net::Ipv6Addr| {
        let bits = address.to_bits();
        (bits >> 64) as u64 ^ (bits as u64).rotate_left(23)
    };
    // Behind extension headers, fragments among them, no port is looked for.
    combine_ends(
        [half(ip.src()), half(ip.dst())],
        read_ports(ip.next_header(), ip.payload()),
        ip.next_header(),
    )
}

fn read_ports(protocol: IpProtocol, payload: &[u8]) -> [u16; 2] {
    match payload.first_chunk::<4>() {
        Some(&[a, b, c, d]) if protocol == IpProtocol::TCP || protocol == IpProtocol::UDP => {
            [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
        }
        _ => [0, 0],
    }
}

/// Treats both ends alike, so that neither direction matters.
#[inline]
fn combine_ends(addresses: [u64; 2], ports: [u16; 2], protocol: IpProtocol) -> u32 {
    let end = |n: usize| mix_word(addresses[n] ^ u64::from(ports[n]) << 48);
    let both = end(0).wrapping_add(end(1));
    (mix_word(both ^ u64::from(protocol.0)) >> 32) as u32
}

/// A permutation of words in which every bit of the result depends on every bit of the word.
#[inline]
fn mix_word(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{ether, ip4, ip6};
    use proptest::prelude::*;

    fn frame(ip: crate::build::Ip4) -> Vec<u8> {
        ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(ip).bytes()
    }

    proptest! {
        #[test]
        fn both_directions_and_a_tag_make_no_difference(a: u32, b: u32, p: u16, q: u16, v6: bool) {
            let text = |n: u32| std::net::Ipv4Addr::from_bits(n).to_string();
            let ether = || ether("02:00:00:00:00:01", "02:00:00:00:00:02");
            let make = |[a, b]: [u32; 2], [p, q]: [u16; 2], tag: bool| {
                let ether = if tag { ether().vlan(7) } else { ether() };
                if v6 {
                    ether
                        .ip6(
                            ip6()
                                .src(format!("2001:db8::{a:x}").as_str())
                                .dst(format!("fd00::{b:x}").as_str())
                                .udp(p, q),
                        )
                        .bytes()
                } else {
                    ether.ip4(ip4().src(text(a).as_str()).dst(text(b).as_str()).tcp(p, q)).bytes()
                }
            };
            let there = flow_hash(&make([a & 0xffff, b & 0xffff], [p, q], false));
            prop_assert_eq!(there, flow_hash(&make([a & 0xffff, b & 0xffff], [p, q], true)));
            if !v6 {
                prop_assert_eq!(there, flow_hash(&make([b & 0xffff, a & 0xffff], [q, p], false)));
            }
        }

        #[test]
        fn any_bytes_have_a_number(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            flow_hash(&bytes);
        }
    }

    #[test]
    fn flows_are_spread_evenly() {
        for workers in [2, 3, 5, 8] {
            let mut counts = vec![0; workers];
            for n in 0..4000u16 {
                let ip = ip4()
                    .src(format!("10.0.{}.{}", n >> 8, n & 255).as_str())
                    .dst("10.1.0.1")
                    .udp(1000 + n % 7, 53);
                counts[flow_hash(&frame(ip)) as usize % workers] += 1;
            }
            let fair = 4000 / workers;
            assert!(
                counts.iter().all(|count| (fair * 9 / 10..=fair * 11 / 10).contains(count)),
                "{counts:?}"
            );
        }
    }

    #[test]
    fn fragments_go_with_one_another_and_what_is_not_ip_goes_nowhere_else() {
        let first = frame(ip4().fragment(0, true).udp(1, 2).payload([1; 16]));
        let other = frame(ip4().fragment(0, true).udp(3, 4).payload([1; 16]));
        assert_eq!(flow_hash(&first), flow_hash(&other));
        assert_ne!(flow_hash(&frame(ip4().udp(1, 2))), flow_hash(&frame(ip4().udp(3, 4))));
        assert_eq!((flow_hash(&[0xff; 60]), flow_hash(&[])), (0, 0));
    }
}
