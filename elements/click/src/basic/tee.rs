use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "Tee",
    group: "basic",
    summary: "sends a copy of every packet by each output",
    manual: "
Sends a copy of every packet by each output; the packet itself leaves by the last one. Copies have frames of
their own, so that each way may change its packet. N, when given, must be the number of outputs in use.",
    example: "Idle -> t :: Tee -> Discard;\nt[1] -> Discard;",
    ports: "1/1-",
    processing: "h/h",
    args: &[Arg::optional("N", "outputs", "", "how many outputs there are")],
    build: |args| {
        check_arms(args)?;
        Ok(Box::new(Tee))
    },
    ..Class::PER_WORKER
};

pub static PULL: Class = Class {
    name: "PullTee",
    summary: "pushes copies of the packets that are pulled through it",
    manual: "
Output 0 is pulled from. A copy of every packet that is pulled through leaves by push by each of the other
outputs. N, when given, must be the number of outputs in use.",
    example: "Idle -> Queue -> t :: PullTee -> Discard;\nt[1] -> Discard;",
    processing: "l/lh",
    build: |args| {
        check_arms(args)?;
        Ok(Box::new(PullTee))
    },
    ..CLASS
};

struct Tee;

struct PullTee;

/// Refuses an N that is not the number of outputs.
fn check_arms(args: &Args<'_>) -> Result<(), ArgError> {
    let (wanted, outputs): (Option<usize>, usize) = (args.read("N")?, args.outputs());
    match wanted {
        Some(n) if n != outputs => Err(ArgError::wrong(format!("{outputs} outputs implies {outputs} arms"))),
        _ => Ok(()),
    }
}

impl Element for Tee {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let last = cx.outputs().saturating_sub(1);
        for output in 0..last {
            for packet in &*batch {
                if let Some(copy) = cx.duplicate_packet(packet) {
                    cx.send(output, copy);
                }
            }
        }
        cx.send_all(last, batch);
    }
}

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
    use artery_engine::{Bench, DropReason};

    #[test]
    fn each_output_gets_a_copy() {
        let mut bench = Bench::setup(&CLASS, "3").outputs(3).build().unwrap();
        bench.push_with(0, b"x", |packet| packet.set_annotation(16, [7]));
        (0..3).for_each(|output| assert_eq!(bench.expect(output, b"x").paint(), 7));
        bench.expect_nothing_more();
    }

    #[test]
    fn copies_that_find_no_frame_are_counted_and_the_packet_goes_on() {
        let mut bench = Bench::setup(&CLASS, "").outputs(2).build().unwrap();
        let packets: Vec<_> = (0..200).map(|_| bench.packet(b"x")).collect();
        bench.push_packets(0, packets);
        let copies = bench.drain_sent(0).len() as u64;
        assert_eq!(bench.drain_sent(1).len(), 200);
        assert!(copies < 200);
        bench.expect_dropped(DropReason::PoolEmpty, 200 - copies);
    }

    #[test]
    fn refuses_another_number_of_outputs_than_there_are() {
        let wrong = Bench::setup(&CLASS, "3").outputs(2).build().err().unwrap();
        assert_eq!(wrong[0].to_string(), "2 outputs implies 2 arms");
    }

    #[test]
    fn what_is_pulled_is_also_pushed() {
        let mut bench = Bench::setup(&PULL, "").outputs(3).build().unwrap();
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
    fn a_pull_tee_refuses_another_number_of_outputs_than_there_are() {
        assert!(Bench::setup(&PULL, "3").outputs(2).build().is_err());
    }
}
