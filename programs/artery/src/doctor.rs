//! `artery doctor`: whether this machine can do what Artery offers, and what mends it where it
//! can't. Nothing is changed.
mod kernel;
mod port;
mod process;
mod report;

use crate::options::usage_error;
use crate::output::print_stdout;
use anyhow::Context as _;
use artery_adopt::blockers;
use artery_device::Interface;
use clap::Args;
use report::{Purpose, Report};

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery doctor                     everything, at all Ethernet interfaces that are up
  artery doctor adopt eth0 eth1     what 'artery adopt eth0 eth1' needs
  artery doctor router              what 'artery router' needs
  artery doctor --json | jq '.findings[] | select(.level == \"broken\")'

COMMAND is adopt, router, run, up or capture. Without it the needs of all of them are looked at.

Each finding is a line: its level, its name, and what was found. Below it stands what mends it.
  ok       it is offered
  slow     it works, but slower than it could, or without something that is offered elsewhere
  broken   a command that needs it can't work
  unknown  this process could not see it; 'sudo artery doctor' sees more

Programs are given to the kernel's verifier and attached nowhere. What keeps traffic in the kernel (filters,
bridges, queueing) is another question: 'artery adopt --dry-run' answers it.

Exit status: 0 all is offered, 1 what was asked for can't work, 2 wrong usage, 3 it works, but slower than it
could. What could not be seen does not change it.";

#[derive(Args)]
pub(crate) struct DoctorOptions {
    /// Look only at what this command needs, or at these ports
    #[arg(value_name = "COMMAND|PORT")]
    words: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the last lines of the kernel's verifier where it refuses a program
    #[arg(short, long)]
    verbose: bool,
}

/// Checks the machine, reports what it found, and returns the exit status.
pub(crate) fn command(options: &DoctorOptions) -> anyhow::Result<u8> {
    let (purpose, ports) = purpose_and_ports(&options.words);
    let ports = match ports {
        [] => {
            let ports = blockers::ethernet_ports().context("can't read which interfaces there are")?;
            ports.into_iter().map(|port| port.name).collect()
        }
        names => existing_ports(names, purpose.is_none()),
    };
    let purposes = purpose.map_or(Purpose::ALL.to_vec(), |purpose| vec![purpose]);
    let mut findings = kernel::findings();
    findings.extend(process::findings());
    findings.extend(port::findings(&ports)?);
    let report = Report::of(findings, &purposes, &ports);
    match options.json {
        true => print_stdout(&format!("{:#}\n", report.json()))?,
        false => print_stdout(&report.text(options.verbose))?,
    }
    Ok(report.status())
}

/// The first word is a command if it is the name of one.
fn purpose_and_ports(words: &[String]) -> (Option<Purpose>, &[String]) {
    let purpose = words.first().and_then(|word| Purpose::ALL.into_iter().find(|one| one.name() == word));
    (purpose, if purpose.is_some() { &words[1..] } else { words })
}

/// The names, each once. Ends the program if an interface does not exist; the first name may be
/// meant as a command.
fn existing_ports(names: &[String], may_be_command: bool) -> Vec<String> {
    let mut ports: Vec<String> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if let Err(error) = Interface::find(name) {
            let commands = Purpose::ALL.map(Purpose::name).join(", ");
            match number == 0 && may_be_command {
                true => usage_error(&format!("{error}; '{name}' is not a command either ({commands})")),
                false => usage_error(&error.to_string()),
            }
        }
        if !ports.contains(name) {
            ports.push(name.clone());
        }
    }
    ports
}
