//! The program `artery-bench` as it is called.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_artery-bench")).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_shows_examples_and_what_there_is() {
    let output = bench(&["--help"]);
    let help = text(&output.stdout);
    assert!(output.status.success());
    for wanted in ["artery-bench adopt", "papers click1999", "Exit status"] {
        assert!(help.contains(wanted), "{wanted}: {help}");
    }
}

#[test]
fn one_run_prints_its_figures() {
    for case in [r#""Forwarder""#, r#""Graph""#, r#"{"Prefix":3}"#] {
        let job = format!(r#"{{"case":{case},"packets":5000,"burst":64}}"#);
        let output = bench(&["click1999-run", &job]);
        let run: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert!(run["packets"].as_u64() > Some(4900) && run["nanoseconds"].as_u64() > Some(0), "{run}");
    }
}

fn flushed(depth: &str) -> String {
    serde_json::json!({
        "depth": depth, "buffers": "Flushed", "packets": 5000, "burst": 32, "prefetch": true, "count": true
    })
    .to_string()
}

#[test]
fn one_run_of_2008_counts_all_packets_at_the_port() {
    for (depth, returned) in [("l0", 0), ("l3", 0), ("off", 5000)] {
        let output = bench(&["misses2008-run", &flushed(depth)]);
        let run: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(run["received"], serde_json::json!([5000, 300_000]), "{run}");
        assert_eq!(run["card"]["returned"], returned, "{run}");
        let misses = &run["card"]["misses"];
        assert!(misses["Ok"]["d1"].is_number() || misses["Err"].is_string(), "{misses}");
    }
    let output = bench(&["misses2008-run", &flushed("l7")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("'card', 'off', 'l0'"), "{}", text(&output.stderr));
}

#[test]
fn a_run_that_is_not_possible_says_why() {
    let output = bench(&["click1999-run", r#"{"case":{"Prefix":99},"packets":1,"burst":1}"#]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("8 elements, not 99"), "{}", text(&output.stderr));
}

#[test]
fn wrong_usage_has_status_2_and_says_what_would_be_right() {
    let output = bench(&["click1999-run", "{}"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing field"), "{}", text(&output.stderr));
    assert_eq!(bench(&["nonsense"]).status.code(), Some(2));
}

#[test]
fn an_experiment_that_nobody_reads_ends_quietly_with_the_status_of_a_filter() {
    for words in [
        &["papers", "click1999", "--quick"][..],
        &["click1999-run", r#"{"case":"Graph","packets":10,"burst":1}"#],
    ] {
        let (_, unread) = std::io::pipe().unwrap();
        let mut bench = Command::new(env!("CARGO_BIN_EXE_artery-bench"));
        let output =
            bench.args(words).stdout(unread).stderr(Stdio::piped()).spawn().unwrap().wait_with_output();
        let output = output.unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(141), String::new()), "{words:?}");
    }
}

#[test]
fn lookups_want_engines_that_exist_routes_in_the_file_and_a_round() {
    let fails = |words: &[&str], status, wanted: &[&str]| {
        let output = bench(&[&["fib"], words].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {error}");
        assert!(wanted.iter().all(|wanted| error.contains(wanted)), "{wanted:?}: {error}");
    };
    let empty = tempfile::NamedTempFile::new().unwrap();
    let file = empty.path().to_str().unwrap();
    fails(
        &["--engine", "fib-fast", "--engine", "fast"],
        1,
        &["no engine is called fast", "fib-fast", "rte_fib6 scalar"],
    );
    fails(&["--table", file], 1, &[file, "no routes"]);
    fails(&["--rounds", "0"], 2, &["--rounds"]);
}

#[test]
fn the_experiment_of_2016_wants_routes_of_ipv4() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "2001:db8::/32\n").unwrap();
    let output = bench(&["papers", "art2016", "--quick", "--table", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no routes of IPv4"), "{}", text(&output.stderr));
}

#[test]
fn the_help_of_every_experiment_is_plain_text() {
    for command in ["engine", "fib", "flows", "papers", "seed0", "seed4", "wire"] {
        let help = text(&bench(&[command, "--help"]).stdout);
        assert!(help.contains("Usage") && !help.contains('`'), "{help}");
    }
}
