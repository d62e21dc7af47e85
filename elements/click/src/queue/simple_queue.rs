use super::store::{ARGS, HANDLERS, Policy, Store, Tells};
use artery_engine::{Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "SimpleQueue",
    group: "queue",
    summary: "holds packets until they are pulled, without notification",
    manual: "
Holds packets in order until they are pulled, as Queue does, but sends no signal when it gets empty or full:
what pulls from it keeps trying. It holds up to CAPACITY packets, and when the router runs on several workers,
each worker's copy holds its share of them. A packet that finds no room leaves by output 1, or is dropped when
there is none.",
    example: "RatedSource -> SimpleQueue(200) -> Discard;",
    ports: "1/1-2",
    processing: "h/lh",
    args: ARGS,
    handlers: HANDLERS,
    signals: SignalKinds::None,
    live: true,
    build: |args| Store::build_queue("SimpleQueue", Policy::DropNew, Tells::Nobody, args),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn holds_packets_in_order_and_signals_nothing() {
        let mut bench = Bench::new(&CLASS, "2");
        ["a", "b", "c"].into_iter().for_each(|bytes| bench.push(0, bytes));
        assert_eq!(bench.signals(), (false, false));
        assert_eq!(bench.stderr_text(), "e :: SimpleQueue: overflow\n");
        let bytes: Vec<_> = bench.pull(0, 8).iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(bytes, [b"a", b"b"]);
        bench.expect(1, b"c");
    }
}
