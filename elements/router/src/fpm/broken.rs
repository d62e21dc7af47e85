//! What ends a connection: bytes that are no FPM messages.
use std::fmt;

/// Why a sender is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FpmProtocolError {
    /// The version in the header is not 1.
    Version(u8),
    /// The message is not netlink.
    Type(u8),
    /// The message is shorter than its header.
    Length(u16),
    /// The payload is not a sequence of netlink messages: there is none at this byte.
    Netlink(usize),
    /// A route or next hop is truncated, or has an invalid field.
    Malformed(&'static str),
}

impl fmt::Display for FpmProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FpmProtocolError::Version(version) => {
                write!(f, "FPM version {version}, expected 1; is it an FPM client?")
            }
            FpmProtocolError::Type(2) => f.write_str(
                "FPM message of type 2 (protobuf), expected netlink; load zebra's module dplane_fpm_nl",
            ),
            FpmProtocolError::Type(kind) => write!(f, "FPM message of type {kind}, expected 1 (netlink)"),
            FpmProtocolError::Length(len) => write!(f, "FPM message of {len} bytes, shorter than its header"),
            FpmProtocolError::Netlink(at) => {
                write!(f, "byte {at} of an FPM message does not begin a netlink message")
            }
            FpmProtocolError::Malformed(what) => write!(f, "malformed {what}"),
        }
    }
}
