//! Recent rates, as Click measures them: an exponentially weighted moving average over milliseconds, each of
//! which weighs a sixteenth, in fixed point.
use artery_engine::{Args, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const EPOCHS_PER_SECOND: u64 = 1000;
const NANOS_PER_EPOCH: u64 = 1_000_000_000 / EPOCHS_PER_SECOND;
/// One part in `1 << STABILITY` of the difference is what the latest observation moves the average by.
const STABILITY: u32 = 4;
const ROUNDING: i64 = 1 << (STABILITY - 1);
/// After so many epochs without events the average is zero.
const FORGOTTEN: u64 = 100;

/// The rate of one thing that all copies of an element count; each copy writes a part of its own.
pub(super) struct Rate<const SCALE: u32> {
    parts: Arc<Parts<SCALE>>,
    own: usize,
}

/// The parts of all copies.
struct Parts<const SCALE: u32>(Vec<Part>);

/// On cache lines of its own: other copies read it only for a handler.
#[derive(Default)]
#[repr(align(128))]
struct Part {
    epoch: AtomicU64,
    /// What was counted in this epoch.
    current: AtomicU64,
    /// Of the epochs before, with `SCALE` bits of fraction.
    average: AtomicU64,
}

impl<const SCALE: u32> Rate<SCALE> {
    /// Nothing has been counted yet.
    pub(super) fn new(args: &mut Args<'_>) -> Rate<SCALE> {
        let (own, copies) = args.copy_index();
        let parts = args.shared_value(|| Parts((0..copies).map(|_| Part::default()).collect()));
        Rate { parts, own }
    }

    #[inline]
    pub(super) fn add_count(&self, n: u64, now: Time) {
        let part = &self.parts.0[self.own];
        let epoch = now.0 / NANOS_PER_EPOCH;
        if part.epoch.load(Relaxed) != epoch {
            part.average.store(part.average_at(epoch, SCALE) as u64, Relaxed);
            part.current.store(0, Relaxed);
            part.epoch.store(epoch, Relaxed);
        }
        part.current.store(part.current.load(Relaxed) + n, Relaxed);
    }

    /// The number a second, `times` as many.
    pub(super) fn per_second(&self, times: u64, now: Time) -> String {
        let epoch = now.0 / NANOS_PER_EPOCH;
        let average: i64 = self.parts.0.iter().map(|part| part.average_at(epoch, SCALE)).sum();
        fixed_point(average.unsigned_abs().saturating_mul(EPOCHS_PER_SECOND * times), SCALE)
    }
}

impl Part {
    /// The average of the epochs before this one.
    fn average_at(&self, epoch: u64, scale: u32) -> i64 {
        let average = self.average.load(Relaxed) as i64;
        let Some(idle) = epoch.checked_sub(self.epoch.load(Relaxed) + 1) else { return average };
        let average = move_average((self.current.load(Relaxed) as i64) << scale, average);
        if idle >= FORGOTTEN { 0 } else { (0..idle).fold(average, |average, _| move_average(0, average)) }
    }
}

fn move_average(observed: i64, average: i64) -> i64 {
    average + ((observed + ROUNDING - average) >> STABILITY)
}

/// A number with `bits` bits of fraction, in as few decimals as distinguish it from its neighbors,
/// as Click prints it.
fn fixed_point(number: u64, bits: u32) -> String {
    let one = 1u64 << bits;
    let mut text = (number >> bits).to_string();
    let mut rest = number & (one - 1);
    if rest == 0 {
        return text;
    }
    text.push('.');
    rest = 10 * rest + 5;
    let mut inaccuracy = 10;
    let mut rounder = 5;
    while rounder < one >> 1 {
        rounder *= 10;
    }
    loop {
        if inaccuracy > one {
            // May be negative in between; the sum is not.
            rest = rest.wrapping_add(one >> 1).wrapping_sub(rounder);
        }
        let digit = (rest >> bits).min(9) as u8;
        text.push(char::from(b'0' + digit));
        rest = 10 * (rest & (one - 1));
        inaccuracy *= 10;
        if rest <= inaccuracy {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_printed_so_that_they_can_be_told_apart() {
        for bits in [1, 4, 10] {
            let one = 1u64 << bits;
            let mut last = -1.0;
            for number in 0..4 * one {
                let text = fixed_point(number, bits);
                let value: f64 = text.parse().unwrap();
                assert!(
                    (value - number as f64 / one as f64).abs() < 0.5 / one as f64 + 1e-9,
                    "{number}: {text}"
                );
                assert!(value > last, "{number}: {text}");
                last = value;
            }
        }
        let texts = [(1, 1), (3, 0), (1, 4), (17, 4)].map(|(number, bits)| fixed_point(number, bits));
        assert_eq!(texts, ["0.5", "3", "0.06", "1.06"]);
    }

    #[test]
    fn a_steady_rate_is_approached_and_forgotten() {
        let part = Arc::new(Parts(vec![Part::default()]));
        let rate: Rate<10> = Rate { parts: part, own: 0 };
        let at = |ms: u64| Time(1_000_000_000_000 + ms * NANOS_PER_EPOCH);
        assert_eq!(rate.per_second(1, at(0)), "0");
        (0..200).for_each(|ms| rate.add_count(5, at(ms)));
        let text = rate.per_second(1, at(200));
        let value: f64 = text.parse().unwrap();
        assert!((4990.0..5010.0).contains(&value), "{text}");
        let later: f64 = rate.per_second(1, at(220)).parse().unwrap();
        assert!((1000.0..2000.0).contains(&later), "{later}");
        assert_eq!(rate.per_second(1, at(400)), "0");
    }

    #[test]
    fn copies_are_added_up() {
        let parts = Arc::new(Parts((0..2).map(|_| Part::default()).collect()));
        let at = |ms: u64| Time(ms * NANOS_PER_EPOCH);
        for own in 0..2 {
            let rate: Rate<4> = Rate { parts: parts.clone(), own };
            (1..200).for_each(|ms| rate.add_count(1000, at(ms)));
        }
        let rate: Rate<4> = Rate { parts, own: 0 };
        // The average of each stops 7/16 short of what comes in.
        assert_eq!(rate.per_second(1, at(200)), "1999125");
        assert_eq!(rate.per_second(8, at(200)), "15993000");
    }
}
