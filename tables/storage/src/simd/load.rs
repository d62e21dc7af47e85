//! Loads of many words at once from memory that a writer may store to meanwhile: the only ones of the crate
//! that are not methods of atomics.
//!
//! An intrinsic won't do. To the compiler it is an ordinary read, and an ordinary read beside an atomic store
//! is a data race, whatever the processor makes of it. Here each load is one instruction in assembly, which
//! the compiler takes for code that may read and write all memory (no `readonly`, no `pure`): it moves no
//! access of ours across it, repeats none and invents none. So a load may stand for whatever atomic loads
//! have the effect of the instruction, and these are:
//!
//! - [`gather_512`], [`gather_256`]: for each lane, an acquiring load of each cell in its four bytes. An
//!   element of a gather is one aligned load of four bytes, which the processor does whole (Intel SDM vol. 3,
//!   10.1.1: guaranteed atomic operations), and no load passes an earlier one (10.2.2), so that a word that
//!   is followed shows what was stored before it.
//! - [`half_word`]: an acquiring load of the word that it is a half of, likewise.
//! - [`halves_below_512`], [`halves_from_256`], [`peek_four`]: an acquiring load of each *byte*, since no
//!   manual says how the processor divides a vector load. A word that is not stored to at that instant is
//!   exact; of one that is, nothing may be concluded. Callers say why that is enough.
//!
//! Loads of several sizes from one word are sound for the same reason: the machine has them, and atomics of
//! Rust are never mixed in size.
//!
//! A thread sanitizer doesn't see into assembly, nor does Miri run it. For both (`--cfg atomic_loads`) the
//! `twin` takes its place, whose loads are atomics; a test compares the two.

use std::arch::x86_64::{__m256i, __m512i, __mmask16, __mmask32};
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// What arrays consist of that are loaded from here.
pub trait Cell: Sized {
    /// The four bytes behind `4 * index` bytes of an array, by atomic loads.
    #[cfg_attr(not(any(test, miri, atomic_loads)), allow(dead_code))]
    fn load_word(cells: &[Self], index: usize) -> u32;
}

impl Cell for AtomicU8 {
    fn load_word(cells: &[Self], index: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|n| cells[4 * index + n].load(Acquire)))
    }
}
impl Cell for AtomicU16 {
    fn load_word(cells: &[Self], index: usize) -> u32 {
        let [low, high] = [0, 1].map(|n| u32::from(cells[2 * index + n].load(Acquire)));
        low | high << 16
    }
}
impl Cell for AtomicU32 {
    fn load_word(cells: &[Self], index: usize) -> u32 {
        cells[index].load(Acquire)
    }
}

#[cfg(not(any(miri, atomic_loads)))]
pub use assembly::{gather_256, gather_512, half_word, halves_below_512, halves_from_256, peek_four};
#[cfg(any(miri, atomic_loads))]
pub use twin::{gather_256, gather_512, half_word, halves_below_512, halves_from_256, peek_four};

#[cfg(any(test, not(any(miri, atomic_loads))))]
mod assembly {
    use super::{__m256i, __m512i, __mmask16, __mmask32, AtomicU32, AtomicU64, Cell};
    use std::arch::asm;
    use std::arch::x86_64::{_mm256_set1_epi16, _mm512_set1_epi16};

