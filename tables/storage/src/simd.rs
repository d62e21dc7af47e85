//! What vector code of tables stands on: which instructions there are, hints, and loads of words that a
//! writer may store to meanwhile ([`load`] says what those promise).
#[cfg(target_arch = "x86_64")]
pub mod load;

use std::fmt;

/// Asks for the cache line of a place before it is needed.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch touches no memory that the program can see, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Which of the sixteen bytes of two words are `byte`, a bit for each, from the lowest byte of
/// the first word on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn bytes_like([low, high]: [u64; 2], byte: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 is a part of x86-64; nothing here reads memory.
    unsafe {
        let words = _mm_set_epi64x(high as i64, low as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(words, _mm_set1_epi8(byte as i8))) as u32
    }
}

/// Which of the sixteen bytes of two words are `byte`, a bit for each, from the lowest byte of
/// the first word on.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn bytes_like([low, high]: [u64; 2], byte: u8) -> u32 {
    let bytes = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
    bytes.enumerate().fold(0, |like, (n, at)| like | u32::from(at == byte) << n)
}

/// Which instructions a batch lookup uses: a witness that this machine has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Simd(Level);

/// The kinds of vector code. Only detection makes a [`Simd`] that asks for more than plain code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain code without vector instructions.
    Scalar,
    /// AVX2, POPCNT, BMI1 and BMI2.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, VBMI and VPOPCNTDQ.
    Avx512,
}

impl Simd {
    /// What every machine has.
    pub const SCALAR: Simd = Simd(Level::Scalar);

    /// The widest that this machine has.
    pub fn detect_best() -> Simd {
        Simd::all().last().unwrap_or(Simd::SCALAR)
    }

    /// The instructions that this machine is known to have.
    #[inline(always)]
    pub fn level(self) -> Level {
        self.0
    }

    /// Those that this machine has, narrowest first.
    pub fn all() -> impl Iterator<Item = Simd> {
        [Level::Scalar, Level::Avx2, Level::Avx512].into_iter().filter(|level| level.is_here()).map(Simd)
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Level::Scalar => "plain",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        })
    }
}

impl Level {
    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        match self {
            Level::Scalar => true,
            Level::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            Level::Avx512 => {
                Level::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vpopcntdq")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        self == Level::Scalar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_compared_each_for_itself() {
        let words = [0x0102_0304_0506_0708, 0x08ff_0000_ffff_0108_u64];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for byte in 0..=u8::MAX {
            let expected: u32 = (0..16).filter(|n| bytes[*n] == byte).map(|n| 1 << n).sum();
            assert_eq!(bytes_like(words, byte), expected, "{byte}");
        }
    }
}
