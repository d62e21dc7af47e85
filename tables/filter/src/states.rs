//! States: what is remembered of connections that rules let pass.
//!
//! A state is found by a [`Key`]: packets that come in by that of its *wire* side, those that go out by that
//! of its *stack* side; the two differ where it translates. A connection that is forwarded has a state where
//! it comes in and one where it goes out, which know of one another, so that a packet that was found in one
//! need not be looked for in the other.
//!
//! What every packet needs is in one line of the cache, which tells the state apart, tracks it and counts;
//! beside it is one for the rest. What few states need is elsewhere. Time is in milliseconds of 32 bits,
//! which wrap after 49 days: no timeout may be longer than half of that.
mod dump;
mod entry;
mod file;
mod joined;
mod key;
mod kill;
mod lines;
mod list;
mod narrow;
mod records;
mod reservation;
mod table;

pub use dump::{DumpError, StateActions, StateRecord};
pub(crate) use entry::{Cold, Extra, Hot, MOST_AT_ONCE, flag};
pub use file::{AddError, Dump, DumpWriter};
pub use key::Key;
pub(crate) use key::Secret;
pub use kill::StateSelector;
pub(crate) use lines::HotLines;
pub use list::{InterfaceLookup, StateView, Verbosity};
pub(crate) use narrow::NarrowKey;
pub(crate) use records::{Overload, StateRuleRecord, StateRuleRecords};
pub use reservation::Reservation;
pub(crate) use table::{CannotInsert, NewState, States};

/// A state, as long as it lives; afterwards another may have its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId {
    pub(crate) number: u32,
}

impl StateId {
    /// As a number that is not 0.
    pub fn to_bits(self) -> u32 {
        self.number.wrapping_add(1)
    }

    /// The state of a number; none of 0.
    pub fn from_bits(bits: u32) -> Option<StateId> {
        Some(StateId { number: bits.checked_sub(1)? })
    }
}

/// No state, no record.
pub(crate) const NONE: u32 = u32::MAX;
