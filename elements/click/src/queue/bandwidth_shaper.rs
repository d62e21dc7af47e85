use super::rated::Unit;
use super::shaper::{HANDLERS, Shaper};
use artery_engine::{Arg, Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "BandwidthShaper",
    group: "queue",
    summary: "lets packets be pulled at a given bandwidth",
    manual: "Lets packets be pulled, RATE bytes a second. Whoever pulls sleeps until the next packet may go.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> BandwidthShaper(1Mbps) -> Unqueue -> Discard;",
    processing: "l/l",
    args: &[Arg::required("RATE", "bandwidth", "how many bytes may be pulled a second")],
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(Shaper::new(args, Unit::Bytes)?)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn bytes_can_be_pulled_at_its_rate() {
        let mut bench = Bench::new(&CLASS, "10000");
        (0..100).for_each(|_| bench.offer(0, [0; 1000]));
        assert_eq!((bench.pull(0, 8).len(), bench.pull(0, 8).len()), (1, 0));
        assert!(!bench.signals().0);
        let mut pulled = 0;
        for _ in 0..50 {
            bench.advance_time(Duration::from_millis(100));
            pulled += bench.pull(0, 8).len();
        }
        assert_eq!(pulled, 50);
    }

    #[test]
    fn rates_are_read_and_printed_as_bandwidths() {
        let mut bench = Bench::new(&CLASS, "1Mbps");
        assert_eq!(bench.read("rate", "").unwrap(), "1Mbps");
        bench.write("rate", "2 Mbps").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "2Mbps");
        assert!(bench.write("rate", "wide").is_err());
    }
}
