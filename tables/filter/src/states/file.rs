//! A file of states: a head, records, and an end by which it is known that all of it is there and
//! as it was written.
//!
//! | bytes | what |
//! |--:|---|
//! | 8 | `pfstate` and the version, `2` |
//! | 16 | the checksum of the rules that held |
//! | | records, each behind its length of 2 bytes |
//! | 2 | 0, where the next length would be |
//! | 8 | how many records there are |
//! | 8 | the FNV-1a hash of all bytes before it |
use super::dump::{DumpError, StateRecord, split_record};
use std::io::{self, Write};

const NAME: &[u8; 7] = b"pfstate";
const VERSION: u8 = b'2';
const HEAD: usize = NAME.len() + 1 + 16;
/// The length that is none: behind it is the end.
const END: [u8; 2] = [0; 2];

/// Writes a file of states.
pub struct DumpWriter<W> {
    out: W,
    hash: u64,
    states: u64,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a file; `checksum` is that of the rules that hold.
    pub fn new(out: W, checksum: [u8; 16]) -> io::Result<DumpWriter<W>> {
        let mut writer = DumpWriter { out, hash: FNV_START, states: 0 };
        writer.write_hashed(NAME)?;
        writer.write_hashed(&[VERSION])?;
        writer.write_hashed(&checksum)?;
        Ok(writer)
    }

    /// Adds records, each behind its length. What is cut short is an error, and not added.
    pub fn add_records(&mut self, records: &[u8]) -> Result<(), AddError> {
        let states = StateRecord::read_all(records).map_err(AddError::Records)?;
        self.states += states.len() as u64;
        self.write_hashed(records).map_err(AddError::Write)
    }

    /// Ends the file; says how many states are in it.
    pub fn finish(mut self) -> io::Result<u64> {
        self.write_hashed(&END)?;
        self.write_hashed(&self.states.to_be_bytes())?;
        self.write_hashed(&self.hash.to_be_bytes())?;
        self.out.flush()?;
        Ok(self.states)
    }

    fn write_hashed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash = hash(self.hash, bytes);
        self.out.write_all(bytes)
    }
}

/// Why records were not added to a file.
#[derive(Debug)]
pub enum AddError {
    /// The records are not valid.
    Records(DumpError),
    /// The file takes no more.
    Write(io::Error),
}

/// A file of states that was checked to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dump<'a> {
    /// The checksum of the rules that held.
    pub checksum: [u8; 16],
    /// How many states there are.
    pub states: u64,
    records: &'a [u8],
}

impl<'a> Dump<'a> {
    /// Checks a whole file: nothing of one is to be used of which something is missing or otherwise
    /// than it was written.
    pub fn read_checked(file: &'a [u8]) -> Result<Dump<'a>, DumpError> {
        let version = file.strip_prefix(NAME).ok_or(DumpError::Magic)?.first();
        match version {
            Some(&VERSION) => (),
            Some(other) => return Err(DumpError::Version(*other)),
            None => return Err(DumpError::Short(file.len())),
        }
        let checksum = file.get(HEAD - 16..).and_then(|rest| rest.first_chunk());
        let checksum = *checksum.ok_or(DumpError::Short(file.len()))?;
        let (records, states) = split_end(file)?;
        check_end(file, HEAD + records.len(), states)?;
        Ok(Dump { checksum, states, records })
    }

    /// The records, so many at a time at most.
    pub fn chunks(&self, most: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let all = rest;
            for _ in 0..most {
                rest = split_record(rest).map_or(rest, |(_, behind)| behind);
            }
            (!all.is_empty()).then(|| &all[..all.len() - rest.len()])
        })
    }
}

/// The records of a file without their end, and how many there are.
fn split_end(file: &[u8]) -> Result<(&[u8], u64), DumpError> {
    let (mut at, mut states) = (HEAD, 0);
    loop {
        let rest = &file[at..];
        if rest.starts_with(&END) {
            return Ok((&file[HEAD..at], states));
        }
        let (record, behind) = split_record(rest).ok_or(DumpError::Short(at))?;
        StateRecord::parse_record(record).ok_or(DumpError::Wrong(at))?;
        (at, states) = (file.len() - behind.len(), states + 1);
    }
}

/// Checks what follows the records of a file.
fn check_end(file: &[u8], end: usize, states: u64) -> Result<(), DumpError> {
    let numbers = &file[end + END.len()..];
    let (count, rest) = numbers.split_first_chunk().ok_or(DumpError::Short(end))?;
    let (sum, behind) = rest.split_first_chunk().ok_or(DumpError::Short(end))?;
    if !behind.is_empty() {
        return Err(DumpError::Behind(file.len() - behind.len()));
    }
    let written = &file[..file.len() - sum.len()];
    let is_whole =
        u64::from_be_bytes(*count) == states && u64::from_be_bytes(*sum) == hash(FNV_START, written);
    if is_whole { Ok(()) } else { Err(DumpError::Changed) }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: each byte counts, and its place.
fn hash(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::states::dump::tests::{state, wants};

    fn file(states: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = DumpWriter::new(&mut bytes, [9; 16]).unwrap();
        for id in 0..states {
            let wants = id.is_multiple_of(2).then(|| Box::new(wants()));
            let mut record = Vec::new();
            StateRecord { wants, ..state(id, id.is_multiple_of(3)) }.write_record(&mut record);
            writer.add_records(&record).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), states);
        bytes
    }

    #[test]
    fn a_file_is_read_in_parts_as_it_was_written() {
        for states in [0, 1, 7] {
            let bytes = file(states);
            let dump = Dump::read_checked(&bytes).unwrap();
            assert_eq!((dump.checksum, dump.states), ([9; 16], states));
            let parts: Vec<Vec<StateRecord>> =
                dump.chunks(3).map(|part| StateRecord::read_all(part).unwrap()).collect();
            assert!(parts.iter().all(|part| (1..=3).contains(&part.len())));
            let ids: Vec<u64> = parts.concat().iter().map(|state| state.id).collect();
            assert_eq!(ids, (0..states).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_file_cut_short_anywhere_is_refused() {
        let bytes = file(3);
        for length in 0..bytes.len() {
            let error = Dump::read_checked(&bytes[..length]).unwrap_err();
            let is_right = match length {
                0..7 => error == DumpError::Magic,
                _ => matches!(error, DumpError::Short(_)),
            };
            assert!(is_right, "{length}: {error}");
        }
    }

    #[test]
    fn a_file_with_any_byte_changed_is_refused() {
        let bytes = file(2);
        for at in 0..bytes.len() {
            for flip in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                assert!(Dump::read_checked(&changed).is_err(), "byte {at}");
            }
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(Dump::read_checked(&longer), Err(DumpError::Behind(bytes.len())));
        let other = [b"pfstate1", &bytes[8..]].concat();
        assert_eq!(Dump::read_checked(&other), Err(DumpError::Version(b'1')));
    }
}
