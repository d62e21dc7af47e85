use artery_common::ip_header;
use artery_engine::{Arg, Class, Context, Packet, Simple};

pub static CLASS: Class = Class {
    name: "MarkIPHeader",
    group: "ip",
    summary: "marks where the IP header is",
    manual: "
Marks packets as IP packets whose header starts `OFFSET` bytes in. Checks nothing and changes neither length
nor destination annotation: CheckIPHeader does. A packet that ends before its header passes unmarked.",
    example: "Idle -> MarkIPHeader(14) -> Discard;",
    args: &[Arg::optional("OFFSET", "bytes", "0", "where the IP header begins")],
    build: |args| Ok(Box::new(MarkIpHeader { offset: args.read::<u32>("OFFSET")? as usize })),
    ..Class::PER_WORKER
};

struct MarkIpHeader {
    offset: usize,
}

impl Simple for MarkIpHeader {
    fn process(&mut self, mut packet: Packet, _cx: &mut Context<'_>) -> Option<Packet> {
        if let Some(first) = packet.data().get(self.offset) {
            let header_len = usize::from(first & 0xf) * 4;
            ip_header::mark_header(&mut packet, self.offset, header_len);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn the_header_and_what_follows_it_are_marked() {
        let mut bench = Bench::new(&CLASS, "14");
        bench.push(0, [vec![0; 14], ip4().options([1, 1, 1, 0]).udp(1, 2).bytes()].concat());
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.network_offset(), packet.transport_offset()), (Some(14), Some(38)));
    }

    #[test]
    fn a_packet_without_header_passes_unmarked() {
        let mut bench = Bench::new(&CLASS, "14");
        bench.push(0, b"short");
        assert_eq!(bench.expect(0, b"short").network_offset(), None);
        survives_anything(&CLASS, "14", 1);
    }
}
