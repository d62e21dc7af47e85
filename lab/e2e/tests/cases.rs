//! Routers, switches, filters and balancers as text, each with the same packets through the kernel where it
//! can do the same: `cases/*.test`. `docs/testing.md` says how cases are written.
//!
//! Hosts have no network stack here: their ends of the links are packet sockets, so nothing is sent but what
//! a case says, and nothing that comes is answered.
//!
//! `CASES=router-icmp` runs the files of that beginning alone. `UPDATE_EXPECT=1` writes what comes out into
//! the files. Files with `long:` need `ARTERY_LONG=1`, or to be named.

mod bed;
mod compare;
mod packet;
mod run;
mod side;
mod text;
mod update;

use artery_rig::RigError;
use artery_rig::program;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use run::{Outcome, run_file};
use text::CaseFile;

/// What files are about: the first words of their names.
const SUBJECTS: [&str; 4] = ["router", "switch", "filter", "balancer"];
/// Files that run at a time: most of their time is waiting for addresses to be claimed.
const AT_ONCE: usize = 3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// The files whose names begin so, in order.
fn files(subject: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<PathBuf> = entries.filter(|path| name(path).starts_with(subject)).collect();
    files.sort();
    files
}

fn read(path: &Path) -> CaseFile {
    CaseFile::read(path).unwrap_or_else(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Runs all files about something, and then fails with all that is wrong.
fn run_all(subject: &str) {
    program::artery().unwrap_or_else(|error| panic!("{error}"));
    let named = std::env::var("CASES").ok();
    let mut files = files(named.as_deref().filter(|named| named.starts_with(subject)).unwrap_or(subject));
    if named.as_ref().is_some_and(|named| !named.starts_with(subject)) {
        return;
    }
    let is_wanted = |path: &PathBuf| named.is_some() || is_set("ARTERY_LONG") || !read(path).is_long();
    files.retain(is_wanted);
    let (waiting, failures) = (Mutex::new(files.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(path) = { waiting.lock().unwrap().next() } {
                    let failed = run_one(&path);
                    failures.lock().unwrap().extend(failed);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} cases of {subject} fail; if what came is right, UPDATE_EXPECT=1 writes it into the files\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Runs a file, and says what became of each case.
fn run_one(path: &Path) -> Vec<String> {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let begin = Instant::now();
    let result = Mutex::new(Outcome::default());
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        artery_rig::test(&name, |_| {
            let outcome = run_file(&read(path), is_set("UPDATE_EXPECT"))?;
            *result.lock().unwrap() = outcome;
            Ok::<(), RigError>(())
        });
    }));
    let Outcome { passed, mut failures } = result.into_inner().unwrap();
    if let Err(cause) = ran {
        let text = cause.downcast_ref::<String>().cloned().unwrap_or_default();
        failures.push(format!("{}: {text}", path.display()));
    }
    let seconds = begin.elapsed().as_secs_f32();
    println!("{name}: {} passed, {} failures, {seconds:.1} s", passed.len(), failures.len());
    passed.iter().for_each(|case| println!("    ok {case}"));
    failures
}

#[test]
fn router() {
    run_all("router");
}

#[test]
fn switch() {
    run_all("switch");
}

#[test]
fn filter() {
    run_all("filter");
}

#[test]
fn balancer() {
    run_all("balancer");
}

#[test]
fn every_file_can_be_read_and_is_about_one_of_the_subjects() {
    let count: usize = SUBJECTS.iter().map(|subject| files(subject).len()).sum();
    assert_eq!(count, std::fs::read_dir(folder()).unwrap().count(), "names begin with {SUBJECTS:?}");
    let counts: Vec<(usize, usize)> = files("").iter().map(|path| read(path).counts()).collect();
    let (all, differential) = counts.iter().fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1));
    println!("{all} cases, {differential} of them with the kernel");
    assert!(differential >= 60, "{differential}");
}
