//! Our engines: ART alone, and compiled FIBs that are kept in step with it.
use super::engine::{Engine, Reader, chain, each};
use super::family::Family;
use super::updates::Routes;
use anyhow::Context as _;
use artery_lpm::{
    Address, Art, ArtReader, BuildError, Fib4Fast, Fib4FastReader, Fib4Options, Fib4Small, Fib4SmallReader,
    Fib6, Fib6Reader, Group, NeedsRebuild, Prefix, Strides,
};
use artery_rcu::{Domain, Turn};
use artery_storage::HugePages;
use std::sync::Arc;

/// What looks addresses up under a turn.
pub trait Lookup<A>: Clone + Send + 'static {
    /// Looks many addresses up with one call.
    fn batch(&self, turn: &Turn<'_>, addresses: &[A], groups: &mut [Group]);
    /// Looks many addresses up one by one.
    fn each(&self, turn: &Turn<'_>, addresses: &[A], groups: &mut [Group]);
    /// Looks many addresses up, each changed by the last answer masked with `mask`.
    fn chain(&self, turn: &Turn<'_>, addresses: &[A], last: Group, mask: Group) -> Group;
}

pub(super) trait Compiled<A: Address>: Sized {
    /// What it is called in results.
    const NAME: &'static str;
    /// What looks up in it.
    type Reader: Lookup<A>;

    fn build(domain: &Arc<Domain>, art: &Art<A>) -> Result<Self, BuildError>;
    /// Takes over what has changed.
    fn replace(
        &mut self,
        art: &Art<A>,
        changed: Prefix<A>,
        group: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild>;
    /// What looks up in it.
    fn reader(&self) -> Self::Reader;
    /// Bytes in use by the compiled FIB.
    fn bytes(&self) -> usize;
}

macro_rules! lookup {
    ($reader:ty, $address:ty) => {
        impl Lookup<$address> for $reader {
            #[inline]
            fn batch(&self, turn: &Turn<'_>, addresses: &[$address], groups: &mut [Group]) {
                self.lookup_batch(turn, addresses, groups);
            }
            #[inline]
            fn each(&self, turn: &Turn<'_>, addresses: &[$address], groups: &mut [Group]) {
                let view = self.view_at(turn);
                each(addresses, groups, |address| view.lookup(address));
            }
            #[inline]
            fn chain(&self, turn: &Turn<'_>, addresses: &[$address], last: Group, mask: Group) -> Group {
                let view = self.view_at(turn);
                chain(addresses, last, mask, |address| view.lookup(address))
            }
        }
    };
}
lookup!(Fib4FastReader, u32);
lookup!(Fib4SmallReader, u32);
lookup!(Fib6Reader, u128);
lookup!(ArtReader<u32>, u32);
lookup!(ArtReader<u128>, u128);

macro_rules! compiled {
    ($name:literal, $fib:ty, $reader:ty, $address:ty, $options:expr) => {
        impl Compiled<$address> for $fib {
            const NAME: &'static str = $name;
            type Reader = $reader;

            fn build(domain: &Arc<Domain>, art: &Art<$address>) -> Result<Self, BuildError> {
                <$fib>::build(domain, art, &HugePages, $options)
            }
            fn replace(
                &mut self,
                art: &Art<$address>,
                changed: Prefix<$address>,
                group: impl FnOnce() -> Group,
            ) -> Result<(), NeedsRebuild> {
                <$fib>::replace_prefix(self, art, changed, group)
            }
            fn reader(&self) -> $reader {
                <$fib>::reader(self)
            }
            fn bytes(&self) -> usize {
                self.memory().bytes()
            }
        }
    };
}
compiled!("fib-fast", Fib4Fast, Fib4FastReader, u32, Fib4Options::default());
compiled!("fib-small", Fib4Small, Fib4SmallReader, u32, Fib4Options::default());
compiled!("fib6", Fib6, Fib6Reader, u128, None);

/// A reader with its standing in the domain: a turn for every burst, as a worker has it.
struct View<L> {
    standing: artery_rcu::Reader,
    lookup: L,
}

impl<L> View<L> {
    fn new(domain: &Arc<Domain>, lookup: L) -> View<L> {
        View { standing: domain.reader(), lookup }
    }
}

impl<A: Address, L: Lookup<A>> Reader<A> for View<L> {
    fn batch(&mut self, addresses: &[A], groups: &mut [Group]) {
        let turn = self.standing.turn();
        self.lookup.batch(&turn, addresses, groups);
    }
    fn each(&mut self, addresses: &[A], groups: &mut [Group]) {
        let turn = self.standing.turn();
        self.lookup.each(&turn, addresses, groups);
    }
    fn chain(&mut self, addresses: &[A], last: Group, mask: Group) -> Group {
        let turn = self.standing.turn();
        self.lookup.chain(&turn, addresses, last, mask)
    }
    fn rest(&mut self) {
        self.standing.park();
    }
}

/// ART with a compiled FIB in step.
pub(super) struct InStep<A: Address, C: Compiled<A>> {
    domain: Arc<Domain>,
    art: Art<A>,
    fib: C,
    view: View<C::Reader>,
}

impl<A: Family, C: Compiled<A>> InStep<A, C> {
    pub(super) fn load(routes: &Routes<A>, strides: Strides<A>) -> anyhow::Result<InStep<A, C>> {
        let domain = Domain::new();
        let art = Art::build(&domain, strides, &HugePages, routes.iter().copied()).context("building ART")?;
        let fib = C::build(&domain, &art).context("compiling the FIB")?;
        let view = View::new(&domain, fib.reader());
        Ok(InStep { domain, art, fib, view })
    }

    fn follow(&mut self, changed: Prefix<A>, group: Option<Group>) {
        let shown = || group.unwrap_or_else(|| self.art.cover(changed));
        if self.fib.replace(&self.art, changed, shown).is_err() {
            self.fib = C::build(&self.domain, &self.art).expect("memory for a FIB of the same size again");
            self.view.lookup = self.fib.reader();
        }
    }
}

impl<A: Family, C: Compiled<A>> Engine<A> for InStep<A, C> {
    fn name(&self) -> String {
        C::NAME.into()
    }
    fn reader(&mut self) -> &mut dyn Reader<A> {
        &mut self.view
    }
    fn reader_elsewhere(&mut self) -> Option<Box<dyn Reader<A> + Send>> {
        Some(Box::new(View::new(&self.domain, self.fib.reader())))
    }
    fn announce(&mut self, prefix: Prefix<A>, group: Group) {
        self.art.insert(prefix, group).expect("room for routes that were there before");
        self.follow(prefix, Some(group));
    }
    fn withdraw(&mut self, prefix: Prefix<A>) {
        self.art.remove(prefix);
        self.follow(prefix, None);
    }
    fn bytes(&self) -> u64 {
        self.fib.bytes() as u64
    }
    fn writer_bytes(&self) -> u64 {
        self.art.memory().total() as u64
    }
}

/// ART as an engine, without a compiled FIB.
pub struct ArtAlone<A: Address> {
    domain: Arc<Domain>,
    art: Art<A>,
    view: View<ArtReader<A>>,
}

impl<A: Family> ArtAlone<A>
where
    ArtReader<A>: Lookup<A>,
{
    /// Loads all routes into a new ART.
    pub fn load(routes: &Routes<A>, strides: Strides<A>) -> anyhow::Result<ArtAlone<A>> {
        let domain = Domain::new();
        let art = Art::build(&domain, strides, &HugePages, routes.iter().copied()).context("building ART")?;
        let view = View::new(&domain, art.reader());
        Ok(ArtAlone { domain, art, view })
    }
    /// How many tables there are at each level that has one: offset and number.
    pub fn tables(&self) -> Vec<(u8, usize)> {
        self.art.memory().levels.iter().map(|level| (level.offset, level.tables)).collect()
    }
}

/// The name of ART with these strides: runs of the same stride are written short.
pub(super) fn art_name<A: Address>(strides: &Strides<A>) -> String {
    let all: Vec<u8> = strides.iter().collect();
    let short = |run: &[u8]| match run.len() {
        1 => run[0].to_string(),
        2..=4 => vec![run[0].to_string(); run.len()].join("/"),
        count => format!("{}x{count}", run[0]),
    };
    let runs: Vec<String> = all.chunk_by(|a, b| a == b).map(short).collect();
    format!("art {}", runs.join("/"))
}

impl<A: Family> Engine<A> for ArtAlone<A>
where
    ArtReader<A>: Lookup<A>,
{
    fn name(&self) -> String {
        art_name(self.art.strides())
    }
    fn reader(&mut self) -> &mut dyn Reader<A> {
        &mut self.view
    }
    fn reader_elsewhere(&mut self) -> Option<Box<dyn Reader<A> + Send>> {
        Some(Box::new(View::new(&self.domain, self.art.reader())))
    }
    fn announce(&mut self, prefix: Prefix<A>, group: Group) {
        self.art.insert(prefix, group).expect("room for routes that were there before");
    }
    fn withdraw(&mut self, prefix: Prefix<A>) {
        self.art.remove(prefix);
    }
    fn bytes(&self) -> u64 {
        self.art.memory().heaps as u64
    }
    fn writer_bytes(&self) -> u64 {
        let memory = self.art.memory();
        (memory.total() - memory.heaps) as u64
    }
}
