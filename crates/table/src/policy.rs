//! How a table forwards: by which engine, and who chooses it.
use crate::{Address, Strides};
use std::fmt;
use std::str::FromStr;

/// How a table forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy<A: Address> {
    /// The compiled FIB that suits the number of routes, within so many bytes where a budget is given; the next best
    /// where the routes don't fit.
    Auto {
        /// Most bytes that the FIB may take.
        budget: Option<u64>,
    },
    /// The compiled FIB that looks up most addresses a second.
    Fast,
    /// The compiled FIB that takes least memory.
    Small,
    /// No compiled FIB: ART alone, with these strides where some are given.
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

/// A text that is no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAPolicy;

impl fmt::Display for NotAPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy is auto, auto:BYTES (such as auto:32M), fast, small, art, or art:STRIDES (such as art:16/8/8)")
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
                _ => Err(NotAPolicy),
            },
            Some(("auto", bytes)) => Ok(Policy::Auto { budget: Some(bytes_of(bytes)?) }),
            Some(("art", strides)) => Ok(Policy::Art(Some(strides.parse().map_err(|_| NotAPolicy)?))),
            Some(_) => Err(NotAPolicy),
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
    let number = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+')).ok_or(NotAPolicy)?;
    number.checked_mul(unit).ok_or(NotAPolicy)
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
        for text in
            ["", "quick", "auto:", "auto:+1", "auto:M", "auto:99999999999G", "art:", "art:x", "fast:1"]
        {
            assert_eq!(text.parse::<Policy<u32>>(), Err(NotAPolicy), "{text}");
        }
    }
}
