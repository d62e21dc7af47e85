//! What is known of the other machines: how far their changes were read, whether all of their exceptions
//! must be fetched, and what was refused.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config::MOST_PEERS;
use crate::envelope::{Envelope, Refusal};
use crate::owner::Owner;

/// A machine that is silent for so long is absent: it says something each second.
const ABSENT_AFTER: Duration = Duration::from_secs(5);
/// A machine that is silent for so long is forgotten, so that renamed ones don't fill the list.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The pause after a fetch that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Senders of refused messages that are named in the log; those of others are counted only.
const MOST_NAMED: usize = 64;

pub(crate) struct Peers {
    own_name: String,
    refresh: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    machines: BTreeMap<String, Machine>,
    refused: BTreeMap<Refusal, u64>,
    named: HashSet<(String, Refusal)>,
    /// Whether a machine was heard for the first time, or of another run, since it was asked.
    has_newcomer: bool,
}

struct Machine {
    run: u64,
    /// The number of the last changes.
    last: u64,
    /// The number of the last changes of this run that the router has taken.
    applied: u64,
    /// Whether a fetch brought all of this run, and nothing was lost since it began.
    is_whole: bool,
    /// Whether a fetch that began since all were requested did not bring all.
    has_fallen_short: bool,
    /// When all were requested.
    requested: Instant,
    heard: Instant,
    /// Said by its messages since it was asked to leave.
    leaves: bool,
    missed: u64,
    records: u64,
    lag: Lag,
    fetch: Fetch,
    /// When the last fetch began by which all of the machine's exceptions of this run came.
    fetched: Option<Instant>,
    fetches: u64,
    failed_fetches: u64,
}

/// From when a message came until the router had its records.
#[derive(Default)]
struct Lag {
    last: Duration,
    longest: Duration,
}

/// Whether all exceptions of a machine are fetched.
enum Fetch {
    /// As soon as this time has come.
    Due(Instant),
    /// It is under way; whether changes were lost since it began.
    Running { since: Instant, is_due_again: bool },
}

impl Machine {
    fn new(run: u64, now: Instant) -> Machine {
        Machine {
            run,
            last: 0,
            applied: 0,
            is_whole: false,
            has_fallen_short: false,
            requested: now,
            heard: now,
            leaves: false,
            missed: 0,
            records: 0,
            lag: Lag::default(),
            fetch: Fetch::Due(now),
            fetched: None,
            fetches: 0,
            failed_fetches: 0,
        }
    }

    fn is_present(&self, now: Instant) -> bool {
        now.duration_since(self.heard) < ABSENT_AFTER
    }

    fn request_fetch(&mut self, now: Instant) {
        self.is_whole = false;
        match &mut self.fetch {
            Fetch::Due(at) => *at = (*at).min(now),
            Fetch::Running { is_due_again, .. } => *is_due_again = true,
        }
    }
}

/// A machine whose heartbeat is heard, for one that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joining {
    pub(crate) machine: String,
    /// Whether the router has all of its exceptions.
    pub(crate) is_whole: bool,
    /// Whether a fetch of it has failed since all were requested, and none is under way.
    pub(crate) has_fallen_short: bool,
}

/// A machine whose heartbeat is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Living {
    pub(crate) owner: Owner,
    /// How long ago the last fetch began by which all of its exceptions came.
    pub(crate) fetched: Option<Duration>,
}

impl Peers {
    pub(crate) fn new(own_name: &str, refresh: Duration) -> Peers {
        Peers { own_name: own_name.to_string(), refresh, state: Mutex::default() }
    }

    /// Records that changes came from a machine. Of two processes of one name the one that started later
    /// counts, for as long as it sends.
    pub(crate) fn note_changes(&self, name: &str, envelope: &Envelope, now: Instant) -> Result<(), Refusal> {
        if name == self.own_name {
            return Err(Refusal::OwnName);
        }
        let State { machines, has_newcomer, .. } = &mut *self.lock();
        machines.retain(|_, machine| now.duration_since(machine.heard) < FORGOTTEN_AFTER);
        if !machines.contains_key(name) && machines.len() >= MOST_PEERS {
            return Err(Refusal::TooManyMachines);
        }
        let is_known = machines.get(name).is_some_and(|machine| machine.run == envelope.run);
        let machine = machines.entry(name.to_string()).or_insert_with(|| Machine::new(envelope.run, now));
        // Once it is absent, a clock that was set back may be the reason.
        if envelope.run < machine.run && machine.is_present(now) {
            return Err(Refusal::SameName);
        }
        *has_newcomer |= !is_known;
        if envelope.run != machine.run {
            (machine.run, machine.last, machine.fetched) = (envelope.run, 0, None);
            machine.applied = 0;
            machine.request_fetch(now);
        } else if machine.last > 0 {
            let missing = envelope.number.checked_sub(machine.last).and_then(|step| step.checked_sub(1));
            let missing = missing.ok_or(Refusal::Replayed)?;
            if missing > 0 {
                machine.missed = machine.missed.saturating_add(missing);
                machine.request_fetch(now);
            }
        }
        (machine.heard, machine.last, machine.leaves) = (now, envelope.number, envelope.leaves);
        Ok(())
    }

