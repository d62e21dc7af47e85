use super::average_counter::format_significant;
use artery_engine::{Batch, Class, Context, Element, Handler, Read, Show, Write};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "TimestampAccum",
    group: "basic",
    summary: "adds up how long packets have been on their way",
    manual: "
Passes packets on unchanged, and adds up the times since their timestamps: how long they took from where the
timestamp was set, by FromDevice or SetTimestamp. Packets whose timestamp lies ahead count as having taken no
time.",
    example: "InfiniteSource(LIMIT 10) -> SetTimestamp -> Queue -> Unqueue -> t :: TimestampAccum -> \
        Discard;",
    handlers: &[
        Handler::read("count", "packets", &Show(|t: &mut TimestampAccum| t.packets)),
        Handler::read(
            "time",
            "the sum of all times, in seconds",
            &Show(|t: &mut TimestampAccum| format_significant(t.time.as_secs_f64())),
        ),
        Handler::read(
            "average_time",
            "the mean time, in seconds",
            &Read(|t: &mut TimestampAccum, _, _| {
                Ok(format_significant(t.time.as_secs_f64() / t.packets.max(1) as f64))
            }),
        ),
        Handler::write(
            "reset_counts",
            "starts again from zero",
            &Write(|t: &mut TimestampAccum, _, _| {
                *t = TimestampAccum::default();
                Ok(())
            }),
        )
        .button(),
    ],
    build: |_| Ok(Box::new(TimestampAccum::default())),
    ..Class::DEFAULT
};

#[derive(Default)]
struct TimestampAccum {
    packets: u64,
    time: Duration,
}

impl Element for TimestampAccum {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let now = cx.now();
        for packet in batch.iter() {
            self.time = self.time.saturating_add(now.since(packet.timestamp()));
        }
        self.packets += batch.len() as u64;
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn read(bench: &mut Bench) -> [String; 3] {
        ["count", "time", "average_time"].map(|name| bench.read(name, "").unwrap())
    }

    #[test]
    fn times_since_timestamps_are_added_up() {
        let mut bench = Bench::new(&CLASS, "");
        assert_eq!(read(&mut bench), ["0", "0", "0"]);
        for (micros, passed) in [(10, 0), (0, 3)] {
            let mut packet = bench.packet(b"x");
            let now = bench.now();
            packet.set_timestamp(now - Duration::from_micros(micros));
            bench.advance_time(Duration::from_secs(passed));
            bench.push_packets(0, [packet]);
        }
        assert_eq!(bench.drain_sent(0).len(), 2);
        assert_eq!(read(&mut bench), ["2", "3.00001", "1.500005"]);
        bench.write("reset_counts", "").unwrap();
        assert_eq!(read(&mut bench), ["0", "0", "0"]);
    }

    #[test]
    fn short_times_keep_their_digits() {
        let mut bench = Bench::new(&CLASS, "");
        let mut packet = bench.packet(b"x");
        let now = bench.now();
        packet.set_timestamp(now - Duration::from_nanos(1234));
        bench.push_packets(0, [packet]);
        assert_eq!(read(&mut bench), ["1", "1.234e-06", "1.234e-06"]);
    }
}
