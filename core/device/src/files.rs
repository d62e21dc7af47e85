//! Files of this machine: opened by this process, or by its helper where it may not open them itself
//! ([`privsep`]).
use crate::privsep::{self, FileMode, Request};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Longest file that is read as a whole, in bytes, such as rules and lists of addresses: devices and pipes
/// may have no end.
const LONGEST: u64 = 1 << 28;

/// Opens a file to read it.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    open_as(path.as_ref(), FileMode::Read)
}

/// The bytes of a file, 256 MiB at most.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_whole(open(path)?)
}

/// What can be read, 256 MiB at most, after which the error is [`io::ErrorKind::FileTooLarge`].
pub fn read_whole(input: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let count = input.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if count as u64 > LONGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The text of a file, 256 MiB at most.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "this is not text in UTF-8"))
}

/// Creates a file, or empties an existing one.
pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
    open_as(path.as_ref(), FileMode::Create)
}

/// The same for a file that only its owner can read, mode 0600, such as one with captured packets. An
/// existing file keeps its mode.
pub fn create_private(path: impl AsRef<Path>) -> io::Result<File> {
    open_as(path.as_ref(), FileMode::CreatePrivate)
}

/// Whether [`create_private`] would succeed, without changing what the file holds; one that does not exist is
/// created, empty. A pipe is not opened: its reader would see an end.
pub fn check_writable(path: &str) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(file) if !file.is_file() && !file.is_dir() => Ok(()),
        _ => append_private(path).map(drop),
    }
}

/// Opens a file to write behind its end, or creates it.
pub fn append(path: impl AsRef<Path>) -> io::Result<File> {
    open_as(path.as_ref(), FileMode::Append)
}

/// The same; a file that is created is of mode 0600.
pub fn append_private(path: impl AsRef<Path>) -> io::Result<File> {
    open_as(path.as_ref(), FileMode::AppendPrivate)
}

/// Moves a file that is written to its name with `.old` at the end.
pub fn rename_to_old(path: &Path) -> io::Result<()> {
    match privsep::helper() {
        Some(helper) => helper.change_file(path, |path| Request::RenameToOld { path }),
        None => std::fs::rename(path, old_name(path)),
    }
}

/// Removes a file of this run: a socket or a token.
pub fn remove(path: &Path) -> io::Result<()> {
    match privsep::helper() {
        Some(helper) => helper.change_file(path, |path| Request::RemoveFile { path }),
        None => std::fs::remove_file(path),
    }
}

fn open_as(path: &Path, mode: FileMode) -> io::Result<File> {
    let Some(helper) = privsep::helper() else {
        if let Ok(path) = std::path::absolute(path) {
            privsep::note_opened(&path, mode.is_written());
        }
        return options(mode).open(path);
    };
    match options(mode).open(path) {
        // The refusal is the sandbox's, or that of the file's mode: the helper finds out which.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match own_descriptor(path) {
            Some(descriptor) => descriptor,
            None => helper.open(path, mode),
        },
        result => result,
    }
}

/// A descriptor of this process that a name such as `/dev/stdout` means: in the helper it would mean
/// one of the helper's.
fn own_descriptor(path: &Path) -> Option<io::Result<File>> {
    let name = path.to_str()?;
    let number = ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|folder| name.strip_prefix(folder));
    let copied = match (number, name) {
        (Some("0"), _) | (_, "/dev/stdin") => io::stdin().as_fd().try_clone_to_owned(),
        (Some("1"), _) | (_, "/dev/stdout") => io::stdout().as_fd().try_clone_to_owned(),
        (Some("2"), _) | (_, "/dev/stderr") => io::stderr().as_fd().try_clone_to_owned(),
        (Some(_), _) => Err(io::ErrorKind::PermissionDenied.into()),
        (None, _) => return None,
    };
    Some(copied.map(File::from))
}

/// The name of a file that another one took the place of.
pub(crate) fn old_name(path: &Path) -> std::ffi::OsString {
    let mut old = path.to_owned().into_os_string();
    old.push(".old");
    old
}

/// How a file is opened.
pub(crate) fn options(mode: FileMode) -> OpenOptions {
    let mut options = OpenOptions::new();
    match mode {
        FileMode::Read => options.read(true),
        FileMode::Create => options.write(true).create(true).truncate(true),
        FileMode::CreatePrivate => options.write(true).create(true).truncate(true).mode(0o600),
        FileMode::Append => options.append(true).create(true),
        FileMode::AppendPrivate => options.append(true).create(true).mode(0o600),
    };
    options
}
