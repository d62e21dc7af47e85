use artery_engine::{Arg, Batch, Class, Context, Element, Handler, HandlerError, Read, Show, Time, Write};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "AverageCounter",
    group: "basic",
    summary: "measures average packet rates",
    manual: "
Passes packets on unchanged and counts them and their bytes. Rates are averages over the time between the
first and the latest packet. Packets of the first IGNORE seconds are not counted, nor is that time.",
    example: "InfiniteSource(LIMIT 10) -> AverageCounter -> Discard;",
    args: &[Arg::optional("IGNORE", "seconds", "0", "how long not to count at first")],
    handlers: &[
        Handler::read("count", "packets", &Show(|c: &mut AverageCounter| c.packets)).sum(),
        Handler::read("byte_count", "bytes", &Show(|c: &mut AverageCounter| c.bytes)).sum(),
        Handler::read(
            "rate",
            "packets a second",
            &Read(|c: &mut AverageCounter, _, _| c.average_rate(c.packets)),
        ),
        Handler::read(
            "byte_rate",
            "bytes a second",
            &Read(|c: &mut AverageCounter, _, _| c.average_rate(c.bytes)),
        ),
        Handler::write(
            "reset",
            "starts again from zero",
            &Write(|c: &mut AverageCounter, _, _| c.reset_counts()),
        )
        .button(),
    ],
    build: |args| {
        let ignore = Duration::from_secs(u64::from(args.read::<u32>("IGNORE")?));
        Ok(Box::new(AverageCounter { ignore, ..AverageCounter::default() }))
    },
    ..Class::DEFAULT
};

#[derive(Default)]
struct AverageCounter {
    ignore: Duration,
    packets: u64,
    bytes: u64,
    /// When the first and the latest packet came.
    span: Option<(Time, Time)>,
}

/// Shortest time over which a rate is computed.
const TICK: Duration = Duration::from_millis(1);

impl AverageCounter {
    fn reset_counts(&mut self) -> Result<(), HandlerError> {
        *self = AverageCounter { ignore: self.ignore, ..AverageCounter::default() };
        Ok(())
    }
    fn average_rate(&self, count: u64) -> Result<String, HandlerError> {
        let time =
            self.span.map_or(TICK, |(first, last)| last.since(first).saturating_sub(self.ignore).max(TICK));
        Ok(format_significant(count as f64 / time.as_secs_f64()))
    }
}

/// A number with up to 12 significant digits and no zeros at its end, as Click prints it (C's `%.12g`): from
/// twelve digits before the point on, and below 0.0001, with an exponent.
pub(super) fn format_significant(number: f64) -> String {
    let text = format!("{number:.11e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse().unwrap_or(0_i32) {
        exponent @ -4..12 => without_zeros(&format!("{number:.*}", (11 - exponent) as usize)).to_string(),
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs())
        }
    }
}

/// Digits without the zeros that end them behind a point.
fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

impl Element for AverageCounter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let now = cx.now();
        let first = self.span.map_or(now, |(first, _)| first);
        if !batch.is_empty() {
            self.span = Some((first, now));
        }
        if now.since(first) >= self.ignore {
            self.packets += batch.len() as u64;
            self.bytes += batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        }
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn read(bench: &mut Bench) -> [String; 4] {
        ["count", "byte_count", "rate", "byte_rate"].map(|name| bench.read(name, "").unwrap())
    }

    #[test]
    fn rates_are_averages_over_the_time_between_packets() {
        let mut bench = Bench::new(&CLASS, "");
        for _ in 0..4 {
            bench.push(0, b"abc");
            bench.advance_time(Duration::from_secs(1));
        }
        assert_eq!(read(&mut bench), ["4", "12", "1.33333333333", "4"]);
        bench.write("reset", "").unwrap();
        assert_eq!(read(&mut bench), ["0", "0", "0", "0"]);
        assert_eq!(bench.drain_sent(0).len(), 4);
    }

    #[test]
    fn the_time_to_ignore_and_its_packets_do_not_count() {
        let mut bench = Bench::new(&CLASS, "2");
        for _ in 0..5 {
            bench.push(0, b"abc");
            bench.advance_time(Duration::from_secs(1));
        }
        assert_eq!(read(&mut bench), ["3", "9", "1.5", "4.5"]);
    }

    #[test]
    fn numbers_are_printed_as_in_c() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.0 / 3.0, "0.333333333333"),
            (0.0001, "0.0001"),
            (0.000_099_999, "9.9999e-05"),
            (0.000_001_234, "1.234e-06"),
            (1.5e-100, "1.5e-100"),
            (1_234_567.0, "1234567"),
            (123_456_789_012.0, "123456789012"),
            (999_999_999_999.5, "1e+12"),
            (1_234_567_890_123.0, "1.23456789012e+12"),
        ] {
            assert_eq!(format_significant(number), text);
        }
    }
}
