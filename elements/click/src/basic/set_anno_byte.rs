use artery_engine::{Annotation, Arg, Batch, Class, Context, Element, Field, Handler, Show};

pub static CLASS: Class = Class {
    name: "SetAnnoByte",
    group: "basic",
    summary: "sets one byte of packets' annotations",
    manual: "
Sets the annotation byte ANNO of every packet to VALUE. It is an older way to write `Paint(VALUE, ANNO)`,
which new configurations should use.",
    example: "Idle -> SetAnnoByte(PAINT, 3) -> Discard;",
    args: &[
        Arg::required("ANNO", "annotation", "which byte to set, by name or offset"),
        Arg::required("VALUE", "0 to 255", "what to set it to"),
    ],
    handlers: &[
        Handler::read("anno", "the offset of ANNO", &Show(|s: &mut SetAnnoByte| s.at.offset)),
        Handler::field("value", "VALUE", &Field(|s: &mut SetAnnoByte| &mut s.value)),
    ],
    build: |args| Ok(Box::new(SetAnnoByte { at: args.read("ANNO")?, value: args.read("VALUE")? })),
    ..Class::PER_WORKER
};

struct SetAnnoByte {
    at: Annotation<1>,
    value: u8,
}

impl Element for SetAnnoByte {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| packet.set_annotation(self.at.offset, [self.value]));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_byte_is_set_and_no_other() {
        let mut bench = Bench::new(&CLASS, "40, 7");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").annotation(39), [0, 7, 0]);
        bench.write("value", "8").unwrap();
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").annotation(39), [0, 8, 0]);
    }

    #[test]
    fn an_annotation_may_be_named() {
        let mut bench = Bench::new(&CLASS, "PAINT, 7");
        assert_eq!(bench.read("anno", "").unwrap(), "16");
        assert_eq!(bench.read("value", "").unwrap(), "7");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").paint(), 7);
    }

    #[test]
    fn refuses_what_is_no_annotation_and_no_byte() {
        assert_eq!(Bench::config_error(&CLASS, "48, 1"), "ANNO: parse error");
        assert_eq!(Bench::config_error(&CLASS, "1, 256"), "VALUE: out of range, bound 255");
        assert!(Bench::new(&CLASS, "1, 1").write("value", "256").is_err());
    }
}
