use artery_engine::{
    Batch, Class, Context, DropReason, Element, Handler, HandlerError, Read, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "Suppressor",
    group: "basic",
    summary: "passes packets from each input to its output unless a handler forbids it",
    manual: "
Packets of input N leave by output N. While the handler `activeN` is false, packets that are pushed to input N
are dropped, and whoever pulls from output N gets nothing. `reset` makes all inputs active again, as they are
at first.",
    example: "Idle -> s :: Suppressor -> Discard;\nIdle -> [1]s[1] -> Discard;",
    ports: "-/=",
    flow: "#/#",
    handlers: &[Handler::write(
        "reset",
        "makes all inputs active",
        &Write(|s: &mut Suppressor, _, _| {
            s.active.fill(true);
            Ok(())
        }),
    )
    .button()],
    own_handlers: Some(
        &const {
            Handler::read(
                "activeN",
                "whether packets of input N pass",
                &Read(|s: &mut Suppressor, name, _| s.active_flag(name).map(|active| active.to_string())),
            )
            .and_write(&Write(|s: &mut Suppressor, name_and_value, _| {
                let (name, text) = name_and_value.split_once(' ').unwrap_or((name_and_value, ""));
                *s.active_flag(name)? =
                    parse_value(text).map_err(|_| HandlerError::refused("type mismatch"))?;
                Ok(())
            }))
        },
    ),
    build: |args| {
        let inputs = args.inputs();
        (0..inputs).for_each(|input| args.declare_handler(&format!("active{input}"), "rw"));
        Ok(Box::new(Suppressor { active: vec![true; inputs] }))
    },
    ..Class::PER_WORKER
};

struct Suppressor {
    /// Whether each input passes packets.
    active: Vec<bool>,
}

impl Suppressor {
    fn active_flag(&mut self, handler: &str) -> Result<&mut bool, HandlerError> {
        let handler = handler.trim();
        let input = handler.strip_prefix("active").and_then(|number| number.parse::<usize>().ok());
        input
            .and_then(|input| self.active.get_mut(input))
            .ok_or_else(|| HandlerError::NoHandler(handler.to_string()))
    }
}

impl Element for Suppressor {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.active[input] {
            cx.send_all(input, batch);
        } else {
            cx.discard_all(batch, DropReason::Inactive);
        }
    }

    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if self.active[output] {
            cx.pull(output, max, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_of_inputs_that_are_not_active_are_dropped() {
        let mut bench = Bench::setup(&CLASS, "").inputs(2).outputs(2).build().unwrap();
        bench.write("active1", "false").unwrap();
        bench.push(0, b"a");
        bench.push(1, b"b");
        bench.expect(0, b"a");
        bench.expect_dropped(DropReason::Inactive, 1);
        assert_eq!(["active0", "active1"].map(|name| bench.read(name, "").unwrap()), ["true", "false"]);
        bench.write("reset", "").unwrap();
        bench.push(1, b"b");
        bench.expect(1, b"b");
        bench.expect_nothing_more();
    }

    #[test]
    fn outputs_that_are_not_active_give_nothing_and_lose_nothing() {
        let mut bench = Bench::setup(&CLASS, "").inputs(1).outputs(1).pull().build().unwrap();
        bench.offer(0, b"x");
        bench.write("active0", "false").unwrap();
        assert_eq!(bench.pull(0, 8).len(), 0);
        bench.write("active0", "true").unwrap();
        assert_eq!(bench.pull(0, 8).len(), 1);
    }

    #[test]
    fn there_is_a_handler_for_each_input_only() {
        let mut bench = Bench::setup(&CLASS, "").inputs(2).outputs(2).build().unwrap();
        assert!(bench.write("active1", "maybe").is_err());
        assert!(bench.read("active2", "").is_err());
    }
}
