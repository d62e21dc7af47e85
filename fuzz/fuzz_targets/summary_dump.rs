//! Any lines of an IP summary dump: packets are made of them, or they are passed over.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::Bench;
use libfuzzer_sys::fuzz_target;
use std::fmt::Write;
use std::time::Duration;

#[path = "../confinement.rs"]
mod confinement;

fuzz_target!(init: confinement::confine(), |data: &[u8]| {
    let digits = data.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    let class = CLASSES.find_class("FromIPSummaryDump").expect("it is a class");
    let config = format!("DATA \\<{digits}>, CHECKSUM true");
    let Ok(mut bench) = Bench::setup(class, &config).outputs(1).build() else { return };
    for _ in 0..8 {
        bench.run_once();
        bench.advance_time(Duration::from_millis(1));
        bench.drain_sent(0);
    }
});
