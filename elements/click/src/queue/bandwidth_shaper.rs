use super::gap::Gap;
use super::rated::print_bandwidth;
use super::shaper::signal_due;
use artery_common::value::parse_value;
use artery_engine::{
    Arg, Bandwidth, Batch, Class, Context, Element, Handler, HandlerError, Read, Signal, SignalKinds,
    StartError, Write,
};

pub static CLASS: Class = Class {
    name: "BandwidthShaper",
    group: "queue",
    summary: "lets packets be pulled at a given bandwidth",
    manual: "Lets packets be pulled, RATE bytes a second. Whoever pulls sleeps until the next packet may go.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> BandwidthShaper(1Mbps) -> Unqueue -> Discard;",
    processing: "l/l",
    args: &[Arg::required("RATE", "bandwidth", "how many bytes may be pulled a second")],
    handlers: &[
        Handler::read("rate", "RATE", &READ_RATE).and_write(&Write(Shaper::set_rate)),
        Handler::read("config", "RATE", &READ_RATE),
        Handler::write("reset", "forgets what has passed", &Write(Shaper::reset_gap)).button(),
    ],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(Shaper { gap: Gap::new(args.read::<Bandwidth>("RATE")?.0) })),
    ..Class::DEFAULT
};

static READ_RATE: Read<Shaper> = Read(|s, _, _| Ok(print_bandwidth(s.gap.rate())));

struct Shaper {
    /// Limits bytes, not packets.
    gap: Gap,
}

impl Shaper {
    fn set_rate(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.gap.set_rate(parse_value::<Bandwidth>(text)?.0);
        signal_due(&mut self.gap, cx);
        Ok(())
    }
    fn reset_gap(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.gap.reset_count();
        signal_due(&mut self.gap, cx);
        Ok(())
    }
}

impl Element for Shaper {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.send_all(0, batch);
    }

    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let now = cx.now();
        for pulled in 0..max {
            let before = into.len();
            if self.gap.due_count(now) == 0 || cx.pull(0, 1, into) == 0 {
                if pulled == 0 {
                    signal_due(&mut self.gap, cx);
                }
                return;
            }
            // A long packet may come as several segments.
            self.gap.record_events(into.iter().skip(before).map(|packet| packet.len() as u64).sum());
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

    #[test]
    fn bytes_can_be_pulled_at_its_rate() {
        let mut bench = Bench::new(&CLASS, "10000");
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
        let mut bench = Bench::new(&CLASS, "1Mbps");
        assert_eq!(bench.read("rate", "").unwrap(), "1Mbps");
        bench.write("rate", "2 Mbps").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "2Mbps");
        assert!(bench.write("rate", "wide").is_err());
    }

    #[test]
    fn the_rate_must_be_given() {
        assert_eq!(Bench::config_error(&CLASS, ""), "RATE: required argument missing");
    }
}
