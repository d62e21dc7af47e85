//! Any configuration file of `artery router`: what is printed of it reads as the same.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

#[path = "../confinement.rs"]
mod confinement;

fuzz_target!(init: confinement::confine(), |data: &[u8]| forged::configuration(data));
