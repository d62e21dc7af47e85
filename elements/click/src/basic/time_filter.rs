use super::handler_call::HandlerCall;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Read,
    Show, StartError, Time, Write, parse_value,
};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "TimeFilter",
    group: "basic",
    summary: "lets packets of a span of time pass",
    manual: "
Packets whose timestamp lies between a beginning, included, and an end, excluded, leave by output 0; others by
output 1, or they are dropped when there is none.

The beginning is START, or START_DELAY after the router starts, or START_AFTER after the first packet's
timestamp; the end END, END_DELAY after the router starts, END_AFTER after the first packet's timestamp, or
INTERVAL after the beginning. When the first packet comes from behind the end, the handler END_CALL is
written, in whose value `$t` stands for the packet's timestamp; with STOP the router is asked to stop instead.
The handler may move the end: then the packet is tested again, and the next one behind the new end makes
another call.",
    example: "FromDump(trace.pcap) -> TimeFilter(START_AFTER 1, INTERVAL 10, STOP true) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::optional("START", "seconds since 1970", "", "when to begin"),
        Arg::optional("END", "seconds since 1970", "", "when to end"),
        Arg::keyword("START_DELAY", "time", "", "begins so long after the router's start"),
        Arg::keyword("END_DELAY", "time", "", "ends so long after the router's start"),
        Arg::keyword("START_AFTER", "time", "", "begins so long after the first packet"),
        Arg::keyword("END_AFTER", "time", "", "ends so long after the first packet"),
        Arg::keyword("INTERVAL", "time", "", "ends so long after the beginning"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router at the end"),
        Arg::keyword("END_CALL", "handler call", "", "handler to write at the end"),
    ],
    handlers: &[
        Handler::read("start", "when it begins", &Show(|t: &mut TimeFilter| t.first.time))
            .and_write(&Write(|t: &mut TimeFilter, text, _| t.set_start(parse_time(text)?))),
        Handler::read("end", "when it ends", &Show(|t: &mut TimeFilter| t.last.time))
            .and_write(&Write(|t: &mut TimeFilter, text, _| t.set_end(Time::ZERO + parse_time(text)?))),
        Handler::read("interval", "time from the beginning to the end", &Read(TimeFilter::interval_text))
            .and_write(&Write(|t: &mut TimeFilter, text, _| t.set_end(t.first.time + parse_time(text)?))),
        Handler::write(
            "extend_interval",
            "moves the end by so much",
            &Write(|t: &mut TimeFilter, text, _| t.set_end(t.last.time + parse_time(text)?)),
        ),
    ],
    build: |args| Ok(Box::new(TimeFilter::new(args)?)),
    ..Class::DEFAULT
};

/// From when a bound counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Epoch,
    RouterStart,
    FirstPacket,
    Beginning,
}

#[derive(Clone, Copy)]
struct Bound {
    time: Time,
    since: Since,
}

struct TimeFilter {
    first: Bound,
    last: Bound,
    /// Whether the first packet has come.
    ready: bool,
    at_end: Option<HandlerCall>,
    /// Whether the call is still pending.
    armed: bool,
}

fn parse_time(text: &str) -> Result<Duration, HandlerError> {
    parse_value(text).map_err(|_| HandlerError::refused("expected time"))
}

