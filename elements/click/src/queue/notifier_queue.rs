use super::store::{ARGS, HANDLERS, Policy, Store, Tells};
use artery_engine::{Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "NotifierQueue",
    group: "queue",
    summary: "holds packets until they are pulled, and tells only who pulls",
    manual: "
Holds packets in order until they are pulled. Whoever pulls sleeps while it is empty, as with Queue; sources
do not learn that it is full. It holds up to CAPACITY packets, and when the router runs on several workers,
each worker's copy holds its share of them. A packet that finds no room leaves by output 1, or is dropped when
there is none.",
    example: "InfiniteSource(LIMIT 10) -> NotifierQueue(200) -> Discard;",
    ports: "1/1-2",
    processing: "h/lh",
    args: ARGS,
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    live: true,
    build: |args| Store::build_queue("NotifierQueue", Policy::DropNew, Tells::Pullers, args),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn tells_only_who_pulls() {
        let mut bench = Bench::new(&CLASS, "2");
        assert_eq!(bench.signals(), (false, false));
        bench.push(0, b"a");
        assert_eq!(bench.signals(), (true, false));
        assert_eq!(bench.pull(0, 8)[0].data(), b"a");
        (0..10).for_each(|_| assert!(bench.pull(0, 8).is_empty()));
        assert_eq!(bench.signals(), (false, false));
    }
}