    /// Of the array's words of four bytes those at `index`, in the lanes of `which`; the others stay what
    /// they are in `others`.
    ///
    /// # Safety
    /// Each `index` of these lanes must be below the array's length in words of four bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub unsafe fn gather_512<C: Cell>(
        cells: &[C],
        index: __m512i,
        which: __mmask16,
        others: __m512i,
    ) -> __m512i {
        let mut gathered = others;
        // SAFETY: it reads within the array, as the caller promises, at multiples of four bytes; indices are
        // below 2^31, since no array here is longer. It writes its two registers.
        unsafe {
            asm!(
                "vpgatherdd {gathered}{{{which}}}, dword ptr [{cells} + 4*{index}]",
                gathered = inout(zmm_reg) gathered,
                which = inout(kreg) which => _,
                cells = in(reg) cells.as_ptr(),
                index = in(zmm_reg) index,
                options(nostack, preserves_flags),
            );
        }
        gathered
    }

    /// As [`gather_512`]; `which` has all bits of a lane set, or none.
    ///
    /// # Safety
    /// Each `index` of these lanes must be below the array's length in words of four bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn gather_256<C: Cell>(
        cells: &[C],
        index: __m256i,
        which: __m256i,
        others: __m256i,
    ) -> __m256i {
        let mut gathered = others;
        // SAFETY: as in gather_512().
        unsafe {
            asm!(
                "vpgatherdd {gathered}, dword ptr [{cells} + 4*{index}], {which}",
                gathered = inout(ymm_reg) gathered,
                which = inout(ymm_reg) which => _,
                cells = in(reg) cells.as_ptr(),
                index = in(ymm_reg) index,
                options(nostack, preserves_flags),
            );
        }
        gathered
    }

    /// The half of a word that is `index` halves behind the start.
    ///
    /// # Safety
    /// `index` must be below the array's length in halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn half_word(words: &[AtomicU32], index: u32) -> u32 {
        let half;
        // SAFETY: it reads two bytes within the array, as the caller promises, and writes a register.
        unsafe {
            asm!(
                "movzx {half:e}, word ptr [{words} + 2*{index}]",
                half = lateout(reg) half,
                words = in(reg) words.as_ptr(),
                index = in(reg) u64::from(index),
                options(nostack, preserves_flags),
            );
        }
        half
    }

    /// Which of the 32 halves from the word `first` on are below `key`, a bit for each.
    ///
    /// # Safety
    /// The sixteen words must lie within the array.
    #[inline]
    #[target_feature(enable = "avx512bw")]
    pub unsafe fn halves_below_512(words: &[AtomicU32], first: u32, key: u16) -> __mmask32 {
        let below;
        // SAFETY: it reads 64 bytes within the array, as the caller promises, and writes a register.
        unsafe {
            asm!(
                "vpcmpnleuw {below}, {key}, zmmword ptr [{words} + 4*{first}]",
                below = lateout(kreg) below,
                key = in(zmm_reg) _mm512_set1_epi16(key as i16),
                words = in(reg) words.as_ptr(),
                first = in(reg) u64::from(first),
                options(nostack, preserves_flags),
            );
        }
        below
    }

    /// Which of the 32 halves from the word `first` on are `key` or more: all bits of a half, or none.
    /// They are read twice.
    ///
    /// # Safety
    /// The sixteen words must lie within the array.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn halves_from_256(words: &[AtomicU32], first: u32, key: u16) -> [__m256i; 2] {
        let (mut low, mut high);
        // SAFETY: it reads 64 bytes within the array, as the caller promises, and writes two registers.
        unsafe {
            asm!(
                "vpmaxuw {low}, {key}, ymmword ptr [{words} + 4*{first}]",
                "vpmaxuw {high}, {key}, ymmword ptr [{words} + 4*{first} + 32]",
                "vpcmpeqw {low}, {low}, ymmword ptr [{words} + 4*{first}]",
                "vpcmpeqw {high}, {high}, ymmword ptr [{words} + 4*{first} + 32]",
                low = out(ymm_reg) low,
                high = lateout(ymm_reg) high,
                key = in(ymm_reg) _mm256_set1_epi16(key as i16),
                words = in(reg) words.as_ptr(),
                first = in(reg) u64::from(first),
                options(nostack, preserves_flags),
            );
        }
        [low, high]
    }

    /// The first four words.
    ///
    /// # Safety
    /// A caller without AVX2 among its target features must know that the machine has it.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn peek_four(words: &[AtomicU64; 5]) -> __m256i {
        let four;
        // SAFETY: it reads 32 bytes of the array, at any alignment, and writes a register.
        unsafe {
            asm!(
                "vmovdqu {four}, ymmword ptr [{words}]",
                four = lateout(ymm_reg) four,
                words = in(reg) words.as_ptr(),
                options(nostack, preserves_flags),
            );
        }
        four
    }
}

/// The same loads by atomics, with the same promises: of their bounds each access is checked.
#[cfg(any(test, miri, atomic_loads))]
#[cfg_attr(not(any(miri, atomic_loads)), allow(unreachable_pub))]
#[allow(missing_docs)] // Each does what its namesake in `assembly` does.
mod twin {
    use super::{__m256i, __m512i, __mmask16, __mmask32, Acquire, AtomicU32, AtomicU64, Cell};
    use std::arch::x86_64::{
        _mm256_loadu_si256, _mm256_setr_epi64x, _mm256_storeu_si256, _mm512_loadu_si512, _mm512_storeu_si512,
    };

