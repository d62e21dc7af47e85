//! The machine that figures were measured on, in the words that a reader needs to judge them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::process::Command;

/// What is known of a machine, and of what ran there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// What decides on the clock of the processors; `none` where that is not ours to know.
    pub governor: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Version of the compiler.
    pub compiler: String,
    /// Commit of the tree, with `+` where files were changed since.
    pub commit: String,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
    /// Load of the last minute, before the experiment.
    pub load: String,
}

impl Machine {
    /// Describes the machine that this process runs on.
    pub fn here() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let load = read("/proc/loadavg");
        Machine {
            cpu: cpu_field(&cpuinfo, "model name").unwrap_or("unknown").to_string(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: or_none(&read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            kernel: or_none(&read("/proc/sys/kernel/osrelease")),
            compiler: output_of("rustc", &["--version"]),
            commit: commit(),
            is_virtual: cpu_field(&cpuinfo, "flags")
                .is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor")),
            load: or_none(load.split(' ').next().unwrap_or("")),
        }
    }

    /// Whether so much else runs that times say little.
    pub fn is_busy(&self) -> bool {
        self.load.parse::<f64>().is_ok_and(|load| load >= 1.5)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_virtual { ", a virtual machine" } else { "" };
        write!(
            f,
            "{} with {} processors{kind}; governor {}; Linux {}; {}; commit {}; load {}",
            self.cpu, self.cores, self.governor, self.kernel, self.compiler, self.commit, self.load
        )
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn or_none(text: &str) -> String {
    if text.trim().is_empty() { "none".into() } else { text.trim().into() }
}

/// The first value of a field in the kernel's description of the processors.
fn cpu_field<'a>(cpuinfo: &'a str, field: &str) -> Option<&'a str> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.trim() == field).map(|(_, value)| value.trim())
}

/// The commit of the tree that this was built from.
fn commit() -> String {
    let git = |words: &[&str]| output_of("git", &[&["-C", env!("CARGO_MANIFEST_DIR")], words].concat());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed == "none" { "" } else { "+" };
    format!("{}{mark}", git(&["rev-parse", "--short", "HEAD"]))
}

/// What a program prints; `none` where it can't be run.
fn output_of(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    or_none(&output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_processors_are_found_by_their_whole_name() {
        let text =
            "model\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n\nmodel name\t: second\n";
        assert_eq!(cpu_field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(cpu_field(text, "flags"), Some("fpu hypervisor"));
        assert_eq!(cpu_field(text, "name"), None);
    }

    #[test]
    fn a_machine_with_more_to_do_than_this_is_busy() {
        let with = |load: &str| Machine { load: load.into(), ..Machine::here() };
        assert!(with("1.50").is_busy() && with("12.03").is_busy());
        assert!(!with("0.70").is_busy() && !with("none").is_busy());
    }

    #[test]
    fn every_machine_has_a_description() {
        let here = Machine::here();
        assert!(here.cores >= 1 && !here.cpu.is_empty() && !here.kernel.is_empty());
        assert!(here.to_string().contains(&here.kernel));
    }
}
