//! How long a state lives without a packet: by what was seen last, by its rule, and shorter
//! as states become many.
use crate::options::{Limits, Timeout};
use std::time::Duration;

/// Timeouts that a rule gives its states, by [`Timeout`]; 0 is what holds for all.
pub type OwnTimeouts = [u32; 20];

/// What a rule says about timeouts, and how many states it has.
#[derive(Clone, Copy, Debug)]
pub struct RuleTimeouts<'a> {
    /// Timeouts of the rule itself; 0 where the default holds.
    pub timeouts: &'a OwnTimeouts,
    /// Number of states that the rule has.
    pub states: u32,
}

/// How long a state of a class lives after a packet. `states` is how many there are in all.
pub fn state_lifetime(
    limits: &Limits,
    class: Timeout,
    states: u32,
    rule: Option<RuleTimeouts<'_>>,
) -> Duration {
    let own = |timeout: Timeout| rule.map(|rule| rule.timeouts[timeout as usize]).filter(|own| *own > 0);
    let seconds = own(class).unwrap_or(limits.timeouts[class as usize]);
    let range = match (own(Timeout::AdaptiveStart), rule) {
        (Some(start), Some(rule)) => (start, own(Timeout::AdaptiveEnd).unwrap_or(0), rule.states),
        _ => return adapt_timeout(limits, seconds, states),
    };
    scale_timeout(seconds, range)
}

/// What a timeout is with so many states in all.
pub(crate) fn adapt_timeout(limits: &Limits, seconds: u32, states: u32) -> Duration {
    let [start, end] = [Timeout::AdaptiveStart, Timeout::AdaptiveEnd];
    scale_timeout(seconds, (limits.timeouts[start as usize], limits.timeouts[end as usize], states))
}

/// A timeout that shrinks from `start` states on and is nothing from `end` states on.
fn scale_timeout(seconds: u32, (start, end, states): (u32, u32, u32)) -> Duration {
    let whole = Duration::from_secs(seconds.into());
    if end == 0 || start >= end || states <= start {
        return whole;
    }
    let left = u64::from(end.saturating_sub(states));
    Duration::from_millis(u64::from(seconds) * 1000 * left / u64::from(end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_shrink_between_start_and_end() {
        let limits = Limits::default();
        for (states, seconds) in [(0, 86_400), (60_000, 86_400), (90_000, 43_200), (120_000, 0), (130_000, 0)]
        {
            let lifetime = state_lifetime(&limits, Timeout::TcpEstablished, states, None);
            assert_eq!(lifetime, Duration::from_secs(seconds), "{states}");
        }
    }

    #[test]
    fn a_rules_own_timeouts_and_states_come_first() {
        let mut own = [0; 20];
        own[Timeout::UdpSingle as usize] = 5;
        own[Timeout::AdaptiveStart as usize] = 10;
        own[Timeout::AdaptiveEnd as usize] = 20;
        for (states, millis) in [(10, 5000), (15, 2500), (20, 0)] {
            let rule = RuleTimeouts { timeouts: &own, states };
            let lifetime = state_lifetime(&Limits::default(), Timeout::UdpSingle, 1_000_000, Some(rule));
            assert_eq!(lifetime, Duration::from_millis(millis));
        }
    }

    #[test]
    fn an_end_that_is_not_above_the_start_scales_nothing() {
        let mut limits = Limits::default();
        limits.timeouts[Timeout::AdaptiveEnd as usize] = 0;
        assert_eq!(state_lifetime(&limits, Timeout::TcpFirst, 1_000_000, None), Duration::from_secs(120));
    }
}
