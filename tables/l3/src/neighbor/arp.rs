//! The life of ARP entries (RFC 826; RFC 1122, 2.3.2): verified as those of IPv6 are, by [`nud`], with ARP
//! requests to the neighbor's link address. An unknown neighbor is solicited once a second, five times at
//! most; then packets to it fail for a while.

use super::nud::{self, NudSettings};
use super::protocol::{Effect, Event, NeighborEntry, NeighborUpdate, Protocol};
use artery_wire::Random;
use std::time::Duration;

/// The rules of ARP.
#[derive(Clone, Copy, Debug)]
pub struct ArpProtocol {
    /// Timers and retry counts of neighbor unreachability detection.
    pub settings: NudSettings,
}

impl Default for ArpProtocol {
    fn default() -> ArpProtocol {
        ArpProtocol { settings: NudSettings::arp() }
    }
}

impl Protocol for ArpProtocol {
    fn name(&self) -> &'static str {
        "arp"
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

    /// Learns only from those who talk to us: everything else would let a stranger fill the table.
    fn may_create(&self, heard: &NeighborUpdate, for_us: bool) -> bool {
        for_us && heard.link.is_some()
    }
}

#[cfg(test)]
mod tests;
