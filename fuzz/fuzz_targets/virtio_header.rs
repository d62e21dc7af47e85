//! Any virtio-net header on any frame: refused, or finished and described again.
#![no_main]
use artery_device::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::virtio_header(data));
