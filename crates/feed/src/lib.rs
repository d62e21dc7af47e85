//! Routing tables from files: text as of [`artery_table::load`], MRT dumps of RFC 6396, and both compressed by gzip.
//!
//! It is a crate of its own to keep the libraries that read foreign formats, and what they depend on, out of
//! `artery-table`. Files are read to their end before anybody sees a route, so that damage leaves every table as it
//! was; the error names the file, the place of the damage, and what to do about it.
//!
//! ```no_run
//! let routes = artery_feed::read("rib.20261101.0000.gz".as_ref())?;
//! println!("{} IPv4 routes by {} next hops", routes.v4.len(), routes.next_hops.len());
//! # Ok::<(), artery_feed::FeedError>(())
//! ```
#![forbid(unsafe_code)]

mod mrt;

use artery_table::load::{self, Problem, Routes, TextError};
use flate2::bufread::MultiGzDecoder;
pub use mrt::MrtError;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Why a file is not taken as a table.
#[derive(Debug)]
pub struct FeedError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What can be wrong with a file.
#[derive(Debug)]
pub enum Cause {
    /// It could not be read, or what is compressed in it is damaged.
    Io(io::Error),
    /// It is compressed by something else than gzip.
    Compression(&'static str),
    /// A line of text is damaged.
    Line {
        /// Number of the line, from 1 on.
        line: usize,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A record of an MRT dump is damaged.
    Record {
        /// Where the record begins, in bytes of the uncompressed file.
        byte: u64,
        /// What is wrong with it.
        problem: MrtError,
    },
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match &self.cause {
            Cause::Io(error) => write!(f, "{file}: {error}"),
            Cause::Compression(tool) => write!(f, "{file}: unpack it with {tool} first: only gzip is read"),
            Cause::Line { line, problem } => write!(f, "{file}:{line}: {problem}"),
            Cause::Record { byte, problem } => write!(f, "{file}: record at byte {byte}: {problem}"),
        }
    }
}

impl std::error::Error for FeedError {}

/// Reads a file of either format, compressed or not.
pub fn read(file: &Path) -> Result<Routes, FeedError> {
    let blame = |cause| FeedError { file: file.into(), cause };
    let opened = File::open(file).map_err(|error| blame(Cause::Io(error)))?;
    read_from(BufReader::with_capacity(1 << 16, opened)).map_err(blame)
}

/// Reads what a file holds, of either format, compressed or not.
pub fn read_from(mut from: impl BufRead) -> Result<Routes, Cause> {
    match from.fill_buf().map_err(Cause::Io)? {
        [0x1f, 0x8b, ..] => unpacked(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(from))),
        _ => unpacked(from),
    }
}

fn unpacked(mut from: impl BufRead) -> Result<Routes, Cause> {
    let start = from.fill_buf().map_err(Cause::Io)?;
    if let Some(tool) = compressed_by(start) {
        return Err(Cause::Compression(tool));
    }
    if mrt::looks_like(start) {
        return mrt::read(from);
    }
    load::text(from).map_err(|error| match error {
        TextError::Io(error) => Cause::Io(error),
        TextError::Line { line, problem } => Cause::Line { line, problem },
    })
}

/// What unpacks a file that starts like this.
fn compressed_by(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => Some("gunzip"),
        [b'B', b'Z', b'h', ..] => Some("bunzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("unxz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("unzstd"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_and_plain_files_of_both_formats_are_the_same_routes() {
        for plain in [b"10.0.0.0/8 192.0.2.1\n2001:db8::/32 192.0.2.2\n".to_vec(), mrt::tests::dump()] {
            let routes = read_from(&plain[..]).unwrap();
            assert!(routes.len() >= 2);
            assert_eq!(read_from(&gzip(&plain)[..]).unwrap(), routes);
            // Two compressed files one after the other are one file.
            let (one, two) = (gzip(&plain[..20]), gzip(&plain[20..]));
            assert_eq!(read_from(&[one, two].concat()[..]).unwrap(), routes);
        }
    }

    #[test]
    fn a_compressed_file_cut_off_anywhere_is_refused() {
        let packed = gzip(b"10.0.0.0/8 1\n11.0.0.0/8 2\n");
        for end in 2..packed.len() {
            assert!(read_from(&packed[..end]).is_err(), "{end} of {} bytes", packed.len());
        }
    }

    #[test]
    fn errors_name_the_file_the_place_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let error = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            read(&path).unwrap_err().to_string()
        };
        assert!(error("a.txt", b"10/8\n10/99\n").contains("a.txt:2: \"10/99\" is not a prefix"));
        assert!(error("b.mrt", &mrt::tests::dump()[..100]).contains("b.mrt: record at byte "));
        assert!(error("c.bz2", b"BZh91AY").contains("unpack it with bunzip2 first"));
        let missing = read(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("missing: No such file"), "{missing}");
    }

    #[test]
    fn an_empty_file_is_an_empty_table() {
        assert!(read_from(&b""[..]).unwrap().is_empty());
    }
}
