//! Whose turn it is, when members take turns by weight.
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Members one after another, forever, each as often as its weight says and as evenly as that goes:
/// the k-th turn of a member of weight w is at the time k/w, and at the same time the one that was
/// named first is first.
///
/// No weight depends on others, so that members who come or go change nothing in the order of the rest.
pub(crate) struct Turns(BinaryHeap<Reverse<Next>>);

#[derive(PartialEq, Eq)]
struct Next {
    taken: u32,
    weight: u32,
    member: usize,
}

impl Ord for Next {
    fn cmp(&self, other: &Next) -> Ordering {
        let at = |taken: u32, weight: u32| u64::from(taken) * u64::from(weight);
        at(self.taken, other.weight).cmp(&at(other.taken, self.weight)).then(self.member.cmp(&other.member))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Next) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Turns {
    /// Turns of members by weight; those of weight 0 have none.
    pub(crate) fn new(weights: &[u32]) -> Turns {
        let next = |(member, weight): (usize, &u32)| Reverse(Next { taken: 0, weight: *weight, member });
        Turns(weights.iter().enumerate().filter(|(_, weight)| **weight > 0).map(next).collect())
    }
}

impl Iterator for Turns {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let mut next = self.0.peek_mut()?;
        next.0.taken += 1; // where it would not fit, the table would have four thousand million slots
        Some(next.0.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_members_go_round_and_heavy_ones_come_between() {
        let first = |weights: &[u32], count| Turns::new(weights).take(count).collect::<Vec<_>>();
        assert_eq!(first(&[1, 1, 1], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(first(&[7, 0, 7], 4), [0, 2, 0, 2]);
        assert_eq!(first(&[1, 3], 8), [0, 1, 1, 1, 0, 1, 1, 1]);
        assert_eq!(first(&[0, 0], 8), []);
    }

    proptest! {
        #[test]
        fn after_as_many_turns_as_all_weights_each_had_its_weight(
            weights in prop::collection::vec(0u32..50, 1..20),
        ) {
            let mut counts = vec![0; weights.len()];
            Turns::new(&weights)
                .take(weights.iter().sum::<u32>() as usize)
                .for_each(|member| counts[member] += 1);
            prop_assert_eq!(counts, weights);
        }

        #[test]
        fn who_goes_changes_nothing_in_the_order_of_the_rest(
            weights in prop::collection::vec(1u32..50, 2..10),
            gone: prop::sample::Index,
        ) {
            let gone = gone.index(weights.len());
            let mut rest = weights.clone();
            rest[gone] = 0;
            let before = Turns::new(&weights).filter(|member| *member != gone).take(500);
            prop_assert!(before.eq(Turns::new(&rest).take(500)));
        }
    }
}
