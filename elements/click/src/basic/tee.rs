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

struct Tee;

/// Refuses an N that is not the number of outputs.
pub(super) fn check_arms(args: &Args<'_>) -> Result<(), ArgError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};

    #[test]
    fn each_output_gets_a_copy() {
        let mut bench = Bench::setup(&CLASS, "3").outputs(3).build().unwrap();
        let mut packet = bench.packet(b"x");
        packet.set_annotation(16, [7]);
        bench.push_packets(0, [packet]);
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
}
