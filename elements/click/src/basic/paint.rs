use artery_engine::{Annotation, Arg, Batch, Class, Context, Element, Field, Handler};

pub static CLASS: Class = Class {
    name: "Paint",
    group: "basic",
    summary: "sets packets' paint annotation",
    manual: "Sets the PAINT annotation of every packet, or another one-byte annotation, to COLOR.",
    example: "Idle -> Paint(3) -> Discard;",
    args: &[
        Arg::required("COLOR", "0 to 255", "the color"),
        Arg::optional("ANNO", "annotation", "PAINT", "which annotation to set"),
    ],
    handlers: &[Handler::field("color", "COLOR", &Field(|p: &mut Paint| &mut p.color))],
    live: true,
    build: |args| Ok(Box::new(Paint { color: args.read("COLOR")?, at: args.read("ANNO")? })),
    ..Class::PER_WORKER
};

struct Paint {
    color: u8,
    at: Annotation<1>,
}

impl Element for Paint {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| packet.set_annotation(self.at.offset, [self.color]));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_leave_in_color() {
        let mut bench = Bench::new(&CLASS, "3");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").paint(), 3);
        bench.write("color", "4").unwrap();
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").paint(), 4);
    }

    #[test]
    fn another_annotation_can_be_painted() {
        let mut bench = Bench::new(&CLASS, "3, ANNO 40");
        bench.push(0, b"x");
        let packet = bench.expect(0, b"x");
        assert_eq!((packet.paint(), packet.annotation::<1>(40)), (0, [3]));
    }

    #[test]
    fn refuses_what_is_no_color_and_no_annotation() {
        assert_eq!(Bench::config_error(&CLASS, "256"), "COLOR: out of range, bound 255");
        assert_eq!(Bench::config_error(&CLASS, "1, 48"), "ANNO: parse error");
        assert!(Bench::new(&CLASS, "1").write("color", "red").is_err());
    }
}
