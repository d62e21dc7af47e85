//! Whether this process can open the sockets that ports are received by.
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;

/// A kind of sockets that frames come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSocket {
    /// AF_PACKET (packet(7)), in all kernels.
    Packet,
    /// AF_XDP (Linux 4.18, `CONFIG_XDP_SOCKETS`).
    Xdp,
}

/// Opens a socket of a kind and closes it. It is bound to nothing, so that no frame comes by it.
///
/// # Errors
/// What the kernel answers: [`io::ErrorKind::PermissionDenied`] without CAP_NET_RAW.
pub fn try_frame_socket(kind: FrameSocket) -> io::Result<()> {
    let family = match kind {
        FrameSocket::Packet => AddressFamily::PACKET,
        FrameSocket::Xdp => AddressFamily::XDP,
    };
    socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::may_make_namespaces;

    #[test]
    fn root_can_open_packet_sockets() {
        if may_make_namespaces() {
            try_frame_socket(FrameSocket::Packet).unwrap();
        }
    }
}
