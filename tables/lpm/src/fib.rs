//! Compiled FIBs: what forwards. Made from [`Runs`](crate::Runs) in one pass, then kept in step prefix by
//! prefix.
mod blocks;
pub(crate) mod default;
pub(crate) mod layout;
mod v4;
pub(crate) mod v6;

pub use v4::{
    Fib4Fast, Fib4FastReader, Fib4FastView, Fib4Options, Fib4Small, Fib4SmallReader, Fib4SmallView,
};

use std::{fmt, io};

/// An array of a FIB has no room left for an update: the changed prefix is forwarded by outdated entries
/// until the FIB is rebuilt with more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsRebuild {
    /// The array that is full.
    pub array: &'static str,
}

impl fmt::Display for NeedsRebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the array {} of the compiled FIB is full: build it again with more room", self.array)
    }
}

impl std::error::Error for NeedsRebuild {}

/// Why a FIB could not be built.
#[derive(Debug)]
pub enum BuildError {
    /// The storage gave no memory for an array.
    Storage(io::Error),
    /// The table does not fit into the arrays that were asked for.
    Full(NeedsRebuild),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Storage(error) => write!(f, "no memory for the compiled FIB: {error}"),
            BuildError::Full(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

impl From<io::Error> for BuildError {
    fn from(error: io::Error) -> BuildError {
        BuildError::Storage(error)
    }
}

impl From<NeedsRebuild> for BuildError {
    fn from(full: NeedsRebuild) -> BuildError {
        BuildError::Full(full)
    }
}

/// How much of an array is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayBytes {
    /// The array, as its storage was asked for it.
    pub name: &'static str,
    /// Bytes that have ever been in use: the memory taken from the machine, up to the rest of the last page.
    pub used: usize,
    /// Bytes of address space.
    pub reserved: usize,
}

/// How much memory a FIB takes, array by array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibMemory {
    /// Memory of each array of the FIB.
    pub arrays: Vec<ArrayBytes>,
}

impl FibMemory {
    /// Bytes in use by all arrays together.
    pub fn bytes(&self) -> usize {
        self.arrays.iter().map(|array| array.used).sum()
    }
}
