//! The router's own addresses on a link: probed for duplicates, claimed, announced, defended (RFC 5227; RFC
//! 4862, 5.4).
//!
//! IPv4 and IPv6 differ in numbers only, so one machine does both: it probes for the address,
//! waits, uses it, and announces it. A router keeps an address that is in use when another host takes it too
//! (RFC 5227, 2.4 (c)): it says so now and then, and never in a war of messages.

use artery_lpm::{Address, Prefix};
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::time::Duration;

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress<A: Address> {
    /// The address that is claimed.
    pub address: A,
    /// The network that it makes on-link.
    pub network: Prefix<A>,
    /// Whether it is still being claimed: it is watched for others that use it, and not answered for.
    pub is_tentative: bool,
}

/// How an address is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimSettings {
    /// The first probe waits for a random time up to this.
    pub first_wait: Duration,
    /// Probes before use; with none the address is used at once.
    pub probes: u8,
    /// The shortest time from one probe to the next.
    pub least_gap: Duration,
    /// The longest time from one probe to the next.
    pub most_gap: Duration,
    /// From the last probe to the first use.
    pub last_wait: Duration,
    /// Announcements when an address comes into use, or its link address changes.
    pub announcements: u8,
    /// From one announcement to the next.
    pub announcement_gap: Duration,
    /// Further announcements, each after twice the last gap (BSD: `garp_rexmit_count`);
    /// at most [`ClaimSettings::MOST_REPEATS`] count.
    pub repeats: u8,
    /// The shortest time between two defenses.
    pub defense_gap: Duration,
    /// Failed claims after which the next one waits for `retry`.
    pub conflicts: u32,
    /// The time between claims of an address that others have.
    pub retry: Duration,
}

impl ClaimSettings {
    /// The most further announcements: the gap doubles with each (BSD's bound of `garp_rexmit_count`).
    pub const MOST_REPEATS: u8 = 16;

    /// The settings of IPv4: constants of RFC 5227, 1.1.
    pub fn arp() -> ClaimSettings {
        ClaimSettings {
            first_wait: Duration::from_secs(1),       // PROBE_WAIT
            probes: 3,                                // PROBE_NUM
            least_gap: Duration::from_secs(1),        // PROBE_MIN
            most_gap: Duration::from_secs(2),         // PROBE_MAX
            last_wait: Duration::from_secs(2),        // ANNOUNCE_WAIT
            announcements: 2,                         // ANNOUNCE_NUM
            announcement_gap: Duration::from_secs(2), // ANNOUNCE_INTERVAL
            repeats: 0,
            defense_gap: Duration::from_secs(10), // DEFEND_INTERVAL
            conflicts: 10,                        // MAX_CONFLICTS
            retry: Duration::from_secs(60),       // RATE_LIMIT_INTERVAL
        }
    }

    /// The settings of IPv6: RFC 4862, 5.1 and 5.4.2, RFC 4861, 7.2.6 and 10. There a lost address waits
    /// for a person; here it is tried again once a minute, so that a short-lived mistake of others
    /// doesn't silence a router.
    pub fn nd() -> ClaimSettings {
        ClaimSettings {
            first_wait: Duration::from_secs(1), // MAX_RTR_SOLICITATION_DELAY
            probes: 1,                          // DupAddrDetectTransmits
            least_gap: Duration::from_secs(1),  // RetransTimer
            most_gap: Duration::from_secs(1),
            last_wait: Duration::from_secs(1),
            announcements: 3, // MAX_NEIGHBOR_ADVERTISEMENT
            announcement_gap: Duration::from_secs(1),
            conflicts: 1,
            ..ClaimSettings::arp()
        }
    }

    /// The same without probes: addresses are used at once.
    pub fn without_probes(self) -> ClaimSettings {
        ClaimSettings { probes: 0, ..self }
    }
}

/// State of a claim to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimState {
    /// The port is down: no probes are sent and the address is not used.
    Idle,
    /// Probes for duplicates are being sent.
    Probing,
    /// The address is in use.
    Held,
    /// Another host has the address; the claim is repeated later.
    Lost,
}

impl ClaimState {
    /// Returns the name for tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            ClaimState::Idle => "idle",
            ClaimState::Probing => "tentative",
            ClaimState::Held => "held",
            ClaimState::Lost => "duplicate",
        }
    }
}

/// What happens to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimEvent {
    /// The address was given to a port that is up, or the port came up.
    Up,
    /// The port went down.
    Down,
    /// The port has another link address now.
    LinkAddress,
    /// Another host uses the address, or probes for it while we do.
    Conflict(EtherAddr),
    /// [`Claim::deadline`] is reached; before that, nothing happens.
    Timer,
}

/// What the caller must send or report because of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimEffect {
    /// Probe for the address: ARP request from 0.0.0.0, neighbor solicitation from `::`.
    SendProbe,
    /// Announce the address to all: gratuitous ARP, unsolicited advertisement that overrides.
    SendAnnouncement,
    /// The same, against another host that uses the address too.
    Defend,
    /// The address may be used from now on.
    Usable,
    /// The address may not be used any more.
    Unusable,
    /// Another host has the address; to be logged.
    Conflict {
        /// Link address of the other host.
        with: EtherAddr,
    },
}

/// The claim of one address on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    state: ClaimState,
    deadline: Option<Duration>,
    /// Probes or announcements sent since the state began.
    sent: u8,
    /// Claims that failed since the address was last in use.
    conflicts: u32,
    last_defense: Option<Duration>,
}

impl Default for Claim {
    /// A claim that waits for [`ClaimEvent::Up`].
    fn default() -> Claim {
        Claim { state: ClaimState::Idle, deadline: None, sent: 0, conflicts: 0, last_defense: None }
    }
}

