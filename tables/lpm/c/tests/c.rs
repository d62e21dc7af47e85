//! The library as a C program meets it: compiled with the machine's `cc` against the header, and run.
//!
//! Where there is no `cc` these tests say so and pass; with `ARTERY_RIG=required` in the environment they
//! fail.
use std::collections::BTreeSet;
use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HEADER: &str = include_str!("../include/artery_table.h");
const LIBRARY: &str = include_str!("../src/lib.rs");
const CALLS: &str = include_str!("calls.c");

/// How a program gets at the library.
#[derive(Clone, Copy, Debug)]
enum Link {
    Static,
    Shared,
}

#[test]
fn the_c_example_prints_what_the_rust_example_prints() {
    if !there_is_a_compiler() {
        return;
    }
    let wanted = output(&mut Command::new(artefact("../examples/lookup-in-rust")));
    assert_eq!(wanted.lines().count(), 5, "{wanted}");
    for link in [Link::Static, Link::Shared] {
        assert_eq!(output(&mut Command::new(compile("examples/lookup.c", link))), wanted, "{link:?}");
    }
}

#[test]
fn every_call_does_what_the_header_says() {
    if there_is_a_compiler() {
        let program = compile("tests/calls.c", Link::Static);
        assert_eq!(output(&mut Command::new(program)), "as the header says\n");
    }
}

#[test]
fn header_and_library_have_the_same_functions_and_the_c_test_calls_them_all() {
    let declared = calls(HEADER);
    assert_eq!(declared.len(), 23, "{declared:?}");
    assert_eq!(declared, exported());
    let called = calls(CALLS);
    assert_eq!(declared.difference(&called).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn header_and_library_have_the_same_statuses() {
    let (_, list) = HEADER.split_once("enum artery_status {").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    let in_header = list.lines().filter_map(|line| numbered(line.trim().strip_prefix("ARTERY_")?));
    let (_, list) = LIBRARY.split_once("enum Status {").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    let in_library = list.lines().filter_map(numbered);
    assert_eq!(in_header.clone().count(), 7);
    assert!(in_header.eq(in_library));
}

/// Reads `NAME = number` at the beginning of a line, the name in lower case.
fn numbered(line: &str) -> Option<(String, i32)> {
    let (name, rest) = line.split_once('=')?;
    let number = rest.split([',', '/']).next()?;
    Some((name.trim().to_lowercase(), number.trim().parse().ok()?))
}

/// The words with our prefix that an opening parenthesis follows.
fn calls(text: &str) -> BTreeSet<String> {
    words(text).filter(|(_, after)| after.starts_with('(')).map(|(word, _)| word).collect()
}

/// The functions that the library exports: those that it spells out, and those whose names a family is given.
fn exported() -> BTreeSet<String> {
    let code = LIBRARY.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<&str> = code.collect();
    let crates = ["artery_rcu", "artery_storage", "artery_lpm"];
    words(&code.join("\n")).map(|(word, _)| word).filter(|word| !crates.contains(&word.as_str())).collect()
}

/// The words that begin with `artery_`, each with what follows it.
fn words(text: &str) -> impl Iterator<Item = (String, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("artery_").filter_map(move |(start, _)| {
        let (before, rest) = text.split_at(start);
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        (!before.ends_with(is_part)).then(|| (rest[..end].to_owned(), &rest[end..]))
    })
}

/// Whether C can be compiled here; says so where it cannot.
fn there_is_a_compiler() -> bool {
    let there_is = Command::new("cc").arg("--version").output().is_ok();
    let required = env::var_os("ARTERY_RIG").is_some_and(|value| value == "required");
    assert!(there_is || !required, "no C compiler, and ARTERY_RIG=required");
    if !there_is {
        // Straight to the stream: the test harness hides what `eprintln!` writes in a test that passes.
        let _ = std::io::stderr().write_all(b"table-c: skipped: no C compiler\n");
    }
    there_is
}

/// Compiles a program of this package; warnings are errors.
fn compile(source: &str, link: Link) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stem = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}-{link:?}"));
    let library = match link {
        Link::Static => artefact("libartery_table_c.a"),
        Link::Shared => artefact("libartery_table_c.so"),
    };
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"]).arg(here.join("include"));
    cc.arg("-o").arg(&program).arg(here.join(source)).arg(&library);
    cc.arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()));
    output(cc.args(["-lpthread", "-ldl", "-lm"]));
    program
}

/// What the build has put beside this test: libraries have no hash in their names there.
fn artefact(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.with_file_name(name);
    assert!(path.exists(), "{} is missing: `cargo test -p artery-table-c` makes it", path.display());
    path
}

/// What a command prints; it must succeed.
fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}
