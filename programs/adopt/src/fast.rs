//! Forwarding in the kernel's hooks, XDP's and tc's: plain IPv4 and IPv6, by a FIB in arrays that the program
//! and this process share.
//!
//! [`decide_frame`] says what becomes of a frame. Programs are the same once more, for the kernel; a test
//! runs both on random frames. Whatever is not plain forwarding goes to the kernel untouched, for a
//! [`Reason`] that is counted: what is for this machine, ARP, ND, multicast, options, what is too big, whose
//! neighbor is not known, and all that the kernel would answer. So the kernel needs to know nothing, and
//! nothing is lost when the program goes.
mod accelerator;
mod candidates;
mod capture;
mod decide;
mod decide_flow;
mod decide_tunnel;
mod error;
mod fdb;
mod flows;
mod hops;
mod layout;
mod losses;
mod memory;
mod mode;
mod next_hop_groups;
mod numbers;
mod probe;
mod program;
mod routes;
mod shared_arrays;
#[cfg(test)]
mod tests;
mod tunnel_inputs;

pub use accelerator::{Accelerator, FdbEntry, PppoeSession, TunnelRoute};
pub(crate) use candidates::ENOUGH;
pub use capture::{CaptureVerdict, Captured};
pub use decide::{
    ForwardDecision, ForwardingTables, VrfTables, decide_frame, decide_multi_buffer, decide_within,
};
pub(crate) use error::is_shortage;
pub use error::{Error, Refusal};
pub use flows::{FlowAction, FlowKeeper, FlowKey, FlowNote, FlowTable, Translation};
pub use hops::{TunnelExit, TunnelNextHop};
pub(crate) use layout::INHERITED_TOS;
pub use layout::{Flags, Hop, OuterIpv4, PortRecord, Reason, TunnelHeader, Withheld};
pub use memory::{Counters, Deliveries, Memory, NoMemory, PortCounters};
pub use mode::Mode;
pub use routes::FibError;
