//! The engines: which tables each has, and how a thread sends through them.

use super::blocks::Blocks;
use super::copied::{Copied, CopiedSender};
use super::flowed::Flowed;
use super::legacy::{Legacy, LegacySender};
use super::lock::Locks;
use super::network::{Control, Sender};
use super::our_flows::FlowsOfOurs;
use super::ours::{OurSender, Ours};
use super::split::{Split, SplitSender};
use super::workload::MOST_ROUTES;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// The engine that looks up next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
pub enum EngineName {
    /// One table for routes and neighbors
    L,
    /// Two tables, one for routes and one for neighbors
    S,
    /// Two tables, kept by each socket
    P,
    /// Two tables, on different processors
    D,
    /// Two tables and flows of each thread
    F,
    /// Two tables that are copied from
    C,
    /// The tables of Artery
    E,
    /// The tables of Artery, and flows of each thread
    G,
}

impl EngineName {
    /// In the order of the paper's tables.
    pub const ALL: [EngineName; 8] = [
        EngineName::L,
        EngineName::S,
        EngineName::P,
        EngineName::D,
        EngineName::F,
        EngineName::C,
        EngineName::E,
        EngineName::G,
    ];
    /// Those that are made of locks and counts which can be watched.
    pub(super) const WITH_LOCKS: [EngineName; 5] =
        [EngineName::L, EngineName::S, EngineName::P, EngineName::D, EngineName::F];
    pub(super) fn letter(self) -> &'static str {
        self.look().0
    }
    pub(super) fn title(self) -> &'static str {
        self.look().1
    }
    /// The color of the engine's curves: distinguishable for color-blind readers, too.
    pub(super) fn color(self) -> &'static str {
        self.look().2
    }
    fn look(self) -> (&'static str, &'static str, &'static str) {
        match self {
            EngineName::L => ("L", "unified table (4.4BSD)", "#d55e00"),
            EngineName::S => ("S", "split tables (FreeBSD 8)", "#b58900"),
            EngineName::P => ("P", "split, kept by socket", "#cc79a7"),
            EngineName::D => ("D", "split, L3 and L2 on two processors", "#8a9199"),
            EngineName::F => ("F", "split, flow table of 2009", "#009e73"),
            EngineName::C => ("C", "split, copied, no counts", "#56b4e9"),
            EngineName::E => ("E", "our tables", "#0072b2"),
            EngineName::G => ("G", "our tables, our flow table", "#8250df"),
        }
    }
    /// Threads that it takes for one that sends.
    pub(super) fn each_takes(self) -> usize {
        if self == EngineName::D { 2 } else { 1 }
    }
    /// Whether so many that send are more threads than processors.
    pub(super) fn is_crowded(self, threads: usize, processors: usize) -> bool {
        threads * self.each_takes() > processors
    }
}

pub(super) trait Engine {
    /// Routes and neighbors, shared by all threads.
    type Tables: Control;
    /// What a thread sends by.
    type Sender<'t>: Sender
    where
        Self: 't;
    /// Tables with room for all routes of a workload, and so many neighbors.
    fn tables(neighbors: usize) -> anyhow::Result<Self::Tables>;
    /// For a thread that sends to so many destinations.
    fn sender(tables: &Self::Tables, destinations: usize) -> anyhow::Result<Self::Sender<'_>>;
    /// How many nodes of a tree a lookup visits.
    fn depth(_: &Self::Tables, _: u32) -> Option<usize> {
        None
    }
}

pub(super) struct OfLegacy<L>(PhantomData<L>);
pub(super) struct OfSplit<L>(PhantomData<L>);
pub(super) struct OfBlocks<L>(PhantomData<L>);
pub(super) struct OfFlows<L>(PhantomData<L>);
pub(super) struct OfCopies;
pub(super) struct OfOurs;
/// Our own, and flows in front.
pub(super) struct OfOurFlows<E>(PhantomData<E>);
/// Our own by ART.
pub(super) struct OfOursInArt;

