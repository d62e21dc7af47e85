use super::handler_call::HandlerCall;
use super::rate::Rate;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Batch, Class, Context, Element, Handler, HandlerError, Read, Show,
    StartError, Write, names::Names,
};
use std::any::Any;

pub static CLASS: Class = Class {
    name: "Counter",
    group: "basic",
    summary: "counts packets and bytes",
    manual: "
Passes packets on unchanged, counts them and their bytes, and measures their recent rate: an average over
milliseconds in which each weighs a sixteenth.

COUNT_CALL is `N HANDLER [VALUE]`: when the Nth packet comes, VALUE is written to HANDLER, before the packet
leaves. BYTE_COUNT_CALL is the same for the first packet with which there are N bytes or more. Either happens
once until the counts are set to zero. Copies on several workers count for themselves until they call.",
    example: "InfiniteSource(LIMIT 10) -> c :: Counter(COUNT_CALL 10 stop) -> Discard;",
    args: &[
        Arg::keyword(
            "COUNT_CALL",
            "number and handler call",
            "",
            "how many packets, the handler to write, its value",
        ),
        Arg::keyword("BYTE_COUNT_CALL", "number and handler call", "", "the same for bytes"),
    ],
    handlers: &[
        Handler::read("count", "packets so far", &Show(|c: &mut Counter| c.packets)).sum(),
        Handler::read("byte_count", "bytes so far", &Show(|c: &mut Counter| c.bytes)).sum(),
        Handler::read(
            "rate",
            "packets a second, recently",
            &Read(|c: &mut Counter, _, cx| Ok(c.rate.per_second(1, cx.now()))),
        ),
        Handler::read(
            "bit_rate",
            "bits a second, recently",
            &Read(|c: &mut Counter, _, cx| Ok(c.byte_rate.per_second(8, cx.now()))),
        ),
        Handler::read(
            "byte_rate",
            "bytes a second, recently",
            &Read(|c: &mut Counter, _, cx| Ok(c.byte_rate.per_second(1, cx.now()))),
        ),
        Handler::write("reset", "sets the counts to zero", &Write(Counter::reset_counts)).button(),
        Handler::write("reset_counts", "the same", &Write(Counter::reset_counts)).button(),
        Handler::read(
            "count_call",
            "the number of COUNT_CALL",
            &Show(|c: &mut Counter| c.packet_call.threshold_text()),
        )
        .and_write(&Write(|c: &mut Counter, text, cx| c.packet_call.set_call("count_call", text, cx))),
        Handler::write(
            "byte_count_call",
            "`N [HANDLER [VALUE]]`: a new BYTE_COUNT_CALL",
            &Write(|c: &mut Counter, text, cx| c.byte_call.set_call("byte_count_call", text, cx)),
        ),
    ],
    build: |args| Ok(Box::new(Counter::new(args)?)),
    ..Class::PER_WORKER
};

/// A handler to call when a count is reached.
#[derive(Default)]
struct Trigger {
    at: u64,
    call: Option<HandlerCall>,
    is_done: bool,
}

