//! Any file of flows: a router gets exactly what it reads.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::flows(data));
