//! Gathers of the IPv4 FIBs: 64 lookups at a time, all independent.
//!
//! Each kernel looks up 64 addresses and returns a mask of those it leaves to the plain path: what escaped to
//! a run list. It asks for all cache lines of its first load before it waits for any: a prefetch leaves the
//! processor's window at once, a load that misses holds it up. Where gathers were measured to be slower than
//! loads, loads are used.
use artery_storage::Simd;
#[cfg(target_arch = "x86_64")]
use artery_storage::simd::Level;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Addresses of one call.
pub(crate) const BATCH: usize = 64;
/// One cell for each /24.
pub(crate) const CELLS: usize = 1 << 24;
/// One word for each /19.
pub(crate) const ROOTS: usize = 1 << 19;
/// The codes of one byte.
pub(crate) const CODES: usize = 256;

/// The arrays of the fast layout with cells of one byte.
pub(crate) struct Narrow<'a> {
    pub(crate) cells: &'a [AtomicU8; CELLS],
    /// None where every code in use is its group's number.
    pub(crate) palette: Option<&'a [AtomicU32; CODES]>,
    /// The group of code 0.
    pub(crate) default: u32,
}

/// The arrays of the fast layout with cells of two bytes.
pub(crate) struct Wide<'a> {
    pub(crate) cells: &'a [AtomicU16; CELLS],
    /// The group of code 0.
    pub(crate) default: u32,
}

/// The arrays of the small layout.
pub(crate) struct Small<'a> {
    pub(crate) roots: &'a [AtomicU64; ROOTS],
    pub(crate) leaves: &'a [AtomicU16],
    /// The group of code 0.
    pub(crate) default: u32,
}

/// The addresses of one call, and their results.
pub(crate) type Addresses = [u32; BATCH];

impl Narrow<'_> {
    /// Looks up, and returns the addresses that it left undone.
    #[inline]
    pub(crate) fn lookup_batch(&self, simd: Simd, addresses: &Addresses, out: &mut Addresses) -> u64 {
        match simd.level() {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::narrow_512(self, addresses, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::narrow_256(self, addresses, out) },
            _ => plain::narrow(self, addresses, out),
        }
    }
}

impl Wide<'_> {
    /// Looks up, and returns the addresses that it left undone.
    #[inline]
    pub(crate) fn lookup_batch(&self, simd: Simd, addresses: &Addresses, out: &mut Addresses) -> u64 {
        match simd.level() {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::wide_512(self, addresses, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::wide_256(self, addresses, out) },
            _ => plain::wide(self, addresses, out),
        }
    }
}

impl Small<'_> {
    /// Looks up, and returns the addresses that it left undone.
    #[inline]
    pub(crate) fn lookup_batch(&self, simd: Simd, addresses: &Addresses, out: &mut Addresses) -> u64 {
        match simd.level() {
            // SAFETY: a Simd of this level exists only where its instructions do.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::small_512(self, addresses, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::small_popcnt(self, addresses, out) },
            _ => plain::small(self, addresses, out),
        }
    }
}

/// The same by ordinary code, parts of which serve the other kernels too.
mod plain {
    use super::{Addresses, BATCH, Narrow, Small, Wide, bits_up_to, prefetch_elements};
    use std::sync::atomic::Ordering::Acquire;

    #[inline]
    pub(super) fn narrow(fib: &Narrow, addresses: &Addresses, out: &mut Addresses) -> u64 {
        prefetch_elements(fib.cells, 8, addresses);
        let mut escaped = 0;
        for lane in 0..BATCH {
            let code = fib.cells[(addresses[lane] >> 8) as usize].load(Acquire);
            let group = fib.palette.map_or(code.into(), |palette| palette[usize::from(code)].load(Acquire));
            out[lane] = if code == 0 { fib.default } else { group };
            escaped |= u64::from(code == u8::MAX) << lane;
        }
        escaped
    }

    #[inline]
    pub(super) fn wide(fib: &Wide, addresses: &Addresses, out: &mut Addresses) -> u64 {
        prefetch_elements(fib.cells, 8, addresses);
        let mut escaped = 0;
        for lane in 0..BATCH {
            let code = fib.cells[(addresses[lane] >> 8) as usize].load(Acquire);
            out[lane] = if code == 0 { fib.default } else { code.into() };
            escaped |= u64::from(code == u16::MAX) << lane;
        }
        escaped
    }

    #[inline(always)]
    pub(super) fn small(fib: &Small, addresses: &Addresses, out: &mut Addresses) -> u64 {
        prefetch_elements(fib.roots, 13, addresses);
        let words = small_words(fib, addresses);
        let mut places = [0; BATCH];
        let mut listed = 0;
        for lane in 0..BATCH {
            places[lane] = ((words[lane] >> 32) as u32)
                .wrapping_add(bits_up_to(words[lane], addresses[lane]).count_ones());
            listed |= (words[lane] & 1) << lane;
        }
        small_leaves(fib, &places, out);
        listed
    }

