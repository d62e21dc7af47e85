use super::tee::check_arms;
use artery_engine::{Arg, Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "PullTee",
    group: "basic",
    summary: "pushes copies of the packets that are pulled through it",
    manual: "
Output 0 is pulled from. A copy of every packet that is pulled through leaves by push by each of the other
outputs. N, when given, must be the number of outputs in use.",
    example: "Idle -> Queue -> t :: PullTee -> Discard;\nt[1] -> Discard;",
    ports: "1/1-",
    processing: "l/lh",
    args: &[Arg::optional("N", "outputs", "", "how many outputs there are")],
    build: |args| {
        check_arms(args)?;
        Ok(Box::new(PullTee))
    },
    ..Class::PER_WORKER
};

struct PullTee;

impl Element for PullTee {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let before = into.len();
        cx.pull(0, max, into);
        for output in 1..cx.outputs() {
            for packet in into.iter().skip(before) {
                if let Some(copy) = cx.duplicate_packet(packet) {
                    cx.send(output, copy);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn what_is_pulled_is_also_pushed() {
        let mut bench = Bench::setup(&CLASS, "").outputs(3).build().unwrap();
        bench.offer(0, b"a");
        bench.offer(0, b"b");
        assert_eq!(bench.pull(0, 8).len(), 2);
        for output in 1..3 {
            bench.expect(output, b"a");
            bench.expect(output, b"b");
        }
        bench.expect_nothing_more();
    }

    #[test]
    fn refuses_another_number_of_outputs_than_there_are() {
        assert!(Bench::setup(&CLASS, "3").outputs(2).build().is_err());
    }
}
