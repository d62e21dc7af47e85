use artery_engine::{Arg, Batch, Class, Context, Element, Handler, Show, Time, Write};

pub static CLASS: Class = Class {
    name: "TimeRange",
    group: "basic",
    summary: "notes the earliest and the latest timestamp of packets",
    manual: "
Passes packets on unchanged and notes the span that their timestamps lie in. With SIMPLE they are taken to
come in order, so that the latest packet ends it.",
    example: "InfiniteSource(LIMIT 10) -> SetTimestamp -> t :: TimeRange -> Discard;\n\
        DriverManager(wait, print t.range);",
    args: &[Arg::keyword("SIMPLE", "bool", "false", "whether timestamps never go back")],
    handlers: &[
        Handler::read("first", "the earliest timestamp", &Show(|t: &mut TimeRange| t.first)),
        Handler::read("last", "the latest timestamp", &Show(|t: &mut TimeRange| t.last)),
        Handler::read("range", "both", &Show(|t: &mut TimeRange| format!("{} {}", t.first, t.last))),
        Handler::read(
            "interval",
            "the time between them, in seconds",
            &Show(|t: &mut TimeRange| Time::ZERO + t.last.since(t.first)),
        ),
        Handler::write(
            "reset",
            "forgets both",
            &Write(|t: &mut TimeRange, _, _| {
                (t.first, t.last) = (Time::ZERO, Time::ZERO);
                Ok(())
            }),
        )
        .button(),
    ],
    build: |args| {
        Ok(Box::new(TimeRange { simple: args.read("SIMPLE")?, first: Time::ZERO, last: Time::ZERO }))
    },
    ..Class::DEFAULT
};

struct TimeRange {
    simple: bool,
    /// Zero until a packet with a timestamp came.
    first: Time,
    last: Time,
}

impl TimeRange {
    fn extend_range(&mut self, time: Time) {
        if self.first == Time::ZERO {
            (self.first, self.last) = (time, time);
        } else if self.simple {
            self.last = time;
        } else {
            (self.first, self.last) = (self.first.min(time), self.last.max(time));
        }
    }
}

impl Element for TimeRange {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter().for_each(|packet| self.extend_range(packet.timestamp()));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str, times: &[u64]) -> Bench {
        let mut bench = Bench::new(&CLASS, config);
        for &seconds in times {
            bench.push_with(0, b"x", |packet| packet.set_timestamp(Time::new(seconds, 0)));
        }
        assert_eq!(bench.drain_sent(0).len(), times.len());
        bench
    }
    fn read(bench: &mut Bench) -> [String; 4] {
        ["first", "last", "range", "interval"].map(|name| bench.read(name, "").unwrap())
    }

    #[test]
    fn the_span_holds_all_timestamps() {
        let mut bench = bench("", &[5, 3, 9, 4]);
        assert_eq!(read(&mut bench), ["3.000000", "9.000000", "3.000000 9.000000", "6.000000"]);
        bench.write("reset", "").unwrap();
        assert_eq!(read(&mut bench), ["0.000000", "0.000000", "0.000000 0.000000", "0.000000"]);
    }

    #[test]
    fn when_packets_come_in_order_the_latest_ends_it() {
        assert_eq!(bench("SIMPLE true", &[5, 9, 7]).read("range", "").unwrap(), "5.000000 7.000000");
    }
}
