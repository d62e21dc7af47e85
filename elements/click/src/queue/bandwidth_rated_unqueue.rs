use super::rated::{HANDLERS, Rated, Unit};
use artery_engine::{Arg, Class};

pub static CLASS: Class = Class {
    name: "BandwidthRatedUnqueue",
    group: "queue",
    summary: "pulls packets at a given bandwidth and pushes them on",
    manual: "
Pulls packets and pushes them on, RATE bytes a second. After a pause it may catch up on what it could have
moved in BURST_DURATION, or on BURST_BYTES, and on one long packet more. It sleeps while upstream has
nothing.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> BandwidthRatedUnqueue(384 kbps) -> Discard;",
    processing: "l/h",
    args: &[
        Arg::required("RATE", "bandwidth", "how many bytes to move a second"),
        Arg::keyword("BURST_DURATION", "seconds", "20ms", "how much time it may make up for"),
        Arg::keyword("BURST_BYTES", "bytes", "", "how many bytes it may make up for, instead"),
    ],
    handlers: HANDLERS,
    build: |args| Ok(Box::new(Rated::new(Unit::Bytes, args)?)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn moves_bytes_at_its_rate() {
        let mut bench = Bench::new(&CLASS, "10000, BURST_BYTES 5000");
        (0..200).for_each(|_| bench.offer(0, [0; 1000]));
        bench.run();
        // The burst, and the packet that brings the bucket below its threshold.
        assert_eq!(bench.drain_sent(0).len(), 6);
        bench.advance_time(Duration::from_secs(5));
        assert_eq!(bench.drain_sent(0).len(), 50);
    }

    #[test]
    fn rates_are_read_and_printed_as_bandwidths() {
        let mut bench = Bench::new(&CLASS, "RATE 1Mbps");
        assert_eq!(bench.read("rate", "").unwrap(), "1Mbps");
        bench.write("rate", "384 kbps").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "384kbps");
    }

    #[test]
    fn refuses_two_ways_to_say_how_much_to_make_up_for() {
        let wrong = Bench::config_error(&CLASS, "1, BURST_DURATION 1, BURST_BYTES 1");
        assert_eq!(wrong, "cannot specify both BURST_DURATION and BURST_BYTES");
    }
}
