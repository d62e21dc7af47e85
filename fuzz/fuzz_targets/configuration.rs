//! Any configuration file of `artery router`: what is printed of it reads as the same.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::configuration(data));
