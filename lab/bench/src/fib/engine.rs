//! What is measured: engines that look up addresses, and the three modes of lookup.
use artery_lpm::{Address, Group, Prefix};
use std::hint::black_box;

/// How addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Mode {
    /// 64 addresses with one call.
    Batch,
    /// One call for each address; calls do not depend on one another.
    Independent,
    /// One call for each address, which the last answer must be known for.
    Dependent,
}

impl Mode {
    /// Every mode, in the order of results.
    pub const ALL: [Mode; 3] = [Mode::Batch, Mode::Independent, Mode::Dependent];

    /// The short name, as in results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Batch => "batch",
            Mode::Independent => "independent",
            Mode::Dependent => "dependent",
        }
    }
}

/// Addresses of one call in [`Mode::Batch`], and of one turn in all modes.
pub const BURST: usize = 64;

/// Looks up addresses in an engine's table.
pub trait Reader<A: Address> {
    /// Looks up to [`BURST`] addresses up with one call.
    fn batch(&mut self, addresses: &[A], groups: &mut [Group]);
    /// Looks up to [`BURST`] addresses up one by one.
    fn each(&mut self, addresses: &[A], groups: &mut [Group]);
    /// Looks up to [`BURST`] addresses up, each changed by the last answer masked with
    /// `mask`; returns the last.
    fn chain(&mut self, addresses: &[A], last: Group, mask: Group) -> Group;
    /// Says that nothing will be looked up for a while, so that no writer waits for this reader.
    fn rest(&mut self) {}

    /// Looks all addresses up. It is a method of the trait so that every engine has a loop of its own,
    /// compiled with its lookup.
    fn pass(&mut self, mode: Mode, addresses: &[A]) {
        let mut groups = [0; BURST];
        let mask = black_box(0);
        let mut last = 0;
        for burst in addresses.chunks(BURST) {
            let groups = &mut groups[..burst.len()];
            match mode {
                Mode::Batch => self.batch(burst, groups),
                Mode::Independent => self.each(burst, groups),
                Mode::Dependent => last = self.chain(burst, last, mask),
            }
            // The optimizer must assume that every answer is read.
            black_box(groups);
        }
        black_box(last);
    }
}

/// A routing table with a way to look up.
pub trait Engine<A: Address> {
    /// What it is called in results.
    fn name(&self) -> String;
    /// The reader for this thread.
    fn reader(&mut self) -> &mut dyn Reader<A>;
    /// A reader for another thread, if the engine allows lookups there while routes change.
    fn reader_elsewhere(&mut self) -> Option<Box<dyn Reader<A> + Send>> {
        None
    }
    /// Adds a route or gives it another group.
    fn announce(&mut self, prefix: Prefix<A>, group: Group);
    /// Removes the route of a prefix from the table.
    fn withdraw(&mut self, prefix: Prefix<A>);
    /// Bytes that lookups may touch.
    fn bytes(&self) -> u64;
    /// Bytes of what is kept for updates alone.
    fn writer_bytes(&self) -> u64 {
        0
    }
}

/// Looks addresses up one by one.
#[inline(always)]
pub fn each<A: Copy>(addresses: &[A], groups: &mut [Group], mut lookup: impl FnMut(A) -> Group) {
    for (address, group) in addresses.iter().zip(groups) {
        *group = lookup(*address);
    }
}

/// Looks addresses up, each changed by the answer for the one before.
#[inline(always)]
pub fn chain<A: Address>(
    addresses: &[A],
    last: Group,
    mask: Group,
    mut lookup: impl FnMut(A) -> Group,
) -> Group {
    addresses.iter().fold(last, |last, &address| {
        lookup(address ^ A::from_field((last & mask) as usize, A::BITS - 32, 32))
    })
}
