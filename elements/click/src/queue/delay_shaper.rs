use super::delay::{Delay, DelayStep};
use artery_engine::{
    Arg, Batch, Class, Context, Element, Handler, Read, Signal, SignalKinds, StartError, Write,
};
use std::any::Any;

pub static CLASS: Class = Class {
    name: "DelayShaper",
    group: "queue",
    summary: "lets packets be pulled after a delay",
    manual: "
Lets a packet be pulled DELAY after its timestamp, which is set to the present when there is none, and
afterwards says when the packet left. It holds one packet; the others wait upstream. Whoever pulls sleeps
until the next may go.",
    example: "RatedSource -> SetTimestamp -> Queue -> DelayShaper(0.1) -> Unqueue -> Discard;",
    processing: "l/l",
    args: &[Arg::required("DELAY", "seconds", "how long packets wait")],
    handlers: &[Handler::read("delay", "DELAY", &Read(|d: &mut DelayShaper, _, _| d.0.delay_text()))
        .and_write(&Write(|d: &mut DelayShaper, text, _| d.0.set_delay(text)))],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(DelayShaper(Delay::new(args.read("DELAY")?)))),
    ..Class::DEFAULT
};

struct DelayShaper(Delay);

impl Element for DelayShaper {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        for _ in 0..max {
            match self.0.next(cx) {
                DelayStep::Send(mut packet) => {
                    packet.set_timestamp(cx.now());
                    into.push(packet);
                }
                DelayStep::Wait(time) => {
                    cx.set_signal(Signal::NonEmpty, false);
                    cx.wake_at(time);
                    return;
                }
                DelayStep::Nothing => {
                    let active = !cx.upstream_idle(0);
                    cx.set_signal(Signal::NonEmpty, active);
                    return;
                }
            }
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.set_signal(Signal::NonEmpty, true);
        Ok(())
    }

    /// The delay has passed, or there are packets upstream.
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        match self.0.due_time() {
            Some(due) if due > cx.now() => cx.wake_at(due),
            Some(_) => cx.set_signal(Signal::NonEmpty, true),
            None => {
                let active = !cx.upstream_idle(0);
                cx.set_signal(Signal::NonEmpty, active);
            }
        }
        false
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<DelayShaper>() {
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
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn packets_can_be_pulled_after_the_delay_and_not_before() {
        let mut bench = Bench::new(&CLASS, "0.5");
        bench.offer(0, b"a");
        assert!(bench.signals().0);
        assert!(bench.pull(0, 8).is_empty());
        assert!(!bench.signals().0);
        bench.advance_time(Duration::from_millis(700));
        assert!(bench.signals().0);
        let packets = bench.pull(0, 8);
        assert_eq!((packets[0].data(), packets[0].timestamp()), (&b"a"[..], bench.now()));
    }

    #[test]
    fn its_successor_gives_the_packet_that_waits() {
        let (mut old, mut new) = (Bench::new(&CLASS, "1"), Bench::new(&CLASS, "1"));
        old.offer(0, b"a");
        old.pull(0, 8);
        new.take_state(&mut old);
        new.advance_time(Duration::from_secs(1));
        assert_eq!(new.pull(0, 8)[0].data(), b"a");
    }

    #[test]
    fn the_delay_can_change() {
        let mut bench = Bench::new(&CLASS, "1");
        bench.write("delay", "250ms").unwrap();
        assert_eq!(bench.read("delay", "").unwrap(), "250ms");
        assert_eq!(Bench::config_error(&CLASS, "DELAY long"), "DELAY: parse error");
    }
}
