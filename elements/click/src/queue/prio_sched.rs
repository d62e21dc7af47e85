use artery_engine::{Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "PrioSched",
    aliases: &["SimplePrioSched"],
    group: "queue",
    summary: "pulls from the first input that has packets",
    manual: "
Gives whoever pulls packets from input 0 while it has some, else from input 1, and so on. Inputs with low
numbers can starve the others.",
    example: "Idle -> Queue -> s :: PrioSched -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "-/1",
    processing: "l/l",
    build: |_| Ok(Box::new(PrioSched)),
    ..Class::PER_WORKER
};

struct PrioSched;

impl Element for PrioSched {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let mut left = max;
        for input in 0..cx.inputs() {
            if left == 0 {
                return;
            }
            if !cx.upstream_idle(input) {
                // A long packet may arrive as more segments than requested.
                left = left.saturating_sub(cx.pull(input, left, into));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn lower_inputs_come_first() {
        let mut bench = Bench::setup(&CLASS, "").inputs(3).build().unwrap();
        [2, 1, 0, 2, 0].into_iter().for_each(|input| bench.offer(usize::from(input), [input]));
        let order: Vec<u8> = (0..2).flat_map(|_| bench.pull(0, 4)).map(|packet| packet.data()[0]).collect();
        assert_eq!(order, [0, 0, 1, 2, 2]);
    }
}
