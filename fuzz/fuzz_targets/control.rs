//! A stream of the control socket: it doesn't matter how it is cut.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::control(data));
