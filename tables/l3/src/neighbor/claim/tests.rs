use super::ClaimEffect::*;
use super::*;
use crate::neighbor::protocol::testing::{A, B, ms, secs};

/// A claim under a clock that the test advances.
struct Life {
    claim: Claim,
    settings: ClaimSettings,
    now: Duration,
    random: Random,
    log: Vec<(Duration, ClaimEffect)>,
}

impl Life {
    fn new(settings: ClaimSettings, seed: u64) -> Life {
        let (claim, random) = (Claim::default(), Random::new(seed));
        Life { claim, settings, now: Duration::ZERO, random, log: Vec::new() }
    }

    /// A claim that has come into use and has nothing more to announce.
    fn held(settings: ClaimSettings) -> Life {
        let mut life = Life::new(settings, 1);
        life.event(ClaimEvent::Up);
        life.run_to(secs(100));
        assert!(life.claim.is_usable() && life.claim.deadline().is_none());
        life.log.clear();
        life
    }

    fn event(&mut self, event: ClaimEvent) -> Vec<ClaimEffect> {
        let mut effects = Vec::new();
        self.claim.step(event, self.now, &self.settings, &mut self.random, &mut effects);
        self.log.extend(effects.iter().map(|&effect| (self.now, effect)));
        effects
    }

    fn run_to(&mut self, until: Duration) {
        while let Some(due) = self.claim.deadline()
            && due <= until
        {
            assert!(due >= self.now);
            self.now = due;
            let before = self.claim.clone();
            self.event(ClaimEvent::Timer);
            assert_ne!(self.claim, before, "a timer that changes nothing comes for ever");
        }
        self.now = until;
    }

    /// Runs until a probe has been sent.
    fn run_to_probe(&mut self) {
        let sent = self.times(SendProbe).len();
        while self.times(SendProbe).len() == sent {
            self.run_to(self.claim.deadline().expect("a probe to come"));
        }
    }

    fn times(&self, effect: ClaimEffect) -> Vec<Duration> {
        self.log.iter().filter(|(_, logged)| *logged == effect).map(|&(at, _)| at).collect()
    }
}

#[test]
fn an_ipv4_address_is_probed_three_times_used_and_announced_twice() {
    for seed in 0..200 {
        let mut life = Life::new(ClaimSettings::arp(), seed);
        assert_eq!(life.event(ClaimEvent::Up), []);
        life.run_to(secs(60));
        let effects: Vec<_> = life.log.iter().map(|&(_, effect)| effect).collect();
        let order = [SendProbe, SendProbe, SendProbe, Usable, SendAnnouncement, SendAnnouncement];
        assert_eq!(effects, order, "seed {seed}");
        let at: Vec<_> = life.log.iter().map(|&(at, _)| at).collect();
        assert!(at[0] <= secs(1), "seed {seed}: {at:?}");
        for gap in [at[1] - at[0], at[2] - at[1]] {
            assert!((secs(1)..=secs(2)).contains(&gap), "seed {seed}: {at:?}");
        }
        assert_eq!((at[3] - at[2], at[4] - at[3], at[5] - at[4]), (secs(2), secs(0), secs(2)));
    }
}

#[test]
fn random_waits_take_their_whole_range() {
    let firsts: Vec<_> = (0..200)
        .map(|seed| {
            let mut life = Life::new(ClaimSettings::arp(), seed);
            life.event(ClaimEvent::Up);
            life.claim.deadline().unwrap()
        })
        .collect();
    assert!(firsts.iter().min() < Some(&ms(50)) && firsts.iter().max() > Some(&ms(950)));
}

#[test]
fn an_ipv6_address_is_probed_once_and_used_a_second_later() {
    let mut life = Life::new(ClaimSettings::nd(), 1);
    life.event(ClaimEvent::Up);
    life.run_to(secs(60));
    let at = life.times(SendProbe);
    assert!(at.len() == 1 && at[0] <= secs(1));
    let usable = at[0] + secs(1);
    assert_eq!(life.times(Usable), [usable]);
    assert_eq!(life.times(SendAnnouncement), [usable, usable + secs(1), usable + secs(2)]);
}

#[test]
fn an_address_is_not_used_before_its_probes_went_unanswered() {
    for settings in [ClaimSettings::arp(), ClaimSettings::nd()] {
        let mut life = Life::new(settings, 1);
        life.event(ClaimEvent::Up);
        while life.times(Usable).is_empty() {
            assert!(!life.claim.is_usable());
            assert_eq!(life.claim.state(), ClaimState::Probing);
            life.run_to(life.claim.deadline().unwrap());
        }
        assert!(life.claim.is_usable());
    }
}

#[test]
fn without_probes_an_address_is_used_and_announced_at_once() {
    let mut life = Life::new(ClaimSettings::arp().without_probes(), 1);
    assert_eq!(life.event(ClaimEvent::Up), [Usable, SendAnnouncement]);
    life.run_to(secs(60));
    assert_eq!(life.times(SendAnnouncement), [0, 2].map(secs));
}

#[test]
fn a_conflict_at_any_time_before_use_loses_the_address_and_is_told_once() {
    for probes in 0..=3 {
        let mut life = Life::new(ClaimSettings::arp(), 1);
        life.event(ClaimEvent::Up);
        (0..probes).for_each(|_| life.run_to_probe());
        assert_eq!(life.event(ClaimEvent::Conflict(A)), [Conflict { with: A }]);
        assert_eq!(life.claim.state(), ClaimState::Lost);
        assert_eq!(life.event(ClaimEvent::Conflict(A)), []);
    }
}

