use super::gap::Gap;
use super::rated::Unit;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Read, Signal, SignalKinds,
    StartError, Write,
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
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(Shaper::new(args, Unit::Packets)?)),
    ..Class::DEFAULT
};

pub static BANDWIDTH: Class = Class {
    name: "BandwidthShaper",
    summary: "lets packets be pulled at a given bandwidth",
    manual: "Lets packets be pulled, RATE bytes a second. Whoever pulls sleeps until the next packet may go.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> BandwidthShaper(1Mbps) -> Unqueue -> Discard;",
    ports: "1/1",
    args: &[Arg::required("RATE", "bandwidth", "how many bytes may be pulled a second")],
    build: |args| Ok(Box::new(Shaper::new(args, Unit::Bytes)?)),
    ..CLASS
};

static HANDLERS: &[Handler] = &[
    Handler::read("rate", "RATE", &READ_RATE).and_write(&Write(Shaper::set_rate)),
    Handler::read("config", "RATE", &READ_RATE),
    Handler::write("reset", "forgets what has passed", &Write(Shaper::reset_gap)).button(),
];

static READ_RATE: Read<Shaper> = Read(|s, _, _| Ok(s.unit.rate_text(s.gap.rate())));

/// Also what BandwidthShaper is, with bytes instead of packets.
struct Shaper {
    unit: Unit,
    gap: Gap,
}

impl Shaper {
    fn new(args: &Args<'_>, unit: Unit) -> Result<Shaper, ArgError> {
        Ok(Shaper { unit, gap: Gap::new(unit.read_rate(args)?) })
    }
    fn set_rate(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.gap.set_rate(self.unit.parse_rate(text)?);
        self.signal_due(cx);
        Ok(())
    }
    fn reset_gap(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.gap.reset_count();
        self.signal_due(cx);
        Ok(())
    }

    /// Signals downstream whether packets are due now, and if not, schedules the next signal.
    fn signal_due(&mut self, cx: &mut Context<'_>) {
        let allowed = self.gap.due_count(cx.now()) > 0;
        // What must not pass output 0 may pass output 1.
        let active = (allowed || cx.outputs() > 1) && !cx.upstream_idle(0);
        cx.set_signal(Signal::NonEmpty, active);
        if !allowed {
            cx.wake_at(self.gap.next());
        }
    }

    /// Pulls packets, as long as they are due; returns how many.
    fn pull_due(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) -> usize {
        let now = cx.now();
        if self.unit == Unit::Packets {
            let due = self.gap.due_count(now);
            let pulled = if due > 0 { cx.pull(0, max.min(due as usize), into) } else { 0 };
            self.gap.record_events(pulled as u64);
            return pulled;
        }
        for pulled in 0..max {
            let before = into.len();
            if self.gap.due_count(now) == 0 || cx.pull(0, 1, into) == 0 {
                return pulled;
            }
            // A long packet may come as several segments.
            self.gap.record_events(into.iter().skip(before).map(|packet| packet.len() as u64).sum());
        }
        max
    }
}

impl Element for Shaper {
    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let pulled = match output {
            0 => self.pull_due(max, into, cx),
            _ if self.gap.due_count(cx.now()) == 0 => cx.pull(0, max, into),
            _ => 0,
        };
        if pulled == 0 {
            self.signal_due(cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.set_signal(Signal::NonEmpty, true);
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.signal_due(cx);
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
    fn bytes_can_be_pulled_at_its_rate() {
        let mut bench = Bench::new(&BANDWIDTH, "10000");
        (0..100).for_each(|_| bench.offer(0, [0; 1000]));
        assert_eq!((bench.pull(0, 8).len(), bench.pull(0, 8).len()), (1, 0));
        assert!(!bench.signals().0);
        let mut pulled = 0;
        for _ in 0..50 {
            bench.advance_time(Duration::from_millis(100));
            pulled += bench.pull(0, 8).len();
        }
        assert_eq!(pulled, 50);
    }

    #[test]
    fn rates_are_read_and_printed_as_bandwidths() {
        let mut bench = Bench::new(&BANDWIDTH, "1Mbps");
        assert_eq!(bench.read("rate", "").unwrap(), "1Mbps");
        bench.write("rate", "2 Mbps").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "2Mbps");
        assert!(bench.write("rate", "wide").is_err());
    }
}
