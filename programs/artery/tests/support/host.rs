//! Hosts in network namespaces of their own, which vanish with the test.
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// A host: a namespace that a waiting process keeps. Threads enter it to do something there.
pub struct Host {
    keeper: Child,
}

impl Host {
    /// A host with a loopback interface; `None`, with a message on standard error, when none can be made.
    pub fn new() -> Option<Host> {
        // It ends when its input does, so that it never outlives the test.
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let keeper = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut keeper) = keeper else { return skip("no unshare(1)") };
        let mut ready = String::new();
        let mut out = BufReader::new(keeper.stdout.take().unwrap());
        out.read_line(&mut ready).unwrap();
        let host = Host { keeper };
        if ready == "ready\n" {
            Some(host)
        } else {
            skip("needs root and the right to make network namespaces")
        }
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.keeper.id())
    }

    /// Starts a job on a thread at the host.
    pub fn start<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        let namespace = File::open(self.namespace()).unwrap();
        std::thread::spawn(move || {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            job()
        })
    }

    /// Does a job at the host.
    pub fn call<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        wait(self.start(job))
    }

    /// Runs commands at the host, one a line; each must succeed.
    pub fn run(&self, commands: &str) {
        for command in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let command = command.to_string();
            self.call(move || {
                let mut words = command.split_whitespace();
                let output = Command::new(words.next().unwrap()).args(words).output();
                let output = output.unwrap_or_else(|e| panic!("{command}: {e}"));
                assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            });
        }
    }

    /// Lays a cable between interfaces of this host and another, with both ends up.
    pub fn cable(&self, here: &str, other: &Host, there: &str, mtu: u32) {
        let other_id = other.keeper.id();
        self.run(&format!(
            "ip link add {here} mtu {mtu} type veth peer name {there} mtu {mtu} netns {other_id}
             ip link set {here} up"
        ));
        other.run(&format!("ip link set {there} up"));
    }

    /// A counter of the host's stack, from `/proc/net/snmp` or `snmp6`.
    pub fn count(&self, protocol: &'static str, counter: &'static str) -> u64 {
        self.call(move || {
            let table = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
            let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
            let mut pairs = names.split(' ').zip(values.split(' '));
            pairs.find(|(name, _)| *name == counter).unwrap().1.parse().unwrap()
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The result of a job; a panic in it is resumed here.
pub fn wait<R>(job: JoinHandle<R>) -> R {
    job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether a program is there; says that the test is skipped when not.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    found || skip::<()>(&format!("no {program}")).is_some()
}

/// Says why the calling test is skipped. With `ARTERY_RIG=required` in the environment it fails instead.
fn skip<T>(why: &str) -> Option<T> {
    let required = std::env::var_os("ARTERY_RIG").is_some_and(|value| value == "required");
    assert!(!required, "{why}, and ARTERY_RIG=required");
    let thread = std::thread::current();
    let line = format!("{}: skipped: {why}\n", thread.name().unwrap_or("a test"));
    // Straight to the stream: the test harness hides what `println!` writes in a test that passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    None
}
