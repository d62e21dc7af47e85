//! The machine of one session.
use super::{SLOW_INTERVAL, STALL_GRACE, SessionSettings};
use artery_wire::Random;
use artery_wire::{BfdControl, BfdDiagnostic, BfdState};
use std::time::Duration;

/// What the neighbor said last (section 6.8.1).
#[derive(Clone, Copy, Debug)]
struct Remote {
    /// bfd.RemoteDiscr; 0 while no packets are received.
    discriminator: u32,
    state: BfdState,
    diagnostic: BfdDiagnostic,
    /// Its Desired Min TX Interval.
    min_tx: Duration,
    min_rx: Duration,
    multiplier: u8,
    is_demand: bool,
}

impl Remote {
    /// A neighbor of which nothing is known.
    const UNHEARD: Remote = Remote {
        discriminator: 0,
        state: BfdState::Down,
        diagnostic: BfdDiagnostic::NONE,
        min_tx: Duration::ZERO,
        // Section 6.8.1: one microsecond, so that packets are sent.
        min_rx: Duration::from_micros(1),
        multiplier: 0,
        is_demand: false,
    };
}

/// A sequence of packets with the Poll bit, by which changed intervals are made known (section 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollSequence {
    Idle,
    Running,
    /// Something has changed since it began: another one is to follow.
    RunningBeforeNext,
}

/// Intervals that a session tells the neighbor, or goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Intervals {
    min_tx: Duration,
    min_rx: Duration,
}

/// A session, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// State of the session.
    pub state: BfdState,
    /// Why it was last left the state Up.
    pub diagnostic: BfdDiagnostic,
    /// What the neighbor last said of its own session; of a silent one no more than that it was shut down.
    pub remote_state: BfdState,
    /// Why that last went down.
    pub remote_diagnostic: BfdDiagnostic,
    /// Whether the path counts as down.
    pub is_path_down: bool,
    /// Our number of the session.
    pub discriminator: u32,
    /// The neighbor's discriminator; 0 while no packets are received.
    pub remote_discriminator: u32,
    /// Settings that the session runs with.
    pub settings: SessionSettings,
    /// The interval at which packets are sent now, before jitter.
    pub tx_interval: Duration,
    /// The neighbor's Desired Min TX and Required Min RX Interval, and its multiplier; none
    /// while it is not heard.
    pub remote_timers: Option<(Duration, Duration, u8)>,
    /// Detection time; None while no packets are received.
    pub detection_time: Option<Duration>,
    /// Since when the session has been Up.
    pub up_since: Option<Duration>,
    /// How often it has gone from Up to another state.
    pub flaps: u64,
    /// Packets that belonged to the session.
    pub received: u64,
    /// Packets that [`Session::poll_transmit`] gave out.
    pub sent: u64,
}

/// One BFD session with one neighbor.
#[derive(Clone, Debug)]
pub struct Session {
    settings: SessionSettings,
    discriminator: u32,
    state: BfdState,
    diagnostic: BfdDiagnostic,
    remote: Remote,
    announced: Intervals,
    /// What the session goes by; not yet what is announced, while the neighbor need not
    /// know of that (section 6.8.3).
    used: Intervals,
    poll_sequence: PollSequence,
    /// A packet with the Poll bit came, and is not answered yet.
    owes_final: bool,
    /// What packets say has changed since the last one.
    owes_news: bool,
    /// When the last periodic packet was sent, by which interval the next one is due, and when.
    last_periodic: Duration,
    scheduled_interval: Duration,
    next_periodic: Duration,
    /// When the last packet came; None while no packets are received.
    last_received: Option<Duration>,
    /// When it was first seen that the detection time had passed since.
    overdue_since: Option<Duration>,
    is_path_down: bool,
    up_since: Option<Duration>,
    flaps: u64,
    received: u64,
    sent: u64,
    random: Random,
}

