//! Routing tables from files: text as of [`artery_lpm::load`], MRT dumps of RFC 6396, and both compressed
//! by gzip.
//!
//! It is a crate of its own to keep the libraries that read foreign formats, and what they depend on, out of
//! `artery-lpm`. Files are read to their end before anybody sees a route, so that damage leaves every table
//! as it was; the error names the file, the place of the damage, and what to do about it.
//!
//! ```no_run
//! let routes = artery_feed::read("rib.20261101.0000.gz".as_ref())?;
//! println!("{} IPv4 routes by {} next hops", routes.v4.len(), routes.next_hops.len());
//! # Ok::<(), artery_feed::FeedError>(())
//! ```
#![forbid(unsafe_code)]

mod mrt;
mod packed;

use artery_lpm::load::{self, Problem, Routes, TextError};
use flate2::bufread::MultiGzDecoder;
pub use mrt::MrtError;
pub use packed::open_packed;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Why a file is not taken as a table.
#[derive(Debug)]
pub struct FeedError {
    /// Path of the file that was read.
    pub file: PathBuf,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What can be wrong with a file.
#[derive(Debug)]
pub enum Cause {
    /// It could not be read.
    Io(io::Error),
    /// What gzip packed in it is damaged.
    Packed {
        /// How many bytes could be unpacked before.
        byte: u64,
        /// What the unpacking stumbled over; of kind [`io::ErrorKind::UnexpectedEof`] where the
        /// file is cut off.
        error: io::Error,
    },
    /// It unpacks to more than a table can be.
    Expands {
        /// How many bytes were unpacked until then.
        byte: u64,
    },
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
            Cause::Packed { byte, error } if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(
                    f,
                    "{file}: the file ends after {byte} unpacked bytes, too early; fetch the file again"
                )
            }
            Cause::Packed { byte, error } => {
                write!(f, "{file}: damaged after {byte} unpacked bytes: {error}; fetch the file again")
            }
            Cause::Expands { byte } => write!(
                f,
                "{file}: unpacks to more than {MOST_EXPANSION} times its size (after {byte} bytes); no table \
                 does: fetch the file again, or unpack it first"
            ),
            Cause::Compression(tool) => write!(f, "{file}: unpack it with {tool} first: only gzip is read"),
            Cause::Line { line, problem } => write!(f, "{file}:{line}: {problem}"),
            Cause::Record { byte, problem } => write!(f, "{file}: record at byte {byte}: {problem}"),
        }
    }
}

impl std::error::Error for FeedError {}

/// Reads a file of either format, compressed or not.
pub fn read(file: &Path) -> Result<Routes, FeedError> {
    read_opened(file, File::open(file))
}

/// The same of a file that was opened, or could not be.
pub fn read_opened(file: &Path, opened: io::Result<File>) -> Result<Routes, FeedError> {
    let blame = |cause| FeedError { file: file.into(), cause };
    let opened = opened.map_err(|error| blame(Cause::Io(error)))?;
    read_from(BufReader::with_capacity(1 << 16, opened)).map_err(blame)
}

/// Reads what a file holds, of either format, compressed or not.
pub fn read_from(mut from: impl BufRead) -> Result<Routes, Cause> {
    match from.fill_buf().map_err(Cause::Io)? {
        [0x1f, 0x8b, ..] => load_gzip(from),
        _ => load_unpacked(from),
    }
}

/// How many times its size a file may become. Dumps of full tables become about ten times as large.
const MOST_EXPANSION: u64 = 100;
/// Up to this many unpacked bytes the expansion is not limited.
const FREE_EXPANSION: u64 = 64 << 20;

fn load_gzip(from: impl BufRead) -> Result<Routes, Cause> {
    let mut unpacked_bytes = Unpacked { from: MultiGzDecoder::new(Packed { from, bytes: 0 }), bytes: 0 };
    let outcome = load_unpacked(BufReader::with_capacity(1 << 16, &mut unpacked_bytes));
    let byte = unpacked_bytes.bytes;
    outcome.map_err(|cause| match cause {
        Cause::Io(_) if unpacked_bytes.expands_too_much() => Cause::Expands { byte },
        Cause::Io(error) if is_damage(&error) => Cause::Packed { byte, error },
        other => other,
    })
}

/// Whether the unpacking failed at what it read; else the reading did.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, UnexpectedEof};
    error.raw_os_error().is_none() && matches!(error.kind(), InvalidInput | UnexpectedEof)
}

/// A compressed source that counts the bytes that were taken from it.
struct Packed<R> {
    from: R,
    bytes: u64,
}

impl<R: BufRead> BufRead for Packed<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }
    fn consume(&mut self, count: usize) {
        self.bytes += count as u64;
        self.from.consume(count);
    }
}

impl<R: BufRead> Read for Packed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// What is unpacked of it: counted, and an error where it becomes too much.
struct Unpacked<R> {
    from: MultiGzDecoder<Packed<R>>,
    bytes: u64,
}

