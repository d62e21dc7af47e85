//! Gathers of the IPv6 FIB.
//!
//! Sixteen (or eight) addresses take each step together: root, up to [`ARRAYS`] arrays, list. What needs
//! more, or address bits after the 48th, is rare and goes by the plain path. `fib/v6/word.rs` says what the
//! bits mean.
//!
//! Every index is held below the number of words before it is used, though no word that the writer stores
//! leads outside: the memory may be shared with others.
use crate::fib::default::{DefaultRoute, DefaultWord};
#[cfg(target_arch = "x86_64")]
use crate::fib::v6::ARRAYS;
use crate::fib::v6::NODES;
use artery_storage::Simd;
#[cfg(target_arch = "x86_64")]
use artery_storage::simd::Level;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU32, fence};

/// Addresses that go through the stages together, so that the loads of some hide behind those of others.
const BLOCK: usize = 64;
/// The top four bits of a word that is an array, or a narrow list, and needs no bits after the 48th.
#[cfg(target_arch = "x86_64")]
const ARRAY: u32 = 0b1000;
#[cfg(target_arch = "x86_64")]
const LIST: u32 = 0b1100;
/// Words in a cache line.
const LINE: usize = 16;

/// Looks addresses up with vector instructions, those that need it with `plain`.
///
/// The slices are of equal length.
pub(crate) fn lookup_batch(
    simd: Simd,
    words: &[AtomicU32],
    default: &DefaultRoute,
    addresses: &[u128],
    groups: &mut [u32],
    plain: impl Fn(u128) -> u32,
) {
    assert!(words.len() >= NODES + 4 * LINE && words.len() <= i32::MAX as usize / 2);
    let (blocks, rest) = addresses.as_chunks::<BLOCK>();
    let (group_blocks, group_rest) = groups.as_chunks_mut::<BLOCK>();
    for (addresses, groups) in blocks.iter().zip(group_blocks) {
        lookup_block(simd, words, default, addresses, groups, &plain);
    }
    if !rest.is_empty() {
        let (mut addresses, mut groups) = ([0; BLOCK], [0; BLOCK]);
        addresses[..rest.len()].copy_from_slice(rest);
        lookup_block(simd, words, default, &addresses, &mut groups, &plain);
        group_rest.copy_from_slice(&groups[..rest.len()]);
    }
}

#[inline(always)]
fn lookup_block(
    simd: Simd,
    words: &[AtomicU32],
    default: &DefaultRoute,
    addresses: &[u128; BLOCK],
    groups: &mut [u32; BLOCK],
    plain: &impl Fn(u128) -> u32,
) {
    let before = default.load();
    let mut left = gather(simd, words, before, addresses, groups);
    fence(Acquire); // what was gathered was read before this
    if default.load() != before {
        left = u64::MAX;
    }
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        groups[lane] = plain(addresses[lane]);
        left &= left - 1;
    }
}

/// Looks up what vector instructions can; returns which lanes are left for the plain path.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn gather(
    simd: Simd,
    words: &[AtomicU32],
    default: DefaultWord,
    addresses: &[u128; BLOCK],
    groups: &mut [u32; BLOCK],
) -> u64 {
    match simd.level() {
        // SAFETY: a `Simd` of this level is a witness that the machine has these instructions.
        Level::Avx512 => unsafe { avx512::lookup_block(words, default, addresses, groups) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::lookup_block(words, default, addresses, groups) },
        _ => u64::MAX,
    }
}

