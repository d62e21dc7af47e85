//! How flows are shared out among next hops: slots, each with one of the members.
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Most next hops of a route.
pub const MOST_MEMBERS: usize = 128;
/// Most slots where weights ask for more; also the most buckets of a route.
pub const MOST_SLOTS: u16 = 1024;
/// Number of steps in which a member takes its share back.
const STEPS: usize = 16;

/// How many of `slots` each member gets by its weight: none where that is zero, else at least one, and as
/// close to its part of the sum as whole numbers come.
pub fn slot_shares(weights: &[u32], slots: usize) -> Vec<usize> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let part = |weight: u32| u64::from(weight) * slots as u64;
    let mut shares: Vec<usize> = weights
        .iter()
        .map(|weight| if *weight == 0 { 0 } else { (part(*weight) / sum).max(1) as usize })
        .collect();
    // What is over or missing goes to, or is taken from, whom that brings nearest to its part.
    let lack = |at: usize, share: usize| part(weights[at]) as i128 - share as i128 * i128::from(sum);
    let lacks: Vec<_> = (0..weights.len()).map(|at| (lack(at, shares[at]), at)).collect();
    let mut total: usize = shares.iter().sum();
    if total < slots {
        let mut takers: BinaryHeap<_> = lacks.into_iter().filter(|(_, at)| weights[*at] > 0).collect();
        while total < slots
            && let Some(mut taker) = takers.peek_mut()
        {
            (shares[taker.1], total) = (shares[taker.1] + 1, total + 1);
            taker.0 -= i128::from(sum);
        }
    } else {
        let mut givers: BinaryHeap<_> = lacks.into_iter().map(Reverse).collect();
        while total > slots
            && let Some(Reverse((lack, at))) = givers.pop()
        {
            if shares[at] > 1 {
                (shares[at], total) = (shares[at] - 1, total - 1);
                givers.push(Reverse((lack + i128::from(sum), at)));
            }
        }
    }
    shares
}

/// The fewest slots that show the weights exactly, side by side; [`MOST_SLOTS`] where those would be more.
pub fn by_weight(weights: &[u32]) -> Vec<u16> {
    let divisor = weights.iter().fold(0, |a, b| greatest_divisor(a, *b)).max(1);
    let sum: u64 = weights.iter().map(|weight| u64::from(weight / divisor)).sum();
    let slots = sum.min(MOST_SLOTS.into()) as usize;
    let shares = slot_shares(weights, slots).into_iter().enumerate();
    shares.flat_map(|(member, share)| std::iter::repeat_n(member as u16, share)).collect()
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Slots that stay with their members as long as those live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    owners: Vec<u16>,
    /// When the next step is due by which members take their shares back, and how much it moves.
    step: Option<(Duration, usize)>,
}

/// When members that come, or come back, take their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comeback {
    /// They take their whole share at once.
    AtOnce,
    /// Step by step, all within this time.
    Over(Duration),
    /// When the operator asks for it.
    OnRequest,
}

/// The owner of a bucket that has none; no member has this number.
const NOBODY: u16 = u16::MAX;

impl Buckets {
    /// Buckets shared out by weight. A member that is dead has weight 0.
    pub fn new(count: impl Into<usize>, weights: &[u32]) -> Buckets {
        let mut buckets = Buckets { owners: vec![NOBODY; count.into().max(1)], step: None };
        buckets.fill_vacant(weights);
        buckets
    }

    /// The buckets of a group whose members were others: `member` says which of the new ones an old one is.
    pub fn successor_buckets(&self, member: impl Fn(u16) -> Option<u16>, weights: &[u32]) -> Buckets {
        let owners = self.owners.iter().map(|old| member(*old).unwrap_or(NOBODY)).collect();
        let mut buckets = Buckets { owners, step: None };
        buckets.fill_vacant(weights);
        buckets
    }

    /// By bucket: which member has it.
    pub fn owners(&self) -> &[u16] {
        &self.owners
    }

    /// Gives the buckets of members that are dead, and no others, to those that lack most of their share.
    /// Says how many were given.
    pub fn fill_vacant(&mut self, weights: &[u32]) -> usize {
        let lives = |owner: u16| weights.get(usize::from(owner)).is_some_and(|weight| *weight > 0);
        let vacant: Vec<usize> = (0..self.owners.len()).filter(|at| !lives(self.owners[*at])).collect();
        let lacks = self.missing_counts(weights).into_iter().enumerate();
        let mut successors: BinaryHeap<(isize, u16)> =
            lacks.map(|(member, lack)| (lack, member as u16)).filter(|(_, member)| lives(*member)).collect();
        for at in &vacant {
            let Some(mut successor) = successors.peek_mut() else { break };
            self.owners[*at] = successor.1;
            successor.0 -= 1;
        }
        vacant.len()
    }

