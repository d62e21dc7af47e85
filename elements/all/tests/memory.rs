//! Limits of states that exceed the memory. The tests run in a process of their own, one at a time, since the
//! memory limit is the process's.
use artery_elements::CLASSES;
use artery_engine::{Bench, Class};
use artery_wire::build::{ether, ip4};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PORTS: &str = "PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/24";
/// The index of so many takes 7 GiB.
const MANY: &str = "set limit states 200000000\n";
/// Memory that a test may use besides: less than that index.
const SPARE: u64 = 1 << 30;

fn class() -> &'static Class {
    CLASSES.0.iter().find(|class| class.name == "PacketFilter").unwrap()
}

/// Keeps other tests of this file from running.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `what` with a memory limit slightly above the process's present size.
fn sparingly<T>(what: impl FnOnce() -> T) -> T {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(size * 1024 + SPARE), maximum: before.maximum }).unwrap();
    let done = what();
    setrlimit(Resource::As, before).unwrap();
    done
}

/// Whether a datagram of a port passes where it comes in.
fn passes(bench: &mut Bench, port: u16) -> bool {
    let packet = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).udp(port, 53);
    bench.push(0, ether("02:00:00:00:00:01", "02:00:00:00:00:0a").ip4(packet).bytes());
    !bench.drain_sent(0).is_empty()
}

/// A filter on one of so many workers, with rules.
fn bench(workers: usize, rules: &str) -> Bench {
    let mut bench = Bench::setup(class(), PORTS).inputs(4).outputs(4).as_copy(0, workers).build().unwrap();
    bench.write("pf_load", &format!("\n{rules}")).unwrap();
    bench
}

#[test]
fn a_limit_of_states_without_memory_is_refused_and_changes_nothing() {
    let _alone = alone();
    let mut bench =
        bench(1, "set limit states 2\ntable <t> { 192.0.2.9 }\nblock\npass in proto udp from <t>\n");
    assert!(passes(&mut bench, 1));
    let new = format!("\ntable <t> persist {{ 192.0.2.8 }}\n{MANY}block\n");
    let why = sparingly(|| bench.write("pf_load", &new)).unwrap_err().to_string();
    assert!(why.starts_with("pf.conf:2: no memory for 200000000 states: 1 worker takes "), "{why}");
    assert_eq!(bench.read("pf", "table t - show"), Ok("0 0\n   192.0.2.9\n".into()));
    assert!(passes(&mut bench, 2) && !passes(&mut bench, 3));
}

#[test]
fn there_must_be_memory_for_all_workers() {
    let _alone = alone();
    let more = "\nset limit states 20000000\npass\n";
    let why = sparingly(|| bench(2, "pass\n").write("pf_load", more)).unwrap_err().to_string();
    assert!(why.contains("2 workers take 1612 MiB"), "{why}");
    let mut bench = bench(1, "pass\n");
    sparingly(|| bench.write("pf_load", more)).unwrap();
}

#[test]
fn a_worker_that_finds_no_memory_for_more_states_goes_by_the_new_rules() {
    let _alone = alone();
    let mut bench = bench(1, "set limit states 2\npass in proto udp\n");
    assert!(passes(&mut bench, 1) && passes(&mut bench, 2));
    // Control finds memory, and the worker none when it comes to the rules.
    let new = format!("\n{MANY}block\npass in proto udp from port {{ 3 4 }}\n");
    bench.write("pf_load", &new).unwrap();
    assert!(!sparingly(|| passes(&mut bench, 5)));
    let said = bench.stderr_text();
    let parts = ["no memory for 200000000 states", "their limit stays 2", "load the rules again"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert!(passes(&mut bench, 1) && !passes(&mut bench, 3), "there are two states, and no more may be");
    let rules = bench.read("pf", "rules v").unwrap();
    assert!(rules.starts_with("block drop all\n  [ Evaluations: 2         Packets: 1 "), "{rules}");
    bench.write("pf_load", &new).unwrap();
    assert!(passes(&mut bench, 3) && passes(&mut bench, 4) && !passes(&mut bench, 5));
}

#[test]
fn what_takes_the_place_of_a_filter_and_finds_no_memory_goes_by_its_own_rules() {
    let _alone = alone();
    let mut old = bench(1, "set limit states 2\npass in proto udp\n");
    assert!(passes(&mut old, 1) && passes(&mut old, 2));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(format!("{MANY}block\npass in proto udp from port 7\n").as_bytes()).unwrap();
    let config = format!("{PORTS}, FILE {}", file.path().display());
    let mut successor = Bench::setup(class(), &config).inputs(4).outputs(4).as_replacement().build().unwrap();
    sparingly(|| successor.take_state(&mut old));
    assert!(successor.stderr_text().contains("their limit stays 2"), "{}", successor.stderr_text());
    assert!(passes(&mut successor, 2) && !passes(&mut successor, 5) && !passes(&mut successor, 7));
}
