//! How often the router speaks of itself: so many times a second, and so many at once after a rest.
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// So many a second; none at all if that is 0.
    pub(crate) per_second: u32,
    /// So many at once.
    pub(crate) burst: u32,
}

impl Rate {
    /// One of so many equal shares of it, a permit at least.
    pub(crate) fn share(self, of: usize) -> Rate {
        let of = u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        let share = |whole: u32| if whole == 0 { 0 } else { (whole / of).max(1) };
        Rate { per_second: share(self.per_second), burst: share(self.burst) }
    }
}

/// What is left of a rate.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    interval: Duration,
    tolerance: Duration,
    /// Up to when permits have been handed out.
    taken_until: Duration,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(rate: Rate) -> Bucket {
        if rate.per_second == 0 {
            return Bucket {
                interval: Duration::MAX,
                tolerance: Duration::ZERO,
                taken_until: Duration::ZERO,
            };
        }
        let interval = Duration::from_secs(1) / rate.per_second;
        Bucket { interval, tolerance: interval * rate.burst.max(1), taken_until: Duration::ZERO }
    }

    /// Whether there is a permit.
    pub(crate) fn has(&self, now: Duration) -> bool {
        self.taken_until.max(now).saturating_add(self.interval) <= now.saturating_add(self.tolerance)
    }

    /// Takes a permit, if there is one.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let has = self.has(now);
        if has {
            self.taken_until = self.taken_until.max(now) + self.interval;
        }
        has
    }
}

/// Buckets by destination: as many as destinations share.
const DESTINATIONS: usize = 256;

/// A rate for all destinations together, and one for each, so that one that asks for much leaves the others theirs
/// (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f).
pub(crate) struct Limits {
    all: Bucket,
    each: Box<[Bucket]>,
    seed: RandomState,
}

impl Limits {
    /// Full ones.
    pub(crate) fn new(all: Rate, each: Rate) -> Limits {
        let each = vec![Bucket::new(each); DESTINATIONS].into();
        Limits { all: Bucket::new(all), each, seed: RandomState::new() }
    }

    /// Takes a permit of both, if both have one.
    pub(crate) fn take(&mut self, to: IpAddr, now: Duration) -> bool {
        let place = self.seed.hash_one(to) as usize % self.each.len();
        self.each[place].has(now) && self.all.take(now) && self.each[place].take(now)
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
        let mut bucket = Bucket::new(rate(100, 10));
        assert_eq!((0..1000).filter(|_| bucket.take(5 * SECOND)).count(), 10);
        let later = (0..10_000).filter(|n| bucket.take(5 * SECOND + Duration::from_micros(100) * *n));
        assert_eq!(later.count(), 99);
        assert!(!Bucket::new(rate(0, 10)).take(SECOND));
    }

    #[test]
    fn one_destination_does_not_use_up_what_others_have() {
        let mut limits = Limits::new(rate(1000, 100), rate(10, 5));
        assert_eq!((0..1000).filter(|_| limits.take(address(1), SECOND)).count(), 5);
        let others = (2..50).filter(|n| limits.take(address(*n), SECOND)).count();
        assert!(others >= 40, "{others}: few of 48 share the bucket of the first");
        assert_eq!((0..100_000).filter(|n| limits.take(address(*n), SECOND)).count() + 5 + others, 100);
    }

    #[test]
    fn a_share_is_never_nothing_but_of_nothing() {
        assert_eq!(rate(1000, 50).share(4), rate(250, 12));
        assert_eq!((rate(3, 1).share(8), rate(0, 5).share(2)), (rate(1, 1), rate(0, 2)));
    }
}