    #[inline(always)]
    pub(super) fn small_words(fib: &Small, addresses: &Addresses) -> [u64; BATCH] {
        addresses.map(|address| fib.roots[(address >> 13) as usize].load(Acquire))
    }

    /// The groups at these places; the places of addresses that have a run list are of no use,
    /// and do no harm.
    #[inline(always)]
    pub(super) fn small_leaves(fib: &Small, places: &Addresses, out: &mut Addresses) {
        for (out, place) in out.iter_mut().zip(places) {
            let code = fib.leaves.get(*place as usize).map_or(0, |leaf| leaf.load(Acquire));
            *out = if code == 0 { fib.default } else { code.into() };
        }
    }
}

/// The bits of a root word for the /24s up to that of an address, moved to the top.
#[inline(always)]
fn bits_up_to(word: u64, address: u32) -> u32 {
    (word as u32) << (!(address >> 8) & 31)
}

/// How many runs begin in a /19 after its first, up to the /24 of an address.
#[inline(always)]
pub(crate) fn count_runs(simd: Simd, word: u64, address: u32) -> u32 {
    let bits = bits_up_to(word, address);
    match simd.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => {
            let ones;
            // SAFETY: a Simd of these levels exists only where this instruction does; it touches registers
            // only. A function with the feature would not become part of callers without it.
            unsafe {
                std::arch::asm!(
                    "popcnt {0:e}, {1:e}",
                    lateout(reg) ones,
                    in(reg) bits,
                    options(pure, nomem, nostack)
                );
            }
            ones
        }
        _ => bits.count_ones(),
    }
}

