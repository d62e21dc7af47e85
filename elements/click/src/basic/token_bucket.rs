//! Token bucket: permits a number of events a second, and a burst after a pause.
use artery_engine::Time;
use std::time::Duration;

/// Tokens are counted in billionths, so that a nanosecond adds exactly the rate.
const TOKEN: u128 = 1_000_000_000;

/// A bucket that starts full.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    /// Tokens added a second.
    rate: u64,
    /// Most tokens it holds.
    capacity: u64,
    /// Billionths of tokens in it.
    level: u128,
    /// Until when it was filled.
    filled: Option<Time>,
}

impl TokenBucket {
    /// A bucket for `rate` tokens a second, of this capacity.
    pub(crate) fn new(rate: u64, capacity: u64) -> TokenBucket {
        TokenBucket { rate, capacity, level: 0, filled: None }
    }
    /// Changes rate and capacity; tokens that fit the new capacity stay.
    pub(crate) fn set_rate(&mut self, rate: u64, capacity: u64) {
        (self.rate, self.capacity) = (rate, capacity);
        self.level = self.level.min(self.capacity_level());
    }
    /// Tokens added a second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }
    fn capacity_level(&self) -> u128 {
        u128::from(self.capacity) * TOKEN
    }
    /// Adds the tokens of the time since the last call.
    pub(crate) fn refill_tokens(&mut self, now: Time) {
        self.level = match self.filled.replace(now) {
            Some(before) => {
                let added = now.since(before).as_nanos().saturating_mul(u128::from(self.rate));
                self.level.saturating_add(added).min(self.capacity_level())
            }
            None if self.rate == 0 => 0,
            None => self.capacity_level(),
        };
    }
    /// Whole tokens in the bucket.
    pub(crate) fn tokens(&self) -> u64 {
        (self.level / TOKEN) as u64
    }
    /// Removes tokens, down to none.
    pub(crate) fn remove(&mut self, tokens: u64) {
        self.level = self.level.saturating_sub(u128::from(tokens) * TOKEN);
    }
    /// Sets the number of tokens.
    pub(crate) fn set_tokens(&mut self, tokens: u64) {
        self.level = (u128::from(tokens) * TOKEN).min(self.capacity_level());
    }
    /// When there will be so many tokens; never if that exceeds the capacity.
    pub(crate) fn time_of(&self, tokens: u64) -> Time {
        let Some(filled) = self.filled.filter(|_| self.rate > 0 && tokens <= self.capacity) else {
            return Time::NEVER;
        };
        let missing = (u128::from(tokens) * TOKEN).saturating_sub(self.level);
        let nanos = missing.div_ceil(u128::from(self.rate));
        filled + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::new(1000, 0);

    #[test]
    fn starts_full_and_fills_up_to_its_capacity() {
        let mut bucket = TokenBucket::new(10, 2);
        bucket.refill_tokens(START);
        assert_eq!(bucket.tokens(), 2);
        bucket.remove(2);
        bucket.refill_tokens(START + Duration::from_millis(150));
        assert_eq!((bucket.tokens(), bucket.time_of(2)), (1, START + Duration::from_millis(200)));
        bucket.refill_tokens(START + Duration::from_secs(60));
        assert_eq!(bucket.tokens(), 2);
    }

    #[test]
    fn over_time_no_more_tokens_come_than_the_rate_allows() {
        let mut bucket = TokenBucket::new(333_333, 10);
        bucket.refill_tokens(START);
        bucket.set_tokens(0);
        let mut taken = 0;
        for step in 1..=1_000_000u64 {
            bucket.refill_tokens(START + Duration::from_nanos(step * 997));
            taken += bucket.tokens();
            bucket.remove(bucket.tokens());
        }
        assert_eq!(taken, 333_333 * 997 / 1000);
    }

    #[test]
    fn what_can_never_be_there_comes_never() {
        let mut bucket = TokenBucket::new(10, 2);
        assert_eq!(bucket.time_of(1), Time::NEVER);
        bucket.refill_tokens(START);
        assert_eq!((bucket.time_of(2), bucket.time_of(3)), (START, Time::NEVER));
        let mut idle = TokenBucket::new(0, 2);
        idle.refill_tokens(START);
        assert_eq!((idle.tokens(), idle.time_of(1)), (0, Time::NEVER));
    }
}
