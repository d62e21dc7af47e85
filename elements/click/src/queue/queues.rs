//! Queue, SimpleQueue, NotifierQueue, MixedQueue and FrontDropQueue: one store of packets, and for each class
//! which packet goes when it is full, and whom it tells.
use super::store::{ARGS, HANDLERS, Policy, Store, Tells};
use artery_engine::{Class, SignalKinds};

const STORE: Class = Class {
    group: "queue",
    ports: "1/1-2",
    processing: "h/lh",
    args: ARGS,
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    live: true,
    ..Class::PER_WORKER
};

pub static CLASS: Class = Class {
    name: "Queue",
    aliases: &["FullNoteQueue", "MSQueue", "QuickNoteQueue", "ThreadSafeQueue"],
    summary: "holds packets until they are pulled, first in, first out",
    manual: "
Holds packets in order until they are pulled. It holds up to CAPACITY packets, and when the router runs on
several workers, each worker's copy holds its share of them. A packet that finds no room leaves by output 1,
or is dropped when there is none. Whoever pulls sleeps while the queue is empty; sources that can wait sleep
while it is full.",
    example: "InfiniteSource(LIMIT 10) -> Queue(200) -> Discard;",
    signals: SignalKinds::NonEmptyAndNonFull,
    build: |args| Store::build_queue("Queue", Policy::DropNew, Tells::All, args),
    ..STORE
};

pub static SIMPLE: Class = Class {
    name: "SimpleQueue",
    summary: "holds packets until they are pulled, without notification",
    manual: "
Holds packets in order until they are pulled, as Queue does, but sends no signal when it gets empty or full:
what pulls from it keeps trying. It holds up to CAPACITY packets, and when the router runs on several workers,
each worker's copy holds its share of them. A packet that finds no room leaves by output 1, or is dropped when
there is none.",
    example: "RatedSource -> SimpleQueue(200) -> Discard;",
    signals: SignalKinds::None,
    build: |args| Store::build_queue("SimpleQueue", Policy::DropNew, Tells::Nobody, args),
    ..STORE
};

pub static NOTIFIER: Class = Class {
    name: "NotifierQueue",
    summary: "holds packets until they are pulled, and tells only who pulls",
    manual: "
Holds packets in order until they are pulled. Whoever pulls sleeps while it is empty, as with Queue; sources
do not learn that it is full. It holds up to CAPACITY packets, and when the router runs on several workers,
each worker's copy holds its share of them. A packet that finds no room leaves by output 1, or is dropped when
there is none.",
    example: "InfiniteSource(LIMIT 10) -> NotifierQueue(200) -> Discard;",
    build: |args| Store::build_queue("NotifierQueue", Policy::DropNew, Tells::Pullers, args),
    ..STORE
};

pub static MIXED: Class = Class {
    name: "MixedQueue",
    summary: "holds packets, those of input 1 last in, first out",
    manual: "
Holds packets until they are pulled. Those of input 0 queue up at the end; one that finds no room leaves by
output 1, or is dropped when there is none. Those of input 1 go to the front; when the queue is full, the
packet at the end is dropped in the same way. It holds up to CAPACITY packets, and when the router runs on
several workers, each worker's copy holds its share of them.",
    example: "Idle -> q :: MixedQueue(200) -> Discard;\nIdle -> [1]q;",
    ports: "2/1-2",
    build: |args| Store::build_queue("MixedQueue", Policy::Mixed, Tells::Pullers, args),
    ..STORE
};

