use artery_engine::{Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "RoundRobinSwitch",
    group: "basic",
    summary: "sends packets by its outputs in turn",
    manual: "Sends the first packet by output 0, the next by output 1, and so on, and starts over after the \
        last.",
    example: "Idle -> s :: RoundRobinSwitch -> Discard;\ns[1] -> Discard;",
    ports: "1/1-",
    processing: "h/h",
    build: |_| Ok(Box::new(RoundRobinSwitch { next: 0 })),
    ..Class::PER_WORKER
};

struct RoundRobinSwitch {
    next: usize,
}

impl Element for RoundRobinSwitch {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let outputs = cx.outputs();
        for packet in batch.drain() {
            cx.send(self.next, packet);
            self.next = if self.next + 1 < outputs { self.next + 1 } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn outputs_take_turns_across_batches() {
        let mut bench = Bench::setup(&CLASS, "").outputs(3).build().unwrap();
        let packets: Vec<_> = [b"a", b"b", b"c", b"d"].into_iter().map(|bytes| bench.packet(bytes)).collect();
        bench.push_packets(0, packets);
        bench.push(0, b"e");
        for (output, bytes) in [(0, b"a"), (0, b"d"), (1, b"b"), (1, b"e"), (2, b"c")] {
            bench.expect(output, bytes);
        }
        bench.expect_nothing_more();
    }
}
