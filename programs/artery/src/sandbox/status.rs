//! The restrictions in force, as the kernel reports them for each thread.
use super::IN_FORCE;
use artery_device::privsep;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the document.
const SCHEMA_VERSION: u32 = 1;

/// What `/proc/PID/task/TID/status` says of a thread's rights.
const LINES: [(&str, &str); 6] = [
    ("CapEff", "capabilities_effective"),
    ("CapPrm", "capabilities_permitted"),
    ("CapBnd", "capabilities_bounding"),
    ("CapAmb", "capabilities_ambient"),
    ("NoNewPrivs", "no_new_privileges"),
    ("Seccomp", "seccomp"),
];

/// The document of `artery show security`, of a process of this kind.
pub(crate) fn document(role: &str) -> Value {
    let sandbox = IN_FORCE.get();
    let mut processes = vec![process(role, std::process::id())];
    processes.extend(privsep::helper().map(|helper| process("helper", helper.id())));
    let allow_path = sandbox.map(|sandbox| sandbox.allow_path.as_slice()).unwrap_or_default();
    json!({
        "schema_version": SCHEMA_VERSION,
        "version": crate::report::VERSION,
        "sandbox": sandbox.is_some(),
        "landlock": sandbox.map_or("off", |sandbox| sandbox.paths.as_str()),
        "allow_path": allow_path.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "processes": processes,
    })
}

/// What the kernel says of a process: of each kind of threads once, with their number.
fn process(role: &str, id: u32) -> Value {
    let mut kinds: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for status in statuses(id) {
        let of = |(line, _): &(&str, &str)| value(&status, line);
        *kinds.entry(LINES.iter().map(of).collect()).or_default() += 1;
    }
    let kind = |(values, count): (Vec<String>, u64)| {
        let mut kind = json!({ "threads": count });
        for ((_, key), value) in LINES.iter().zip(values) {
            kind[*key] = Value::String(value);
        }
        kind
    };
    json!({ "role": role, "pid": id, "threads": kinds.into_iter().map(kind).collect::<Vec<_>>() })
}

fn statuses(id: u32) -> Vec<String> {
    let folder = format!("/proc/{id}/task");
    let Ok(threads) = std::fs::read_dir(Path::new(&folder)) else { return Vec::new() };
    // A thread may have ended meanwhile.
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
        .collect()
}

fn value(status: &str, line: &str) -> String {
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.map_or_else(|| "unknown".to_string(), |value| value.trim().to_string())
}