    #[target_feature(enable = "avx512f")]
    pub unsafe fn gather_512<C: Cell>(
        cells: &[C],
        index: __m512i,
        which: __mmask16,
        others: __m512i,
    ) -> __m512i {
        let (index, others) = (store_512(index), store_512(others));
        let gathered = std::array::from_fn(|lane| match which >> lane & 1 {
            1 => C::load_word(cells, index[lane] as usize),
            _ => others[lane],
        });
        load_512(gathered)
    }

    #[target_feature(enable = "avx2")]
    pub unsafe fn gather_256<C: Cell>(
        cells: &[C],
        index: __m256i,
        which: __m256i,
        others: __m256i,
    ) -> __m256i {
        let (index, which, others) = (store_256(index), store_256(which), store_256(others));
        let gathered = std::array::from_fn(|lane| match which[lane] >> 31 {
            1 => C::load_word(cells, index[lane] as usize),
            _ => others[lane],
        });
        load_256(gathered)
    }

    #[target_feature(enable = "avx2")]
    pub unsafe fn half_word(words: &[AtomicU32], index: u32) -> u32 {
        AtomicU32::load_word(words, index as usize / 2) >> (index % 2 * 16) & 0xffff
    }

    #[target_feature(enable = "avx512bw")]
    pub unsafe fn halves_below_512(words: &[AtomicU32], first: u32, key: u16) -> __mmask32 {
        half_words(words, first).enumerate().fold(0, |below, (n, half)| below | u32::from(half < key) << n)
    }

    #[target_feature(enable = "avx2")]
    pub unsafe fn halves_from_256(words: &[AtomicU32], first: u32, key: u16) -> [__m256i; 2] {
        let from: Vec<u32> =
            half_words(words, first).map(|half| if half < key { 0 } else { 0xffff }).collect();
        let word = |n: usize| from[2 * n] | from[2 * n + 1] << 16;
        [0, 8].map(|first| load_256(std::array::from_fn(|n| word(first + n))))
    }

    /// The halves of sixteen words.
    fn half_words(words: &[AtomicU32], first: u32) -> impl Iterator<Item = u16> {
        let line = &words[first as usize..][..16];
        line.iter().map(|word| word.load(Acquire)).flat_map(|word| [word as u16, (word >> 16) as u16])
    }

    #[target_feature(enable = "avx2")]
    pub fn peek_four(words: &[AtomicU64; 5]) -> __m256i {
        let [a, b, c, d] = std::array::from_fn(|n| words[n].load(Acquire) as i64);
        _mm256_setr_epi64x(a, b, c, d)
    }

