//! What is known of the connection of a packet, for who asks.
use super::keeper::ConnectionKeeper;
use super::tracker::{ConnectionTracker, FamilyConsent, Known};
use crate::fast::FlowKey;

/// A connection that was heard of, as one of its packets meets it.
pub(crate) struct ExplainedConnection {
    /// What packets of who began it, and of the answers, arrive with.
    pub(crate) tuples: [FlowKey; 2],
    /// What packets of both directions leave with.
    pub(crate) leaves: [FlowKey; 2],
    /// Whether the packet is of the original direction (0) or of the answers (1).
    pub(crate) direction: usize,
    /// Its status (`IPS_*`).
    pub(crate) status: u32,
    /// Whether a flow table of the kernel's had it.
    pub(crate) is_offloaded: bool,
    pub(crate) kept_by: Option<ConnectionKeeper>,
}

impl ConnectionTracker {
    /// The connection that a packet with these addresses and ports would be of.
    pub(crate) fn explain(&self, key: &FlowKey) -> Option<ExplainedConnection> {
        let tuples = |known: &Known| [known.entry.original, known.entry.reply];
        let is_it = |known: &&Known| tuples(known).contains(key);
        // Nothing else needs to find one by its addresses.
        let known = self.known.values().find(is_it)?;
        Some(ExplainedConnection {
            tuples: tuples(known),
            leaves: known.entry.directions().map(|direction| direction.leaves()),
            direction: usize::from(known.entry.original != *key),
            status: known.entry.status(),
            is_offloaded: known.entry.is_offloaded(),
            kept_by: known.kept_by,
        })
    }

    /// Whether connections of families are forwarded past rules, IPv4 first.
    pub(crate) fn consent(&self) -> [FamilyConsent; 2] {
        self.consent
    }
}
