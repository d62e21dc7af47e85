//! Addresses of a batch of frames: mixed eight at a time, and looked for in a line of eight words at once.
//!
//! What is found so is a hint: whoever follows it loads the word that it leads to, and compares again.
#[cfg(target_arch = "x86_64")]
use super::Level;
use super::Simd;
use std::sync::atomic::AtomicU64;

/// Words of a line in which entries stand; the others are of no interest here.
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

    /// For each mixed key the places of its line at which its tag stands, a bit for each.
    #[inline]
    pub(crate) fn find_all(self, simd: Simd, lines: &[Line], mixed: &[u64], hits: &mut Vec<u8>) {
        hits.clear();
        match simd.0 {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::find_512(self, lines, mixed, hits) },
            _ => plain::find(self, lines, mixed, hits),
        }
    }
}

mod plain {
    use super::{Line, Mixer, PLACES, Tags};
    use std::sync::atomic::Ordering::Acquire;

    #[inline(always)]
    pub(super) fn mix(mixer: &Mixer, keys: &mut [u64]) {
        keys.iter_mut().for_each(|key| *key = mixer.mix(*key));
    }

    #[inline]
    pub(super) fn find(tags: Tags, lines: &[Line], mixed: &[u64], hits: &mut Vec<u8>) {
        hits.extend(mixed.iter().map(|mixed| {
            let Some(line) = tags.line(lines, *mixed) else { return 0 };
            let wanted = tags.wanted(*mixed);
            let hit = |(n, word): (usize, &std::sync::atomic::AtomicU64)| {
                u8::from(word.load(Acquire) >> tags.shift == wanted) << n
            };
            line[..PLACES].iter().enumerate().map(hit).fold(0, |hits, hit| hits | hit)
        }));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Line, Mixer, PLACES, Tags};
    use std::arch::x86_64::{
        _mm_cvtsi64_si128, _mm512_cmpeq_epi64_mask, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_srl_epi64,
    };

    /// The compiler makes vectors of the plain loop where it may.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn mix_512(mixer: &Mixer, keys: &mut [u64]) {
        super::plain::mix(mixer, keys);
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    pub(super) fn find_512(tags: Tags, lines: &[Line], mixed: &[u64], hits: &mut Vec<u8>) {
        let shift = _mm_cvtsi64_si128(tags.shift.into());
        hits.extend(mixed.iter().map(|mixed| {
            let Some(line) = tags.line(lines, *mixed) else { return 0 };
            // SAFETY: 64 bytes of the line, at any alignment; what a writer changes meanwhile changes word by word.
            let words = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            let wanted = _mm512_set1_epi64(tags.wanted(*mixed) as i64);
            _mm512_cmpeq_epi64_mask(_mm512_srl_epi64(words, shift), wanted) & ((1 << PLACES) - 1)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Random;
    use std::sync::atomic::Ordering::Relaxed;

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
            assert!(len < 7 || expected.iter().any(|hits| *hits != 0));
            for simd in Simd::all() {
                let (mut ours, mut hits) = (keys.clone(), vec![9]);
                mixer.mix_all(simd, &mut ours);
                tags.find_all(simd, &lines, &ours, &mut hits);
                assert_eq!((&ours, &hits), (&mixed, &expected), "{simd}, {len}");
            }
        }
    }
}
