//! Reports when something that blockers are made of may have changed.
//!
//! The kernel notifies of changes of nftables, tc, interfaces, their forwarding settings and IPsec policies.
//! Of the rest (other settings, offloads, iptables, virtual servers, BPF programs, hooks of netfilter) it
//! sends no notification: they are compared each second.
use super::{
    Blocker, Port, hooks, iptables, links, offloads, sysctl, traffic_control, tunnels, virtual_servers,
};
use artery_netlink::request::is_missing;
use artery_netlink::socket::{drain, listen};
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};
use std::io;

/// Groups by protocol: nftables; links, tc, settings of IPv4 and IPv6; policies and their expiry.
const GROUPS: [(isize, &[u32]); 3] =
    [(NETLINK_NETFILTER, &[7]), (NETLINK_ROUTE, &[1, 4, 24, 25]), (NETLINK_XFRM, &[2, 4])];
const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Reports that it is time for another [`survey`](super::survey).
#[derive(Debug)]
pub struct BlockerWatch {
    sockets: Vec<Socket>,
    timer: OwnedFd,
    ports: Vec<Port>,
    polled: Vec<Blocker>,
    /// Whether it matters how connections are tracked.
    follows_connections: bool,
}

impl BlockerWatch {
    /// Watches from now on. Open it before the first survey, so that no change is missed.
    pub fn open(ports: &[Port]) -> io::Result<BlockerWatch> {
        let sockets =
            GROUPS.iter().filter_map(|(protocol, groups)| open_socket(*protocol, groups).transpose());
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let each_second = Itimerspec { it_interval: SECOND, it_value: SECOND };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &each_second)?;
        let ports = ports.to_vec();
        Ok(BlockerWatch {
            sockets: sockets.collect::<io::Result<_>>()?,
            timer,
            polled: polled(&ports),
            ports,
            follows_connections: false,
        })
    }

    /// Watches also what keeps established connections from being forwarded past rules, or no longer.
    pub(crate) fn follow_connections(&mut self, follows: bool) {
        self.follows_connections = follows;
    }

    /// What can be read when [`has_changed`](BlockerWatch::has_changed) is to be called.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd).chain([self.timer.as_fd()])
    }

    /// Watches these ports, as they are from now on. Call it before each survey of them, so that
    /// no change is missed.
    pub fn set_ports(&mut self, ports: &[Port]) {
        self.ports = ports.to_vec();
        // What was there at the last look may be other than what the survey finds, and the same once
        // more at the next.
        self.polled = self.read_polled();
    }

    /// Whether something may have changed since the last call.
    pub fn has_changed(&mut self) -> bool {
        // All are emptied, whatever the first one says.
        let told = self.sockets.iter().fold(false, |told, socket| drain(socket) | told);
        let is_time = rustix::io::read(&self.timer, &mut [0; 8]).is_ok();
        told | (is_time && self.poll_settings())
    }

    /// Whether anything that the kernel sends no notification of has changed since the last call.
    fn poll_settings(&mut self) -> bool {
        let now = self.read_polled();
        let was = std::mem::replace(&mut self.polled, now);
        was != self.polled
    }

    fn read_polled(&self) -> Vec<Blocker> {
        let mut all = polled(&self.ports);
        if self.follows_connections {
            all.extend(super::tracking::find_polled());
        }
        all
    }
}

fn polled(ports: &[Port]) -> Vec<Blocker> {
    let routed = &super::routed_ports(ports);
    let mut guards = sysctl::guards(routed);
    guards.extend(offloads::find_polled(ports));
    guards.extend(iptables::guards(ports));
    guards.extend(
        virtual_servers::find_blockers().unwrap_or_else(|error| vec![Blocker::unreadable("IPVS", &error)]),
    );
    guards.extend(
        hooks::guards().unwrap_or_else(|error| vec![Blocker::unreadable("the hooks of netfilter", &error)]),
    );
    guards.extend(links::find_narrow(routed).unwrap_or_default());
    guards.extend(tunnels::find_polled(ports));
    let ports = &links::with_those_below(ports).unwrap_or_else(|_| ports.to_vec());
    guards.extend(traffic_control::programs(ports));
    guards
}

/// A socket that receives notifications of some groups; `None` if the kernel does not have the protocol.
fn open_socket(protocol: isize, groups: &[u32]) -> io::Result<Option<Socket>> {
    match listen(protocol, groups, None) {
        Err(error) if is_missing(&error) => Ok(None),
        socket => socket.map(Some),
    }
}
