//! What processes and the machine have used.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has this process, and those that it starts, open as many files as they may.
pub(super) fn allow_many_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("can't have more open files")
}

/// Resident memory of a process, in MiB.
pub(super) fn memory_mib(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// The processors of the machine since a moment.
pub(super) struct Processors {
    since: Instant,
    busy: Duration,
}

impl Processors {
    pub(super) fn begin() -> Result<Processors> {
        Ok(Processors { since: Instant::now(), busy: busy()? })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// How many were busy, on average, with whatever it was.
    pub(super) fn busy(&self) -> Result<f64> {
        Ok((busy()? - self.busy).as_secs_f64() / self.since.elapsed().as_secs_f64())
    }
}

/// Time of all processors, neither idle nor waiting: /proc/stat (user, nice, system, idle, iowait, …).
fn busy() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = text.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    let ticks: u64 = fields.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, n)| n).sum();
    // USER_HZ is 100 on all architectures that Linux gives to users here.
    Ok(Duration::from_millis(10 * ticks))
}
