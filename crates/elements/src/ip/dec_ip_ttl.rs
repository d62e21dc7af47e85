use artery_engine::{Arg, Class, Context, DropReason, Packet, Simple};
use artery_wire::Ipv4;

pub static CLASS: Class = Class {
    name: "DecIPTTL",
    aliases: &["DecTTL"],
    group: "ip",
    summary: "decrements the IP time-to-live and turns expired packets aside",
    manual: "
Expects IPv4 packets, data starting at the IP header or the header marked by an earlier element. A packet whose
time-to-live is 1 or less leaves by output 1, unchanged, or is dropped when there is none. All others leave by output
0 with their checksum updated incrementally (RFC 1624).",
    example: "Idle -> CheckIPHeader -> dt :: DecIPTTL -> Discard;\ndt[1] -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[Arg::keyword("MULTICAST", "bool", "true", "whether to decrement multicast packets too")],
    per_worker: true,
    build: |args| Ok(Box::new(DecIpTtl { multicast: args.read("MULTICAST")? })),
    ..Class::DEFAULT
};

struct DecIpTtl {
    multicast: bool,
}

/// What becomes of a packet.
enum Fate {
    Lives,
    Expired,
    NoHeader,
}

impl DecIpTtl {
    fn decrement(&self, packet: &mut Packet) -> Fate {
        let bytes =
            if packet.network_offset().is_some() { packet.network_mut() } else { Some(packet.data_mut()) };
        let Some(Ok(mut header)) = bytes.map(Ipv4::new) else { return Fate::NoHeader };
        if header.dst().is_multicast() && !self.multicast {
            return Fate::Lives;
        }
        if header.ttl() <= 1 {
            return Fate::Expired;
        }
        header.decrement_ttl();
        Fate::Lives
    }
}

impl Simple for DecIpTtl {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        match self.decrement(&mut packet) {
            Fate::Lives => return Some(packet),
            Fate::Expired => cx.send_or_discard(1, packet, DropReason::TtlExpired),
            Fate::NoHeader => cx.discard(packet, DropReason::TooShort),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn a_live_packet_loses_one_hop() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().ttl(64).udp(1, 2).bytes());
        bench.expect(0, ip4().ttl(63).udp(1, 2).bytes());
    }

    #[test]
    fn an_expired_packet_leaves_by_output_1_unchanged() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().ttl(1).udp(1, 2).bytes());
        bench.expect(1, ip4().ttl(1).udp(1, 2).bytes());
    }

    #[test]
    fn without_output_1_an_expired_packet_is_dropped_and_counted() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, ip4().ttl(0).udp(1, 2).bytes());
        bench.expect_dropped(DropReason::TtlExpired, 1);
    }

    #[test]
    fn multicast_packets_pass_unchanged_when_told() {
        let mut bench = Bench::new(&CLASS, "MULTICAST false");
        bench.push(0, ip4().dst("224.0.0.5").ttl(1).udp(1, 2).bytes());
        bench.expect(0, ip4().dst("224.0.0.5").ttl(1).udp(1, 2).bytes());
    }
}
