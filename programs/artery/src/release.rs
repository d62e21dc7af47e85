//! `artery release`: removes what a process of Artery that was killed left at ports.
use crate::output::{Output, print_stdout};
use artery_device::bpf::{self, TcxSide};
use artery_device::{DeviceError, Interface};
use clap::Args;
use std::fmt::Write as _;
use std::io;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery release eth0
  artery release eth0 eth1

Where the kernel has links for BPF programs, it removes programs when their process ends, however it ends.
Kernels without TCX have filters of tc (cls_bpf) instead, which outlive a process that was killed. They do no
harm, because they leave all frames to the kernel once their process does not renew its lease; the next
'artery adopt', 'router' or 'up' at the port removes them. This command removes them at once, with the qdisc
clsact if it was made for them. Filters whose process lives, and those of others, stay.

Exit status: 0 nothing of a dead process is left, 1 error, 2 wrong usage.";

#[derive(Args)]
pub(crate) struct ReleaseOptions {
    /// The interfaces to release
    #[arg(value_name = "PORT", required = true)]
    ports: Vec<String>,
}

/// Releases ports, all that can be.
pub(crate) fn command(options: &ReleaseOptions) -> anyhow::Result<u8> {
    let mut status = 0;
    for name in &options.ports {
        match release(name) {
            Ok(said) => print_stdout(&said)?,
            Err(error) => {
                Output::for_terminal().print_error(&error);
                status = 1;
            }
        }
    }
    Ok(status)
}

/// Releases an interface, and reports what was removed and what is left.
fn release(name: &str) -> Result<String, String> {
    let interface = Interface::find(name).map_err(|error: DeviceError| error.to_string())?;
    let failed = |error| not_removed(name, &error);
    let removed = bpf::remove_dead_filters(interface.index).map_err(failed)?;
    let owners = bpf::living_filter_owners(interface.index).map_err(failed)?;
    Ok(outcome(name, removed, &owners, linked_programs(interface.index)))
}

/// Programs at TCX, of any owner; 0 where this process may not query them.
fn linked_programs(interface: u32) -> u32 {
    bpf::tcx_programs(interface, TcxSide::Ingress).map_or(0, |programs| programs.count)
}

fn outcome(name: &str, removed: usize, owners: &[u32], linked: u32) -> String {
    let mut text = match removed {
        0 => format!("{name}: a dead process of Artery left nothing\n"),
        1 => format!("{name}: removed 1 filter of a dead process\n"),
        count => format!("{name}: removed {count} filters of dead processes\n"),
    };
    for owner in owners {
        // Writing to a string does not fail.
        let what = format!("lives and has a filter; it stays ('kill {owner}' ends it)");
        let _ = writeln!(text, "{name}: process {owner} {what}");
    }
    if linked > 0 {
        let programs = if linked == 1 { "1 program" } else { &format!("{linked} programs") };
        let what = "at TCX, which the kernel removes when their processes end ('bpftool net')";
        let _ = writeln!(text, "{name}: {programs} {what}");
    }
    text
}

fn not_removed(name: &str, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "; CAP_NET_ADMIN is needed: run as root",
        _ => "",
    };
    format!("{name}: can't remove filters of tc: {error}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_said_and_what_is_left_with_its_process() {
        assert_eq!(outcome("eth0", 0, &[], 0), "eth0: a dead process of Artery left nothing\n");
        let said = outcome("eth0", 2, &[77], 1);
        let expected = [
            "eth0: removed 2 filters of dead processes",
            "eth0: process 77 lives and has a filter; it stays ('kill 77' ends it)",
            "eth0: 1 program at TCX, which the kernel removes when their processes end ('bpftool net')",
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn who_lacks_a_right_is_told_which() {
        let denied = not_removed("eth0", &io::Error::from_raw_os_error(1));
        assert!(
            denied.starts_with("eth0: can't remove")
                && denied.ends_with("CAP_NET_ADMIN is needed: run as root")
        );
        assert!(!not_removed("eth0", &io::Error::from_raw_os_error(19)).contains("root"));
    }
}
