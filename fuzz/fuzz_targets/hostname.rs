//! Any hostname.veb0 and hostname.vport0.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::hostname(data));
