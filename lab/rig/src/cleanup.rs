//! Removing namespaces and the processes inside: at the end of a rig, at the death of its owner,
//! and leftovers at start.
//!
//! One shell script does all three. A watchdog runs it with a pipe as input whose other end only the owner
//! holds: a line on the pipe means an orderly end, end of file means that the owner died. The watchdog is a
//! process group of its own and ignores the signals of a terminal, so it outlives whatever ends the owner.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Once;

use rustix::process::{Pid, test_kill_process};

use super::error::{Result, RigError};

/// Where `ip netns` keeps its names.
pub(super) const NAMESPACES: &str = "/run/netns";

/// The environment variable that names the host of each program, by which the cleanup finds
/// the programs to end.
pub(super) const MARK: &str = "ARTERY_RIG_HOST";

/// Kills every program of the hosts whose namespaces begin with `$1`, and removes these, once
/// its input says so.
///
/// A program is known by its mark or by its namespace: the mark also shows one that has yet to enter, the
/// namespace one that has cleared its environment. After a sudden death the script goes round again, for a
/// program may just have been starting, or a namespace been made.
const SCRIPT: &str = r#"
trap '' INT HUP TERM QUIT PIPE
programs() {
    grep -lsaF "ARTERY_RIG_HOST=$1" /proc/[0-9]*/environ | cut -d / -f 3
    for path in /run/netns/"$1"*; do
        [ -e "$path" ] && ip netns pids "${path##*/}"
    done
}
rounds=1
read -r _ || rounds=4
while [ $rounds -gt 0 ]; do
    tries=40
    while found=$(programs "$1"); [ -n "$found" ] && [ $tries -gt 0 ]; do
        kill -9 $found
        tries=$((tries - 1))
        sleep 0.05
    done
    for path in /run/netns/"$1"*; do
        [ -e "$path" ] && ip netns del "${path##*/}"
    done
    rounds=$((rounds - 1))
    [ $rounds -gt 0 ] && sleep 0.2
done
"#;

/// The process that removes a rig's namespaces on request, or when this process dies.
pub(super) struct Watchdog {
    child: Child,
}

impl Watchdog {
    /// Starts a watchdog over the namespaces whose names begin with `prefix`.
    pub(super) fn start(prefix: &str) -> Result<Watchdog> {
        Ok(Watchdog { child: start_script(prefix)? })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Taking the pipe closes it. If the watchdog is gone, the next sweep does its work.
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.child.wait();
    }
}

/// Removes, once in the life of this process, what dead owners left behind.
pub(super) fn sweep_once() -> Result<()> {
    static SWEPT: Once = Once::new();
    let mut outcome = Ok(());
    SWEPT.call_once(|| outcome = sweep());
    outcome
}

fn sweep() -> Result<()> {
    let Ok(entries) = fs::read_dir(NAMESPACES) else {
        return Ok(()); // No directory, no namespaces.
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let dead: BTreeSet<i32> = names.filter_map(|name| owner(&name)).filter(|pid| is_dead(*pid)).collect();
    for pid in dead {
        drop(Watchdog::start(&format!("art-{pid}-"))?);
    }
    Ok(())
}

/// The pid in a namespace's name, if it is one of ours.
fn owner(namespace: &str) -> Option<i32> {
    let (pid, rest) = namespace.strip_prefix("art-")?.split_once('-')?;
    rest.contains('-').then(|| pid.parse().ok())?
}

fn is_dead(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn start_script(prefix: &str) -> Result<Child> {
    Command::new("sh")
        .args(["-c", SCRIPT, "artery-rig-watchdog", prefix])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
        .map_err(RigError::system("cannot start the watchdog of a rig"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_form_have_an_owner() {
        assert_eq!(owner("art-123-4-host"), Some(123));
        assert_eq!(owner("art-123-4-host-with-dashes"), Some(123));
        for other in ["art-123", "art-123-4", "art-x-1-a", "artery-1-2-a", "blue", "", "art--1-a"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn the_script_looks_for_the_mark() {
        assert!(SCRIPT.contains(&format!("{MARK}=$1")));
    }

    #[test]
    fn this_process_is_alive_and_an_impossible_one_is_dead() {
        assert!(!is_dead(std::process::id() as i32));
        // Above the kernel's limit of 2^22 for process ids.
        assert!(is_dead(1 << 30));
    }
}
