//! Removing namespaces and the processes inside: at the end of a rig, at the death of its owner, and leftovers at start.
//!
//! One shell script does all three. A watchdog runs it with a pipe as input whose other end only the owner holds: a
//! line on the pipe means an orderly end, end of file means that the owner died. The watchdog is a process group of
//! its own and ignores the signals of a terminal, so it outlives whatever ends the owner.

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

/// Removes every namespace whose name begins with `$1` once its input says so.
///
/// After a sudden death it goes round again: a program may just have been entering a namespace, or making one.
/// A namespace is killed until it is empty before it is removed, for after that nobody can find its processes.
const SCRIPT: &str = r#"
trap '' INT HUP TERM QUIT PIPE
rounds=1
read -r _ || rounds=3
while [ $rounds -gt 0 ]; do
    for path in /run/netns/"$1"*; do
        [ -e "$path" ] || continue
        name=${path##*/}
        tries=40
        while pids=$(ip netns pids "$name") && [ -n "$pids" ] && [ $tries -gt 0 ]; do
            kill -9 $pids
            tries=$((tries - 1))
            sleep 0.05
        done
        ip netns del "$name"
    done
    rounds=$((rounds - 1))
    [ $rounds -gt 0 ] && sleep 0.2
done
"#;

/// The process that removes a rig's namespaces when told to, or when this process dies.
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
    fn this_process_is_alive_and_an_impossible_one_is_dead() {
        assert!(!is_dead(std::process::id() as i32));
        // Above the kernel's limit of 2^22 for process ids.
        assert!(is_dead(1 << 30));
    }
}
