//! Ports on Linux interfaces, by AF_XDP.
//!
//! A BPF program at the interface hands its frames to sockets, one for each of its queues, before the host's
//! stack sees them. Frames lie in the packet pool itself, whose region of common frames is registered with
//! every socket: where the driver supports it nothing is copied between card and packet, and elsewhere the
//! kernel copies once; a packet that came in by one port leaves by another from the frame it is in.
//!
//! What arrives is the router's alone, as with frames that are hidden from the host. When the process ends,
//! however it ends, the kernel takes program and sockets away, and the host has its interface back.
//! `docs/decisions/0012-af-xdp.md` has the measurements, and what AF_XDP cannot do.
//!
//! - `umem`: which frames the kernel holds, and why nothing it says makes a packet of another one
//! - `rings`: the memory shared with the kernel, whatever it says there
//! - `program`: the program and its link
//! - `socket`: a socket's life and the order of its end
//! - `port`: all queues of an interface
//! - `rx`, `tx`: the halves that move packets
//! - `checksum`: what senders on virtual links left unfinished
//! - `lock`: one router to an interface
#[forbid(unsafe_code)]
mod checksum;
#[cfg(any(test, feature = "fuzz"))]
#[allow(unsafe_code)]
pub(crate) mod forged;
#[forbid(unsafe_code)]
mod lock;
#[forbid(unsafe_code)]
mod port;
#[forbid(unsafe_code)]
mod program;
#[cfg(test)]
#[forbid(unsafe_code)]
mod rates;
#[allow(unsafe_code)]
mod rings;
#[forbid(unsafe_code)]
mod rx;
#[allow(unsafe_code)]
mod socket;
#[cfg(test)]
#[forbid(unsafe_code)]
mod tests;
#[forbid(unsafe_code)]
mod tx;
#[allow(unsafe_code)]
mod umem;

pub use port::{XdpPort, XdpReport};
pub use rx::XdpRx;
pub use tx::XdpTx;

pub(crate) use lock::InterfaceLock;
pub(crate) use program::RedirectProgram;
pub(crate) use socket::make_socket;

use artery_packet::FRAME;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// What it takes to open an AF_XDP socket.
const CAPABILITY: &str = "CAP_NET_RAW";
/// Bytes at the front of a frame that the kernel keeps for XDP programs.
const XDP_HEADROOM: usize = 256;
/// The longest Ethernet header, with a VLAN tag.
const ETHERNET_HEADER: usize = 18;
/// The longest packet, without its link header, that a frame holds.
pub(crate) const MOST_MTU: u32 = (FRAME - XDP_HEADROOM - ETHERNET_HEADER) as u32;
/// The most frames that one system call sends.
const TX_BUDGET: u32 = 256;
/// How long what a process that ended has held may stay taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How to use an interface by AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpSettings {
    /// Entries of each ring, a power of two. The kernel is lent as many frames for each queue, but all queues
    /// of an interface together no more than an eighth of the pool, or a batch for each if that is more. A
    /// queue for which the pool has less than a batch left cannot be opened.
    pub ring: u32,
    /// Where the program runs.
    pub attach: Attach,
    /// Whether to let the driver read and write frames without copying, if it can.
    pub zero_copy: bool,
    /// Whether system calls do the driver's work instead of interrupts.
    pub busy_poll: Option<BusyPoll>,
}

impl Default for XdpSettings {
    fn default() -> XdpSettings {
        XdpSettings { ring: 2048, attach: Attach::Best, zero_copy: true, busy_poll: None }
    }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attach {
    /// In the driver if it can, else in the kernel.
    Best,
    /// In the driver only.
    Native,
    /// In the kernel, with any driver.
    Generic,
}

/// How a socket's system calls do the driver's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusyPoll {
    /// For how long a system call may poll for frames.
    pub microseconds: u16,
    /// How many frames it may handle.
    pub budget: u16,
}

/// Whether an error says that the queue or the interface is in use. A program in another mode gives EEXIST.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Retries while the interface is busy, as its last holder may still be ending, with growing pauses.
fn retry<T>(mut pause: impl FnMut(Duration), mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let (mut waited, mut next) = (Duration::ZERO, Duration::from_millis(1));
    loop {
        match attempt() {
            Err(e) if is_busy(&e) && waited < PATIENCE => {
                pause(next);
                waited += next;
                next = (next * 2).min(LONGEST_PAUSE);
            }
            result => return result,
        }
    }
}
