//! Runs of the experiment of 2009, as the program carries them out.

use artery_papers::freebsd2009::{Case, EngineName, Workload, shared_writes};
use artery_rig::program;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_artery-bench");

#[test]
fn one_run_prints_its_figures() {
    for engine in EngineName::ALL {
        let case = Case { threads: 2, millis: 20, samples: 2, ..Case::new(engine, Workload::W1) };
        let words = ["freebsd2009-run", &serde_json::to_string(&case).unwrap()];
        let output = Command::new(PROGRAM).args(words).output().unwrap();
        let run: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert!(run["rates"].as_array().is_some_and(|rates| rates.len() == 2), "{run}");
    }
}

/// Scaling proved by what is written, whatever the number of processors: the table with locks shows that the
/// look finds what there is.
#[test]
fn our_packet_path_writes_no_cache_line_that_another_thread_touches_without_flows_or_with() {
    let Some(valgrind) = program::tool("valgrind") else {
        eprintln!("skipped: valgrind is not installed");
        return;
    };
    let writes = |engine| shared_writes(&valgrind, Path::new(PROGRAM), engine, false).unwrap();
    let split = writes(EngineName::S);
    assert!(split.lines >= 3 && split.stores >= 5.0, "locks and counts are written by all: {split:?}");
    assert!(split.modifying >= 10.0, "by atomic read-modify-writes: {split:?}");
    for engine in [EngineName::E, EngineName::G] {
        let ours = writes(engine);
        assert!(ours.all > 1.0, "the driver writes frames: {engine:?} {ours:?}");
        assert_eq!((ours.lines, ours.stores), (0, 0.0), "{engine:?} {ours:?}");
        assert!(ours.modifying < 0.5, "a packet without an atomic read-modify-write: {engine:?} {ours:?}");
    }
}
