//! Classic pcap files, read and written without a library.
//!
//! A file is a header of 24 bytes and records, each with a header of 16. Both byte orders are read, times in
//! micro- and nanoseconds, and the longer record headers of old Linux tcpdumps. pcapng
//! is recognised and refused.
mod link_type;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use link_type::LinkType;
pub use read::{PcapReader, Record};
pub use write::{PcapOptions, PcapWriter};

/// First word of a file with times in microseconds.
const MAGIC_MICRO: u32 = 0xa1b2_c3d4;
/// First word of a file with times in nanoseconds.
const MAGIC_NANO: u32 = 0xa1b2_3c4d;
/// First word of a file whose record headers are eight bytes longer.
const MAGIC_LONG: u32 = 0xa1b2_cd34;
/// First word of a pcapng file.
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
/// Bytes of the file header.
const FILE_HEADER: usize = 24;
/// Bytes of a record header.
const RECORD_HEADER: usize = 16;
/// Captured bytes of a record beyond which the file is taken for damaged.
const MAX_RECORD: u32 = 1 << 20;
/// The limit that a file without one of its own declares, as libpcap does.
const WHOLE: u32 = 262_144;
