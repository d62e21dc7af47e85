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
    }
}
