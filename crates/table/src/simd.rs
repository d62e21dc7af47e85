//! Vector code of the compiled FIBs: gathers on the word arrays. Its oracle is the plain path of each FIB.
//!
//! A gather is many ordinary loads, and a writer may store into the same words meanwhile. Each lane is one aligned
//! load of at most 8 bytes, which the processor does whole, so a lane has the old word or the new one, as an
//! atomic load would. To the compiler an intrinsic is opaque machine code that reads memory: it neither invents
//! nor repeats the load, and the words are atomics, whose memory the compiler already takes to be changing.
mod v4;
mod v6;

/// Which instructions a batch lookup uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Simd {
    /// What every machine has.
    Plain,
    /// Eight lanes.
    Avx2,
    /// Sixteen lanes: AVX-512 F, BW, DQ, VL and VPOPCNTDQ.
    Avx512,
}

impl Simd {
    /// The widest that this machine has.
    pub fn best() -> Simd {
        if Simd::Avx512.is_here() {
            Simd::Avx512
        } else if Simd::Avx2.is_here() {
            Simd::Avx2
        } else {
            Simd::Plain
        }
    }

    /// Those that this machine has.
    pub fn all() -> impl Iterator<Item = Simd> {
        [Simd::Plain, Simd::Avx2, Simd::Avx512].into_iter().filter(|simd| simd.is_here())
    }

    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        match self {
            Simd::Plain => true,
            Simd::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt"),
            Simd::Avx512 => {
                Simd::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vpopcntdq")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        self == Simd::Plain
    }
}
