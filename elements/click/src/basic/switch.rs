use artery_engine::{
    Arg, ArgError, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Read, Write,
    parse_value,
};

pub static CLASS: Class = Class {
    name: "Switch",
    group: "basic",
    summary: "sends all packets by one output, which a handler chooses",
    manual: "
Sends every packet by output OUTPUT. The `switch` handler changes it at run time. A negative OUTPUT discards
every packet.",
    example: "Idle -> s :: Switch(1) -> Discard;\ns[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::optional("OUTPUT", "output", "0", "where packets go; negative to discard them")],
    handlers: &[
        Handler::read("switch", "OUTPUT", &READ).and_write(&Write(Switch::set_output)),
        Handler::read("config", "OUTPUT", &READ),
    ],
    live: true,
    build: |args| {
        let output: i32 = args.read("OUTPUT")?;
        if usize::try_from(output).is_ok_and(|output| output >= args.outputs()) {
            return Err(ArgError::wrong(format!("output must be < {}", args.outputs())));
        }
        Ok(Box::new(Switch { output }))
    },
    ..Class::PER_WORKER
};

pub static STATIC: Class = Class {
    name: "StaticSwitch",
    group: "basic",
    summary: "sends all packets by one output, chosen once",
    manual: "
Sends every packet by output OUTPUT, as Switch does, and has no handler that could change it. A negative
OUTPUT, or one that is not connected, discards every packet.",
    example: "Idle -> s :: StaticSwitch(1) -> Discard;\ns[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::required("OUTPUT", "output", "where packets go; negative to discard them")],
    build: |args| {
        let output: i32 = args.read("OUTPUT")?;
        let connected = usize::try_from(output).is_ok_and(|output| output < args.outputs());
        Ok(Box::new(Switch { output: if connected { output } else { -1 } }))
    },
    ..Class::PER_WORKER
};

static READ: Read<Switch> = Read(|s, _, _| Ok(s.output.to_string()));

/// Sends all packets by one output; also what StaticSwitch does.
struct Switch {
    /// The output; negative values discard packets.
    output: i32,
}

impl Switch {
    fn set_output(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let output: i32 =
            parse_value(text).map_err(|_| HandlerError::refused("Switch output must be integer"))?;
        self.output = if usize::try_from(output).is_ok_and(|n| n < cx.outputs()) { output } else { -1 };
        Ok(())
    }
}

impl Element for Switch {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        match usize::try_from(self.output) {
            Ok(output) => cx.send_all(output, batch),
            Err(_) => cx.discard_all(batch, DropReason::Inactive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_leave_by_the_chosen_output() {
        let mut bench = Bench::setup(&CLASS, "1").outputs(3).build().unwrap();
        bench.push(0, b"a");
        bench.expect(1, b"a");
        bench.write("switch", "2").unwrap();
        bench.push(0, b"b");
        bench.expect(2, b"b");
        assert_eq!(bench.read("config", "").unwrap(), "2");
    }

    #[test]
    fn outputs_that_do_not_exist_discard() {
        let mut bench = Bench::setup(&CLASS, "").outputs(2).build().unwrap();
        bench.write("switch", "7").unwrap();
        assert_eq!(bench.read("switch", "").unwrap(), "-1");
        bench.push(0, b"a");
        bench.expect_dropped(DropReason::Inactive, 1);
        assert!(bench.write("switch", "left").is_err());
    }

    #[test]
    fn refuses_an_output_that_is_not_connected() {
        let wrong = Bench::setup(&CLASS, "2").outputs(2).build().err().unwrap();
        assert_eq!(wrong[0].to_string(), "output must be < 2");
    }

    #[test]
    fn packets_leave_by_the_output_chosen_once() {
        let mut bench = Bench::setup(&STATIC, "1").outputs(2).build().unwrap();
        bench.push(0, b"a");
        bench.expect(1, b"a");
    }

    #[test]
    fn an_output_that_is_not_connected_discards() {
        for output in ["-1", "2"] {
            let mut bench = Bench::setup(&STATIC, output).outputs(2).build().unwrap();
            bench.push(0, b"a");
            bench.expect_dropped(DropReason::Inactive, 1);
        }
    }
}
