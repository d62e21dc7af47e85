//! One interface to the FIBs of both families, for the table that keeps one in step.
use super::v4::{Fib4Fast, Fib4FastReader, Fib4Options, Fib4Small, Fib4SmallReader};
use super::v6::{Fib6, Fib6Reader};
use super::{BuildError, FibMemory, NeedsRebuild};
use crate::address::{Address, Prefix};
use crate::runs::{Group, Holes, Runs};
use artery_rcu::{Domain, Turn};
use artery_storage::Storage;
use std::fmt;
use std::sync::Arc;

/// What a compiled FIB is good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Most lookups a second.
    Fast,
    /// The layout with least memory.
    Small,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Fast => "fast",
            Layout::Small => "small",
        })
    }
}

/// A compiled FIB of a family.
pub trait Fib<A: Address>: Sized + Send {
    /// What looks addresses up, on any thread.
    type Reader: Clone + Send + Sync + 'static;
    /// The greatest group that it can hold.
    const MAX_GROUP: Group;

    /// The layout that is built where this one is asked for.
    fn nearest_layout(layout: Layout) -> Layout;
    /// Bytes that a layout takes for this many routes, roughly.
    fn estimate_bytes(layout: Layout, routes: usize) -> u64;
    /// Compiles all routes of a table.
    fn build(
        layout: Layout,
        domain: &Arc<Domain>,
        runs: &impl Runs<A>,
        storage: &dyn Storage,
    ) -> Result<Self, BuildError>;
    /// Takes over what has changed in a prefix, whose addresses now go to `group` where
    /// nothing longer covers them.
    fn replace_prefix(
        &mut self,
        runs: &impl Holes<A>,
        changed: Prefix<A>,
        group: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild>;
    /// How it is laid out.
    fn layout(&self) -> Layout;
    /// How much memory it takes.
    fn memory(&self) -> FibMemory;
    /// A reader for one thread.
    fn reader(&self) -> Self::Reader;
    /// Looks an address up.
    fn lookup(reader: &Self::Reader, turn: &Turn<'_>, address: A) -> Group;
    /// Looks many addresses up.
    fn lookup_batch(reader: &Self::Reader, turn: &Turn<'_>, addresses: &[A], groups: &mut [Group]);
}

/// A compiled IPv4 FIB of either layout.
pub enum Fib4 {
    /// The fast layout: see [`Fib4Fast`].
    Fast(Fib4Fast),
    /// The small layout: see [`Fib4Small`].
    Small(Fib4Small),
}

/// What looks addresses up in a [`Fib4`].
#[derive(Clone)]
pub enum Fib4Reader {
    /// The fast layout: see [`Fib4FastReader`].
    Fast(Fib4FastReader),
    /// The small layout: see [`Fib4SmallReader`].
    Small(Fib4SmallReader),
}

/// Bytes that the fast layout takes without routes: the cells, and a word for each /16.
const FAST: u64 = (1 << 24) + (8 << 16);
/// Bytes that the small layout takes without routes: a word for each /19, and the leaves that
/// are their own numbers.
const SMALL: u64 = (8 << 19) + (2 << 16);
/// Bytes that the IPv6 FIB takes without routes: its root.
const ROOT: u64 = 4 << 16;

impl Fib<u32> for Fib4 {
    type Reader = Fib4Reader;
    const MAX_GROUP: Group = Group::MAX;

    fn nearest_layout(layout: Layout) -> Layout {
        layout
    }
    fn estimate_bytes(layout: Layout, routes: usize) -> u64 {
        match layout {
            // About a byte a route for what is longer than a /24.
            Layout::Fast => FAST + routes as u64,
            // A leaf a route, and about half of one more for what is longer than a /24.
            Layout::Small => SMALL + 3 * routes as u64,
        }
    }
    fn build(
        layout: Layout,
        domain: &Arc<Domain>,
        runs: &impl Runs<u32>,
        storage: &dyn Storage,
    ) -> Result<Fib4, BuildError> {
        if layout == Layout::Small {
            return Fib4Small::build(domain, runs, storage, Fib4Options::default()).map(Fib4::Small);
        }
        let fib = Fib4Fast::build(domain, runs, storage, Fib4Options::default())?;
        if !fib.wants_wide() {
            return Ok(Fib4::Fast(fib));
        }
        // More groups than a byte can tell apart.
        drop(fib);
        let wide = Fib4Options { wide: true, ..Fib4Options::default() };
        Fib4Fast::build(domain, runs, storage, wide).map(Fib4::Fast)
    }
    fn replace_prefix(
        &mut self,
        runs: &impl Holes<u32>,
        changed: Prefix<u32>,
        group: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild> {
        match self {
            Fib4::Fast(fib) => {
                fib.replace_prefix(runs, changed, group)?;
                if fib.wants_wide() { Err(NeedsRebuild { array: "cells" }) } else { Ok(()) }
            }
            Fib4::Small(fib) => fib.replace_prefix(runs, changed, group),
        }
    }
    fn layout(&self) -> Layout {
        match self {
            Fib4::Fast(_) => Layout::Fast,
            Fib4::Small(_) => Layout::Small,
        }
    }
    fn memory(&self) -> FibMemory {
        match self {
            Fib4::Fast(fib) => fib.memory(),
            Fib4::Small(fib) => fib.memory(),
        }
    }
    fn reader(&self) -> Fib4Reader {
        match self {
            Fib4::Fast(fib) => Fib4Reader::Fast(fib.reader()),
            Fib4::Small(fib) => Fib4Reader::Small(fib.reader()),
        }
    }
    #[inline]
    fn lookup(reader: &Fib4Reader, turn: &Turn<'_>, address: u32) -> Group {
        match reader {
            Fib4Reader::Fast(fib) => fib.lookup(turn, address),
            Fib4Reader::Small(fib) => fib.lookup(turn, address),
        }
    }
    #[inline]
    fn lookup_batch(reader: &Fib4Reader, turn: &Turn<'_>, addresses: &[u32], groups: &mut [Group]) {
        match reader {
            Fib4Reader::Fast(fib) => fib.lookup_batch(turn, addresses, groups),
            Fib4Reader::Small(fib) => fib.lookup_batch(turn, addresses, groups),
        }
    }
}

impl Fib<u128> for Fib6 {
    type Reader = Fib6Reader;
    const MAX_GROUP: Group = Fib6::MAX_GROUP;

    /// There is one layout, as fast as it is small.
    fn nearest_layout(_: Layout) -> Layout {
        Layout::Small
    }
    fn estimate_bytes(_: Layout, routes: usize) -> u64 {
        ROOT + 14 * routes as u64
    }
    fn build(
        _: Layout,
        domain: &Arc<Domain>,
        runs: &impl Runs<u128>,
        storage: &dyn Storage,
    ) -> Result<Fib6, BuildError> {
        Fib6::build(domain, runs, storage, None)
    }
    fn replace_prefix(
        &mut self,
        runs: &impl Holes<u128>,
        changed: Prefix<u128>,
        _: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild> {
        self.update_prefix(runs, changed)
    }
    fn layout(&self) -> Layout {
        Layout::Small
    }
    fn memory(&self) -> FibMemory {
        Fib6::memory(self)
    }
    fn reader(&self) -> Fib6Reader {
        Fib6::reader(self)
    }
    #[inline]
    fn lookup(reader: &Fib6Reader, turn: &Turn<'_>, address: u128) -> Group {
        reader.lookup(turn, address)
    }
    #[inline]
    fn lookup_batch(reader: &Fib6Reader, turn: &Turn<'_>, addresses: &[u128], groups: &mut [Group]) {
        reader.lookup_batch(turn, addresses, groups)
    }
}
