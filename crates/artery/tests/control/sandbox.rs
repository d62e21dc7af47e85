//! What a router gives up before it takes packets, and what works all the same.
use crate::support::{Folder, Router, artery};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

/// What the kernel says of the threads of a process, a text each.
fn threads(pid: u64) -> Vec<String> {
    let folder = format!("/proc/{pid}/task");
    // Threads of connections end.
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("status")).ok();
    std::fs::read_dir(folder).unwrap().filter_map(|thread| of(thread.unwrap())).collect()
}

fn line<'s>(status: &'s str, name: &str) -> &'s str {
    let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("{name}: {status}")).trim()
}

fn security(router: &Router) -> Value {
    let outcome = artery(&["show", "security", "--json", "-u", router.socket().to_str().unwrap()]);
    assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{outcome:?}");
    serde_json::from_str(&outcome.out).unwrap()
}

fn pid(document: &Value, role: &str) -> u64 {
    let processes = document["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["role"] == role);
    process.and_then(|process| process["pid"].as_u64()).unwrap_or_else(|| panic!("{role}: {document:#}"))
}

#[test]
fn no_thread_of_a_router_has_capabilities_or_unusual_system_calls() {
    let folder = Folder::new();
    let router =
        Router::start(&folder.path("s"), &["--sandbox", "-j", "2", "-e", "Idle -> Counter -> Discard"]);
    let document = security(&router);
    assert_eq!((&document["sandbox"], &document["schema_version"]), (&Value::Bool(true), &1.into()));
    let statuses = threads(pid(&document, "router"));
    assert!(statuses.len() >= 4, "workers, signals, control: {}", statuses.len());
    for status in &statuses {
        for name in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(line(status, name), "0000000000000000", "{name}: {status}");
        }
        // Without CAP_SETPCAP nothing can be taken out of this set; without new privileges it means nothing.
        if geteuid().is_root() {
            assert_eq!(line(status, "CapBnd"), "0000000000000000", "{status}");
        }
        assert_eq!((line(status, "NoNewPrivs"), line(status, "Seccomp")), ("1", "2"), "{status}");
    }
    for status in threads(pid(&document, "helper")) {
        assert_eq!((line(&status, "NoNewPrivs"), line(&status, "Seccomp")), ("1", "2"), "{status}");
        // Neither CAP_SYS_ADMIN (21) nor CAP_SYS_PTRACE (19) nor CAP_SYS_MODULE (16).
        let effective = u64::from_str_radix(line(&status, "CapEff"), 16).unwrap();
        assert_eq!(effective & (1 << 21 | 1 << 19 | 1 << 16), 0, "{status}");
    }
    let shown = artery(&["show", "security", "-u", router.socket().to_str().unwrap()]).out;
    assert!(shown.starts_with("sandbox   on\n") && shown.contains("\nhelper "), "{shown}");
}

#[test]
fn without_a_sandbox_a_router_says_so_and_has_no_helper() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-e", "Idle -> Discard"]);
    let document = security(&router);
    assert_eq!(document["sandbox"], false);
    assert_eq!(document["processes"].as_array().unwrap().len(), 1);
    let shown = artery(&["show", "security", "-u", router.socket().to_str().unwrap()]).out;
    assert!(shown.starts_with("sandbox   off: the router keeps all rights\n"), "{shown}");
}

#[test]
fn a_configuration_that_comes_later_uses_files_of_the_first_and_those_in_allowed_folders() {
    let (folder, allowed) = (Folder::new(), Folder::new());
    let (named, other) = (folder.path("named"), folder.path("other"));
    let source = |path: &str| format!("FromIPSummaryDump({path}, STOP false) -> Discard");
    for path in [&named, &other, &allowed.path("file")] {
        std::fs::write(path, "!data ip_src\n1.2.3.4\n").unwrap();
    }
    let text = format!("{}; Idle -> Discard", source(&named));
    let args = ["-R", "--sandbox", "--allow-path", &allowed.path(""), "-e", &text];
    let router = Router::start(&folder.path("s"), &args);
    let replace = |text: &str| router.call(&["hotconfig", "--write", text]);
    for path in [&named, &allowed.path("file")] {
        let outcome = replace(&source(path));
        assert_eq!(outcome.status, 0, "{path}: {outcome:?}");
    }
    let outcome = replace(&source(&other));
    assert_ne!(outcome.status, 0);
    assert!(
        outcome
            .err
            .contains(&format!("start it with --allow-path {}", folder.path("").trim_end_matches('/'))),
        "{outcome:?}"
    );
    let outcome = replace(&format!("Idle -> IPPrint(OUTFILE {}) -> Discard", folder.path("new")));
    assert!(outcome.status != 0 && outcome.err.contains("--allow-path"), "{outcome:?}");
    assert!(!std::path::Path::new(&folder.path("new")).exists());
    let outcome = replace(&format!("Idle -> IPPrint(OUTFILE {}) -> Discard", allowed.path("new")));
    assert_eq!(outcome.status, 0, "{outcome:?}");
    assert!(std::path::Path::new(&allowed.path("new")).exists());
}

#[test]
fn a_router_ends_with_its_helper_and_says_why() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["--sandbox", "-e", "Idle -> Discard"]);
    let helper = i32::try_from(pid(&security(&router), "helper")).unwrap();
    kill_process(Pid::from_raw(helper).unwrap(), Signal::KILL).unwrap();
    let outcome = router.finish();
    assert_eq!(outcome.status, 1, "{outcome:?}");
    assert!(outcome.err.contains("the helper process of the sandbox has ended"), "{outcome:?}");
}

#[test]
fn a_helper_outlives_signals_and_ends_with_its_router() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["--sandbox", "-e", "Idle -> Discard"]);
    let helper = pid(&security(&router), "helper");
    let signalled = Pid::from_raw(i32::try_from(helper).unwrap()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(signalled, signal).unwrap();
    }
    assert_eq!(pid(&security(&router), "helper"), helper);
    router.signal(Signal::KILL);
    assert_eq!(router.finish().status, -1);
    let deadline = std::time::Instant::now() + super::SOON;
    while std::path::Path::new(&format!("/proc/{helper}")).exists() {
        assert!(std::time::Instant::now() < deadline, "the helper goes on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
