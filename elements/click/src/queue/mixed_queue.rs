use super::store::{ARGS, HANDLERS, Policy, Store, Tells};
use artery_engine::{Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "MixedQueue",
    group: "queue",
    summary: "holds packets, those of input 1 last in, first out",
    manual: "
Holds packets until they are pulled. Those of input 0 queue up at the end; one that finds no room leaves by
output 1, or is dropped when there is none. Those of input 1 go to the front; when the queue is full, the
packet at the end is dropped in the same way. It holds up to CAPACITY packets, and when the router runs on
several workers, each worker's copy holds its share of them.",
    example: "Idle -> q :: MixedQueue(200) -> Discard;\nIdle -> [1]q;",
    ports: "2/1-2",
    processing: "h/lh",
    args: ARGS,
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    live: true,
    build: |args| Store::build_queue("MixedQueue", Policy::Mixed, Tells::Pullers, args),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn pulled(bench: &mut Bench) -> Vec<u8> {
        bench.pull(0, 64).iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn packets_of_input_1_come_out_first_the_latest_before_the_others() {
        let mut bench = Bench::new(&CLASS, "");
        [(0, 1), (0, 2), (1, 3), (1, 4)].into_iter().for_each(|(input, byte)| bench.push(input, [byte]));
        assert_eq!(pulled(&mut bench), [4, 3, 1, 2]);
    }

    #[test]
    fn in_a_full_queue_input_0_loses_the_new_packet_and_input_1_the_last() {
        let mut bench = Bench::new(&CLASS, "2");
        [(0, 1), (0, 2), (0, 3), (1, 4)].into_iter().for_each(|(input, byte)| bench.push(input, [byte]));
        bench.expect(1, [3]);
        bench.expect(1, [2]);
        assert_eq!(pulled(&mut bench), [4, 1]);
    }
}
