//! Boots a machine, runs a script in it and brings back what it said.

use super::accelerator::{self, Accelerator};
use super::fetch::{self, Unpacked};
use super::folder::{Folder, STDERR, STDOUT};
use super::qemu::{self, LOG};
use super::{Machine, tool, wires};
use crate::console::progress;
use crate::{Host, Process, Rig};
use anyhow::{Context as _, anyhow, bail};
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// What a script left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The script's exit status.
    pub status: i32,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// What the kernel wrote to its console.
    pub log: String,
    /// From the start of QEMU until the script began.
    pub boot: Duration,
    /// What `uname -r` says there.
    pub release: String,
}

/// Between two looks at a machine's files.
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of the kernel's log in an error.
const LOG_LINES: usize = 20;

/// A machine ended since a processor met a breakpoint that is none: while the kernel changes its own code it
/// puts one there, and QEMU (7.2) now and then runs it after the other processor has overwritten it.
#[derive(Debug)]
pub(super) struct StaleCode(String);

/// What the kernel says then.
const STALE_CODE: &str = "int3: 0000 [#1]";

impl fmt::Display for StaleCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StaleCode {}

impl Machine {
    /// Boots, runs a script of `sh` as root, and waits for its end.
    pub fn run(&self, script: &str) -> anyhow::Result<Outcome> {
        self.run_and_show(script, std::io::sink(), std::io::sink())
    }

    /// The same, and what it writes is passed on as it comes.
    pub fn run_and_show(
        &self,
        script: &str,
        stdout: impl Write,
        stderr: impl Write,
    ) -> anyhow::Result<Outcome> {
        let kernel = fetch::cached_or_fetched(&self.kernel)?;
        tool::find(qemu::PROGRAM)?;
        let rig = Rig::new("vm")?;
        let host = rig.host("qemu")?;
        wires::make(&host, &self.nic)?;
        let folder = Folder::make(self, &kernel, script)?;
        let booting = Booting { machine: self, host: &host, kernel: &kernel, folder: &folder };
        booting.boot()?.wait(stdout, stderr)
    }
}

/// A machine that is to be started.
#[derive(Clone, Copy)]
struct Booting<'a> {
    machine: &'a Machine,
    host: &'a Host,
    kernel: &'a Unpacked,
    folder: &'a Folder,
}

impl<'a> Booting<'a> {
    /// Boots by KVM where that works, and by emulation otherwise.
    fn boot(self) -> anyhow::Result<Running<'a>> {
        if accelerator::may_be_kvm() {
            let mut running = self.start(Accelerator::Kvm)?;
            if running.boots_within(accelerator::PATIENCE) {
                return Ok(running);
            }
            running.process.kill();
            accelerator::remember_failure();
            progress("vm: /dev/kvm boots no machine here: emulating");
        }
        let mut running = self.start(Accelerator::Emulation)?;
        // Emulated kernels panic now and then while they boot (6.12 in `sched_clock_cpu`), before anything
        // that is tried runs.
        if !running.boots_within(self.machine.limit) && !running.process.is_running() {
            progress(&format!("vm: the machine ended while it booted: once more{}", running.told()));
            running = self.start(Accelerator::Emulation)?;
        }
        Ok(running)
    }

    fn start(&self, accelerator: Accelerator) -> anyhow::Result<Running<'a>> {
        let words = qemu::words(self.machine, accelerator, self.kernel, self.folder.path())?;
        let process = self.host.command([qemu::PROGRAM]).args(words).spawn()?;
        Ok(Running { booting: *self, process, started: Instant::now(), boot: None })
    }
}

/// A machine that runs.
struct Running<'a> {
    booting: Booting<'a>,
    process: Process,
    started: Instant,
    /// How long it took until the script began.
    boot: Option<Duration>,
}

impl Running<'_> {
    fn wait(mut self, stdout: impl Write, stderr: impl Write) -> anyhow::Result<Outcome> {
        let folder = self.booting.folder;
        let mut streams =
            (Follow::new(folder.shared(STDOUT), stdout), Follow::new(folder.shared(STDERR), stderr));
        loop {
            self.detect_boot();
            let status = self.status()?;
            let is_running = self.process.is_running();
            streams.0.pass_on()?;
            streams.1.pass_on()?;
            if let Some(status) = status {
                return self.outcome(status);
            }
            // It may have ended between the two questions.
            if !is_running && self.status()?.is_none() {
                let told = format!("the machine ended before its script{}", self.told());
                let has_stale_code = folder.text(folder.path().join(LOG)).contains(STALE_CODE);
                return Err(if has_stale_code { StaleCode(told).into() } else { anyhow!(told) });
            }
            if self.started.elapsed() > self.booting.machine.limit {
                let limit = self.booting.machine.limit.as_secs();
                let at = if self.boot.is_some() { "its script still ran" } else { "it had not booted" };
                bail!("{at} after {limit} s{}", self.told());
            }
            thread::sleep(PAUSE);
        }
    }

    fn boots_within(&mut self, limit: Duration) -> bool {
        while !self.detect_boot() && self.process.is_running() && self.started.elapsed() < limit {
            thread::sleep(PAUSE);
        }
        self.boot.is_some()
    }

    fn detect_boot(&mut self) -> bool {
        if self.boot.is_none() && self.booting.folder.shared("booted").exists() {
            self.boot = Some(self.started.elapsed());
        }
        self.boot.is_some()
    }

    fn status(&self) -> anyhow::Result<Option<i32>> {
        match fs::read_to_string(self.booting.folder.shared("status")) {
            Ok(text) => Ok(Some(text.trim().parse().context("the machine left no number as its status")?)),
            Err(_) => Ok(None),
        }
    }

    fn outcome(&self, status: i32) -> anyhow::Result<Outcome> {
        let folder = self.booting.folder;
        Ok(Outcome {
            status,
            stdout: folder.text(folder.shared(STDOUT)),
            stderr: folder.text(folder.shared(STDERR)),
            log: folder.text(folder.path().join(LOG)),
            boot: self.boot.unwrap_or_else(|| self.started.elapsed()),
            release: self.booting.kernel.release.clone(),
        })
    }

    /// What an error shows of QEMU, of the kernel and of the script.
    fn told(&self) -> String {
        let folder = self.booting.folder;
        let parts = [
            ("QEMU", self.process.stderr_so_far()),
            ("kernel", folder.text(folder.path().join(LOG))),
            ("stdout", folder.text(folder.shared(STDOUT))),
            ("stderr", folder.text(folder.shared(STDERR))),
        ];
        let shown = parts.iter().filter(|(_, text)| !text.trim().is_empty());
        shown.map(|(name, text)| format!("\n--- {name}\n{}", tool::last_lines(text, LOG_LINES))).collect()
    }
}

/// Passes on what is added to a file.
struct Follow<W> {
    path: PathBuf,
    passed: u64,
    to: W,
}

impl<W: Write> Follow<W> {
    fn new(path: PathBuf, to: W) -> Follow<W> {
        Follow { path, passed: 0, to }
    }

    fn pass_on(&mut self) -> anyhow::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.passed))?;
        let mut bytes = vec![];
        self.passed += file.read_to_end(&mut bytes)? as u64;
        self.to.write_all(&bytes)?;
        self.to.flush()?;
        Ok(())
    }
}
