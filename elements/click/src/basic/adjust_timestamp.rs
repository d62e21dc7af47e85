use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgValue, Class, Context, Handler, Packet, Show, Simple, Time, Write, anno, parse_value,
};
use artery_lang::args as text;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "AdjustTimestamp",
    group: "basic",
    summary: "moves packets' timestamps",
    manual: "
Adds TIME, which may be negative, to the timestamp of each packet that has one; with ALL of others, too. With
FIRST it is the annotation FIRST_TIMESTAMP instead. No time gets before 1970.",
    example: "Idle -> AdjustTimestamp(-3600) -> Discard;",
    args: &[
        Arg::optional("TIME", "seconds", "0", "what to add"),
        Arg::keyword("FIRST", "bool", "false", "whether to move the annotation FIRST_TIMESTAMP"),
        Arg::keyword("ALL", "bool", "false", "whether to move timestamps that are not set"),
    ],
    handlers: &[Handler::read("time", "TIME", &Show(|a: &mut AdjustTimestamp| a.by.to_string()))
        .and_write(&Write(|a: &mut AdjustTimestamp, text, _| parse_value(text).map(|by| a.by = by)))],
    build: |args| {
        let (by, first, all) = (args.read("TIME")?, args.read("FIRST")?, args.read("ALL")?);
        Ok(Box::new(AdjustTimestamp { by, first, all }))
    },
    ..Class::PER_WORKER
};

struct AdjustTimestamp {
    by: Shift,
    first: bool,
    all: bool,
}

/// A time that may be negative.
struct Shift {
    back: bool,
    by: Duration,
}

impl ArgValue for Shift {
    fn parse(text: &str, _: &Names) -> Result<Shift, String> {
        let (back, number) = match text.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, text),
        };
        let nanos = text::parse_seconds(number).map_err(|_| "a time such as 1.5 or -20ms")?;
        Ok(Shift { back, by: Duration::from_nanos(nanos) })
    }
}

impl std::fmt::Display for Shift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.back { "-" } else { "" }, Time::ZERO + self.by)
    }
}

impl AdjustTimestamp {
    fn shift_time(&self, time: Time) -> Time {
        match self.by {
            _ if time == Time::ZERO && !self.all => time,
            Shift { back: true, by } => time - by,
            Shift { back: false, by } => time + by,
        }
    }
}

impl Simple for AdjustTimestamp {
    fn process(&mut self, mut packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
        if self.first {
            let time = Time(u64::from_ne_bytes(packet.annotation(anno::FIRST_TIMESTAMP)));
            packet.set_annotation(anno::FIRST_TIMESTAMP, self.shift_time(time).0.to_ne_bytes());
        } else {
            packet.set_timestamp(self.shift_time(packet.timestamp()));
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    /// The new timestamp of a packet.
    fn moved(config: &str, time: Time) -> Time {
        let mut bench = Bench::new(&CLASS, config);
        bench.push_with(0, b"x", |packet| packet.set_timestamp(time));
        bench.next_sent(0).unwrap().timestamp()
    }

    #[test]
    fn timestamps_move_forth_and_back() {
        assert_eq!(moved("1.5", Time::new(10, 0)), Time::new(11, 500_000_000));
        assert_eq!(moved("-3", Time::new(10, 0)), Time::new(7, 0));
        assert_eq!(moved("-30", Time::new(10, 0)), Time::ZERO);
    }

    #[test]
    fn those_that_are_not_set_move_only_when_asked() {
        assert_eq!(moved("1", Time::ZERO), Time::ZERO);
        assert_eq!(moved("1, ALL true", Time::ZERO), Time::new(1, 0));
    }

    #[test]
    fn the_first_timestamp_can_be_meant() {
        let mut bench = Bench::new(&CLASS, "1, FIRST true");
        let mut packet = bench.packet(b"x");
        packet.set_annotation(anno::FIRST_TIMESTAMP, Time::new(5, 0).0.to_ne_bytes());
        bench.push_packets(0, [packet]);
        let packet = bench.next_sent(0).unwrap();
        assert_eq!(packet.annotation(anno::FIRST_TIMESTAMP), Time::new(6, 0).0.to_ne_bytes());
    }

    #[test]
    fn the_shift_can_be_read_and_changed() {
        let mut bench = Bench::new(&CLASS, "-1.5");
        assert_eq!(bench.read("time", "").unwrap(), "-1.500000");
        bench.write("time", "2").unwrap();
        assert_eq!(bench.read("time", "").unwrap(), "2.000000");
        assert_eq!(Bench::config_error(&CLASS, "soon"), "TIME: parse error");
    }
}
