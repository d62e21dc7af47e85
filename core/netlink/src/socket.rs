//! Sockets of netlink: for requests, and for notifications.
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use std::io;

/// Bytes read of a notification where its arrival alone matters.
const ENOUGH: usize = 64;

/// A blocking socket of a protocol (`NETLINK_…`) that sends to the kernel, and receives from it alone.
pub fn connect(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// A non-blocking socket with the notifications of some groups, by their numbers (`RTNLGRP_…`), as far as the
/// kernel has these: one without IPv6 or nftables lacks some. Up to `backlog` bytes wait in it; without
/// CAP_NET_ADMIN at most as many as `net.core.rmem_max` allows.
pub fn listen(protocol: isize, groups: &[u32], backlog: Option<usize>) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.set_non_blocking(true)?;
    if let Some(backlog) = backlog
        && set_socket_recv_buffer_size_force(&socket, backlog).is_err()
    {
        set_socket_recv_buffer_size(&socket, backlog)?;
    }
    socket.bind_auto()?;
    for group in groups {
        match socket.add_membership(*group) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            result => result?,
        }
    }
    Ok(socket)
}

/// Reads all notifications that wait; returns whether there were any, or some were lost.
pub fn drain(socket: &Socket) -> bool {
    let mut has_read = false;
    loop {
        let mut start = [0; ENOUGH];
        match socket.recv(&mut &mut start[..], 0) {
            Ok(_) => has_read = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return has_read,
            // Any other error, such as an overrun: one check too many does no harm.
            Err(_) => return true,
        }
    }
}
