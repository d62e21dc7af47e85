//! Files that may be renamed while they are written, as log rotation does.
use std::os::unix::fs::MetadataExt as _;

/// The device and the inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity(u64, u64);

impl FileIdentity {
    /// The file that has a name now, if there is one.
    pub(crate) fn from_path(path: &str) -> Option<FileIdentity> {
        std::fs::metadata(path).ok().map(|file| FileIdentity(file.dev(), file.ino()))
    }
}
