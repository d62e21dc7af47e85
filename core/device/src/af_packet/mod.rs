//! Ports on Linux interfaces, by packet sockets.
//!
//! # Receiving
//!
//! Through a ring of slots that the kernel fills and this process reads without a system call (TPACKET_V2).
//! The newer TPACKET_V3 hands over whole blocks, and one that is not full only when its timer fires, which
//! counts in milliseconds: too late for a ping. Slots are seen at once, and are not what limits the rate: on
//! two shared vCPUs (AMD Zen 5, Linux 6.18), with veth pairs, a ping through two ports takes 31 µs, and all
//! of the 0.52 million frames a second that one core can send are forwarded by the other. A slot holds a
//! frame of the interface's MTU. Longer ones, which senders with segmentation offload produce, the kernel
//! queues beside the ring in the same order, and they are read by a system call each, which 64 kB are worth.
//!
//! Each frame is copied once, into the pool; no slot is held longer than that. The kernel's virtio-net
//! header tells what the sender left undone, checksums and the cutting of long frames, and that is noted on
//! the packet, which stays whole: so hosts may keep their default offloads. A VLAN tag that the kernel took
//! off is put back.
//!
//! # Sending
//!
//! By `sendmmsg` on a second socket, one copy each (by the kernel), with what is left to be done in a
//! virtio-net header: the card does it, or the kernel before it, or the host at the other end of a
//! virtual link need not. A frame longer than the link carries, or with longer segments, is dropped and
//! counted as too long.
#[cfg(any(test, feature = "fuzz"))]
#[forbid(unsafe_code)]
pub(crate) mod forged;
#[forbid(unsafe_code)]
mod intake;
#[forbid(unsafe_code)]
mod promiscuous;
#[allow(unsafe_code)]
mod ring;
#[forbid(unsafe_code)]
mod rx;
#[cfg(test)]
#[forbid(unsafe_code)]
mod tests;
#[allow(unsafe_code)]
mod tx;

pub(crate) use promiscuous::PromiscuousMode;
pub use rx::AfPacketRx;
pub(crate) use rx::FanoutGroup;
pub use tx::AfPacketTx;

use crate::privsep::{self, Buffer, Request};
use crate::{DeviceError, Interface, LinkType, RxSettings, TxSettings, sys};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;

/// What it takes to open a packet socket.
const CAPABILITY: &str = "CAP_NET_RAW";

/// Finds an interface that a port can be opened on.
pub(crate) fn find(name: &str) -> Result<Interface, DeviceError> {
    let interface = Interface::find(name)?;
    if interface.link_type.is_none() {
        let (expected, found) = ("ETHER or IP".to_owned(), "other".to_owned());
        return Err(DeviceError::WrongLinkType { name: name.to_owned(), expected, found });
    }
    if !interface.up {
        return Err(DeviceError::Down { name: name.to_owned() });
    }
    Ok(interface)
}

/// Whether frames of the interface begin with an Ethernet header.
fn is_ethernet(interface: &Interface) -> bool {
    interface.link_type == Some(LinkType::ETHER)
}

/// A packet socket that receives nothing yet and never waits.
pub(crate) fn packet_socket(name: &str, buffer: Buffer) -> Result<OwnedFd, DeviceError> {
    match privsep::helper() {
        Some(helper) => {
            let request = Request::PacketSocket { name: name.to_owned(), buffer };
            helper.descriptor::<()>(name, &request).map(|((), socket)| socket)
        }
        None => make_packet_socket(name, buffer),
    }
}

/// The same, by this process, which takes CAP_NET_RAW.
pub(crate) fn make_packet_socket(name: &str, buffer: Buffer) -> Result<OwnedFd, DeviceError> {
    let failed = |doing| move |e: io::Error| DeviceError::from_io(name, doing, CAPABILITY, &e);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map_err(|e| failed("opening a packet socket")(e.into()))?;
    set_buffer(&socket, buffer).map_err(failed("setting up a packet socket"))?;
    Ok(socket)
}

fn set_buffer(socket: &OwnedFd, buffer: Buffer) -> io::Result<()> {
    let (forced, limited, bytes) = match buffer {
        Buffer::Usual => return Ok(()),
        Buffer::Receive(bytes) => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes),
        Buffer::Send(bytes) => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes),
    };
    // Beyond the system's limit only with CAP_NET_ADMIN; without it, as much as the limit allows.
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, forced, &bytes)
        .or_else(|_| sys::set_option(socket.as_fd(), libc::SOL_SOCKET, limited, &bytes))
}

/// Whether a socket is bound to this interface still, under whatever name. An interface that has come back is
/// another one, even with the same number.
fn is_bound(socket: &OwnedFd, interface: &Interface) -> bool {
    sys::bound_interface(socket.as_fd()).is_ok_and(|index| u32::try_from(index) == Ok(interface.index))
}

fn failed(interface: &Interface, doing: &'static str, error: &io::Error) -> DeviceError {
    DeviceError::from_io(&interface.name, doing, CAPABILITY, error)
}
