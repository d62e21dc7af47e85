use crate::ip::each::send_each;
use artery_engine::{Arg, Batch, Class, Context, DropReason, Element, Field, Handler, Packet};

pub static CLASS: Class = Class {
    name: "CheckLength",
    group: "basic",
    summary: "turns long packets aside",
    manual: "
Packets of at most LENGTH bytes leave by output 0. Longer ones leave by output 1, or are dropped when there is
none.",
    example: "Idle -> c :: CheckLength(1500) -> Discard;\nc[1] -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[Arg::required("LENGTH", "bytes", "most bytes that a packet may have")],
    handlers: &[Handler::field("length", "LENGTH", &Field(|c: &mut CheckLength| &mut c.length))],
    finished: true,
    build: |args| Ok(Box::new(CheckLength { length: args.read("LENGTH")? })),
    ..Class::PER_WORKER
};

struct CheckLength {
    length: u32,
}

impl Element for CheckLength {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let check = |packet: &mut Packet| if packet.len() <= self.length as usize { Ok(()) } else { Err(()) };
        send_each(batch, cx, check, |(), packet, cx| cx.send_or_discard(1, packet, DropReason::TooLong));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_that_are_longer_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "3");
        for bytes in ["", "abc", "abcd"] {
            bench.push(0, bytes);
        }
        bench.expect(0, "");
        bench.expect(0, "abc");
        bench.expect(1, "abcd");
        bench.expect_nothing_more();
    }

    #[test]
    fn without_output_1_they_are_dropped_also_when_pulled() {
        let mut bench = Bench::setup(&CLASS, "3").outputs(1).pull().build().unwrap();
        bench.offer(0, "abcd");
        bench.offer(0, "abc");
        assert_eq!(bench.pull(0, 8).len(), 1);
        bench.expect_dropped(DropReason::TooLong, 1);
    }

    #[test]
    fn the_length_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "3");
        bench.write("length", "4").unwrap();
        assert_eq!(bench.read("length", "").unwrap(), "4");
        bench.push(0, "abcd");
        bench.expect(0, "abcd");
        assert!(bench.write("length", "-1").is_err());
        assert_eq!(Bench::config_error(&CLASS, ""), "LENGTH: required argument missing");
    }
}
