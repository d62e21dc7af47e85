use artery_engine::{Arg, Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "StaticPullSwitch",
    group: "queue",
    summary: "pulls from one input, chosen once",
    manual: "
Gives whoever pulls what comes from input INPUT, as PullSwitch does, and has no handler that could change it.
When INPUT is negative or not connected, nothing can be pulled.",
    example: "Idle -> Queue -> s :: StaticPullSwitch(1) -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "-/1",
    processing: "l/l",
    args: &[Arg::required("INPUT", "input", "where packets come from; negative for nowhere")],
    build: |args| {
        let input: i32 = args.read("INPUT")?;
        Ok(Box::new(StaticPullSwitch {
            input: usize::try_from(input).ok().filter(|input| *input < args.inputs()),
        }))
    },
    ..Class::PER_WORKER
};

struct StaticPullSwitch {
    input: Option<usize>,
}

impl Element for StaticPullSwitch {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if let Some(input) = self.input {
            cx.pull(input, max, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn pulls_from_the_chosen_input_only() {
        for (config, expected) in [("1", vec![1]), ("-1", vec![]), ("2", vec![])] {
            let mut bench = Bench::setup(&CLASS, config).inputs(2).build().unwrap();
            (0..2).for_each(|input| bench.offer(input, [input as u8]));
            let bytes: Vec<u8> = bench.pull(0, 8).iter().map(|packet| packet.data()[0]).collect();
            assert_eq!(bytes, expected);
        }
    }
}