/// There are no vector instructions for this processor: all lanes are left.
#[cfg(not(target_arch = "x86_64"))]
fn gather(_: Simd, _: &[AtomicU32], _: DefaultWord, _: &[u128; BLOCK], _: &mut [u32; BLOCK]) -> u64 {
    u64::MAX
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::*;
    use artery_storage::simd::load::{gather_512, half_word, halves_below_512};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    const LANES: usize = 16;

    /// Sixteen lookups under way.
    #[derive(Clone, Copy)]
    struct Lanes {
        /// The word that each has come to.
        word: __m512i,
        /// The address bits that follow, up to the 48th.
        rest: __m512i,
    }

    /// Looks up and returns which lanes are left for the plain path.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn lookup_block(
        words: &[AtomicU32],
        default: DefaultWord,
        addresses: &[u128; BLOCK],
        groups: &mut [u32; BLOCK],
    ) -> u64 {
        let mut under_way =
            [Lanes { word: _mm512_setzero_si512(), rest: _mm512_setzero_si512() }; BLOCK / LANES];
        for (lanes, addresses) in under_way.iter_mut().zip(addresses.as_chunks::<LANES>().0) {
            *lanes = read_root(words, addresses);
        }
        for _ in 0..ARRAYS {
            for lanes in &mut under_way {
                step_arrays(words, lanes);
            }
        }
        let mut left = 0u64;
        for (i, (lanes, groups)) in under_way.iter().zip(groups.as_chunks_mut::<LANES>().0).enumerate() {
            left |= u64::from(write_groups(words, lanes, groups)) << (LANES * i);
        }
        let default = _mm512_set1_epi32(default.group() as i32);
        for groups in groups.as_chunks_mut::<LANES>().0 {
            set_default(groups, default);
        }
        left
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn read_root(words: &[AtomicU32], addresses: &[u128; LANES]) -> Lanes {
        let four = |i: usize| {
            // SAFETY: four addresses of 16 bytes, of the sixteen.
            unsafe { _mm512_loadu_si512(addresses.as_ptr().add(4 * i).cast()) }
        };
        // Of each address the words with bits 0 to 31, then of each those with bits 32 to 63.
        let pick = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30);
        let low = _mm512_permutex2var_epi32(four(0), pick, four(1));
        let high = _mm512_permutex2var_epi32(four(2), pick, four(3));
        let first = _mm512_shuffle_i64x2::<0b01_00_01_00>(low, high);
        let second = _mm512_shuffle_i64x2::<0b11_10_11_10>(low, high);
        let rest = _mm512_or_si512(_mm512_slli_epi32::<16>(first), _mm512_srli_epi32::<16>(second));
        let index = _mm512_srli_epi32::<16>(first);
        Lanes { word: gather_words(words, index), rest }
    }

    /// Goes on where the word is an array.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn step_arrays(words: &[AtomicU32], lanes: &mut Lanes) {
        let Lanes { word, rest } = *lanes;
        let is_array = is_kind(word, ARRAY);
        let width = class(word);
        let offset = _mm512_srlv_epi32(rest, _mm512_sub_epi32(_mm512_set1_epi32(32), width));
        let index = _mm512_add_epi32(place(word), offset);
        lanes.rest = _mm512_mask_sllv_epi32(rest, is_array, rest, width);
        let limit = last_index(words);
        let index = _mm512_min_epu32(index, limit);
        // SAFETY: each index is below the number of words.
        lanes.word = unsafe { gather_512(words, index, is_array, word) };
    }

    /// Writes the groups, those from lists too, and returns which lanes are left for the plain path.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn write_groups(words: &[AtomicU32], lanes: &Lanes, groups: &mut [u32; LANES]) -> u16 {
        let Lanes { word, rest } = *lanes;
        let is_list = is_kind(word, LIST);
        if is_list != 0 {
            read_lists(words, word, rest, is_list, groups);
        }
        // SAFETY: sixteen words of 4 bytes.
        unsafe { _mm512_mask_storeu_epi32(groups.as_mut_ptr().cast(), !is_list, word) };
        _mm512_movepi32_mask(word) & !is_list
    }

    /// Writes what the lists say of the next 16 bits; lanes without a list get anything.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn read_lists(
        words: &[AtomicU32],
        word: __m512i,
        rest: __m512i,
        is_list: __mmask16,
        groups: &mut [u32; LANES],
    ) {
        let one = _mm512_set1_epi32(1);
        let entries = _mm512_sllv_epi32(one, class(word));
        let in_line = _mm512_set1_epi32(LINE as i32 - 1);
        // What is read of a list lies within two lines from its start.
        let last_start = _mm512_set1_epi32((words.len() - 3 * LINE) as i32);
        let start = _mm512_min_epu32(_mm512_maskz_mov_epi32(is_list, place(word)), last_start);
        let line = store_lane(_mm512_andnot_si512(in_line, start));
        let shift = store_lane(_mm512_slli_epi32::<1>(_mm512_and_si512(start, in_line)));
        let limits = store_lane(all_below(entries));
        let key = store_lane(_mm512_srli_epi32::<16>(rest));
        let values = _mm512_add_epi32(_mm512_slli_epi32::<1>(start), entries);
        let values = store_lane(_mm512_min_epu32(values, _mm512_set1_epi32(words.len() as i32 * 2 - 64)));
        // Kept in memory: to take the lanes out of registers is slower.
        let (line, shift, limits) = black_box((&line.0, &shift.0, &limits.0));
        let (key, values) = black_box((&key.0, &values.0));
        for i in 0..LANES {
            // SAFETY: `start` leaves room for a whole line before the end of the words. What readers can
            // reach of a list is not stored to, and what a lane without a list gets is of no use.
            let is_before = unsafe { halves_below_512(words, line[i], key[i] as u16) };
            let entry = (is_before >> (shift[i] & 31) & limits[i]).count_ones();
            let at = values[i] + entry;
            // SAFETY: the minimum above leaves room for 64 half words, and an entry is at most 32.
            groups[i] = unsafe { half_word(words, at) };
        }
    }

    /// Gives the default route's group to addresses without another one.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn set_default(groups: &mut [u32; LANES], default: __m512i) {
        // SAFETY: sixteen words of 4 bytes.
        let group = unsafe { _mm512_loadu_si512(groups.as_ptr().cast()) };
        let is_default = _mm512_testn_epi32_mask(group, group);
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_epi32(groups.as_mut_ptr().cast(), is_default, default) };
    }

    /// Reads the words at `index`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn gather_words(words: &[AtomicU32], index: __m512i) -> __m512i {
        let index = _mm512_min_epu32(index, last_index(words));
        // SAFETY: each index is below the number of words.
        unsafe { gather_512(words, index, u16::MAX, _mm512_setzero_si512()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn last_index(words: &[AtomicU32]) -> __m512i {
        _mm512_set1_epi32((words.len() - 1) as i32)
    }

    /// Bits for all keys of a list but the last, which no key is above.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn all_below(entries: __m512i) -> __m512i {
        let one = _mm512_set1_epi32(1);
        _mm512_sub_epi32(_mm512_sllv_epi32(one, _mm512_sub_epi32(entries, one)), one)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn is_kind(word: __m512i, kind: u32) -> __mmask16 {
        _mm512_cmpeq_epi32_mask(_mm512_srli_epi32::<28>(word), _mm512_set1_epi32(kind as i32))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn class(word: __m512i) -> __m512i {
        _mm512_and_si512(_mm512_srli_epi32::<24>(word), _mm512_set1_epi32(15))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn place(word: __m512i) -> __m512i {
        _mm512_srli_epi32::<6>(_mm512_slli_epi32::<8>(word))
    }

    /// Sixteen numbers, one for each lane.
    #[repr(align(64))]
    struct Lane([u32; LANES]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store_lane(lanes: __m512i) -> Lane {
        let mut lane = Lane([0; LANES]);
        // SAFETY: sixteen words of 4 bytes, aligned.
        unsafe { _mm512_store_si512((&raw mut lane).cast(), lanes) };
        lane
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::*;
    use artery_storage::simd::load::{gather_256, half_word, halves_from_256};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    const LANES: usize = 8;

    /// Eight lookups under way.
    #[derive(Clone, Copy)]
    struct Lanes {
        /// The word that each has come to.
        word: __m256i,
        /// The address bits that follow, up to the 48th.
        rest: __m256i,
    }

    /// Looks up and returns which lanes are left for the plain path.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn lookup_block(
        words: &[AtomicU32],
        default: DefaultWord,
        addresses: &[u128; BLOCK],
        groups: &mut [u32; BLOCK],
    ) -> u64 {
        let mut under_way =
            [Lanes { word: _mm256_setzero_si256(), rest: _mm256_setzero_si256() }; BLOCK / LANES];
        for (lanes, addresses) in under_way.iter_mut().zip(addresses.as_chunks::<LANES>().0) {
            *lanes = read_root(words, addresses);
        }
        for _ in 0..ARRAYS {
            for lanes in &mut under_way {
                step_arrays(words, lanes);
            }
        }
        let mut left = 0u64;
        for (i, (lanes, groups)) in under_way.iter().zip(groups.as_chunks_mut::<LANES>().0).enumerate() {
            left |= u64::from(write_groups(words, lanes, groups)) << (LANES * i);
        }
        let default = _mm256_set1_epi32(default.group() as i32);
        for groups in groups.as_chunks_mut::<LANES>().0 {
            set_default(groups, default);
        }
        left
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn read_root(words: &[AtomicU32], addresses: &[u128; LANES]) -> Lanes {
        // Eight scalar moves a side: the compiler packs them well.
        let (mut index, mut rest) = (Lane([0; LANES]), Lane([0; LANES]));
        for (i, address) in addresses.iter().enumerate() {
            index.0[i] = (address >> 112) as u32;
            rest.0[i] = (address >> 80) as u32;
        }
        Lanes { word: gather_words(words, load_lane(&index), _mm256_set1_epi32(-1)), rest: load_lane(&rest) }
    }

    /// Goes on where the word is an array.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn step_arrays(words: &[AtomicU32], lanes: &mut Lanes) {
        let Lanes { word, rest } = *lanes;
        let is_array = is_kind(word, ARRAY);
        let width = class(word);
        let offset = _mm256_srlv_epi32(rest, _mm256_sub_epi32(_mm256_set1_epi32(32), width));
        let next = gather_words(words, _mm256_add_epi32(place(word), offset), is_array);
        lanes.word = _mm256_blendv_epi8(word, next, is_array);
        lanes.rest = _mm256_blendv_epi8(rest, _mm256_sllv_epi32(rest, width), is_array);
    }

    /// Writes the groups, those from lists too, and returns which lanes are left for the plain path.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn write_groups(words: &[AtomicU32], lanes: &Lanes, groups: &mut [u32; LANES]) -> u8 {
        let Lanes { word, rest } = *lanes;
        let is_list = is_kind(word, LIST);
        if _mm256_testz_si256(is_list, is_list) == 0 {
            read_lists(words, word, rest, is_list, groups);
        }
        let is_other = _mm256_xor_si256(is_list, _mm256_set1_epi32(-1));
        // SAFETY: eight words of 4 bytes.
        unsafe { _mm256_maskstore_epi32(groups.as_mut_ptr().cast(), is_other, word) };
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_andnot_si256(is_list, word))) as u8
    }

    /// Writes what the lists say of the next 16 bits; lanes without a list get anything.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn read_lists(
        words: &[AtomicU32],
        word: __m256i,
        rest: __m256i,
        is_list: __m256i,
        groups: &mut [u32; LANES],
    ) {
        let one = _mm256_set1_epi32(1);
        let entries = _mm256_sllv_epi32(one, class(word));
        let in_line = _mm256_set1_epi32(LINE as i32 - 1);
        // What is read of a list lies within two lines from its start.
        let last_start = _mm256_set1_epi32((words.len() - 3 * LINE) as i32);
        let start = _mm256_min_epu32(_mm256_and_si256(is_list, place(word)), last_start);
        let line = store_lane(_mm256_andnot_si256(in_line, start));
        let shift = store_lane(_mm256_slli_epi32::<1>(_mm256_and_si256(start, in_line)));
        let limits = store_lane(all_below(entries));
        let key = store_lane(_mm256_srli_epi32::<16>(rest));
        let values = _mm256_add_epi32(_mm256_slli_epi32::<1>(start), entries);
        let values = store_lane(_mm256_min_epu32(values, _mm256_set1_epi32(words.len() as i32 * 2 - 64)));
        // Kept in memory: to take the lanes out of registers is slower.
        let (line, shift, limits) = black_box((&line.0, &shift.0, &limits.0));
        let (key, values) = black_box((&key.0, &values.0));
        for i in 0..LANES {
            // SAFETY: `start` leaves room for a whole line before the end of the words. What readers can
            // reach of a list is not stored to, and what a lane without a list gets is of no use.
            let is_before = unsafe { keys_before(words, line[i], key[i] as u16) };
            let entry = (is_before >> (shift[i] & 31) & limits[i]).count_ones();
            let at = values[i] + entry;
            // SAFETY: the minimum above leaves room for 64 half words, and an entry is at most 32.
            groups[i] = unsafe { half_word(words, at) };
        }
    }

    /// Which half words of a line are below a key.
    ///
    /// # Safety
    /// A line must begin at the word `line`.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    unsafe fn keys_before(words: &[AtomicU32], line: u32, key: u16) -> u32 {
        // SAFETY: the caller sees to it.
        let [low, high] = unsafe { halves_from_256(words, line, key) };
        // Packing works on halves of a register: this puts the quarters back in order.
        let all = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
        !_mm256_movemask_epi8(all) as u32
    }

    /// Gives the default route's group to addresses without another one.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn set_default(groups: &mut [u32; LANES], default: __m256i) {
        // SAFETY: eight words of 4 bytes.
        let group = unsafe { _mm256_loadu_si256(groups.as_ptr().cast()) };
        let is_default = _mm256_cmpeq_epi32(group, _mm256_setzero_si256());
        // SAFETY: as above.
        unsafe { _mm256_maskstore_epi32(groups.as_mut_ptr().cast(), is_default, default) };
    }

    /// Reads the words at `index` in the lanes of `mask`; others get anything.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn gather_words(words: &[AtomicU32], index: __m256i, mask: __m256i) -> __m256i {
        let index = _mm256_min_epu32(index, _mm256_set1_epi32((words.len() - 1) as i32));
        // SAFETY: each index is below the number of words.
        unsafe { gather_256(words, index, mask, mask) }
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn is_kind(word: __m256i, kind: u32) -> __m256i {
        _mm256_cmpeq_epi32(_mm256_srli_epi32::<28>(word), _mm256_set1_epi32(kind as i32))
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn class(word: __m256i) -> __m256i {
        _mm256_and_si256(_mm256_srli_epi32::<24>(word), _mm256_set1_epi32(15))
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn place(word: __m256i) -> __m256i {
        _mm256_srli_epi32::<6>(_mm256_slli_epi32::<8>(word))
    }

    /// Bits for all keys of a list but the last, which no key is above.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn all_below(entries: __m256i) -> __m256i {
        let one = _mm256_set1_epi32(1);
        _mm256_sub_epi32(_mm256_sllv_epi32(one, _mm256_sub_epi32(entries, one)), one)
    }

    /// Eight numbers, one for each lane.
    #[repr(align(32))]
    struct Lane([u32; LANES]);

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn store_lane(lanes: __m256i) -> Lane {
        let mut lane = Lane([0; LANES]);
        // SAFETY: eight words of 4 bytes, aligned.
        unsafe { _mm256_store_si256((&raw mut lane).cast(), lanes) };
        lane
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn load_lane(lane: &Lane) -> __m256i {
        // SAFETY: eight words of 4 bytes, aligned.
        unsafe { _mm256_load_si256((&raw const *lane).cast()) }
    }
}
