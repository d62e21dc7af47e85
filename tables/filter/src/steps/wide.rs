//! Intervals of IPv6 addresses: found by the upper half of the address, as networks are nearly all of at most
//! 64 bits; only where intervals begin within a half, the lower one is looked at.
use super::{Find, Steps};
use std::sync::Arc;

/// Intervals of IPv6 addresses.
#[derive(Clone, Debug)]
pub(crate) struct WideSteps {
    /// All upper halves of starts, each once.
    uppers: Steps<u64>,
    /// Nothing, if all starts are upper halves with nothing behind them.
    within: Option<Arc<Within>>,
}

/// Intervals that begin within upper halves.
#[derive(Debug)]
struct Within {
    /// The first interval of each upper half, and at last how many there are.
    firsts: Box<[u32]>,
    /// The lower halves of all starts.
    lowers: Box<[u64]>,
}

fn upper_half(address: u128) -> u64 {
    (address >> 64) as u64
}

impl Find<u128> for WideSteps {
    fn new(starts: Vec<u128>) -> WideSteps {
        assert!(starts.first() == Some(&0) && starts.is_sorted(), "intervals must cover everything in order");
        let (mut uppers, mut firsts) = (Vec::new(), Vec::new());
        for (place, start) in starts.iter().enumerate() {
            if uppers.last() != Some(&upper_half(*start)) {
                uppers.push(upper_half(*start));
                firsts.push(place as u32);
            }
        }
        firsts.push(starts.len() as u32);
        let is_plain = uppers.len() == starts.len() && starts.iter().all(|start| *start as u64 == 0);
        let within =
            Within { firsts: firsts.into(), lowers: starts.iter().map(|start| *start as u64).collect() };
        WideSteps { uppers: Steps::new(uppers), within: (!is_plain).then(|| Arc::new(within)) }
    }

    fn len(&self) -> usize {
        self.within.as_ref().map_or(self.uppers.len(), |within| within.lowers.len())
    }

    fn interval_start(&self, place: usize) -> u128 {
        let Some(within) = &self.within else { return u128::from(self.uppers.interval_start(place)) << 64 };
        let half = within.firsts.partition_point(|first| *first as usize <= place) - 1;
        (u128::from(self.uppers.interval_start(half)) << 64) | u128::from(within.lowers[place])
    }

    #[inline]
    fn find_interval(&self, key: u128) -> usize {
        let place = self.uppers.find_interval(upper_half(key));
        match &self.within {
            None => place,
            Some(within) => {
                within.find_within(place, self.uppers.interval_start(place) == upper_half(key), key as u64)
            }
        }
    }
}

impl Within {
    fn find_within(&self, place: usize, is_of_it: bool, lower: u64) -> usize {
        let (first, end) = (self.firsts[place] as usize, self.firsts[place + 1] as usize);
        if !is_of_it {
            return end - 1;
        }
        // If all begin behind the address, it is in the last interval of the upper half before.
        first + self.lowers[first..end].partition_point(|start| *start <= lower) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_interval_found_is_the_last_that_begins_at_or_before(
            halves in proptest::collection::vec((0u64..40, 0u64..6), 0..300),
            keys in proptest::collection::vec((0u64..41, 0u64..7), 50),
            has_lowers: bool,
        ) {
            let whole = |(upper, lower): (u64, u64)| (u128::from(upper) << 64) | u128::from(lower);
            let mut starts: Vec<u128> = halves
                .iter()
                .map(|(upper, lower)| whole((*upper, if has_lowers { *lower } else { 0 })))
                .collect();
            starts.push(0);
            starts.sort();
            let steps = WideSteps::new(starts.clone());
            prop_assert_eq!(steps.len(), starts.len());
            for key in keys.into_iter().map(whole).chain([0, u128::MAX]).chain(starts.clone()) {
                prop_assert_eq!(steps.find_interval(key), starts.partition_point(|start| *start <= key) - 1);
            }
            prop_assert!((0..starts.len()).all(|place| steps.interval_start(place) == starts[place]));
        }
    }
}
