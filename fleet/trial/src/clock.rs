//! The time of day: all machines of a trial share one clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970, as machines of one host share.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
