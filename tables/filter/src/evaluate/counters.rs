//! What is counted for rules. Each worker has its own; readers add them up.
use super::{Compiled, RuleId};
use crate::facts::Direction;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a worker counts for the rules of a [`Compiled`]. One thread writes, any may read.
#[derive(Debug)]
pub struct Counters {
    rules: Box<[RuleCounters]>,
    /// For each rule the end of its rule set.
    ends: Box<[u32]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct RuleCounters {
    /// Packets of which it was the last rule of its rule set that they came to: those that came to a rule are
    /// the sum from there to the end, modulo 2^64. So a packet is counted once and not for each rule.
    stops: AtomicU64,
    packets: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    created: AtomicU64,
    ended: AtomicU64,
}

/// What was counted for a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTotals {
    /// Packets that came to it: none before ended the evaluation.
    pub evaluations: u64,
    /// Packets that it decided about, and those of its states: in, out.
    pub packets: [u64; 2],
    /// Bytes of these packets: in, out.
    pub bytes: [u64; 2],
    /// States that it made and that are still there.
    pub states: u64,
    /// States that it made.
    pub created: u64,
}

impl Clone for RuleCounters {
    fn clone(&self) -> RuleCounters {
        let copy = |counter: &AtomicU64| AtomicU64::new(counter.load(Relaxed));
        RuleCounters {
            stops: copy(&self.stops),
            packets: self.packets.each_ref().map(copy),
            bytes: self.bytes.each_ref().map(copy),
            created: copy(&self.created),
            ended: copy(&self.ended),
        }
    }
}

/// Adds to a counter that only this thread writes.
fn add_relaxed(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counters {
    /// Counters for the rules of a rule set.
    pub fn new(compiled: &Compiled) -> Counters {
        let rules = compiled.rules();
        let ends = rules.chunk_by(|one, next| one.anchor == next.anchor).scan(0, |end, set| {
            *end += set.len() as u32;
            Some(std::iter::repeat_n(*end, set.len()))
        });
        Counters {
            ends: ends.flatten().collect(),
            rules: rules.iter().map(|_| RuleCounters::default()).collect(),
        }
    }

    /// The same, and those of rules that stay count on: `kept` says which they were before.
    pub(crate) fn inherit_counters(
        compiled: &Compiled,
        before: &Counters,
        kept: &HashMap<RuleId, RuleId>,
    ) -> Counters {
        let mut counters = Counters::new(compiled);
        let (old_evaluations, mut evaluations) = (before.all_evaluations(), vec![0; counters.rules.len()]);
        for (old, new) in kept {
            counters.rules[new.0 as usize] = before.rules[old.0 as usize].clone();
            evaluations[new.0 as usize] = old_evaluations[old.0 as usize];
        }
        for (place, rule) in counters.rules.iter_mut().enumerate() {
            let next = place + 1;
            let behind = if next < counters.ends[place] as usize { evaluations[next] } else { 0 };
            rule.stops = evaluations[place].wrapping_sub(behind).into();
        }
        counters
    }

    /// Counts a packet for all rules of a rule set up to this one.
    #[inline]
    pub(super) fn add_evaluations(&self, last: RuleId) {
        add_relaxed(&self.rules[last.0 as usize].stops, 1);
    }

    /// The evaluations of all rules, in one pass: a worker does this where others may wait for it.
    fn all_evaluations(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.rules.iter().map(|rule| rule.stops.load(Relaxed)).collect();
        for place in (1..all.len()).rev().filter(|place| self.ends[place - 1] == self.ends[*place]) {
            all[place - 1] = all[place - 1].wrapping_add(all[place]);
        }
        all
    }

    fn evaluation_count(&self, id: RuleId) -> u64 {
        let behind = &self.rules[id.0 as usize..self.ends[id.0 as usize] as usize];
        behind.iter().fold(0, |sum, rule| sum.wrapping_add(rule.stops.load(Relaxed)))
    }

    /// Counts a packet of a rule.
    #[inline]
    pub fn add_packet(&self, id: RuleId, direction: Direction, length: u32) {
        self.add_packets(id, direction, 1, length.into());
    }

    /// Counts packets of a rule.
    #[inline]
    pub(crate) fn add_packets(&self, id: RuleId, direction: Direction, packets: u64, bytes: u64) {
        let counters = &self.rules[id.0 as usize];
        add_relaxed(&counters.packets[direction.index()], packets);
        add_relaxed(&counters.bytes[direction.index()], bytes);
    }

    /// Counts a state that a rule made.
    pub fn add_state(&self, id: RuleId) {
        add_relaxed(&self.rules[id.0 as usize].created, 1);
    }

    /// Counts a state that ended.
    pub fn end_state(&self, id: RuleId) {
        add_relaxed(&self.rules[id.0 as usize].ended, 1);
    }

    /// Counts from nothing; states that are there stay counted. For the thread that writes.
    pub fn clear(&self) {
        for counters in &self.rules {
            let ended = counters.ended.load(Relaxed).wrapping_sub(counters.created.load(Relaxed));
            let others = [&counters.stops, &counters.created];
            let ways = counters.packets.iter().chain(&counters.bytes);
            others.into_iter().chain(ways).for_each(|counter| counter.store(0, Relaxed));
            counters.ended.store(ended, Relaxed);
        }
    }

    /// What all workers counted for a rule.
    pub fn sum_rule<'a>(workers: impl IntoIterator<Item = &'a Counters>, id: RuleId) -> RuleTotals {
        let mut total = RuleTotals::default();
        for worker in workers {
            let Some(counters) = worker.rules.get(id.0 as usize) else { continue };
            let read = |counter: &AtomicU64| counter.load(Relaxed);
            total.evaluations = total.evaluations.wrapping_add(worker.evaluation_count(id));
            for way in 0..2 {
                total.packets[way] += read(&counters.packets[way]);
                total.bytes[way] += read(&counters.bytes[way]);
            }
            total.created += read(&counters.created);
            total.states =
                total.states.wrapping_add(read(&counters.created)).wrapping_sub(read(&counters.ended));
        }
        total
    }
}

