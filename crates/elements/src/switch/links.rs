//! The links of a switch's ports: what the machine says of the interfaces behind them.
use artery_device::{HostNews, Port, PortState, Ports};
use artery_table::stp::Link;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::io;
use std::sync::Arc;

/// The link of a port that is no interface of the machine: nobody knows how fast it is.
const UNKNOWN: Link = Link { megabits: 0, full_duplex: true };

/// Follows the interfaces behind ports, as [`Ports`] does: by their numbers, and those that take the place of
/// others.
pub(super) struct Links {
    /// None if no port is an interface.
    news: Option<HostNews>,
    ports: Arc<Ports>,
    devices: Vec<String>,
    /// The generation of each port when it was last looked at.
    generations: Vec<Option<u32>>,
    /// Why nothing is heard of interfaces.
    pub(super) trouble: Option<io::Error>,
}

impl Links {
    /// Of ports that were opened under these names.
    pub(super) fn open(ports: Arc<Ports>, devices: &[String]) -> Links {
        // Listening comes first, so that no change falls between.
        let (news, trouble) = match HostNews::of_links() {
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
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.news.as_ref().map(HostNews::as_fd)
    }

    /// The links of all ports; none for one that is down or has no interface.
    pub(super) fn all(&self) -> Vec<Option<Link>> {
        self.interfaces().map(|port| port.map_or(Some(UNKNOWN), |port| link(&port))).collect()
    }

    /// Reads the state of all ports again if anything has changed; gives the lines to log.
    pub(super) fn take(&mut self) -> Option<Vec<String>> {
        let is_news = self.news.as_mut().is_some_and(HostNews::take);
        // An element that receives or sends may have found out before the kernel's news were read.
        if !is_news && self.generations_now() == self.generations {
            return None;
        }
        let said = self.follow_interfaces();
        self.generations = self.generations_now();
        Some(said)
    }

    fn follow_interfaces(&self) -> Vec<String> {
        self.interfaces().flatten().flat_map(|port| port.follow_interface()).collect()
    }

    fn generations_now(&self) -> Vec<Option<u32>> {
        self.interfaces().map(|port| port.map(|port| port.generation())).collect()
    }

    /// The ports that are interfaces of the machine.
    fn interfaces(&self) -> impl Iterator<Item = Option<Arc<Port>>> + '_ {
        self.devices.iter().map(|name| self.ports.find(name).filter(|port| port.is_interface()))
    }
}

fn link(port: &Port) -> Option<Link> {
    let of_speed = |(megabits, full_duplex)| Link { megabits, full_duplex };
    let interface = port.interface().filter(|_| port.state() == PortState::Up)?;
    Some(interface.speed().map_or(UNKNOWN, of_speed))
}
