use artery_common::ip_header;
use artery_engine::{Arg, Class, Context, Packet, Simple};
use artery_wire::Ipv6;

pub static CLASS: Class = Class {
    name: "MarkIP6Header",
    group: "ip6",
    summary: "marks where the IPv6 header is",
    manual: "
Marks packets as IPv6 packets whose header starts `OFFSET` bytes in and is 40 bytes long. Checks nothing and
changes neither length nor destination annotation: CheckIP6Header does. A packet that ends before its header
passes unmarked.",
    example: "Idle -> MarkIP6Header(14) -> Discard;",
    args: &[Arg::optional("OFFSET", "bytes", "0", "where the IPv6 header begins")],
    build: |args| Ok(Box::new(MarkIp6Header { offset: args.read::<u32>("OFFSET")? as usize })),
    ..Class::PER_WORKER
};

struct MarkIp6Header {
    offset: usize,
}

impl Simple for MarkIp6Header {
    fn process(&mut self, mut packet: Packet, _cx: &mut Context<'_>) -> Option<Packet> {
        if self.offset < packet.len() {
            ip_header::mark_header(&mut packet, self.offset, Ipv6::<&[u8]>::LEN);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip6;

    #[test]
    fn the_header_and_what_follows_it_are_marked() {
        let mut bench = Bench::new(&CLASS, "14");
        bench.push(0, [vec![0; 14], ip6().udp(1, 2).bytes()].concat());
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.network_offset(), packet.transport_offset()), (Some(14), Some(54)));
    }

    #[test]
    fn a_packet_without_header_passes_unmarked() {
        let mut bench = Bench::new(&CLASS, "14");
        bench.push(0, b"short");
        assert_eq!(bench.expect(0, b"short").network_offset(), None);
    }
}
