//! Any indices and descriptors in the rings of an AF_XDP socket: no frame has two owners, and none is lost.
#![no_main]
use artery_device::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::rings(data));
