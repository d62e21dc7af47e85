//! Any file of flows: what goes to a router is what it reads.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::flows(data));
