use artery_engine::{Batch, Class, Context, Element, Handler, HandlerError, Read, Write};
use std::any::Any;

pub static CLASS: Class = Class {
    name: "Counter",
    group: "basic",
    summary: "counts packets and bytes",
    manual: "Passes packets on unchanged and counts them and their bytes.",
    example: "InfiniteSource(LIMIT 10) -> c :: Counter -> Discard;",
    handlers: &[
        Handler::read("count", "packets so far", &Read(|c: &mut Counter, _, _| Ok(c.packets.to_string())))
            .sum(),
        Handler::read("byte_count", "bytes so far", &Read(|c: &mut Counter, _, _| Ok(c.bytes.to_string())))
            .sum(),
        Handler::write("reset", "sets the counts to zero", &Write(|c: &mut Counter, _, _| c.reset()))
            .button(),
    ],
    per_worker: true,
    build: |_| Ok(Box::new(Counter::default())),
    ..Class::DEFAULT
};

#[derive(Default)]
struct Counter {
    packets: u64,
    bytes: u64,
}

impl Counter {
    fn reset(&mut self) -> Result<(), HandlerError> {
        *self = Counter::default();
        Ok(())
    }
}

impl Element for Counter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.packets += batch.len() as u64;
        self.bytes += batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        cx.send_all(0, batch);
    }

    fn take_state(&mut self, old: &mut dyn Any, _cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_ref::<Counter>() {
            (self.packets, self.bytes) = (old.packets, old.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn counts_packets_and_bytes_until_reset() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"three");
        bench.push(0, b"more");
        assert_eq!(bench.read("count", "").unwrap(), "2");
        assert_eq!(bench.read("byte_count", "").unwrap(), "9");
        bench.write("reset", "").unwrap();
        assert_eq!(bench.read("count", "").unwrap(), "0");
        bench.expect(0, b"three");
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
