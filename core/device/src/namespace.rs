//! Network namespaces for tests: each is a thread's own, and ends with it.
use crate::sys;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Whether the test may make namespaces; says that it is skipped when not.
///
/// With `ARTERY_RIG=required` in the environment it fails instead: then the rights must be there.
pub(crate) fn may_make_namespaces() -> bool {
    // Found out by trying: root in a container may be forbidden to.
    let may = std::thread::spawn(|| sys::enter_new_network_namespace().is_ok()).join().unwrap_or(false);
    let required = std::env::var_os("ARTERY_RIG").is_some_and(|value| value == "required");
    assert!(may || !required, "no network namespace can be made, and ARTERY_RIG=required");
    may || skip("needs root and the right to make network namespaces")
}

/// Says why the calling test is skipped.
fn skip(why: &str) -> bool {
    let thread = std::thread::current();
    let line = format!("{}: skipped: {why}\n", thread.name().unwrap_or("a test"));
    // Straight to the stream: the test harness hides what `println!` writes in a test that passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// Runs `test` in a fresh namespace, on a thread of its own; skips it where none may be made.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if !may_make_namespaces() {
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_new_network_namespace().expect("root may make namespaces");
            run("ip link set lo up");
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The same, of a test that makes TAP devices.
pub(crate) fn with_taps(test: impl FnOnce() + Send) {
    if std::path::Path::new("/dev/net/tun").exists() || skip("needs /dev/net/tun") {
        in_namespace(test);
    }
}

/// Runs a command in this thread's namespace; it must succeed.
pub(crate) fn run(command: &str) {
    let output = try_run(command);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}{}", String::from_utf8_lossy(&output.stdout));
}

/// Runs a command in this thread's namespace and waits for it.
pub(crate) fn try_run(command: &str) -> std::process::Output {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command has a first word");
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{command}: {e}"))
}

/// What a host does for a test.
type Job = Box<dyn FnOnce() + Send>;

/// Another host: a thread with a namespace of its own that does jobs until it is dropped.
pub(crate) struct Host {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    id: i32,
}

impl Host {
    /// Makes a host without links.
    pub(crate) fn new() -> Host {
        let (jobs, wanted) = channel::<Job>();
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            sys::enter_new_network_namespace().expect("root may make namespaces");
            run("ip link set lo up");
            ready.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the maker waits");
            wanted.into_iter().for_each(|job| job());
        });
        let id = is_ready.recv().expect("the thread could enter a namespace");
        Host { jobs: Some(jobs), thread: Some(thread), id }
    }
    /// The number of its thread, by which commands name its namespace.
    pub(crate) fn id(&self) -> i32 {
        self.id
    }
    /// Lays a cable from the interface `here` of this thread's namespace to `there` at the host,
    /// with both ends up.
    pub(crate) fn cable(&self, here: &str, there: &str) {
        run(&format!("ip link add {here} type veth peer name {there} netns {}", self.id));
        run(&format!("ip link set {here} up"));
        self.run(&format!("ip link set {there} up"));
    }
    /// Starts a job at the host; its result can be waited for.
    pub(crate) fn start<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> Receiver<R> {
        let (answer, result) = channel();
        let job = Box::new(move || drop(answer.send(job())));
        self.jobs.as_ref().expect("only drop() takes it").send(job).expect("the thread runs until then");
        result
    }
    /// Does a job at the host.
    pub(crate) fn call<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.start(job).recv().expect("the job did not panic")
    }
    /// Runs a command at the host; it must succeed.
    pub(crate) fn run(&self, command: &str) {
        let command = command.to_owned();
        self.call(move || run(&command));
    }
    /// Whether the host gets an answer to a ping within a second.
    pub(crate) fn pings(&self, address: &str) -> bool {
        let command = format!("ping -c 1 -W 1 {address}");
        self.call(move || try_run(&command).status.success())
    }
    /// Sends a datagram from the host.
    pub(crate) fn send_udp(&self, to: &'static str, port: u16, payload: &'static [u8]) {
        self.call(move || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("any port will do");
            socket.send_to(payload, (to, port)).expect("there is a route");
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
