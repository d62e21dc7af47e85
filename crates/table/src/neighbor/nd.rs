//! How neighbors live in Neighbor Discovery (RFC 4861, RFC 7048, RFC 9131): by [`nud`].

use super::nud::{self, NudSettings};
use super::protocol::{Effect, Entry, Event, Heard, HeardKind, Protocol};
use crate::synthetic::Random;
use std::time::Duration;

/// The rules of Neighbor Discovery.
#[derive(Clone, Copy, Debug)]
pub struct NdProtocol {
    /// Times and counts.
    pub settings: NudSettings,
}

impl Default for NdProtocol {
    fn default() -> NdProtocol {
        NdProtocol { settings: NudSettings::nd() }
    }
}

impl Protocol for NdProtocol {
    fn name(&self) -> &'static str {
        "nd"
    }

    fn step(
        &self,
        entry: &mut Entry,
        event: Event,
        now: Duration,
        random: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        nud::step(&self.settings, entry, event, now, random, effects);
    }

    fn may_create(&self, heard: &Heard, for_us: bool) -> bool {
        let is_asked = matches!(heard.kind, HeardKind::Solicitation);
        for_us && heard.link.is_some() && (is_asked || self.settings.learns_unsolicited)
    }
}

#[cfg(test)]
mod tests;
