//! The thread that keeps the host's interfaces like their ports: Ethernet address, MTU, link state
//! and addresses. It reads the ports' version ten times a second, and acts at once when something
//! changes on the host.
use super::shared::{FollowedRouter, HostPortsShared};
use super::status::InterfaceStatus;
use artery_device::{HostPort, HostPortState, Interface, InterfaceMonitor};
use artery_l3::router::PortView;
use artery_wire::EtherAddr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often the ports' version is read.
const INTERVAL: Duration = Duration::from_millis(100);
/// The length of the prefix of link-local addresses.
const LINK_LOCAL_LEN: u8 = 64;

pub(super) struct Interfaces {
    shared: Arc<HostPortsShared>,
    news: [InterfaceMonitor; 2],
    open: HashMap<String, HostPort>,
    /// The router that was last followed, by its address, and its ports' version.
    seen: Option<(usize, u64)>,
    /// Whether something could not be done, and is to be tried again.
    has_failed: bool,
    logged: HashSet<String>,
}

impl Interfaces {
    pub(super) fn new(shared: Arc<HostPortsShared>) -> io::Result<Interfaces> {
        let news = [InterfaceMonitor::of_links()?, InterfaceMonitor::of_addresses()?];
        let (open, seen, has_failed, said) = Default::default();
        Ok(Interfaces { shared, news, open, seen, has_failed, logged: said })
    }

    /// Follows until no element needs it.
    pub(super) fn run(mut self) {
        while !self.shared.is_over() {
            self.sync_all();
            self.wait_for_changes();
        }
    }

    fn wait_for_changes(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
        let mut files =
            self.news.each_ref().map(|news| PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN));
        // An interruption is harmless: it causes one extra check.
        let _ = poll(&mut files, Some(&timeout));
    }

    fn sync_all(&mut self) {
        // Both are emptied.
        let is_news = self.news.each_mut().map(InterfaceMonitor::has_changed) != [false, false];
        let Some((router, FollowedRouter { names, .. })) = self.shared.followed_router() else { return };
        let (version, ports) = {
            let tables = router.lock_tables();
            let version = (Arc::as_ptr(&router) as usize, tables.ports_version());
            let is_same = self.seen == Some(version) && !is_news && !self.has_failed;
            (version, (!is_same).then(|| tables.ports()))
        };
        let Some(ports) = ports else { return };
        self.seen = Some(version);
        self.has_failed = false;
        self.open.retain(|name, _| names.iter().any(|(_, interface)| interface == name));
        let mut status = Vec::new();
        for (port, interface) in &names {
            if let Some(port) = ports.iter().find(|view| view.name == *port) {
                status.push(self.sync_interface(port, interface));
            }
        }
        self.shared.publish_interfaces(status);
    }

    /// Makes an interface like its port.
    fn sync_interface(&mut self, port: &PortView, name: &str) -> InterfaceStatus {
        let wanted = interface_state(port);
        let (mut status, done) = match Interface::find(name) {
            Ok(found) => {
                let done = self.apply_state(&wanted, &found);
                let status =
                    InterfaceStatus { ifindex: found.index, admin_up: found.up, ..Default::default() };
                (status, done)
            }
            Err(error) => (InterfaceStatus::default(), Err(io::Error::other(error.to_string()))),
        };
        status.port.clone_from(&port.name);
        name.clone_into(&mut status.interface);
        status.lladdr = EtherAddr(wanted.mac).to_string();
        (status.mtu, status.carrier) = (wanted.mtu, wanted.has_carrier);
        status.addresses = wanted.addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect();
        if let Err(error) = done {
            self.has_failed = true;
            let line = format!("{name} can't be kept like port {}: {error}", port.name);
            if self.logged.insert(line.clone()) {
                self.shared.lines.push_line(line);
            }
            status.error = Some(error.to_string());
        }
        status
    }

    fn apply_state(&mut self, wanted: &HostPortState, found: &Interface) -> io::Result<()> {
        let is_same = |port: &HostPort| port.index() == found.index;
        if !self.open.get(&found.name).is_some_and(is_same) {
            self.open.insert(found.name.clone(), HostPort::open(found.index)?);
        }
        self.open.get_mut(&found.name).map_or(Ok(()), |port| port.apply(wanted, found))
    }
}

/// The wanted state of a port's interface. Links with an MTU below 1280 carry no IPv6 (RFC 8200 section 5).
fn interface_state(port: &PortView) -> HostPortState {
    let v4 = port.v4.iter().map(|(own, len)| (IpAddr::V4((*own).into()), *len));
    let v6 = port.v6.iter().map(|(own, len)| (IpAddr::V6((*own).into()), *len));
    let link_local = std::iter::once((IpAddr::V6(port.link_local.into()), LINK_LOCAL_LEN));
    let carries_ipv6 = port.mtu >= 1280;
    let addresses = v4.chain(v6.chain(link_local).filter(|_| carries_ipv6)).collect();
    HostPortState { mac: port.address.0, mtu: port.mtu.into(), has_carrier: port.is_up, addresses }
}
