//! Why bytes are not a batch.

use crate::{BATCH_HEADER_LEN, MAX_RECORDS, RECORD_LEN, VERSION};

/// What is wrong with the bytes of a batch or a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There are fewer bytes than a header has.
    #[error("a batch of {0} bytes, shorter than its header of {header}", header = BATCH_HEADER_LEN)]
    ShortHeader(usize),
    /// The first bytes are not those of a batch.
    #[error("not a batch of exception records; is another program publishing under the fleet's name?")]
    Magic,
    /// The batch is of a version that this program can't read.
    #[error("a batch of version {0}, not {known}; upgrade the older machine", known = VERSION)]
    Version(u16),
    /// The header promises more records than a batch may have.
    #[error("a batch of {0} records (limit {limit})", limit = MAX_RECORDS)]
    TooManyRecords(u16),
    /// The length is not that of the promised records.
    #[error(
        "a batch of {records} records has {bytes} bytes, not {header} and {each} for each record",
        header = BATCH_HEADER_LEN, each = RECORD_LEN
    )]
    Length {
        /// The number of records that the header promises.
        records: u16,
        /// The length of the whole batch.
        bytes: usize,
    },
    /// A record's change is neither of the two that are known.
    #[error("a record of the unknown kind {0}")]
    Kind(u8),
    /// One address of the flow is an IPv4 address, and the other one is not.
    #[error("a flow between an IPv4 and an IPv6 address")]
    MixedFamilies,
}
