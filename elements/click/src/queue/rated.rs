//! What RatedUnqueue and BandwidthRatedUnqueue share; rates of packets or bytes, as arguments and as text.
use crate::basic::token_bucket::TokenBucket;
use artery_engine::{
    ArgError, Args, Bandwidth, Batch, Context, Element, Handler, HandlerError, Read, Show, StartError, Write,
    parse_value,
};
use std::time::Duration;

/// Bytes that must be in the bucket for a packet to go: more than the longest packet has.
const THRESHOLD: u64 = 131_072;

/// The handlers of both.
pub(super) static HANDLERS: &[Handler] = &[
    Handler::read("rate", "RATE", &READ_RATE).and_write(&Write(Rated::set_rate)),
    Handler::read("active", "whether to pull", &Show(|r: &mut Rated| r.active))
        .and_write(&Write(Rated::set_active)),
    Handler::read("calls", "how often it ran, and with what success", &Read(Rated::calls_text)),
    Handler::read("config", "RATE", &READ_RATE),
];

static READ_RATE: Read<Rated> = Read(|r, _, _| Ok(r.rate_text()));

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Packets,
    Bytes,
}

impl Unit {
    /// The argument RATE, a second.
    pub(crate) fn read_rate(self, args: &Args<'_>) -> Result<u64, ArgError> {
        Ok(match self {
            Unit::Packets => u64::from(args.read::<u32>("RATE")?),
            Unit::Bytes => args.read::<Bandwidth>("RATE")?.0,
        })
    }

    /// A rate that a handler sets.
    pub(crate) fn parse_rate(self, text: &str) -> Result<u64, HandlerError> {
        Ok(match self {
            Unit::Packets => u64::from(parse_value::<u32>(text)?),
            Unit::Bytes => parse_value::<Bandwidth>(text)?.0,
        })
    }

    /// A rate as Click prints it.
    pub(crate) fn rate_text(self, rate: u64) -> String {
        match self {
            Unit::Packets => rate.to_string(),
            Unit::Bytes => print_bandwidth(rate),
        }
    }

    /// BURST_DURATION, or else BURST_SIZE or BURST_BYTES.
    pub(crate) fn read_depth(self, args: &Args<'_>) -> Result<Depth, ArgError> {
        let tokens = if self == Unit::Bytes { "BURST_BYTES" } else { "BURST_SIZE" };
        match args.read::<Option<u32>>(tokens)? {
            Some(_) if args.is_given("BURST_DURATION") => {
                Err(ArgError::wrong(format!("cannot specify both BURST_DURATION and {tokens}")))
            }
            Some(tokens) => Ok(Depth::Tokens(u64::from(tokens))),
            None => Ok(Depth::Time(args.read("BURST_DURATION")?)),
        }
    }
}

/// The capacity of the bucket.
#[derive(Clone, Copy)]
pub(crate) enum Depth {
    /// The tokens of this time at the rate.
    Time(Duration),
    /// A fixed number of tokens.
    Tokens(u64),
}

/// Moves packets from pull to push at a rate.
pub(super) struct Rated {
    unit: Unit,
    bucket: TokenBucket,
    depth: Depth,
    active: bool,
    runs: u64,
    empty_runs: u64,
    pushes: u64,
    failed_pulls: u64,
}

impl Rated {
    pub(super) fn new(unit: Unit, args: &Args<'_>) -> Result<Rated, ArgError> {
        let (rate, depth) = (unit.read_rate(args)?, unit.read_depth(args)?);
        let bucket = TokenBucket::new(rate, depth.bucket_depth(rate, unit));
        Ok(Rated { unit, bucket, depth, active: true, runs: 0, empty_runs: 0, pushes: 0, failed_pulls: 0 })
    }

    fn rate_text(&self) -> String {
        self.unit.rate_text(self.bucket.rate())
    }
    fn set_rate(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let rate = self.unit.parse_rate(text)?;
        self.bucket.set_rate(rate, self.depth.bucket_depth(rate, self.unit));
        cx.schedule();
        Ok(())
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        cx.schedule();
        Ok(())
    }
    fn calls_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let Rated { runs, empty_runs, pushes, failed_pulls, .. } = self;
        Ok(format!(
            "{runs} calls to run_task()\n{empty_runs} empty runs\n{pushes} pushes\n\
             {failed_pulls} failed pulls\n"
        ))
    }

    /// Fewest tokens for which packets move.
    fn min_tokens(&self) -> u64 {
        if self.unit == Unit::Bytes { THRESHOLD } else { 1 }
    }
    /// Pulls up to a burst of packets for which there are tokens; returns how many.
    fn pull_allowed(&mut self, batch: &mut Batch, cx: &mut Context<'_>) -> usize {
        match self.unit {
            Unit::Packets => {
                let allowed = self.bucket.tokens().min(cx.burst() as u64) as usize;
                let pulled = cx.pull(0, allowed, batch);
                self.bucket.remove(pulled as u64);
                pulled
            }
            Unit::Bytes => {
                while batch.len() < cx.burst() && self.bucket.tokens() >= THRESHOLD {
                    let before = batch.len();
                    if cx.pull(0, 1, batch) == 0 {
                        break;
                    }
                    // A long packet may come as several segments.
                    self.bucket.remove(batch.iter().skip(before).map(|packet| packet.len() as u64).sum());
                }
                batch.len()
            }
        }
    }
}

impl Depth {
    fn bucket_depth(&self, rate: u64, unit: Unit) -> u64 {
        let tokens = match self {
            Depth::Tokens(tokens) => *tokens,
            Depth::Time(time) => {
                let tokens = u128::from(rate) * time.as_nanos() / 1_000_000_000;
                u64::try_from(tokens).map_or(u64::from(u32::MAX), |tokens| tokens.min(u64::from(u32::MAX)))
            }
        };
        match unit {
            Unit::Packets => tokens.max(1),
            Unit::Bytes => tokens + THRESHOLD,
        }
    }
}

/// A bandwidth, given in bytes a second, as Click prints it.
fn print_bandwidth(bytes: u64) -> String {
    let (number, unit) = match bytes {
        0x2000_0000.. => (bytes as f64 / 1e6, "MBps"),
        125_000_000.. => (bytes as f64 * 8.0 / 1e9, "Gbps"),
        125_000.. => (bytes as f64 * 8.0 / 1e6, "Mbps"),
        _ => (bytes as f64 * 8.0 / 1e3, "kbps"),
    };
    format!("{number}{unit}")
}

impl Element for Rated {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.runs += 1;
        if !self.active {
            return false;
        }
        self.bucket.refill_tokens(cx.now());
        if self.bucket.tokens() < self.min_tokens() {
            self.empty_runs += 1;
            cx.wake_at(self.bucket.time_of(self.min_tokens()));
            return false;
        }
        let mut batch = cx.scratch_batch();
        let moved = self.pull_allowed(&mut batch, cx);
        self.pushes += moved as u64;
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
        if moved == 0 {
            self.failed_pulls += 1;
            if cx.upstream_idle(0) {
                return false;
            }
            self.empty_runs += 1;
        }
        cx.schedule();
        moved > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_printed_in_the_unit_that_suits_them() {
        for (bytes, text) in
            [(1000, "8kbps"), (125_000, "1Mbps"), (187_500_000, "1.5Gbps"), (1_250_000_000, "1250MBps")]
        {
            assert_eq!(print_bandwidth(bytes), text);
        }
    }
}
