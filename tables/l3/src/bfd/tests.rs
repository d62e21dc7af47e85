//! Sessions that talk to each other, and single sessions that are fed packets.
use super::*;
use artery_wire::Random;
use artery_wire::{BfdControl, BfdDiagnostic, BfdState};

const MS: Duration = Duration::from_millis(1);
const FAST: SessionSettings = SessionSettings { interval: LEAST_INTERVAL, multiplier: 3 };

/// Two sessions and the path between them.
struct Pair {
    now: Duration,
    ends: [Session; 2],
    /// By receiver: whether packets arrive.
    arrives: [bool; 2],
    /// By sender: what was sent, and when.
    sent: [Vec<(Duration, BfdControl)>; 2],
}

impl Pair {
    fn new(settings: [SessionSettings; 2]) -> Pair {
        let now = Duration::from_secs(1000);
        let ends = [0, 1].map(|at| Session::new(at as u32 + 7, settings[at], at as u64, now));
        Pair { now, ends, arrives: [true; 2], sent: Default::default() }
    }

    /// Two that are up.
    fn up(settings: [SessionSettings; 2]) -> Pair {
        let mut pair = Pair::new(settings);
        pair.pass(3000 * MS);
        assert_eq!(pair.states(), [BfdState::Up; 2]);
        pair
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.deliver();
            let due = self.ends.iter().filter_map(Session::poll_at).min().unwrap_or(end);
            if due > end {
                break;
            }
            self.now = due.max(self.now);
        }
        self.now = end;
    }

    fn deliver(&mut self) {
        let mut rounds = 0;
        loop {
            let packets = [0, 1].map(|at| self.ends[at].poll_transmit(self.now));
            if packets == [None; 2] {
                return;
            }
            rounds += 1;
            assert!(rounds < 20, "they don't stop: {packets:?}");
            for (at, packet) in packets.into_iter().enumerate() {
                let Some(packet) = packet else { continue };
                self.sent[at].push((self.now, packet));
                let read = BfdControl::parse_packet(&packet.encode_packet()).unwrap();
                if self.arrives[1 - at] {
                    self.ends[1 - at].receive_packet(&read, self.now);
                }
            }
        }
    }

    fn states(&self) -> [BfdState; 2] {
        [0, 1].map(|at| self.ends[at].state())
    }

    /// How long it takes until an end is in a state.
    fn until(&mut self, at: usize, state: BfdState) -> Duration {
        let since = self.now;
        while self.ends[at].state() != state {
            self.pass(MS);
            assert!(self.now < since + Duration::from_secs(100), "{:?}", self.states());
        }
        self.now - since
    }

    /// Gaps between an end's packets from now on.
    fn gaps(&mut self, at: usize, time: Duration) -> Vec<Duration> {
        self.sent[at].clear();
        self.pass(time);
        self.sent[at].windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }
}

/// A single session, fed with packets by the test.
fn alone(settings: SessionSettings) -> (Session, Duration) {
    let now = Duration::from_secs(1000);
    let mut session = Session::new(7, settings, 1, now);
    while session.poll_transmit(now).is_some() {}
    (session, now)
}

fn said(state: BfdState) -> BfdControl {
    BfdControl {
        state,
        detect_multiplier: 3,
        my_discriminator: 99,
        your_discriminator: 7,
        desired_min_tx: 50_000,
        required_min_rx: 50_000,
        ..BfdControl::default()
    }
}

/// One that is up, and has no more to say at the moment.
fn alone_up(settings: SessionSettings) -> (Session, Duration) {
    let (mut session, now) = alone(settings);
    session.receive_packet(&said(BfdState::Down), now);
    session.receive_packet(&said(BfdState::Up), now);
    session.receive_packet(&BfdControl { is_final: true, ..said(BfdState::Up) }, now);
    while session.poll_transmit(now).is_some() {}
    session.receive_packet(&BfdControl { is_final: true, ..said(BfdState::Up) }, now);
    assert_eq!((session.state(), session.poll_transmit(now)), (BfdState::Up, None));
    (session, now)
}

fn drain(session: &mut Session, now: Duration) -> Vec<BfdControl> {
    std::iter::from_fn(|| session.poll_transmit(now)).collect()
}

#[test]
fn two_sessions_come_up_and_then_send_at_the_longer_interval_of_both() {
    let mut pair = Pair::new([FAST, SessionSettings { interval: 200 * MS, multiplier: 5 }]);
    assert!(pair.until(0, BfdState::Up) < 3000 * MS);
    pair.until(1, BfdState::Up);
    pair.pass(1000 * MS);
    let [one, other] = [0, 1].map(|at| pair.ends[at].view());
    assert_eq!((one.tx_interval, other.tx_interval), (200 * MS, 200 * MS));
    assert_eq!((one.detection_time, other.detection_time), (Some(1000 * MS), Some(600 * MS)));
    assert_eq!(one.remote_discriminator, other.discriminator);
    assert_eq!(one.discriminator, other.remote_discriminator);
    assert_eq!(one.remote_timers, Some((200 * MS, 200 * MS, 5)));
    assert!((one.flaps, one.is_path_down) == (0, false) && one.up_since.is_some());
    let last = pair.sent[0].last().unwrap().1;
    assert!(!last.is_poll && !last.is_final, "the poll sequences have ended");
}

