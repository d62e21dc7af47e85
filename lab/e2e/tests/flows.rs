//! The experiment on flows, as the program carries it out.

use serde_json::{Value, json};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_artery-bench");

/// A balancer that runs, as the experiment has it: it forwards packets of known flows.
#[test]
fn packets_of_flows_go_through_a_balancer_with_and_without_memory() {
    let plain = json!({"flows": 1000, "packets": 5000, "limit": 20_000});
    let stateless = json!({"flows": 1000, "packets": 5000, "limit": 20_000, "stateless": true});
    // Followed from the 20,000th packet on.
    let followed = json!({"flows": 1000, "packets": 5000, "limit": 5_000_000, "exceptions": true});
    for case in [plain, stateless, followed] {
        let output = Command::new(PROGRAM).args(["forward-run", &case.to_string()]).output().unwrap();
        let packets: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert!(packets.as_u64() >= Some(20_000), "{packets}");
    }
}

#[test]
fn a_feed_without_routes_of_ipv4_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "2001:db8::/32\n").unwrap();
    let table = file.path().to_str().unwrap();
    let output = Command::new(PROGRAM).args(["flows", "--quick", "--table", table]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no routes of IPv4"), "{error}");
}
