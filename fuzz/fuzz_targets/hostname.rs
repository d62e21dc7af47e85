//! Any hostname.veb0 and hostname.vport0.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

#[path = "../confinement.rs"]
mod confinement;

fuzz_target!(init: confinement::confine(), |data: &[u8]| forged::hostname(data));
