use crate::ip::dec_ip_ttl::{HopError, send_hops};
use artery_common::ip_header;
use artery_engine::{Batch, Class, Context, Element, Handler, Packet, Show};
use artery_wire::Ipv6;

pub static CLASS: Class = Class {
    name: "DecIP6HLIM",
    group: "ip6",
    summary: "decrements the IPv6 hop limit and turns expired packets aside",
    manual: "
Expects IPv6 packets, data starting at the IP header or the header marked by an earlier element. A packet
whose hop limit is 1 or less leaves by output 1, unchanged, or is dropped when there is none. All others leave
by output 0.",
    example: "Idle -> CheckIP6Header -> dh :: DecIP6HLIM -> Discard;\ndh[1] -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    handlers: &[Handler::read("drops", "expired packets", &Show(|d: &mut DecIp6Hlim| d.expired)).sum()],
    build: |_| Ok(Box::new(DecIp6Hlim::default())),
    ..Class::PER_WORKER
};

#[derive(Default)]
struct DecIp6Hlim {
    /// Packets that had their last hop.
    expired: u64,
}

fn decrement_hop_limit(packet: &mut Packet) -> Result<(), HopError> {
    let mut header = Ipv6::new(ip_header::bytes_mut(packet)).map_err(HopError::NoHeader)?;
    match header.hop_limit() {
        0 | 1 => Err(HopError::Expired),
        hops => {
            header.set_hop_limit(hops - 1);
            Ok(())
        }
    }
}

impl Element for DecIp6Hlim {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        send_hops(batch, cx, &mut self.expired, decrement_hop_limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};
    use artery_wire::build::ip6;

    #[test]
    fn a_live_packet_loses_one_hop() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip6().hop_limit(64).udp(1, 2).bytes());
        bench.expect(0, ip6().hop_limit(63).udp(1, 2).bytes());
    }

    #[test]
    fn an_expired_packet_leaves_by_output_1_unchanged() {
        let mut bench = Bench::new(&CLASS, "");
        for hops in [0, 1] {
            let expired = ip6().hop_limit(hops).udp(1, 2).bytes();
            bench.push(0, &expired);
            bench.expect(1, &expired);
        }
    }

    #[test]
    fn what_has_no_header_is_dropped() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"short");
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