    /// Whether a machine was heard since the last call that may not have heard this one.
    pub(crate) fn take_newcomer(&self) -> bool {
        std::mem::take(&mut self.lock().has_newcomer)
    }

    /// Has all exceptions of a machine fetched, since some that came could not be kept.
    pub(crate) fn request_fetch(&self, name: &str, now: Instant) {
        if let Some(machine) = self.lock().machines.get_mut(name) {
            machine.request_fetch(now);
        }
    }

    /// The same of all machines, since the router has none of them any more.
    pub(crate) fn request_all(&self, now: Instant) {
        for machine in self.lock().machines.values_mut() {
            machine.request_fetch(now);
            (machine.has_fallen_short, machine.requested) = (false, now);
        }
    }

    /// The machines that are present, as one that joins must know them.
    pub(crate) fn joining(&self, now: Instant) -> Vec<Joining> {
        let state = self.lock();
        let present = state.machines.iter().filter(|(_, machine)| machine.is_present(now));
        let joining = present.map(|(name, machine)| Joining {
            machine: name.clone(),
            is_whole: machine.is_whole,
            has_fallen_short: machine.has_fallen_short && !matches!(machine.fetch, Fetch::Running { .. }),
        });
        joining.collect()
    }

    /// Whether the router has all that a run of a machine said up to a number.
    pub(crate) fn has_all(&self, name: &str, run: u64, number: u64) -> bool {
        let state = self.lock();
        let has = |machine: &Machine| machine.run == run && machine.is_whole && machine.applied >= number;
        state.machines.get(name).is_some_and(has)
    }

    /// Machines whose exceptions are to be fetched now. None is returned again before
    /// [`finish_fetch`](Self::finish_fetch) was called for it.
    pub(crate) fn begin_fetches(&self, now: Instant) -> Vec<String> {
        let mut begun = Vec::new();
        for (name, machine) in &mut self.lock().machines {
            if machine.is_present(now) && matches!(machine.fetch, Fetch::Due(at) if at <= now) {
                machine.fetch = Fetch::Running { since: now, is_due_again: false };
                begun.push(name.clone());
            }
        }
        begun
    }

