//! The language of pf.conf(5), by files: `NAME.in` is read, `NAME.ok` is what is printed, `NAME.fail` what is
//! reported. `UPDATE_EXPECT=1` rewrites them.
use artery_filter::syntax::print::Style;
use artery_filter::syntax::{Environment, NumberedNames, ParseSettings, ParsedText, parse, parse_lenient};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pf")
}

/// The machine of tests, with the files beside the rules.
fn environment() -> Environment<'static> {
    let read_file = |name: &str| std::fs::read(folder().join(name)).map_err(|error| error.to_string());
    Environment { read_file: Box::new(read_file), ..Environment::fixture() }
}

fn inputs() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "in"));
    files.sort();
    let name = |file: &Path| file.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), std::fs::read(file).unwrap())).collect()
}

fn text_of(parsed: &ParsedText) -> String {
    let names = NumberedNames::builtin();
    parsed.to_text(&Style::new(&names))
}

fn reads(text: &str) -> ParsedText {
    match parse("stdin", text.as_bytes(), &environment(), &ParseSettings::default()) {
        Ok(parsed) => parsed,
        Err(faults) => {
            let faults: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
            panic!("{faults}in:\n{text}")
        }
    }
}

fn compare(name: &str, ending: &str, found: &str) {
    let file = folder().join(format!("{name}.{ending}"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&file, found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(found, expected, "{}", file.display());
}

#[test]
fn each_file_prints_as_expected_or_fails_as_expected() {
    for (name, text) in inputs() {
        let (parsed, faults) = parse_lenient("stdin", &text, &environment(), &ParseSettings::default());
        if faults.is_empty() {
            compare(&name, "ok", &text_of(&parsed));
        } else {
            compare(&name, "fail", &faults.iter().map(|fault| format!("{fault}\n")).collect::<String>());
        }
    }
}

#[test]
fn what_is_printed_prints_itself() {
    for (name, text) in inputs() {
        let (parsed, faults) = parse_lenient("stdin", &text, &environment(), &ParseSettings::default());
        if faults.is_empty() {
            let once = text_of(&parsed);
            let twice = text_of(&reads(&once));
            assert_eq!(once, twice, "{name}");
        }
    }
}
