//! Whether a member is up, from results of probes that the caller sends.
use std::time::Duration;

/// Kind of probe for a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// That it takes a TCP connection.
    Tcp,
    /// That it answers a request with a status.
    Http {
        /// What is requested, from `/` on.
        path: String,
        /// The first and the last status that is good.
        status: (u16, u16),
    },
    /// That it answers an echo request.
    Ping,
}

impl Probe {
    /// The statuses that are good where none is named: success and redirection.
    pub const GOOD: (u16, u16) = (200, 399);
}

/// How a member is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// Kind of probe to send.
    pub probe: Probe,
    /// How much later than a probe the next one is sent, unless that is still without answer.
    pub every: Duration,
    /// How long a probe may be without answer until it has failed.
    pub timeout: Duration,
    /// So many probes in a row that fail take it down.
    pub fall: u16,
    /// So many in a row that pass bring it up again.
    pub rise: u16,
}

impl Check {
    /// By this probe, every 2 s; 1 s without answer is a failure; down after three, up after two.
    pub fn new(probe: Probe) -> Check {
        let (every, timeout) = (Duration::from_secs(2), Duration::from_secs(1));
        Check { probe, every, timeout, fall: 3, rise: 2 }
    }
}

/// What is known of a member's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No probe has had a result yet. The first one decides alone.
    Unproven,
    /// Its probes succeed; it takes flows.
    Up,
    /// Its probes fail; it takes no flows.
    Down,
}

/// What the caller must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a probe, and report its result by this number.
    Send(u64),
    /// Report a state change: a probe had no answer for so long that the state is now this.
    Changed(State),
    /// Nothing to do until this time.
    Wait(Duration),
}

/// The health of one member: when to send a probe, and what results mean. At most one is without
/// answer at a time.
#[derive(Clone, Debug)]
pub struct Health {
    every: Duration,
    timeout: Duration,
    fall: u16,
    rise: u16,
    state: State,
    /// Results in a row that contradict the state.
    against: u16,
    /// When the next probe is due.
    due: Duration,
    /// The probe without answer, and when it has failed.
    asked: Option<(u64, Duration)>,
    /// The number of the last probe.
    last: u64,
}

impl Health {
    /// Of a member whose first probe is due at `first`: at different times for different members, so that not
    /// all are asked at once.
    pub fn new(check: &Check, first: Duration) -> Health {
        Health {
            every: check.every,
            timeout: check.timeout,
            fall: check.fall,
            rise: check.rise,
            state: State::Unproven,
            against: 0,
            due: first,
            asked: None,
            last: 0,
        }
    }

    /// Changes the check from the next probe on; the state stays.
    pub fn set_check(&mut self, check: &Check) {
        (self.every, self.timeout) = (check.every, check.timeout);
        (self.fall, self.rise) = (check.fall, check.rise);
    }

    /// The state after the last result.
    pub fn state(&self) -> State {
        self.state
    }

    /// What to do now; call again until it says to wait.
    pub fn poll(&mut self, now: Duration) -> Step {
        if let Some((probe, until)) = self.asked {
            // A clock that was set back makes no probe wait longer.
            let until = until.min(now.saturating_add(self.timeout));
            self.asked = Some((probe, until));
            if now < until {
                return Step::Wait(until);
            }
            if let Some(state) = self.record_result(probe, false) {
                return Step::Changed(state);
            }
        }
        self.due = self.due.min(now.saturating_add(self.every));
        if now < self.due {
            return Step::Wait(self.due);
        }
        self.last += 1;
        self.due = now.saturating_add(self.every);
        self.asked = Some((self.last, now.saturating_add(self.timeout)));
        Step::Send(self.last)
    }

    /// Takes the result of a probe, and says the state if that is another one now. A result that comes too
    /// late counts for nothing: it has failed.
    pub fn record_result(&mut self, probe: u64, has_passed: bool) -> Option<State> {
        self.asked.take_if(|(asked, _)| *asked == probe)?;
        let (state, needed) = if has_passed { (State::Up, self.rise) } else { (State::Down, self.fall) };
        if state == self.state {
            self.against = 0;
            return None;
        }
        self.against = self.against.saturating_add(1);
        if self.against < needed && self.state != State::Unproven {
            return None;
        }
        (self.state, self.against) = (state, 0);
        Some(state)
    }
}
