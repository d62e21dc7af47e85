//! Any slot of a packet socket's receive ring: nothing outside it is read, and each frame is counted once.
#![no_main]
use artery_device::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::slot(data));
