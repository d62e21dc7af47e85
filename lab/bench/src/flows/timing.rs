//! Loops that are timed a slice at a time, so that packets are got ready between slices for nothing, and
//! slices in which the processor did something else are left out.

use super::plan::Plan;
use std::time::{Duration, Instant};

/// Packets between two looks at the clock: few enough that their keys stay in the first-level cache, as
/// headers do that a card has just delivered.
pub(super) const SLICE: usize = 1024;

/// A slice that takes so many times as long as half of them was interrupted: of two slices that are looked up
/// one takes three times as long at most, also when all answers have just become old.
const INTERRUPTED: u64 = 8;

/// Returns nanoseconds for each packet of a run. Repeatedly prepares a slice (`prepare` gets the duration of
/// the slices so far) and runs it, until the budget is used.
pub(super) fn nanos<S>(
    budget: Duration,
    state: &mut S,
    mut prepare: impl FnMut(&mut S, Duration) -> anyhow::Result<()>,
    mut slice: impl FnMut(&mut S),
) -> anyhow::Result<f64> {
    let (mut taken, mut slices) = (Duration::ZERO, Vec::new());
    while taken < budget {
        prepare(state, taken)?;
        let begin = Instant::now();
        slice(state);
        let time = begin.elapsed();
        taken += time;
        slices.push(time.as_nanos() as u64);
    }
    Ok(mean_of_whole(slices) / SLICE as f64)
}

/// The mean of slices that were not interrupted.
fn mean_of_whole(mut slices: Vec<u64>) -> f64 {
    slices.sort_unstable();
    let middle = slices.get(slices.len() / 2).copied().unwrap_or(0);
    let whole = slices.partition_point(|time| *time <= INTERRUPTED * middle);
    slices[..whole].iter().sum::<u64>() as f64 / whole.max(1) as f64
}

/// The figures of so many rounds for each of several, which take turns: what disturbs disturbs all.
pub(super) fn by_turns<T>(
    plan: &Plan,
    all: &mut [T],
    mut run: impl FnMut(&mut T) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut figures = vec![Vec::new(); all.len()];
    for _ in 0..plan.rounds {
        for (one, figures) in all.iter_mut().zip(&mut figures) {
            figures.push(run(one)?);
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_in_which_something_else_ran_are_left_out() {
        assert_eq!(mean_of_whole(vec![10, 4_000_000, 30, 20]), 20.0);
        assert_eq!(mean_of_whole(vec![10, 80, 10]), 100.0 / 3.0);
        assert_eq!(mean_of_whole(Vec::new()), 0.0);
    }

    #[test]
    fn only_slices_take_time_and_each_is_prepared() {
        let mut calls = (0, 0);
        let slice = |calls: &mut (u32, u32)| {
            calls.1 += 1;
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(200) {}
        };
        let prepare = |calls: &mut (u32, u32), taken: Duration| {
            assert!(taken >= Duration::from_micros(200) * calls.1);
            calls.0 += 1;
            Ok(())
        };
        let nanos = nanos(Duration::from_millis(2), &mut calls, prepare, slice).unwrap();
        assert!(nanos >= 200_000.0 / SLICE as f64, "{nanos}");
        assert!(calls.0 == calls.1 && (1..=10).contains(&calls.1), "{calls:?}");
    }
}
