use artery_engine::{Arg, Batch, Class, Context, Element, Handler, HandlerError, Show, Write, parse_value};

pub static CLASS: Class = Class {
    name: "Bypass",
    group: "basic",
    summary: "sends packets a longer way while it is active",
    manual: "
Passes packets on by output 0 as Null does, until it is made active: then they leave by output 1 (where
packets are pulled, they come from input 1). What comes back, by input 1 where packets are pushed and through
output 1 where they are pulled, continues on the straight way. The `active` handler turns it on and off.

INLINE is accepted for Click's sake and changes nothing: passing through costs about a nanosecond.",
    example: "Idle -> b :: Bypass -> Discard;\nb[1] -> Print(debug) -> [1]b;",
    ports: "1-2/1-2",
    flow: "xy/[xy]x",
    args: &[
        Arg::optional("ACTIVE", "bool", "false", "whether packets take the longer way"),
        Arg::keyword("INLINE", "bool", "false", "no meaning here"),
    ],
    handlers: &[Handler::read("active", "ACTIVE", &Show(|b: &mut Bypass| b.active))
        .and_write(&Write(Bypass::set_active))],
    build: |args| {
        args.read::<bool>("INLINE")?;
        Ok(Box::new(Bypass { active: args.read("ACTIVE")? }))
    },
    ..Class::PER_WORKER
};

struct Bypass {
    active: bool,
}

impl Bypass {
    fn set_active(&mut self, text: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        Ok(())
    }
}

impl Element for Bypass {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let detour = self.active && input == 0 && cx.outputs() > 1;
        cx.send_all(usize::from(detour), batch);
    }
    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let detour = self.active && output == 0 && cx.inputs() > 1;
        cx.pull(usize::from(detour), max, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn pushed_packets_take_the_longer_way_only_while_active() {
        let mut bench = Bench::setup(&CLASS, "").inputs(2).outputs(2).build().unwrap();
        bench.push(0, b"a");
        bench.expect(0, b"a");
        bench.write("active", "true").unwrap();
        bench.push(0, b"b");
        bench.expect(1, b"b");
        bench.push(1, b"b");
        bench.expect(0, b"b");
    }

    #[test]
    fn pulled_packets_come_the_longer_way_only_while_active() {
        let mut bench = Bench::setup(&CLASS, "true").inputs(2).outputs(2).pull().build().unwrap();
        bench.offer(0, b"straight");
        bench.offer(1, b"round");
        assert_eq!(bench.pull(0, 1)[0].data(), b"round");
        assert_eq!(bench.pull(1, 1)[0].data(), b"straight");
    }

    #[test]
    fn without_a_longer_way_nothing_changes() {
        let mut bench = Bench::setup(&CLASS, "true").inputs(1).outputs(1).build().unwrap();
        bench.push(0, b"a");
        bench.expect(0, b"a");
        assert!(bench.write("active", "perhaps").is_err());
    }
}