    /// Whether a machine was heard lately enough to be remembered.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.lock().machines.contains_key(name)
    }

    pub(crate) fn is_fetching(&self, name: &str) -> bool {
        let state = self.lock();
        state.machines.get(name).is_some_and(|machine| matches!(machine.fetch, Fetch::Running { .. }))
    }

    /// The machines that are present.
    pub(crate) fn living(&self, now: Instant) -> Vec<Living> {
        let state = self.lock();
        let present = state.machines.iter().filter(|(_, machine)| machine.is_present(now));
        let living = present.map(|(name, machine)| Living {
            owner: Owner { machine: name.clone(), run: machine.run },
            fetched: machine.fetched.map(|since| now.duration_since(since)),
        });
        living.collect()
    }

    /// Whether an owner of flows is present.
    pub(crate) fn lives(&self, owner: &Owner, now: Instant) -> bool {
        let state = self.lock();
        let lives = |machine: &Machine| machine.run == owner.run && machine.is_present(now);
        state.machines.get(&owner.machine).is_some_and(lives)
    }

    /// Whether all exceptions of an owner came from itself, and it is present.
    pub(crate) fn is_known_firsthand(&self, owner: &Owner, now: Instant) -> bool {
        self.lives(owner, now) && self.has_all(&owner.machine, owner.run, 0)
    }

    /// The machines that are present and do not leave, and their runs.
    pub(crate) fn staying(&self, now: Instant) -> Vec<(String, u64)> {
        let state = self.lock();
        let staying = state.machines.iter().filter(|(_, machine)| machine.is_present(now) && !machine.leaves);
        staying.map(|(name, machine)| (name.clone(), machine.run)).collect()
    }

    /// A fetch ended, and all has come or not.
    pub(crate) fn finish_fetch(&self, name: &str, is_complete: bool, now: Instant) {
        let refresh = self.refresh;
        let mut state = self.lock();
        let Some(machine) = state.machines.get_mut(name) else { return };
        let (since, is_due_again) = match machine.fetch {
            Fetch::Running { since, is_due_again } => (since, is_due_again),
            Fetch::Due(_) => return,
        };
        // One that was fetched while its router was started again is fetched once more.
        if is_complete && !is_due_again {
            (machine.fetched, machine.is_whole) = (Some(since), true);
        }
        machine.has_fallen_short |= since >= machine.requested && (!is_complete || is_due_again);
        machine.fetches += u64::from(is_complete);
        machine.failed_fetches += u64::from(!is_complete);
        machine.fetch = Fetch::Due(match (is_complete, is_due_again) {
            (false, _) => now + RETRY_AFTER,
            (true, true) => now,
            (true, false) => now + refresh,
        });
    }

    /// The router has taken the changes of a run up to a number, unless some of them were lost.
    pub(crate) fn note_applied(&self, name: &str, run: u64, number: u64) {
        let mut state = self.lock();
        if let Some(machine) = state.machines.get_mut(name).filter(|machine| machine.run == run) {
            machine.applied = machine.applied.max(number);
        }
    }

    /// The router has taken records of a machine, so long after they came.
    pub(crate) fn note_imported(&self, name: &str, records: u64, lag: Duration) {
        if let Some(machine) = self.lock().machines.get_mut(name) {
            machine.records += records;
            machine.lag.last = lag;
            machine.lag.longest = machine.lag.longest.max(lag);
        }
    }

    /// Counts what is refused; names each sender and reason once.
    pub(crate) fn refuse(&self, sender: &str, refusal: Refusal) {
        let mut state = self.lock();
        *state.refused.entry(refusal).or_default() += 1;
        let is_new = state.named.len() < MOST_NAMED && state.named.insert((sender.to_string(), refusal));
        drop(state);
        if is_new {
            eprintln!("artery-fleet: a message of {sender} is refused: {}", refusal.explanation());
        }
    }

    pub(crate) fn report(&self, now: Instant) -> (Vec<PeerReport>, BTreeMap<String, u64>) {
        let state = self.lock();
        let machines = state.machines.iter().map(|(name, machine)| PeerReport::new(name, machine, now));
        let refused = Refusal::ALL.into_iter();
        let refused =
            refused.map(|reason| (reason.name().into(), state.refused.get(&reason).copied().unwrap_or(0)));
        (machines.collect(), refused.collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine in the status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerReport {
    pub(crate) machine: String,
    pub(crate) is_present: bool,
    /// Since its last message.
    pub(crate) silent_ms: u64,
    pub(crate) records: u64,
    pub(crate) missed_batches: u64,
    pub(crate) fetches: u64,
    pub(crate) failed_fetches: u64,
    /// Whether all that it said is known: nothing is missing that must be fetched.
    pub(crate) is_complete: bool,
    pub(crate) last_lag_ms: f64,
    pub(crate) longest_lag_ms: f64,
}

impl PeerReport {
    fn new(name: &str, machine: &Machine, now: Instant) -> PeerReport {
        let silent = now.duration_since(machine.heard);
        let milliseconds = |time: Duration| time.as_micros() as f64 / 1000.0;
        PeerReport {
            machine: name.to_string(),
            is_present: silent < ABSENT_AFTER,
            silent_ms: silent.as_millis() as u64,
            records: machine.records,
            missed_batches: machine.missed,
            fetches: machine.fetches,
            failed_fetches: machine.failed_fetches,
            is_complete: machine.is_whole,
            last_lag_ms: milliseconds(machine.lag.last),
            longest_lag_ms: milliseconds(machine.lag.longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Kind;

    const REFRESH: Duration = Duration::from_secs(45);

    fn changes(run: u64, number: u64) -> Envelope {
        Envelope { kind: Kind::Changes, run, number, leaves: false }
    }

    /// Peers of m1, which has fetched all of m2 up to batch 7.
    fn peers(now: Instant) -> Peers {
        let peers = Peers::new("m1", REFRESH);
        peers.note_changes("m2", &changes(1, 7), now).unwrap();
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.finish_fetch("m2", true, now);
        assert!(peers.begin_fetches(now).is_empty());
        peers
    }

    #[test]
    fn a_machine_that_comes_is_fetched_once_and_again_to_refresh_idle_times() {
        let now = Instant::now();
        let peers = peers(now);
        let later = now + REFRESH;
        peers.note_changes("m2", &changes(1, 8), later).unwrap();
        assert_eq!(peers.begin_fetches(later), ["m2"]);
        assert!(peers.begin_fetches(later).is_empty());
    }

    #[test]
    fn missing_batches_and_a_new_run_have_all_fetched_again() {
        let now = Instant::now();
        let peers = peers(now);
        peers.note_changes("m2", &changes(1, 8), now).unwrap();
        assert!(peers.begin_fetches(now).is_empty());
        peers.note_changes("m2", &changes(1, 11), now).unwrap();
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        // More are lost while it is fetched: once more.
        peers.note_changes("m2", &changes(1, 13), now).unwrap();
        peers.finish_fetch("m2", true, now);
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.finish_fetch("m2", true, now);
        peers.note_changes("m2", &changes(2, 1), now).unwrap();
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        let (reports, _) = peers.report(now);
        assert_eq!((reports[0].missed_batches, reports[0].fetches), (3, 3));
    }

    #[test]
    fn batches_that_come_again_are_refused_and_no_number_is_too_great() {
        let now = Instant::now();
        let peers = peers(now);
        for number in [0, 1, 7] {
            assert_eq!(
                peers.note_changes("m2", &changes(1, number), now),
                Err(Refusal::Replayed),
                "{number}"
            );
        }
        for number in [u64::MAX - 1, u64::MAX] {
            assert_eq!(peers.note_changes("m2", &changes(1, number), now), Ok(()));
        }
        assert_eq!(peers.note_changes("m2", &changes(1, u64::MAX), now), Err(Refusal::Replayed));
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        assert_eq!(peers.report(now).0[0].missed_batches, u64::MAX - 9);
    }

    #[test]
    fn of_two_machines_of_one_name_the_later_one_counts_until_it_is_silent() {
        let now = Instant::now();
        let peers = peers(now);
        assert!(peers.take_newcomer());
        peers.note_changes("m2", &changes(3, 1), now).unwrap();
        assert!(peers.take_newcomer());
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.finish_fetch("m2", true, now);
        for number in 8..20 {
            assert_eq!(peers.note_changes("m2", &changes(1, number), now), Err(Refusal::SameName));
            peers.note_changes("m2", &changes(3, number - 6), now).unwrap();
        }
        assert!(peers.begin_fetches(now).is_empty(), "the other one causes no fetch");
        assert!(!peers.take_newcomer(), "and no greeting");
        let later = now + ABSENT_AFTER;
        assert_eq!(peers.note_changes("m2", &changes(1, 20), later), Ok(()));
        assert_eq!(peers.begin_fetches(later), ["m2"]);
    }

    #[test]
    fn a_machine_lives_while_it_is_heard_and_its_run_has_the_time_of_its_own_fetches() {
        let now = Instant::now();
        let peers = peers(now);
        let owner = |run| Owner { machine: "m2".to_string(), run };
        let living = |run, fetched| Living { owner: owner(run), fetched };
        let later = now + Duration::from_secs(3);
        assert_eq!(peers.living(later), [living(1, Some(Duration::from_secs(3)))]);
        assert!(peers.living(now + ABSENT_AFTER).is_empty());
        // Its router starts again, and the fetch under way was of the old one's flows.
        peers.request_fetch("m2", later);
        assert!(!peers.is_fetching("m2"));
        assert_eq!(peers.begin_fetches(later), ["m2"]);
        assert!(peers.is_fetching("m2"));
        peers.note_changes("m2", &changes(2, 8), later).unwrap();
        peers.finish_fetch("m2", true, later);
        assert_eq!(peers.living(later), [living(2, None)]);
        assert_eq!(peers.begin_fetches(later), ["m2"]);
        peers.finish_fetch("m2", true, later);
        assert_eq!(peers.living(later), [living(2, Some(Duration::ZERO))]);
        assert!(peers.lives(&owner(2), later) && !peers.lives(&owner(1), later));
        assert!(peers.is_known_firsthand(&owner(2), later));
        peers.request_fetch("m2", later);
        assert!(peers.lives(&owner(2), later) && !peers.is_known_firsthand(&owner(2), later));
        assert!(!peers.lives(&owner(2), later + ABSENT_AFTER));
    }

    #[test]
    fn a_fetch_that_failed_is_repeated_after_a_pause_and_none_is_begun_of_a_silent_machine() {
        let now = Instant::now();
        let peers = peers(now);
        peers.request_all(now);
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.finish_fetch("m2", false, now);
        assert!(peers.begin_fetches(now).is_empty());
        assert!(!peers.report(now + RETRY_AFTER).0[0].is_complete);
        assert_eq!(peers.begin_fetches(now + RETRY_AFTER), ["m2"]);
        peers.finish_fetch("m2", false, now);
        assert!(peers.begin_fetches(now + ABSENT_AFTER).is_empty());
    }

    #[test]
    fn a_machine_falls_short_by_a_fetch_that_began_after_all_were_requested_and_until_it_is_fetched_again() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let peers = peers(now);
        let falls_short = |at| peers.joining(at)[0].has_fallen_short;
        assert_eq!(peers.begin_fetches(later(2)), Vec::<String>::new());
        peers.request_all(later(2));
        assert_eq!(peers.begin_fetches(later(2)), ["m2"]);
        // The router is started again.
        peers.request_all(later(3));
        peers.finish_fetch("m2", false, later(4));
        assert!(!falls_short(later(4)), "that was for the router before");
        assert_eq!(peers.begin_fetches(later(4) + RETRY_AFTER), Vec::<String>::new(), "it is silent");
        peers.note_changes("m2", &changes(1, 8), later(5)).unwrap();
        assert_eq!(peers.begin_fetches(later(5)), ["m2"]);
        peers.finish_fetch("m2", false, later(5));
        assert!(falls_short(later(5)));
        assert_eq!(peers.begin_fetches(later(6)), ["m2"]);
        assert!(!falls_short(later(6)), "it may bring all");
    }

    #[test]
    fn a_machine_that_leaves_is_present_and_takes_nothing_over() {
        let now = Instant::now();
        let peers = peers(now);
        assert_eq!(peers.staying(now), [("m2".to_string(), 1)]);
        peers.note_changes("m2", &Envelope { leaves: true, ..changes(1, 8) }, now).unwrap();
        assert_eq!((peers.staying(now).len(), peers.living(now).len()), (0, 1));
    }

    #[test]
    fn a_machine_is_whole_by_a_fetch_that_began_after_all_were_requested() {
        let now = Instant::now();
        let peers = peers(now);
        let joining = |is_whole, has_fallen_short| {
            [Joining { machine: "m2".to_string(), is_whole, has_fallen_short }].to_vec()
        };
        assert_eq!(peers.joining(now), joining(true, false));
        peers.request_all(now);
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.request_all(now);
        peers.finish_fetch("m2", true, now);
        assert_eq!(peers.joining(now), joining(false, true), "that one began before");
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.finish_fetch("m2", true, now);
        assert_eq!(peers.joining(now), joining(true, true));
        assert!(peers.joining(now + ABSENT_AFTER).is_empty());
    }

    #[test]
    fn a_machine_has_all_of_a_run_when_its_router_took_it_and_nothing_was_lost() {
        let now = Instant::now();
        let peers = peers(now);
        let has_all = |number| peers.has_all("m2", 1, number);
        peers.note_changes("m2", &changes(1, 8), now).unwrap();
        assert!(!has_all(8), "it waits for the router");
        peers.note_applied("m2", 1, 8);
        assert!(has_all(8) && !has_all(9) && !peers.has_all("m2", 2, 8) && !peers.has_all("m3", 1, 8));
        // 9 is lost.
        peers.note_changes("m2", &changes(1, 10), now).unwrap();
        peers.note_applied("m2", 1, 10);
        assert!(!has_all(9));
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        peers.finish_fetch("m2", true, now);
        assert!(has_all(10));
        peers.note_changes("m2", &changes(2, 1), now).unwrap();
        peers.note_applied("m2", 1, 11);
        assert!(!peers.has_all("m2", 1, 10) && !peers.has_all("m2", 2, 1));
    }

    #[test]
    fn ones_own_name_and_more_machines_than_can_be_are_refused_and_counted() {
        let now = Instant::now();
        let peers = peers(now);
        assert_eq!(peers.note_changes("m1", &changes(1, 1), now), Err(Refusal::OwnName));
        let more = (1..MOST_PEERS).all(|n| peers.note_changes(&format!("x{n}"), &changes(1, 1), now).is_ok());
        assert!(more);
        assert_eq!(peers.note_changes("y", &changes(1, 1), now), Err(Refusal::TooManyMachines));
        // Those that were not heard for long make room.
        assert_eq!(peers.note_changes("y", &changes(1, 1), now + FORGOTTEN_AFTER), Ok(()));
        peers.refuse("y", Refusal::Malformed);
        peers.refuse("y", Refusal::Malformed);
        let (_, refused) = peers.report(now);
        assert_eq!((refused["malformed"], refused["other_fleet"]), (2, 0));
    }
}
