use crate::ip::each::send_each;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet, anno};
use std::collections::HashSet;

pub static CLASS: Class = Class {
    name: "AggregateFirst",
    group: "basic",
    summary: "lets the first packet of each aggregate pass",
    manual: "
The first packet with a value of the AGGREGATE annotation leaves by output 0; those that follow with the same value leave by
output 1, or are dropped when there is none.

NOTIFIER names an element that says when an aggregate is over, so that its number means another one. No class here
does that yet; values are remembered until the router stops.",
    example: "InfiniteSource(LIMIT 10) -> AggregateLength -> AggregateFirst -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[NOTIFIER],
    finished: true,
    build: |args| {
        refuse_notifier(args)?;
        Ok(Box::new(AggregateFirst::default()))
    },
    ..Class::DEFAULT
};

/// The keyword that names who says when aggregates are over; for AggregateLast, too.
pub(super) const NOTIFIER: Arg =
    Arg::keyword("NOTIFIER", "element", "", "an element that says when aggregates are over");

pub(super) fn refuse_notifier(args: &Args<'_>) -> Result<(), ArgError> {
    let Some(name) = args.read::<Option<String>>("NOTIFIER")? else { return Ok(()) };
    Err(match args.element(&name) {
        Some(_) => ArgError::wrong(format!("{name} is not an AggregateNotifier")),
        None => ArgError::wrong(format!("no element named '{name}'")),
    })
}

#[derive(Default)]
struct AggregateFirst {
    seen: HashSet<u32>,
}

impl AggregateFirst {
    fn look(&mut self, packet: &Packet) -> Result<(), ()> {
        let is_first = self.seen.insert(u32::from_ne_bytes(packet.annotation(anno::AGGREGATE)));
        if is_first { Ok(()) } else { Err(()) }
    }
}

impl Element for AggregateFirst {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let look = |packet: &mut Packet| self.look(packet);
        send_each(batch, cx, look, |(), packet, cx| cx.send_or_discard(1, packet, DropReason::Sampled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn packets(bench: &Bench, aggregates: &[u32]) -> Vec<Packet> {
        let packet = |(number, aggregate): (usize, &u32)| {
            let mut packet = bench.packet([number as u8]);
            packet.set_annotation(anno::AGGREGATE, aggregate.to_ne_bytes());
            packet
        };
        aggregates.iter().enumerate().map(packet).collect()
    }

    #[test]
    fn the_first_packet_of_each_aggregate_passes() {
        let mut bench = Bench::new(&CLASS, "");
        let packets = packets(&bench, &[7, 0, 7, 7, u32::MAX, 0]);
        bench.push_packets(0, packets);
        for (output, numbers) in [(0, [0, 1, 4]), (1, [2, 3, 5])] {
            for number in numbers {
                bench.expect(output, [number]);
            }
        }
        bench.expect_nothing_more();
    }

    #[test]
    fn others_are_dropped_without_output_1() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        let packets = packets(&bench, &[7, 7]);
        bench.push_packets(0, packets);
        bench.expect(0, [0]);
        bench.expect_dropped(DropReason::Sampled, 1);
    }

    #[test]
    fn refuses_who_notifies_of_nothing() {
        assert_eq!(Bench::refuses(&CLASS, "NOTIFIER e"), "e is not an AggregateNotifier");
        assert_eq!(Bench::refuses(&CLASS, "NOTIFIER nobody"), "no element named 'nobody'");
    }
}