/// Asks for the cache line that each address begins with: element `address >> shift` of an array.
#[inline(always)]
fn prefetch_elements<T, const N: usize>(array: &[T; N], shift: u32, addresses: &Addresses) {
    #[cfg(target_arch = "x86_64")]
    for address in addresses {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let element = array.as_ptr().wrapping_add((address >> shift) as usize);
        // SAFETY: a prefetch touches no memory that the program can see, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(element.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, shift, addresses);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Addresses, BATCH, Narrow, Small, Wide, plain, prefetch_elements};
    use artery_storage::simd::load::{gather_256, gather_512};
    use std::arch::x86_64::*;

    /// Plain code, with an instruction that counts bits.
    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    pub(super) fn small_popcnt(fib: &Small, addresses: &Addresses, out: &mut Addresses) -> u64 {
        super::plain::small(fib, addresses, out)
    }

    /// Lanes `16 * part` and following.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_512(from: &Addresses, part: usize) -> __m512i {
        let lanes: &[u32; 16] = &from.as_chunks().0[part];
        // SAFETY: 64 bytes of the array, at any alignment.
        unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store_512(to: &mut Addresses, part: usize, lanes: __m512i) {
        let place: &mut [u32; 16] = &mut to.as_chunks_mut().0[part];
        // SAFETY: 64 bytes of the array, at any alignment.
        unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), lanes) }
    }

    /// Lanes `8 * part` and following.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_256(from: &Addresses, part: usize) -> __m256i {
        let lanes: &[u32; 8] = &from.as_chunks().0[part];
        // SAFETY: 32 bytes of the array, at any alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_256(to: &mut Addresses, part: usize, lanes: __m256i) {
        let place: &mut [u32; 8] = &mut to.as_chunks_mut().0[part];
        // SAFETY: 32 bytes of the array, at any alignment.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), lanes) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn narrow_512(fib: &Narrow, addresses: &Addresses, out: &mut Addresses) -> u64 {
        let Narrow { cells, palette, default } = *fib;
        prefetch_elements(cells, 8, addresses);
        let byte = _mm512_set1_epi32(255);
        let default = _mm512_set1_epi32(default as i32);
        let mut escaped = 0;
        for part in 0..BATCH / 16 {
            let lanes = load_512(addresses, part);
            // SAFETY: an address shifted by 10 is below 2^22, and the array has 2^22 times four bytes.
            let fours = unsafe {
                gather_512(cells, _mm512_srli_epi32::<10>(lanes), u16::MAX, _mm512_setzero_si512())
            };
            let which = _mm512_and_si512(_mm512_srli_epi32::<5>(lanes), _mm512_set1_epi32(24));
            let codes = _mm512_and_si512(_mm512_srlv_epi32(fours, which), byte);
            let groups = match palette {
                None => codes,
                // SAFETY: a code is below 256, the length of the palette.
                Some(palette) => unsafe { gather_512(palette, codes, u16::MAX, _mm512_setzero_si512()) },
            };
            let uncoded = _mm512_testn_epi32_mask(codes, codes);
            store_512(out, part, _mm512_mask_mov_epi32(groups, uncoded, default));
            escaped |= u64::from(_mm512_cmpeq_epi32_mask(codes, byte)) << (16 * part);
        }
        escaped
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn wide_512(fib: &Wide, addresses: &Addresses, out: &mut Addresses) -> u64 {
        let Wide { cells, default } = *fib;
        prefetch_elements(cells, 8, addresses);
        let default = _mm512_set1_epi32(default as i32);
        let mut escaped = 0;
        for part in 0..BATCH / 16 {
            let lanes = load_512(addresses, part);
            // SAFETY: an address shifted by 9 is below 2^23, and the array has 2^23 times four bytes.
            let twos =
                unsafe { gather_512(cells, _mm512_srli_epi32::<9>(lanes), u16::MAX, _mm512_setzero_si512()) };
            let which = _mm512_and_si512(_mm512_srli_epi32::<4>(lanes), _mm512_set1_epi32(16));
            let codes = _mm512_and_si512(_mm512_srlv_epi32(twos, which), _mm512_set1_epi32(0xffff));
            let uncoded = _mm512_testn_epi32_mask(codes, codes);
            store_512(out, part, _mm512_mask_mov_epi32(codes, uncoded, default));
            let left = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(0xffff));
            escaped |= u64::from(left) << (16 * part);
        }
        escaped
    }

    /// Loads word by word, which has more cache lines under way at once than a gather, and
    /// counts bits in vectors.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
    pub(super) fn small_512(fib: &Small, addresses: &Addresses, out: &mut Addresses) -> u64 {
        prefetch_elements(fib.roots, 13, addresses);
        let words = plain::small_words(fib, addresses);
        let mut places = [0; BATCH];
        let mut listed = 0;
        for (part, words) in words.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: 64 bytes of the array, at any alignment.
            let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
            store_256(&mut places, part, places_512(words, load_256(addresses, part)));
            listed |= u64::from(_mm512_test_epi64_mask(words, _mm512_set1_epi64(1))) << (8 * part);
        }
        plain::small_leaves(fib, &places, out);
        listed
    }

    /// The places of the leaves of 8 addresses whose words are given.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512vpopcntdq")]
    fn places_512(words: __m512i, addresses: __m256i) -> __m256i {
        let slot = _mm256_and_si256(_mm256_srli_epi32::<8>(addresses), _mm256_set1_epi32(31));
        let above = _mm512_sllv_epi64(_mm512_set1_epi64(2), _mm512_cvtepu32_epi64(slot));
        let up_to = _mm512_sub_epi64(above, _mm512_set1_epi64(1));
        let rank = _mm512_popcnt_epi64(_mm512_and_si512(words, up_to));
        _mm512_cvtepi64_epi32(_mm512_add_epi64(_mm512_srli_epi64::<32>(words), rank))
    }

    /// The marks of 8 lanes as bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bits_256(marks: __m256i) -> u64 {
        _mm256_movemask_ps(_mm256_castsi256_ps(marks)) as u64
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn narrow_256(fib: &Narrow, addresses: &Addresses, out: &mut Addresses) -> u64 {
        let Narrow { cells, palette, default } = *fib;
        prefetch_elements(cells, 8, addresses);
        let (byte, all) = (_mm256_set1_epi32(255), _mm256_set1_epi32(-1));
        let default = _mm256_set1_epi32(default as i32);
        let mut escaped = 0;
        for part in 0..BATCH / 8 {
            let lanes = load_256(addresses, part);
            // SAFETY: an address shifted by 10 is below 2^22, and the array has 2^22 times four bytes.
            let fours =
                unsafe { gather_256(cells, _mm256_srli_epi32::<10>(lanes), all, _mm256_setzero_si256()) };
            let which = _mm256_and_si256(_mm256_srli_epi32::<5>(lanes), _mm256_set1_epi32(24));
            let codes = _mm256_and_si256(_mm256_srlv_epi32(fours, which), byte);
            let groups = match palette {
                None => codes,
                // SAFETY: a code is below 256, the length of the palette.
                Some(palette) => unsafe { gather_256(palette, codes, all, _mm256_setzero_si256()) },
            };
            let uncoded = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
            store_256(out, part, _mm256_blendv_epi8(groups, default, uncoded));
            escaped |= bits_256(_mm256_cmpeq_epi32(codes, byte)) << (8 * part);
        }
        escaped
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn wide_256(fib: &Wide, addresses: &Addresses, out: &mut Addresses) -> u64 {
        let Wide { cells, default } = *fib;
        prefetch_elements(cells, 8, addresses);
        let (most, all) = (_mm256_set1_epi32(0xffff), _mm256_set1_epi32(-1));
        let default = _mm256_set1_epi32(default as i32);
        let mut escaped = 0;
        for part in 0..BATCH / 8 {
            let lanes = load_256(addresses, part);
            // SAFETY: an address shifted by 9 is below 2^23, and the array has 2^23 times four bytes.
            let twos =
                unsafe { gather_256(cells, _mm256_srli_epi32::<9>(lanes), all, _mm256_setzero_si256()) };
            let which = _mm256_and_si256(_mm256_srli_epi32::<4>(lanes), _mm256_set1_epi32(16));
            let codes = _mm256_and_si256(_mm256_srlv_epi32(twos, which), most);
            let uncoded = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
            store_256(out, part, _mm256_blendv_epi8(codes, default, uncoded));
            escaped |= bits_256(_mm256_cmpeq_epi32(codes, most)) << (8 * part);
        }
        escaped
    }
}