impl<L: Locks> Engine for OfLegacy<L> {
    type Tables = Legacy<L>;
    type Sender<'t> = LegacySender<'t, L>;
    fn tables(neighbors: usize) -> anyhow::Result<Legacy<L>> {
        Ok(Legacy::new(MOST_ROUTES + neighbors))
    }
    fn sender(tables: &Legacy<L>, _: usize) -> anyhow::Result<LegacySender<'_, L>> {
        Ok(LegacySender(tables))
    }
    fn depth(tables: &Legacy<L>, address: u32) -> Option<usize> {
        Some(tables.depth(address))
    }
}

impl<L: Locks> Engine for OfSplit<L> {
    type Tables = Split<L>;
    type Sender<'t> = SplitSender<'t, L>;
    fn tables(_: usize) -> anyhow::Result<Split<L>> {
        Ok(Split::new(MOST_ROUTES))
    }
    fn sender(tables: &Split<L>, _: usize) -> anyhow::Result<SplitSender<'_, L>> {
        Ok(SplitSender(tables))
    }
    fn depth(tables: &Split<L>, address: u32) -> Option<usize> {
        Some(tables.depth(address))
    }
}

impl<L: Locks> Engine for OfBlocks<L> {
    type Tables = Split<L>;
    type Sender<'t> = Blocks<'t, L>;
    fn tables(_: usize) -> anyhow::Result<Split<L>> {
        Ok(Split::new(MOST_ROUTES))
    }
    fn sender(tables: &Split<L>, destinations: usize) -> anyhow::Result<Blocks<'_, L>> {
        Ok(Blocks::new(tables, destinations))
    }
}

/// Chains of the flow table in 2009.
const CHAINS: usize = 2048;

/// Flows that a table has room for.
fn most_flows(destinations: usize) -> usize {
    2 * destinations.max(CHAINS)
}

impl<L: Locks> Engine for OfFlows<L> {
    type Tables = Split<L>;
    type Sender<'t> = Flowed<'t, L>;
    fn tables(_: usize) -> anyhow::Result<Split<L>> {
        Ok(Split::new(MOST_ROUTES))
    }
    /// In 2009 a table with more destinations than chains had to be enlarged by the user; here it has been.
    fn sender(tables: &Split<L>, destinations: usize) -> anyhow::Result<Flowed<'_, L>> {
        Ok(Flowed::new(tables, CHAINS.max(destinations), most_flows(destinations)))
    }
}

impl Engine for OfCopies {
    type Tables = Copied;
    type Sender<'t> = CopiedSender<'t>;
    fn tables(neighbors: usize) -> anyhow::Result<Copied> {
        Ok(Copied::new(MOST_ROUTES, neighbors))
    }
    fn sender(tables: &Copied, _: usize) -> anyhow::Result<CopiedSender<'_>> {
        Ok(CopiedSender(tables))
    }
}

impl Engine for OfOurs {
    type Tables = Ours;
    type Sender<'t> = OurSender;
    fn tables(_: usize) -> anyhow::Result<Ours> {
        Ours::new()
    }
    fn sender(tables: &Ours, _: usize) -> anyhow::Result<OurSender> {
        Ok(tables.sender())
    }
}

impl Engine for OfOursInArt {
    type Tables = Ours;
    type Sender<'t> = OurSender;
    fn tables(_: usize) -> anyhow::Result<Ours> {
        Ours::in_art()
    }
    fn sender(tables: &Ours, _: usize) -> anyhow::Result<OurSender> {
        Ok(tables.sender())
    }
}

impl<E: Engine<Tables = Ours>> Engine for OfOurFlows<E> {
    type Tables = Ours;
    type Sender<'t>
        = FlowsOfOurs<'t>
    where
        E: 't;
    fn tables(neighbors: usize) -> anyhow::Result<Ours> {
        E::tables(neighbors)
    }
    fn sender(tables: &Ours, destinations: usize) -> anyhow::Result<FlowsOfOurs<'_>> {
        FlowsOfOurs::new(tables, most_flows(destinations))
    }
}
