//! That something has changed at an interface of the machine, as soon as the kernel says so.
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;

/// The multicast group that hears of links (RTMGRP_LINK of rtnetlink(7)).
const LINKS: u32 = 1;
/// Bytes read of a message: only that there is one matters.
const ENOUGH: usize = 64;

/// A socket that can be read when an interface of this network namespace has changed: came, went, up, down, its
/// carrier, MTU or address. Which one and how, [`Interface::find`](crate::Interface::find) tells.
#[derive(Debug)]
pub struct LinkNews(Socket);

impl LinkNews {
    /// Hears of what changes from now on.
    pub fn open() -> io::Result<LinkNews> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, LINKS))?;
        Ok(LinkNews(socket))
    }

    /// Whether something has changed since the last call.
    pub fn take(&mut self) -> bool {
        let mut is_news = false;
        loop {
            let mut start = [0; ENOUGH];
            match self.0.recv(&mut &mut start[..], 0) {
                Ok(_) => is_news = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return is_news,
                // What else it may say, such as that there was too much of it: better to look once too often.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for LinkNews {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, run};

    #[test]
    fn each_change_of_a_link_is_told_once_and_nothing_else_is() {
        in_namespace(|| {
            let mut news = LinkNews::open().unwrap();
            assert!(!news.take());
            for change in [
                "ip link add left type veth peer name right",
                "ip link set left up",
                "ip link set right up",
                "ip link set left mtu 1400",
                "ip link set left address 02:00:00:00:00:09",
                "ip link set right down",
                "ip link delete left",
            ] {
                run(change);
                assert!(news.take(), "{change}");
                assert!(!news.take(), "{change}");
            }
            run("ip route add 10.0.0.0/8 dev lo");
            assert!(!news.take());
        });
    }
}
