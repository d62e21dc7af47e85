//! Ports of the machine: what packets enter and leave the router by.
//!
//! A port has receive queues ([`RxQueue`]) and transmit queues ([`TxQueue`]), which move packets in batches and
//! never wait. Here are a pair of ports joined in memory, ports on Linux interfaces (AF_PACKET), TAP and TUN
//! devices, and pcap files. [`Ports`] is the router's registry: ports outlive the graphs that use them. A [`Prober`]
//! asks other machines whether they are well, by the host's own sockets. What is not here: elements, and any idea of
//! what a packet means beyond its link header.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod af_packet;
#[allow(unsafe_code)]
pub mod bpf;
mod default_routes;
mod delay;
mod driver;
mod error;
mod ethtool;
#[cfg(any(test, feature = "fuzz"))]
pub mod forged;
mod genetlink;
mod host_addresses;
mod host_news;
mod host_port;
mod host_routes;
mod interface;
pub mod kernel_records;
mod link;
mod memory;
#[cfg(test)]
mod namespace;
mod netdev;
mod offload;
mod owner;
mod pcap;
mod ports;
mod private_file;
mod probe;
mod queue;
mod rtnetlink;
mod settings;
mod sockets;
mod steer;
mod survey;
#[allow(unsafe_code)]
mod sys;
mod tap;
#[cfg(test)]
mod testing;
mod traffic;
#[allow(unsafe_code)]
mod xdp;

pub use af_packet::{AfPacketRx, AfPacketTx};
pub use default_routes::default_route_interfaces;
pub use delay::{DELAY_BOUNDS, Delays};
pub use driver::{Channels, channels, strips_tags};
pub use error::{Damage, DeviceError, Half, show_verifier, system_message};
pub use ethtool::joining_offload;
pub use host_addresses::{HostAddress, host_addresses};
pub use host_news::HostNews;
pub use host_port::{HostPort, HostPortState};
pub use host_routes::{HOST_ROUTE_METRIC, HOST_ROUTE_PROTOCOL, HostRouteChange, HostRoutes, RouteByGateway};
pub use interface::{Interface, split_vlan_name};
pub use memory::{MemoryPort, MemoryRx, MemoryTx, memory_pair};
pub use netdev::{XdpFeatures, XdpFragments, xdp_features, xdp_fragments};
pub use owner::PortClaim;
pub use pcap::{LinkType, PcapOptions, PcapReader, PcapWriter, Record};
pub use ports::{Handle, Port, PortSpec, PortState, Ports, RxHandle, TxHandle};
pub use private_file::create_private;
pub use probe::{NoProbe, ProbeError, ProbeFailure, ProbeKind, Prober};
pub use queue::{RxCounters, RxQueue, TxCounters, TxQueue};
pub use settings::{Hide, Method, NoMethod, RxSettings, TxSettings};
pub use sockets::{FrameSocket, try_frame_socket};
pub use survey::{Survey, survey};
pub use tap::{HostRoute, TapRx, TapSettings, TapTx};
pub use traffic::{Losses, Traffic};
pub use xdp::{Attach, BusyPoll, XdpPort, XdpReport, XdpRx, XdpSettings, XdpTx};
