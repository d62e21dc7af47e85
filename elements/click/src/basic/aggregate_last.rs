use super::aggregate_first::{NOTIFIER, refuse_notifier};
use artery_engine::{
    Arg, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Write, anno,
};
use std::any::Any;
use std::collections::BTreeMap;

pub static CLASS: Class = Class {
    name: "AggregateLast",
    group: "basic",
    summary: "keeps the last packet of each aggregate",
    manual: "
Keeps a packet for each value of the AGGREGATE annotation until the next one with the same value comes: then
the older one leaves by output 1, or is dropped when there is none. When the handler `clear` is written, all
that are kept leave by output 0, ordered by aggregate; with STOP_AFTER_CLEAR the router is asked to stop then.

A packet that is kept tells of those before it: its annotation EXTRA_PACKETS counts them, EXTRA_LENGTH their
bytes, and FIRST_TIMESTAMP is the timestamp of the first.

As many packets as there are aggregates are kept, so that a configuration with many of them needs many
packets.

NOTIFIER names an element that says when an aggregate is over, so that its packet may leave. No class here
does that yet.",
    example: "FromDump(trace.pcap, FORCE_IP true) -> AggregateLength -> l :: AggregateLast -> Discard;\n\
              DriverManager(wait, write l.clear);",
    ports: "1/1-2",
    processing: "h/h",
    args: &[
        NOTIFIER,
        Arg::keyword("STOP_AFTER_CLEAR", "bool", "false", "whether the router stops when `clear` is done"),
    ],
    handlers: &[Handler::write("clear", "sends all packets", &Write(AggregateLast::clear)).button()],
    finished: true,
    build: |args| {
        refuse_notifier(args)?;
        let stop = args.read("STOP_AFTER_CLEAR")?;
        Ok(Box::new(AggregateLast { kept: BTreeMap::new(), stop }))
    },
    ..Class::DEFAULT
};

struct AggregateLast {
    kept: BTreeMap<u32, Packet>,
    stop: bool,
}

impl AggregateLast {
    fn hold_packet(&mut self, mut packet: Packet, cx: &mut Context<'_>) {
        let aggregate = read_annotation(&packet, anno::AGGREGATE);
        let Some(before) = self.kept.remove(&aggregate) else {
            let time = packet.timestamp();
            packet.set_annotation(anno::FIRST_TIMESTAMP, time.0.to_ne_bytes());
            self.kept.insert(aggregate, packet);
            return;
        };
        add_to_annotation(
            &mut packet,
            anno::EXTRA_PACKETS,
            read_annotation(&before, anno::EXTRA_PACKETS).wrapping_add(1),
        );
        let bytes = read_annotation(&before, anno::EXTRA_LENGTH).wrapping_add(before.len() as u32);
        add_to_annotation(&mut packet, anno::EXTRA_LENGTH, bytes);
        packet.set_annotation::<8>(anno::FIRST_TIMESTAMP, before.annotation(anno::FIRST_TIMESTAMP));
        self.kept.insert(aggregate, packet);
        cx.send_or_discard(1, before, DropReason::Sampled);
    }

    fn clear(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        for packet in std::mem::take(&mut self.kept).into_values() {
            cx.send(0, packet);
        }
        if self.stop {
            cx.request_stop();
        }
        Ok(())
    }
}

fn read_annotation(packet: &Packet, annotation: usize) -> u32 {
    u32::from_ne_bytes(packet.annotation(annotation))
}
fn add_to_annotation(packet: &mut Packet, annotation: usize, by: u32) {
    let sum = read_annotation(packet, annotation).wrapping_add(by);
    packet.set_annotation(annotation, sum.to_ne_bytes());
}

impl Element for AggregateLast {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.drain().for_each(|packet| self.hold_packet(packet, cx));
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<AggregateLast>() {
            self.kept = std::mem::take(&mut old.kept);
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            let kept = std::mem::take(&mut self.kept);
            kept.into_values().for_each(|packet| cx.discard(packet, DropReason::Replaced));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, Time};

    fn push(bench: &mut Bench, aggregate: u32, bytes: &str, time: u64) {
        let mut packet = bench.packet(bytes);
        packet.set_annotation(anno::AGGREGATE, aggregate.to_ne_bytes());
        packet.set_timestamp(Time::new(time, 0));
        bench.push_packets(0, [packet]);
    }

    #[test]
    fn the_last_packet_of_each_aggregate_leaves_when_told() {
        let mut bench = Bench::new(&CLASS, "");
        push(&mut bench, 9, "a", 1);
        push(&mut bench, 2, "bb", 2);
        push(&mut bench, 9, "ccc", 3);
        push(&mut bench, 9, "dddd", 4);
        bench.expect(1, "a");
        bench.expect(1, "ccc");
        bench.write("clear", "").unwrap();
        let alone = bench.expect(0, "bb");
        let last = bench.expect(0, "dddd");
        bench.expect_nothing_more();
        let told = |packet: &Packet| {
            let first = Time(u64::from_ne_bytes(packet.annotation(anno::FIRST_TIMESTAMP)));
            (read_annotation(packet, anno::EXTRA_PACKETS), read_annotation(packet, anno::EXTRA_LENGTH), first)
        };
        assert_eq!(told(&alone), (0, 0, Time::new(2, 0)));
        assert_eq!(told(&last), (2, 4, Time::new(1, 0)));
        assert!(!bench.stop_requested());
    }

    #[test]
    fn the_router_can_be_stopped_then() {
        let mut bench = Bench::setup(&CLASS, "STOP_AFTER_CLEAR true").outputs(1).build().unwrap();
        push(&mut bench, 1, "a", 1);
        push(&mut bench, 1, "b", 1);
        bench.expect_dropped(DropReason::Sampled, 1);
        bench.write("clear", "").unwrap();
        bench.expect(0, "b");
        assert!(bench.stop_requested());
    }

    #[test]
    fn an_heir_has_what_was_kept() {
        let mut old = Bench::new(&CLASS, "");
        push(&mut old, 1, "a", 1);
        let mut new = Bench::new(&CLASS, "");
        new.take_state(&mut old);
        new.write("clear", "").unwrap();
        new.expect(0, "a");
    }

    #[test]
    fn without_an_heir_they_are_lost_and_counted() {
        let mut bench = Bench::new(&CLASS, "");
        push(&mut bench, 1, "a", 1);
        push(&mut bench, 2, "b", 1);
        bench.stop_without_successor();
        bench.expect_dropped(DropReason::Replaced, 2);
    }
}
