use super::rated_splitter::{HANDLERS, RatedSplitter};
use crate::queue::rated::Unit;
use artery_engine::{Arg, Class};

pub static CLASS: Class = Class {
    name: "BandwidthRatedSplitter",
    group: "basic",
    summary: "sends packets above a given bandwidth elsewhere",
    manual: "
Sends packets of up to RATE by output 0, and what goes beyond that by output 1, or drops it when there is
none. After a pause as many bytes may pass at once as came in BURST_DURATION at the rate, or BURST_BYTES,
besides 128 kB.",
    example: "InfiniteSource(LIMIT 100) -> s :: BandwidthRatedSplitter(1Mbps) -> Discard;\ns[1] -> Discard;",
    ports: "1/1-2",
    processing: "h/h",
    args: &[
        Arg::required("RATE", "bandwidth", "how much passes a second"),
        Arg::keyword("BURST_DURATION", "seconds", "20ms", "how much time may be made up for"),
        Arg::keyword("BURST_BYTES", "bytes", "", "how many bytes may be made up for, instead"),
    ],
    handlers: HANDLERS,
    build: |args| Ok(Box::new(RatedSplitter::new(args, Unit::Bytes)?)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn packets_above_the_bandwidth_leave_by_output_1() {
        let mut bench = Bench::setup(&CLASS, "10kBps, BURST_BYTES 1000").outputs(2).build().unwrap();
        (0..10).for_each(|_| bench.push(0, [0; 500]));
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (3, 7));
        bench.advance_time(Duration::from_millis(100));
        (0..10).for_each(|_| bench.push(0, [0; 500]));
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (2, 8));
        assert_eq!(bench.read("rate", "").unwrap(), "80kbps");
    }
}
