//! Times as events, log lines and captures show them.
use artery_engine::Time;

/// A time since the epoch as RFC 3339 writes it, to the microsecond.
pub(crate) fn rfc3339(seconds: f64) -> String {
    // Event times are never outside this range.
    let micros = (seconds.clamp(0.0, 1e10) * 1e6).round() as u64;
    let (year, month, date) = Time(micros * 1000).date();
    let within = micros % 86_400_000_000;
    let (seconds, micros) = (within / 1_000_000, within % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        for (seconds, expected) in [
            (0.0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400.5, "2000-02-29T00:00:00.500000Z"),
            (1_735_689_599.0, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
        assert!(rfc3339(f64::NAN).starts_with("1970") && rfc3339(f64::MAX).ends_with('Z'));
    }
}
