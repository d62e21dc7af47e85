//! Forwarding policy of a table: which engine, and what chooses it.
use crate::address::Address;
use crate::art::{NotStrides, Strides};
use std::fmt;
use std::str::FromStr;

/// How a table forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy<A: Address> {
    /// The compiled FIB that suits the number of routes; the next best where the routes don't fit.
    Auto {
        /// Most bytes that the FIB may take beside ART, which every table has: of fast, small and ART alone,
        /// the first that the routes want and that fits. When a FIB is compiled, what it takes is counted;
        /// while routes come and go, it is estimated by their number.
        budget: Option<u64>,
    },
    /// The compiled FIB that looks up most addresses a second.
    Fast,
    /// The compiled FIB that takes least memory.
    Small,
    /// No compiled FIB: ART alone, with these strides where some are given, each of
    /// at most [`Strides::MOST`] bits.
    Art(Option<Strides<A>>),
}

impl<A: Address> Default for Policy<A> {
    fn default() -> Policy<A> {
        Policy::Auto { budget: None }
    }
}

impl<A: Address> fmt::Display for Policy<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Auto { budget: None } => f.write_str("auto"),
            Policy::Auto { budget: Some(bytes) } if bytes % MEGA == 0 => write!(f, "auto:{}M", bytes / MEGA),
            Policy::Auto { budget: Some(bytes) } => write!(f, "auto:{bytes}"),
            Policy::Fast => f.write_str("fast"),
            Policy::Small => f.write_str("small"),
            Policy::Art(None) => f.write_str("art"),
            Policy::Art(Some(strides)) => write!(f, "art:{strides}"),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAPolicy {
    /// It is not the name of a policy.
    Form,
    /// It is `art:` with a list that is not one of strides.
    Strides(NotStrides),
}

impl fmt::Display for NotAPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAPolicy::Form => f.write_str(
                "a policy is auto, auto:BYTES (such as auto:32M), fast, small, art, or art:STRIDES (such as \
                 art:16/8/8)",
            ),
            NotAPolicy::Strides(reason) => write!(f, "policy art: {reason}"),
        }
    }
}

impl std::error::Error for NotAPolicy {}

impl<A: Address> FromStr for Policy<A> {
    type Err = NotAPolicy;

    fn from_str(text: &str) -> Result<Policy<A>, NotAPolicy> {
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Policy::default()),
                "fast" => Ok(Policy::Fast),
                "small" => Ok(Policy::Small),
                "art" => Ok(Policy::Art(None)),
                _ => Err(NotAPolicy::Form),
            },
            Some(("auto", bytes)) => Ok(Policy::Auto { budget: Some(bytes_of(bytes)?) }),
            Some(("art", strides)) => Ok(Policy::Art(Some(strides.parse().map_err(NotAPolicy::Strides)?))),
            Some(_) => Err(NotAPolicy::Form),
        }
    }
}

const MEGA: u64 = 1_000_000;

/// Reads a number of bytes, in thousands with `k`, in millions with `M`, in thousand millions with `G`.
fn bytes_of(text: &str) -> Result<u64, NotAPolicy> {
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if text.ends_with('k') => (digits, 1000),
        Some(digits) if text.ends_with('M') => (digits, MEGA),
        Some(digits) => (digits, 1000 * MEGA),
        None => (text, 1),
    };
    let number = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+')).ok_or(NotAPolicy::Form)?;
    number.checked_mul(unit).ok_or(NotAPolicy::Form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written() {
        for text in ["auto", "auto:32M", "auto:123", "fast", "small", "art", "art:16/8/8"] {
            assert_eq!(text.parse::<Policy<u32>>().unwrap().to_string(), text);
        }
        assert_eq!("auto:2k".parse(), Ok(Policy::<u32>::Auto { budget: Some(2000) }));
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        for text in ["", "quick", "auto:", "auto:+1", "auto:M", "auto:99999999999G", "ART", "fast:1"] {
            assert_eq!(text.parse::<Policy<u32>>(), Err(NotAPolicy::Form), "{text}");
        }
    }
    #[test]
    fn strides_are_refused_with_the_reason() {
        let reason = |text: &str| text.parse::<Policy<u32>>().unwrap_err().to_string();
        let found = reason("art:16/8");
        assert_eq!(found, "policy art: the strides sum up to 24, but an address of this family has 32 bits");
        assert!(reason("art:16/8/9").contains("sum up to 33"));
        for text in ["art:", "art:x", "art:32", "art:0/16/16"] {
            assert_eq!(
                reason(text),
                "policy art: a stride is a number of bits from 1 to 24, with slashes between, as in 16/8/8",
                "{text}"
            );
        }
        let (all, bits) = ("art:16/8/8".parse::<Policy<u128>>().unwrap_err().to_string(), "has 128 bits");
        assert!(all.ends_with(bits), "{all}");
    }
}
