use super::store::{ARGS, HANDLERS, Policy, Store, Tells};
use artery_engine::{Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "FrontDropQueue",
    group: "queue",
    summary: "holds packets until they are pulled, and drops the oldest when full",
    manual: "
Holds packets in order until they are pulled. When one arrives and the queue is full, the one that has waited
longest makes room for it: it leaves by output 1, or is dropped when there is none. It holds up to CAPACITY
packets, and when the router runs on several workers, each worker's copy holds its share of them.",
    example: "InfiniteSource(LIMIT 10) -> FrontDropQueue(200) -> Discard;",
    ports: "1/1-2",
    processing: "h/lh",
    args: ARGS,
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    live: true,
    build: |args| Store::build_queue("FrontDropQueue", Policy::DropOldest, Tells::Pullers, args),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};

    fn filled(config: &str) -> Bench {
        let mut bench = Bench::new(&CLASS, config);
        let packets: Vec<_> = (0..5u8).map(|i| bench.packet([i])).collect();
        bench.push_packets(0, packets);
        bench
    }
    fn pulled(bench: &mut Bench) -> Vec<u8> {
        bench.pull(0, 64).iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn the_oldest_packets_make_room() {
        let mut bench = filled("3");
        bench.expect(1, [0]);
        bench.expect(1, [1]);
        assert_eq!(bench.read("drops", "").unwrap(), "2");
        assert_eq!(pulled(&mut bench), [2, 3, 4]);
        assert_eq!(bench.stderr_text(), "e :: FrontDropQueue: overflow\n");
    }

    #[test]
    fn the_newest_packets_survive_a_smaller_capacity_and_a_replacement() {
        let mut bench = filled("5");
        bench.write("capacity", "4").unwrap();
        bench.expect_dropped(DropReason::QueueFull, 1);
        let mut new = Bench::new(&CLASS, "3");
        new.take_state(&mut bench);
        assert_eq!(pulled(&mut new), [2, 3, 4]);
    }

    #[test]
    fn a_queue_of_nothing_drops_everything() {
        let mut bench = filled("0");
        assert_eq!((bench.drain_sent(1).len(), pulled(&mut bench).len()), (5, 0));
    }
}
