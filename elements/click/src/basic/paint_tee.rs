use artery_engine::{Annotation, Arg, Batch, Class, Context, Element, Field, Handler};

pub static CLASS: Class = Class {
    name: "PaintTee",
    group: "basic",
    summary: "sends copies of packets of one color by output 1",
    manual: "
Every packet leaves by output 0. When its PAINT annotation, or another one-byte annotation, is COLOR, a copy
leaves by output 1. A router uses it to find packets that leave by the port they came from, about which it
sends a redirect.",
    example: "Idle -> Paint(1) -> t :: PaintTee(1) -> Discard;\nt[1] -> Discard;",
    ports: "1/2",
    processing: "a/ah",
    args: &[
        Arg::required("COLOR", "0 to 255", "the color"),
        Arg::optional("ANNO", "annotation", "PAINT", "which annotation to look at"),
    ],
    handlers: &[Handler::field("color", "COLOR", &Field(|p: &mut PaintTee| &mut p.color))],
    build: |args| Ok(Box::new(PaintTee { color: args.read("COLOR")?, at: args.read("ANNO")? })),
    ..Class::PER_WORKER
};

struct PaintTee {
    color: u8,
    at: Annotation<1>,
}

impl Element for PaintTee {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.iter().filter(|packet| packet.annotation(self.at.offset) == [self.color]) {
            if let Some(copy) = cx.duplicate_packet(packet) {
                cx.send(1, copy);
            }
        }
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn only_packets_of_the_color_are_copied() {
        let mut bench = Bench::new(&CLASS, "0");
        bench.push(0, b"x");
        bench.expect(0, b"x");
        bench.expect(1, b"x");
        bench.write("color", "1").unwrap();
        bench.push(0, b"x");
        bench.expect(0, b"x");
        bench.expect_nothing_more();
    }
}
