//! What machines find of members together: which are down for all, and whether this machine is drained
//! because it alone does not reach one. Everything that is seen, and the time, are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::revision::{Drained, MemberState, random};
use super::view::Keys;

/// How much longer than health checks may take to find what others have found a machine waits, before it
/// takes for its own fault what it finds alone.
const SLACK: Duration = Duration::from_secs(2);

/// How many machines find a member up, and how many down, of those whose router is reached and checks it.
#[derive(Default)]
struct Votes {
    up: usize,
    down: usize,
}

fn count_votes<'a>(machines: impl Iterator<Item = &'a MemberState>) -> BTreeMap<&'a str, Votes> {
    let mut votes: BTreeMap<&str, Votes> = BTreeMap::new();
    for state in machines.filter(|state| state.is_router_connected) {
        state.up.iter().for_each(|name| votes.entry(name).or_default().up += 1);
        state.down.iter().for_each(|name| votes.entry(name).or_default().down += 1);
    }
    votes
}

fn states(keys: &Keys) -> impl Iterator<Item = &MemberState> {
    keys.machines.values().map(|member| &member.state)
}

/// The members that most machines find down.
pub(super) fn held_down(keys: &Keys) -> BTreeSet<String> {
    let votes = count_votes(states(keys)).into_iter();
    votes.filter(|(_, votes)| votes.down > votes.up).map(|(name, _)| name.to_string()).collect()
}

/// The members that this machine finds down and most of the others up.
fn unreached(keys: &Keys, machine: &str) -> Vec<String> {
    let Some(own) = keys.machines.get(machine).filter(|own| own.state.is_router_connected) else {
        return Vec::new();
    };
    if own.state.down.is_empty() {
        return Vec::new();
    }
    let others = keys.machines.iter().filter(|(name, _)| *name != machine).map(|(_, other)| &other.state);
    let votes = count_votes(others);
    // With the vote of this machine it is not down for all then.
    let is_up = |member: &&String| votes.get(member.as_str()).is_some_and(|votes| votes.up > votes.down);
    own.state.down.iter().filter(is_up).cloned().collect()
}

/// Whether at least half of the machines that live stay announced when this one does not.
fn leaves_enough(keys: &Keys, machine: &str) -> bool {
    let stays = |(name, member): &(&String, &super::revision::Member)| {
        *name != machine && member.is_announced && !keys.drained.machines.contains_key(*name)
    };
    2 * keys.machines.iter().filter(stays).count() >= keys.machines.len()
}

/// Decides whether this machine is drained. What it finds must have lasted, since machines find at different
/// times what became of a member.
#[derive(Default)]
pub(super) struct DrainDecider {
    /// Since when it finds that it should be what it is not.
    since: Option<Instant>,
}

impl DrainDecider {
    /// What the key is to say from now on; none if it is to stay.
    pub(super) fn decide(&mut self, keys: &Keys, machine: &str, now: Instant) -> Option<Drained> {
        let is_drained = keys.drained.machines.contains_key(machine);
        let (unreached, leaves_enough) = (unreached(keys, machine), leaves_enough(keys, machine));
        if is_drained && !leaves_enough {
            self.since = None;
            return Some(changed(keys, machine, None));
        }
        let is_announced = keys.machines.get(machine).is_some_and(|own| own.is_announced);
        let is_wanted = !unreached.is_empty() && leaves_enough && (is_drained || is_announced);
        if is_wanted == is_drained {
            self.since = None;
            return None;
        }
        if now.duration_since(*self.since.get_or_insert(now)) < lasts(keys) {
            return None;
        }
        self.since = None;
        Some(changed(keys, machine, is_wanted.then_some(unreached)))
    }
}

/// How long machines may differ in what they find.
fn lasts(keys: &Keys) -> Duration {
    let longest = states(keys).map(|state| state.detection_ms).max().unwrap_or(0);
    Duration::from_millis(longest.min(MOST_DETECTION_MS)) + SLACK
}

/// Checks are an hour apart at most where a fleet relies on them.
const MOST_DETECTION_MS: u64 = 3_600_000;

/// The same of machines that live, with another state of this one.
fn changed(keys: &Keys, machine: &str, unreached: Option<Vec<String>>) -> Drained {
    let mut machines = keys.drained.machines.clone();
    machines.retain(|name, _| name != machine && keys.machines.contains_key(name));
    machines.extend(unreached.map(|members| (machine.to_string(), members)));
    Drained { id: random(), machines }
}

#[cfg(test)]
mod tests {
    use super::super::revision::Member;
    use super::*;

    const HOLD: Duration = Duration::from_secs(5);

    fn words(names: &str) -> Vec<String> {
        names.split_whitespace().map(String::from).collect()
    }

    /// Machines m1, m2 … that are announced: of each, the members that it finds up, and down.
    fn keys(found: &[(&str, &str)]) -> Keys {
        let mut keys = Keys::default();
        for (number, (up, down)) in (1..).zip(found) {
            let state = MemberState {
                is_router_connected: true,
                up: words(up),
                down: words(down),
                detection_ms: 3000,
                ..MemberState::default()
            };
            keys.machines.insert(format!("m{number}"), Member { run: 1, is_announced: true, state });
        }
        keys
    }

