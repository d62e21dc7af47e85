//! Calls of the built program.
#![allow(unreachable_pub, reason = "of a test program")]

pub mod host;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_artery");

/// What a call gave.
#[derive(Debug)]
pub struct Outcome {
    pub status: i32,
    pub out: String,
    pub err: String,
}

fn command(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0(name).args(args).env_remove("CLICKPATH").env("NO_COLOR", "1");
    command
}

fn outcome(mut command: Command, input: &str) -> Outcome {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that reads nothing may have gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Calls artery and waits for its end.
pub fn artery(args: &[&str]) -> Outcome {
    outcome(command("artery", args), "")
}

/// Calls artery with this text on its standard input.
pub fn artery_reads(args: &[&str], input: &str) -> Outcome {
    outcome(command("artery", args), input)
}

/// Calls the program under the name click.
pub fn click(args: &[&str], input: &str) -> Outcome {
    outcome(command("click", args), input)
}

/// Calls artery with its standard output going to `out`; gives its exit status and standard error.
pub fn artery_into(out: impl Into<Stdio>, args: &[&str]) -> Outcome {
    let mut command = command("artery", args);
    let output = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    Outcome { status: output.status.code().unwrap_or(-1), out: String::new(), err }
}

/// Calls artery with its standard error closed; gives its exit status and what it printed.
pub fn artery_unheard(args: &[&str]) -> Outcome {
    let output = command("artery", args).stderr(closed_pipe()).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    Outcome { status: output.status.code().unwrap_or(-1), out, err: String::new() }
}

/// Calls artery with standard output and standard error closed; gives its exit status.
pub fn artery_heard_by_nobody(args: &[&str]) -> i32 {
    let mut command = command("artery", args);
    command.stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap().code().unwrap_or(-1)
}

/// A pipe without a reader.
pub fn closed_pipe() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

/// A folder for the files of one test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }
    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.path().join(name), text).unwrap();
        self.path(name)
    }
    /// Writes a capture of packets that have this link type, and gives its path.
    pub fn capture(&self, link_type: u32, packets: impl IntoIterator<Item = Vec<u8>>) -> String {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link_type]);
        for packet in packets {
            let len = packet.len() as u32;
            bytes.extend(words(&[0, 0, len, len]));
            bytes.extend(packet);
        }
        std::fs::write(self.0.path().join("in.pcap"), bytes).unwrap();
        self.path("in.pcap")
    }
}

/// A router that runs until the test ends it.
pub struct Router {
    child: Option<Child>,
    out: BufReader<ChildStdout>,
    socket: PathBuf,
}

impl Router {
    /// Starts `artery run` with a Unix socket at `socket` and waits until it answers.
    pub fn start(socket: &str, args: &[&str]) -> Router {
        Router::started(command("artery", &["run", "-u", socket, "-o", "-"]), socket, args)
    }

    /// The same under the name click.
    pub fn start_click(socket: &str, args: &[&str]) -> Router {
        Router::started(command("click", &["-u", socket, "-o", "-"]), socket, args)
    }

    /// The same by another program, whose arguments it follows.
    pub fn start_by(starter: &[&str], socket: &str, args: &[&str]) -> Router {
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).args([PROGRAM, "run", "-u", socket, "-o", "-"]).env("NO_COLOR", "1");
        Router::started(command, socket, args)
    }

    fn started(mut command: Command, socket: &str, args: &[&str]) -> Router {
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        // It prints its configuration when its socket is there.
        out.read_line(&mut String::new()).unwrap();
        let router = Router { child: Some(child), out, socket: socket.into() };
        assert!(!router.read("list").is_empty());
        router
    }

    /// Calls a handler of the router: `artery handler -u SOCKET …`.
    pub fn call(&self, args: &[&str]) -> Outcome {
        let socket = self.socket.to_str().unwrap();
        artery(&[&["handler", "-u", socket], args].concat())
    }

    /// The value of a handler.
    pub fn read(&self, handler: &str) -> String {
        let outcome = self.call(&[handler]);
        assert_eq!(outcome.status, 0, "{handler}: {outcome:?}");
        outcome.out.trim_end().to_string()
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    }

    /// The next line of the router's standard error.
    pub fn complaint(&mut self) -> String {
        let mut line = Vec::new();
        let err = self.child.as_mut().unwrap().stderr.as_mut().unwrap();
        // Byte by byte: nothing of the lines that follow may be read.
        let mut byte = [0];
        while std::io::Read::read(err, &mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Outcome {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut rest).unwrap();
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        Outcome { status: output.status.code().unwrap_or(-1), out: rest, err }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A test failed; the router must not outlive it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
