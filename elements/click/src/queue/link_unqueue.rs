use crate::basic::timed_source::format_interval;
use artery_engine::{
    Arg, ArgError, Args, Bandwidth, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Show,
    StartError, Time, Write, anno, parse_value,
};
use std::any::Any;
use std::collections::VecDeque;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "LinkUnqueue",
    group: "queue",
    summary: "delays packets as a link would",
    manual: "
Pulls packets and pushes them on as if they had gone over a link of latency LATENCY and bandwidth BANDWIDTH:
each one LATENCY and the time that its bytes take after it was pulled, or that time after the one before it.
Bytes that the extra length annotation tells of count. A packet's timestamp afterwards says when it left.

It holds the packets that are on the link and pulls no more while the link's beginning is in use: the others
wait upstream, in a Queue. Changing a value loses what is on the link.",
    example: "RatedSource -> Queue -> LinkUnqueue(10ms, 384kbps) -> Discard;",
    processing: "l/h",
    args: &[
        Arg::required("LATENCY", "seconds", "how long a bit is on its way"),
        Arg::required("BANDWIDTH", "bandwidth", "how many bytes get onto the link a second; at least 100"),
    ],
    handlers: &[
        Handler::read("latency", "LATENCY", &Show(|l: &mut LinkUnqueue| format_interval(l.latency)))
            .and_write(&Write(LinkUnqueue::set_latency)),
        Handler::read("bandwidth", "BANDWIDTH, in bytes a second", &Show(|l: &mut LinkUnqueue| l.bandwidth))
            .and_write(&Write(LinkUnqueue::set_bandwidth)),
        Handler::read("size", "packets on the link", &Show(|l: &mut LinkUnqueue| l.held.len())),
        Handler::write(
            "reset",
            "drops the packets on the link",
            &Write(|l: &mut LinkUnqueue, _, cx| {
                l.clear(DropReason::Discarded, cx);
                cx.schedule();
                Ok(())
            }),
        )
        .button(),
    ],
    build: |args| Ok(Box::new(LinkUnqueue::new(args)?)),
    ..Class::DEFAULT
};

struct LinkUnqueue {
    latency: Duration,
    /// In bytes a second.
    bandwidth: u64,
    /// Packets on the link. Their timestamps are their arrival times.
    held: VecDeque<Packet>,
    /// Whether upstream has had packets ever since the last one was pulled.
    back_to_back: bool,
}

const TOO_SMALL: &str = "bandwidth too small, minimum 100Bps";

fn check_bandwidth(given: Bandwidth) -> Result<u64, &'static str> {
    Some(given.0).filter(|bytes| *bytes >= 100).ok_or(TOO_SMALL)
}

impl LinkUnqueue {
    fn new(args: &Args<'_>) -> Result<LinkUnqueue, ArgError> {
        Ok(LinkUnqueue {
            latency: args.read("LATENCY")?,
            bandwidth: check_bandwidth(args.read("BANDWIDTH")?).map_err(ArgError::wrong)?,
            held: VecDeque::new(),
            back_to_back: false,
        })
    }

    fn set_latency(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.latency = parse_value(text).map_err(|_| HandlerError::refused("latency must be a timestamp"))?;
        self.clear(DropReason::Discarded, cx);
        cx.schedule();
        Ok(())
    }
    fn set_bandwidth(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let given = parse_value(text).map_err(|_| HandlerError::refused("invalid bandwidth"))?;
        self.bandwidth = check_bandwidth(given).map_err(HandlerError::refused)?;
        self.clear(DropReason::Discarded, cx);
        cx.schedule();
        Ok(())
    }
    fn clear(&mut self, reason: DropReason, cx: &mut Context<'_>) {
        self.held.drain(..).for_each(|packet| cx.discard(packet, reason));
    }

