//! The files of a run: what a machine is given, and what it leaves.

use super::fetch::Unpacked;
use super::qemu::{INITRAMFS, SHARED};
use super::{Machine, Network, Wire, initramfs};
use anyhow::Context as _;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";

/// The files of a run: they go with this value.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn make(machine: &Machine, kernel: &Unpacked, script: &str) -> anyhow::Result<Folder> {
        remove_left_behind();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = Folder(tempfile::Builder::new().prefix(&prefix).tempdir()?);
        fs::write(folder.0.path().join(INITRAMFS), initramfs::archive(kernel)?)?;
        fs::create_dir(folder.0.path().join(SHARED))?;
        let write = |name: &str, text: &str| fs::write(folder.shared(name), text);
        write("start.sh", include_str!("guest/start.sh"))?;
        write("settings", &settings(machine, kernel)?)?;
        write("command", &in_this_folder(script)?)?;
        for empty in [STDOUT, STDERR] {
            write(empty, "")?;
        }
        Ok(folder)
    }

    pub(super) fn shared(&self, name: &str) -> PathBuf {
        self.0.path().join(SHARED).join(name)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// What a file says, bytes that are not text replaced; nothing where there is none.
    pub(super) fn text(&self, path: PathBuf) -> String {
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

fn settings(machine: &Machine, kernel: &Unpacked) -> anyhow::Result<String> {
    let (network, router) = match &machine.network {
        Network::Bare => ("bare", ""),
        Network::Line => ("line", ""),
        Network::RouterIn(name) => ("line", name.as_str()),
    };
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", beside.display());
    let modules = kernel.modules();
    let pairs = [
        ("driver", machine.nic.model.driver()),
        ("wire", if machine.nic.wire == Wire::Hub { "hub" } else { "tap" }),
        ("network", network),
        ("router", router),
        ("modules", modules.to_str().context("the folder for kernels has a name that is not text")?),
        ("PATH", &path),
        ("HOME", "/root"),
        ("LC_ALL", "C.UTF-8"),
    ];
    Ok(pairs.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect())
}

fn in_this_folder(script: &str) -> anyhow::Result<String> {
    let folder = std::env::current_dir()?;
    Ok(format!("cd {}\n{script}\n", quoted(&folder.to_string_lossy())))
}

/// A word that the shell takes as it is.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// How names of such folders begin; the process that made it follows.
const PREFIX: &str = "artery-vm-";

/// Removes the folders of processes that were killed.
fn remove_left_behind() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        if maker(&entry.file_name().to_string_lossy()).is_some_and(is_dead) {
            // Another process may be removing it, too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn maker(name: &str) -> Option<i32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn is_dead(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_whatever_is_in_it() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn only_folders_of_ours_have_a_maker() {
        assert_eq!(maker("artery-vm-12-x8Ab"), Some(12));
        for other in ["artery-vm-12", "artery-vm-x-1", "artery-12-x", "artery-vmq"] {
            assert_eq!(maker(other), None, "{other}");
        }
        assert!(!is_dead(std::process::id() as i32));
    }
}
