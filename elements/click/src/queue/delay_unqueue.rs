use super::delay::{Delay, DelayStep};
use artery_engine::{Arg, Class, Context, Element, Handler, Read, StartError, Write};
use std::any::Any;

pub static CLASS: Class = Class {
    name: "DelayUnqueue",
    group: "queue",
    summary: "pulls packets and pushes them on after a delay",
    manual: "
Pulls packets from upstream and pushes each one on DELAY after its timestamp, which is set to the present when
there is none, and afterwards says when the packet left. It holds one packet; the others wait upstream.",
    example: "RatedSource -> SetTimestamp -> Queue -> DelayUnqueue(0.1) -> Discard;",
    processing: "l/h",
    args: &[Arg::required("DELAY", "seconds", "how long packets wait")],
    handlers: &[Handler::read("delay", "DELAY", &Read(|d: &mut DelayUnqueue, _, _| d.0.delay_text()))
        .and_write(&Write(|d: &mut DelayUnqueue, text, _| d.0.set_delay(text)))],
    build: |args| Ok(Box::new(DelayUnqueue(Delay::new(args.read("DELAY")?)))),
    ..Class::DEFAULT
};

struct DelayUnqueue(Delay);

impl Element for DelayUnqueue {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        for sent in 0..cx.burst() {
            match self.0.next(cx) {
                DelayStep::Send(packet) => cx.send(0, packet),
                DelayStep::Wait(time) => {
                    cx.wake_at(time);
                    return sent > 0;
                }
                DelayStep::Nothing if cx.upstream_idle(0) => return sent > 0,
                DelayStep::Nothing => {
                    cx.schedule();
                    return sent > 0;
                }
            }
            cx.flush_sends();
        }
        cx.schedule();
        true
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<DelayUnqueue>() {
            self.0.absorb_held(&mut old.0);
            cx.schedule();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.0.discard_held(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, Time};
    use std::time::Duration;

    #[test]
    fn without_a_successor_the_packet_it_holds_is_lost_and_counted() {
        let mut bench = Bench::new(&CLASS, "0.5");
        bench.offer(0, b"a");
        bench.run();
        bench.stop_without_successor();
        bench.expect_dropped(artery_engine::DropReason::Replaced, 1);
    }

    #[test]
    fn packets_leave_after_the_delay() {
        let mut bench = Bench::new(&CLASS, "0.5");
        let start = bench.now();
        bench.offer(0, b"a");
        bench.offer(0, b"b");
        bench.run_once();
        bench.expect_nothing_more();
        assert_eq!(bench.offered_count(0), 1);
        bench.advance_time(Duration::from_millis(500));
        assert_eq!(bench.expect(0, b"a").timestamp(), start + Duration::from_millis(500));
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_millis(500));
        bench.expect(0, b"b");
    }

    #[test]
    fn the_delay_counts_from_the_timestamp() {
        let mut bench = Bench::new(&CLASS, "2s");
        let mut packet = bench.packet(b"a");
        packet.set_timestamp(Time(bench.now().0 - 1_500_000_000));
        bench.offer_packet(0, packet);
        bench.run_once();
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_millis(500));
        bench.expect(0, b"a");
    }

    #[test]
    fn its_successor_sends_the_packet_that_waits() {
        let (mut old, mut new) = (Bench::new(&CLASS, "1"), Bench::new(&CLASS, "1"));
        old.offer(0, b"a");
        old.run_once();
        new.take_state(&mut old);
        new.run_once();
        new.advance_time(Duration::from_secs(1));
        new.expect(0, b"a");
    }

    #[test]
    fn the_delay_can_change() {
        let mut bench = Bench::new(&CLASS, "1");
        bench.write("delay", "250ms").unwrap();
        assert_eq!(bench.read("delay", "").unwrap(), "250ms");
        assert!(bench.write("delay", "long").is_err());
        assert_eq!(Bench::config_error(&CLASS, ""), "DELAY: required argument missing");
    }
}