    /// Until when the link's beginning is in use.
    fn busy_until(&self) -> Option<Time> {
        self.held.back().map(|last| last.timestamp() - self.latency)
    }
    /// Pulls packets while there is room; returns whether there were any.
    fn fill_link(&mut self, now: Time, cx: &mut Context<'_>) -> bool {
        let mut worked = false;
        let mut batch = cx.scratch_batch();
        for _ in 0..cx.burst() {
            if self.busy_until().is_some_and(|end| end > now) {
                break;
            }
            cx.pull(0, 1, &mut batch);
            if batch.is_empty() {
                self.back_to_back = false;
                break;
            }
            batch.drain().for_each(|packet| self.enqueue_packet(packet, now));
            worked = true;
        }
        cx.recycle_batch(batch);
        worked
    }
    fn enqueue_packet(&mut self, mut packet: Packet, now: Time) {
        let extra = u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH));
        let bytes = packet.len() as u64 + u64::from(extra);
        let before = self.held.back().filter(|_| self.back_to_back).map(Packet::timestamp);
        let time = Duration::from_nanos(bytes * 1_000_000_000 / self.bandwidth);
        packet.set_timestamp(before.unwrap_or(now + self.latency) + time);
        self.back_to_back = true;
        self.held.push_back(packet);
    }
    /// Sends packets that have crossed the link; returns whether there were any.
    fn send_arrived(&mut self, now: Time, cx: &mut Context<'_>) -> bool {
        let arrived = self.held.partition_point(|packet| packet.timestamp() <= now);
        self.held.drain(..arrived).for_each(|packet| cx.send(0, packet));
        arrived > 0
    }
    /// Schedules the next run.
    fn go_on(&self, now: Time, cx: &mut Context<'_>) {
        let arrives = self.held.front().map(Packet::timestamp);
        let free = (!cx.upstream_idle(0)).then(|| self.busy_until().unwrap_or(now));
        match [arrives, free].into_iter().flatten().min() {
            Some(time) if time > now => cx.wake_at(time),
            Some(_) => cx.schedule(),
            None => {}
        }
    }
}

impl Element for LinkUnqueue {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now();
        let pulled = self.fill_link(now, cx);
        let sent = self.send_arrived(now, cx);
        self.go_on(now, cx);
        pulled || sent
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<LinkUnqueue>() {
            self.held.append(&mut old.held);
            cx.schedule();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.clear(DropReason::Replaced, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    /// A hundred bytes take 100 ms.
    const CONFIG: &str = "1s, 1000Bps";

    fn offer(bench: &mut Bench, packets: usize) {
        (0..packets).for_each(|_| bench.offer(0, [0; 100]));
    }
    fn millis(bench: &mut Bench, millis: u64) -> usize {
        bench.advance_time(Duration::from_millis(millis));
        bench.drain_sent(0).len()
    }

    #[test]
    fn a_packet_takes_the_latency_and_the_time_of_its_bytes() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        let start = bench.now();
        offer(&mut bench, 1);
        bench.run();
        assert_eq!(bench.read("size", "").unwrap(), "1");
        assert_eq!(millis(&mut bench, 1099), 0);
        bench.advance_time(Duration::from_millis(1));
        assert_eq!(bench.expect(0, [0; 100]).timestamp(), start + Duration::from_millis(1100));
    }

    #[test]
    fn packets_follow_each_other_by_the_time_of_their_bytes() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        offer(&mut bench, 3);
        bench.run();
        // The second one gets onto the link when the first one is on it.
        assert_eq!(bench.offered_count(0), 2);
        assert_eq!((0..4).map(|_| millis(&mut bench, 100)).sum::<usize>(), 0);
        assert_eq!(bench.read("size", "").unwrap(), "3");
        assert_eq!(millis(&mut bench, 699), 0);
        assert_eq!([1, 99, 1, 99, 1].map(|time| millis(&mut bench, time)), [1, 0, 1, 0, 1]);
    }

    #[test]
    fn bytes_that_were_cut_off_take_time_too() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        let mut packet = bench.packet([0; 10]);
        packet.set_annotation(anno::EXTRA_LENGTH, 90u32.to_ne_bytes());
        bench.offer_packet(0, packet);
        bench.run();
        assert_eq!([1099, 1].map(|time| millis(&mut bench, time)), [0, 1]);
    }

    #[test]
    fn a_new_value_loses_what_is_on_the_link() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        for (handler, text) in [("latency", "2"), ("bandwidth", "8kbps"), ("reset", "")] {
            offer(&mut bench, 1);
            bench.run();
            bench.write(handler, text).unwrap();
            assert_eq!(bench.read("size", "").unwrap(), "0");
        }
        bench.expect_dropped(DropReason::Discarded, 3);
        let values = ["latency", "bandwidth"].map(|name| bench.read(name, "").unwrap());
        assert_eq!(values, ["2.000000s", "1000"]);
        assert_eq!(bench.write("bandwidth", "99").unwrap_err().to_string(), TOO_SMALL);
        assert!(bench.write("latency", "long").is_err());
    }

    #[test]
    fn its_successor_has_the_packets() {
        let (mut old, mut new) = (Bench::new(&CLASS, CONFIG), Bench::new(&CLASS, CONFIG));
        offer(&mut old, 1);
        old.run();
        new.take_state(&mut old);
        new.run();
        assert_eq!(millis(&mut new, 1100), 1);
    }

    #[test]
    fn without_a_successor_they_are_lost_and_counted() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        offer(&mut bench, 1);
        bench.run();
        bench.stop_without_successor();
        bench.expect_dropped(DropReason::Replaced, 1);
    }

    #[test]
    fn refuses_a_link_that_is_too_slow() {
        assert_eq!(Bench::config_error(&CLASS, "1, 99"), TOO_SMALL);
    }
}
