//! What a router gives up before it takes packets, and what works all the same.
use crate::support::{Folder, Router, artery, artery_into};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
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
    let router = Router::start(&folder.path("s"), &["-j", "2", "-e", "Idle -> Counter -> Discard"]);
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
    let router = Router::start(&folder.path("s"), &["--no-sandbox", "-e", "Idle -> Discard"]);
    let document = security(&router);
    assert_eq!(document["sandbox"], false);
    assert_eq!(document["processes"].as_array().unwrap().len(), 1);
    let shown = artery(&["show", "security", "-u", router.socket().to_str().unwrap()]).out;
    assert!(shown.starts_with("sandbox   off: the router keeps all rights\n"), "{shown}");
}

#[test]
fn nothing_is_left_of_a_run_that_has_ended_and_output_goes_where_it_was_to() {
    let folder = Folder::new();
    let trace = folder.file("in", "!data ip_src\n1.2.3.4\n");
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let text = format!("FromIPSummaryDump({trace}, STOP true) -> IPPrint(OUTFILE {name}) -> Discard");
        let (out, printed) = (folder.path("out"), artery(&["run", "-e", &text]));
        assert_eq!((printed.status, printed.err.as_str()), (0, ""), "{name}: {printed:?}");
        assert!(printed.out.contains("1.2.3.4"), "{name}: {printed:?}");
        let into = artery_into(std::fs::File::create(&out).unwrap(), &["run", "-e", &text]);
        assert_eq!((into.status, into.err.as_str()), (0, ""), "{name}: {into:?}");
        let found = std::fs::read_to_string(&out).unwrap();
        assert_eq!(found, printed.out, "{name}: a file can't be opened again");
    }
}

/// Does something on a thread, and in the programs that it starts, where the kernel does not know a call.
fn without<T: Send + 'static>(call: libc::c_long, job: impl FnOnce() -> T + Send + 'static) -> T {
    let run = move || {
        let refuse = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        let machine = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new([(call, Vec::new())].into(), SeccompAction::Allow, refuse, machine);
        rustix::thread::set_no_new_privs(true).unwrap();
        apply_filter(&BpfProgram::try_from(filter.unwrap()).unwrap()).unwrap();
        job()
    };
    std::thread::spawn(run).join().unwrap()
}

#[test]
fn a_kernel_without_a_part_of_the_sandbox_is_told_of_and_is_enough_unless_all_is_demanded() {
    for (call, part) in [
        (libc::SYS_landlock_create_ruleset, "Landlock"),
        (libc::SYS_seccomp, "seccomp"),
        (libc::SYS_sendmsg, "helper process"),
    ] {
        let folder = Folder::new();
        let file = folder.file("in", "!data ip_src\n1.2.3.4\n");
        let text = format!("FromIPSummaryDump({file}, STOP true) -> Discard");
        let run = |options: &[&'static str]| {
            let (options, text) = (options.to_vec(), text.clone());
            without(call, move || artery(&[&["run"], &options[..], &["-e", &text]].concat()))
        };
        let (possible, whole, none) = (run(&[]), run(&["--sandbox"]), run(&["--no-sandbox"]));
        let warned = |err: &str| err.lines().count() == 1 && err.contains("warning") && err.contains(part);
        if geteuid().is_root() || part == "seccomp" {
            assert!(possible.status == 0 && warned(&possible.err), "{part}: {possible:?}");
        }
        assert!(whole.status == 1 && whole.err.contains(part), "{part}: {whole:?}");
        assert_eq!((none.status, none.err.as_str()), (0, ""), "{part}: {none:?}");
    }
}

#[test]
fn a_router_without_capabilities_has_no_helper_and_the_files_of_its_user() {
    let folder = Folder::new();
    let router = Router::start_by(
        &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
        &folder.path("s"),
        &["-R", "-e", "Idle -> Discard"],
    );
    let document = security(&router);
    assert_eq!((&document["sandbox"], document["processes"].as_array().unwrap().len()), (&true.into(), 1));
    assert_eq!(document["landlock"], "not used: the router was started without capabilities");
    for status in threads(pid(&document, "router")) {
        assert_eq!(line(&status, "CapPrm"), "0000000000000000", "{status}");
        assert_eq!((line(&status, "NoNewPrivs"), line(&status, "Seccomp")), ("1", "2"), "{status}");
    }
    let new = folder.path("new");
    let text = format!("Idle -> IPPrint(OUTFILE {new}) -> Discard");
    let outcome = router.call(&["hotconfig", "--write", &text]);
    assert!(outcome.status == 0 && std::path::Path::new(&new).exists(), "{outcome:?}");
}

#[test]
fn called_as_click_a_router_has_no_sandbox() {
    let folder = Folder::new();
    let router = Router::start_click(&folder.path("s"), &["-R", "-e", "Idle -> Discard"]);
    assert_eq!(security(&router)["sandbox"], false);
    let new = folder.path("new");
    let outcome =
        router.call(&["hotconfig", "--write", &format!("Idle -> IPPrint(OUTFILE {new}) -> Discard")]);
    assert!(outcome.status == 0 && std::path::Path::new(&new).exists(), "{outcome:?}");
}

#[test]
fn a_script_writes_the_files_that_it_names_and_logs_that_were_renamed_begin_anew() {
    let folder = Folder::new();
    let (new, old) = (folder.path("new"), folder.path("old"));
    let text = format!("s :: Script(TYPE PASSIVE, print >{new} 1); Idle -> Discard");
    let router = Router::start(&folder.path("s"), &["-e", &text]);
    for _ in 0..2 {
        let outcome = router.call(&["s.run", "--write", ""]);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        assert_eq!(std::fs::read_to_string(&new).unwrap(), "1\n");
        std::fs::rename(&new, &old).unwrap();
    }
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
    let args = ["-R", "--allow-path", &allowed.path(""), "-e", &text];
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
    let router = Router::start(&folder.path("s"), &["-e", "Idle -> Discard"]);
    let helper = i32::try_from(pid(&security(&router), "helper")).unwrap();
    kill_process(Pid::from_raw(helper).unwrap(), Signal::KILL).unwrap();
    let outcome = router.finish();
    assert_eq!(outcome.status, 1, "{outcome:?}");
    assert!(outcome.err.contains("the helper process of the sandbox has ended"), "{outcome:?}");
}

#[test]
fn a_helper_outlives_signals_and_ends_with_its_router() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-e", "Idle -> Discard"]);
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
