//! Packet headers as typed views over bytes, checksums, addresses and prefixes.
//!
//! A view checks lengths once, in `new`; its accessors never panic after that. A view over `&[u8]` reads, one
//! over `&mut [u8]` writes too. What is not here: packets and their memory, policy, input and output.
//!
//! ```
//! use artery_wire::{IpProtocol, Ipv4, build::ip4};
//! let mut bytes = ip4().src("10.0.0.1").dst("10.0.0.2").ttl(9).udp(1234, 53).bytes();
//! let mut header = Ipv4::new(&mut bytes)?;
//! assert_eq!(header.protocol(), IpProtocol::UDP);
//! header.decrement_ttl();
//! assert_eq!(header.ttl(), 8);
//! assert!(header.checksum_is_valid());
//! # Ok::<(), artery_wire::Malformed>(())
//! ```
#![forbid(unsafe_code)]

pub mod build;
pub mod checksum;
pub mod describe;
pub mod membership;
pub mod nd;

mod arp;
mod bfd;
mod bpdu;
mod bytes;
mod error_message;
mod ether_addr;
mod ethernet;
mod fields;
mod flow;
mod icmp;
mod icmp6;
mod ip6_headers;
mod ip6_options;
mod ipv4;
mod ipv4_assembly;
mod ipv4_fragments;
mod ipv4_options;
mod ipv6;
mod ipv6_fragments;
mod malformed;
mod number_names;
mod prefix;
mod protocol;
mod random;
mod station;
mod tcp;
mod udp;
mod vlan;

pub use arp::{Arp, ArpOperation};
pub use bfd::{BfdControl, BfdDiagnostic, BfdFault, BfdState};
pub use bpdu::{Bpdu, BpduFlags, BpduRole, BpduTime, BridgeId, Configuration};
pub use error_message::{AnswerHeader, Forbidden, Icmp6Answer, Icmp6Error, IcmpAnswer, IcmpError};
pub use ether_addr::{EtherAddr, NotAnEtherAddr};
pub use ethernet::{EtherType, Ethernet, build_ethernet_frame};
pub use flow::flow_hash;
pub use icmp::{Icmp, IcmpType};
pub use icmp6::{Icmp6, Icmp6Type};
pub use ip6_headers::{Ip6Fault, Ip6Fragment, Ip6Headers, Ip6Routing, MAX_EXTENSION_HEADERS, naming_place};
pub use ip6_options::{HopByHop, Ip6Option, Ip6Options, OptionFault, UnknownAction};
pub use ipv4::Ipv4;
pub use ipv4_assembly::{CannotAssemble, Ipv4Assembly};
pub use ipv4_fragments::{CannotSplit, Ipv4FragmentParts, Ipv4Fragments};
pub use ipv4_options::{Ipv4Option, Ipv4OptionFault, Ipv4Options, SourceRoute};
pub use ipv6::Ipv6;
pub use ipv6_fragments::{Ipv6FragmentParts, Ipv6Fragments};
pub use malformed::Malformed;
pub use number_names::NumberNames;
pub use prefix::{Ipv4Prefix, NotAPrefix};
pub use protocol::IpProtocol;
pub use random::Random;
pub use station::LinkEndpoint;
pub use tcp::{Tcp, TcpFlags};
pub use udp::Udp;
pub use vlan::VlanTag;
