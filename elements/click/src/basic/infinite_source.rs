use super::handler_call::HandlerCall;
use super::quota::Quota;
use super::template::{DATA, Template};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Limit, Read, Show, Signal,
    SignalKinds, StartError, Time, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "InfiniteSource",
    group: "basic",
    summary: "sends packets as fast as they are taken",
    manual: "
Sends packets made of DATA: by push, BURST of them each time it is scheduled, and no faster than a Queue
behind it has room; by pull, one for each asked for. After LIMIT packets it stops; with STOP it then asks the
router to stop, or writes END_CALL. Without BURST, it sends as many at a time as packets travel together,
which is one when the router runs with a burst of one.",
    example: "InfiniteSource(DATA \\<0800>, LIMIT 10, STOP true) -> Queue -> Discard;",
    ports: "0/1",
    args: &[
        Arg::optional("DATA", "bytes", DATA, "what packets consist of"),
        Arg::optional("LIMIT", "packets", "-1", "packets to send in all; -1 for no limit"),
        Arg::optional("BURST", "packets", "", "packets to send at a time; the router's burst"),
        Arg::optional("ACTIVE", "bool", "true", "whether to send"),
        Arg::keyword("TIMESTAMP", "bool", "true", "whether to set packets' timestamps"),
        Arg::keyword("LENGTH", "bytes", "", "length of packets: DATA is cut or repeated"),
        Arg::keyword("DATASIZE", "bytes", "", "older name of LENGTH"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router after LIMIT packets"),
        Arg::keyword("END_CALL", "handler call", "", "handler to write after LIMIT packets, and its value"),
    ],
    handlers: &[
        Handler::read("count", "packets sent", &Show(|s: &mut Source| s.count)).sum(),
        Handler::write("reset", "sends another LIMIT packets", &Write(Source::reset_counts)).button(),
        Handler::read("data", "DATA", &Show(|s: &mut Source| s.template.data_text()))
            .and_write(&Write(|s: &mut Source, text, _| s.template.set_data(text.as_bytes()))),
        Handler::read("limit", "LIMIT", &Show(|s: &mut Source| s.quota.limit_text()))
            .and_write(&Write(Source::set_limit)),
        Handler::read("burst", "BURST", &READ_BURST).and_write(&WRITE_BURST),
        Handler::read("burstsize", "older name of burst", &READ_BURST).and_write(&WRITE_BURST),
        Handler::read("active", "ACTIVE", &Show(|s: &mut Source| s.active))
            .and_write(&Write(Source::set_active)),
        Handler::read("length", "LENGTH, or -1", &READ_LENGTH).and_write(&WRITE_LENGTH),
        Handler::read("datasize", "older name of length", &READ_LENGTH).and_write(&WRITE_LENGTH),
    ],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(Source::new(args)?)),
    ..Class::PER_WORKER
};

static READ_BURST: Read<Source> = Read(|s, _, cx| Ok(s.burst_size(cx).to_string()));
static WRITE_BURST: Write<Source> = Write(Source::set_burst);
static READ_LENGTH: Read<Source> = Read(|s, _, _| Ok(s.template.length_text()));
static WRITE_LENGTH: Write<Source> = Write(|s, text, _| s.template.set_length(parse_value(text)?));

struct Source {
    template: Template,
    quota: Quota,
    burst: Option<usize>,
    active: bool,
    timestamp: bool,
    count: u64,
    /// What to write when the limit is reached: a handler and its value.
    end_call: Option<HandlerCall>,
}

impl Source {
    fn new(args: &mut Args<'_>) -> Result<Source, ArgError> {
        let burst: Option<i64> = args.read("BURST")?;
        if burst.is_some_and(|burst| burst < 1) {
            return Err(ArgError::wrong("burst size must be >= 1"));
        }
        Ok(Source {
            template: Template::from_args(args)?,
            quota: Quota::new(args.read("LIMIT")?, args),
            burst: burst.map(|burst| burst as usize),
            active: args.read("ACTIVE")?,
            timestamp: args.read("TIMESTAMP")?,
            count: 0,
            end_call: end_call(args.read("STOP")?, args.read("END_CALL")?)?,
        })
    }

    fn burst_size(&self, cx: &Context<'_>) -> usize {
        self.burst.unwrap_or(cx.burst())
    }
    fn set_burst(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.burst = match parse_value::<u32>(text) {
            Ok(burst @ 1..) => Some(burst as usize),
            _ => return Err(HandlerError::refused("burst parameter must be integer >= 1")),
        };
        self.resume_source(cx)
    }
    fn set_limit(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.quota.set_limit(parse_value::<Limit>(text)?, self.count);
        self.resume_source(cx)
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        self.resume_source(cx)
    }
    fn reset_counts(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        self.quota.reset();
        self.resume_source(cx)
    }
    /// Continues if a change makes that possible.
    fn resume_source(&mut self, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if self.active && !self.quota.is_used_up() {
            self.quota.rearm_end();
            if cx.output_is_pull(0) { cx.set_signal(Signal::NonEmpty, true) } else { cx.schedule() }
        }
        Ok(())
    }

    /// Adds up to `n` packets to `into`; returns how many.
    fn make_packets(&mut self, n: usize, into: &mut Batch, cx: &mut Context<'_>) -> usize {
        let granted = self.quota.reserve_packets(n);
        let time = if self.timestamp { cx.now() } else { Time::ZERO };
        let made = self.template.make_packets(granted, time, into, cx);
        self.quota.return_unused(granted, made);
        self.count += made as u64;
        made
    }

