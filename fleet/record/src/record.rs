//! One record: that a flow is an exception, or no longer one.
//!
//! | bytes | field (numbers are big-endian) |
//! |---|---|
//! | 1 | kind: 1 the flow is an exception, 2 it no longer is |
//! | 1 | protocol |
//! | 2 | 0; readers ignore it |
//! | 2, 2 | source port, destination port |
//! | 8 | revision of the membership |
//! | 4 | member |
//! | 4 | epoch |
//! | 4 | idle time in milliseconds |
//! | 4 | 0; readers ignore it |
//! | 16, 16 | source, destination; those of IPv4 as mapped addresses |

use std::net::Ipv6Addr;

use crate::{Addresses, DecodeError, FlowKey};

/// The length of a record.
pub const RECORD_LEN: usize = 64;

/// Where a flow goes, although the present table would put it elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExceptionRecord {
    /// Whether this begins or ends.
    pub change: Change,
    /// Which flow it is.
    pub key: FlowKey,
    /// The revision of the fleet's membership by which the flow is an exception.
    pub revision: u64,
    /// The number that the fleet's configuration gives the member; it is never given to another member.
    pub member: u32,
    /// How often the flow has changed its member or machine: of two records that with the higher epoch
    /// is the valid one.
    pub epoch: u32,
    /// How long the flow was idle when the record was written, in milliseconds.
    pub idle_ms: u32,
}

/// What a record says about its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The flow is an exception from now on.
    Set,
    /// The flow has ended, or is where the table puts it.
    Removed,
}

impl Change {
    fn kind(self) -> u8 {
        match self {
            Change::Set => 1,
            Change::Removed => 2,
        }
    }

    fn from_kind(kind: u8) -> Result<Change, DecodeError> {
        match kind {
            1 => Ok(Change::Set),
            2 => Ok(Change::Removed),
            other => Err(DecodeError::Kind(other)),
        }
    }
}

impl ExceptionRecord {
    /// The record as bytes.
    pub fn encode(&self) -> [u8; RECORD_LEN] {
        let [source, destination] = self.key.addresses.to_mapped();
        let mut bytes = [0; RECORD_LEN];
        bytes[0] = self.change.kind();
        bytes[1] = self.key.protocol;
        bytes[4..6].copy_from_slice(&self.key.ports[0].to_be_bytes());
        bytes[6..8].copy_from_slice(&self.key.ports[1].to_be_bytes());
        bytes[8..16].copy_from_slice(&self.revision.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.member.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.idle_ms.to_be_bytes());
        bytes[32..48].copy_from_slice(&source.octets());
        bytes[48..64].copy_from_slice(&destination.octets());
        bytes
    }

    /// The record that the bytes stand for.
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Result<ExceptionRecord, DecodeError> {
        let change = Change::from_kind(bytes[0])?;
        let both = [Ipv6Addr::from(field::<16>(bytes, 32)), Ipv6Addr::from(field::<16>(bytes, 48))];
        let addresses = Addresses::from_mapped(both).ok_or(DecodeError::MixedFamilies)?;
        let ports = [u16::from_be_bytes(field(bytes, 4)), u16::from_be_bytes(field(bytes, 6))];
        Ok(ExceptionRecord {
            change,
            key: FlowKey { addresses, ports, protocol: bytes[1] },
            revision: u64::from_be_bytes(field(bytes, 8)),
            member: u32::from_be_bytes(field(bytes, 16)),
            epoch: u32::from_be_bytes(field(bytes, 20)),
            idle_ms: u32::from_be_bytes(field(bytes, 24)),
        })
    }
}

/// `N` bytes from `offset` on, which must be inside of `bytes`: offsets are constants of the format.
pub(crate) fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[offset..offset + N]);
    value
}