impl<R> Unpacked<R> {
    fn expands_too_much(&self) -> bool {
        self.bytes > FREE_EXPANSION && self.bytes / MOST_EXPANSION > self.from.get_ref().bytes
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        self.bytes += count as u64;
        if self.expands_too_much() { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(count) }
    }
}

fn load_unpacked(mut from: impl BufRead) -> Result<Routes, Cause> {
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
        gzip_at(Compression::fast(), bytes)
    }

    fn gzip_at(level: Compression, bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), level);
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
    fn a_compressed_file_cut_off_anywhere_is_refused_with_the_place() {
        // Bytes of gzip's header, of a stored block's header and of gzip's end (RFC 1951, 3.2.4, RFC 1952,
        // 2.3).
        const HEADER: usize = 10;
        const BLOCK: usize = 5;
        for plain in [b"10.0.0.0/8 1\n11.0.0.0/8 2\n".to_vec(), mrt::tests::dump()] {
            let packed = gzip_at(Compression::none(), &plain);
            for end in 2..packed.len() {
                let expected = end.saturating_sub(HEADER + BLOCK).min(plain.len()) as u64;
                match read_from(&packed[..end]).unwrap_err() {
                    Cause::Packed { byte, error } => {
                        assert_eq!((byte, error.kind()), (expected, io::ErrorKind::UnexpectedEof), "{end}")
                    }
                    other => panic!("{end} of {} bytes: {other:?}", packed.len()),
                }
            }
        }
    }

    #[test]
    fn damage_in_a_compressed_file_has_a_place_behind_the_parts_before_it() {
        let (one, two) = (gzip(b"10.0.0.0/8 1\n"), gzip(b"11.0.0.0/8 2\n"));
        let place = |bytes: &[u8]| match read_from(bytes) {
            Err(Cause::Packed { byte, error }) => (byte, error.kind()),
            other => panic!("{other:?}"),
        };
        let mut sum = two.clone();
        let at = sum.len() - 8;
        sum[at] ^= 1;
        assert_eq!(place(&[&one[..], &sum].concat()), (26, io::ErrorKind::InvalidInput));
        assert_eq!(place(&[&one[..], b"10.0.0.0/8 plain"].concat()), (13, io::ErrorKind::InvalidInput));
        assert_eq!(place(&[&one[..], &two[..5]].concat()), (13, io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_compressed_file_that_expands_without_end_is_refused() {
        let comments = format!("#{:100}\n", "").repeat(1 << 13);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(b"10.0.0.0/8 1\n").unwrap();
        (0..128).for_each(|_| encoder.write_all(comments.as_bytes()).unwrap());
        match read_from(&encoder.finish().unwrap()[..]).unwrap_err() {
            Cause::Expands { byte } => assert!((64 << 20..65 << 20).contains(&byte), "{byte}"),
            other => panic!("{other:?}"),
        }
        let error = FeedError { file: "bomb.gz".into(), cause: Cause::Expands { byte: 70_000_000 } };
        let expected =
            "bomb.gz: unpacks to more than 100 times its size (after 70000000 bytes); no table does: ";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_compressed_file_of_few_bytes_may_become_a_hundred_times_as_large() {
        let lines = "10.0.0.0/8 1\n".repeat(100_000);
        assert!(lines.len() > 100 * gzip(lines.as_bytes()).len(), "or the test says nothing");
        assert_eq!(read_from(&gzip(lines.as_bytes())[..]).unwrap().len(), 1);
    }

    /// A file that can't be read further.
    struct Broken(i32);

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(self.0))
        }
    }

    #[test]
    fn a_compressed_file_that_cannot_be_read_is_not_called_damaged() {
        let packed = gzip(b"10.0.0.0/8 1\n11.0.0.0/8 2\n");
        // EIO, and EINVAL, whose kind is the unpacking's too.
        for code in [5, 22] {
            let from = BufReader::new(packed[..20].chain(Broken(code)));
            match read_from(from).unwrap_err() {
                Cause::Io(error) => assert_eq!(error.raw_os_error(), Some(code)),
                other => panic!("{other:?}"),
            }
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
        let packed = gzip_at(Compression::none(), b"10.0.0.0/8 1\n11.0.0.0/8 2\n");
        let cut = error("cut.gz", &packed[..packed.len() - 9]);
        let expected = "cut.gz: the file ends after 25 unpacked bytes, too early; fetch the file again";
        assert!(cut.ends_with(expected), "{cut}");
        let bad = error("bad.gz", &[&packed[..], b"x"].concat());
        assert!(bad.contains("bad.gz: ") && bad.ends_with("; fetch the file again"), "{bad}");
        let bad = error("sum.gz", &[&packed[..packed.len() - 1], b"x"].concat());
        assert!(bad.contains("sum.gz: damaged after 26 unpacked bytes: "), "{bad}");
        assert!(bad.ends_with("; fetch the file again"), "{bad}");
        let missing = read(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("missing: No such file"), "{missing}");
    }

    #[test]
    fn an_empty_file_is_an_empty_table() {
        assert!(read_from(&b""[..]).unwrap().is_empty());
    }
}