impl Session {
    /// A session with a `discriminator` that is not 0 and no other session of this system has. It sends its
    /// first packet when it is polled. `seed` is what its jitter follows from.
    pub fn new(discriminator: u32, settings: SessionSettings, seed: u64, now: Duration) -> Session {
        let intervals = announced_intervals(settings, BfdState::Down);
        Session {
            settings,
            discriminator,
            state: BfdState::Down,
            diagnostic: BfdDiagnostic::NONE,
            remote: Remote::UNHEARD,
            announced: intervals,
            used: intervals,
            poll_sequence: PollSequence::Idle,
            owes_final: false,
            owes_news: true,
            last_periodic: now,
            scheduled_interval: intervals.min_tx,
            next_periodic: now + intervals.min_tx,
            last_received: None,
            overdue_since: None,
            is_path_down: false,
            up_since: None,
            flaps: 0,
            received: 0,
            sent: 0,
            random: Random::new(seed),
        }
    }

    /// Our number of the session.
    pub fn discriminator(&self) -> u32 {
        self.discriminator
    }

    /// State of the session.
    pub fn state(&self) -> BfdState {
        self.state
    }

    /// Why the session last left the state Up.
    pub fn diagnostic(&self) -> BfdDiagnostic {
        self.diagnostic
    }

    /// Whether packets should not be sent through the neighbor: see the module.
    pub fn is_path_down(&self) -> bool {
        self.is_path_down
    }

    /// The session, to be shown.
    pub fn view(&self) -> SessionView {
        let is_heard = self.last_received.is_some();
        let Remote { min_tx, min_rx, multiplier, .. } = self.remote;
        SessionView {
            state: self.state,
            diagnostic: self.diagnostic,
            remote_state: self.remote.state,
            remote_diagnostic: self.remote.diagnostic,
            is_path_down: self.is_path_down,
            discriminator: self.discriminator,
            remote_discriminator: self.remote.discriminator,
            settings: self.settings,
            tx_interval: self.tx_interval(),
            remote_timers: is_heard.then_some((min_tx, min_rx, multiplier)),
            detection_time: is_heard.then(|| self.detection_time()),
            up_since: self.up_since,
            flaps: self.flaps,
            received: self.received,
            sent: self.sent,
        }
    }

    /// Changes the settings. A poll sequence announces them to the neighbor.
    pub fn set_settings(&mut self, settings: SessionSettings) {
        let is_other = settings != self.settings;
        self.settings = settings;
        self.owes_news |= is_other;
        self.announce_intervals();
        self.reschedule_periodic();
    }

    /// Holds the session down, or lets it come up again (section 6.8.16). While it is held down
    /// packets announce AdminDown to the neighbor.
    pub fn set_admin_down(&mut self, is_down: bool, now: Duration) {
        if is_down {
            self.is_path_down = false;
            self.poll_sequence = PollSequence::Idle;
            self.enter_state(BfdState::AdminDown, BfdDiagnostic::ADMINISTRATIVELY_DOWN, now);
        } else if self.state == BfdState::AdminDown {
            self.enter_state(BfdState::Down, BfdDiagnostic::NONE, now);
        }
    }

    /// Receives a packet that belongs to this BFD session (section 6.8.6, from
    /// the assignment of bfd.RemoteDiscr on).
    pub fn receive_packet(&mut self, packet: &BfdControl, now: Duration) {
        self.received += 1;
        self.remote = Remote {
            discriminator: packet.my_discriminator,
            state: packet.state,
            diagnostic: packet.diagnostic,
            min_tx: from_micros(packet.desired_min_tx),
            min_rx: from_micros(packet.required_min_rx),
            multiplier: packet.detect_multiplier,
            is_demand: packet.is_demand,
        };
        if packet.is_final {
            self.end_poll_sequence();
        }
        if self.state == BfdState::AdminDown {
            return self.reschedule_periodic();
        }
        (self.last_received, self.overdue_since) = (Some(now), None);
        self.follow_remote(packet.state, now);
        self.owes_final |= packet.is_poll;
        self.reschedule_periodic();
    }

