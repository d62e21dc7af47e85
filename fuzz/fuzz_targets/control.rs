//! A stream of the control socket: it doesn't matter how it is cut.
#![no_main]
use artery::forged;
use libfuzzer_sys::fuzz_target;

#[path = "../confinement.rs"]
mod confinement;

fuzz_target!(init: confinement::confine(), |data: &[u8]| forged::control(data));
