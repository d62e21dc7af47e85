//! `artery-bench wire`: a whole short run, and what it does where it can't.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output};

fn wire(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_artery-bench")).arg("wire").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_short_run_measures_a_loop_and_the_kernel_or_says_why_not() {
    let output = wire(&["--quick", "--json", "--only", "bare,kernel"]);
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let measured = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["experiment"], "wire");
        assert!(line["value"].as_f64() >= Some(0.0), "{line}");
        (line["engine"].as_str().unwrap().to_string(), line["params"]["work"].as_str().unwrap().to_string())
    };
    let measured: BTreeSet<(String, String)> = lines.lines().map(measured).collect();
    for who in ["bare", "kernel"] {
        for work in ["TCP", "ping idle p50", "forwarded at overload"] {
            let is_told = |line: &str| {
                line.starts_with("skipped: ") && (line.contains(who) || line.contains("everything"))
            };
            let is_measured = measured.contains(&(who.to_string(), work.to_string()));
            assert!(is_measured || said.lines().any(is_told), "{who}: {work}\n{said}");
        }
    }
}

#[test]
fn names_that_nobody_has_are_wrong_usage() {
    let output = wire(&["--only", "kernel,cabel"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cable-xdp"), "{}", text(&output.stderr));
}

#[test]
fn files_hold_what_was_measured_and_what_is_promised() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let output = wire(&["--quick", "--only", "memory", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = std::fs::read_to_string(out.join("wire.md")).unwrap();
    assert!(table.contains("| memory to memory |") && table.contains("1.5 y"), "{table}");
    let lines = std::fs::read_to_string(out.join("wire.jsonl")).unwrap();
    assert!(lines.lines().any(|line| line.contains("\"memory-macswap\"")), "{lines}");
}
