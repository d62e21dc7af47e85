use super::rated::{HANDLERS, Rated, Unit};
use artery_engine::{Arg, Class};

pub static CLASS: Class = Class {
    name: "RatedUnqueue",
    group: "queue",
    summary: "pulls packets at a given rate and pushes them on",
    manual: "
Pulls RATE packets a second and pushes them on. After a pause it may catch up on what it could have moved in
BURST_DURATION, or on BURST_SIZE packets. It sleeps while upstream has nothing.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> RatedUnqueue(100) -> Discard;",
    processing: "l/h",
    args: &[
        Arg::required("RATE", "packets a second", "how many packets to move a second"),
        Arg::keyword("BURST_DURATION", "seconds", "20ms", "how much time it may make up for"),
        Arg::keyword("BURST_SIZE", "packets", "", "how many packets it may make up for, instead"),
    ],
    handlers: HANDLERS,
    build: |args| Ok(Box::new(Rated::new(Unit::Packets, args)?)),
    ..Class::DEFAULT
};

pub static BANDWIDTH: Class = Class {
    name: "BandwidthRatedUnqueue",
    summary: "pulls packets at a given bandwidth and pushes them on",
    manual: "
Pulls packets and pushes them on, RATE bytes a second. After a pause it may catch up on what it could have
moved in BURST_DURATION, or on BURST_BYTES, and on one long packet more. It sleeps while upstream has
nothing.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> BandwidthRatedUnqueue(384 kbps) -> Discard;",
    args: &[
        Arg::required("RATE", "bandwidth", "how many bytes to move a second"),
        Arg::keyword("BURST_DURATION", "seconds", "20ms", "how much time it may make up for"),
        Arg::keyword("BURST_BYTES", "bytes", "", "how many bytes it may make up for, instead"),
    ],
    build: |args| Ok(Box::new(Rated::new(Unit::Bytes, args)?)),
    ..CLASS
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    /// Packets moved at once, and in the second after that.
    fn moved(config: &str) -> (usize, usize) {
        let mut bench = Bench::new(&CLASS, config);
        (0..200).for_each(|_| bench.offer(0, b"x"));
        bench.run();
        let at_once = bench.drain_sent(0).len();
        bench.advance_time(Duration::from_secs(1));
        (at_once, bench.drain_sent(0).len())
    }

    #[test]
    fn moves_packets_at_its_rate() {
        assert_eq!(moved("100"), (2, 100));
        assert_eq!(moved("10"), (1, 10));
        assert_eq!(moved("0"), (0, 0));
    }

    #[test]
    fn makes_up_for_as_much_as_it_is_told() {
        assert_eq!(moved("100, BURST_DURATION 0.5"), (50, 100));
        assert_eq!(moved("100, BURST_SIZE 7"), (7, 100));
    }

    #[test]
    fn the_rate_can_change() {
        let mut bench = Bench::new(&CLASS, "1");
        (0..100).for_each(|_| bench.offer(0, b"x"));
        bench.run();
        bench.write("rate", "50").unwrap();
        bench.run();
        bench.advance_time(Duration::from_secs(1));
        assert_eq!((bench.drain_sent(0).len(), bench.read("config", "").unwrap().as_str()), (51, "50"));
        assert!(bench.write("rate", "fast").is_err());
    }

    #[test]
    fn moves_nothing_while_inactive_and_counts_its_runs() {
        let mut bench = Bench::new(&CLASS, "100");
        bench.offer(0, b"x");
        bench.write("active", "false").unwrap();
        bench.run();
        bench.expect_nothing_more();
        let calls = "1 calls to run_task()\n0 empty runs\n0 pushes\n0 failed pulls\n";
        assert_eq!(bench.read("calls", "").unwrap(), calls);
        bench.write("active", "true").unwrap();
        bench.run_once();
        bench.expect(0, b"x");
    }

    #[test]
    fn refuses_two_ways_to_say_how_much_to_make_up_for() {
        let wrong = Bench::config_error(&CLASS, "1, BURST_DURATION 1, BURST_SIZE 1");
        assert_eq!(wrong, "cannot specify both BURST_DURATION and BURST_SIZE");
        assert_eq!(Bench::config_error(&CLASS, ""), "RATE: required argument missing");
        let wrong = Bench::config_error(&BANDWIDTH, "1, BURST_DURATION 1, BURST_BYTES 1");
        assert_eq!(wrong, "cannot specify both BURST_DURATION and BURST_BYTES");
    }

    #[test]
    fn the_bandwidth_one_moves_bytes_at_its_rate() {
        let mut bench = Bench::new(&BANDWIDTH, "10000, BURST_BYTES 5000");
        (0..200).for_each(|_| bench.offer(0, [0; 1000]));
        bench.run();
        // The burst, and the packet that brings the bucket below its threshold.
        assert_eq!(bench.drain_sent(0).len(), 6);
        bench.advance_time(Duration::from_secs(5));
        assert_eq!(bench.drain_sent(0).len(), 50);
    }

    #[test]
    fn rates_are_read_and_printed_as_bandwidths() {
        let mut bench = Bench::new(&BANDWIDTH, "RATE 1Mbps");
        assert_eq!(bench.read("rate", "").unwrap(), "1Mbps");
        bench.write("rate", "384 kbps").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "384kbps");
    }
}
