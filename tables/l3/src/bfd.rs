//! Bidirectional Forwarding Detection over a single hop (RFC 5880, 5881): whether the path to a neighbor is
//! up, noticed within few intervals of some 50 ms or more.
//!
//! A [`Session`] is a pure machine for one neighbor, in asynchronous mode: it is given packets
//! ([`Session::receive_packet`]) and the time ([`Session::poll_transmit`]), and says which packets to send,
//! and when to call it next ([`Session::poll_at`]). It knows no socket, no thread and no clock. Sections in
//! comments are those of RFC 5880 where no other is named, and so are names of variables.
//!
//! What the standard leaves open:
//!
//! - A path counts as down ([`Session::is_path_down`]) from when a session that was Up goes Down, until it is
//!   Up again. A session that was never Up says nothing: the neighbor may not speak BFD (RFC 5882 section 5).
//!   Neither does a neighbor that is AdminDown, nor a session that is held down here (RFC 5882 section 3.2).
//! - Before a session goes down because no packet was received, [`STALL_GRACE`] passes once more. So a
//!   program that did not run for a while reads what has arrived meanwhile before it blames the path.
//! - Authentication and echo are not supported, and the session never asks for demand mode. A neighbor that
//!   asks for it gets no periodic packets while both ends are Up (section 6.6).

mod session;
#[cfg(test)]
mod tests;

pub use session::{Session, SessionView};

use std::time::Duration;

/// Shortest interval that a session can be set to. Below it, what an ordinary kernel's scheduler does to a
/// process looks like a path that is down.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(50);
/// Longest interval that a session can be set to.
pub const MOST_INTERVAL: Duration = Duration::from_secs(60);
/// The shortest interval between periodic packets while a session is not Up (section 6.8.3).
pub const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// How long after the detection time a session goes down, unless a packet is read before; see the module.
pub const STALL_GRACE: Duration = Duration::from_millis(5);

/// How often a session sends, and how long it waits for the neighbor's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The interval that the session asks for in both directions: DesiredMinTxInterval and
    /// RequiredMinRxInterval. The longer one of both ends counts.
    pub interval: Duration,
    /// The neighbor's session goes down after this many intervals without a packet.
    pub multiplier: u8,
}

impl Default for SessionSettings {
    /// 300 ms and 3, as FRR has them.
    fn default() -> SessionSettings {
        SessionSettings { interval: Duration::from_millis(300), multiplier: 3 }
    }
}

impl SessionSettings {
    /// These settings, if a session can have them.
    pub fn new(interval: Duration, multiplier: u8) -> Result<SessionSettings, SettingsError> {
        if !(LEAST_INTERVAL..=MOST_INTERVAL).contains(&interval) {
            return Err(SettingsError::Interval(interval));
        }
        if multiplier == 0 {
            return Err(SettingsError::Multiplier);
        }
        Ok(SessionSettings { interval, multiplier })
    }
}

/// Why a session can't have such settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The interval is shorter than [`LEAST_INTERVAL`], or longer than [`MOST_INTERVAL`].
    #[error("the interval {0:?} is out of range; use one from {LEAST_INTERVAL:?} to {MOST_INTERVAL:?}")]
    Interval(Duration),
    /// The multiplier is 0.
    #[error("the multiplier is 0; use one from 1 to 255")]
    Multiplier,
}
