//! The life of Neighbor Discovery entries (RFC 4861, RFC 7048, RFC 9131): by [`nud`].

use super::nud::{self, NudSettings};
use super::protocol::{Effect, Event, NeighborEntry, NeighborUpdate, NeighborUpdateKind, Protocol};
use artery_wire::Random;
use std::time::Duration;

/// The rules of Neighbor Discovery.
#[derive(Clone, Copy, Debug)]
pub struct NdProtocol {
    /// Timers and retry counts of neighbor unreachability detection.
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
        entry: &mut NeighborEntry,
        event: Event,
        now: Duration,
        random: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        nud::step(&self.settings, entry, event, now, random, effects);
    }

    fn may_create(&self, heard: &NeighborUpdate, for_us: bool) -> bool {
        let is_asked = matches!(heard.kind, NeighborUpdateKind::Solicitation);
        for_us && heard.link.is_some() && (is_asked || self.settings.learns_unsolicited)
    }
}

#[cfg(test)]
mod tests;
