use artery_engine::{Arg, ArgError, Class, Context, Handler, Packet, Show, Simple, Time, Write, anno};

pub static CLASS: Class = Class {
    name: "SetTimestampDelta",
    group: "basic",
    summary: "makes packets' timestamps differences",
    manual: "
Makes the timestamp of each packet that has one the time since another moment: with TYPE RANGE since the
timestamp of the first packet that came, with FIRST since the annotation FIRST_TIMESTAMP; with NOW, the time
from it until now.",
    example: "Idle -> SetTimestampDelta -> Print(TIMESTAMP true) -> Discard;",
    args: &[Arg::keyword("TYPE", "RANGE, NOW or FIRST", "RANGE", "which difference")],
    handlers: &[
        Handler::read(
            "first",
            "the first packet's timestamp",
            &Show(|s: &mut SetTimestampDelta| format!("{}\n", s.first)),
        ),
        Handler::write(
            "reset",
            "lets the next packet be the first",
            &Write(|s: &mut SetTimestampDelta, _, _| {
                s.first = Time::ZERO;
                Ok(())
            }),
        )
        .button(),
    ],
    build: |args| {
        let since = match args.read::<String>("TYPE")?.as_str() {
            "RANGE" => Since::First,
            "NOW" => Since::Now,
            "FIRST" => Since::Annotation,
            _ => return Err(ArgError::wrong("bad TYPE")),
        };
        Ok(Box::new(SetTimestampDelta { since, first: Time::ZERO }))
    },
    ..Class::DEFAULT
};

#[derive(Clone, Copy)]
enum Since {
    First,
    Now,
    Annotation,
}

struct SetTimestampDelta {
    since: Since,
    first: Time,
}

impl Simple for SetTimestampDelta {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let time = packet.timestamp();
        if time == Time::ZERO {
            return Some(packet);
        }
        let delta = match self.since {
            Since::First => {
                if self.first == Time::ZERO {
                    self.first = time;
                }
                time.since(self.first)
            }
            Since::Now => cx.now().since(time),
            Since::Annotation => {
                time.since(Time(u64::from_ne_bytes(packet.annotation(anno::FIRST_TIMESTAMP))))
            }
        };
        packet.set_timestamp(Time::ZERO + delta);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn deltas(bench: &mut Bench, times: &[Time]) -> Vec<Time> {
        for time in times {
            let mut packet = bench.packet(b"x");
            packet.set_timestamp(*time);
            packet.set_annotation(anno::FIRST_TIMESTAMP, Time::new(1, 0).0.to_ne_bytes());
            bench.push_packets(0, [packet]);
        }
        bench.drain_sent(0).iter().map(Packet::timestamp).collect()
    }

    #[test]
    fn times_are_told_since_the_first_packet() {
        let mut bench = Bench::new(&CLASS, "");
        let times = [Time::new(5, 0), Time::new(7, 5000), Time::ZERO];
        assert_eq!(deltas(&mut bench, &times), [Time::ZERO, Time::new(2, 5000), Time::ZERO]);
        assert_eq!(bench.read("first", "").unwrap(), "5.000000\n");
        bench.write("reset", "").unwrap();
        assert_eq!(deltas(&mut bench, &[Time::new(9, 0)]), [Time::ZERO]);
    }

    #[test]
    fn or_since_the_annotation_or_until_now() {
        assert_eq!(deltas(&mut Bench::new(&CLASS, "TYPE FIRST"), &[Time::new(5, 0)]), [Time::new(4, 0)]);
        let mut bench = Bench::new(&CLASS, "TYPE NOW");
        let now = bench.now();
        assert_eq!(deltas(&mut bench, &[now - std::time::Duration::from_secs(3)]), [Time::new(3, 0)]);
        assert_eq!(Bench::config_error(&CLASS, "TYPE LAST"), "bad TYPE");
    }
}
