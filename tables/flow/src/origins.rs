//! Whose flows were imported, and how long their owners are known to live.
//!
//! The owner of a flow is the machine that sees its packets; others have copies. Each takeover of a flow
//! has an epoch one later than the one before. A copy does not become idle while its owner is known to
//! live, since packets pass there that are not seen here.
use super::tick::Tick;

/// The number of an owner of flows: the caller's, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerId(u16);

impl OwnerId {
    /// No machine, as for a flow from a file.
    pub const NONE: OwnerId = OwnerId(0);

    /// The owner of a number, from 1.
    pub fn new(number: u16) -> OwnerId {
        OwnerId(number)
    }
}

/// Who sends a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSource {
    /// The machine that owns the flow.
    pub owner: OwnerId,
    /// Whether the record counts, where epoch and version are those that are known and the answer differs.
    /// It must follow from the two answers, so that all machines decide alike.
    pub wins_ties: bool,
}

/// What is kept of a flow that came from elsewhere, beside its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) owner: OwnerId,
    pub(super) epoch: u16,
    /// When a record of the owner's last said that there is such a flow.
    pub(super) confirmed: Tick,
}

/// What is known of an owner.
#[derive(Clone, Copy)]
struct Lease {
    until: Tick,
    /// Copies that were not confirmed since then have ended at their owner.
    confirmed_since: Tick,
}

/// Whether a copy stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// It is treated like other flows, since its owner was never heard of.
    Unowned,
    /// Its owner lives, and has the flow.
    Kept,
    /// Its owner lives, and has no such flow any more.
    Gone,
    /// Its owner was last known to live so many ticks ago.
    Orphaned(u32),
}

/// The origins of all entries, which mean something only where the entry says so.
pub(super) struct Origins {
    /// Packed; memory is the system's until it is used.
    words: Vec<u64>,
    leases: Vec<Option<Lease>>,
}

impl Origins {
    pub(super) fn new(entries: u32) -> Origins {
        Origins { words: vec![0; entries as usize], leases: Vec::new() }
    }

    pub(super) fn get(&self, id: u32) -> Origin {
        let word = self.words[id as usize];
        Origin {
            owner: OwnerId((word >> 48) as u16),
            epoch: (word >> 32) as u16,
            confirmed: Tick(word as u32),
        }
    }

    pub(super) fn set(&mut self, id: u32, Origin { owner, epoch, confirmed }: Origin) {
        self.words[id as usize] = u64::from(owner.0) << 48 | u64::from(epoch) << 32 | u64::from(confirmed.0);
    }

    /// An owner lives until then.
    pub(super) fn extend_lease(&mut self, owner: OwnerId, until: Tick, confirmed_since: Tick) {
        let at = usize::from(owner.0);
        if owner != OwnerId::NONE {
            self.leases.resize(self.leases.len().max(at + 1), None);
            self.leases[at] = Some(Lease { until, confirmed_since });
        }
    }

    /// Forgets leases that ended longer ago than any flow is kept.
    pub(super) fn drop_old_leases(&mut self, now: Tick, longest_idle: u32) {
        let is_old = |lease: &Lease| now.since(lease.until).is_some_and(|ticks| ticks > longest_idle);
        for lease in &mut self.leases {
            lease.take_if(|lease| is_old(lease));
        }
    }

    /// Whether the owner of an entry is known to live.
    pub(super) fn has_living_owner(&self, id: u32, now: Tick) -> bool {
        matches!(self.copy_state(id, now), CopyState::Kept | CopyState::Gone)
    }

    pub(super) fn copy_state(&self, id: u32, now: Tick) -> CopyState {
        let origin = self.get(id);
        let Some(lease) = self.leases.get(usize::from(origin.owner.0)).copied().flatten() else {
            return CopyState::Unowned;
        };
        match now.since(lease.until).filter(|ticks| *ticks > 0) {
            Some(ticks) => CopyState::Orphaned(ticks),
            None if lease.confirmed_since.since(origin.confirmed).is_some_and(|ticks| ticks > 0) => {
                CopyState::Gone
            }
            None => CopyState::Kept,
        }
    }
}
