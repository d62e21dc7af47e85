//! Facts known of a packet on a path through a program, and the tests that they settle.
use super::expr::{Base, Relation, Test};

/// Most answers kept on one path. Dropping some makes a program longer, never wrong.
const LIMIT: usize = 64;

/// Tests with known answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts(Vec<(Test, bool)>);

impl Facts {
    /// These and one more.
    pub(crate) fn with_fact(&self, test: Test, answer: bool) -> Facts {
        let mut facts = self.0.clone();
        if facts.len() == LIMIT {
            // A test that holds settles more later tests than one that fails.
            let least = facts.iter().position(|(_, answer)| !answer).unwrap_or(0);
            facts.remove(least);
        }
        facts.push((test, answer));
        Facts(facts)
    }

    /// The facts known on both paths.
    pub(crate) fn common_facts(&self, other: &Facts) -> Facts {
        Facts(self.0.iter().filter(|fact| other.0.contains(fact)).copied().collect())
    }

    /// The answer to a test, if it is settled.
    pub(crate) fn decide_test(&self, test: &Test) -> Option<bool> {
        if let Some((_, answer)) = self.0.iter().find(|(known, _)| known == test) {
            return Some(*answer);
        }
        let len = self.known_len(test.base);
        let (mask, value) = self.known_bits(test, len);
        if mask & test.mask == test.mask {
            return Some(test.holds_for(value));
        }
        let unequal = (mask & test.mask) & (value ^ test.value) != 0 || self.excludes_test(test);
        // Where the packet is too short for the test, its answer is `short`, whatever the bits.
        let false_when_short = test_end(test) <= len || !test.short;
        (test.relation == Relation::Equal && unequal && false_when_short).then_some(false)
    }

    /// Bytes from `base` that are there for certain: those of tests that were not answered
    /// for being too short.
    fn known_len(&self, base: Base) -> usize {
        let read = |(test, answer): &&(Test, bool)| {
            test.base == base && test.relation == Relation::Equal && *answer != test.short
        };
        self.0.iter().filter(read).map(|(test, _)| test_end(test)).max().unwrap_or(0)
    }

    /// Bits of the word that `test` reads: which are known, and their values.
    fn known_bits(&self, test: &Test, len: usize) -> (u32, u32) {
        let (mut mask, mut value) = (0, 0);
        for (fact, answer) in &self.0 {
            let same_word = fact.base == test.base && fact.offset == test.offset;
            let was_read = *answer != fact.short || test_end(fact) <= len;
            if !same_word || !was_read || fact.relation != Relation::Equal {
                continue;
            }
            if *answer {
                mask |= fact.mask;
                value |= fact.value;
            } else if fact.mask.is_power_of_two() {
                mask |= fact.mask;
                value |= fact.value ^ fact.mask;
            }
        }
        (mask, value)
    }

    /// Whether a weaker test than `test` is known to fail.
    fn excludes_test(&self, test: &Test) -> bool {
        self.0.iter().any(|(fact, answer)| {
            !answer
                && fact.relation == Relation::Equal
                && (fact.base, fact.offset) == (test.base, test.offset)
                && fact.mask & test.mask == fact.mask
                && test.value & fact.mask == fact.value
        })
    }
}

/// Bytes from the base that a test needs.
fn test_end(test: &Test) -> usize {
    usize::from(test.offset) + test.width()
}
