//! `artery doctor` and `artery release`, in network namespaces.
use crate::support::host::Host;
use crate::support::{Outcome, artery};
use artery_device::Interface;
use artery_device::bpf::{self, Hook, instruction};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// A host with a virtual link that is up, and forwards.
fn host_with_link() -> Option<Host> {
    let host = Host::new()?;
    host.run(
        "ip link add left type veth peer name right
         ip link set left up
         ip link set right up
         sysctl -qw net.ipv4.ip_forward=1",
    );
    Some(host)
}

fn artery_at(host: &Host, args: &'static [&'static str]) -> Outcome {
    host.call(move || artery(args))
}

fn doctor_json(outcome: &Outcome) -> Value {
    assert_eq!(outcome.err, "");
    serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

fn finding<'j>(json: &'j Value, id: &str) -> &'j Value {
    let findings = json["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["id"] == id).unwrap_or_else(|| panic!("{id}: {json:#}"))
}

fn level<'j>(json: &'j Value, id: &str) -> &'j str {
    finding(json, id)["level"].as_str().unwrap()
}

/// The worst of the levels as an exit status.
fn status_of_levels(json: &Value) -> i32 {
    let levels: Vec<_> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["level"].as_str().unwrap())
        .collect();
    match levels.as_slice() {
        levels if levels.contains(&"broken") => 1,
        levels if levels.contains(&"slow") => 3,
        _ => 0,
    }
}

#[test]
fn root_sees_what_a_virtual_link_gets() {
    let Some(host) = host_with_link() else { return };
    let outcome = artery_at(&host, &["doctor", "--json", "adopt", "left", "right"]);
    let json = doctor_json(&outcome);
    assert_eq!(outcome.status, status_of_levels(&json), "{json:#}");
    assert_eq!(json["status"], outcome.status);
    for check in
        ["adopt-programs", "grace-periods", "capability-net-admin", "forwarding", "link@left", "mtu@right"]
    {
        assert_eq!(level(&json, check), "ok", "{check}: {json:#}");
    }
    let adopted = finding(&json, "adopt@left")["text"].as_str().unwrap();
    assert!(adopted.starts_with("adopt: by tc: ") && adopted.contains("unfinished"), "{adopted}");
    assert!(finding(&json, "driver@left")["text"].as_str().unwrap().starts_with("driver veth, MTU 1500, "));
    // What the command does not need is not checked.
    assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["check"] != "packet-sockets"));

    host.run("ip link set left down");
    let outcome = artery_at(&host, &["doctor", "--json", "adopt", "left", "right"]);
    let json = doctor_json(&outcome);
    assert_eq!((outcome.status, level(&json, "link@left")), (3, "slow"), "{json:#}");
    assert_eq!(finding(&json, "link@left")["remedy"], "ip link set dev left up");
    // It has changed nothing.
    host.call(|| {
        assert!(!Interface::find("left").unwrap().up);
        let index = Interface::find("right").unwrap().index;
        assert_eq!(bpf::tcx_programs(index, bpf::TcxSide::Ingress).unwrap().count, 0);
    });
}

#[test]
fn a_port_that_a_command_cannot_use_is_status_1() {
    let Some(host) = host_with_link() else { return };
    let outcome = artery_at(&host, &["doctor", "adopt", "lo"]);
    assert_eq!(outcome.status, 1, "{outcome:?}");
    assert!(outcome.out.contains("broken   adopt@lo"), "{outcome:?}");
    assert!(outcome.out.ends_with("artery adopt: can't work here\n"), "{outcome:?}");
    let outcome = artery_at(&host, &["doctor", "run", "lo"]);
    assert!(outcome.status != 1 && outcome.out.contains("run@lo"), "{outcome:?}");
}

