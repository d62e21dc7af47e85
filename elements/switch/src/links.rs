//! The links of a switch's ports: the state of the interfaces behind them.
use artery_device::{InterfaceMonitor, Port, PortState, Ports};
use artery_l2::stp::Link;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::io;
use std::sync::Arc;

/// The link of a port that is not an interface of the machine: its speed is unknown.
const UNKNOWN: Link = Link { megabits: 0, full_duplex: true };

/// Follows the interfaces behind ports, as [`Ports`] does: by their numbers, and by the names of
/// those that are replaced.
pub(super) struct Links {
    /// None if no port is an interface.
    news: Option<InterfaceMonitor>,
    ports: Arc<Ports>,
    devices: Vec<String>,
    /// The generation of each port at the last look.
    generations: Vec<Option<u32>>,
    /// Why changes of interfaces can't be followed.
    pub(super) trouble: Option<io::Error>,
}

impl Links {
    /// Of ports that were opened under these names.
    pub(super) fn open(ports: Arc<Ports>, devices: &[String]) -> Links {
        // Listening starts first, so that no change is missed.
        let (news, trouble) = match InterfaceMonitor::of_links() {
            Ok(news) => (Some(news), None),
            Err(error) => (None, Some(error)),
        };
        let devices = devices.to_vec();
        let mut links = Links { news, ports, devices, generations: Vec::new(), trouble };
        links.generations = links.generations_now();
        if links.generations.iter().all(Option::is_none) {
            (links.news, links.trouble) = (None, None);
        }
        links.follow_interfaces();
        links
    }

    /// Readable when there is news.
    pub(super) fn news_fd(&self) -> Option<BorrowedFd<'_>> {
        self.news.as_ref().map(InterfaceMonitor::as_fd)
    }

    /// The links of all ports; none for one that is down or has no interface.
    pub(super) fn port_links(&self) -> Vec<Option<Link>> {
        self.port_interfaces().map(|port| port.map_or(Some(UNKNOWN), |port| port_link(&port))).collect()
    }

    /// Reads the state of all ports again if anything has changed; returns the lines to log.
    pub(super) fn poll_changes(&mut self) -> Option<Vec<String>> {
        let is_news = self.news.as_mut().is_some_and(InterfaceMonitor::has_changed);
        // An element that receives or sends may have found out before the kernel's news were read.
        if !is_news && self.generations_now() == self.generations {
            return None;
        }
        let said = self.follow_interfaces();
        self.generations = self.generations_now();
        Some(said)
    }

    fn follow_interfaces(&self) -> Vec<String> {
        self.port_interfaces().flatten().flat_map(|port| port.follow_interface()).collect()
    }

    fn generations_now(&self) -> Vec<Option<u32>> {
        self.port_interfaces().map(|port| port.map(|port| port.generation())).collect()
    }

    /// The ports that are interfaces of the machine.
    fn port_interfaces(&self) -> impl Iterator<Item = Option<Arc<Port>>> + '_ {
        self.devices.iter().map(|name| self.ports.find(name).filter(|port| port.is_interface()))
    }
}

fn port_link(port: &Port) -> Option<Link> {
    let of_speed = |(megabits, full_duplex)| Link { megabits, full_duplex };
    let interface = port.interface().filter(|_| port.state() == PortState::Up)?;
    Some(interface.speed().map_or(UNKNOWN, of_speed))
}
