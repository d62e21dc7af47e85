//! The links of a switch's ports: what the machine says of the interfaces behind them.
use artery_device::{HostNews, Interface, Ports};
use artery_table::stp::Link;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::io;

/// The link of a port that is no interface of the machine: nobody knows how fast it is.
const UNKNOWN: Link = Link { megabits: 0, full_duplex: true };

/// Hears of the interfaces behind ports.
pub(super) struct Links {
    /// None if no port is an interface.
    news: Option<HostNews>,
    /// As each was when last looked at.
    known: Vec<Option<Interface>>,
    /// Why nothing is heard of interfaces.
    pub(super) trouble: Option<io::Error>,
}

impl Links {
    /// Of ports that were opened under these names.
    pub(super) fn open(ports: &Ports, devices: &[String]) -> Links {
        // Listening comes first, so that no change falls between.
        let (news, trouble) = match HostNews::of_links() {
            Ok(news) => (Some(news), None),
            Err(error) => (None, Some(error)),
        };
        // The interface as it is now, if it still is the one that the port uses.
        let interface = |name: &String| {
            let was = ports.find(name)?.interface()?.clone();
            let now = Interface::find(&was.name).ok().filter(|now| now.index == was.index);
            Some(now.unwrap_or(Interface { running: false, ..was }))
        };
        let known: Vec<_> = devices.iter().map(interface).collect();
        let is_followed = known.iter().any(Option::is_some);
        Links { known, news: news.filter(|_| is_followed), trouble: trouble.filter(|_| is_followed) }
    }

    /// Readable when there is news.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.news.as_ref().map(HostNews::as_fd)
    }

    /// The links of all ports; none for one that is down.
    pub(super) fn all(&self) -> Vec<Option<Link>> {
        let link = |interface: &Option<Interface>| interface.as_ref().map_or(Some(UNKNOWN), link);
        self.known.iter().map(link).collect()
    }

    /// Looks at all ports anew, if anything has changed.
    pub(super) fn take(&mut self) -> bool {
        let is_news = self.news.as_mut().is_some_and(HostNews::take);
        if is_news {
            self.known.iter_mut().flatten().for_each(look);
        }
        is_news
    }
}

/// Another one of the name is not the one that the port uses.
fn look(was: &mut Interface) {
    match Interface::find(&was.name).ok().filter(|now| now.index == was.index) {
        Some(now) => *was = now,
        None => was.running = false,
    }
}

fn link(interface: &Interface) -> Option<Link> {
    let of_speed = |(megabits, full_duplex)| Link { megabits, full_duplex };
    interface.running.then(|| interface.speed().map_or(UNKNOWN, of_speed))
}
