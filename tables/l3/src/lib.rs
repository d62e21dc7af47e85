//! What a router knows, without a packet, a port of the machine, or a clock.
//!
//! [`router::Tables`] put routes together with what they lead to ([`next_hop`]) and with neighbors
//! ([`neighbor`]); [`path`] is what a worker asks: where does a packet to this address go? [`bfd`] says
//! whether the path to a neighbor is up (RFC 5880, RFC 5881), as a pure machine.
#![forbid(unsafe_code)]

pub mod bfd;
pub mod neighbor;
pub mod next_hop;
pub mod path;
mod port;
pub mod router;

pub use port::PortId;
