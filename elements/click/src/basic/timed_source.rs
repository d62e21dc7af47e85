use super::template::{DATA, Template};
use artery_engine::{
    Arg, ArgError, Args, Class, Context, Element, Handler, HandlerError, Limit, Read, Show, StartError, Time,
    Write, parse_value,
};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "TimedSource",
    group: "basic",
    summary: "sends a packet at regular intervals",
    manual: "
Sends a packet made of DATA every INTERVAL, the first one after the first interval, and LIMIT in all; with
STOP it asks the router to stop one interval after the last.",
    example: "TimedSource(INTERVAL 0.333) -> Discard;",
    ports: "0/1",
    processing: "h/h",
    args: &[
        Arg::optional("INTERVAL", "seconds", "0.5", "time from one packet to the next"),
        Arg::optional("DATA", "bytes", DATA, "what packets consist of"),
        Arg::keyword("LIMIT", "packets", "-1", "packets to send in all; -1 for no limit"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to send"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router after LIMIT packets"),
        Arg::keyword("HEADROOM", "bytes", "28", "least space before the data"),
    ],
    handlers: &[
        Handler::read("count", "packets sent", &Show(|s: &mut Source| s.count)),
        Handler::write("reset", "sends another LIMIT packets", &Write(Source::reset_counts)).button(),
        Handler::read("data", "DATA", &Show(|s: &mut Source| s.template.data_text()))
            .and_write(&Write(|s: &mut Source, text, _| s.template.set_data(text.as_bytes()))),
        Handler::read("headroom", "HEADROOM", &Show(|s: &mut Source| s.template.headroom()))
            .and_write(&Write(|s: &mut Source, text, _| s.template.set_headroom(parse_value(text)?))),
        Handler::read("interval", "INTERVAL", &Show(|s: &mut Source| format_interval(s.interval)))
            .and_write(&Write(Source::set_interval)),
        Handler::read("limit", "LIMIT, or -1", &Read(Source::limit_text))
            .and_write(&Write(|s: &mut Source, text, _| parse_value(text).map(|limit| s.limit = limit))),
        Handler::read("active", "ACTIVE", &Show(|s: &mut Source| s.active))
            .and_write(&Write(Source::set_active)),
    ],
    build: |args| Ok(Box::new(Source::new(args)?)),
    ..Class::DEFAULT
};

struct Source {
    template: Template,
    interval: Duration,
    limit: Limit,
    active: bool,
    stop: bool,
    count: u64,
    /// When the next packet is due; none while the timer is off.
    next: Option<Time>,
}

/// An interval as Click prints it: in the biggest unit below a second that is exact, or in seconds.
pub(crate) fn format_interval(time: Duration) -> String {
    match (time.as_secs(), time.subsec_nanos()) {
        (0, n) if n % 1_000_000 == 0 => format!("{}ms", n / 1_000_000),
        (0, n) if n % 1000 == 0 => format!("{}us", n / 1000),
        (0, n) => format!("{n}ns"),
        _ => format!("{}s", Time::ZERO + time),
    }
}

/// Reads an interval that is not zero.
pub(crate) fn nonzero_interval(time: Duration) -> Option<Duration> {
    Some(time).filter(|time| !time.is_zero())
}

impl Source {
    fn new(args: &mut Args<'_>) -> Result<Source, ArgError> {
        let interval = nonzero_interval(args.read("INTERVAL")?);
        let headroom = args.read::<u32>("HEADROOM")? as usize;
        Ok(Source {
            template: Template::new(args.read("DATA")?, None, headroom).map_err(ArgError::Wrong)?,
            interval: interval.ok_or_else(|| ArgError::wrong("INTERVAL must be more than zero"))?,
            limit: args.read("LIMIT")?,
            active: args.read("ACTIVE")?,
            stop: args.read("STOP")?,
            count: 0,
            next: None,
        })
    }

    fn limit_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.limit.0.map_or("-1".to_string(), |limit| limit.to_string()))
    }
    fn set_interval(&mut self, text: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        let time = parse_value(text).ok().and_then(nonzero_interval);
        self.interval = time.ok_or_else(|| HandlerError::refused("bad interval"))?;
        Ok(())
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        self.send_now(cx);
        Ok(())
    }
    fn reset_counts(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        self.send_now(cx);
        Ok(())
    }
    /// Sets a timer that is off to go off at once.
    fn send_now(&mut self, cx: &mut Context<'_>) {
        if self.active && self.next.is_none() {
            let now = cx.now();
            self.wake_at(now, cx);
        }
    }
    fn wake_at(&mut self, time: Time, cx: &mut Context<'_>) {
        self.next = Some(time);
        cx.wake_at(time);
    }

    fn send_packet(&mut self, cx: &mut Context<'_>) {
        let mut batch = cx.scratch_batch();
        let now = cx.now();
        self.count += self.template.make_packets(1, now, &mut batch, cx) as u64;
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
    }
}

impl Element for Source {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.active {
            let first = cx.now() + self.interval;
            self.wake_at(first, cx);
        }
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.next.filter(|next| *next <= cx.now()) else { return false };
        self.next = None;
        if !self.active {
            return false;
        }
        if self.limit.0.is_some_and(|limit| self.count >= limit) {
            if self.stop {
                cx.request_stop();
            }
            return false;
        }
        self.send_packet(cx);
        self.wake_at(due + self.interval, cx);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn sends_one_packet_every_interval() {
        let mut bench = Bench::new(&CLASS, "0.25, abc");
        bench.run();
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_secs(2));
        let packets = bench.drain_sent(0);
        assert_eq!((packets.len(), packets[7].data(), packets[7].timestamp()), (8, &b"abc"[..], bench.now()));
    }

    #[test]
    fn stops_one_interval_after_the_last_packet() {
        let mut bench = Bench::new(&CLASS, "LIMIT 2, STOP true");
        bench.advance_time(Duration::from_secs(1));
        assert_eq!((bench.drain_sent(0).len(), bench.stop_requested()), (2, false));
        bench.advance_time(Duration::from_millis(500));
        assert_eq!((bench.drain_sent(0).len(), bench.stop_requested()), (0, true));
        bench.write("reset", "").unwrap();
        bench.advance_time(Duration::from_secs(1));
        assert_eq!(bench.drain_sent(0).len(), 2);
    }

    #[test]
    fn sends_at_once_when_made_active() {
        let mut bench = Bench::new(&CLASS, "ACTIVE false");
        bench.advance_time(Duration::from_secs(1));
        bench.expect_nothing_more();
        bench.write("active", "true").unwrap();
        bench.advance_time(Duration::ZERO);
        assert_eq!(bench.drain_sent(0).len(), 1);
    }

    #[test]
    fn packets_have_the_headroom_asked_for() {
        for headroom in [0, 200, 1900, 5000] {
            let mut bench = Bench::new(&CLASS, &format!("HEADROOM {headroom}"));
            bench.advance_time(Duration::from_secs(1));
            let packet = bench.next_sent(0).unwrap();
            assert!(packet.headroom() >= headroom, "{} < {headroom}", packet.headroom());
            assert_eq!(packet.len(), 69);
        }
    }

    #[test]
    fn intervals_are_printed_in_their_best_unit() {
        let mut bench = Bench::new(&CLASS, "");
        for (written, read) in [("0.5", "500ms"), ("20us", "20us"), ("5ns", "5ns"), ("1.5", "1.500000s")] {
            bench.write("interval", written).unwrap();
            assert_eq!(bench.read("interval", "").unwrap(), read);
        }
        assert_eq!(bench.write("interval", "0").unwrap_err().to_string(), "bad interval");
    }
}
