//! Files that elements write, over reloads of their configuration, and renames as log rotation does.
use std::os::unix::fs::MetadataExt as _;

/// A file that an element writes by a `W`.
pub(crate) struct OutputFile<W> {
    path: String,
    writer: Option<W>,
    /// Which file had the name when it was opened.
    identity: Option<FileIdentity>,
    /// Whether it is still to be opened, since the predecessor may be writing to it.
    is_pending: bool,
}

impl<W> OutputFile<W> {
    /// A file that is not open yet. `-` is standard output.
    pub(crate) fn new(path: String) -> OutputFile<W> {
        OutputFile { path, writer: None, identity: None, is_pending: false }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// What writes to it; none before it is open, and after [`close`](Self::close).
    pub(crate) fn writer(&mut self) -> Option<&mut W> {
        self.writer.as_mut()
    }

    /// Opens it when its element starts. With `is_replacing` only `check` is done, which must not change the
    /// file: it is for [`open_pending`](Self::open_pending) to open, once the predecessor has stopped.
    ///
    /// # Errors
    /// Those of `check` and `open`.
    pub(crate) fn start<E>(
        &mut self,
        is_replacing: bool,
        check: impl FnOnce(&str) -> Result<(), E>,
        open: impl FnOnce(&str) -> Result<W, E>,
    ) -> Result<(), E> {
        self.is_pending = true;
        match (is_replacing, self.path.as_str()) {
            (true, "-") => Ok(()),
            (true, path) => check(path),
            (false, _) => self.open_pending(open).map(drop),
        }
    }

    /// Opens it if that is to be done; says whether it did.
    ///
    /// # Errors
    /// Those of `open`, which is not tried again.
    pub(crate) fn open_pending<E>(&mut self, open: impl FnOnce(&str) -> Result<W, E>) -> Result<bool, E> {
        if !std::mem::take(&mut self.is_pending) {
            return Ok(false);
        }
        self.writer = Some(open(&self.path)?);
        self.identity = FileIdentity::from_path(&self.path);
        Ok(true)
    }

    /// Goes on with the file of a predecessor, unless its name is another file's by now. One that was closed
    /// after an error stays closed, as opening it would empty it.
    pub(crate) fn take_over(&mut self, old: &mut OutputFile<W>) {
        let is_same = old.path == self.path && old.identity == FileIdentity::from_path(&self.path);
        if is_same && !old.is_pending {
            (self.writer, self.identity) = (old.writer.take(), old.identity.take());
            self.is_pending = false;
        }
    }

    /// Writes no more to it.
    pub(crate) fn close(&mut self) {
        self.writer = None;
    }
}

/// The device and the inode of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity(u64, u64);

impl FileIdentity {
    /// The file that has a name now, if there is one.
    fn from_path(path: &str) -> Option<FileIdentity> {
        std::fs::metadata(path).ok().map(|file| FileIdentity(file.dev(), file.ino()))
    }
}
