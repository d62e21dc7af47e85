//! Whether this machine is announced. This is the only place where that is decided; what is seen and the time
//! are arguments.

use std::time::{Duration, Instant};

use crate::etcd::Agreement;
use crate::peers::Joining;
use crate::probe::RouterHealth;

/// How long the router may take at least to answer for the first time, before what an earlier process left is
/// withdrawn from the routing daemons.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// How long a router that failed must answer again without a gap, so that one that fails over and over does
/// not move flows each time.
const STEADY: Duration = Duration::from_secs(1);

/// The name of that state.
pub(crate) const ANNOUNCED: &str = "announced";

/// What the routing daemon or command shall be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What an earlier process left.
    AsItIs,
    Announced,
    Withdrawn,
}

/// What the next state depends on.
pub(crate) struct Seen<'a> {
    pub(crate) router: RouterHealth,
    /// Whether the router's exceptions are followed.
    pub(crate) is_followed: bool,
    /// Whether it has checked its members: before, those may count as down that are well.
    pub(crate) has_checked: bool,
    pub(crate) agreement: Agreement,
    /// Members that this machine alone does not reach, if it is drained for them.
    pub(crate) unreached: Option<Vec<String>>,
    /// The peers that are present.
    pub(crate) peers: &'a [Joining],
    /// How many the configuration has.
    pub(crate) configured: usize,
    /// Whether this machine shall leave.
    pub(crate) leaves: bool,
    /// Whether what is wanted is so.
    pub(crate) is_done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Waiting(Lack),
    Announced,
    Withdrawn(RouterHealth),
    /// It alone does not reach these members.
    Drained(Vec<String>),
    Draining(Drain),
}

/// What a joiner waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lack {
    Router,
    /// It answers since it failed.
    SteadyRouter,
    /// The router takes the fleet's configuration.
    Configuration,
    /// Etcd tells which that is, for so many more seconds.
    Etcd(u64),
    /// The router checks members.
    Checks,
    /// The exceptions of these machines.
    Machines(Vec<String>),
    /// So many peers that were not heard, for so many more seconds.
    Unheard(usize, u64),
}

/// How far a leaver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drain {
    Withdrawing,
    /// Until the network has heard of it.
    Settling,
    /// Peers shall have all exceptions.
    HandingOver,
}

pub(crate) struct Decider {
    state: State,
    since: Instant,
    wanted: Wanted,
    started: Instant,
    /// Since when the router answers and is followed. All exceptions are fetched from then on.
    joined: Option<Instant>,
    has_answered: bool,
    has_failed: bool,
    first_answer: Duration,
    peer_wait: Duration,
    settle: Duration,
}

