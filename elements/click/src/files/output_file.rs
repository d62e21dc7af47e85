//! Files that elements write, over reloads of their configuration, and renames as log rotation does.
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// A file that an element writes by a `W`.
pub(crate) struct OutputFile<W> {
    path: String,
    writer: Option<W>,
    /// Which file had the name when it was opened.
    identity: Option<FileIdentity>,
    /// Whether it is still to be opened, since the predecessor may be writing to it.
    is_pending: bool,
    /// Whether it was opened, here or by a predecessor.
    has_been_opened: bool,
}

impl<W> OutputFile<W> {
    /// A file that is not open yet.
    pub(crate) fn new(path: String) -> OutputFile<W> {
        OutputFile { path, writer: None, identity: None, is_pending: false, has_been_opened: false }
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
        if is_replacing { check(&self.path) } else { self.open_pending(open).map(drop) }
    }

    /// Opens it if that is to be done; says whether it did.
    ///
    /// # Errors
    /// Those of `open`, which only a successor tries again.
    pub(crate) fn open_pending<E>(&mut self, open: impl FnOnce(&str) -> Result<W, E>) -> Result<bool, E> {
        if !std::mem::take(&mut self.is_pending) {
            return Ok(false);
        }
        self.writer = Some(open(&self.path)?);
        self.identity = FileIdentity::from_path(&self.path);
        self.has_been_opened = true;
        Ok(true)
    }

    /// Goes on with the file of a predecessor, unless its name is another file's by now. One that was closed
    /// after an error stays closed, as opening it would empty it.
    pub(crate) fn take_over(&mut self, old: &mut OutputFile<W>) {
        let is_same = old.path == self.path && old.identity == FileIdentity::from_path(&self.path);
        if is_same && old.has_been_opened {
            (self.writer, self.identity) = (old.writer.take(), old.identity.take());
            (self.is_pending, self.has_been_opened) = (false, true);
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

/// The system's message about a file, without the number of the error.
pub(crate) fn io_message(path: &str, error: &io::Error) -> String {
    format!("{path}: {}", artery_device::system_message(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    type Opened = Result<File, io::Error>;

    fn refuse(_: &str) -> Opened {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn create(path: &str) -> Opened {
        File::create(path)
    }

    /// The file of an element that replaces another, and that one's.
    fn successor(old: &mut OutputFile<File>) -> OutputFile<File> {
        let mut new = OutputFile::new(old.path.clone());
        new.start(true, |_| Ok(()), create).unwrap();
        new.take_over(old);
        new
    }

    #[test]
    fn a_file_that_could_not_be_opened_late_is_opened_by_the_next_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x").to_str().unwrap().to_string();
        let mut never_opened = OutputFile::new(path.clone());
        let mut first = successor(&mut never_opened);
        assert!(first.open_pending(refuse).is_err() && first.writer().is_none());
        assert!(!first.open_pending(create).unwrap(), "once is enough for one element");
        let mut second = successor(&mut first);
        assert!(second.open_pending(create).unwrap() && second.writer().is_some());
        std::fs::write(&path, "kept").unwrap();
        let mut third = successor(&mut second);
        assert!(!third.open_pending(create).unwrap() && third.writer().is_some());
        // After an error in writing.
        third.close();
        let mut fourth = successor(&mut third);
        assert!(!fourth.open_pending(create).unwrap() && fourth.writer().is_none());
        let mut fifth = successor(&mut fourth);
        assert!(!fifth.open_pending(create).unwrap() && fifth.writer().is_none());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    }

    #[test]
    fn every_file_of_a_replacement_is_checked_and_none_is_opened_at_its_start() {
        for path in ["-", "x"] {
            let mut file = OutputFile::<File>::new(path.into());
            let mut checked = Vec::new();
            let check = |path: &str| {
                checked.push(path.to_string());
                Ok::<(), ()>(())
            };
            file.start(true, check, |_| unreachable!("it is only checked")).unwrap();
            assert_eq!((checked, file.writer().is_none()), (vec![path.to_string()], true));
            assert!(file.start(true, |_| Err(()), |_| unreachable!("it is only checked")).is_err());
        }
    }
}