    #[target_feature(enable = "avx512f")]
    pub fn load_512(lanes: [u32; 16]) -> __m512i {
        // SAFETY: 64 bytes of the array, at any alignment.
        unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    pub fn store_512(register: __m512i) -> [u32; 16] {
        let mut lanes = [0; 16];
        // SAFETY: 64 bytes of the array, at any alignment.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), register) };
        lanes
    }

    #[target_feature(enable = "avx2")]
    pub fn load_256(lanes: [u32; 8]) -> __m256i {
        // SAFETY: 32 bytes of the array, at any alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    pub fn store_256(register: __m256i) -> [u32; 8] {
        let mut lanes = [0; 8];
        // SAFETY: 32 bytes of the array, at any alignment.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), register) };
        lanes
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::Simd;
    use artery_wire::Random;

    const WORDS: usize = 257;

    /// Arrays of each kind of cell with the same random bytes, some more than [`WORDS`] words of them.
    struct Arrays {
        bytes: Vec<AtomicU8>,
        halves: Vec<AtomicU16>,
        words: Vec<AtomicU32>,
    }

    fn arrays(random: &mut Random) -> Arrays {
        let doubles: Vec<u64> = (0..WORDS / 2 + 17).map(|_| random.next()).collect();
        let bytes = || doubles.iter().flat_map(|word| word.to_le_bytes());
        let pick = |n: usize| bytes().skip(n).step_by(4);
        let words = || {
            pick(0)
                .zip(pick(1))
                .zip(pick(2))
                .zip(pick(3))
                .map(|(((a, b), c), d)| u32::from_le_bytes([a, b, c, d]))
        };
        let halves = words().flat_map(|word| [word as u16, (word >> 16) as u16]);
        Arrays {
            bytes: bytes().map(AtomicU8::new).collect(),
            halves: halves.map(AtomicU16::new).collect(),
            words: words().map(AtomicU32::new).collect(),
        }
    }

    fn has(level: Level) -> bool {
        Simd::all().any(|simd| simd.0 >= level)
    }

    /// Index of a word, whose first and last one are likelier than others.
    fn index(random: &mut Random) -> u32 {
        let any = random.below(WORDS as u64) as u32;
        if random.percent(10) { [0, WORDS as u32 - 1][any as usize % 2] } else { any }
    }

    #[target_feature(enable = "avx2")]
    fn compare_256(arrays: &Arrays, random: &mut Random) {
        let mut lanes = |make: fn(&mut Random) -> u32| twin::load_256(std::array::from_fn(|_| make(random)));
        let (indices, others) = (lanes(index), lanes(|random| random.next() as u32));
        let which = lanes(|random| if random.percent(50) { u32::MAX } else { 0 });
        fn gathers<C: Cell>(cells: &[C], index: __m256i, which: __m256i, others: __m256i) -> [[u32; 8]; 2] {
            // SAFETY: AVX2 is here, as the caller has it; index() gives words of the arrays.
            unsafe {
                let ours = assembly::gather_256(cells, index, which, others);
                let twins = twin::gather_256(cells, index, which, others);
                [twin::store_256(ours), twin::store_256(twins)]
            }
        }
        let all = [
            gathers(&arrays.bytes, indices, which, others),
            gathers(&arrays.halves, indices, which, others),
            gathers(&arrays.words, indices, which, others),
        ];
        let expected = all[0][1];
        assert_eq!(all, [[expected; 2]; 3]);
        let first = random.below(WORDS as u64) as usize;
        // Often one that is there, so that both sides of it are.
        let there = arrays.halves[2 * first + random.below(32) as usize].load(Acquire);
        let key = if random.percent(70) { there } else { random.next() as u16 };
        let half = 2 * first as u32 + 1;
        // SAFETY: the arrays are longer than WORDS by what is loaded.
        unsafe {
            let [ours, twins] = [
                assembly::halves_from_256(&arrays.words, first as u32, key),
                twin::halves_from_256(&arrays.words, first as u32, key),
            ];
            assert_eq!(ours.map(|half| twin::store_256(half)), twins.map(|half| twin::store_256(half)));
            assert_eq!(assembly::half_word(&arrays.words, half), twin::half_word(&arrays.words, half));
        }
        let five = std::array::from_fn(|_| AtomicU64::new(random.next()));
        let [ours, twins] = [assembly::peek_four(&five), twin::peek_four(&five)];
        assert_eq!(twin::store_256(ours), twin::store_256(twins));
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    fn compare_512(arrays: &Arrays, random: &mut Random) {
        let mut lanes = |make: fn(&mut Random) -> u32| twin::load_512(std::array::from_fn(|_| make(random)));
        let (indices, others) = (lanes(index), lanes(|random| random.next() as u32));
        let which = random.next() as __mmask16;
        fn gathers<C: Cell>(
            cells: &[C],
            index: __m512i,
            which: __mmask16,
            others: __m512i,
        ) -> [[u32; 16]; 2] {
            // SAFETY: AVX-512 is here, as the caller has it; index() gives words of the arrays.
            unsafe {
                let ours = assembly::gather_512(cells, index, which, others);
                let twins = twin::gather_512(cells, index, which, others);
                [twin::store_512(ours), twin::store_512(twins)]
            }
        }
        let all = [
            gathers(&arrays.bytes, indices, which, others),
            gathers(&arrays.halves, indices, which, others),
            gathers(&arrays.words, indices, which, others),
        ];
        let expected = all[0][1];
        assert_eq!(all, [[expected; 2]; 3]);
        let first = random.below(WORDS as u64) as usize;
        // Often one that is there, so that both sides of it are.
        let there = arrays.halves[2 * first + random.below(32) as usize].load(Acquire);
        let key = if random.percent(70) { there } else { random.next() as u16 };
        // SAFETY: the arrays are longer than WORDS by what is loaded.
        unsafe {
            let ours = assembly::halves_below_512(&arrays.words, first as u32, key);
            assert_eq!(ours, twin::halves_below_512(&arrays.words, first as u32, key));
        }
    }

    #[test]
    fn assembly_loads_what_its_twin_loads() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let arrays = arrays(&mut random);
            for _ in 0..20 {
                if has(Level::Avx2) {
                    // SAFETY: AVX2 is here.
                    unsafe { compare_256(&arrays, &mut random) };
                }
                if has(Level::Avx512) {
                    // SAFETY: AVX-512 is here.
                    unsafe { compare_512(&arrays, &mut random) };
                }
            }
        }
    }
}