    /// Moves at most `most` buckets from members that have more than their share to those that have less,
    /// and says how many.
    pub fn balance_buckets(&mut self, weights: &[u32], most: usize) -> usize {
        self.balance_where(weights, most, |_| true)
    }

    /// The same, of those buckets alone that `may_move`.
    pub fn balance_where(
        &mut self,
        weights: &[u32],
        most: usize,
        mut may_move: impl FnMut(usize) -> bool,
    ) -> usize {
        let mut lacks = self.missing_counts(weights);
        let (mut moved, mut taker) = (0, 0);
        for (at, owner) in self.owners.iter_mut().enumerate() {
            let Some(ahead) = lacks[taker..].iter().position(|lack| *lack > 0).filter(|_| moved < most)
            else {
                break;
            };
            taker += ahead;
            let Some(lack) = lacks.get_mut(usize::from(*owner)).filter(|lack| **lack < 0) else { continue };
            if !may_move(at) {
                continue;
            }
            *lack += 1;
            lacks[taker] -= 1;
            *owner = taker as u16;
            moved += 1;
        }
        moved
    }

    /// How many buckets are with members that have more than their share.
    pub fn misplaced_count(&self, weights: &[u32]) -> usize {
        self.missing_counts(weights).into_iter().map(|lack| lack.max(0) as usize).sum()
    }

    /// Does the step that is due and says when the next one is, and whether buckets have moved.
    pub fn poll(&mut self, weights: &[u32], comeback: Comeback, now: Duration) -> (Option<Duration>, bool) {
        let missing = self.misplaced_count(weights);
        let every = match comeback {
            Comeback::Over(time) if missing > 0 => time / STEPS as u32,
            Comeback::Over(_) | Comeback::AtOnce | Comeback::OnRequest => {
                self.step = None;
                return (None, false);
            }
        };
        let (due, size) = *self.step.get_or_insert((now + every, missing.div_ceil(STEPS)));
        if now < due {
            return (Some(due), false);
        }
        self.balance_buckets(weights, size);
        self.step = (size < missing).then_some((now + every, size));
        (self.step.map(|(due, _)| due), true)
    }

