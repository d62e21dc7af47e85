//! How runs end: each end has a line that says why, and a signal ends a process whatever it does.
use crate::support::{Folder, Router, artery};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end by a signal.
const LIMIT: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);

fn spawn(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether a process catches SIGTERM.
fn catches_term(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_string();
    u64::from_str_radix(&caught, 16).unwrap() & (1 << 14) != 0
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends SIGTERM; gives the process's output and the signal that ended it.
fn terminate(mut child: Child) -> (String, Option<i32>) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let began = Instant::now();
    let status = child.wait().unwrap();
    assert!(began.elapsed() <= LIMIT, "{:?}", began.elapsed());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (said, status.signal())
}

#[test]
fn a_run_says_after_what_time_and_why_it_ends() {
    let folder = Folder::new();
    let ends = |args: &[&str], end: &dyn Fn(&Router)| {
        let router = Router::start(&folder.path("s"), args);
        end(&router);
        let outcome = router.finish();
        assert_eq!(outcome.status, 0, "{outcome:?}");
        let last = outcome.err.lines().last().unwrap_or_else(|| panic!("{outcome:?}")).to_string();
        assert!(last.starts_with("artery: ended after ") && last.contains(" s: "), "{outcome:?}");
        last.split(" s: ").nth(1).unwrap().to_string()
    };
    let idle = ["-e", "Idle -> Discard"];
    assert_eq!(ends(&idle, &|router| router.signal(Signal::TERM)), "SIGTERM was received");
    assert_eq!(ends(&idle, &|router| router.signal(Signal::INT)), "SIGINT was received");
    let stop = |router: &Router| assert_eq!(router.call(&["stop", "--write"]).status, 0);
    assert_eq!(ends(&idle, &stop), "the handler 'stop' was written");
    let script =
        ["-e", "Idle -> Discard; s :: Script(TYPE PASSIVE, write stop); main :: Script(pause, stop)"];
    assert_eq!(ends(&script, &stop), "the handler 'stop' was written");
    let outcome = artery(&["run", "-u", &folder.path("s2"), "-e", "main :: Script(wait 10ms, stop)"]);
    assert!(
        outcome.err.starts_with("artery: ended after ")
            && outcome.err.ends_with(" s: main asked for the end\n"),
        "{outcome:?}"
    );
    // Work that is done needs no line, unless it is for a program.
    let done = "InfiniteSource(LIMIT 3) -> Discard; main :: Script(wait 10ms, stop)";
    assert_eq!(artery(&["run", "-e", done]).err, "");
    let json = artery(&["run", "--log", "json", "-e", done]);
    let line: serde_json::Value = serde_json::from_str(json.err.lines().last().unwrap()).unwrap();
    assert_eq!((&line["event"], &line["reason"]), (&"ended".into(), &"main asked for the end".into()));
    assert!(line["seconds"].as_str().unwrap().parse::<f64>().unwrap() >= 0.0);
}

#[test]
fn sigterm_ends_a_process_whose_script_loops_or_waits_for_a_pipe() {
    let folder = Folder::new();
    let ended = |router: Router| {
        let began = Instant::now();
        router.signal(Signal::TERM);
        let outcome = router.finish();
        assert!(began.elapsed() <= LIMIT, "{:?}", began.elapsed());
        outcome
    };
    let loops = "Idle -> Discard; Script(label again, wait 0s, goto again)";
    let outcome = ended(Router::start(&folder.path("s"), &["-e", loops]));
    assert!(outcome.status == 0 && outcome.err.ends_with(" s: SIGTERM was received\n"), "{outcome:?}");

    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let waits = format!("Idle -> Discard; s :: Script(TYPE PASSIVE, return $(cat {pipe}))");
    let socket = folder.path("stuck");
    let router = Router::start(&socket, &["-e", &waits]);
    let mut asked = spawn(&["handler", "-u", &socket, "s.run"]);
    // Can be opened once the script reads it; nothing is written.
    let mut writer = std::fs::OpenOptions::new();
    writer.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let mut opened = None;
    until(|| {
        opened = writer.open(&pipe).ok();
        opened.is_some()
    });
    let outcome = ended(router);
    let expected = "artery: ended: SIGTERM was received and a worker does not answer\n";
    assert!(outcome.status == -1 && outcome.err.ends_with(expected), "{outcome:?}");
    asked.wait().unwrap();
}

#[test]
fn sigterm_ends_a_process_whose_output_is_not_read() {
    let prints = "InfiniteSource -> Print(a, 60) -> Discard";
    let script =
        "Idle -> Discard; Script(label again, print abcdefghijklmnopqrstuvwxyz, wait 0s, goto again)";
    // A handler whose value fills the pipe after the end.
    let text = "a".repeat(100_000);
    let value = format!("Idle -> Discard; s :: Script(TYPE PASSIVE, return {text}); Script(stop)");
    for args in [&["-e", prints][..], &["-e", script], &["-e", &value, "-h", "s.config"]] {
        let child = spawn(&[&["run"], args].concat());
        // It sleeps in a write to the pipe.
        until(|| waits_for_a_pipe(&child));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let (mut child, began) = (child, Instant::now());
        let status = child.wait().unwrap();
        let lasted = began.elapsed();
        assert!(lasted <= LIMIT && status.signal() == Some(15), "{args:?}: {lasted:?}, {status}");
    }
}

/// Whether a thread of the process waits in a write to a pipe.
fn waits_for_a_pipe(child: &Child) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    threads.flatten().any(|thread| {
        // The number of the call (write, 1 and 64), then its arguments: the descriptors 1 and 2.
        let call = std::fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        let write = if cfg!(target_arch = "aarch64") { "64" } else { "1" };
        let words: Vec<&str> = call.split(' ').collect();
        words[0] == write && words.len() > 1 && matches!(words[1], "0x1" | "0x2")
    })
}

