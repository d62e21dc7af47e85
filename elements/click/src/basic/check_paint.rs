use artery_engine::{Annotation, Arg, Class, Context, DropReason, Field, Handler, Packet, Simple};

pub static CLASS: Class = Class {
    name: "CheckPaint",
    group: "basic",
    summary: "lets packets of one color pass",
    manual: "
Packets whose PAINT annotation, or another one-byte annotation, is COLOR leave by output 0. All others leave
by output 1, or are dropped when there is none.",
    example: "Idle -> Paint(3) -> c :: CheckPaint(3) -> Discard;\nc[1] -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::required("COLOR", "0 to 255", "the color"),
        Arg::optional("ANNO", "annotation", "PAINT", "which annotation to look at"),
    ],
    handlers: &[Handler::field("color", "COLOR", &Field(|p: &mut CheckPaint| &mut p.color))],
    build: |args| Ok(Box::new(CheckPaint { color: args.read("COLOR")?, at: args.read("ANNO")? })),
    ..Class::PER_WORKER
};

struct CheckPaint {
    color: u8,
    at: Annotation<1>,
}

impl Simple for CheckPaint {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if packet.annotation(self.at.offset) == [self.color] {
            return Some(packet);
        }
        cx.send_or_discard(1, packet, DropReason::NoMatch);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn painted(bench: &Bench, color: u8) -> Packet {
        let mut packet = bench.packet([color]);
        packet.set_annotation(16, [color]);
        packet
    }

    #[test]
    fn other_colors_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "3");
        let packets = [3, 4, 3].map(|color| painted(&bench, color));
        bench.push_packets(0, packets);
        [(0, 3), (0, 3), (1, 4)].into_iter().for_each(|(output, color)| drop(bench.expect(output, [color])));
    }

    #[test]
    fn without_output_1_other_colors_are_dropped() {
        let mut bench = Bench::setup(&CLASS, "3").outputs(1).pull().build().unwrap();
        [3, 4].into_iter().for_each(|color| {
            let packet = painted(&bench, color);
            bench.offer_packet(0, packet);
        });
        bench.write("color", "4").unwrap();
        assert_eq!(bench.pull(0, 8)[0].data(), [4]);
        bench.expect_dropped(DropReason::NoMatch, 1);
    }
}
