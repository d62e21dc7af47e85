//! How a helper opens files. It has rights that those who may write to a file's folder need not have, so it
//! does not follow every link that it finds there.
use super::message::FileMode;
use rustix::fd::OwnedFd;
use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, fstat, fstatfs, openat, openat2,
    readlinkat,
};
use rustix::io::Errno;
use rustix::process::Uid;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// Most links that a path may lead through, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// How a folder is opened in which something is looked for.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a file in a folder; links that lead out of the folder are not followed.
pub(super) fn open_beneath(folder: &Path, path: &Path, mode: FileMode) -> io::Result<File> {
    let directory: OwnedFd = openat(CWD, folder, FOLDER, Mode::empty())?;
    let inside = path.strip_prefix(folder).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (flags, permissions) = flags(mode);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&directory, inside, flags | OFlags::CLOEXEC, permissions, resolve) {
        Ok(file) => Ok(File::from(file)),
        // A link that leads out.
        Err(Errno::XDEV) => Err(io::Error::from_raw_os_error(libc::EACCES)),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file by its full name. Links are followed whose owner is root or this process's user: others could
/// have put one in the place of the file that was meant.
pub(super) fn open_named(path: &Path, mode: FileMode) -> io::Result<File> {
    let mut folder = openat(CWD, "/", FOLDER, Mode::empty())?;
    let mut rest = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        let found =
            match openat(&folder, &part, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) if rest.is_empty() => return open_last(&folder, part, mode),
                found => found?,
            };
        let stat = fstat(&found)?;
        if is_link_of_proc(&folder, &stat)? {
            // The kernel's own, which may lead to what has no path, as /dev/stderr does.
            if rest.is_empty() {
                let (flags, permissions) = flags(mode);
                return Ok(openat(&folder, &part, flags | OFlags::CLOEXEC, permissions)?.into());
            }
            folder = openat(&folder, &part, FOLDER, Mode::empty())?;
        } else if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            let owner = Uid::from_raw(stat.st_uid);
            if !(owner.is_root() || owner == rustix::process::geteuid()) || links > MOST_LINKS {
                return Err(if links > MOST_LINKS { Errno::LOOP } else { Errno::ACCESS }.into());
            }
            let target = PathBuf::from(OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes()));
            if target.is_absolute() {
                folder = openat(CWD, "/", FOLDER, Mode::empty())?;
            }
            let mut all = parts(&target);
            all.append(&mut rest);
            rest = all;
        } else if rest.is_empty() {
            return open_last(&folder, part, mode);
        } else {
            folder = found;
        }
    }
    Err(Errno::ISDIR.into())
}

/// Whether a link is one of procfs (proc(5)).
fn is_link_of_proc(folder: &OwnedFd, stat: &Stat) -> io::Result<bool> {
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    Ok(is_link && fstatfs(folder)?.f_type == PROC_SUPER_MAGIC)
}

/// The components of a path; a full one begins at the root.
fn parts(path: &Path) -> VecDeque<OsString> {
    let is_name = |part: &Component<'_>| !matches!(part, Component::RootDir | Component::CurDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

/// Opens or creates the last component; a link is an error.
fn open_last(folder: &OwnedFd, name: OsString, mode: FileMode) -> io::Result<File> {
    let (flags, permissions) = flags(mode);
    Ok(openat(folder, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, permissions)?.into())
}

fn flags(mode: FileMode) -> (OFlags, Mode) {
    let create = OFlags::WRONLY | OFlags::CREATE;
    let (all, own) = (Mode::from_raw_mode(0o666), Mode::from_raw_mode(0o600));
    match mode {
        FileMode::Read => (OFlags::RDONLY, Mode::empty()),
        FileMode::Create => (create | OFlags::TRUNC, all),
        FileMode::CreatePrivate => (create | OFlags::TRUNC, own),
        FileMode::Append => (create | OFlags::APPEND, all),
        FileMode::AppendPrivate => (create | OFlags::APPEND, own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::{lchown, symlink};

    fn read(path: &Path) -> Result<String, io::ErrorKind> {
        let mut text = String::new();
        open_named(path, FileMode::Read).map_err(|error| error.kind())?.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn links_of_strangers_are_not_followed_and_those_of_root_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("real")).unwrap();
        std::fs::write(path("real/secret"), "s").unwrap();
        symlink("real", path("folder")).unwrap();
        symlink("../folder/./secret", path("real/link")).unwrap();
        symlink(path("real/link"), path("far")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("new", path("dangling")).unwrap();
        for name in ["real/secret", "folder/secret", "real/link", "folder/link", "far", "real/../far"] {
            assert_eq!(read(&path(name)).as_deref(), Ok("s"), "{name}");
        }
        let mut sent = rustix::pipe::pipe().unwrap();
        let there = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&sent.1));
        symlink(there, path("pipe")).unwrap();
        io::Write::write_all(&mut open_named(&path("pipe"), FileMode::Append).unwrap(), b"s").unwrap();
        sent.1 = std::fs::File::open("/dev/null").unwrap().into();
        assert_eq!(io::read_to_string(File::from(sent.0)).unwrap(), "s");
        assert_eq!(read(&path("loop")), Err(io::Error::from(Errno::LOOP).kind()));
        assert_eq!(read(&path("none")), Err(io::ErrorKind::NotFound));
        assert_eq!(read(&path("none/more")), Err(io::ErrorKind::NotFound));
        assert_eq!(read(&path("real/secret/more")), Err(io::Error::from(Errno::NOTDIR).kind()));
        drop(open_named(&path("dangling"), FileMode::Create).unwrap());
        assert!(path("new").exists(), "what a link leads to is made, as by open(2)");
        let found = open_named(&path("real"), FileMode::Append).unwrap_err().kind();
        assert_eq!(found, io::Error::from(Errno::ISDIR).kind());
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for name in ["folder", "far"] {
            lchown(path(name), Some(65534), None).unwrap();
        }
        for name in ["folder/secret", "far", "real/link"] {
            assert_eq!(read(&path(name)), Err(io::ErrorKind::PermissionDenied), "{name}");
            let created = open_named(&path(name), FileMode::Create);
            assert_eq!(created.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        assert_eq!(read(&path("real/secret")).as_deref(), Ok("s"), "it was not emptied");
    }
}
