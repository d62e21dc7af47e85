use super::token_bucket::TokenBucket;
use crate::queue::rated::{Depth, Unit};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Read,
    Write,
};
use std::any::Any;

pub static CLASS: Class = Class {
    name: "RatedSplitter",
    group: "basic",
    summary: "sends packets above a given rate elsewhere",
    manual: "
Sends up to RATE packets a second by output 0, and what goes beyond that by output 1, or drops it when there
is none. After a pause as many may pass at once as came in BURST_DURATION at the rate, or BURST_SIZE.",
    example: "InfiniteSource(LIMIT 100) -> s :: RatedSplitter(10) -> Discard;\ns[1] -> Discard;",
    ports: "1/1-2",
    processing: "h/h",
    args: &[
        Arg::required("RATE", "packets a second", "how many packets pass a second"),
        Arg::keyword("BURST_DURATION", "seconds", "20ms", "how much time may be made up for"),
        Arg::keyword("BURST_SIZE", "packets", "", "how many packets may be made up for, instead"),
    ],
    handlers: HANDLERS,
    live: true,
    build: |args| Ok(Box::new(RatedSplitter::new(args, Unit::Packets)?)),
    ..Class::DEFAULT
};

pub static BANDWIDTH: Class = Class {
    name: "BandwidthRatedSplitter",
    summary: "sends packets above a given bandwidth elsewhere",
    manual: "
Sends packets of up to RATE by output 0, and what goes beyond that by output 1, or drops it when there is
none. After a pause as many bytes may pass at once as came in BURST_DURATION at the rate, or BURST_BYTES,
besides 128 kB.",
    example: "InfiniteSource(LIMIT 100) -> s :: BandwidthRatedSplitter(1Mbps) -> Discard;\ns[1] -> Discard;",
    args: &[
        Arg::required("RATE", "bandwidth", "how much passes a second"),
        Arg::keyword("BURST_DURATION", "seconds", "20ms", "how much time may be made up for"),
        Arg::keyword("BURST_BYTES", "bytes", "", "how many bytes may be made up for, instead"),
    ],
    live: false,
    build: |args| Ok(Box::new(RatedSplitter::new(args, Unit::Bytes)?)),
    ..CLASS
};

static HANDLERS: &[Handler] = &[
    Handler::read("rate", "RATE", &READ).and_write(&Write(RatedSplitter::set_rate)),
    Handler::read("config", "RATE", &READ),
];

static READ: Read<RatedSplitter> = Read(|s, _, _| Ok(s.unit.rate_text(s.bucket.rate())));

/// Bytes that must be in the bucket for a packet to pass: more than the longest packet has.
const THRESHOLD: u64 = 131_072;

/// Also what BandwidthRatedSplitter is, with bytes instead of packets.
struct RatedSplitter {
    unit: Unit,
    bucket: TokenBucket,
    /// Most packets or bytes at once after a pause, or the pause that they accumulate in.
    burst: Depth,
}

impl RatedSplitter {
    fn new(args: &Args<'_>, unit: Unit) -> Result<RatedSplitter, ArgError> {
        let (rate, burst) = (unit.read_rate(args)?, unit.read_depth(args)?);
        let mut splitter = RatedSplitter { unit, bucket: TokenBucket::new(0, 0), burst };
        splitter.apply_rate(rate);
        Ok(splitter)
    }

    fn apply_rate(&mut self, rate: u64) {
        let depth = match self.burst {
            Depth::Tokens(tokens) => tokens,
            Depth::Time(time) => {
                let tokens = u128::from(rate) * time.as_nanos() / 1_000_000_000;
                u64::try_from(tokens).unwrap_or(u64::MAX)
            }
        };
        let depth = match self.unit {
            Unit::Packets => depth.max(1),
            Unit::Bytes => depth.saturating_add(THRESHOLD),
        };
        self.bucket.set_rate(rate, depth);
    }

    fn set_rate(&mut self, text: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.apply_rate(self.unit.parse_rate(text)?);
        Ok(())
    }

    /// Whether a packet may pass; takes tokens from the bucket if so.
    fn consume_tokens(&mut self, packet: &Packet) -> bool {
        let (least, cost) = match self.unit {
            Unit::Packets => (1, 1),
            Unit::Bytes => (THRESHOLD, packet.len() as u64),
        };
        let passes = self.bucket.tokens() >= least;
        if passes {
            self.bucket.remove(cost);
        }
        passes
    }
}

impl Element for RatedSplitter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.bucket.refill_tokens(cx.now());
        batch.filter_map(|packet| {
            if self.consume_tokens(&packet) {
                return Some(packet);
            }
            cx.send_or_discard(1, packet, DropReason::NoOutput);
            None
        });
        cx.send_all(0, batch);
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<RatedSplitter>() {
            // A full one would let a burst pass with each change of the arguments.
            let rate = self.bucket.rate();
            self.bucket = old.bucket.clone();
            self.apply_rate(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    /// Packets that leave by both outputs, of 100.
    fn split(bench: &mut Bench) -> (usize, usize) {
        (0..100).for_each(|_| bench.push(0, b"x"));
        (bench.drain_sent(0).len(), bench.drain_sent(1).len())
    }

    #[test]
    fn packets_above_the_rate_leave_by_output_1() {
        let mut bench = Bench::setup(&CLASS, "1000").outputs(2).build().unwrap();
        assert_eq!(split(&mut bench), (20, 80));
        assert_eq!(split(&mut bench), (0, 100));
        bench.advance_time(Duration::from_millis(5));
        assert_eq!(split(&mut bench), (5, 95));
    }

    #[test]
    fn new_arguments_fill_no_bucket() {
        let mut bench = Bench::setup(&CLASS, "1000").outputs(2).build().unwrap();
        assert_eq!(split(&mut bench), (20, 80));
        for _ in 0..10 {
            bench.advance_time(Duration::from_millis(10));
            bench.write("config", "1000, BURST_SIZE 30").unwrap();
            assert_eq!(split(&mut bench), (10, 90));
        }
        bench.advance_time(Duration::from_secs(1));
        bench.write("config", "500").unwrap();
        assert_eq!(split(&mut bench), (10, 90));
    }

    #[test]
    fn how_much_may_be_made_up_for_can_be_told() {
        let mut bench = Bench::setup(&CLASS, "1000, BURST_SIZE 7").outputs(2).build().unwrap();
        assert_eq!(split(&mut bench), (7, 93));
        bench.write("rate", "10").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "10");
        let wrong = Bench::config_error(&CLASS, "1, BURST_SIZE 1, BURST_DURATION 1");
        assert_eq!(wrong, "cannot specify both BURST_DURATION and BURST_SIZE");
    }

    #[test]
    fn packets_above_the_bandwidth_leave_by_output_1() {
        let mut bench = Bench::setup(&BANDWIDTH, "10kBps, BURST_BYTES 1000").outputs(2).build().unwrap();
        (0..10).for_each(|_| bench.push(0, [0; 500]));
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (3, 7));
        bench.advance_time(Duration::from_millis(100));
        (0..10).for_each(|_| bench.push(0, [0; 500]));
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (2, 8));
        assert_eq!(bench.read("rate", "").unwrap(), "80kbps");
    }
}
