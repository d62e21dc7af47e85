use artery_engine::{
    Arg, ArgError, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Read, Write,
    parse_value,
};

pub static CLASS: Class = Class {
    name: "InputSwitch",
    group: "basic",
    summary: "lets packets of one input pass, which a handler chooses",
    manual: "
Passes on packets that arrive on input INPUT and discards those of the others. The `switch` handler changes it
at run time. While INPUT is negative, or not connected, every packet is discarded.",
    example: "Idle -> s :: InputSwitch(1) -> Discard;\nIdle -> [1]s;",
    ports: "-/1",
    processing: "h/h",
    args: &[
        Arg::optional("INPUT", "input", "0", "whose packets pass; negative for none"),
        Arg::keyword("OUTPUT", "input", "", "the same, as Click calls it"),
    ],
    handlers: &[
        Handler::read("switch", "INPUT", &READ).and_write(&Write(InputSwitch::set_input)),
        Handler::read("config", "INPUT", &READ),
    ],
    live: true,
    build: |args| {
        let input: i32 = args.read::<Option<i32>>("OUTPUT")?.map_or_else(|| args.read("INPUT"), Ok)?;
        if usize::try_from(input).is_ok_and(|input| input >= args.inputs()) {
            return Err(ArgError::wrong(format!("input must be < {}", args.inputs())));
        }
        Ok(Box::new(InputSwitch { input }))
    },
    ..Class::PER_WORKER
};

static READ: Read<InputSwitch> = Read(|s, _, _| Ok(s.input.to_string()));

struct InputSwitch {
    /// Negative to discard all.
    input: i32,
}

impl InputSwitch {
    fn set_input(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let input: i32 =
            parse_value(text).map_err(|_| HandlerError::refused("InputSwitch input must be integer"))?;
        self.input = if usize::try_from(input).is_ok_and(|n| n < cx.inputs()) { input } else { -1 };
        Ok(())
    }
}

impl Element for InputSwitch {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if usize::try_from(self.input) == Ok(input) {
            cx.send_all(0, batch);
        } else {
            cx.discard_all(batch, DropReason::Inactive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_of_the_chosen_input_pass() {
        let mut bench = Bench::setup(&CLASS, "1").inputs(2).build().unwrap();
        bench.push(0, b"a");
        bench.push(1, b"b");
        bench.expect(0, b"b");
        bench.expect_dropped(DropReason::Inactive, 1);
        bench.write("switch", "0").unwrap();
        bench.push(0, b"c");
        bench.expect(0, b"c");
        assert_eq!(bench.read("config", "").unwrap(), "0");
    }

    #[test]
    fn inputs_that_do_not_exist_are_none() {
        let mut bench = Bench::setup(&CLASS, "").inputs(2).build().unwrap();
        bench.write("switch", "7").unwrap();
        assert_eq!(bench.read("switch", "").unwrap(), "-1");
        bench.push(0, b"a");
        bench.expect_dropped(DropReason::Inactive, 1);
        assert!(bench.write("switch", "left").is_err());
        let wrong = Bench::setup(&CLASS, "2").inputs(2).build().err().unwrap();
        assert_eq!(wrong[0].to_string(), "input must be < 2");
    }
}
