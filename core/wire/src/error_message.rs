//! Errors about packets: which may be sent (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4), and their bytes.
//!
//! `answer_to` returns what an error says about a packet; the answer, where there may be one, makes the
//! bytes. How many errors are sent in a time is limited elsewhere.

mod v4;
mod v6;

pub use v4::{AnswerHeader, IcmpAnswer, IcmpError};
pub use v6::{Icmp6Answer, Icmp6Error};

use std::error::Error;
use std::fmt;

/// Why no error may be sent about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forbidden {
    /// Its header is malformed, or too short to tell what it is.
    Malformed,
    /// It is an error, or a redirect, itself.
    Error,
    /// It is a fragment other than the first.
    Fragment,
    /// It came in a broadcast or multicast frame.
    Frame,
    /// It is for more than one host.
    Destination,
    /// Its source address is not that of one host.
    Source,
    /// It has a source route, which a redirect would contradict.
    SourceRoute,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Forbidden::Malformed => "no error about a malformed packet",
            Forbidden::Error => "no error about an error",
            Forbidden::Fragment => "no error about a later fragment",
            Forbidden::Frame => "no error about a broadcast or multicast frame",
            Forbidden::Destination => "no error about a packet for more than one host",
            Forbidden::Source => "no error to an address that is not one host's",
            Forbidden::SourceRoute => "no redirect of a packet with a source route",
        })
    }
}

impl Error for Forbidden {}