pub static FRONT_DROP: Class = Class {
    name: "FrontDropQueue",
    summary: "holds packets until they are pulled, and drops the oldest when full",
    manual: "
Holds packets in order until they are pulled. When one arrives and the queue is full, the one that has waited
longest makes room for it: it leaves by output 1, or is dropped when there is none. It holds up to CAPACITY
packets, and when the router runs on several workers, each worker's copy holds its share of them.",
    example: "InfiniteSource(LIMIT 10) -> FrontDropQueue(200) -> Discard;",
    build: |args| Store::build_queue("FrontDropQueue", Policy::DropOldest, Tells::Pullers, args),
    ..STORE
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};

    fn read(bench: &mut Bench) -> [String; 4] {
        ["length", "highwater_length", "capacity", "drops"].map(|name| bench.read(name, "").unwrap())
    }
    fn fill(bench: &mut Bench, n: u8) {
        let packets: Vec<_> = (0..n).map(|i| bench.packet([i])).collect();
        bench.push_packets(0, packets);
    }
    fn pulled(bench: &mut Bench) -> Vec<u8> {
        bench.pull(0, 64).iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn packets_come_out_in_order() {
        let mut bench = Bench::new(&CLASS, "");
        fill(&mut bench, 3);
        assert_eq!(read(&mut bench), ["3", "3", "1000", "0"]);
        assert_eq!(bench.pull(0, 2).len(), 2);
        bench.push(0, [7]);
        assert_eq!(pulled(&mut bench), [2, 7]);
        assert_eq!(read(&mut bench), ["0", "3", "1000", "0"]);
    }

    #[test]
    fn packets_without_room_leave_by_output_1_and_the_first_time_it_is_said() {
        let mut bench = Bench::new(&CLASS, "2");
        fill(&mut bench, 4);
        assert_eq!(bench.stderr_text(), "e :: Queue: overflow\n");
        fill(&mut bench, 1);
        assert_eq!((bench.stderr_text(), bench.drain_sent(1).len()), (String::new(), 3));
        assert_eq!(read(&mut bench), ["2", "2", "2", "3"]);
        bench.write("reset_counts", "").unwrap();
        assert_eq!(read(&mut bench), ["2", "2", "2", "0"]);
    }

    #[test]
    fn without_output_1_they_are_dropped() {
        let mut bench = Bench::setup(&CLASS, "2").outputs(1).build().unwrap();
        fill(&mut bench, 4);
        bench.expect_dropped(DropReason::QueueFull, 2);
        assert_eq!(pulled(&mut bench), [0, 1]);
    }

    #[test]
    fn a_queue_of_nothing_drops_everything_and_says_nothing() {
        let mut bench = Bench::setup(&CLASS, "0").outputs(1).build().unwrap();
        fill(&mut bench, 4);
        assert_eq!((bench.stderr_text(), bench.signals()), (String::new(), (false, false)));
        bench.expect_dropped(DropReason::QueueFull, 4);
    }

    #[test]
    fn tells_who_pulls_and_who_pushes_what_there_is() {
        let mut bench = Bench::new(&CLASS, "2");
        assert_eq!(bench.signals(), (false, true));
        fill(&mut bench, 2);
        assert_eq!(bench.signals(), (true, false));
        bench.pull(0, 64);
        assert_eq!(bench.signals(), (true, true));
        (0..10).for_each(|_| assert!(bench.pull(0, 64).is_empty()));
        assert_eq!(bench.signals(), (false, true));
    }

    #[test]
    fn the_capacity_can_change_and_the_newest_packets_go() {
        let mut bench = Bench::new(&CLASS, "4");
        fill(&mut bench, 4);
        bench.write("capacity", "2").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "2");
        bench.expect_dropped(DropReason::QueueFull, 2);
        bench.write("capacity", "3").unwrap();
        assert_eq!(bench.signals(), (true, true));
        assert_eq!(pulled(&mut bench), [0, 1]);
        assert!(bench.write("capacity", "-1").is_err());
    }

    #[test]
    fn other_arguments_keep_packets_and_counts() {
        let mut bench = Bench::setup(&CLASS, "4").outputs(1).build().unwrap();
        fill(&mut bench, 5);
        bench.write("config", "CAPACITY 2").unwrap();
        assert_eq!(read(&mut bench), ["2", "4", "2", "1"]);
        bench.expect_dropped(DropReason::QueueFull, 3);
        assert_eq!(bench.signals(), (true, false));
        assert_eq!(bench.read("config", "").unwrap(), "CAPACITY 2".to_string());
        bench.write("config", "3").unwrap();
        assert_eq!(bench.signals(), (true, true));
        assert_eq!(pulled(&mut bench), [0, 1]);
        assert_eq!(bench.write("config", "x").unwrap_err().to_string(), "CAPACITY: invalid number");
    }

    #[test]
    fn a_reset_discards_everything() {
        let mut bench = Bench::setup(&CLASS, "4").outputs(1).build().unwrap();
        fill(&mut bench, 4);
        bench.write("reset", "").unwrap();
        bench.expect_dropped(DropReason::Discarded, 4);
        assert_eq!(bench.read("length", "").unwrap(), "0");
        assert!(bench.signals().1);
    }

    #[test]
    fn its_successor_takes_over_what_fits() {
        let (mut old, mut new) = (Bench::new(&CLASS, "5"), Bench::new(&CLASS, "3"));
        fill(&mut old, 5);
        new.take_state(&mut old);
        assert_eq!((new.signals(), pulled(&mut new)), ((true, false), vec![0, 1, 2]));
        new.expect_dropped(DropReason::Replaced, 2);
        assert_eq!(old.read("length", "").unwrap(), "0");
    }

    #[test]
    fn without_a_successor_what_it_holds_is_lost_and_counted() {
        let mut bench = Bench::new(&CLASS, "5");
        fill(&mut bench, 5);
        bench.stop_without_successor();
        bench.expect_dropped(DropReason::Replaced, 5);
    }

    #[test]
    fn holds_packets_in_order_and_signals_nothing() {
        let mut bench = Bench::new(&SIMPLE, "2");
        ["a", "b", "c"].into_iter().for_each(|bytes| bench.push(0, bytes));
        assert_eq!(bench.signals(), (false, false));
        assert_eq!(bench.stderr_text(), "e :: SimpleQueue: overflow\n");
        let bytes: Vec<_> = bench.pull(0, 8).iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(bytes, [b"a", b"b"]);
        bench.expect(1, b"c");
    }

    #[test]
    fn tells_only_who_pulls() {
        let mut bench = Bench::new(&NOTIFIER, "2");
        assert_eq!(bench.signals(), (false, false));
        bench.push(0, b"a");
        assert_eq!(bench.signals(), (true, false));
        assert_eq!(bench.pull(0, 8)[0].data(), b"a");
        (0..10).for_each(|_| assert!(bench.pull(0, 8).is_empty()));
        assert_eq!(bench.signals(), (false, false));
    }

    #[test]
    fn packets_of_input_1_come_out_first_the_latest_before_the_others() {
        let mut bench = Bench::new(&MIXED, "");
        [(0, 1), (0, 2), (1, 3), (1, 4)].into_iter().for_each(|(input, byte)| bench.push(input, [byte]));
        assert_eq!(pulled(&mut bench), [4, 3, 1, 2]);
    }

    #[test]
    fn in_a_full_queue_input_0_loses_the_new_packet_and_input_1_the_last() {
        let mut bench = Bench::new(&MIXED, "2");
        [(0, 1), (0, 2), (0, 3), (1, 4)].into_iter().for_each(|(input, byte)| bench.push(input, [byte]));
        bench.expect(1, [3]);
        bench.expect(1, [2]);
        assert_eq!(pulled(&mut bench), [4, 1]);
    }

    fn filled(config: &str) -> Bench {
        let mut bench = Bench::new(&FRONT_DROP, config);
        let packets: Vec<_> = (0..5u8).map(|i| bench.packet([i])).collect();
        bench.push_packets(0, packets);
        bench
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
        let mut new = Bench::new(&FRONT_DROP, "3");
        new.take_state(&mut bench);
        assert_eq!(pulled(&mut new), [2, 3, 4]);
    }

    #[test]
    fn a_front_drop_queue_of_nothing_drops_everything() {
        let mut bench = filled("0");
        assert_eq!((bench.drain_sent(1).len(), pulled(&mut bench).len()), (5, 0));
    }
}