impl Trigger {
    fn new(arg: &'static str, args: &Args<'_>) -> Result<Trigger, ArgError> {
        let Some(text) = args.read::<Option<String>>(arg)?.filter(|text| !text.is_empty()) else {
            return Ok(Trigger::default());
        };
        let wrong = || ArgError::wrong_at(text.clone(), format!("{arg} type mismatch"));
        let (at, call) = number_and_call(&text).ok_or_else(wrong)?;
        let call = call.ok_or_else(|| ArgError::wrong_at(text.clone(), format!("{arg}: no handler")))?;
        Ok(Trigger { at, call: Some(call), is_done: false })
    }
    fn check_call(&self, arg: &str, cx: &Context<'_>) -> Result<(), StartError> {
        self.call.as_ref().map_or(Ok(()), |call| call.check_writable(arg, cx))
    }
    fn threshold_text(&self) -> String {
        self.call.as_ref().map(|_| self.at.to_string()).unwrap_or_default()
    }
    /// Sets another number, and another call unless it is left out.
    fn set_call(&mut self, handler: &str, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let wrong = || HandlerError::refused(format!("'{handler}' first word should be unsigned (count)"));
        let (at, call) = number_and_call(text.trim()).ok_or_else(wrong)?;
        if let Some(call) = &call {
            call.check_writable(handler, cx).map_err(|error| HandlerError::refused(error.message))?;
        }
        *self = Trigger { at, call: call.or(self.call.take()), is_done: false };
        Ok(())
    }
    fn is_armed(&self) -> bool {
        self.call.is_some() && !self.is_done
    }
    /// The call that is due, if the count has reached its limit.
    fn due_call(&mut self, is_reached: bool) -> Option<HandlerCall> {
        let fires = is_reached && self.is_armed();
        self.is_done |= fires;
        self.call.as_ref().filter(|_| fires).cloned()
    }
}

fn number_and_call(text: &str) -> Option<(u64, Option<HandlerCall>)> {
    let (number, call) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some((u64::parse(number, &Names::default()).ok()?, HandlerCall::new(call)))
}

struct Counter {
    packets: u64,
    bytes: u64,
    rate: Rate<10>,
    byte_rate: Rate<4>,
    packet_call: Trigger,
    byte_call: Trigger,
}

impl Counter {
    fn new(args: &mut Args<'_>) -> Result<Counter, ArgError> {
        Ok(Counter {
            packets: 0,
            bytes: 0,
            rate: Rate::new(args),
            byte_rate: Rate::new(args),
            packet_call: Trigger::new("COUNT_CALL", args)?,
            byte_call: Trigger::new("BYTE_COUNT_CALL", args)?,
        })
    }

    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        (self.packets, self.bytes) = (0, 0);
        (self.packet_call.is_done, self.byte_call.is_done) = (false, false);
        Ok(())
    }

    /// Counts one packet and makes the calls that are due.
    fn count_and_call(&mut self, length: u64, cx: &mut Context<'_>) {
        self.packets += 1;
        self.bytes += length;
        if let Some(call) = self.packet_call.due_call(self.packets == self.packet_call.at) {
            call.run(self, &CLASS, "COUNT_CALL", cx);
        }
        if let Some(call) = self.byte_call.due_call(self.bytes >= self.byte_call.at) {
            call.run(self, &CLASS, "BYTE_COUNT_CALL", cx);
        }
    }
}