#[test]
fn jitter_stays_within_the_bounds_and_fills_them() {
    for (multiplier, most) in [(3, 200), (1, 180)] {
        let settings = SessionSettings { interval: 200 * MS, multiplier };
        // The other end is patient, as packets of a multiplier of 1 come just in time.
        let mut pair = Pair::up([settings, settings]);
        let gaps = pair.gaps(0, Duration::from_secs(60));
        let (least, longest) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(*least >= 150 * MS && *longest <= most * MS, "{least:?} {longest:?}");
        assert!(*least < 155 * MS && *longest > (most - 5) * MS, "{least:?} {longest:?}");
        assert_eq!(pair.states(), [BfdState::Up; 2]);
    }
}

#[test]
fn a_session_that_is_not_up_sends_slowly() {
    let mut pair = Pair::new([FAST; 2]);
    pair.arrives = [false; 2];
    let gaps = pair.gaps(0, Duration::from_secs(60));
    assert!(gaps.iter().all(|gap| (750 * MS..=1000 * MS).contains(gap)), "{gaps:?}");
    assert_eq!(pair.sent[0].last().unwrap().1.desired_min_tx, 1_000_000);
    assert_eq!(pair.sent[0].last().unwrap().1.required_min_rx, 50_000);
}

#[test]
fn a_dead_path_is_noticed_within_three_intervals_and_the_grace() {
    let mut pair = Pair::up([FAST; 2]);
    pair.arrives = [false; 2];
    for at in [0, 1] {
        let took = pair.until(at, BfdState::Down);
        assert!(took <= 150 * MS + STALL_GRACE + MS, "{took:?}");
        let view = pair.ends[at].view();
        assert_eq!((view.diagnostic, view.flaps), (BfdDiagnostic::DETECTION_TIME_EXPIRED, 1));
        assert!(view.is_path_down && view.remote_discriminator == 0 && view.up_since.is_none());
    }
    pair.arrives = [true; 2];
    assert!(pair.until(0, BfdState::Up) < 3000 * MS);
    assert!(!pair.ends[0].is_path_down());
    assert_eq!(pair.ends[0].diagnostic(), BfdDiagnostic::NONE);
}

#[test]
fn a_path_that_is_dead_in_one_direction_is_down_at_both_ends() {
    let mut pair = Pair::up([FAST; 2]);
    pair.arrives[0] = false;
    pair.until(1, BfdState::Down);
    assert!(pair.ends.iter().all(Session::is_path_down));
    assert_eq!(pair.ends[1].diagnostic(), BfdDiagnostic::NEIGHBOR_SIGNALED_DOWN);
    pair.pass(Duration::from_secs(10));
    // It receives that the other end is down; its own packets do not arrive.
    assert_eq!(pair.states(), [BfdState::Down, BfdState::Init]);
}

#[test]
fn every_transition_is_that_of_the_standard() {
    use BfdState::{AdminDown, Down, Init, Up};
    let reach = |state: BfdState| {
        let (mut session, now) = alone(FAST);
        match state {
            AdminDown => session.set_admin_down(true, now),
            Down => {}
            Init => session.receive_packet(&said(Down), now),
            Up => session.receive_packet(&said(Init), now),
        }
        assert_eq!(session.state(), state);
        (session, now)
    };
    for (from, heard, to, path_down) in [
        (AdminDown, AdminDown, AdminDown, false),
        (AdminDown, Down, AdminDown, false),
        (AdminDown, Init, AdminDown, false),
        (AdminDown, Up, AdminDown, false),
        (Down, AdminDown, Down, false),
        (Down, Down, Init, false),
        (Down, Init, Up, false),
        (Down, Up, Down, false),
        (Init, AdminDown, Down, false),
        (Init, Down, Init, false),
        (Init, Init, Up, false),
        (Init, Up, Up, false),
        (Up, AdminDown, Down, false),
        (Up, Down, Down, true),
        (Up, Init, Up, false),
        (Up, Up, Up, false),
    ] {
        let (mut session, now) = reach(from);
        session.receive_packet(&said(heard), now);
        assert_eq!((session.state(), session.is_path_down()), (to, path_down), "{from:?} {heard:?}");
        if from != to && to == Down {
            assert_eq!(session.diagnostic(), BfdDiagnostic::NEIGHBOR_SIGNALED_DOWN);
        }
    }
}

