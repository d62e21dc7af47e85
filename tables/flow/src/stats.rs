//! What a table counts.
use super::state::FlowState;

/// What has happened in a table since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Keys that were looked for.
    pub lookups: u64,
    /// Keys that were found.
    pub hits: u64,
    /// Flows inserted by packets of this worker.
    pub inserts: u64,
    /// Flows that came from outside by [`import_record`](super::FlowTable::import_record).
    pub imported: u64,
    /// Flows that were not proven when others needed their place.
    pub displaced_young: u64,
    /// Flows that were known from elsewhere only when others needed their place.
    pub displaced_imported: u64,
    /// Flows that found the table full of others that keep their places.
    pub refused_full: u64,
    /// Flows that found no place in the index: keys that were made to collide, by someone who knows the seed.
    pub refused_crowded: u64,
    /// Flows that were idle for too long, by [state](FlowState::ALL).
    pub expired: [u64; FlowState::ALL.len()],
    /// Flows that were removed or flushed.
    pub removed: u64,
    /// Ends of flows that were to be reported and found no room.
    pub unreported_ends: u64,
    /// Entries at which the search for idle flows has looked.
    pub examined: u64,
    /// How often the memory of 1024 entries was given back to the system.
    pub released: u64,
    /// Flows whose place in the index changed as it grew or shrank.
    pub moved: u64,
    /// Flows that there are now.
    pub flows: u32,
    /// Those of them that are not proven.
    pub young: u32,
    /// Buckets of the index now.
    pub buckets: u32,
    /// Bytes that entries and index take now, at least.
    pub bytes: u64,
}

impl FlowStats {
    /// Keys that were not found.
    pub fn misses(&self) -> u64 {
        self.lookups - self.hits
    }
}
