//! Any file of states, as `artery pfctl -L` checks it, and any records of states to a filter.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::Bench;
use artery_filter::states::Dump;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

/// States that are given at once.
const CHUNK: usize = 512;

thread_local! {
    static FILTER: RefCell<Bench> = {
        let class = CLASSES.find_class("PacketFilter").expect("it is a class");
        let setup = Bench::setup(class, "PORT em0 192.0.2.1/24, PORT em1").inputs(2).outputs(2);
        RefCell::new(setup.build().unwrap_or_else(|errors| panic!("{errors:?}")))
    };
}

fuzz_target!(|data: &[u8]| {
    FILTER.with_borrow_mut(|filter| {
        let mut restore = |records: &[u8]| {
            filter.read("pf_worker", &format!("restore with-rules {}", BASE64_STANDARD.encode(records)))
        };
        // A handler may refuse; a file that was checked may not be refused for how it is written.
        let _ = restore(data);
        if let Ok(dump) = Dump::read_checked(data) {
            dump.chunks(CHUNK).for_each(|chunk| drop(restore(chunk).expect("it was checked")));
        }
    });
});
