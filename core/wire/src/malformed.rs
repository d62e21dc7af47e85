//! What can be wrong with the lengths, fixed fields and checksum of a header.

use std::error::Error;
use std::fmt;

/// Why bytes are not the header they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// There are fewer bytes than the header has.
    Truncated,
    /// The version field names another version of IP.
    Version,
    /// The header length field is below the fixed part of the header.
    HeaderLength,
    /// The length field is less than the header's length, or more than the bytes that follow.
    Length,
    /// The header is for a protocol pair other than the view's.
    Protocol,
    /// The header's checksum is wrong.
    Checksum,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Truncated => "truncated header",
            Malformed::Version => "wrong IP version",
            Malformed::HeaderLength => "bad header length",
            Malformed::Length => "bad length",
            Malformed::Protocol => "unexpected protocol",
            Malformed::Checksum => "bad checksum",
        })
    }
}

impl Error for Malformed {}
