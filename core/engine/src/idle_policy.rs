//! Whether a worker with nothing to do waits awake or asleep.
//!
//! Falling asleep and being woken costs some microseconds on a machine, and tens of them in a guest, whose
//! processor sleeps too. A worker that has lately met packets every millisecond or more often waits awake for
//! the next one; one that has waited longer sleeps at once, so that a router without traffic costs nothing.
//! It waits awake only where no other thread wants the processor: it yields, and sleeps as soon as it finds
//! that another thread ran. A fixed time to wait awake can be configured instead, to prefer latency to an
//! idle processor or the opposite.
use std::time::Duration;

/// Where the mean wait is below, packets are waited for awake.
const FREQUENT: Duration = Duration::from_millis(1);
/// For how long packets are waited for awake at most.
const AWAKE: Duration = Duration::from_millis(2);
/// Timers that go off sooner are waited for awake; so are commands, if the mean wait is shorter.
const SHORT: Duration = Duration::from_micros(30);
/// For how long commands are waited for awake at most, and packets without a yield.
const AWAKE_ALONE: Duration = Duration::from_micros(50);
/// Longer waits count as this long: a pause is forgotten after a few short waits.
const LONGEST: Duration = Duration::from_millis(5);
/// A worker whose yield took longer than this shares its processor with another thread.
const SHARED: Duration = Duration::from_micros(100);

/// How a worker waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdlePolicy {
    /// As it has learned from its waits.
    Learned {
        /// How long the next wait is likely to be: the mean of the last ones, the latest counting most.
        expected: Duration,
        /// How long it has waited since the last packet or command, over the timers between.
        silent: Duration,
    },
    /// Awake for this long, as configured, whatever traffic it has seen.
    Told(Duration),
}

