use super::gap::Gap;
use artery_common::value::parse_value;
use artery_engine::{
    Arg, Batch, Class, Context, Element, Handler, HandlerError, Read, Signal, SignalKinds, StartError, Write,
};

pub static CLASS: Class = Class {
    name: "Shaper",
    group: "queue",
    summary: "lets packets be pulled at a given rate",
    manual: "
Lets RATE packets a second be pulled through output 0. Through output 1, when it is connected, packets can be
pulled that exceed the rate. Without it, whoever pulls sleeps until the next packet may go.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> Shaper(100) -> Unqueue -> Discard;",
    ports: "1/1-2",
    processing: "l/l",
    args: &[Arg::required("RATE", "packets a second", "how many packets may be pulled a second")],
    handlers: &[
        Handler::read("rate", "RATE", &READ_RATE).and_write(&Write(Shaper::set_rate)),
        Handler::read("config", "RATE", &READ_RATE),
        Handler::write("reset", "forgets what has passed", &Write(Shaper::reset_gap)).button(),
    ],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(Shaper { gap: Gap::new(u64::from(args.read::<u32>("RATE")?)) })),
    ..Class::DEFAULT
};

static READ_RATE: Read<Shaper> = Read(|s, _, _| Ok(s.gap.rate().to_string()));

struct Shaper {
    gap: Gap,
}

impl Shaper {
    fn set_rate(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.gap.set_rate(u64::from(parse_value::<u32>(text)?));
        signal_due(&mut self.gap, cx);
        Ok(())
    }
    fn reset_gap(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.gap.reset_count();
        signal_due(&mut self.gap, cx);
        Ok(())
    }
}

/// Signals downstream whether packets are due now, and if not, schedules the next signal.
pub(super) fn signal_due(gap: &mut Gap, cx: &mut Context<'_>) {
    let allowed = gap.due_count(cx.now()) > 0;
    // What must not pass output 0 may pass output 1.
    let active = (allowed || cx.outputs() > 1) && !cx.upstream_idle(0);
    cx.set_signal(Signal::NonEmpty, active);
    if !allowed {
        cx.wake_at(gap.next());
    }
}

impl Element for Shaper {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.send_all(0, batch);
    }

    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let due = self.gap.due_count(cx.now());
        let mut pulled = 0;
        if output == 0 && due > 0 {
            pulled = cx.pull(0, max.min(due as usize), into);
            self.gap.record_events(pulled as u64);
        } else if output == 1 && due == 0 {
            pulled = cx.pull(0, max, into);
        }
        if pulled == 0 {
            signal_due(&mut self.gap, cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.set_signal(Signal::NonEmpty, true);
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        signal_due(&mut self.gap, cx);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    fn bench(config: &str, outputs: usize) -> Bench {
        let mut bench = Bench::setup(&CLASS, config).outputs(outputs).build().unwrap();
        (0..100).for_each(|_| bench.offer(0, b"x"));
        bench
    }

    #[test]
    fn packets_can_be_pulled_at_its_rate() {
        let mut bench = bench("10", 1);
        assert_eq!((bench.pull(0, 8).len(), bench.pull(0, 8).len()), (1, 0));
        bench.advance_time(Duration::from_millis(300));
        assert_eq!(bench.pull(0, 8).len(), 3);
    }

    #[test]
    fn who_pulls_is_told_when_the_next_may_go() {
        let mut bench = bench("10", 1);
        bench.pull(0, 8);
        bench.pull(0, 8);
        assert!(!bench.signals().0);
        bench.advance_time(Duration::from_millis(99));
        assert!(!bench.signals().0);
        bench.advance_time(Duration::from_millis(1));
        assert!(bench.signals().0);
        assert_eq!(bench.pull(0, 8).len(), 1);
    }

    #[test]
    fn the_excess_can_be_pulled_through_output_1() {
        let mut bench = bench("1", 2);
        assert_eq!((bench.pull(1, 8).len(), bench.pull(0, 8).len(), bench.pull(1, 8).len()), (0, 1, 8));
        assert!(bench.signals().0);
    }

    #[test]
    fn the_rate_can_change() {
        let mut bench = bench("1", 1);
        bench.pull(0, 8);
        bench.write("rate", "20").unwrap();
        assert_eq!((bench.pull(0, 8).len(), bench.read("config", "").unwrap().as_str()), (1, "20"));
        bench.write("reset", "").unwrap();
        assert_eq!(bench.pull(0, 8).len(), 1);
        assert!(bench.write("rate", "fast").is_err());
    }

    #[test]
    fn the_rate_must_be_given() {
        assert_eq!(Bench::config_error(&CLASS, ""), "RATE: required argument missing");
    }
}
