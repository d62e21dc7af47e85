use artery_engine::{
    Arg, ArgError, Class, Context, DropReason, Handler, HandlerError, Packet, Show, Simple, Write,
    parse_value,
};

pub static CLASS: Class = Class {
    name: "DropEvery",
    group: "example",
    summary: "drops every Nth packet",
    manual: "
Passes packets on, but for every Nth, which is dropped. Good for trying how a protocol lives with losses.",
    example: "Idle -> DropEvery(10) -> Discard;",
    args: &[Arg::required("N", "1 or more", "which packets are dropped")],
    handlers: &[Handler::read("n", "N", &Show(|d: &mut DropEvery| d.n)).and_write(&Write(
        |d: &mut DropEvery, text, _| {
            d.n = at_least_one(parse_value(text)?).map_err(HandlerError::refused)?;
            Ok(())
        },
    ))],
    build: |args| {
        let n = at_least_one(args.read("N")?).map_err(ArgError::wrong)?;
        Ok(Box::new(DropEvery { n, passed: 0 }))
    },
    ..Class::DEFAULT
};

fn at_least_one(n: u32) -> Result<u32, &'static str> {
    if n == 0 { Err("N must be at least 1") } else { Ok(n) }
}

struct DropEvery {
    n: u32,
    /// Packets since the last that was dropped.
    passed: u32,
}

impl Simple for DropEvery {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        self.passed += 1;
        if self.passed < self.n {
            return Some(packet);
        }
        self.passed = 0;
        cx.discard(packet, DropReason::Discarded);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn every_third_packet_is_dropped() {
        let mut bench = Bench::new(&CLASS, "3");
        (0..7).for_each(|_| bench.push(0, b"x"));
        bench.expect_dropped(DropReason::Discarded, 2);
        assert_eq!(bench.drain_sent(0).len(), 5);
    }

    #[test]
    fn no_packet_is_the_nought_th() {
        assert_eq!(Bench::config_error(&CLASS, "0"), "N must be at least 1");
        let mut bench = Bench::new(&CLASS, "3");
        assert_eq!(bench.write("n", "0").unwrap_err().to_string(), "N must be at least 1");
        assert_eq!(bench.read("n", "").as_deref(), Ok("3"));
    }
}
