//! Addresses of a batch of frames: mixed eight at a time, and looked for in a line of eight words at once.
//!
//! What is found so is a hint: the word that it leads to is loaded, and compared again.
#[cfg(target_arch = "x86_64")]
use super::Level;
use super::Simd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Words of a line in which entries stand. In the others there is half a word for each, and one more that says whether some
/// went on to another line.
const PLACES: usize = 5;

/// A line of the table.
pub(crate) type Line = [AtomicU64; 8];

/// What mixes keys, modulo 2^`BITS`.
#[derive(Clone, Copy)]
pub(crate) struct Mixer {
    pub(crate) mask: u64,
    pub(crate) factors: [u64; 2],
}

/// Bits of a key.
pub(crate) const BITS: u32 = 60;
const KEY: u64 = (1 << BITS) - 1;

impl Mixer {
    /// Mixes a key.
    #[inline(always)]
    pub(crate) fn mix(&self, key: u64) -> u64 {
        let mut word = (key ^ self.mask).wrapping_mul(self.factors[0]) & KEY;
        word ^= word >> 30;
        word = word.wrapping_mul(self.factors[1]) & KEY;
        word ^ word >> 30
    }

    /// Mixes keys.
    #[inline]
    pub(crate) fn mix_all(&self, simd: Simd, keys: &mut [u64]) {
        match simd.0 {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::mix_512(self, keys) },
            _ => plain::mix(self, keys),
        }
    }
}

/// How tags stand in words: those of a first bucket are what is left of a mixed key above `bits`, two places higher, with a
/// 1 behind; all above `shift` other bits.
#[derive(Clone, Copy)]
pub(crate) struct Tags {
    pub(crate) bits: u32,
    pub(crate) shift: u32,
}

impl Tags {
    #[inline(always)]
    fn wanted(self, mixed: u64) -> u64 {
        mixed >> self.bits << 2 | 1
    }
    #[inline(always)]
    fn line(self, lines: &[Line], mixed: u64) -> Option<&Line> {
        lines.get((mixed & ((1 << self.bits) - 1)) as usize)
    }

    /// What the lines of mixed keys have of them.
    #[inline]
    pub(crate) fn find_all(self, simd: Simd, lines: &[Line], mixed: &[u64], hits: &mut Vec<Hit>) {
        match simd.0 {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::find_512(self, lines, mixed, hits) },
            _ => plain::find(self, lines, mixed, hits),
        }
    }
}

/// What a line has of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The word that has its tag; 0 if there is none.
    pub(crate) word: u64,
    /// The number of the line and of the word in it, in the upper half; in the lower half what belongs to the word. Where there
    /// is no word: 0 if the key is not in another line either.
    pub(crate) at: u64,
}

impl Hit {
    /// Of a line in which these places seemed to have the tag, a bit for each.
    #[inline(always)]
    fn of(tags: Tags, line: &Line, mixed: u64, places: u32) -> Hit {
        let place = (places | 1 << PLACES).trailing_zeros();
        let word = line[place as usize & 7].load(Acquire);
        let is_there = places != 0 && word >> tags.shift == tags.wanted(mixed);
        // Where a writer was faster, the key may have gone to another line.
        let beside = match is_there || places == 0 {
            true => (line[(PLACES + place as usize / 2) & 7].load(Relaxed) >> (place % 2 * 32)) as u32,
            false => 1,
        };
        let number = (mixed & ((1 << tags.bits) - 1)) << 3 | u64::from(place);
        Hit { word: if is_there { word } else { 0 }, at: number << 32 | u64::from(beside) }
    }
}

mod plain {
    use super::{Acquire, Hit, Line, Mixer, PLACES, Tags};

    #[inline(always)]
    pub(super) fn mix(mixer: &Mixer, keys: &mut [u64]) {
        keys.iter_mut().for_each(|key| *key = mixer.mix(*key));
    }

    #[inline]
    pub(super) fn find(tags: Tags, lines: &[Line], mixed: &[u64], hits: &mut Vec<Hit>) {
        hits.clear();
        hits.extend(mixed.iter().map(|mixed| {
            let Some(line) = tags.line(lines, *mixed) else { return Hit::default() };
            let wanted = tags.wanted(*mixed);
            let place = |(n, word): (usize, &std::sync::atomic::AtomicU64)| {
                u32::from(word.load(Acquire) >> tags.shift == wanted) << n
            };
            let places = line[..PLACES].iter().enumerate().map(place).fold(0, |places, place| places | place);
            Hit::of(tags, line, *mixed, places)
        }));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Hit, Line, Mixer, PLACES, Tags};
    use std::arch::x86_64::{
        _mm_cvtsi64_si128, _mm512_cmpeq_epi64_mask, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_srl_epi64,
    };

    /// The compiler makes vectors of the plain loop where it may.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn mix_512(mixer: &Mixer, keys: &mut [u64]) {
        super::plain::mix(mixer, keys);
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn find_512(tags: Tags, lines: &[Line], mixed: &[u64], hits: &mut Vec<Hit>) {
        let shift = _mm_cvtsi64_si128(tags.shift.into());
        // What is there is written over.
        hits.resize(mixed.len(), Hit::default());
        for (mixed, hit) in mixed.iter().zip(hits) {
            let Some(line) = tags.line(lines, *mixed) else {
                *hit = Hit::default();
                continue;
            };
            // SAFETY: 64 bytes of the line, at any alignment; what a writer changes meanwhile changes word by word.
            let words = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            let wanted = _mm512_set1_epi64(tags.wanted(*mixed) as i64);
            let places =
                _mm512_cmpeq_epi64_mask(_mm512_srl_epi64(words, shift), wanted) & ((1 << PLACES) - 1);
            *hit = Hit::of(tags, line, *mixed, places.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Random;

    #[test]
    fn all_kinds_of_code_mix_and_find_alike() {
        let mut random = Random::new(5);
        let mixer = Mixer { mask: random.next() & KEY, factors: [random.next() | 1, random.next() | 1] };
        let tags = Tags { bits: 11, shift: 13 };
        for len in [0, 1, 7, 8, 64, 129] {
            let keys: Vec<u64> = (0..len).map(|_| random.next() & KEY).collect();
            let mixed: Vec<u64> = keys.iter().map(|key| mixer.mix(*key)).collect();
            let lines: Vec<Line> = (0..1 << 11).map(|_| Line::default()).collect();
            for mixed in &mixed {
                let place = random.below(8) as usize;
                let noise = random.below(1 << 13);
                lines[(mixed & 2047) as usize][place].store(tags.wanted(*mixed) << 13 | noise, Relaxed);
            }
            let mut expected = Vec::new();
            plain::find(tags, &lines, &mixed, &mut expected);
            assert!(len < 7 || expected.iter().any(|hit| hit.word != 0));
            for simd in Simd::all() {
                let (mut ours, mut hits) = (keys.clone(), vec![Hit { word: 9, at: 9 }]);
                mixer.mix_all(simd, &mut ours);
                tags.find_all(simd, &lines, &ours, &mut hits);
                assert_eq!((&ours, &hits), (&mixed, &expected), "{simd}, {len}");
            }
        }
    }
}