impl Element for Counter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let bytes = batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        let now = cx.now();
        self.rate.add_count(batch.len() as u64, now);
        self.byte_rate.add_count(bytes, now);
        if self.packet_call.is_armed() || self.byte_call.is_armed() {
            batch.iter().for_each(|packet| self.count_and_call(packet.len() as u64, cx));
        } else {
            self.packets += batch.len() as u64;
            self.bytes += bytes;
        }
        cx.send_all(0, batch);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.packet_call.check_call("COUNT_CALL", cx)?;
        self.byte_call.check_call("BYTE_COUNT_CALL", cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, _cx: &mut Context<'_>) {
        let Some(old) = old.downcast_ref::<Counter>() else { return };
        (self.packets, self.bytes) = (old.packets, old.bytes);
        for (new, old) in [(&mut self.packet_call, &old.packet_call), (&mut self.byte_call, &old.byte_call)] {
            new.is_done = old.is_done && new.at == old.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn counts_packets_and_bytes_until_reset() {
        for reset in ["reset", "reset_counts"] {
            let mut bench = Bench::new(&CLASS, "");
            bench.push(0, b"three");
            bench.push(0, b"more");
            assert_eq!(bench.read("count", "").unwrap(), "2");
            assert_eq!(bench.read("byte_count", "").unwrap(), "9");
            bench.write(reset, "").unwrap();
            assert_eq!(bench.read("count", "").unwrap(), "0");
            bench.expect(0, b"three");
        }
    }

    #[test]
    fn rates_are_those_of_the_last_milliseconds() {
        let mut bench = Bench::new(&CLASS, "");
        for _ in 0..500 {
            bench.push(0, [0; 100]);
            bench.next_sent(0);
            bench.advance_time(Duration::from_millis(1));
        }
        let rates = ["byte_rate", "bit_rate"].map(|name| bench.read(name, "").unwrap());
        // The average stops seven units of its fraction short: of 16 for bytes, of 1024 for packets.
        assert_eq!(rates, ["99562.5", "796500"]);
        assert_eq!(bench.read("rate", "").unwrap(), "993.164");
        bench.advance_time(Duration::from_secs(1));
        assert_eq!(bench.read("rate", "").unwrap(), "0");
    }

    #[test]
    fn a_handler_is_called_once_when_a_count_is_reached() {
        let mut bench = Bench::new(&CLASS, "COUNT_CALL 3 e.count_call 5");
        let packets: Vec<_> = (0..4).map(|_| bench.packet(b"x")).collect();
        bench.push_packets(0, packets);
        assert_eq!((bench.read("count", ""), bench.read("count_call", "")), (Ok("4".into()), Ok("5".into())));
        bench.write("count_call", "6 e.reset").unwrap();
        (0..2).for_each(|_| bench.push(0, b"x"));
        assert_eq!(bench.read("count", "").unwrap(), "0");
        (0..6).for_each(|_| bench.push(0, b"x"));
        assert_eq!(bench.read("count", "").unwrap(), "0");
    }

    #[test]
    fn a_handler_is_called_when_so_many_bytes_are_reached_or_passed() {
        let mut bench = Bench::new(&CLASS, "BYTE_COUNT_CALL 6 e.reset");
        bench.push(0, b"three");
        assert_eq!(bench.read("byte_count", "").unwrap(), "5");
        bench.push(0, b"three");
        assert_eq!(bench.read("byte_count", "").unwrap(), "0");
        bench.write("byte_count_call", "1").unwrap();
        bench.push(0, b"three");
        assert_eq!(bench.read("byte_count", "").unwrap(), "0");
    }

    #[test]
    fn calls_must_name_a_number_and_a_handler_that_can_be_written() {
        assert_eq!(Bench::config_error(&CLASS, "COUNT_CALL x e.reset"), "COUNT_CALL type mismatch");
        assert_eq!(Bench::config_error(&CLASS, "COUNT_CALL 3"), "COUNT_CALL: no handler");
        let count = "BYTE_COUNT_CALL 3 e.count";
        assert_eq!(Bench::config_error(&CLASS, count), "BYTE_COUNT_CALL: no 'e.count' write handler");
        let mut bench = Bench::new(&CLASS, "");
        let fault = bench.write("count_call", "e.reset").unwrap_err().to_string();
        assert_eq!(fault, "'count_call' first word should be unsigned (count)");
        assert!(bench.write("byte_count_call", "3 nobody.reset").is_err());
    }

    #[test]
    fn its_successor_counts_on() {
        let mut old = Bench::new(&CLASS, "");
        old.push(0, b"three");
        let mut new = Bench::new(&CLASS, "");
        new.take_state(&mut old);
        assert_eq!(new.read("count", "").unwrap(), "1");
        assert_eq!(new.read("byte_count", "").unwrap(), "5");
        old.expect(0, b"three");
    }

    #[test]
    fn counts_what_is_pulled_through_it() {
        let mut bench = Bench::setup(&CLASS, "").pull().build().unwrap();
        bench.offer(0, b"x");
        assert_eq!(bench.pull(0, 8).len(), 1);
        assert_eq!(bench.read("count", "").unwrap(), "1");
    }
}
