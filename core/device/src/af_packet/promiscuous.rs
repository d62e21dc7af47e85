//! Promiscuous mode of interfaces.
use super::{failed, packet_socket};
use crate::privsep::Buffer;
use crate::{DeviceError, Interface, sys};
use rustix::fd::{AsFd, OwnedFd};

/// An interface receives frames for other MAC addresses, until this is dropped: the kernel counts who asks
/// for that, and this one asks by a socket that receives nothing.
#[derive(Debug)]
pub(crate) struct PromiscuousMode {
    _socket: OwnedFd,
}

impl PromiscuousMode {
    pub(crate) fn enter(interface: &Interface) -> Result<PromiscuousMode, DeviceError> {
        let socket = packet_socket(&interface.name, Buffer::Usual)?;
        let membership = libc::packet_mreq {
            mr_ifindex: interface.index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
            .map_err(|error| failed(interface, "entering promiscuous mode", &error))?;
        Ok(PromiscuousMode { _socket: socket })
    }
}