impl IdlePolicy {
    /// The policy of a worker that has not waited yet; `awake` is the configured time to stay awake, if any.
    pub(crate) fn new(awake: Option<Duration>) -> IdlePolicy {
        awake.map_or(IdlePolicy::Learned { expected: LONGEST, silent: Duration::ZERO }, IdlePolicy::Told)
    }
    /// For how long to wait awake, where the next timer goes off in `timer`. For a long time only where a
    /// packet or a timer may end the wait: commands are not worth a processor.
    pub(crate) fn awake_time(self, is_dormant: bool, timer: Option<Duration>) -> Duration {
        match self {
            IdlePolicy::Learned { .. } if timer.is_some_and(|timer| timer < SHORT) => AWAKE_ALONE,
            IdlePolicy::Learned { expected: likely, .. } if is_dormant && likely < SHORT => AWAKE_ALONE,
            IdlePolicy::Learned { expected: likely, silent } if !is_dormant && likely < FREQUENT => {
                AWAKE.saturating_sub(silent)
            }
            IdlePolicy::Told(awake) if !is_dormant => awake,
            _ => Duration::ZERO,
        }
    }
    /// Whether a worker that has waited awake for `waited` lets others have the processor for a moment.
    pub(crate) fn should_yield(self, waited: Duration) -> bool {
        matches!(self, IdlePolicy::Learned { .. }) && waited > AWAKE_ALONE
    }
    /// Whether to wait awake on after `gap` without the processor.
    pub(crate) fn goes_on(&mut self, gap: Duration) -> bool {
        match self {
            IdlePolicy::Learned { expected: likely, .. } if gap > SHARED => {
                *likely = LONGEST;
                false
            }
            _ => true,
        }
    }
    /// Learns from a wait, which a timer ended or else a packet or a command.
    pub(crate) fn record_wait(&mut self, waited: Duration, ended_by_timer: bool) {
        let IdlePolicy::Learned { expected: likely, silent } = self else { return };
        *silent = silent.saturating_add(waited);
        if !ended_by_timer {
            *likely = (*likely * 7 + std::mem::take(silent).min(LONGEST)) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: impl IntoIterator<Item = u64>) -> IdlePolicy {
        learned(IdlePolicy::new(None), waits)
    }
    fn learned(mut policy: IdlePolicy, waits: impl IntoIterator<Item = u64>) -> IdlePolicy {
        waits.into_iter().for_each(|micros| policy.record_wait(Duration::from_micros(micros), false));
        policy
    }

    #[test]
    fn packets_that_come_often_are_waited_for_awake_and_rare_ones_asleep() {
        assert_eq!(IdlePolicy::new(None).awake_time(false, None), Duration::ZERO);
        for micros in [0, 5, 60, 900] {
            assert_eq!(after([micros; 60]).awake_time(false, None), AWAKE, "{micros}");
        }
        for micros in [1_100, 10_000, 1_000_000] {
            assert_eq!(after([micros; 60]).awake_time(false, None), Duration::ZERO, "{micros}");
        }
        let found = after([0, 950].repeat(30)).awake_time(false, None);
        assert_eq!(found, AWAKE, "a request and its answer each millisecond");
    }

    #[test]
    fn a_pause_among_short_waits_is_soon_forgotten_and_a_long_one_ends_the_waste() {
        let busy = || vec![5; 40];
        assert_eq!(after(busy().into_iter().chain([1_000_000])).awake_time(false, None), AWAKE);
        assert_eq!(after(busy().into_iter().chain([1_000_000; 3])).awake_time(false, None), Duration::ZERO);
        let found = after(busy().into_iter().chain([1_000_000; 3]).chain([5; 20])).awake_time(false, None);
        assert_eq!(found, AWAKE);
    }

    #[test]
    fn timers_neither_feign_packets_nor_keep_a_worker_awake_without_any() {
        let millisecond = Duration::from_millis(1);
        let mut idle = IdlePolicy::new(None);
        (0..1000).for_each(|_| idle.record_wait(millisecond / 10, true));
        assert_eq!(idle.awake_time(false, None), Duration::ZERO);
        assert_eq!(idle.awake_time(false, Some(millisecond)), Duration::ZERO);
        assert_eq!(idle.awake_time(false, Some(SHORT / 2)), AWAKE_ALONE, "sleep would end too late");
        let mut busy = after([5; 40]);
        busy.record_wait(millisecond, true);
        assert_eq!(busy.awake_time(false, None), AWAKE - millisecond);
        busy.record_wait(millisecond, true);
        let found = busy.awake_time(false, None);
        assert_eq!(found, Duration::ZERO, "nothing came for as long as it waits awake");
        busy.record_wait(Duration::ZERO, false);
        assert_eq!(busy.awake_time(false, None), AWAKE, "the packets are back");
    }

    #[test]
    fn who_shares_the_processor_sleeps_until_packets_have_come_often_again() {
        let mut policy = after([5; 40]);
        assert!(policy.goes_on(SHARED) && !policy.goes_on(2 * SHARED));
        assert_eq!(policy.awake_time(false, None), Duration::ZERO);
        assert_eq!(learned(policy, [5; 40]).awake_time(false, None), AWAKE);
        assert!(IdlePolicy::new(Some(AWAKE)).goes_on(Duration::MAX), "as configured");
        assert!(policy.should_yield(AWAKE) && !policy.should_yield(Duration::ZERO));
        assert!(!IdlePolicy::new(Some(AWAKE)).should_yield(AWAKE));
    }

    #[test]
    fn who_is_told_how_long_to_wait_awake_learns_nothing_else() {
        for told in [Duration::ZERO, Duration::from_millis(20), Duration::MAX] {
            for waits in [[5; 40], [1_000_000; 40]] {
                let policy = learned(IdlePolicy::new(Some(told)), waits);
                assert_eq!(policy.awake_time(false, None), told);
                assert_eq!(policy.awake_time(true, None), Duration::ZERO, "for commands alone");
            }
        }
        let found = after([5; 80]).awake_time(true, None);
        assert_eq!(found, AWAKE_ALONE, "calls between workers are short waits too");
        assert_eq!(after([60; 80]).awake_time(true, None), Duration::ZERO, "no packet would come");
    }
}