    /// The transitions of section 6.8.6.
    fn follow_remote(&mut self, remote: BfdState, now: Duration) {
        use BfdState::{AdminDown, Down, Init, Up};
        match (self.state, remote) {
            (_, AdminDown) => {
                // RFC 5882 section 3.2: this says nothing about the path.
                self.is_path_down = false;
                self.enter_state(Down, BfdDiagnostic::NEIGHBOR_SIGNALED_DOWN, now);
            }
            (Down, Down) => self.enter_state(Init, self.diagnostic, now),
            (Down, Init) | (Init, Init | Up) => self.enter_state(Up, BfdDiagnostic::NONE, now),
            (Up, Down) => {
                self.is_path_down = true;
                self.enter_state(Down, BfdDiagnostic::NEIGHBOR_SIGNALED_DOWN, now);
            }
            _ => {}
        }
    }

    fn enter_state(&mut self, state: BfdState, diagnostic: BfdDiagnostic, now: Duration) {
        let old = std::mem::replace(&mut self.state, state);
        if old == state {
            return;
        }
        (self.diagnostic, self.owes_news) = (diagnostic, true);
        if old == BfdState::Up {
            self.flaps += 1;
            self.up_since = None;
        }
        if state == BfdState::Up {
            self.is_path_down = false;
            self.up_since = Some(now);
        }
        self.announce_intervals();
        self.reschedule_periodic();
    }

    /// Lets packets say the intervals of the settings and the state, and the session go by them as far as it
    /// may before the neighbor knows (section 6.8.3).
    fn announce_intervals(&mut self) {
        let new = announced_intervals(self.settings, self.state);
        let is_other = std::mem::replace(&mut self.announced, new) != new;
        self.used = match self.state {
            BfdState::Up => Intervals {
                min_tx: self.used.min_tx.min(new.min_tx),
                min_rx: self.used.min_rx.max(new.min_rx),
            },
            _ => new,
        };
        if is_other {
            self.begin_poll_sequence();
        }
    }

    fn begin_poll_sequence(&mut self) {
        if self.remote.discriminator == 0 || self.state == BfdState::AdminDown {
            // No neighbor would answer; a new one reads the intervals in any packet.
            return;
        }
        self.owes_news = true;
        self.poll_sequence = match self.poll_sequence {
            PollSequence::Idle => PollSequence::Running,
            PollSequence::Running | PollSequence::RunningBeforeNext => PollSequence::RunningBeforeNext,
        };
    }

    fn end_poll_sequence(&mut self) {
        match self.poll_sequence {
            PollSequence::Idle => {}
            PollSequence::Running => {
                self.poll_sequence = PollSequence::Idle;
                self.used = self.announced;
            }
            PollSequence::RunningBeforeNext => {
                self.poll_sequence = PollSequence::Running;
                self.owes_news = true;
            }
        }
    }

