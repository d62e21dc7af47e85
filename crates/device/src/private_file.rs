//! Files with what passed through the router, which are nobody's business but the owner's.
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Creates a file that only its owner can read, mode 0600, or empties one that is there, whose mode stays.
pub fn create_private(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
