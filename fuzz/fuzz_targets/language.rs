//! Any text: no panic; what compiles prints, compiles again and is the same; formatting is idempotent.
#![no_main]
use artery_elements::CLASSES;
use artery_lang::{Dialect, Options, Sources, check, compile, format, print_flat};
use libfuzzer_sys::fuzz_target;

#[path = "../confinement.rs"]
mod confinement;

fuzz_target!(init: confinement::confine(), |data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for dialect in [Dialect::Artery, Dialect::Click] {
        let options = Options { dialect, ..Options::default() };
        let mut sources = Sources::default();
        let file = sources.add_file("fuzz", text.as_ref());
        let (ir, diagnostics) = compile(&mut sources, file, &options, &CLASSES);
        diagnostics.iter().for_each(|d| drop((d.render(&sources), d.click_style(&sources))));
        if diagnostics.iter().any(|d| d.is_error()) {
            continue;
        }
        drop(check(&ir, &CLASSES));
        let flat = print_flat(&ir);
        let again = sources.add_file("flat", flat.as_str());
        let (second, _) = compile(&mut sources, again, &options, &CLASSES);
        assert_eq!(flat, print_flat(&second));
    }
    if let Ok(once) = format(&text) {
        assert_eq!(format(&once).as_deref(), Ok(once.as_str()));
    }
});
