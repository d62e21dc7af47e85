use crate::ip::each::send_each;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Packet, Show, anno,
};
use std::any::Any;
use std::collections::HashSet;

pub static CLASS: Class = Class {
    name: "AggregateFirst",
    group: "basic",
    summary: "lets the first packet of each aggregate pass",
    manual: "
The first packet with a value of the AGGREGATE annotation leaves by output 0; those that follow with the same
value leave by output 1, or are dropped when there is none.

NOTIFIER names an element that says when an aggregate is over, so that its number means another one. No class
here does that yet; values are remembered until the router stops, also after a replacement of the
configuration.

At most 458752 values are remembered. All packets with further ones leave by output 0, and `unremembered`
counts them.",
    example: "InfiniteSource(LIMIT 10) -> AggregateLength -> AggregateFirst -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[NOTIFIER],
    handlers: &[Handler::read(
        "unremembered",
        "packets whose aggregate found no room among those remembered",
        &Show(|a: &mut AggregateFirst| a.unremembered),
    )],
    finished: true,
    build: |args| {
        refuse_notifier(args)?;
        Ok(Box::new(AggregateFirst { seen: HashSet::with_capacity(MAX_AGGREGATES), unremembered: 0 }))
    },
    ..Class::DEFAULT
};

/// The keyword that names the element which reports ended aggregates; for AggregateLast, too.
pub(super) const NOTIFIER: Arg =
    Arg::keyword("NOTIFIER", "element", "", "an element that says when aggregates are over");

pub(super) fn refuse_notifier(args: &Args<'_>) -> Result<(), ArgError> {
    let Some(name) = args.read::<Option<String>>("NOTIFIER")? else { return Ok(()) };
    Err(match args.find_element(&name) {
        Some(_) => ArgError::wrong(format!("{name} is not an AggregateNotifier")),
        None => ArgError::wrong(format!("no element named '{name}'")),
    })
}

/// Most aggregates that are remembered: as many as fill a table of half a million entries.
const MAX_AGGREGATES: usize = 7 << 16;

struct AggregateFirst {
    /// Allocated for the maximum from the start.
    seen: HashSet<u32>,
    unremembered: u64,
}

impl AggregateFirst {
    fn check_first(&mut self, packet: &Packet) -> Result<(), ()> {
        let aggregate = u32::from_ne_bytes(packet.annotation(anno::AGGREGATE));
        if self.seen.len() < MAX_AGGREGATES {
            return if self.seen.insert(aggregate) { Ok(()) } else { Err(()) };
        }
        if self.seen.contains(&aggregate) {
            return Err(());
        }
        self.unremembered += 1;
        Ok(())
    }
}

impl Element for AggregateFirst {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let look = |packet: &mut Packet| self.check_first(packet);
        send_each(batch, cx, look, |(), packet, cx| cx.send_or_discard(1, packet, DropReason::Sampled));
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<AggregateFirst>() {
            std::mem::swap(self, old);
        }
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
    fn what_finds_no_room_passes_and_is_counted() {
        let mut bench = Bench::new(&CLASS, "");
        for first in (0..MAX_AGGREGATES as u32).step_by(64) {
            let all = packets(&bench, &Vec::from_iter(first..first + 64));
            bench.push_packets(0, all);
            assert_eq!(bench.drain_sent(0).len(), 64);
        }
        let more = packets(&bench, &[u32::MAX, u32::MAX, 5]);
        bench.push_packets(0, more);
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (2, 1));
        assert_eq!(bench.read("unremembered", "").unwrap(), "2");
    }

    #[test]
    fn an_heir_knows_what_was_seen() {
        let (mut old, mut new) = (Bench::new(&CLASS, ""), Bench::new(&CLASS, ""));
        let first = packets(&old, &[7]);
        old.push_packets(0, first);
        new.take_state(&mut old);
        let second = packets(&new, &[7, 8]);
        new.push_packets(0, second);
        new.expect(1, [0]);
        new.expect(0, [1]);
    }
}
