use artery_engine::{Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "RoundRobinSched",
    aliases: &["SimpleRRSched"],
    group: "queue",
    summary: "pulls from its inputs in turn",
    manual: "
Gives whoever pulls a packet from its first input, then one from the next, and so on; inputs that have nothing
are skipped. Asked for many packets at once, it takes an equal share from every input before it starts over.",
    example: "Idle -> Queue -> s :: RoundRobinSched -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "1-/1",
    processing: "l/l",
    build: |_| Ok(Box::new(RoundRobinSched { next: 0 })),
    ..Class::PER_WORKER
};

struct RoundRobinSched {
    next: usize,
}

impl Element for RoundRobinSched {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let inputs = cx.inputs();
        let share = (max / inputs.max(1)).max(1);
        let (mut left, mut vain) = (max, 0);
        while left > 0 && vain < inputs {
            let input = self.next;
            let n = if cx.upstream_idle(input) { 0 } else { cx.pull(input, share.min(left), into) };
            self.next = (input + 1) % inputs;
            left = left.saturating_sub(n);
            vain = if n == 0 { vain + 1 } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(packets: &[usize]) -> Bench {
        let mut bench = Bench::setup(&CLASS, "").inputs(packets.len()).build().unwrap();
        for (input, &n) in packets.iter().enumerate() {
            (0..n).for_each(|_| bench.offer(input, [input as u8]));
        }
        bench
    }
    fn pull(bench: &mut Bench, max: usize) -> Vec<u8> {
        bench.pull(0, max).iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn inputs_take_turns_and_empty_ones_are_skipped() {
        let mut bench = bench(&[2, 1, 3]);
        let order: Vec<u8> = (0..7).flat_map(|_| pull(&mut bench, 1)).collect();
        assert_eq!(order, [0, 1, 2, 0, 2, 2]);
    }

    #[test]
    fn a_batch_holds_equal_shares() {
        let mut bench = bench(&[20, 20, 1]);
        let batch = pull(&mut bench, 12);
        let count = |input| batch.iter().filter(|byte| **byte == input).count();
        assert_eq!((batch.len(), count(2)), (12, 1));
        assert!(count(0) >= 4 && count(1) >= 4, "{batch:?}");
    }
}
