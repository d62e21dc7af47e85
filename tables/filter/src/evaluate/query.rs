//! What rules ask of tables.

/// Which end of a packet is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

/// A table query: the table, the end of the packet, and whether the address must be in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableQuery(pub(super) u32);

impl TableQuery {
    /// Number of different queries of a table.
    pub(super) const PER_TABLE: usize = 4;

    pub(super) fn new(table: u32, end: End, is_negated: bool) -> TableQuery {
        TableQuery(table * TableQuery::PER_TABLE as u32 + end as u32 * 2 + u32::from(is_negated))
    }

    pub(super) fn table(self) -> usize {
        self.0 as usize / TableQuery::PER_TABLE
    }

    /// Whether the address must not be in it.
    pub(super) fn is_negated(self) -> bool {
        self.0 & 1 == 1
    }
}