#[test]
fn a_lost_address_is_claimed_again_and_after_ten_conflicts_once_a_minute() {
    let mut life = Life::new(ClaimSettings::arp(), 1);
    life.event(ClaimEvent::Up);
    let mut lost = Vec::new();
    for _ in 0..14 {
        life.run_to_probe();
        life.event(ClaimEvent::Conflict(B));
        lost.push(life.now);
    }
    let gaps: Vec<_> = lost.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[..9].iter().all(|gap| *gap <= secs(2)), "{gaps:?}");
    assert!(gaps[9..].iter().all(|gap| *gap >= secs(60) && *gap <= secs(61)), "{gaps:?}");
    life.run_to(life.now + secs(80));
    assert!(life.claim.is_usable());
    // What went well is forgotten: the next conflicts count from one.
    life.event(ClaimEvent::Up);
    life.run_to_probe();
    life.event(ClaimEvent::Conflict(B));
    assert_eq!(life.claim.deadline(), Some(life.now + secs(1)));
}

#[test]
fn an_ipv6_address_that_another_has_is_tried_once_a_minute() {
    let mut life = Life::new(ClaimSettings::nd(), 1);
    life.event(ClaimEvent::Up);
    life.run_to_probe();
    life.event(ClaimEvent::Conflict(A));
    assert_eq!(life.claim.deadline(), Some(life.now + secs(60)));
}

#[test]
fn an_address_in_use_is_defended_at_most_every_ten_seconds_and_kept() {
    let mut life = Life::held(ClaimSettings::arp());
    for _ in 0..300 {
        life.run_to(life.now + ms(100));
        assert_eq!(life.event(ClaimEvent::Conflict(A))[0], Conflict { with: A });
    }
    assert!(life.claim.is_usable());
    assert_eq!(life.times(Conflict { with: A }).len(), 300);
    let defended = life.times(Defend);
    assert_eq!(defended.len(), 3);
    assert!(defended.windows(2).all(|pair| pair[1] - pair[0] >= secs(10)));
}

#[test]
fn a_new_link_address_is_announced_and_needs_no_probes() {
    let mut life = Life::held(ClaimSettings::arp());
    assert_eq!(life.event(ClaimEvent::LinkAddress), [SendAnnouncement]);
    life.run_to(secs(200));
    assert_eq!(life.times(SendAnnouncement), [100, 102].map(secs));
    assert!(life.claim.is_usable());
}

#[test]
fn a_new_link_address_during_the_claim_is_not_announced() {
    let mut life = Life::new(ClaimSettings::arp(), 1);
    assert_eq!(life.event(ClaimEvent::LinkAddress), []);
    life.event(ClaimEvent::Up);
    life.run_to_probe();
    assert_eq!(life.event(ClaimEvent::LinkAddress), []);
}

#[test]
fn further_announcements_come_ever_more_seldom_and_end() {
    let mut settings = ClaimSettings::arp().without_probes();
    (settings.announcements, settings.announcement_gap) = (1, secs(1));
    settings.repeats = 3;
    let mut life = Life::new(settings, 1);
    life.event(ClaimEvent::Up);
    life.run_to(secs(1_000_000));
    assert_eq!(life.times(SendAnnouncement), [0, 2, 6, 14].map(secs));
    settings.repeats = 255;
    let mut life = Life::new(settings, 1);
    life.event(ClaimEvent::Up);
    life.run_to(secs(1_000_000));
    assert_eq!(life.times(SendAnnouncement).len(), 17);
}

#[test]
fn a_port_that_goes_down_takes_the_address_out_of_use_until_it_was_claimed_again() {
    let mut life = Life::held(ClaimSettings::arp());
    assert_eq!(life.event(ClaimEvent::Down), [Unusable]);
    assert_eq!((life.claim.state(), life.claim.deadline()), (ClaimState::Idle, None));
    assert_eq!(life.event(ClaimEvent::Conflict(A)), []);
    assert_eq!(life.event(ClaimEvent::Up), []);
    life.log.clear();
    life.run_to(life.now + secs(60));
    assert_eq!((life.times(SendProbe).len(), life.times(Usable).len()), (3, 1));
}

#[test]
fn a_port_that_comes_up_twice_claims_once() {
    let mut life = Life::held(ClaimSettings::arp());
    assert_eq!(life.event(ClaimEvent::Up), [Unusable]);
    life.event(ClaimEvent::Up);
    life.run_to(life.now + secs(60));
    assert_eq!((life.times(SendProbe).len(), life.times(Usable).len()), (3, 1));
}

#[test]
fn times_of_any_length_are_borne() {
    let most = Duration::MAX;
    let settings = ClaimSettings {
        first_wait: most,
        least_gap: most,
        most_gap: most,
        last_wait: most,
        announcement_gap: most,
        repeats: 255,
        defense_gap: most,
        retry: most,
        ..ClaimSettings::arp()
    };
    for settings in [settings, settings.without_probes()] {
        let mut life = Life::new(settings, 1);
        for event in [ClaimEvent::Up, ClaimEvent::Conflict(A), ClaimEvent::Conflict(A), ClaimEvent::Timer] {
            life.now += secs(1);
            life.event(event);
        }
    }
}

#[test]
fn a_timer_that_comes_early_changes_nothing() {
    let mut life = Life::new(ClaimSettings::arp(), 1);
    assert_eq!(life.event(ClaimEvent::Timer), []);
    life.event(ClaimEvent::Up);
    life.run_to_probe();
    let before = life.claim.clone();
    life.now += ms(999);
    assert_eq!(life.event(ClaimEvent::Timer), []);
    assert_eq!(life.claim, before);
}