impl Decider {
    pub(crate) fn new(
        router_timeout: Duration,
        (peer_wait, settle): (Duration, Duration),
        now: Instant,
    ) -> Decider {
        Decider {
            state: State::Waiting(Lack::Router),
            since: now,
            wanted: Wanted::AsItIs,
            started: now,
            joined: None,
            has_answered: false,
            has_failed: false,
            first_answer: router_timeout.max(FIRST_ANSWER),
            peer_wait,
            settle,
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Decides; whether all exceptions of all peers must be fetched from now on.
    pub(crate) fn decide(&mut self, seen: &Seen<'_>, now: Instant) -> bool {
        if seen.leaves {
            self.drain(seen.is_done, now);
            return false;
        }
        if seen.router != RouterHealth::Answers {
            self.lose_router(&seen.router, now);
            return false;
        }
        self.has_answered = true;
        if let Some(members) = &seen.unreached {
            (self.joined, self.wanted) = (None, Wanted::Withdrawn);
            self.enter(State::Drained(members.clone()), now);
            return false;
        }
        // Peers decide only whether it begins to be announced: that all of them are silent ends nothing.
        if self.state == State::Announced {
            return false;
        }
        let begins = self.joined.is_none() && seen.is_followed;
        if begins {
            self.joined = Some(now);
        }
        // The peers' states are of before the fetches.
        let lack = if begins { Some(Lack::Router) } else { self.lack(seen, now) };
        match lack {
            Some(lack) => self.enter(State::Waiting(lack), now),
            None => {
                self.wanted = Wanted::Announced;
                self.enter(State::Announced, now);
            }
        }
        begins
    }

    fn lose_router(&mut self, health: &RouterHealth, now: Instant) {
        self.joined = None;
        let is_first = !self.has_answered && !self.has_failed;
        let may_come = matches!(health, RouterHealth::NotYetAsked | RouterHealth::DoesNotAnswer);
        if is_first && may_come && now.duration_since(self.started) < self.first_answer {
            return;
        }
        self.has_failed = true;
        self.wanted = Wanted::Withdrawn;
        self.enter(State::Withdrawn(health.clone()), now);
    }

    /// What is not there that an announced machine needs.
    fn lack(&self, seen: &Seen<'_>, now: Instant) -> Option<Lack> {
        let Some(joined) = self.joined else { return Some(Lack::Router) };
        let waited = now.duration_since(joined);
        let has_waited = waited >= self.peer_wait;
        let is_awaited = |peer: &&Joining| !(peer.is_whole || has_waited && peer.has_fallen_short);
        let missing: Vec<String> =
            seen.peers.iter().filter(is_awaited).map(|peer| peer.machine.clone()).collect();
        let unheard = seen.configured.saturating_sub(seen.peers.len());
        if seen.agreement == Agreement::Differs {
            Some(Lack::Configuration)
        } else if seen.agreement == Agreement::Unknown && !has_waited {
            Some(Lack::Etcd((self.peer_wait - waited).as_secs() + 1))
        } else if !seen.has_checked && !has_waited {
            Some(Lack::Checks)
        } else if !missing.is_empty() {
            Some(Lack::Machines(missing))
        } else if unheard > 0 && !has_waited {
            Some(Lack::Unheard(unheard, (self.peer_wait - waited).as_secs() + 1))
        } else if self.has_failed && waited < STEADY {
            Some(Lack::SteadyRouter)
        } else {
            None
        }
    }

    fn drain(&mut self, is_withdrawn: bool, now: Instant) {
        let next = match self.state {
            State::Draining(Drain::Withdrawing) if is_withdrawn => Drain::Settling,
            State::Draining(Drain::Settling) if now.duration_since(self.since) >= self.settle => {
                Drain::HandingOver
            }
            State::Draining(_) => return,
            _ => Drain::Withdrawing,
        };
        self.wanted = Wanted::Withdrawn;
        self.enter(State::Draining(next), now);
    }

    fn enter(&mut self, state: State, now: Instant) {
        if std::mem::discriminant(&self.state) != std::mem::discriminant(&state)
            || matches!(state, State::Draining(_))
        {
            self.since = now;
        }
        self.state = state;
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            State::Waiting(Lack::Router) => f.write_str("waiting for the router"),
            State::Waiting(Lack::SteadyRouter) => f.write_str("waiting for the router to answer steadily"),
            State::Waiting(Lack::Configuration) => {
                f.write_str("waiting for the router to take the fleet's configuration")
            }
            State::Waiting(Lack::Etcd(seconds)) => write!(f, "waiting for etcd, for {seconds} s at most"),
            State::Waiting(Lack::Checks) => f.write_str("waiting for the router to check its members"),
            State::Waiting(Lack::Machines(machines)) => write!(f, "waiting for {}", machines.join(", ")),
            State::Waiting(Lack::Unheard(count, seconds)) => {
                let peers = if *count == 1 { "peer that was" } else { "peers that were" };
                write!(f, "waiting for {count} {peers} not heard, for {seconds} s at most")
            }
            State::Announced => f.write_str("announced"),
            State::Withdrawn(RouterHealth::Refuses(why)) => write!(f, "withdrawn: the router refuses: {why}"),
            State::Withdrawn(_) => f.write_str("withdrawn: the router does not answer"),
            State::Drained(members) => {
                write!(f, "drained: this machine alone does not reach {}", members.join(", "))
            }
            State::Draining(Drain::Withdrawing) => f.write_str("draining: withdrawing"),
            State::Draining(Drain::Settling) => f.write_str("draining: withdrawn, waiting for the network"),
            State::Draining(Drain::HandingOver) => f.write_str("draining: handing over"),
        }
    }
}

impl State {
    /// Its name in the status.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            State::Waiting(_) => "waiting",
            State::Announced => ANNOUNCED,
            State::Withdrawn(_) => "withdrawn",
            State::Drained(_) => "drained",
            State::Draining(_) => "draining",
        }
    }
}

#[cfg(test)]
mod tests;
