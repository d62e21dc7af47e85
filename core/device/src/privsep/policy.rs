//! What a helper does for its router, and what it refuses.
use super::message::{FileMode, FileRefusal};
use super::open::{open_beneath, open_named};
use crate::files::old_name;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

/// Most files, and most interfaces, that are kept in mind.
pub(super) const MOST_FILES: usize = 4096;

/// What a router will need, as it declares to its helper at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelperLimits {
    /// Files that may be opened, and whether to write.
    pub files: Vec<(PathBuf, bool)>,
    /// Files that may be removed: sockets and tokens of this run.
    pub removable: Vec<PathBuf>,
    /// Folders in which every file may be opened, to read and to write.
    pub folders: Vec<PathBuf>,
    /// Folders, and what the names of files in them begin with that may be read.
    pub patterns: Vec<(PathBuf, String)>,
    /// Whether interfaces may become ports that were none when the helper was locked: where
    /// the configuration can change.
    pub new_ports: bool,
}

/// Most bytes of the names of all files in a message.
const MOST_NAMES: usize = 100_000;
/// Bytes that a name takes in a message besides its own length.
const NAME_OVERHEAD: usize = 16;

impl HelperLimits {
    /// Leaves out names that a message can't hold: those that are no text, and those after too many.
    pub(super) fn shorten(&mut self) {
        let mut bytes = 0;
        self.files.retain(|(path, _)| {
            bytes += path.as_os_str().len() + NAME_OVERHEAD;
            path.to_str().is_some() && bytes <= MOST_NAMES
        });
        self.removable.retain(|path| path.to_str().is_some());
    }
}

/// What may be done with files.
#[derive(Debug)]
pub(super) struct FilePolicy {
    /// Whether each may be written.
    named: HashMap<PathBuf, bool>,
    removable: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    patterns: Vec<(PathBuf, String)>,
    is_locked: bool,
}

impl FilePolicy {
    pub(super) fn new(limits: HelperLimits) -> FilePolicy {
        let full = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let mut policy = FilePolicy {
            named: HashMap::new(),
            removable: limits.removable.into_iter().map(full).collect(),
            // As they were written, and as the kernel has them: '..' and links in a folder's own name mean no
            // other one.
            folders: limits
                .folders
                .into_iter()
                .flat_map(|path| [path.canonicalize().ok(), Some(full(path))])
                .flatten()
                .collect(),
            patterns: limits.patterns.into_iter().map(|(folder, start)| (full(folder), start)).collect(),
            is_locked: false,
        };
        limits.files.into_iter().for_each(|(path, is_written)| policy.allow_path(full(path), is_written));
        policy.removable.clone().into_iter().for_each(|path| policy.allow_path(path, false));
        policy
    }

    fn allow_path(&mut self, path: PathBuf, is_written: bool) {
        if self.named.len() < MOST_FILES || self.named.contains_key(&path) {
            *self.named.entry(path).or_default() |= is_written;
        }
    }

    /// Closes the list of files.
    pub(super) fn lock(&mut self) {
        self.is_locked = true;
    }

    /// How a file may be opened whose full path is given. Opening a file before the policy is
    /// locked also names it.
    pub(super) fn allow(&mut self, path: &Path, mode: FileMode) -> Result<AllowedOpen, FileRefusal> {
        if !self.is_locked {
            self.allow_path(path.to_owned(), mode.is_written());
        }
        if self.is_named(path, mode) {
            return Ok(AllowedOpen { path: path.to_owned(), mode, beneath: None });
        }
        check_path(path)?;
        let folder = self.folders.iter().find(|folder| is_inside(path, folder));
        let beneath = Some(folder.ok_or(FileRefusal::Outside)?.clone());
        Ok(AllowedOpen { path: path.to_owned(), mode, beneath })
    }

    fn is_named(&self, path: &Path, mode: FileMode) -> bool {
        let by_pattern = || {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let fits = |(folder, start): &(PathBuf, String)| {
                path.parent() == Some(folder) && name.starts_with(start.as_str())
            };
            !mode.is_written() && self.patterns.iter().any(fits)
        };
        let is_named = self.named.get(path).is_some_and(|may_write| *may_write || !mode.is_written());
        is_named || check_path(path).is_ok() && by_pattern()
    }