    /// Does what is due, and returns the packet to send now, if there is one; to be
    /// called until there is none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<BfdControl> {
        self.detect_timeout(now);
        let is_final = std::mem::take(&mut self.owes_final);
        let is_periodic = now >= self.next_periodic && self.may_send_periodically();
        if !is_final && !self.owes_news && !is_periodic {
            return None;
        }
        // A final may not poll, so a poll sequence that has just begun still is news.
        self.owes_news &= is_final && self.poll_sequence != PollSequence::Idle;
        if is_periodic {
            self.last_periodic = now;
            self.schedule_periodic();
        }
        self.sent += 1;
        Some(self.build_packet(is_final))
    }

    /// When to [`poll_transmit`](Session::poll_transmit) next, if no packet comes before.
    pub fn poll_at(&self) -> Option<Duration> {
        if self.owes_final || self.owes_news {
            return Some(Duration::ZERO);
        }
        let periodic = self.may_send_periodically().then_some(self.next_periodic);
        let confirmed = self.overdue_since.map_or(Duration::ZERO, |since| since + STALL_GRACE);
        let silence = self.detect_at().map(|at| at.max(confirmed));
        [periodic, silence].into_iter().flatten().min()
    }

    /// Section 6.8.4: fails the session when the detection time has passed.
    fn detect_timeout(&mut self, now: Duration) {
        if self.detect_at().is_none_or(|at| now < at) {
            return;
        }
        let since = *self.overdue_since.get_or_insert(now);
        if now < since + STALL_GRACE {
            return;
        }
        // Section 6.8.1: the neighbor's discriminator is forgotten, and with it what it announced. One that
        // was shut down may have said so in a single packet, as FRR does, and stays known as that.
        let state = self.remote.state;
        (self.last_received, self.overdue_since) = (None, None);
        (self.remote, self.poll_sequence) = (Remote::UNHEARD, PollSequence::Idle);
        if state == BfdState::AdminDown {
            self.remote.state = state;
        }
        if matches!(self.state, BfdState::Init | BfdState::Up) {
            self.is_path_down |= self.state == BfdState::Up;
            self.enter_state(BfdState::Down, BfdDiagnostic::DETECTION_TIME_EXPIRED, now);
        }
        self.reschedule_periodic();
    }

    fn detect_at(&self) -> Option<Duration> {
        self.last_received.map(|last| last + self.detection_time())
    }

    /// Section 6.8.4, for asynchronous mode.
    fn detection_time(&self) -> Duration {
        self.used.min_rx.max(self.remote.min_tx) * u32::from(self.remote.multiplier)
    }

    /// Section 6.8.7: whether the periodic transmission may run.
    fn may_send_periodically(&self) -> bool {
        let is_up_at_both_ends = self.state == BfdState::Up && self.remote.state == BfdState::Up;
        let is_idle = self.poll_sequence == PollSequence::Idle;
        let wants_none = self.remote.is_demand && is_up_at_both_ends && is_idle;
        !(self.remote.min_rx.is_zero() || wants_none)
    }

    /// Section 6.8.2, before jitter.
    fn tx_interval(&self) -> Duration {
        self.used.min_tx.max(self.remote.min_rx)
    }

    /// Lets the next periodic packet follow the interval, if that has changed.
    fn reschedule_periodic(&mut self) {
        if self.tx_interval() != self.scheduled_interval {
            self.schedule_periodic();
        }
    }

    /// Jitter by section 6.8.7: 75 to 100 % of the interval; 90 % at most if the neighbor
    /// waits for one packet only.
    fn schedule_periodic(&mut self) {
        self.scheduled_interval = self.tx_interval();
        let most = if self.settings.multiplier == 1 { 900 } else { 1000 };
        let permille = 750 + self.random.below(most - 750 + 1) as u32;
        self.next_periodic = self.last_periodic + self.scheduled_interval * permille / 1000;
    }

    fn build_packet(&self, is_final: bool) -> BfdControl {
        BfdControl {
            diagnostic: self.diagnostic,
            state: self.state,
            is_poll: !is_final && self.poll_sequence != PollSequence::Idle,
            is_final,
            detect_multiplier: self.settings.multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: to_micros(self.announced.min_tx),
            required_min_rx: to_micros(self.announced.min_rx),
            ..BfdControl::default()
        }
    }
}

/// What a session announces in a state (section 6.8.3: slowly as long as it is not Up).
fn announced_intervals(settings: SessionSettings, state: BfdState) -> Intervals {
    let least = if state == BfdState::Up { Duration::ZERO } else { SLOW_INTERVAL };
    Intervals { min_tx: settings.interval.max(least), min_rx: settings.interval }
}

fn from_micros(interval: u32) -> Duration {
    Duration::from_micros(interval.into())
}

fn to_micros(interval: Duration) -> u32 {
    u32::try_from(interval.as_micros()).unwrap_or(u32::MAX)
}
