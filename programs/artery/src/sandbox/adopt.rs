//! What `artery adopt` may do once it forwards, besides its capabilities (`adopt/rights.rs`).
//!
//! It parses no packets: programs in the kernel do. It reads what the kernel tells by netlink, files below
//! /proc and /sys, and questions at its sockets; it loads programs, and runs one, which lists the rules of
//! the older iptables. That program has these limits, too.
use super::calls::{self, Process};
use super::paths::{Restricted, restrict_to};
use landlock::AccessFs;
use std::path::{Path, PathBuf};

/// Folders and files that are read: what the kernel tells, libraries, and what the C library looks up.
const READ: [&str; 9] = [
    "/proc",
    "/sys",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/machine-id",
];
/// Folders with the program that lists rules, and what it loads.
const RUN: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/// Read and written: the input of a program that gets none, and the lock of iptables.
const WRITE: [&str; 2] = ["/dev/null", "/run/xtables.lock"];

/// What makes the interfaces by which frames come to a graph.
const TAP: &str = "/dev/net/tun";

/// Gives up files and system calls, in this thread and in those that it starts. `sockets` are removed at the
/// end. A graph, which is to be started then, makes TAP devices and packet sockets. Returns a warning where
/// files can't be given up.
pub(crate) fn confine_adopt(sockets: &[PathBuf], has_graph: bool) -> anyhow::Result<Option<&'static str>> {
    let paths = restrict(sockets, has_graph)?;
    calls::restrict(if has_graph { Process::AdoptGraph } else { Process::Adopt })?;
    Ok(paths.lack())
}

fn restrict(sockets: &[PathBuf], has_graph: bool) -> anyhow::Result<Restricted> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let readable = READ.iter().map(|path| (Path::new(path), read));
    let runnable = RUN.iter().map(|path| (Path::new(path), read | AccessFs::Execute));
    let writable = WRITE.iter().map(|path| (Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile));
    let removable = sockets.iter().map(|socket| (folder_of(socket), AccessFs::RemoveFile.into()));
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let tap = has_graph.then_some((Path::new(TAP), device));
    restrict_to(readable.chain(runnable).chain(writable).chain(removable).chain(tap))
}

/// The folder that a file is in: the process's own if its name says none.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::has_landlock;
    use std::io::ErrorKind::PermissionDenied;

    #[test]
    fn a_program_is_run_and_a_socket_removed_and_other_files_are_neither_read_nor_made() {
        if !has_landlock() {
            return eprintln!("not tested: this kernel has no Landlock");
        }
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (socket, file) = (folder.path().join("socket"), other.path().join("file"));
        std::fs::write(&socket, "text").unwrap();
        std::fs::write(&file, "text").unwrap();
        let tried = move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            assert_ne!(restrict(std::slice::from_ref(&socket), false).unwrap(), Restricted::Not);
            let ran = std::process::Command::new("true").stdin(std::process::Stdio::null()).output();
            let read = std::fs::read(&file).map_err(|error| error.kind());
            let made = std::fs::write(folder.path().join("new"), "x").map_err(|error| error.kind());
            let removed = std::fs::remove_file(&file).map_err(|error| error.kind());
            (
                ran.is_ok_and(|ran| ran.status.success()),
                read,
                made,
                removed,
                std::fs::remove_file(&socket).is_ok(),
            )
        };
        let tried = std::thread::spawn(tried).join().unwrap();
        let denied = PermissionDenied;
        assert_eq!(tried, (true, Err(denied), Err(denied), Err(denied), true));
    }
}
