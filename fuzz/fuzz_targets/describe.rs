//! Any bytes as a frame and as a packet: no panic, and a line without control characters.
#![no_main]
use artery_wire::describe;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for line in [describe::frame(data).to_string(), describe::packet(data).to_string()] {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
});
