//! Batches: a header, and records behind it.
//!
//! | bytes | header (numbers are big-endian) |
//! |---|---|
//! | 4 | `ARTX` |
//! | 2 | version, 1 |
//! | 2 | number of records |
//! | 4 | number of the machine that writes |
//! | 4 | 0; readers ignore it |
//! | 8 | sequence |
//! | 8 | time when it was sent, in microseconds since 1970 |

use crate::record::field;
use crate::{DecodeError, ExceptionRecord, RECORD_LEN};

const MAGIC: &[u8; 4] = b"ARTX";

/// The version of batches that this crate writes and reads.
pub const VERSION: u16 = 1;

/// The length of a batch's header.
pub const BATCH_HEADER_LEN: usize = 32;

/// The most records in a batch: more would not fit into 64 KiB, above which engines split messages.
pub const MAX_RECORDS: usize = 1000;

/// Who sent a batch, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// The machine that writes.
    pub machine: u32,
    /// Counts the batches of a machine, from the time of its start on, so that a reader sees that one is
    /// missing. In a copy of the whole state: the last batch that the copy includes.
    pub sequence: u64,
    /// The time of day when it was sent, in microseconds since 1970: for measuring lag, and for nothing else.
    pub sent_us: u64,
}

/// Collects records into the bytes of a batch.
#[derive(Debug)]
pub struct BatchWriter {
    bytes: Vec<u8>,
}

impl BatchWriter {
    /// An empty batch with room for `records`.
    pub fn new(header: BatchHeader, records: usize) -> BatchWriter {
        let mut bytes = Vec::with_capacity(BATCH_HEADER_LEN + records.min(MAX_RECORDS) * RECORD_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&header.machine.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&header.sequence.to_be_bytes());
        bytes.extend_from_slice(&header.sent_us.to_be_bytes());
        BatchWriter { bytes }
    }

    /// Appends a record, unless the batch is full; says whether it did.
    pub fn push(&mut self, record: &ExceptionRecord) -> bool {
        let has_room = self.len() < MAX_RECORDS;
        if has_room {
            self.bytes.extend_from_slice(&record.encode());
        }
        has_room
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        (self.bytes.len() - BATCH_HEADER_LEN) / RECORD_LEN
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The finished batch, header first.
    pub fn finish(mut self) -> Vec<u8> {
        // At most MAX_RECORDS, which fits.
        let records = self.len() as u16;
        self.bytes[6..8].copy_from_slice(&records.to_be_bytes());
        self.bytes
    }
}

/// A batch that came in: its header and length are checked, its records are not yet.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    header: BatchHeader,
    records: &'a [[u8; RECORD_LEN]],
}

impl<'a> Batch<'a> {
    /// Checks header and length.
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, DecodeError> {
        let Some((header, rest)) = bytes.split_at_checked(BATCH_HEADER_LEN) else {
            return Err(DecodeError::ShortHeader(bytes.len()));
        };
        if header[..4] != *MAGIC {
            return Err(DecodeError::Magic);
        }
        let version = u16::from_be_bytes(field(header, 4));
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let promised = u16::from_be_bytes(field(header, 6));
        if usize::from(promised) > MAX_RECORDS {
            return Err(DecodeError::TooManyRecords(promised));
        }
        let (records, tail) = rest.as_chunks::<RECORD_LEN>();
        if records.len() != usize::from(promised) || !tail.is_empty() {
            return Err(DecodeError::Length { records: promised, bytes: bytes.len() });
        }
        let header = BatchHeader {
            machine: u32::from_be_bytes(field(header, 8)),
            sequence: u64::from_be_bytes(field(header, 16)),
            sent_us: u64::from_be_bytes(field(header, 24)),
        };
        Ok(Batch { header, records })
    }

    /// Who sent it, and when.
    pub fn header(&self) -> BatchHeader {
        self.header
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Its records, each of which may be wrong.
    pub fn records(&self) -> impl Iterator<Item = Result<ExceptionRecord, DecodeError>> + use<'a> {
        self.records.iter().map(ExceptionRecord::decode)
    }
}
