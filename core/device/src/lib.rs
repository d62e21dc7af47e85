//! Ports of the machine, by which packets enter and leave the router.
//!
//! A port has receive queues ([`RxQueue`]) and transmit queues ([`TxQueue`]), which move packets in batches
//! and never wait. There are pairs of ports joined in memory, ports on Linux interfaces (AF_PACKET, AF_XDP),
//! TAP and TUN devices, and pcap files. [`Ports`] is the router's registry: ports outlive the graphs that use
//! them. A [`Prober`] checks the health of other machines by the host's own sockets. Not here: elements, and
//! the meaning of a packet beyond its link header.
#![deny(unsafe_code)]

mod af_packet;
#[allow(unsafe_code)]
pub mod bpf;
#[forbid(unsafe_code)]
mod default_routes;
#[forbid(unsafe_code)]
mod delay;
#[forbid(unsafe_code)]
mod driver;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
mod ethtool;
#[forbid(unsafe_code)]
pub mod files;
#[cfg(any(test, feature = "fuzz"))]
#[forbid(unsafe_code)]
pub mod forged;
#[forbid(unsafe_code)]
mod host_addresses;
#[forbid(unsafe_code)]
mod host_news;
#[forbid(unsafe_code)]
mod host_port;
#[forbid(unsafe_code)]
mod host_routes;
#[forbid(unsafe_code)]
mod interface;
#[forbid(unsafe_code)]
mod link;
#[forbid(unsafe_code)]
mod memory;
#[cfg(test)]
#[forbid(unsafe_code)]
mod namespace;
#[forbid(unsafe_code)]
mod netdev;
#[forbid(unsafe_code)]
mod offload;
#[forbid(unsafe_code)]
mod owner;
#[forbid(unsafe_code)]
mod pcap;
#[forbid(unsafe_code)]
mod ports;
#[forbid(unsafe_code)]
pub mod privsep;
#[forbid(unsafe_code)]
mod probe;
#[forbid(unsafe_code)]
mod psample;
#[forbid(unsafe_code)]
mod queue;
#[forbid(unsafe_code)]
mod settings;
#[allow(unsafe_code)]
mod shared_memory;
#[forbid(unsafe_code)]
mod sockets;
#[forbid(unsafe_code)]
mod steer;
#[forbid(unsafe_code)]
mod survey;
#[allow(unsafe_code)]
mod sys;
#[forbid(unsafe_code)]
mod tap;
#[cfg(test)]
#[forbid(unsafe_code)]
mod testing;
#[forbid(unsafe_code)]
mod traffic;
mod xdp;

pub use af_packet::{AfPacketRx, AfPacketTx};
pub use default_routes::default_route_interfaces;
pub use delay::{DELAY_BOUNDS, Delays};
pub use driver::{Channels, channels, strips_tags};
pub use error::{DeviceError, PcapDamage, PortHalf, show_verifier, system_message};
pub use ethtool::joining_offload;
pub use files::{check_writable, create_private};
pub use host_addresses::{HostAddress, host_addresses};
pub use host_news::InterfaceMonitor;
pub use host_port::{HostPort, HostPortState};
pub use host_routes::{HOST_ROUTE_METRIC, HOST_ROUTE_PROTOCOL, HostRouteChange, HostRoutes, RouteByGateway};
pub use interface::{Interface, split_vlan_name};
pub use memory::{MemoryPort, MemoryRx, MemoryTx, memory_pair};
pub use netdev::{XdpFeatures, xdp_features};
pub use owner::{PeerCredentials, PortClaim};
pub use pcap::{LinkType, PcapOptions, PcapReader, PcapWriter, Record};
pub use ports::{Port, PortSpec, PortState, Ports, QueueHandle, RxHandle, TxHandle};
pub use probe::{NoProbe, ProbeError, ProbeFailure, ProbeKind, Prober};
pub use psample::{FrameSample, SAMPLE_BYTES, SampleGroup, SampleSender};
pub use queue::{RxCounters, RxQueue, TxCounters, TxQueue};
pub use settings::{Hide, InvalidMethod, Method, RxSettings, TxSettings};
pub use sockets::{FrameSocket, try_frame_socket};
pub use survey::{InterfaceSurvey, survey};
pub use sys::map_large_allocations;
pub use tap::{HostRoute, TapRx, TapSettings, TapTx};
pub use traffic::{Losses, TrafficCounts};
pub use xdp::{Attach, BusyPoll, XdpPort, XdpReport, XdpRx, XdpSettings, XdpTx};