/// The bound that one of these arguments sets; zero counts as not set.
fn read_bound(
    args: &Args<'_>,
    names: &[(&'static str, Since)],
    wrong: &str,
) -> Result<Option<Bound>, ArgError> {
    let mut found = None;
    for &(name, since) in names {
        let Some(time) = args.read::<Option<Duration>>(name)?.filter(|time| !time.is_zero()) else {
            continue;
        };
        if found.replace(Bound { time: Time::ZERO + time, since }).is_some() {
            return Err(ArgError::wrong(wrong));
        }
    }
    Ok(found)
}

impl TimeFilter {
    fn new(args: &mut Args<'_>) -> Result<TimeFilter, ArgError> {
        let first = read_bound(
            args,
            &[
                ("START", Since::Epoch),
                ("START_DELAY", Since::RouterStart),
                ("START_AFTER", Since::FirstPacket),
            ],
            "START, START_AFTER, and START_AFTER_INIT are mutually exclusive",
        )?;
        let last = read_bound(
            args,
            &[
                ("END", Since::Epoch),
                ("END_AFTER", Since::FirstPacket),
                ("END_DELAY", Since::RouterStart),
                ("INTERVAL", Since::Beginning),
            ],
            "END, END_AFTER, END_AFTER_INIT, and INTERVAL are mutually exclusive",
        )?;
        let call = args.read::<Option<String>>("END_CALL")?.and_then(|call| HandlerCall::new(&call));
        let at_end = match (call, args.read("STOP")?) {
            (Some(_), true) => return Err(ArgError::wrong("END_CALL and STOP are mutually exclusive")),
            (None, true) => HandlerCall::new("stop"),
            (call, false) => call,
        };
        Ok(TimeFilter {
            first: first.unwrap_or(Bound { time: Time::ZERO, since: Since::FirstPacket }),
            last: last.unwrap_or(Bound { time: Time::NEVER, since: Since::Epoch }),
            ready: false,
            armed: at_end.is_some(),
            at_end,
        })
    }

    fn interval_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok((Time::ZERO + self.last.time.since(self.first.time)).to_string())
    }

    fn set_start(&mut self, start: Duration) -> Result<(), HandlerError> {
        if !self.ready {
            self.see_first(Time::ZERO + start);
        }
        self.first.time = Time::ZERO + start;
        Ok(())
    }

    fn set_end(&mut self, end: Time) -> Result<(), HandlerError> {
        self.last = Bound { time: end, since: Since::Epoch };
        self.armed = self.at_end.is_some();
        Ok(())
    }

    /// Makes times relative to the first packet absolute.
    fn see_first(&mut self, time: Time) {
        if self.first.since == Since::FirstPacket {
            self.first.time = self.first.time + time.since_epoch();
        }
        match self.last.since {
            Since::FirstPacket => self.last.time = self.last.time + time.since_epoch(),
            Since::Beginning => self.last.time = self.last.time + self.first.time.since_epoch(),
            _ => {}
        }
        self.ready = true;
    }

    /// Runs the call, and again while it moves the end without reaching `time`.
    fn run_end_call(&mut self, time: Time, cx: &mut Context<'_>) {
        let Some(mut call) = self.at_end.clone() else { return };
        call.value = call.value.replace("${t}", "$t").replace("$t", &time.to_string());
        loop {
            let before = self.last.time;
            self.armed = false;
            call.run(self, &CLASS, "END_CALL", cx);
            let goes_on = time >= self.last.time && self.armed && self.last.time > before;
            if !goes_on {
                return;
            }
        }
    }

    fn accepts_packet(&mut self, packet: &Packet, cx: &mut Context<'_>) -> bool {
        let time = packet.timestamp();
        if !self.ready {
            self.see_first(time);
        }
        if time < self.first.time {
            return false;
        }
        if time >= self.last.time && self.armed {
            self.run_end_call(time, cx);
        }
        time < self.last.time
    }
}

impl Element for TimeFilter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.filter_map(|packet| {
            if self.accepts_packet(&packet, cx) {
                return Some(packet);
            }
            cx.send_or_discard(1, packet, DropReason::NoOutput);
            None
        });
        cx.send_all(0, batch);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let now = cx.now().since_epoch();
        for bound in [&mut self.first, &mut self.last] {
            if bound.since == Since::RouterStart {
                *bound = Bound { time: bound.time + now, since: Since::Epoch };
            }
        }
        self.at_end.as_ref().map_or(Ok(()), |call| call.check_writable("END_CALL", cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    /// Seconds of the packets that leave by output 0, of packets of these seconds.
    fn passed(bench: &mut Bench, seconds: &[u64]) -> Vec<u64> {
        for &second in seconds {
            bench.push_with(0, b"x", |packet| packet.set_timestamp(Time::new(second, 0)));
        }
        bench.drain_sent(0).iter().map(|packet| packet.timestamp().seconds()).collect()
    }

    #[test]
    fn packets_between_two_times_pass() {
        assert_eq!(passed(&mut Bench::new(&CLASS, "10, 20"), &[9, 10, 19, 20, 15]), [10, 19, 15]);
        assert_eq!(passed(&mut Bench::new(&CLASS, "START_AFTER 2, END_AFTER 4"), &[5, 7, 8, 9]), [7, 8]);
        assert_eq!(passed(&mut Bench::new(&CLASS, "INTERVAL 3"), &[5, 7, 8, 9]), [5, 7]);
        assert_eq!(passed(&mut Bench::new(&CLASS, ""), &[1, 1_000_000]), [1, 1_000_000]);
    }

    #[test]
    fn others_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "10");
        assert_eq!(passed(&mut bench, &[9, 11]), [11]);
        assert_eq!(bench.drain_sent(1).len(), 1);
    }

    #[test]
    fn the_router_is_stopped_once_behind_the_end() {
        let mut bench = Bench::new(&CLASS, "INTERVAL 3, STOP true");
        assert_eq!(passed(&mut bench, &[5, 7]), [5, 7]);
        assert!(!bench.stop_requested());
        assert_eq!(passed(&mut bench, &[8, 9]), [0u64; 0]);
        assert!(bench.stop_requested());
    }

    #[test]
    fn the_call_may_move_the_end() {
        let mut bench = Bench::new(&CLASS, "INTERVAL 3, END_CALL e.extend_interval 2");
        assert_eq!(passed(&mut bench, &[5, 8, 9, 30, 31]), [5, 8, 9, 30, 31]);
        assert_eq!(bench.read("interval", "").unwrap(), "27.000000");
        let mut bench = Bench::new(&CLASS, "INTERVAL 3, END_CALL e.end $t");
        assert_eq!(passed(&mut bench, &[5, 8, 9]), [5]);
        assert_eq!(bench.read("end", "").unwrap(), "9.000000");
    }

    #[test]
    fn bounds_can_be_changed_and_exclude_each_other() {
        let mut bench = Bench::new(&CLASS, "10, 20");
        bench.write("start", "15").unwrap();
        bench.write("interval", "2").unwrap();
        assert_eq!(bench.read("start", "").unwrap(), "15.000000");
        assert_eq!(bench.read("end", "").unwrap(), "17.000000");
        assert!(bench.write("end", "x").is_err());
        assert!(Bench::config_error(&CLASS, "1, START_AFTER 1").starts_with("START, START_AFTER"));
        assert!(Bench::config_error(&CLASS, "1, 2, INTERVAL 1").starts_with("END, END_AFTER"));
        let found = Bench::config_error(&CLASS, "STOP true, END_CALL stop");
        assert_eq!(found, "END_CALL and STOP are mutually exclusive");
    }
}
