use artery_engine::{Arg, ArgError, Batch, Class, Context, Element, Time, anno};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "SetTimestamp",
    group: "basic",
    summary: "sets packets' timestamp",
    manual: "
Sets the timestamp of every packet to TIMESTAMP, or without it to the time at which the packet gets here: for
packets that travel together, the same time. With FIRST it sets the FIRST_TIMESTAMP annotation instead.",
    example: "Idle -> SetTimestamp -> Discard;",
    args: &[
        Arg::optional("TIMESTAMP", "seconds", "", "the time to set; now if not given"),
        Arg::keyword("FIRST", "bool", "false", "whether to set the annotation FIRST_TIMESTAMP"),
        Arg::keyword("DELTA", "bool", "false", "no longer supported"),
    ],
    build: |args| {
        if args.read("DELTA")? {
            return Err(ArgError::wrong(
                "SetTimestamp(DELTA) is deprecated, use SetTimestampDelta(TYPE FIRST)",
            ));
        }
        let time = args.read::<Option<Duration>>("TIMESTAMP")?.map(|since| Time::ZERO + since);
        Ok(Box::new(SetTimestamp { time, first: args.read("FIRST")? }))
    },
    ..Class::PER_WORKER
};

struct SetTimestamp {
    /// None sets the current time.
    time: Option<Time>,
    first: bool,
}

impl Element for SetTimestamp {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let time = self.time.unwrap_or_else(|| cx.now());
        for packet in batch.iter_mut() {
            if self.first {
                packet.set_annotation(anno::FIRST_TIMESTAMP, time.0.to_ne_bytes());
            } else {
                packet.set_timestamp(time);
            }
        }
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_get_the_time_of_their_arrival() {
        let mut bench = Bench::new(&CLASS, "");
        bench.advance_time(Duration::from_secs(1));
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").timestamp(), bench.now());
    }

    #[test]
    fn packets_get_the_time_that_is_given() {
        let mut bench = Bench::new(&CLASS, "1.5");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").timestamp(), Time::new(1, 500_000_000));
    }

    #[test]
    fn the_first_timestamp_can_be_set_instead() {
        let mut bench = Bench::new(&CLASS, "2, FIRST true");
        bench.push(0, b"x");
        let packet = bench.expect(0, b"x");
        assert_eq!(packet.timestamp(), Time::ZERO);
        assert_eq!(u64::from_ne_bytes(packet.annotation(anno::FIRST_TIMESTAMP)), 2_000_000_000);
    }

    #[test]
    fn refuses_delta_and_what_is_no_time() {
        assert!(Bench::config_error(&CLASS, "DELTA true").contains("deprecated"));
        assert_eq!(Bench::config_error(&CLASS, "noon"), "TIMESTAMP: parse error");
    }
}
