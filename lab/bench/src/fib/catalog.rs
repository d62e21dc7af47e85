//! Which engines there are for each family, by the names that results have.
use super::engine::Engine;
use super::family::Family;
use super::ours::{ArtAlone, InStep};
use super::radix::Radix;
use super::rivals::{PrefixTrie, TreeBitmap};
use super::updates::Routes;
use artery_lpm::{Fib4Fast, Fib4Small, Fib6, Strides};

/// Loads a table into a new engine.
type Load<A> = Box<dyn Fn(&Routes<A>) -> anyhow::Result<Box<dyn Engine<A>>>>;

/// An engine to be had.
pub struct Entry<A> {
    /// What it is called in results, and on the command line.
    pub name: &'static str,
    /// Loads a table into a new engine.
    pub load: Load<A>,
}

/// The engines of a family, in the order of results.
pub trait Catalog: Family {
    /// All engines of the family, in the order of results.
    fn engines() -> Vec<Entry<Self>>;
}

fn entry<A: Family, E: Engine<A> + 'static>(
    name: &'static str,
    load: impl Fn(&Routes<A>) -> anyhow::Result<E> + 'static,
) -> Entry<A> {
    Entry { name, load: Box::new(move |routes| Ok(Box::new(load(routes)?))) }
}

/// Fills an engine that takes one route after the other.
fn filled<A: Family, E: Engine<A> + Default>(routes: &Routes<A>) -> anyhow::Result<E> {
    let mut engine = E::default();
    routes.iter().for_each(|&(prefix, group)| engine.announce(prefix, group));
    Ok(engine)
}

impl Catalog for u32 {
    fn engines() -> Vec<Entry<u32>> {
        vec![
            entry("fib-fast", |routes| InStep::<u32, Fib4Fast>::load(routes, Strides::source())),
            entry("fib-small", |routes| InStep::<u32, Fib4Small>::load(routes, Strides::source())),
            entry("art 8/4x6", |routes| ArtAlone::load(routes, Strides::source())),
            entry("art 8/8/8/8", |routes| ArtAlone::load(routes, Strides::new(&[8; 4])?)),
            entry("art 16/8/8", |routes| ArtAlone::load(routes, Strides::new(&[16, 8, 8])?)),
            entry("bsd-radix", filled::<u32, Radix<u32>>),
            entry("prefix-trie", filled::<u32, PrefixTrie<u32>>),
            entry("treebitmap", filled::<u32, TreeBitmap<u32>>),
        ]
    }
}

impl Catalog for u128 {
    fn engines() -> Vec<Entry<u128>> {
        vec![
            entry("fib6", |routes| InStep::<u128, Fib6>::load(routes, Strides::fast())),
            entry("art 4x32", |routes| ArtAlone::load(routes, Strides::source())),
            entry("art 16/8x14", |routes| ArtAlone::load(routes, Strides::fast())),
            entry("bsd-radix", filled::<u128, Radix<u128>>),
            entry("prefix-trie", filled::<u128, PrefixTrie<u128>>),
            entry("treebitmap", filled::<u128, TreeBitmap<u128>>),
        ]
    }
}
