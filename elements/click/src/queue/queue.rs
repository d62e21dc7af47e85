use super::store::{ARGS, HANDLERS, Policy, Store, Tells};
use artery_engine::{Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "Queue",
    aliases: &["FullNoteQueue", "MSQueue", "QuickNoteQueue", "ThreadSafeQueue"],
    group: "queue",
    summary: "holds packets until they are pulled, first in, first out",
    manual: "
Holds packets in order until they are pulled. It holds up to CAPACITY packets, and when the router runs on
several workers, each worker's copy holds its share of them. A packet that finds no room leaves by output 1,
or is dropped when there is none. Whoever pulls sleeps while the queue is empty; sources that can wait sleep
while it is full.",
    example: "InfiniteSource(LIMIT 10) -> Queue(200) -> Discard;",
    ports: "1/1-2",
    processing: "h/lh",
    args: ARGS,
    handlers: HANDLERS,
    signals: SignalKinds::NonEmptyAndNonFull,
    live: true,
    build: |args| Store::build_queue("Queue", Policy::DropNew, Tells::All, args),
    ..Class::PER_WORKER
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
        assert_eq!(
            (bench.signals(), bench.read("config", "").unwrap()),
            ((true, false), "CAPACITY 2".to_string())
        );
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
}
