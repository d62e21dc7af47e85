//! The greatest rate without loss, as RFC 2544 looks for it: by halving, with short trials.

/// What became of frames that were sent at some rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub(crate) sent: u64,
    /// Frames that arrived, at most those sent.
    pub(crate) arrived: u64,
    /// Seconds that frames were sent for.
    pub(crate) seconds: f64,
}

/// Percent that may be lost, since on shared machines others have the processors for moments.
const LOSS: f64 = 0.1;
/// The part of a rate that has to be sent.
const SENT: f64 = 0.98;
/// How often the upper end is doubled when it is carried.
const DOUBLINGS: u32 = 4;

/// How hard to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Care {
    /// Halvings of the interval that the rate lies in.
    pub(crate) halvings: u32,
    /// How often a rate is tried until it is carried.
    pub(crate) tries: u32,
}

impl Outcome {
    /// Frames a second that were sent.
    pub(crate) fn offered(&self) -> f64 {
        self.sent as f64 / self.seconds
    }
    /// Frames a second that arrived.
    pub fn forwarded(&self) -> f64 {
        self.arrived as f64 / self.seconds
    }
    /// Percent that was lost.
    pub(crate) fn loss(&self) -> f64 {
        100.0 * self.sent.saturating_sub(self.arrived) as f64 / self.sent.max(1) as f64
    }
    /// Whether a rate was sent, and no more lost than may be.
    pub(crate) fn carries(&self, rate: f64) -> bool {
        self.sent > 0 && self.loss() <= LOSS && self.offered() >= SENT * rate
    }
}

/// The greatest rate that is carried, in frames a second; none where even the least that was tried is not.
/// `guess` is about what is expected.
pub(crate) fn loss_free<E>(
    guess: f64,
    care: Care,
    mut trial: impl FnMut(f64) -> Result<Outcome, E>,
) -> Result<Option<f64>, E> {
    let mut is_carried = |rate: f64| {
        for _ in 0..care.tries {
            if trial(rate)?.carries(rate) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut low, mut high) = (0.0, 2.0 * guess);
    for _ in 0..DOUBLINGS {
        if !is_carried(high)? {
            break;
        }
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..care.halvings {
        let middle = (low + high) / 2.0;
        if is_carried(middle)? { low = middle } else { high = middle }
    }
    Ok((low > 0.0).then_some(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const CARE: Care = Care { halvings: 10, tries: 1 };

    /// A forwarder that carries so many frames a second and loses the rest.
    fn forwarder(capacity: f64) -> impl FnMut(f64) -> Result<Outcome, Infallible> {
        move |rate| Ok(Outcome { sent: rate as u64, arrived: rate.min(capacity) as u64, seconds: 1.0 })
    }

    #[test]
    fn the_capacity_is_found_whatever_was_guessed() {
        for guess in [100_000.0, 500_000.0, 5_000_000.0] {
            let found = loss_free(guess, CARE, forwarder(700_000.0)).unwrap().unwrap();
            assert!((found / 700_000.0 - 1.0).abs() < 0.02, "{guess}: {found}");
        }
    }

    #[test]
    fn who_carries_nothing_has_no_rate_and_an_error_ends_the_search() {
        assert_eq!(loss_free(1e6, CARE, forwarder(0.0)), Ok(None));
        assert_eq!(loss_free(1e6, CARE, |_| Err("broken")), Err("broken"));
    }

    #[test]
    fn a_rate_is_tried_again_when_others_disturbed() {
        let mut calls = 0;
        let disturbed = |rate: f64| {
            calls += 1;
            let carried = rate <= 1e6 && calls % 2 == 0;
            let arrived = if carried { rate } else { rate / 2.0 } as u64;
            Ok::<_, Infallible>(Outcome { sent: rate as u64, arrived, seconds: 1.0 })
        };
        let found = loss_free(1e6, Care { tries: 2, ..CARE }, disturbed).unwrap().unwrap();
        assert!(found > 0.98e6, "{found}");
    }

    #[test]
    fn a_thousandth_may_be_lost_and_what_was_not_sent_is_not_carried() {
        let outcome = |sent, arrived| Outcome { sent, arrived, seconds: 1.0 };
        assert!(outcome(100_000, 99_900).carries(100_000.0));
        assert!(!outcome(100_000, 99_899).carries(100_000.0));
        assert!(!outcome(97_000, 97_000).carries(100_000.0));
        assert!(!outcome(0, 0).carries(0.0));
    }
}
