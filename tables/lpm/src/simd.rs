//! Vector code of the compiled FIBs: gathers on the word arrays. Its oracle is the plain path of each FIB.
//!
//! A writer may store into the same words meanwhile, so all vector loads of them are those of
//! [`artery_storage::simd::load`], which says what they promise.
pub(crate) mod v4;
pub(crate) mod v6;