impl Claim {
    /// Returns how far the claim is.
    pub fn state(&self) -> ClaimState {
        self.state
    }

    /// Says whether the address may be used and answered for.
    pub fn is_usable(&self) -> bool {
        self.state == ClaimState::Held
    }

    /// Returns when [`ClaimEvent::Timer`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Lets an event happen. Appends what follows from it to `effects`, in order.
    pub fn step(
        &mut self,
        event: ClaimEvent,
        now: Duration,
        settings: &ClaimSettings,
        random: &mut Random,
        effects: &mut Vec<ClaimEffect>,
    ) {
        Step { claim: self, now, settings, random, effects }.handle_event(event);
    }
}

/// One event and all that it may touch.
struct Step<'a> {
    claim: &'a mut Claim,
    now: Duration,
    settings: &'a ClaimSettings,
    random: &'a mut Random,
    effects: &'a mut Vec<ClaimEffect>,
}

impl Step<'_> {
    fn handle_event(&mut self, event: ClaimEvent) {
        match event {
            ClaimEvent::Up => self.link_up(),
            ClaimEvent::Down => self.release_address(ClaimState::Idle, None),
            ClaimEvent::LinkAddress if self.claim.is_usable() => self.restart_announcing(),
            ClaimEvent::LinkAddress => {}
            ClaimEvent::Conflict(with) => self.handle_conflict(with),
            ClaimEvent::Timer if self.claim.deadline.is_some_and(|deadline| deadline <= self.now) => {
                self.timer_expired()
            }
            ClaimEvent::Timer => {}
        }
    }

    /// Another host may have taken the address while the link was down: the claim restarts.
    fn link_up(&mut self) {
        self.release_address(ClaimState::Idle, None);
        self.begin_probing();
    }

    fn timer_expired(&mut self) {
        match self.claim.state {
            ClaimState::Idle => self.claim.deadline = None,
            ClaimState::Lost => self.begin_probing(),
            ClaimState::Probing if self.claim.sent < self.settings.probes => self.send_probe(),
            ClaimState::Probing => self.hold_address(),
            ClaimState::Held => self.announce_address(),
        }
    }

    fn begin_probing(&mut self) {
        if self.settings.probes == 0 {
            return self.hold_address();
        }
        let wait = random_between(Duration::ZERO, self.settings.first_wait, self.random);
        self.release_address(ClaimState::Probing, Some(self.now.saturating_add(wait)));
    }

    fn send_probe(&mut self) {
        self.claim.sent += 1;
        self.effects.push(ClaimEffect::SendProbe);
        let wait = if self.claim.sent < self.settings.probes {
            random_between(self.settings.least_gap, self.settings.most_gap, self.random)
        } else {
            self.settings.last_wait
        };
        self.claim.deadline = Some(self.now.saturating_add(wait));
    }

    fn hold_address(&mut self) {
        self.claim.state = ClaimState::Held;
        self.claim.conflicts = 0;
        self.claim.last_defense = None;
        self.effects.push(ClaimEffect::Usable);
        self.restart_announcing();
    }

    fn restart_announcing(&mut self) {
        self.claim.sent = 0;
        self.announce_address();
    }

    /// Announces the address, if that was not done often enough, and sets the time of the next announcement.
    fn announce_address(&mut self) {
        self.claim.deadline = None;
        let repeats = self.settings.repeats.min(ClaimSettings::MOST_REPEATS);
        let all = self.settings.announcements.saturating_add(repeats);
        if self.claim.sent < all {
            self.claim.sent += 1;
            self.effects.push(ClaimEffect::SendAnnouncement);
        }
        if self.claim.sent < all {
            let doubled = (self.claim.sent + 1).saturating_sub(self.settings.announcements.max(1));
            let gap = self.settings.announcement_gap.saturating_mul(1 << doubled);
            self.claim.deadline = Some(self.now.saturating_add(gap));
        }
    }

    fn handle_conflict(&mut self, with: EtherAddr) {
        match self.claim.state {
            ClaimState::Idle | ClaimState::Lost => {}
            ClaimState::Probing => self.lose_address(with),
            ClaimState::Held => self.defend_address(with),
        }
    }

    fn lose_address(&mut self, with: EtherAddr) {
        self.claim.conflicts = self.claim.conflicts.saturating_add(1);
        self.effects.push(ClaimEffect::Conflict { with });
        let wait = if self.claim.conflicts < self.settings.conflicts {
            self.settings.first_wait
        } else {
            self.settings.retry
        };
        self.release_address(ClaimState::Lost, Some(self.now.saturating_add(wait)));
    }

    fn defend_address(&mut self, with: EtherAddr) {
        self.effects.push(ClaimEffect::Conflict { with });
        let is_early = |last: Duration| self.now < last.saturating_add(self.settings.defense_gap);
        if !self.claim.last_defense.is_some_and(is_early) {
            self.claim.last_defense = Some(self.now);
            self.effects.push(ClaimEffect::Defend);
        }
    }

    /// Goes to a state in which the address is not used.
    fn release_address(&mut self, state: ClaimState, deadline: Option<Duration>) {
        if self.claim.is_usable() {
            self.effects.push(ClaimEffect::Unusable);
        }
        self.claim.state = state;
        self.claim.deadline = deadline;
        self.claim.sent = 0;
    }
}

fn random_between(least: Duration, most: Duration, random: &mut Random) -> Duration {
    let range = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX - 1);
    least.saturating_add(Duration::from_nanos(random.below(range.saturating_add(1))))
}

#[cfg(test)]
mod tests;
