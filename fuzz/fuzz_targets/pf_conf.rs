//! Any text for a file of rules: no panic, and what is printed of it reads again and prints itself.
#![no_main]
use artery_filter::syntax::print::Style;
use artery_filter::syntax::{Environment, ParseSettings, parse_lenient};
use libfuzzer_sys::fuzz_target;

#[path = "../confinement.rs"]
mod confinement;

fuzz_target!(init: confinement::confine(), |data: &[u8]| {
    let environment = Environment::fixture();
    let print = |text: &[u8]| {
        let (parsed, faults) = parse_lenient("stdin", text, &environment, &ParseSettings::default());
        let printed = parsed.to_text(&Style::new(&environment.names));
        faults.is_empty().then_some(printed)
    };
    // Names may have characters that no quotes can hold, and files only the text that names them.
    let is_plain = data.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n') && !b"\\\"'$".contains(byte));
    let has_files = data.windows(4).any(|word| word == b"file" || word == b"load");
    if let Some(once) = print(data)
        && is_plain
        && !has_files
    {
        let twice = print(once.as_bytes());
        assert!(twice.is_some(), "{once}");
    }
});
