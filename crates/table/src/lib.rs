//! Routing tables.
#![deny(unsafe_code)]

mod address;
mod art;
mod fib;
mod limbo;
pub mod load;
mod policy;
mod runs;
#[allow(unsafe_code)]
mod simd;
#[allow(unsafe_code)]
mod storage;
pub mod synthetic;
mod table;

pub use address::{Address, NotAPrefix, Prefix};
pub use art::{Art, ArtReader, CannotInsert, LevelReport, MemoryReport, NotStrides, Routes, Strides};
pub use fib::v6::{Fib6, Fib6Reader};
pub use fib::{ArrayBytes, BuildError, FibMemory, NeedsRebuild};
pub use fib::{Fib4Fast, Fib4FastReader, Fib4Options, Fib4Small, Fib4SmallReader};
pub use limbo::Limbo;
pub use policy::{NotAPolicy, Policy};
pub use runs::{Group, NO_GROUP, Runs};
pub use simd::Simd;
pub use storage::{HugePages, Pages, Region, Storage, Word, Words};
pub use table::{Family, RouteReader, RouteTable, TableError};
