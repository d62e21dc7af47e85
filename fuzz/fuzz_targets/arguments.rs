//! Any configuration string for any class: no panic while it is built and started on the bench.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::Bench;
use libfuzzer_sys::fuzz_target;

#[path = "../confinement.rs"]
mod confinement;

/// Classes that read or write endless files, or change devices, routes and sockets, when they start.
const OUTSIDE: [&str; 9] = [
    "FPMServer",
    "FromDevice",
    "FromDump",
    "FromHost",
    "HostPorts",
    "HostRoutes",
    "ToDevice",
    "ToDump",
    "ToHost",
];

fuzz_target!(init: confinement::confine(), |data: &[u8]| {
    let Some((&class, config)) = data.split_first() else { return };
    let class = CLASSES.0[usize::from(class) % CLASSES.0.len()];
    if !OUTSIDE.contains(&class.name) {
        drop(Bench::setup(class, &String::from_utf8_lossy(config)).build());
    }
});
