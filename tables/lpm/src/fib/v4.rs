//! The IPv4 FIBs: [`Fib4Fast`] has a cell for each /24, [`Fib4Small`] a word for each /19. Both send what is
//! longer than a /24 to run lists (`lists.rs`). [`crate::layout`] describes the words for readers outside:
//! change both.
mod fast;
mod lists;
mod palette;
mod small;
#[cfg(test)]
mod tests;

pub use fast::{Fib4Fast, Fib4FastReader, Fib4FastView};
pub use small::{Fib4Small, Fib4SmallReader, Fib4SmallView};

use crate::address::{Address, Prefix};
use crate::runs::{Group, Runs};
use crate::simd::v4::{Addresses, BATCH};
use lists::Run;
use std::ops::RangeInclusive;

/// How an IPv4 FIB is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fib4Options {
    /// For the fast layout: cells of two bytes, for more groups than 254.
    pub wide: bool,
    /// For the small layout: 16-bit leaves there is room for.
    pub leaves: usize,
    /// Lines of 64 bytes that there is room for in run lists. The room is address space; memory is taken when
    /// it is first used.
    pub list_lines: usize,
}

impl Default for Fib4Options {
    /// Leaves for every /24 and half as many again, and 128 MiB for run lists.
    fn default() -> Fib4Options {
        Fib4Options { wide: false, leaves: 3 << 23, list_lines: 1 << 21 }
    }
}

/// Calls `each` with the number of every block of 2^`bits` addresses that `within` touches and its runs in
/// `within`, neighbours of the same group joined. Starts are offsets in the block; `runs` is room for them.
fn by_block(
    source: &impl Runs<u32>,
    within: Prefix<u32>,
    bits: u32,
    runs: &mut Vec<Run>,
    mut each: impl FnMut(u32, &[Run]),
) {
    by_blocks(source, within, bits, runs, |blocks, runs| blocks.for_each(|block| each(block, runs)));
}

/// The same, with one call for all blocks in a row that one run covers.
fn by_blocks(
    source: &impl Runs<u32>,
    within: Prefix<u32>,
    bits: u32,
    runs: &mut Vec<Run>,
    mut each: impl FnMut(RangeInclusive<u32>, &[Run]),
) {
    let last_of_block = (1u32 << bits) - 1;
    let ends_block = |at: u32| at & last_of_block == last_of_block;
    runs.clear();
    source.for_each_run(within, |first, last, group| {
        let mut at = first;
        loop {
            if runs.last().is_none_or(|run| run.group != group) {
                runs.push(Run { start: at & last_of_block, group });
            }
            let end = match at | last_of_block {
                end if at & last_of_block != 0 || end >= last => end.min(last),
                _ if ends_block(last) => last,
                _ => (last & !last_of_block) - 1,
            };
            if ends_block(end) || end == within.last() {
                each(at >> bits..=end >> bits, runs);
                runs.clear();
            }
            match end.next() {
                Some(next) if end < last => at = next,
                _ => return,
            }
        }
    });
}

/// Whether runs of a block change within a /24.
fn cut_short(runs: &[Run]) -> bool {
    runs.iter().any(|run| !run.start.is_multiple_of(256))
}

/// Looks up all addresses: 64 at a time by `vector`, which returns those it left undone, and
/// the rest by `one`.
#[inline(always)]
fn in_batches(
    addresses: &[u32],
    out: &mut [Group],
    one: impl Fn(u32) -> Group,
    vector: impl Fn(&Addresses, &mut Addresses) -> u64,
) {
    assert_eq!(addresses.len(), out.len(), "{UNEVEN}");
    // Of the addresses from `count` on, the groups are of no use.
    let lookup = |addresses: &Addresses, out: &mut Addresses, count: usize| {
        let mut undone = vector(addresses, out) & u64::MAX >> (BATCH - count);
        while undone != 0 {
            let lane = undone.trailing_zeros() as usize;
            out[lane] = one(addresses[lane]);
            undone &= undone - 1;
        }
    };
    let (full, rest) = addresses.as_chunks::<BATCH>();
    let (full_out, rest_out) = out.as_chunks_mut::<BATCH>();
    for (addresses, out) in full.iter().zip(full_out) {
        lookup(addresses, out, BATCH);
    }
    if rest.len() > BATCH / 4 {
        let (mut padded, mut groups) = ([rest[0]; BATCH], [0; BATCH]);
        padded[..rest.len()].copy_from_slice(rest);
        lookup(&padded, &mut groups, rest.len());
        rest_out.copy_from_slice(&groups[..rest.len()]);
    } else {
        one_by_one(rest, rest_out, one);
    }
}

/// Looks up all addresses by plain code.
#[inline(always)]
fn one_by_one(addresses: &[u32], out: &mut [Group], one: impl Fn(u32) -> Group) {
    assert_eq!(addresses.len(), out.len(), "{UNEVEN}");
    addresses.iter().zip(out).for_each(|(address, out)| *out = one(*address));
}

const UNEVEN: &str = "a batch needs as much room for groups as it has addresses";

#[cold]
#[inline(never)]
fn turn_of_another_domain() -> ! {
    panic!("a FIB was read under a turn of another domain");
}
