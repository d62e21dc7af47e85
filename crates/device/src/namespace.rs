//! Network namespaces for tests: each is a thread's own, and ends with it.
use crate::sys;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Says whether the test may make namespaces; prints that it is skipped when not.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Runs `test` in a fresh namespace, on a thread of its own.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
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

/// Another host: a thread with a namespace of its own that runs commands until it is dropped.
pub(crate) struct Host {
    commands: Option<Sender<(String, Sender<std::process::Output>)>>,
    thread: Option<JoinHandle<()>>,
    id: i32,
}

impl Host {
    /// Makes a host without links.
    pub(crate) fn new() -> Host {
        let (commands, wanted) = channel::<(String, Sender<_>)>();
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            sys::enter_new_network_namespace().expect("root may make namespaces");
            run("ip link set lo up");
            ready.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the maker waits");
            for (command, answer) in wanted {
                let _ = answer.send(try_run(&command));
            }
        });
        let id = is_ready.recv().expect("the thread could enter a namespace");
        Host { commands: Some(commands), thread: Some(thread), id }
    }
    /// Lays a cable from the interface `here` of this thread's namespace to `there` at the host, with both ends up.
    pub(crate) fn cable(&self, here: &str, there: &str) {
        run(&format!("ip link add name {here} type veth peer name {there} netns {}", self.id));
        run(&format!("ip link set {here} up"));
        self.run(&format!("ip link set {there} up"));
    }
    /// Starts a command at the host.
    pub(crate) fn start(&self, command: &str) -> std::sync::mpsc::Receiver<std::process::Output> {
        let (answer, result) = channel();
        self.commands.as_ref().expect("until dropped").send((command.to_owned(), answer)).expect("it runs");
        result
    }
    /// Runs a command at the host; says whether it succeeded, with its output.
    pub(crate) fn try_run(&self, command: &str) -> (bool, String) {
        let output = self.start(command).recv().expect("the host's thread answers");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
    /// Runs a command at the host; it must succeed.
    pub(crate) fn run(&self, command: &str) -> String {
        let (success, output) = self.try_run(command);
        assert!(success, "{command}: {output}");
        output
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
