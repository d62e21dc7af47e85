//! Intervals of ports or addresses, found by a number in them.
//!
//! The starts of the intervals lie in order, and above them, as in a B+ tree of which only the keys are
//! kept, every sixteenth of the level below: a search reads one run of sixteen keys a level, without a
//! branch on what they are.

use std::sync::Arc;

mod wide;

/// Keys of a run.
const RUN: usize = 16;

/// Levels that any number of intervals needs: 16⁸ are more than there can be.
const LEVELS: usize = 8;

/// What intervals are of: ports, and addresses of a family.
pub(crate) trait Key: Copy + Ord + std::fmt::Debug + Send + Sync + 'static {
    /// How intervals of them are found.
    type Steps: Find<Self>;
    const LEAST: Self;
    const MOST: Self;
    const BITS: u8;
    /// The next one up, if there is one.
    fn next(self) -> Option<Self>;
    /// The next one down, if there is one.
    fn previous(self) -> Option<Self>;
    /// This one with all bits behind a prefix cleared.
    fn first_of(self, length: u8) -> Self;
    /// This one with all bits behind a prefix set.
    fn last_of(self, length: u8) -> Self;
}

/// Finds intervals. A clone shares what it is of.
pub(crate) trait Find<K>: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Intervals that begin at these numbers, which are in order and the first of which is the
    /// least number there is.
    fn new(starts: Vec<K>) -> Self;
    /// How many intervals there are.
    fn len(&self) -> usize;
    /// Where an interval begins.
    fn interval_start(&self, place: usize) -> K;
    /// The interval that a number is in: the last that begins at or before it.
    fn find_interval(&self, key: K) -> usize;
}

macro_rules! keys {
    ($($key:ty: $steps:ty),*) => {$(
        impl Key for $key {
            type Steps = $steps;
            const LEAST: Self = <$key>::MIN;
            const MOST: Self = <$key>::MAX;
            const BITS: u8 = <$key>::BITS as u8;
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn previous(self) -> Option<Self> {
                self.checked_sub(1)
            }
            fn first_of(self, length: u8) -> Self {
                self & !<$key>::MAX.checked_shr(u32::from(length)).unwrap_or(0)
            }
            fn last_of(self, length: u8) -> Self {
                self | <$key>::MAX.checked_shr(u32::from(length)).unwrap_or(0)
            }
        }
    )*};
}
keys!(u16: Steps<u16>, u32: Steps<u32>, u64: Steps<u64>, u128: wide::WideSteps);

/// Intervals that cover everything, by their starts.
#[derive(Clone, Debug)]
pub(crate) struct Steps<K> {
    /// All levels, the topmost first, each filled up to whole runs.
    keys: Arc<[K]>,
    /// Where each level begins, and how many keys it has without the filling.
    levels: [(u32, u32); LEVELS],
    depth: usize,
}

impl<K: Key> Find<K> for Steps<K> {
    fn new(starts: Vec<K>) -> Steps<K> {
        assert!(starts.first() == Some(&K::LEAST), "intervals must cover everything in order");
        assert!(starts.is_sorted(), "intervals must cover everything in order");
        let mut levels = vec![starts];
        while levels[levels.len() - 1].len() > RUN {
            let above = levels[levels.len() - 1].iter().step_by(RUN).copied().collect();
            levels.push(above);
        }
        let mut steps = Steps { keys: Arc::new([]), levels: [(0, 0); LEVELS], depth: levels.len() };
        let mut keys = Vec::new();
        for (place, level) in levels.iter().rev().enumerate() {
            steps.levels[place] = (keys.len() as u32, level.len() as u32);
            keys.extend_from_slice(level);
            keys.resize(keys.len().next_multiple_of(RUN), K::MOST);
        }
        steps.keys = keys.into();
        steps
    }

    fn len(&self) -> usize {
        self.levels[self.depth - 1].1 as usize
    }

    #[inline]
    fn interval_start(&self, place: usize) -> K {
        self.keys[self.levels[self.depth - 1].0 as usize + place]
    }

    #[inline]
    fn find_interval(&self, key: K) -> usize {
        let mut place = 0;
        for &(begin, count) in &self.levels[..self.depth] {
            let run = begin as usize + place * RUN;
            let Some(run) = self.keys[run..].first_chunk::<RUN>() else {
                unreachable!("levels are whole runs")
            };
            let not_above = run.iter().map(|start| usize::from(*start <= key)).sum::<usize>();
            // The filling is the greatest number, and not above that.
            place = (place * RUN + not_above - 1).min(count as usize - 1);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_interval_found_is_the_last_that_begins_at_or_before(
            mut starts in proptest::collection::vec(any::<u16>(), 0..600),
            keys in proptest::collection::vec(any::<u16>(), 50),
        ) {
            starts.push(0);
            starts.sort();
            let steps = Steps::new(starts.clone());
            prop_assert_eq!(steps.len(), starts.len());
            for key in keys.iter().chain(&starts).chain(&[0, u16::MAX]) {
                prop_assert_eq!(steps.find_interval(*key), starts.partition_point(|start| start <= key) - 1);
            }
            prop_assert!((0..starts.len()).all(|place| steps.interval_start(place) == starts[place]));
        }
    }

    #[test]
    fn four_levels_lead_to_the_right_interval() {
        let steps = Steps::new((0..70_000u32).map(|n| n * 7).collect());
        (0..490_007).for_each(|key| assert_eq!(steps.find_interval(key), (key as usize / 7).min(69_999)));
        assert_eq!(steps.find_interval(u32::MAX), 69_999);
    }

    #[test]
    fn prefixes_begin_and_end_where_they_should() {
        assert_eq!((0x0a01_0203u32.first_of(8), 0x0a01_0203u32.last_of(8)), (0x0a00_0000, 0x0aff_ffff));
        assert_eq!((7u32.first_of(0), 7u32.last_of(0)), (0, u32::MAX));
        assert_eq!((7u128.first_of(128), 7u128.last_of(128)), (7, 7));
    }
}
