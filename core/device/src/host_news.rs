//! That something has changed at the interfaces of the machine, as soon as the kernel says so.
use artery_netlink::socket::{drain, listen};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;

/// The group that links are announced to (RTNLGRP_LINK).
const LINKS: [u32; 1] = [1];
/// The groups that IPv4 and IPv6 addresses are announced to (RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR).
const ADDRESSES: [u32; 2] = [5, 9];

/// A socket that can be read when an interface of this network namespace has changed.
#[derive(Debug)]
pub struct InterfaceMonitor(Socket);

impl InterfaceMonitor {
    /// Watches interfaces from now on: that they come, go, or are up or down, their carriers, MTUs and link
    /// addresses. [`Interface::find`](crate::Interface::find) gives an interface's new state.
    pub fn of_links() -> io::Result<InterfaceMonitor> {
        InterfaceMonitor::of(&LINKS)
    }

    /// Watches addresses from now on. [`host_addresses`](crate::host_addresses) lists those that exist.
    pub fn of_addresses() -> io::Result<InterfaceMonitor> {
        InterfaceMonitor::of(&ADDRESSES)
    }

    fn of(groups: &[u32]) -> io::Result<InterfaceMonitor> {
        listen(NETLINK_ROUTE, groups, None).map(InterfaceMonitor)
    }

    /// Whether something has changed since the last call.
    pub fn has_changed(&mut self) -> bool {
        drain(&self.0)
    }
}

impl AsFd for InterfaceMonitor {
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
            let mut news = InterfaceMonitor::of_links().unwrap();
            assert!(!news.has_changed());
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
                assert!(news.has_changed(), "{change}");
                assert!(!news.has_changed(), "{change}");
            }
            run("ip route add 10.0.0.0/8 dev lo");
            assert!(!news.has_changed());
        });
    }
}
