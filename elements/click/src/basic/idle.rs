use artery_engine::{Batch, Class, Context, DropReason, Element, SignalKinds};

pub static CLASS: Class = Class {
    name: "Idle",
    aliases: &["SimpleIdle"],
    group: "basic",
    summary: "sends nothing and discards what it gets",
    manual: "
Never sends a packet by any output. What arrives at an input is discarded; inputs that could pull do not. Use
it where a port must be connected and nothing shall happen. An element that pulls from it learns that nothing
will ever come, and sleeps.",
    example: "Idle -> Discard;",
    ports: "-/-",
    processing: "a/a",
    flow: "x/y",
    signals: SignalKinds::NeverActive,
    build: |_| Ok(Box::new(Idle)),
    ..Class::PER_WORKER
};

struct Idle;

impl Element for Idle {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::Discarded);
    }
    fn pull(&mut self, _output: usize, _max: usize, _into: &mut Batch, _cx: &mut Context<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn discards_what_is_pushed() {
        let mut bench = Bench::setup(&CLASS, "").inputs(2).outputs(1).build().unwrap();
        bench.push(1, b"x");
        bench.expect_dropped(DropReason::Discarded, 1);
        bench.expect_nothing_more();
    }

    #[test]
    fn neither_pulls_nor_gives_anything_to_pull() {
        let mut bench = Bench::setup(&CLASS, "").inputs(1).outputs(1).pull().build().unwrap();
        bench.offer(0, b"x");
        assert_eq!((bench.pull(0, 8).len(), bench.run(), bench.offered_count(0)), (0, 0, 1));
    }
}
