//! One router to an interface: a lock that the kernel lets go of when its holder ends, however it ends.
//!
//! The file names the holder for the message that the second one gets. It is a file per network namespace and
//! interface number, since names may change and may mean other interfaces elsewhere.
use crate::{DeviceError, Interface};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Times that the file may vanish between opening and locking, because a holder ended.
const TRIES: usize = 100;

/// While it lives, no other router takes the interface.
#[derive(Debug)]
pub(crate) struct InterfaceLock {
    path: PathBuf,
    _file: File,
}

impl InterfaceLock {
    /// Takes the lock of an interface of this thread's network namespace.
    pub(crate) fn acquire(interface: &Interface) -> Result<InterfaceLock, DeviceError> {
        let failed = |e: io::Error| DeviceError::from_file(&interface.name, "locking it for AF_XDP", &e);
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_err(failed)?.ino();
        let name = format!("xdp-{namespace}-{}.lock", interface.index);
        let path = directory().map_err(failed)?.join(name);
        match InterfaceLock::acquire_file(path).map_err(failed)? {
            Ok(lock) => Ok(lock),
            Err(pid) => Err(DeviceError::InUse { name: interface.name.clone(), pid, holder: name_of(pid) }),
        }
    }
    /// Takes the lock of a file, or gives the number of the process that has it.
    fn acquire_file(path: PathBuf) -> io::Result<Result<InterfaceLock, u32>> {
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut file = options.mode(0o644).custom_flags(libc::O_NOFOLLOW).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Err(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The last holder may have removed the file after it was opened here.
            if same_file(&file, &path) {
                file.set_len(0)?;
                writeln!(file, "{}", crate::privsep::owner_id())?;
                return Ok(Ok(InterfaceLock { path, _file: file }));
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }
}

impl Drop for InterfaceLock {
    fn drop(&mut self) {
        // Still locked: a process that has opened the file meanwhile finds that it was replaced.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// The process that a lock file names; 0 when it does not.
fn holder(file: &mut File) -> u32 {
    let mut text = String::new();
    let _ = file.take(16).read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or("unknown".to_owned(), |name| name.trim_end().to_owned())
}

/// Where lock files are: the first of the usual places that only this user can write to.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|place| Path::new(&place).join("artery"));
    let places = [Some("/run/artery".into()), own, Some(format!("/tmp/artery-{user}").into())];
    let usable = |path: &PathBuf| {
        let _ = DirBuilder::new().mode(0o755).create(path);
        std::fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
    };
    places.into_iter().flatten().find(usable).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_holder_and_is_free_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("xdp-1-2.lock");
        let lock = InterfaceLock::acquire_file(path.clone()).unwrap().unwrap();
        assert_eq!(InterfaceLock::acquire_file(path.clone()).unwrap().err(), Some(std::process::id()));
        drop(lock);
        assert!(!path.exists());
        assert!(InterfaceLock::acquire_file(path).unwrap().is_ok());
    }

    #[test]
    fn a_file_that_nobody_locks_is_taken_over_whatever_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("xdp-1-2.lock");
        std::fs::write(&path, "4000000000 was here, and more\n").unwrap();
        let _lock = InterfaceLock::acquire_file(path.clone()).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(InterfaceLock::acquire_file(path).unwrap().err(), Some(std::process::id()));
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("xdp-1-2.lock"), folder.path().join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(InterfaceLock::acquire_file(path).is_err());
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "precious");
    }

    #[test]
    fn two_threads_never_hold_one_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (held, taken) = (std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    use std::sync::atomic::Ordering::SeqCst;
                    for _ in 0..300 {
                        if let Ok(Ok(lock)) = InterfaceLock::acquire_file(path.clone()) {
                            assert_eq!(held.fetch_add(1, SeqCst), 0);
                            taken.fetch_add(1, SeqCst);
                            held.fetch_sub(1, SeqCst);
                            drop(lock);
                        }
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
    }
}
