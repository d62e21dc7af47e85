//! A network namespace for a test, and questions to its kernel.
pub(crate) mod question;
pub(crate) mod storm;
pub(crate) mod wire;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

/// Runs `test` in a fresh network namespace, on a thread of its own.
///
/// Where none can be made, says that the test is skipped; with `ARTERY_RIG=required` in
/// the environment it fails.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    let Some(mut keeper) = Keeper::new() else {
        let required = std::env::var_os("ARTERY_RIG").is_some_and(|value| value == "required");
        assert!(!required, "no network namespace can be made, and ARTERY_RIG=required");
        let line = "skipped: needs root and the right to make network namespaces\n";
        // Straight to the stream: the test harness hides what a test that passes prints.
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    };
    let namespace = File::open(format!("/proc/{}/ns/net", keeper.0.id())).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
    keeper.end();
}

/// A process that waits in the namespace, so that it stays.
struct Keeper(Child);

impl Keeper {
    fn new() -> Option<Keeper> {
        // It ends when its input does, so that it never outlives the test.
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let keeper = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut keeper = keeper.ok()?;
        let mut ready = String::new();
        BufReader::new(keeper.stdout.take()?).read_line(&mut ready).ok()?;
        (ready == "ready\n").then_some(Keeper(keeper))
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs commands of ip(8), one a line, with `-6` before those that don't name their family. Commands that
/// the kernel refuses have no effect.
pub(crate) fn ip(commands: &str) {
    let lines: Vec<&str> = commands.lines().collect();
    for batch in lines.chunk_by(|one, other| one.starts_with("-6 ") == other.starts_with("-6 ")) {
        let is_v6 = batch[0].starts_with("-6 ");
        let mut ip = Command::new("ip");
        ip.args(if is_v6 { &["-6", "-force", "-batch", "-"][..] } else { &["-force", "-batch", "-"] });
        let mut ip = ip.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let input: String =
            batch.iter().map(|line| format!("{}\n", line.trim_start_matches("-6 "))).collect();
        ip.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        ip.wait().unwrap();
    }
}

/// Runs commands of ip(8), one a line, all of which must succeed.
pub(crate) fn ip_must(commands: &str) {
    for command in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let output = Command::new("ip").args(command.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Writes a setting below /proc/sys/net.
pub(crate) fn set(name: &str, value: &str) {
    let path = format!("/proc/sys/net/{name}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}
