use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Read, Signal, SignalKinds,
    StartError, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "PullSwitch",
    group: "queue",
    summary: "pulls from one input, which a handler chooses",
    manual: "
Gives whoever pulls what comes from input INPUT. The `switch` handler changes it at run time. While INPUT is
negative, or not connected, nothing can be pulled.",
    example: "Idle -> Queue -> s :: PullSwitch(1) -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "-/1",
    processing: "l/l",
    args: &[Arg::optional("INPUT", "input", "0", "where packets come from; negative for nowhere")],
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(PullSwitch::new(args)?)),
    ..Class::PER_WORKER
};

pub static SIMPLE: Class = Class {
    name: "SimplePullSwitch",
    summary: "pulls from one input, which a handler chooses",
    manual: "
Does what PullSwitch does. In Click it differs by not telling who pulls whether there is something to pull.",
    example: "Idle -> Queue -> s :: SimplePullSwitch(1) -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ..CLASS
};

static HANDLERS: &[Handler] = &[
    Handler::read("switch", "INPUT", &READ).and_write(&Write(PullSwitch::set_input)),
    Handler::read("config", "INPUT", &READ),
];

static READ: Read<PullSwitch> =
    Read(|s, _, _| Ok(s.input.map_or("-1".to_string(), |input| input.to_string())));

/// Pulls from one input; also what SimplePullSwitch does.
struct PullSwitch {
    input: Option<usize>,
}

impl PullSwitch {
    fn new(args: &Args<'_>) -> Result<PullSwitch, ArgError> {
        let input: i32 = args.read("INPUT")?;
        Ok(PullSwitch { input: usize::try_from(input).ok().filter(|input| *input < args.inputs()) })
    }
    fn set_input(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.input = usize::try_from(parse_value::<i32>(text)?).ok().filter(|input| *input < cx.inputs());
        self.signal_activity(cx);
        Ok(())
    }
    fn signal_activity(&self, cx: &mut Context<'_>) {
        let active = self.input.is_some_and(|input| !cx.upstream_idle(input));
        cx.set_signal(Signal::NonEmpty, active);
    }
}

impl Element for PullSwitch {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if self.input.is_none_or(|input| cx.pull(input, max, into) == 0) {
            self.signal_activity(cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.set_signal(Signal::NonEmpty, self.input.is_some());
        Ok(())
    }

    /// There are packets upstream.
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.signal_activity(cx);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str) -> Bench {
        let mut bench = Bench::setup(&CLASS, config).inputs(2).build().unwrap();
        (0..2).for_each(|input| bench.offer(input, [input as u8]));
        bench
    }

    #[test]
    fn pulls_from_the_chosen_input() {
        let mut bench = bench("1");
        assert_eq!((bench.signals().0, bench.pull(0, 8)[0].data()), (true, &[1][..]));
        bench.write("switch", "0").unwrap();
        assert_eq!(bench.pull(0, 8)[0].data(), [0]);
        assert_eq!(bench.read("config", "").unwrap(), "0");
    }

    #[test]
    fn an_input_that_is_not_connected_gives_nothing() {
        let mut bench = bench("");
        bench.write("switch", "7").unwrap();
        assert_eq!((bench.signals().0, bench.pull(0, 8).len()), (false, 0));
        assert_eq!(bench.read("switch", "").unwrap(), "-1");
        assert!(bench.write("switch", "left").is_err());
    }

    #[test]
    fn the_simple_one_pulls_from_the_chosen_input() {
        let mut bench = Bench::setup(&SIMPLE, "1").inputs(2).build().unwrap();
        (0..2).for_each(|input| bench.offer(input, [input as u8]));
        assert_eq!(bench.pull(0, 8)[0].data(), [1]);
        bench.write("switch", "0").unwrap();
        assert_eq!(bench.pull(0, 8)[0].data(), [0]);
    }
}