#[test]
fn a_session_that_was_never_up_says_nothing_about_the_path() {
    let (mut session, now) = alone(FAST);
    session.receive_packet(&said(BfdState::Down), now);
    let later = now + Duration::from_secs(5);
    drain(&mut session, later);
    drain(&mut session, later + STALL_GRACE);
    assert_eq!((session.state(), session.is_path_down()), (BfdState::Down, false));
    assert_eq!(session.diagnostic(), BfdDiagnostic::DETECTION_TIME_EXPIRED);
}

#[test]
fn a_neighbor_that_is_held_down_is_no_failure_of_the_path() {
    let mut pair = Pair::up([FAST; 2]);
    pair.ends[1].set_admin_down(true, pair.now);
    pair.pass(5000 * MS);
    assert_eq!(pair.states(), [BfdState::Down, BfdState::AdminDown]);
    assert!(!pair.ends[0].is_path_down());
    let last = pair.sent[1].last().unwrap().1;
    assert_eq!((last.state, last.diagnostic), (BfdState::AdminDown, BfdDiagnostic::ADMINISTRATIVELY_DOWN));
    pair.ends[1].set_admin_down(false, pair.now);
    pair.pass(3000 * MS);
    assert_eq!(pair.states(), [BfdState::Up; 2]);
}

#[test]
fn a_neighbor_that_is_shut_down_and_silent_stays_known_as_that() {
    let (mut session, now) = alone_up(FAST);
    session.receive_packet(&said(BfdState::AdminDown), now);
    let later = now + Duration::from_secs(5);
    drain(&mut session, later);
    drain(&mut session, later + STALL_GRACE);
    assert_eq!(session.view().remote_discriminator, 0);
    assert_eq!(session.view().remote_state, BfdState::AdminDown);
    session.receive_packet(&said(BfdState::Down), later);
    assert_eq!(session.view().remote_state, BfdState::Down);
}

#[test]
fn a_path_that_is_down_no_longer_counts_as_down_once_the_neighbor_is_held_down() {
    let mut pair = Pair::up([FAST; 2]);
    pair.arrives = [false; 2];
    pair.pass(1000 * MS);
    assert!(pair.ends[0].is_path_down());
    pair.ends[1].set_admin_down(true, pair.now);
    pair.arrives = [true; 2];
    pair.pass(2000 * MS);
    assert!(!pair.ends[0].is_path_down() && pair.ends[0].state() == BfdState::Down);
}

#[test]
fn a_poll_is_answered_at_once_by_a_final_that_does_not_poll() {
    let (mut session, now) = alone_up(FAST);
    session.receive_packet(&BfdControl { is_poll: true, ..said(BfdState::Up) }, now);
    assert_eq!(session.poll_at(), Some(Duration::ZERO));
    let answers = drain(&mut session, now);
    assert_eq!(answers.len(), 1);
    assert!(answers[0].is_final && !answers[0].is_poll);
    // Also while it polls itself: then both are said, by two packets.
    session.set_settings(SessionSettings { multiplier: 4, interval: 60 * MS });
    session.receive_packet(&BfdControl { is_poll: true, ..said(BfdState::Up) }, now);
    let both: Vec<(bool, bool)> =
        drain(&mut session, now).iter().map(|packet| (packet.is_final, packet.is_poll)).collect();
    assert_eq!(both, [(true, false), (false, true)]);
}

#[test]
fn changed_intervals_count_when_the_neighbor_knows() {
    let (mut session, now) = alone_up(FAST);
    let used = |session: &Session| (session.view().tx_interval, session.view().detection_time.unwrap());
    assert_eq!(used(&session), (50 * MS, 150 * MS));
    // Longer: waits longer at once, sends slower only once that is known.
    session.set_settings(SessionSettings { interval: 100 * MS, multiplier: 3 });
    assert_eq!(used(&session), (50 * MS, 300 * MS));
    let packets = drain(&mut session, now);
    assert!(packets.len() == 1 && packets[0].is_poll && packets[0].desired_min_tx == 100_000);
    // Changed back before that: the first final is not the answer to the second poll.
    session.set_settings(FAST);
    assert_eq!(used(&session), (50 * MS, 300 * MS));
    let answer = BfdControl { is_final: true, ..said(BfdState::Up) };
    session.receive_packet(&answer, now);
    assert_eq!(used(&session), (50 * MS, 300 * MS));
    assert!(drain(&mut session, now).iter().all(|packet| packet.is_poll && packet.required_min_rx == 50_000));
    session.receive_packet(&answer, now);
    assert_eq!(used(&session), (50 * MS, 150 * MS));
    assert_eq!(drain(&mut session, now), []);
    // The neighbor's own changes count at once.
    session.receive_packet(
        &BfdControl { required_min_rx: 80_000, desired_min_tx: 70_000, ..said(BfdState::Up) },
        now,
    );
    assert_eq!(used(&session), (80 * MS, 210 * MS));
}

