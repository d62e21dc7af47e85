use crate::basic::timed_source::format_interval;
use artery_engine::{
    Arg, ArgError, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Show, StartError,
    Write, parse_value,
};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "TimedSink",
    group: "queue",
    summary: "pulls a packet at regular intervals and drops it",
    manual: "
Pulls one packet every INTERVAL, the first one after the first interval, and drops it.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> TimedSink(0.2);",
    ports: "1/0",
    processing: "l/h",
    args: &[Arg::optional("INTERVAL", "seconds", "0.5", "time from one packet to the next")],
    handlers: &[Handler::read(
        "interval",
        "INTERVAL",
        &Show(|s: &mut TimedSink| format_interval(s.interval)),
    )
    .and_write(&Write(TimedSink::set_interval))],
    build: |args| {
        let interval: Duration = args.read("INTERVAL")?;
        if interval.is_zero() {
            return Err(ArgError::wrong("INTERVAL must be more than zero"));
        }
        Ok(Box::new(TimedSink { interval }))
    },
    ..Class::DEFAULT
};

struct TimedSink {
    interval: Duration,
}

impl TimedSink {
    fn set_interval(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let time: Option<Duration> = parse_value(text).ok();
        self.interval = time.filter(|t| !t.is_zero()).ok_or_else(|| HandlerError::refused("bad interval"))?;
        self.schedule_next(cx);
        Ok(())
    }
    fn schedule_next(&self, cx: &mut Context<'_>) {
        let next = cx.now() + self.interval;
        cx.wake_at(next);
    }
}

impl Element for TimedSink {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::Discarded);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let mut batch = cx.scratch_batch();
        cx.pull(0, 1, &mut batch);
        cx.discard_all(&mut batch, DropReason::Discarded);
        cx.recycle_batch(batch);
        self.schedule_next(cx);
        true
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.schedule_next(cx);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn one_packet_is_pulled_each_interval() {
        let mut bench = Bench::setup(&CLASS, "0.1").outputs(0).build().unwrap();
        (0..5).for_each(|_| bench.offer(0, b"x"));
        bench.advance_time(Duration::from_millis(50));
        assert_eq!(bench.offered_count(0), 5);
        bench.advance_time(Duration::from_millis(200));
        assert_eq!(bench.offered_count(0), 3);
        bench.expect_dropped(DropReason::Discarded, 2);
    }

    #[test]
    fn the_interval_can_change() {
        let mut bench = Bench::setup(&CLASS, "").outputs(0).build().unwrap();
        assert_eq!(bench.read("interval", "").unwrap(), "500ms");
        bench.write("interval", "1ms").unwrap();
        assert_eq!(bench.read("interval", "").unwrap(), "1ms");
        assert!(bench.write("interval", "0").is_err());
        assert_eq!(Bench::config_error(&CLASS, "0"), "INTERVAL must be more than zero");
    }
}