#[test]
fn json_has_each_id_once_and_a_remedy_for_each_lack() {
    let Some(host) = host_with_link() else { return };
    let json = doctor_json(&artery_at(&host, &["doctor", "--json"]));
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["ports"].as_array().unwrap().len(), 2, "the loopback is not looked at: {json:#}");
    let findings = json["findings"].as_array().unwrap();
    let ids: BTreeSet<_> = findings.iter().map(|finding| finding["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), findings.len(), "{json:#}");
    for finding in findings.iter().filter(|finding| finding["level"] != "ok") {
        assert!(finding["remedy"].is_string(), "{finding:#}");
    }
    let commands: Vec<_> = json["commands"].as_array().unwrap().iter().map(|one| &one["command"]).collect();
    assert_eq!(commands, ["adopt", "router", "run", "up", "capture"]);
}

#[test]
fn who_is_not_root_is_told_what_was_not_seen() {
    let Some(host) = host_with_link() else { return };
    // Where the program is built, strangers may have no right to enter.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("artery");
    std::fs::copy(env!("CARGO_BIN_EXE_artery"), &program).unwrap();
    let output = host.call(move || {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let words = ["doctor", "--json", "adopt", "left", "right"];
        Command::new("setpriv").args(nobody).arg(program).args(words).output().unwrap()
    });
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let outcome = Outcome { status: output.status.code().unwrap(), out, err };
    let json = doctor_json(&outcome);
    for check in ["capability-bpf", "capability-net-admin", "adopt-programs", "tc-hook"] {
        assert_eq!(level(&json, check), "unknown", "{check}: {json:#}");
        assert_eq!(finding(&json, check)["remedy"], "sudo artery doctor");
    }
    assert_eq!(level(&json, "link@left"), "ok");
    assert_ne!(outcome.status, 1, "an unknown finding is not a defect: {json:#}");
    assert_eq!(outcome.status, status_of_levels(&json));
}

#[test]
fn wrong_usage_is_status_2() {
    let outcome = artery(&["doctor", "nonsuch"]);
    assert_eq!((outcome.status, outcome.out.as_str()), (2, ""), "{outcome:?}");
    assert!(outcome.err.contains("nonsuch"), "{outcome:?}");
    assert!(outcome.err.contains("adopt, router, run, up, capture"), "{outcome:?}");
    let outcome = artery(&["doctor", "adopt", "nonsuch"]);
    assert_eq!(outcome.status, 2, "{outcome:?}");
    assert!(outcome.err.contains("nonsuch") && !outcome.err.contains("command either"), "{outcome:?}");
    assert_eq!(artery(&["release"]).status, 2);
}

/// Another process of this test, which puts a filter at `left` and waits.
struct FilterOwner(Child);

const AS_FILTER_OWNER: &str = "ARTERY_TEST_FILTER_OWNER";

impl FilterOwner {
    fn start(host: &Host) -> FilterOwner {
        host.call(|| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "doctor::waits_with_a_filter", "--ignored", "--nocapture"])
                .env(AS_FILTER_OWNER, "left");
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().ends_with("attached")), "the process attached no filter");
            FilterOwner(child)
        })
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for FilterOwner {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The process that [`FilterOwner`] runs; it does nothing unless the variable is set.
#[test]
#[ignore = "the other process of a test"]
fn waits_with_a_filter() {
    let Ok(port) = std::env::var(AS_FILTER_OWNER) else { return };
    let next = [instruction(0xb7, 0, 0, 0, -1), instruction(0x95, 0, 0, 0, 0)];
    let program = bpf::load(Hook::TcIngress, &next).unwrap();
    let _filter = bpf::attach_filter(&program, Interface::find(&port).unwrap().index).unwrap();
    println!("attached");
    // Its parent kills it, or ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[test]
fn release_removes_what_a_killed_process_left_and_nothing_of_a_living_one() {
    let Some(host) = host_with_link() else { return };
    let filters =
        || host.call(|| Command::new("tc").args(["filter", "show", "dev", "left", "ingress"]).output());
    let shown = || String::from_utf8(filters().unwrap().stdout).unwrap();
    let nothing = "left: a dead process of Artery left nothing\n";
    let outcome = artery_at(&host, &["release", "left"]);
    assert_eq!((outcome.status, outcome.out.as_str()), (0, nothing), "{outcome:?}");

    let mut owner = FilterOwner::start(&host);
    let outcome = artery_at(&host, &["release", "left"]);
    let lives = format!(
        "{nothing}left: process {0} lives and has a filter; it stays ('kill {0}' ends it)\n",
        owner.0.id()
    );
    assert_eq!((outcome.status, outcome.out), (0, lives));
    assert!(shown().contains("artery-"), "{}", shown());

    owner.kill();
    assert!(shown().contains("artery-"), "a filter outlives its process: {}", shown());
    let outcome = host.call(|| {
        let program = env!("CARGO_BIN_EXE_artery");
        Command::new("setpriv")
            .args(["--bounding-set=-net_admin", program, "release", "left"])
            .output()
            .unwrap()
    });
    let err = String::from_utf8(outcome.stderr).unwrap();
    assert_eq!(outcome.status.code(), Some(1), "{err}");
    assert!(err.contains("left: can't remove") && err.contains("CAP_NET_ADMIN"), "{err}");

    let outcome = artery_at(&host, &["release", "left", "nonsuch", "right"]);
    assert_eq!(outcome.status, 1, "{outcome:?}");
    let removed = "left: removed 1 filter of a dead process\nright: a dead process of Artery left nothing\n";
    assert_eq!(outcome.out, removed);
    assert!(outcome.err.contains("nonsuch"), "{outcome:?}");
    assert_eq!(shown(), "");
    let qdiscs = host.call(|| Command::new("tc").args(["qdisc", "show", "dev", "left"]).output().unwrap());
    assert!(!String::from_utf8_lossy(&qdiscs.stdout).contains("clsact"), "it was made for the filter");
}