#[test]
fn settings_change_while_packets_flow_and_nobody_goes_down() {
    let mut pair = Pair::up([FAST; 2]);
    for interval in [400, 50, 1000, 60, 50] {
        pair.ends[0].set_settings(SessionSettings { interval: interval * MS, multiplier: 3 });
        pair.pass(Duration::from_secs(5));
        let [one, other] = [0, 1].map(|at| pair.ends[at].view());
        assert_eq!((one.flaps, other.flaps), (0, 0), "{interval}");
        assert_eq!((one.tx_interval, other.tx_interval), (interval * MS, interval * MS));
        assert_eq!(other.detection_time, Some(3 * interval * MS));
    }
}

#[test]
fn a_neighbor_in_demand_mode_gets_periodic_packets_only_while_an_end_is_not_up() {
    let (mut session, now) = alone(FAST);
    session.receive_packet(&BfdControl { is_demand: true, ..said(BfdState::Init) }, now);
    drain(&mut session, now);
    assert!(session.poll_transmit(now + 100 * MS).is_some(), "the neighbor is not up yet");
    let up = BfdControl { is_demand: true, is_final: true, ..said(BfdState::Up) };
    session.receive_packet(&up, now + 100 * MS);
    drain(&mut session, now + 100 * MS);
    session.receive_packet(&up, now + 110 * MS);
    assert_eq!(session.poll_transmit(now + 200 * MS), None);
    // It still notices that the neighbor is silent.
    assert_eq!(session.poll_at(), Some(now + 260 * MS));
}

#[test]
fn a_neighbor_that_wants_none_gets_no_periodic_packets() {
    let (mut session, now) = alone_up(FAST);
    session.receive_packet(&BfdControl { required_min_rx: 0, ..said(BfdState::Up) }, now);
    assert_eq!(drain(&mut session, now + 140 * MS), []);
    session.receive_packet(&said(BfdState::Up), now + 140 * MS);
    assert_eq!(drain(&mut session, now + 140 * MS).len(), 1);
}

#[test]
fn packets_that_waited_while_the_program_did_not_run_keep_a_session_up() {
    let (mut session, now) = alone_up(FAST);
    // It did not run for a second. What arrived meanwhile is read a moment later.
    let late = now + 1000 * MS;
    assert_eq!(drain(&mut session, late).len(), 1);
    assert_eq!((session.state(), session.poll_at()), (BfdState::Up, Some(late + STALL_GRACE)));
    session.receive_packet(&said(BfdState::Up), late + MS);
    drain(&mut session, late + STALL_GRACE);
    assert_eq!((session.state(), session.view().flaps), (BfdState::Up, 0));
}

#[test]
fn what_a_stranger_says_never_makes_a_session_panic_or_send_without_end() {
    let mut random = Random::new(5);
    let mut now = Duration::from_secs(1);
    let mut session = Session::new(7, FAST, 3, now);
    for _ in 0..100_000 {
        let mut bytes = [0; BfdControl::LEN];
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        (bytes[0], bytes[3]) = (bytes[0] & 0x1f | 0x20, 24);
        bytes[1] &= 0xfa;
        if random.percent(50) {
            // Intervals that others have, too.
            (12..24).step_by(4).for_each(|at| bytes[at..at + 2].fill(0));
        }
        if let Ok(packet) = BfdControl::parse_packet(&bytes) {
            session.receive_packet(&packet, now);
        }
        if random.percent(2) {
            session.set_admin_down(random.percent(50), now);
        }
        let sent = drain(&mut session, now).len();
        assert!(sent <= 3, "{sent}");
        assert!(session.poll_at().is_none_or(|due| due > now), "it would be called again and again");
        now += MS * random.below(300) as u32;
    }
    assert!(session.view().received > 10_000);
}

#[test]
fn settings_have_bounds_and_say_them() {
    assert_eq!(SessionSettings::new(LEAST_INTERVAL, 1), Ok(SessionSettings { multiplier: 1, ..FAST }));
    assert!(SessionSettings::new(MOST_INTERVAL, 255).is_ok());
    let wrong = |interval, multiplier| SessionSettings::new(interval, multiplier).unwrap_err().to_string();
    assert_eq!(wrong(49 * MS, 3), "the interval 49ms is out of range; use one from 50ms to 60s");
    assert!(wrong(MOST_INTERVAL + MS, 3).contains("60.001s"));
    assert_eq!(wrong(LEAST_INTERVAL, 0), "the multiplier is 0; use one from 1 to 255");
}
