//! Test rig, baselines that exist to be measured against, experiments.

#[forbid(unsafe_code)]
pub mod rig;
