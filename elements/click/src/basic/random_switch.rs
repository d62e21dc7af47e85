use artery_common::chance;
use artery_engine::{Batch, Class, Context, Element};
use artery_wire::Random;

pub static CLASS: Class = Class {
    name: "RandomSwitch",
    group: "basic",
    summary: "sends each packet by an output chosen at random",
    manual: "Chooses an output for every packet, each with the same probability.",
    example: "Idle -> s :: RandomSwitch -> Discard;\ns[1] -> Discard;",
    ports: "1/1-",
    processing: "h/h",
    build: |args| Ok(Box::new(RandomSwitch { random: chance::new_random(args) })),
    ..Class::PER_WORKER
};

struct RandomSwitch {
    random: Random,
}

impl Element for RandomSwitch {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let outputs = cx.outputs() as u64;
        for packet in batch.drain() {
            let output = (u64::from(self.random.next_u32()) * outputs) >> 32;
            cx.send(output as usize, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn outputs_get_about_as_many_packets() {
        let mut bench = Bench::setup(&CLASS, "").outputs(3).build().unwrap();
        let mut sent = [0; 3];
        for _ in 0..3000 {
            bench.push(0, b"x");
            (0..3).for_each(|output| sent[output] += bench.drain_sent(output).len());
        }
        assert_eq!(sent.iter().sum::<usize>(), 3000);
        // Eight standard deviations around the mean.
        assert!(sent.iter().all(|n| (793..1207).contains(n)), "{sent:?}");
    }

    #[test]
    fn the_only_output_gets_all() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        (0..20).for_each(|_| bench.push(0, b"x"));
        assert_eq!(bench.drain_sent(0).len(), 20);
    }
}