    /// Moves a file that is written to its name with `.old` at the end.
    pub(super) fn rename_to_old(&self, path: &Path) -> Result<(), FileRefusal> {
        if !self.named.get(path).is_some_and(|may_write| *may_write) {
            return Err(FileRefusal::Outside);
        }
        Ok(std::fs::rename(path, old_name(path))?)
    }

    /// Removes a file that was declared removable.
    pub(super) fn remove(&self, path: &Path) -> Result<(), FileRefusal> {
        match self.removable.iter().any(|known| known == path) {
            true => Ok(std::fs::remove_file(path)?),
            false => Err(FileRefusal::Outside),
        }
    }
}

/// A file that may be opened.
#[derive(Clone, Debug)]
pub(super) struct AllowedOpen {
    path: PathBuf,
    mode: FileMode,
    /// The folder that it must lie in.
    beneath: Option<PathBuf>,
}

impl AllowedOpen {
    /// Whether opening it may wait for another process at the other end.
    pub(super) fn may_wait(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_fifo())
    }

    pub(super) fn open(&self) -> Result<File, FileRefusal> {
        Ok(match &self.beneath {
            Some(folder) => open_beneath(folder, &self.path, self.mode)?,
            None => open_named(&self.path, self.mode)?,
        })
    }
}

/// Refuses a path that is not a full one, or goes up.
fn check_path(path: &Path) -> Result<(), FileRefusal> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(is_plain) { Ok(()) } else { Err(FileRefusal::Outside) }
}

/// Whether a path is that of something in a folder.
fn is_inside(path: &Path, folder: &Path) -> bool {
    path != folder && path.starts_with(folder)
}

/// The devices that a helper made, and the interfaces that are ports.
#[derive(Debug, Default)]
pub(super) struct InterfacePolicy {
    /// By name and number, as below.
    made: Vec<(String, u32)>,
    /// By name and number: one that is made again has another number, one that is renamed another name.
    ports: Vec<(String, u32)>,
    is_locked: bool,
    new_ports: bool,
}

impl InterfacePolicy {
    pub(super) fn new(new_ports: bool) -> InterfacePolicy {
        InterfacePolicy { new_ports, ..InterfacePolicy::default() }
    }

    pub(super) fn lock(&mut self) {
        self.is_locked = true;
    }

    /// Whether there may be ports that there are not yet.
    pub(super) fn may_grow(&self) -> bool {
        !self.is_locked || self.new_ports
    }

    /// Whether a queue of a TAP or TUN device may be opened; `existing` is the number of the interface that
    /// has the name. Once the router takes packets, a device that another program made is never taken.
    pub(super) fn may_open_tap(&self, name: &str, existing: Option<u32>) -> bool {
        match existing {
            Some(index) => !self.is_locked || self.is_made(index),
            None => self.may_grow() || self.made.iter().any(|(known, _)| known == name),
        }
    }

    /// Notes a device that the helper made.
    pub(super) fn record_device(&mut self, name: &str, index: u32) {
        if !self.is_made(index) && self.made.len() < MOST_FILES {
            self.made.push((name.to_owned(), index));
        }
    }

    /// Whether the host's side of an interface may be changed: of those that the helper made.
    pub(super) fn is_made(&self, index: u32) -> bool {
        self.made.iter().any(|(_, number)| *number == index)
    }

    /// Whether an interface may be a port. One that may is noted.
    pub(super) fn may_be_port(&mut self, name: &str, index: u32) -> bool {
        let is_port = self.ports.iter().any(|(known, number)| known == name || *number == index);
        let may = is_port || self.may_grow() || self.is_made(index);
        let port = (name.to_owned(), index);
        if may && !self.ports.contains(&port) && self.ports.len() < MOST_FILES {
            self.ports.push(port);
        }
        may
    }
}