#[test]
fn sigterm_ends_a_process_that_waits_for_its_configuration() {
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (log, expected) in
        [("text", "artery: ended: SIGTERM was received before"), ("json", "\"event\":\"ended\"")]
    {
        let child = spawn(&["run", "--log", log, &pipe]);
        until(|| catches_term(&child));
        let (said, signal) = terminate(child);
        assert!(signal == Some(15) && said.contains(expected), "{said}");
    }
    let (folders, ports) = (folder.path("etc"), ["--port", "lo=10.0.0.1/24"]);
    std::fs::create_dir(&folders).unwrap();
    assert!(Command::new("mkfifo").arg(format!("{folders}/hostname.veb0")).status().unwrap().success());
    for args in
        [&["router", &pipe][..], &["router", ports[0], ports[1], "--pf", &pipe], &["up", "--etc", &folders]]
    {
        let child = spawn(args);
        until(|| catches_term(&child));
        let (said, signal) = terminate(child);
        let expected = "artery: ended: SIGTERM was received before the router was started\n";
        assert!(signal == Some(15) && said == expected, "{args:?}: {said}");
    }
    // The same while a running router reads it again.
    let file = folder.file("r.click", "Idle -> Discard");
    let router = Router::start(&folder.path("s"), &[&file]);
    std::fs::remove_file(&file).unwrap();
    std::fs::rename(&pipe, &file).unwrap();
    router.signal(Signal::HUP);
    let began = Instant::now();
    router.signal(Signal::TERM);
    let outcome = router.finish();
    assert!(outcome.status == 0 && began.elapsed() <= LIMIT, "{outcome:?}");
    assert!(outcome.err.trim_end().ends_with(" s: SIGTERM was received"), "{outcome:?}");
}

#[test]
fn sigterm_ends_a_process_whose_new_configuration_waits_for_a_pipe() {
    let folder = Folder::new();
    let (pipe, socket) = (folder.path("pipe"), folder.path("s"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let args = ["-e", "Idle -> Discard", "-R", "--allow-path", &folder.path(".")];
    let router = Router::start(&socket, &args);
    let mut asked = spawn(&["handler", "-u", &socket, "hotconfig", &format!("FromDump({pipe}) -> Discard")]);
    // The helper waits for the other end.
    let waits = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", router.id())).unwrap().flatten();
        let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
        threads.map(name).any(|name| name.is_ok_and(|name| name.starts_with("builder")))
    };
    until(waits);
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    router.signal(Signal::TERM);
    let outcome = router.finish();
    assert!(began.elapsed() <= LIMIT, "{:?}", began.elapsed());
    let expected = "artery: ended: SIGTERM was received while a new configuration was being built\n";
    assert!(outcome.status == -1 && outcome.err.ends_with(expected), "{outcome:?}");
    asked.wait().unwrap();
}
