//! Rate limits of the router's own messages: a rate, and a burst after a pause.
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Permits a second; 0 allows none at all.
    pub(crate) per_second: u32,
    /// Permits at once after a pause.
    pub(crate) burst: u32,
}

impl Rate {
    /// One of `of` equal shares of the rate, with one permit at least.
    pub(crate) fn split_among(self, of: usize) -> Rate {
        let of = u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        let share = |whole: u32| if whole == 0 { 0 } else { (whole / of).max(1) };
        Rate { per_second: share(self.per_second), burst: share(self.burst) }
    }
}

/// The state of a rate limit.
#[derive(Clone, Debug)]
pub(crate) struct RateBucket {
    interval: Duration,
    tolerance: Duration,
    /// Up to when permits have been handed out.
    taken_until: Duration,
}

impl RateBucket {
    pub(crate) fn new(rate: Rate) -> RateBucket {
        if rate.per_second == 0 {
            return RateBucket {
                interval: Duration::MAX,
                tolerance: Duration::ZERO,
                taken_until: Duration::ZERO,
            };
        }
        let interval = Duration::from_secs(1) / rate.per_second;
        RateBucket { interval, tolerance: interval * rate.burst.max(1), taken_until: Duration::ZERO }
    }

    /// Whether there is a permit.
    pub(crate) fn has_token(&self, now: Duration) -> bool {
        self.taken_until.max(now).saturating_add(self.interval) <= now.saturating_add(self.tolerance)
    }

    /// Takes a permit, if one is available.
    pub(crate) fn try_acquire(&mut self, now: Duration) -> bool {
        let has = self.has_token(now);
        if has {
            self.taken_until = self.taken_until.max(now) + self.interval;
        }
        has
    }
}

/// Buckets by destination: as many as destinations share.
const DESTINATIONS: usize = 256;

/// A rate for all destinations together, and one for each, so that one destination can't use up the permits
/// of others (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f).
pub(crate) struct RateLimits {
    all: RateBucket,
    each: Box<[RateBucket]>,
    seed: RandomState,
}

impl RateLimits {
    pub(crate) fn new(all: Rate, each: Rate) -> RateLimits {
        let each = vec![RateBucket::new(each); DESTINATIONS].into();
        RateLimits { all: RateBucket::new(all), each, seed: RandomState::new() }
    }

    /// Takes a permit of both rates, if both have one.
    pub(crate) fn try_acquire(&mut self, to: IpAddr, now: Duration) -> bool {
        let place = self.seed.hash_one(to) as usize % self.each.len();
        self.each[place].has_token(now) && self.all.try_acquire(now) && self.each[place].try_acquire(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate { per_second, burst }
    }
    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn a_burst_is_allowed_and_then_so_many_a_second() {
        let mut bucket = RateBucket::new(rate(100, 10));
        assert_eq!((0..1000).filter(|_| bucket.try_acquire(5 * SECOND)).count(), 10);
        let later = (0..10_000).filter(|n| bucket.try_acquire(5 * SECOND + Duration::from_micros(100) * *n));
        assert_eq!(later.count(), 99);
        assert!(!RateBucket::new(rate(0, 10)).try_acquire(SECOND));
    }

    #[test]
    fn one_destination_does_not_use_up_what_others_have() {
        let mut limits = RateLimits::new(rate(1000, 100), rate(10, 5));
        assert_eq!((0..1000).filter(|_| limits.try_acquire(address(1), SECOND)).count(), 5);
        let others = (2..50).filter(|n| limits.try_acquire(address(*n), SECOND)).count();
        assert!(others >= 40, "{others}: few of 48 share the bucket of the first");
        assert_eq!(
            (0..100_000).filter(|n| limits.try_acquire(address(*n), SECOND)).count() + 5 + others,
            100
        );
    }

    #[test]
    fn a_share_is_never_nothing_but_of_nothing() {
        assert_eq!(rate(1000, 50).split_among(4), rate(250, 12));
        assert_eq!((rate(3, 1).split_among(8), rate(0, 5).split_among(2)), (rate(1, 1), rate(0, 2)));
    }
}
