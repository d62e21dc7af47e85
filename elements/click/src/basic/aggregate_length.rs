use crate::ip::each::send_each;
use artery_engine::{Arg, Batch, Class, Context, DropReason, Element, Packet, anno};

pub static CLASS: Class = Class {
    name: "AggregateLength",
    group: "basic",
    summary: "sets the aggregate annotation to packets' length",
    manual: "
Sets the AGGREGATE annotation of every packet to its length, to which bytes that the extra length annotation
tells of are added. With IP the length counts from the network header on; packets without one leave by output
1 then, or are dropped when there is none.",
    example: "InfiniteSource(LIMIT 10) -> AggregateLength -> AggregateCounter -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[Arg::keyword("IP", "bool", "false", "whether bytes count from the network header on")],
    finished: true,
    build: |args| Ok(Box::new(AggregateLength { ip: args.read("IP")? })),
    ..Class::PER_WORKER
};

struct AggregateLength {
    ip: bool,
}

impl AggregateLength {
    #[inline]
    fn set_aggregate(&self, packet: &mut Packet) -> Result<(), ()> {
        let front = if self.ip { packet.network_offset().ok_or(())? } else { 0 };
        let extra = u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH));
        let length = (packet.len() as u32).wrapping_sub(front as u32).wrapping_add(extra);
        packet.set_annotation(anno::AGGREGATE, length.to_ne_bytes());
        Ok(())
    }
}

impl Element for AggregateLength {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let set = |packet: &mut Packet| self.set_aggregate(packet);
        send_each(batch, cx, set, |(), packet, cx| cx.send_or_discard(1, packet, DropReason::Malformed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn aggregate(packet: &Packet) -> u32 {
        u32::from_ne_bytes(packet.annotation(anno::AGGREGATE))
    }

    #[test]
    fn the_length_and_what_was_cut_off_count() {
        let mut bench = Bench::new(&CLASS, "");
        let mut packet = bench.packet(b"abcde");
        packet.set_annotation(anno::EXTRA_LENGTH, 100u32.to_ne_bytes());
        bench.push_packets(0, [packet]);
        assert_eq!(aggregate(&bench.expect(0, b"abcde")), 105);
    }

    #[test]
    fn with_ip_the_length_is_that_from_the_network_header_on() {
        let mut bench = Bench::new(&CLASS, "IP true");
        bench.push_with(0, b"abcde", |packet| packet.set_network_header(2));
        assert_eq!(aggregate(&bench.expect(0, b"abcde")), 3);
        bench.push(0, b"no header");
        bench.expect(1, b"no header");
    }
}