    /// How many buckets each member has too few.
    fn missing_counts(&self, weights: &[u32]) -> Vec<isize> {
        let mut lacks: Vec<isize> =
            slot_shares(weights, self.owners.len()).into_iter().map(|share| share as isize).collect();
        for owner in &self.owners {
            if let Some(lack) = lacks.get_mut(usize::from(*owner)) {
                *lack -= 1;
            }
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(owners: &[u16], members: usize) -> Vec<usize> {
        (0..members)
            .map(|member| owners.iter().filter(|owner| usize::from(**owner) == member).count())
            .collect()
    }

    #[test]
    fn slots_show_weights_exactly_where_they_can() {
        assert_eq!(by_weight(&[1]), [0]);
        assert_eq!(by_weight(&[10, 20, 10]), [0, 1, 1, 2]);
        assert_eq!(by_weight(&[0, 7, 0]), [1]);
        assert_eq!(by_weight(&[0, 0]), []);
        assert_eq!(counts(&by_weight(&[1, 1_000_000]), 2), [1, 1023]);
    }

    #[test]
    fn only_buckets_of_the_dead_change_hands() {
        let mut buckets = Buckets::new(128usize, &[1, 2, 5]);
        let before = buckets.clone();
        assert_eq!(counts(buckets.owners(), 3), [16, 32, 80]);
        assert_eq!(buckets.fill_vacant(&[1, 0, 5]), 32);
        assert_eq!(counts(buckets.owners(), 3), [21, 0, 107]);
        for (old, new) in before.owners().iter().zip(buckets.owners()) {
            assert!(old == new || *old == 1);
        }
    }

    #[test]
    fn who_comes_back_takes_its_share_step_by_step() {
        let mut buckets = Buckets::new(128usize, &[1, 0, 1]);
        let (weights, comeback) = ([1, 2, 1], Comeback::Over(Duration::from_secs(16)));
        let (mut now, mut sizes) = (Duration::ZERO, Vec::new());
        loop {
            let (due, moved) = buckets.poll(&weights, comeback, now);
            sizes.push(counts(buckets.owners(), 3)[1]);
            assert_eq!(moved, now > Duration::ZERO);
            let Some(due) = due else { break };
            now = due;
        }
        assert_eq!(now, Duration::from_secs(16));
        assert_eq!(sizes, (0..=16).map(|step| step * 4).collect::<Vec<_>>());
        assert_eq!(buckets.poll(&weights, comeback, now), (None, false));
    }

    #[test]
    fn on_request_nothing_moves_by_itself() {
        let mut buckets = Buckets::new(100usize, &[1, 0]);
        assert_eq!(buckets.poll(&[1, 1], Comeback::OnRequest, Duration::from_secs(99)), (None, false));
        assert_eq!(buckets.balance_buckets(&[1, 1], usize::MAX), 50);
        assert_eq!(counts(buckets.owners(), 2), vec![50, 50]);
        assert_eq!((buckets.balance_buckets(&[1, 3], 10), counts(buckets.owners(), 2)), (10, vec![40, 60]));
    }

    #[test]
    fn an_heir_keeps_the_buckets_of_members_that_stay() {
        let old = Buckets::new(120usize, &[1, 1, 1]);
        // Member 0 is gone, 1 and 2 are now 1 and 0, and there is another one.
        let new = old.successor_buckets(|member| [None, Some(1), Some(0)][usize::from(member)], &[1, 1, 1]);
        assert_eq!(counts(new.owners(), 3), [40, 40, 40]);
        assert!(old.owners().iter().zip(new.owners()).all(|(old, new)| match old {
            0 => *new == 2,
            old => *new == 2 - old.min(&2) || *new == 3 - old,
        }));
    }

    proptest! {
        #[test]
        fn shares_add_up_and_are_close_to_the_weights(
            weights in prop::collection::vec(0u32..1_000_000, 1..100),
            slots in 100usize..1024,
        ) {
            let (shares, sum) =
                (slot_shares(&weights, slots), weights.iter().map(|w| f64::from(*w)).sum::<f64>());
            if sum > 0.0 {
                prop_assert_eq!(shares.iter().sum::<usize>(), slots);
            }
            for (share, weight) in shares.iter().zip(&weights) {
                prop_assert_eq!(*share > 0, *weight > 0);
                // A member that would have less than one has one, which the others pay for.
                let exact = f64::from(*weight) * slots as f64 / sum.max(1.0);
                prop_assert!(*share as f64 <= exact + 1.0 || *share == 1);
            }
        }

        #[test]
        fn each_slot_that_is_over_or_missing_is_whose_part_is_farthest(
            weights in prop::collection::vec(prop_oneof![0u32..5, any::<u32>()], 1..20),
            slots in 1usize..64,
        ) {
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            let part = |at: usize| u64::from(weights[at]) * slots as u64;
            let least = |at: usize| if weights[at] == 0 { 0 } else { (part(at) / sum).max(1) as usize };
            let mut expected: Vec<usize> = (0..weights.len()).map(least).collect();
            loop {
                let lack = |at: &usize| i128::from(part(*at)) - expected[*at] as i128 * i128::from(sum);
                let (total, all) = (expected.iter().sum::<usize>(), 0..weights.len());
                let (taker, giver) = (
                    all.clone().filter(|at| total < slots && weights[*at] > 0).max_by_key(lack),
                    all.filter(|at| total > slots && expected[*at] > 1).min_by_key(lack),
                );
                match (taker, giver) {
                    (Some(at), _) => expected[at] += 1,
                    (_, Some(at)) => expected[at] -= 1,
                    _ => break,
                }
            }
            prop_assert_eq!(slot_shares(&weights, slots), expected);
        }

        #[test]
        fn buckets_always_belong_to_the_living_and_balance_in_the_end(
            changes in prop::collection::vec(prop::collection::vec(0u32..4, 5), 1..20),
        ) {
            let mut buckets = Buckets::new(64usize, &[1; 5]);
            for weights in changes {
                buckets.fill_vacant(&weights);
                if weights.iter().any(|weight| *weight > 0) {
                    prop_assert!(buckets.owners().iter().all(|owner| weights[usize::from(*owner)] > 0));
                    buckets.balance_buckets(&weights, usize::MAX);
                    prop_assert_eq!(counts(buckets.owners(), 5), slot_shares(&weights, 64));
                }
            }
        }
    }
}
