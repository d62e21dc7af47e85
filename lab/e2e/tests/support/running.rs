//! The program as it runs on a host, with a control socket of its own.
use super::{end, until_answered, until_seen};
use artery_rig::program::artery;
use artery_rig::{Command, CommandOutput, Host, Process, Result, Signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use tempfile::TempDir;

/// A program that runs, and where it is reached.
pub struct Running {
    pub process: Process,
    pub host: Host,
    pub socket: PathBuf,
    /// Holds the control socket and files that the program reads; removed on drop.
    pub folder: TempDir,
}

/// A command of the program, to be run on a host.
pub fn artery_on<W: AsRef<OsStr>>(host: &Host, words: impl IntoIterator<Item = W>) -> Result<Command> {
    Ok(host.command([artery()?]).args(words))
}

impl Running {
    /// Starts a command that goes on, and waits for nothing.
    pub fn spawn<W: AsRef<OsStr>>(host: &Host, words: impl IntoIterator<Item = W>) -> Result<Running> {
        Running::spawn_in(tempfile::tempdir().unwrap(), host, words)
    }

    /// The same with a folder in which there are files already.
    pub fn spawn_in<W: AsRef<OsStr>>(
        folder: TempDir,
        host: &Host,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Running> {
        let socket = folder.path().join("control");
        let process = artery_on(host, words)?.arg("-u").arg(&socket).spawn()?;
        Ok(Running { process, host: host.clone(), socket, folder })
    }

    /// Starts `artery run` with a configuration, and waits until its workers forward.
    pub fn run(host: &Host, config: &str, options: &[&str]) -> Result<Running> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        let at = socket.display().to_string();
        let process = super::start(host, config, &[options, &["-u", &at]].concat())?;
        Ok(Running { process, host: host.clone(), socket, folder })
    }

    /// A command about it.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        Ok(artery_on(&self.host, words)?.env("ARTERY_SOCKET", &self.socket))
    }

    /// Calls it, whatever comes of that.
    pub fn call(&self, words: &[&str]) -> Result<CommandOutput> {
        self.command(words)?.output()
    }

    /// What a command says, which must be a success without a warning.
    pub fn say(&self, words: &[&str]) -> Result<String> {
        let CommandOutput { status, stdout, stderr } = self.call(words)?;
        let is_success = status.is_some_and(|status| status.success());
        assert!(is_success && stderr.is_empty(), "{words:?}: {stdout}{stderr}");
        Ok(stdout)
    }

    /// Applies a file, which must be a success; it may warn that SIGHUP could not have the same read again.
    pub fn apply(&self, words: &[&str]) -> Result<String> {
        let CommandOutput { status, stdout, stderr } = self.call(&[&["apply"], words].concat())?;
        let is_success = status.is_some_and(|status| status.success());
        let other = stderr.lines().find(|line| !line.contains("SIGHUP can't have it read again"));
        assert!(is_success && other.is_none(), "{words:?}: {stdout}{stderr}");
        Ok(stdout)
    }

    /// What [`say`](Running::say) says with `--json`.
    pub fn json(&self, words: &[&str]) -> Result<Value> {
        let text = self.say(&[words, &["--json"]].concat())?;
        let document: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"));
        assert_eq!(document["schema_version"], 1, "{words:?}");
        Ok(document)
    }

    /// What a command is refused with.
    pub fn refused(&self, words: &[&str], status: i32) -> Result<String> {
        let output = self.call(words)?;
        let said = (output.code(), output.stdout.as_str());
        assert_eq!(said, (Some(status), ""), "{words:?}: {}", output.stderr);
        Ok(output.stderr)
    }

    /// What a handler says: its name, and the value to be written if there is one.
    pub fn handler(&self, words: &[&str]) -> Result<String> {
        Ok(self.command(&[&["handler"], words].concat())?.run()?.stdout)
    }

    /// What a handler says in JSON.
    pub fn json_of(&self, handler: &str) -> Result<Value> {
        let said = self.handler(&[handler])?;
        Ok(serde_json::from_str(&said).unwrap_or_else(|error| panic!("{handler}: {error}: {said}")))
    }

    /// What a handler says, which must be a number.
    pub fn number(&self, handler: &str) -> Result<u64> {
        let said = self.handler(&[handler])?;
        Ok(said.trim().parse().unwrap_or_else(|_| panic!("{handler}: {said}")))
    }

    /// Waits until a handler has a number that is high enough.
    pub fn until_number(&self, handler: &str, enough: u64) -> Result<()> {
        until_seen(self, handler, || Ok(self.number(handler)? >= enough))
    }

    /// Replaces the configuration; gives the packets that this is said to have cost.
    pub fn replace(&self, config: &str) -> Result<u64> {
        let CommandOutput { stdout, stderr, .. } = self.command(&["handler", "hotconfig", config])?.run()?;
        let said = stdout + &stderr;
        Ok(match said.split_once("the same name and class: ") {
            None => 0,
            Some((_, count)) => count.trim().parse().unwrap_or_else(|_| panic!("{said}")),
        })
    }

    /// Has it read its files again. Gives what it says until it has said both this and the outcome, in
    /// whichever order they come.
    #[track_caller]
    pub fn reload(&mut self, expected: &str) -> Result<String> {
        let before = self.stderr_so_far().len();
        self.signal(Signal::HUP);
        let said = || self.stderr_so_far()[before..].to_string();
        let has_ended = |said: &str| said.contains("was replaced") || said.contains("the running one stays");
        until_seen(&self.process, expected, || Ok(said().contains(expected) && has_ended(&said())))?;
        Ok(said())
    }

    /// Waits until it forwards pings.
    pub fn until_answered(&mut self, from: &Host, address: &str) -> Result<()> {
        until_answered(from, address, &mut self.process)
    }

    /// All of a few pings from a host are answered, else what was dropped is shown.
    #[track_caller]
    pub fn assert_pings(&self, from: &Host, address: &str) -> Result<()> {
        let report = from.ping(address, 3)?;
        if report.received != 3 {
            panic!("{}\n{}{}", report.text, self.say(&["show", "drops"])?, self.say(&["show", "neighbors"])?);
        }
        Ok(())
    }

    /// Signals it to end, which it does with a clean exit.
    pub fn end(self) -> Result<()> {
        end(self.process).map(drop)
    }
}

impl Deref for Running {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
