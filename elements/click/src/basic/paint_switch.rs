use artery_engine::{Annotation, Arg, Batch, Class, Context, DropReason, Element, Packet};

pub static CLASS: Class = Class {
    name: "PaintSwitch",
    group: "basic",
    summary: "sends packets by the output that their paint names",
    manual: "
Sends a packet by the output whose number is its PAINT annotation, or another one-byte annotation. A packet
painted 255 leaves in copies by every output. One whose output is not connected is dropped.",
    example: "Idle -> Paint(1) -> s :: PaintSwitch -> Discard;\ns[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::optional("ANNO", "annotation", "PAINT", "which annotation to look at")],
    build: |args| Ok(Box::new(PaintSwitch { at: args.read("ANNO")? })),
    ..Class::PER_WORKER
};

/// The color that stands for all outputs.
const ALL: u8 = 255;

struct PaintSwitch {
    at: Annotation<1>,
}

fn send_to_all(packet: Packet, cx: &mut Context<'_>) {
    let last = cx.outputs().saturating_sub(1);
    for output in 0..last {
        if let Some(copy) = cx.duplicate_packet(&packet) {
            cx.send(output, copy);
        }
    }
    cx.send(last, packet);
}

impl Element for PaintSwitch {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            match packet.annotation(self.at.offset) {
                [ALL] => send_to_all(packet, cx),
                [color] => cx.send_or_discard(usize::from(color), packet, DropReason::NoOutput),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(color: u8) -> Bench {
        let mut bench = Bench::setup(&CLASS, "").outputs(2).build().unwrap();
        bench.push_with(0, b"x", |packet| packet.set_annotation(16, [color]));
        bench
    }

    #[test]
    fn paint_names_the_output() {
        let mut bench = bench(1);
        bench.expect(1, b"x");
        bench.expect_nothing_more();
    }

    #[test]
    fn color_255_goes_everywhere() {
        let mut bench = bench(255);
        bench.expect(0, b"x");
        bench.expect(1, b"x");
    }

    #[test]
    fn a_color_without_output_is_dropped() {
        bench(2).expect_dropped(DropReason::NoOutput, 1);
    }
}