impl RuleTotals {
    /// The lines that `pfctl -v -s rules` shows below a rule.
    pub fn format_lines(&self, (user, process): (u32, u32)) -> String {
        self.first_line()
            + &format!("  [ Inserted: uid {user} pid {process} State Creations: {:<6}]\n", self.created)
    }

    /// The first of them, which is all that `-g` shows.
    pub fn first_line(&self) -> String {
        let (packets, bytes) = (self.packets[0] + self.packets[1], self.bytes[0] + self.bytes[1]);
        format!(
            "  [ Evaluations: {:<8}  Packets: {packets:<8}  Bytes: {bytes:<10}  States: {:<6}]\n",
            self.evaluations, self.states,
        )
    }

    /// The line that `pfctl -s labels` shows for a rule with a label.
    pub fn label_line(&self, label: &str) -> String {
        let (packets, bytes) = (self.packets[0] + self.packets[1], self.bytes[0] + self.bytes[1]);
        let [packets_in, packets_out] = self.packets;
        let [bytes_in, bytes_out] = self.bytes;
        format!(
            "{label} {} {packets} {bytes} {packets_in} {bytes_in} {packets_out} {bytes_out} {}\n",
            self.evaluations, self.created,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_sum_of_all_workers_and_states_may_end_elsewhere() {
        let rules = || Box::new([(); 3].map(|()| RuleCounters::default()));
        let counters = [(); 2].map(|()| Counters { rules: rules(), ends: Box::new([2, 2, 3]) });
        let id = RuleId(1);
        counters[0].add_packet(id, Direction::In, 100);
        counters[1].add_packet(id, Direction::Out, 50);
        counters[0].add_state(id);
        counters[0].add_state(id);
        counters[1].end_state(id);
        [RuleId(0), id, RuleId(2)].iter().for_each(|last| counters[1].add_evaluations(*last));
        assert_eq!(Counters::sum_rule(&counters, RuleId(0)).evaluations, 2, "it comes before the second");
        assert_eq!(counters[1].all_evaluations(), [2, 1, 1]);
        let total = Counters::sum_rule(&counters, id);
        let expected =
            RuleTotals { evaluations: 1, packets: [1, 1], bytes: [100, 50], states: 1, created: 2 };
        assert_eq!(total, expected);
        let text = "  [ Evaluations: 1         Packets: 2         Bytes: 150         States: 1     ]\n\
                    \u{20} [ Inserted: uid 0 pid 7 State Creations: 2     ]\n";
        assert_eq!(total.format_lines((0, 7)), text);
        assert_eq!(total.label_line("web"), "web 1 2 150 1 100 1 50 2\n");
    }
}
