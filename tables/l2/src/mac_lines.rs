//! Addresses of a batch of frames, two of each, looked up in lines of the MAC table: the tags of a line are
//! compared at once.
//!
//! What is compared so is a hint: the word that it leads to is loaded, and compared again.
use artery_storage::Simd;
use artery_storage::Word;
#[cfg(target_arch = "x86_64")]
use artery_storage::simd::Level;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Entries of a line.
pub(crate) const PLACES: usize = 5;
/// What stands in a word below the bits that a key is recognised by.
pub(crate) const SHIFT: u32 = 13;

/// A line of the table.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) words: [AtomicU64; PLACES],
    /// When the entry at each place was last seen, in seconds.
    pub(crate) seen: [AtomicU32; PLACES],
    /// Entries that belong here and went on to their second line.
    pub(crate) beyond: AtomicU32,
}

// SAFETY: it consists of atomic integers, without gaps (40, 20 and 4 bytes).
unsafe impl Word for Line {}

/// The lines of a table, 2^`bits` of them. The lower bits of a mixed key say which is its first one, the
/// others are its tag.
#[derive(Clone, Copy)]
pub(crate) struct Lines<'a> {
    pub(crate) lines: &'a [Line],
    pub(crate) bits: u32,
}

/// What the first line of a key has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The word that has its tag.
    pub(crate) word: u64,
    pub(crate) seen: u32,
    /// Where in the line it is.
    pub(crate) place: u32,
}

impl Lines<'_> {
    /// The number of the first line of a mixed key.
    #[inline(always)]
    pub(crate) fn line_number(self, mixed: u64) -> u32 {
        (mixed & ((1 << self.bits) - 1)) as u32
    }

    /// Looks for pairs of mixed keys, and tells by their numbers what their first lines have of both; None
    /// if they lack one.
    #[inline(always)]
    pub(crate) fn find_pairs(
        self,
        simd: Simd,
        pairs: &[[u64; 2]],
        told: impl FnMut(usize, [u64; 2], Option<[Hit; 2]>),
    ) {
        match simd.level() {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::find_512(self, pairs, told) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::find_256(self, pairs, told) },
            _ => plain::find(self, pairs, told),
        }
    }

    /// The loop of all kinds of code. `places` says in which of the first four words there seems to be what
    /// is wanted, a bit for each; nothing is lost by what is missing in a line that is written meanwhile.
    #[inline(always)]
    fn find_with(
        self,
        pairs: &[[u64; 2]],
        mut told: impl FnMut(usize, [u64; 2], Option<[Hit; 2]>),
        places: impl Fn(&Line, u64) -> u32,
    ) {
        for (n, pair) in pairs.iter().enumerate() {
            match self.find_in_line(pair[0], &places).zip(self.find_in_line(pair[1], &places)) {
                Some((first, second)) => told(n, *pair, Some([first, second])),
                None => told(n, *pair, None),
            }
        }
    }

    #[inline(always)]
    fn find_in_line(self, mixed: u64, places: &impl Fn(&Line, u64) -> u32) -> Option<Hit> {
        let line = self.lines.get(self.line_number(mixed) as usize)?;
        let wanted = (mixed >> self.bits) << 2 | 1;
        // What is in none of the first four may be in the fifth.
        let place = (places(line, wanted) | 1 << (PLACES - 1)).trailing_zeros();
        let word = line.words.get(place as usize)?.load(Acquire);
        let seen = line.seen.get(place as usize)?.load(Relaxed);
        (word >> SHIFT == wanted).then_some(Hit { word, seen, place })
    }
}

mod plain {
    use super::{Acquire, Hit, Line, Lines, PLACES, SHIFT};

    #[inline]
    pub(super) fn find(
        lines: Lines<'_>,
        pairs: &[[u64; 2]],
        told: impl FnMut(usize, [u64; 2], Option<[Hit; 2]>),
    ) {
        lines.find_with(pairs, told, |line: &Line, wanted| {
            let is_there = |n: usize| u32::from(line.words[n].load(Acquire) >> SHIFT == wanted) << n;
            (0..PLACES - 1).map(is_there).fold(0, |places, place| places | place)
        });
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Hit, Line, Lines, SHIFT};
    use artery_storage::simd::load::peek_four;
    use std::arch::x86_64::{
        _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_cmpeq_epi64_mask, _mm256_movemask_pd,
        _mm256_set1_epi64x, _mm256_srli_epi64,
    };

    const COUNT: i32 = SHIFT as i32;

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn find_256(
        lines: Lines<'_>,
        pairs: &[[u64; 2]],
        told: impl FnMut(usize, [u64; 2], Option<[Hit; 2]>),
    ) {
        lines.find_with(pairs, told, |line: &Line, wanted| {
            // A hint, as the module says: look() loads the word again.
            let tags = _mm256_srli_epi64::<COUNT>(peek_four(&line.words));
            let alike = _mm256_cmpeq_epi64(tags, _mm256_set1_epi64x(wanted as i64));
            _mm256_movemask_pd(_mm256_castsi256_pd(alike)) as u32
        });
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,avx512f,avx512vl")]
    pub(super) fn find_512(
        lines: Lines<'_>,
        pairs: &[[u64; 2]],
        told: impl FnMut(usize, [u64; 2], Option<[Hit; 2]>),
    ) {
        lines.find_with(pairs, told, |line: &Line, wanted| {
            // A hint, as above.
            let tags = _mm256_srli_epi64::<COUNT>(peek_four(&line.words));
            _mm256_cmpeq_epi64_mask(tags, _mm256_set1_epi64x(wanted as i64)).into()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::Random;

    #[test]
    fn all_kinds_of_code_find_what_the_first_line_has() {
        const BITS: u32 = 11;
        let mut random = Random::new(5);
        for len in [0, 1, 7, 8, 64, 129] {
            let lines: Vec<Line> = (0..1 << BITS).map(|_| Line::default()).collect();
            let mut pair = || [random.next(), random.next()].map(|word| word >> 4);
            let pairs: Vec<[u64; 2]> = (0..len).map(|_| pair()).collect();
            let mut put = |mixed: u64| {
                let (place, noise) = (random.below(PLACES as u64 + 1) as u32, random.below(1 << SHIFT));
                let line = &lines[(mixed & ((1 << BITS) - 1)) as usize];
                let (word, seen) = (((mixed >> BITS) << 2 | 1) << SHIFT | noise, random.next() as u32);
                let is_free = line.words.get(place as usize).is_some_and(|word| word.load(Relaxed) == 0);
                is_free.then(|| {
                    line.words[place as usize].store(word, Relaxed);
                    line.seen[place as usize].store(seen, Relaxed);
                    Hit { word, seen, place }
                })
            };
            let expected: Vec<_> = pairs.iter().map(|[a, b]| Some([put(*a)?, put(*b)?])).collect();
            assert!(len < 7 || expected.iter().any(Option::is_some) && expected.contains(&None));
            for simd in Simd::all() {
                let mut found = Vec::new();
                Lines { lines: &lines, bits: BITS }.find_pairs(simd, &pairs, |n, pair, hits| {
                    assert_eq!((n, pair), (found.len(), pairs[n]));
                    found.push(hits);
                });
                assert_eq!(found, expected, "{simd}, {len}");
            }
        }
    }
}
