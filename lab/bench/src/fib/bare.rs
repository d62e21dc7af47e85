//! What the machine can do at best: one load from an array, chosen by the first bits of an address. No
//! table that takes as many bytes and is hit as evenly can be faster; measured beside the tables, since it
//! changes with the hour.
use super::engine::{Reader, chain, each};
use artery_lpm::{Address, Group};
use artery_storage::{HugePages, Words};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An array to load from.
pub(super) struct Bare {
    words: Words<AtomicU32>,
    bits: u8,
}

impl Bare {
    /// Arrays of about the size of the small and of the fast layout.
    pub(super) fn all() -> anyhow::Result<Vec<Bare>> {
        [20, 22].into_iter().map(Bare::new).collect()
    }

    fn new(bits: u8) -> anyhow::Result<Bare> {
        let words = Words::<AtomicU32>::new(&HugePages, "bare", 1 << bits)?;
        words.iter().zip(1..).for_each(|(word, number)| word.store(number, Relaxed));
        Ok(Bare { words, bits })
    }
    /// What it is called in results.
    pub(super) fn name(&self) -> String {
        format!("a load, {} MiB", self.bytes() >> 20)
    }
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    #[inline(always)]
    fn load<A: Address>(&self) -> impl Fn(A) -> Group {
        let (words, bits) = (&*self.words, self.bits);
        move |address| words[address.field(0, bits)].load(Relaxed)
    }
}

impl<A: Address> Reader<A> for Bare {
    fn batch(&mut self, addresses: &[A], groups: &mut [Group]) {
        each(addresses, groups, self.load());
    }
    fn each(&mut self, addresses: &[A], groups: &mut [Group]) {
        each(addresses, groups, self.load());
    }
    fn chain(&mut self, addresses: &[A], last: Group, mask: Group) -> Group {
        chain(addresses, last, mask, self.load())
    }
}
