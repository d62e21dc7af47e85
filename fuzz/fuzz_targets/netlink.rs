//! Any answer of generic netlink: read or refused.
#![no_main]
use artery_device::forged;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| forged::netlink(data));
