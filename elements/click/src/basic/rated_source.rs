use super::template::{DATA, Template};
use super::token_bucket::TokenBucket;
use artery_engine::{
    Arg, ArgError, Args, Bandwidth, Batch, Class, Context, Element, Handler, HandlerError, Limit, Read, Show,
    StartError, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "RatedSource",
    group: "basic",
    summary: "sends packets at a given rate",
    manual: "
Sends packets made of DATA, RATE a second and LIMIT in all; with STOP it then asks the router to stop.
BANDWIDTH sets the rate by the length of the packets. Where packets are pulled, it gives no more than the rate
allows.",
    example: "RatedSource(DATA \\<0800>, RATE 10, LIMIT 100) -> Discard;",
    ports: "0/1",
    args: &[
        Arg::optional("DATA", "bytes", DATA, "what packets consist of"),
        Arg::optional("RATE", "packets a second", "10", "how many to send a second"),
        Arg::optional("LIMIT", "packets", "-1", "packets to send in all; -1 for no limit"),
        Arg::optional("ACTIVE", "bool", "true", "whether to send"),
        Arg::keyword("LENGTH", "bytes", "", "length of packets: DATA is cut or repeated"),
        Arg::keyword("DATASIZE", "bytes", "", "older name of LENGTH"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router after LIMIT packets"),
        Arg::keyword("BANDWIDTH", "bandwidth", "0", "sets RATE by the length of packets"),
    ],
    handlers: &[
        Handler::read("count", "packets sent", &Show(|s: &mut Source| s.count)),
        Handler::write("reset", "sends another LIMIT packets", &Write(Source::reset_counts)).button(),
        Handler::read("data", "DATA", &Show(|s: &mut Source| s.template.data_text()))
            .and_write(&Write(|s: &mut Source, text, _| s.template.set_data(text.as_bytes()))),
        Handler::read("length", "LENGTH, or -1", &READ_LENGTH).and_write(&WRITE_LENGTH),
        Handler::read("datasize", "older name of length", &READ_LENGTH).and_write(&WRITE_LENGTH),
        Handler::read("rate", "RATE", &Show(|s: &mut Source| s.tokens.rate()))
            .and_write(&Write(Source::set_rate)),
        Handler::read("limit", "LIMIT, or -1", &Read(Source::limit_text))
            .and_write(&Write(Source::set_limit)),
        Handler::read("active", "ACTIVE", &Show(|s: &mut Source| s.active))
            .and_write(&Write(Source::set_active)),
    ],
    build: |args| Ok(Box::new(Source::new(args)?)),
    ..Class::DEFAULT
};

static READ_LENGTH: Read<Source> = Read(|s, _, _| Ok(s.template.length_text()));
static WRITE_LENGTH: Write<Source> = Write(|s, text, _| s.template.set_length(parse_value(text)?));

struct Source {
    template: Template,
    tokens: TokenBucket,
    limit: Limit,
    active: bool,
    stop: bool,
    count: u64,
}

/// Most packets at once after a pause.
fn bucket_capacity(rate: u32) -> u64 {
    if rate < 200 { 2 } else { u64::from(rate / 100) }
}

impl Source {
    fn new(args: &mut Args<'_>) -> Result<Source, ArgError> {
        let template = Template::from_args(args)?;
        let (rate, Bandwidth(bandwidth)): (u32, Bandwidth) = (args.read("RATE")?, args.read("BANDWIDTH")?);
        let tokens = match (bandwidth, template.packet_length() as u64) {
            (0, _) => TokenBucket::new(u64::from(rate), bucket_capacity(rate)),
            (_, 0) => return Err(ArgError::wrong("BANDWIDTH needs packets that are not empty; set RATE")),
            (_, length) => {
                let rate = u32::try_from(bandwidth / length).unwrap_or(u32::MAX);
                TokenBucket::new(u64::from(rate), bucket_capacity(rate))
            }
        };
        Ok(Source {
            template,
            tokens,
            limit: args.read("LIMIT")?,
            active: args.read("ACTIVE")?,
            stop: args.read("STOP")?,
            count: 0,
        })
    }

    fn limit_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.limit.0.map_or("-1".to_string(), |limit| limit.to_string()))
    }
    fn set_limit(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.limit = parse_value(text)?;
        self.schedule_if_active(cx);
        Ok(())
    }
    fn set_rate(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let rate = parse_value(text)?;
        self.tokens.set_rate(u64::from(rate), bucket_capacity(rate));
        self.schedule_if_active(cx);
        Ok(())
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let was = std::mem::replace(&mut self.active, parse_value(text)?);
        if self.active && !was {
            self.start_with_one(cx);
        }
        Ok(())
    }
    fn reset_counts(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        self.start_with_one(cx);
        Ok(())
    }
    /// Restarts with one packet at once, and no credit for the time before.
    fn start_with_one(&mut self, cx: &mut Context<'_>) {
        self.tokens.refill_tokens(cx.now());
        self.tokens.set_tokens(1);
        self.schedule_if_active(cx);
    }
    fn schedule_if_active(&mut self, cx: &mut Context<'_>) {
        if self.active && !cx.output_is_pull(0) {
            cx.schedule();
        }
    }

    fn remaining_packets(&self) -> u64 {
        self.limit.0.map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }
    /// Adds up to `max` packets to `into`, as many as rate and limit allow; returns how many.
    fn make_packets(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) -> usize {
        let now = cx.now();
        self.tokens.refill_tokens(now);
        let n = self.tokens.tokens().min(self.remaining_packets()).min(max as u64) as usize;
        let made = self.template.make_packets(n, now, into, cx);
        self.tokens.remove(made as u64);
        self.count += made as u64;
        made
    }
}

