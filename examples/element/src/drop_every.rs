use artery_engine::{Arg, ArgError, Class, Context, DropReason, Field, Handler, Packet, Simple};

pub static CLASS: Class = Class {
    name: "DropEvery",
    group: "example",
    summary: "drops every Nth packet",
    manual: "
Passes packets on, but for every Nth, which is dropped. Good for trying how a protocol lives with losses.",
    example: "Idle -> DropEvery(10) -> Discard;",
    args: &[Arg::required("N", "1 or more", "which packets are dropped")],
    handlers: &[Handler::field("n", "N", &Field(|d: &mut DropEvery| &mut d.n))],
    build: |args| match args.read("N")? {
        0 => Err(ArgError::wrong("N must be at least 1")),
        n => Ok(Box::new(DropEvery { n, passed: 0 })),
    },
    ..Class::DEFAULT
};

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
    }
}
