//! Announces by a command, which is called with `announce` or `withdraw`.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::Access;
use rustix::process::{Pid, Signal, kill_process_group};

use super::driver::Actuator;

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Announcer {
    program: PathBuf,
    running: Option<Running>,
}

struct Running {
    child: Child,
    word: &'static str,
    since: Instant,
}

impl Announcer {
    /// Finds whether there is such a program.
    pub(crate) fn open(program: &Path) -> Result<Announcer> {
        let name = program.display();
        ensure!(program.is_absolute(), "announce.command = '{name}': name the program with its whole path");
        let file = std::fs::metadata(program);
        let file = file.with_context(|| format!("can't find '{name}' of announce.command"))?;
        let is_executable = rustix::fs::access(program, Access::EXEC_OK).is_ok();
        ensure!(file.is_file() && is_executable, "'{name}' of announce.command is not an executable file");
        Ok(Announcer { program: program.to_path_buf(), running: None })
    }

    fn name(&self) -> std::path::Display<'_> {
        self.program.display()
    }
}

impl Actuator for Announcer {
    fn begin(&mut self, is_announced: bool, now: Instant) -> Result<()> {
        self.running = None;
        let word = if is_announced { "announce" } else { "withdraw" };
        let mut command = Command::new(&self.program);
        // A group of its own: what it starts ends with it, and a terminal's Ctrl-C does not end it.
        command.arg(word).stdin(Stdio::null()).process_group(0);
        let child = command.spawn().with_context(|| format!("can't start {}", self.name()))?;
        self.running = Some(Running { child, word, since: now });
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Option<Result<()>> {
        let running = self.running.as_mut()?;
        let word = running.word;
        let result = match running.child.try_wait() {
            Ok(None) if now.duration_since(running.since) < LIMIT => return None,
            Ok(None) => Err(anyhow!("{} {word} had not ended after {} s", self.name(), LIMIT.as_secs())),
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(anyhow!("{} {word}: {status}", self.name())),
            Err(error) => Err(error.into()),
        };
        self.running = None;
        Some(result)
    }

    fn renewal(&self) -> Option<Duration> {
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After it was waited for, its number may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// One test at a time: a file can't be run while a child of another one has it open for writing.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A program in a folder of its own, which goes with it.
    fn program(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("announce");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        (folder, path)
    }

    fn outcome(announcer: &mut Announcer) -> Result<()> {
        loop {
            match announcer.poll(Instant::now()) {
                Some(result) => return result,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn what_is_missing_relative_or_not_executable_is_refused() {
        let _alone = alone();
        let (folder, path) = program("#!/bin/sh\n");
        assert!(Announcer::open(&path).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let refusal = |path: &Path| format!("{:#}", Announcer::open(path).err().unwrap());
        assert!(refusal(&path).contains("not an executable file"));
        assert!(refusal(folder.path()).contains("not an executable file"));
        assert!(refusal(&folder.path().join("none")).contains("can't find"));
        assert!(refusal(Path::new("announce")).contains("whole path"));
    }

    #[test]
    fn it_is_called_with_a_word_and_its_status_is_told() {
        let _alone = alone();
        let (folder, path) = program("#!/bin/sh\necho $1 >>\"${0%/*}/said\"\ntest $1 = announce\n");
        let mut announcer = Announcer::open(&path).unwrap();
        announcer.begin(true, Instant::now()).unwrap();
        outcome(&mut announcer).unwrap();
        announcer.begin(false, Instant::now()).unwrap();
        let failure = outcome(&mut announcer).unwrap_err().to_string();
        assert!(failure.contains("announce withdraw: exit status: 1"), "{failure}");
        assert_eq!(std::fs::read_to_string(folder.path().join("said")).unwrap(), "announce\nwithdraw\n");
    }

    #[test]
    fn one_that_does_not_end_is_killed_with_what_it_started() {
        let _alone = alone();
        let (folder, path) = program("#!/bin/sh\nsleep 1000 &\necho $! >\"${0%/*}/pid\"\nwait\n");
        let mut announcer = Announcer::open(&path).unwrap();
        let begun = Instant::now();
        announcer.begin(true, begun).unwrap();
        let pid = loop {
            let text = std::fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
            if let Ok(pid) = text.trim_end().parse::<u32>() {
                break pid;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(announcer.poll(begun + LIMIT - Duration::from_millis(1)).is_none());
        let failure = announcer.poll(begun + LIMIT).unwrap().unwrap_err().to_string();
        assert!(failure.contains("had not ended after 5 s"), "{failure}");
        let is_there = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
        };
        while is_there() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