    /// Does, once for all copies, what shall happen when the limit is reached.
    fn run_end_action(&mut self, cx: &mut Context<'_>) {
        if !self.quota.claim_end() {
            return;
        }
        if let Some(call) = &self.end_call {
            call.write_value("InfiniteSource", "END_CALL", cx);
        }
    }
}

/// The call that STOP and END_CALL configure.
fn end_call(stop: bool, call: Option<String>) -> Result<Option<HandlerCall>, ArgError> {
    match call.as_deref().and_then(HandlerCall::new) {
        Some(_) if stop => Err(ArgError::wrong("END_CALL and STOP are mutually exclusive")),
        None if stop => Ok(HandlerCall::new("stop")),
        call => Ok(call),
    }
}

impl Element for Source {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if self.active && self.make_packets(max, into, cx) > 0 {
            return;
        }
        if self.active {
            self.run_end_action(cx);
        }
        if !self.active || self.quota.is_done() {
            cx.set_signal(Signal::NonEmpty, false);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if let Some(call) = &self.end_call {
            call.check_writable("END_CALL", cx)?;
        }
        if cx.output_is_pull(0) {
            cx.set_signal(Signal::NonEmpty, self.active);
        } else {
            cx.schedule();
        }
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.active || cx.downstream_full(0) {
            return false;
        }
        // A configured burst is sent whole, also if it does not fit in the queue behind.
        let burst = self.burst.unwrap_or_else(|| cx.burst().min(cx.downstream_room(0)));
        let mut sent = 0;
        let mut batch = cx.scratch_batch();
        while sent < burst {
            let made = self.make_packets((burst - sent).min(cx.burst()), &mut batch, cx);
            if made == 0 {
                break;
            }
            cx.send_all(0, &mut batch);
            sent += made;
            if sent < burst {
                cx.flush_sends();
            }
        }
        cx.recycle_batch(batch);
        if sent > 0 || !self.quota.is_done() {
            cx.schedule();
        } else {
            self.run_end_action(cx);
        }
        sent > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn sends_limit_packets_then_asks_to_stop() {
        let mut bench = Bench::new(&CLASS, "abc, 100, STOP true");
        bench.run();
        let packets = bench.drain_sent(0);
        assert_eq!(packets.len(), 100);
        assert_eq!((packets[99].data(), packets[99].timestamp()), (&b"abc"[..], bench.now()));
        assert!(bench.stop_requested());
        assert_eq!(bench.read("count", "").unwrap(), "100");
    }

    #[test]
    fn sends_its_burst_each_time() {
        let mut bench = Bench::new(&CLASS, "LIMIT 10, BURST 3, TIMESTAMP false");
        bench.run_once();
        assert_eq!(bench.drain_sent(0).len(), 3);
        bench.write("burst", "4").unwrap();
        bench.run_once();
        let packets = bench.drain_sent(0);
        assert_eq!((packets.len(), packets[0].len(), packets[0].timestamp()), (4, 69, Time::ZERO));
    }

    #[test]
    fn a_burst_bigger_than_a_batch_is_sent_whole() {
        let mut bench = Bench::setup(&CLASS, "BURST 100").burst(16).build().unwrap();
        bench.run_once();
        assert_eq!(bench.drain_sent(0).len(), 100);
    }

    #[test]
    fn gives_limit_packets_to_whoever_pulls() {
        let mut bench = Bench::setup(&CLASS, "LIMIT 5, STOP true").pull().build().unwrap();
        assert!(bench.signals().0);
        assert_eq!((bench.pull(0, 3).len(), bench.pull(0, 3).len()), (3, 2));
        assert!(!bench.stop_requested());
        assert_eq!((bench.pull(0, 3).len(), bench.signals().0, bench.stop_requested()), (0, false, true));
        bench.write("reset", "").unwrap();
        assert!(bench.signals().0);
    }

    #[test]
    fn handlers_change_what_is_sent() {
        let mut bench = Bench::new(&CLASS, "LIMIT 1, ACTIVE false");
        bench.run();
        bench.expect_nothing_more();
        bench.write("data", "xy").unwrap();
        bench.write("length", "3").unwrap();
        bench.write("active", "true").unwrap();
        bench.run();
        bench.expect(0, b"xyx");
        bench.write("limit", "2").unwrap();
        bench.run();
        bench.expect(0, b"xyx");
        bench.expect_nothing_more();
        assert!(bench.write("burst", "0").is_err());
    }

    #[test]
    fn an_empty_pool_delays_packets_and_loses_none() {
        let mut bench = Bench::new(&CLASS, "LIMIT 1000");
        bench.run();
        let first = bench.drain_sent(0).len();
        assert!(first < 1000);
        bench.run();
        assert_eq!(bench.read("count", "").unwrap(), (first + bench.drain_sent(0).len()).to_string());
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        assert_eq!(Bench::config_error(&CLASS, "BURST 0"), "burst size must be >= 1");
        let both = "STOP true, END_CALL stop";
        assert_eq!(Bench::config_error(&CLASS, both), "END_CALL and STOP are mutually exclusive");
        assert_eq!(Bench::config_error(&CLASS, "END_CALL x.y"), "END_CALL: no 'x.y' write handler");
        assert!(Bench::config_error(&CLASS, "LENGTH 70000").contains("65535"));
    }
}