impl Element for Source {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if !self.active {
            return;
        }
        if self.remaining_packets() > 0 {
            self.make_packets(max, into, cx);
        } else if self.stop {
            cx.request_stop();
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.schedule_if_active(cx);
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        if self.remaining_packets() == 0 {
            if self.stop {
                cx.request_stop();
            }
            return false;
        }
        let mut batch = cx.scratch_batch();
        let made = self.make_packets(cx.burst(), &mut batch, cx);
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
        // With tokens left and no packet made the pool is empty; it may have buffers in the next round.
        if made > 0 || self.tokens.tokens() > 0 {
            cx.schedule();
        } else {
            cx.wake_at(self.tokens.time_of(1));
        }
        made > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn sends_at_its_rate() {
        let mut bench = Bench::new(&CLASS, "abc, 100");
        bench.run();
        // What a pause would have saved up.
        assert_eq!(bench.drain_sent(0).len(), 2);
        bench.advance_time(Duration::from_secs(2));
        let packets = bench.drain_sent(0);
        assert_eq!(packets.len(), 200);
        assert_eq!(packets[199].data(), &b"abc"[..]);
        assert_eq!(packets[199].timestamp(), bench.now());
    }

    #[test]
    fn stops_after_limit_packets() {
        let mut bench = Bench::new(&CLASS, "LIMIT 5, STOP true");
        bench.run();
        bench.advance_time(Duration::from_secs(1));
        assert_eq!(bench.drain_sent(0).len(), 5);
        assert!(bench.stop_requested());
        bench.write("reset", "").unwrap();
        bench.run();
        bench.advance_time(Duration::from_secs(1));
        assert_eq!((bench.drain_sent(0).len(), bench.read("count", "").unwrap().as_str()), (5, "5"));
    }

    #[test]
    fn gives_no_more_than_its_rate_to_whoever_pulls() {
        let mut bench = Bench::setup(&CLASS, "RATE 10").pull().build().unwrap();
        assert_eq!((bench.pull(0, 8).len(), bench.pull(0, 8).len()), (2, 0));
        bench.advance_time(Duration::from_millis(100));
        assert_eq!(bench.pull(0, 8).len(), 1);
    }

    #[test]
    fn bandwidth_sets_the_rate_by_packet_length() {
        let mut bench = Bench::new(&CLASS, "LENGTH 125, BANDWIDTH 1Mbps");
        assert_eq!(bench.read("rate", "").unwrap(), "1000");
        assert!(Bench::config_error(&CLASS, "DATA \"\", BANDWIDTH 1Mbps").contains("RATE"));
    }

    #[test]
    fn handlers_change_rate_and_activity() {
        let mut bench = Bench::new(&CLASS, "ACTIVE false");
        bench.advance_time(Duration::from_secs(1));
        bench.expect_nothing_more();
        bench.write("rate", "20").unwrap();
        bench.write("active", "true").unwrap();
        bench.run();
        bench.advance_time(Duration::from_secs(1));
        assert_eq!(bench.drain_sent(0).len(), 21);
        assert!(bench.write("rate", "-1").is_err());
    }

    #[test]
    fn a_rate_of_zero_sends_nothing() {
        let mut bench = Bench::new(&CLASS, "RATE 0");
        bench.advance_time(Duration::from_secs(5));
        bench.expect_nothing_more();
    }
}