    fn held(found: &[(&str, &str)]) -> Vec<String> {
        held_down(&keys(found)).into_iter().collect()
    }

    /// What a decider says at once, and when it has lasted.
    fn decide(keys: &Keys, machine: &str) -> (Option<Drained>, Option<Drained>) {
        let (mut decider, now) = (DrainDecider::default(), Instant::now());
        let first = decider.decide(keys, machine, now);
        assert_eq!(decider.decide(keys, machine, now + HOLD - Duration::from_millis(1)), None);
        (first, decider.decide(keys, machine, now + HOLD))
    }

    fn drained(decided: Option<Drained>) -> Vec<String> {
        decided.into_iter().flat_map(|drained| drained.machines.into_keys()).collect()
    }

    #[test]
    fn a_member_is_down_for_all_when_more_find_it_down_than_up() {
        assert_eq!(held(&[("a b", ""), ("a", "b"), ("a", "b")]), ["b"]);
        assert_eq!(held(&[("a b", ""), ("a b", ""), ("a", "b")]), Vec::<String>::new());
        assert_eq!(held(&[("a b", ""), ("a", "b")]), Vec::<String>::new(), "one of two are not most");
        assert_eq!(held(&[("", "a b")]), ["a", "b"], "one alone is");
        // A machine that does not check a member has no vote on it.
        assert_eq!(held(&[("a", ""), ("a", "b"), ("a", "")]), ["b"]);
        let mut keys = keys(&[("a", ""), ("a", ""), ("", "a")]);
        for machine in ["m1", "m2"] {
            keys.machines.get_mut(machine).unwrap().state.is_router_connected = false;
        }
        assert!(held_down(&keys).contains("a"), "nor has one whose router is dead");
    }

    #[test]
    fn a_machine_is_drained_once_it_alone_does_not_reach_a_member_for_long_enough() {
        let alone = keys(&[("a", "b"), ("a b", ""), ("a b", "")]);
        let (first, later) = decide(&alone, "m1");
        assert_eq!(first, None);
        assert_eq!(later.unwrap().machines, [("m1".to_string(), words("b"))].into());
        assert_eq!(decide(&alone, "m2").1, None);
        // Most find it down: no one is drained for it.
        assert_eq!(decide(&keys(&[("a", "b"), ("a", "b"), ("a b", "")]), "m1").1, None);
        // Where no other one checks it, no machine knows better.
        assert_eq!(decide(&keys(&[("a", "b"), ("a", ""), ("a", "")]), "m1").1, None);
        // Of two machines one stays, which is half.
        assert_eq!(drained(decide(&keys(&[("a", "b"), ("a b", "")]), "m1").1), ["m1"]);
        let mut decider = DrainDecider::default();
        let now = Instant::now();
        decider.decide(&alone, "m1", now);
        decider.decide(&keys(&[("a b", ""), ("a b", "")]), "m1", now + HOLD / 2);
        assert_eq!(decider.decide(&alone, "m1", now + HOLD), None, "it begins again");
    }

    #[test]
    fn no_machine_is_drained_if_fewer_than_half_would_stay_and_one_that_is_comes_back() {
        let mut both = keys(&[("a", "b"), ("b", "a"), ("a b", ""), ("a b", "")]);
        both.drained.machines.insert("m2".to_string(), words("a"));
        assert_eq!(drained(decide(&both, "m1").1), ["m1", "m2"], "two of four stay");
        both.machines.remove("m4");
        assert_eq!(decide(&both, "m1"), (None, None), "one of three would");
        both.machines.get_mut("m3").unwrap().is_announced = false;
        let first = DrainDecider::default().decide(&both, "m2", Instant::now());
        assert_eq!(first.unwrap().machines, [].into(), "m1 alone stays of three");
        // One that is not announced has nothing to be drained of.
        let mut silent = keys(&[("a", "b"), ("a b", ""), ("a b", "")]);
        silent.machines.get_mut("m1").unwrap().is_announced = false;
        assert_eq!(decide(&silent, "m1").1, None);
    }

    #[test]
    fn a_machine_comes_back_when_it_has_reached_all_for_long_enough_and_forgets_the_dead() {
        let mut well = keys(&[("a b", ""), ("a b", ""), ("a b", "")]);
        well.drained.machines.extend([("m1".to_string(), words("b")), ("m9".to_string(), words("b"))]);
        let (first, later) = decide(&well, "m1");
        assert_eq!(first, None);
        assert_eq!(later.unwrap().machines, [].into());
        // While the rest of the fleet finds the member down, too, the machine is not drained either.
        let mut all = keys(&[("a", "b"), ("a", "b"), ("a", "b")]);
        all.drained.machines.insert("m1".to_string(), words("b"));
        assert_eq!(decide(&all, "m1").1.unwrap().machines, [].into());
    }
}
