//! What becomes of the interfaces of the machine behind a router's ports: the router follows them.
//!
//! Which interface a port has is the affair of [`Ports`], which follows it by its number and takes one of its
//! name in the place of one that is gone. An interface whose frames other elements move is followed by its
//! name.
use super::port_text::Change;
use artery_device::{HostNews, Interface, Port, PortState, Ports, split_vlan_name};
use artery_engine::names::Names;
use artery_table::PortId;
use artery_table::router::PortView;
use artery_wire::EtherAddr;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// Follows the interfaces behind ports.
pub(super) struct PortNews {
    news: HostNews,
    ports: Arc<Ports>,
    followed: Vec<Followed>,
}

/// A port and the interface behind it.
struct Followed {
    port: PortId,
    /// What the interface is opened as: by the port's name, or, where the port is a VLAN, by that of its
    /// interface.
    device: String,
    was: Seen,
}

/// An interface as it was when looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    interface: Interface,
    state: PortState,
    /// Of the open port, which changes when it gets another interface.
    generation: Option<u32>,
}

/// What has changed.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) changes: Vec<(PortId, Change)>,
    /// A sentence for each thing that is to be said.
    pub(super) said: Vec<String>,
}

impl PortNews {
    /// Of the ports that are interfaces of this machine, if any is.
    pub(super) fn open(
        ports: Arc<Ports>,
        names: &Names,
        views: &[PortView],
    ) -> std::io::Result<Option<PortNews>> {
        // Listening comes first, so that no change falls between.
        let news = HostNews::of_links()?;
        let find = |(port, view): (PortId, &PortView)| {
            let device = device_behind(&ports, names.device(&view.name))?;
            let was = see(&ports, &device)?;
            Some(Followed { port, device, was })
        };
        let followed: Vec<_> = (0..).map(PortId).zip(views).filter_map(find).collect();
        Ok((!followed.is_empty()).then_some(PortNews { news, ports, followed }))
    }

    /// Readable when there is news.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// The ports whose links carry nothing.
    pub(super) fn down(&self) -> Vec<(PortId, Change)> {
        let down = self.followed.iter().filter(|followed| followed.was.state != PortState::Up);
        down.map(|followed| (followed.port, Change::Up(false))).collect()
    }

    /// What has changed since the last call.
    pub(super) fn take(&mut self) -> News {
        let mut news = News::default();
        // An element that receives or sends may have found out before the kernel's news were read.
        let is_news =
            self.news.take() || self.followed.iter().any(|one| one.has_other_interface(&self.ports));
        if is_news {
            self.followed.iter_mut().for_each(|followed| followed.look(&self.ports, &mut news));
        }
        news
    }
}

impl Followed {
    fn has_other_interface(&self, ports: &Ports) -> bool {
        let is_other = |port: Arc<Port>| self.was.generation.is_some_and(|was| was != port.generation());
        ports.find(&self.device).is_some_and(is_other)
    }

    fn look(&mut self, ports: &Ports, news: &mut News) {
        if let Some(port) = ports.find(&self.device) {
            news.said.extend(port.follow_interface());
        }
        let now =
            see(ports, &self.device).unwrap_or_else(|| Seen { state: PortState::Absent, ..self.was.clone() });
        news.changes.extend(changes(&self.was, &now).into_iter().map(|change| (self.port, change)));
        self.was = now;
    }
}

/// Which device an interface is opened as that is a port of this name, or has a VLAN that is.
fn device_behind(ports: &Ports, name: &str) -> Option<String> {
    let is_there = |name: &&str| ports.find(name).is_some() || Interface::find(name).is_ok();
    let parent = || split_vlan_name(name).map(|(parent, _)| parent).filter(is_there);
    Some(name).filter(is_there).or_else(parent).map(str::to_string)
}

/// The open port behind a port of this name, if it is an interface.
pub(super) fn port_behind(ports: &Ports, name: &str) -> Option<Arc<Port>> {
    ports.find(&device_behind(ports, name)?).filter(|port| port.is_interface())
}

fn see(ports: &Ports, device: &str) -> Option<Seen> {
    if let Some(port) = ports.find(device) {
        return Some(Seen {
            interface: port.interface()?,
            state: port.state(),
            generation: Some(port.generation()),
        });
    }
    let interface = Interface::find(device).ok()?;
    let state = if interface.running { PortState::Up } else { PortState::Down };
    Some(Seen { interface, state, generation: None })
}

/// What has become of a port. One that has another interface was down in between, whether or not anybody saw
/// it.
fn changes(was: &Seen, now: &Seen) -> Vec<Change> {
    let mut changes = Vec::new();
    let has_other_generation = was.generation.zip(now.generation).is_some_and(|(was, now)| was != now);
    let is_other = was.interface.index != now.interface.index || has_other_generation;
    let (was_up, is_up) = (was.state == PortState::Up, now.state == PortState::Up);
    if was_up && (is_other || !is_up) {
        changes.push(Change::Up(false));
    }
    if let Some(mac) = now.interface.mac.filter(|mac| was.interface.mac != Some(*mac)) {
        changes.push(Change::Ether(EtherAddr(mac)));
    }
    if now.interface.mtu != was.interface.mtu {
        changes.push(Change::Mtu(now.interface.mtu.min(u16::MAX.into()) as u16));
    }
    // Last, so that what is said when it comes up is right.
    if is_up && (is_other || !was_up) {
        changes.push(Change::Up(true));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(index: u32, generation: u32, state: PortState) -> Seen {
        let interface = Interface { index, mac: Some([index as u8; 6]), ..Interface::find("lo").unwrap() };
        Seen { interface, state, generation: Some(generation) }
    }

    #[test]
    fn a_port_that_has_another_interface_was_down_in_between() {
        let told = |was: &Seen, now: &Seen| format!("{:?}", changes(was, now));
        let (up, gone) = (seen(5, 0, PortState::Up), seen(5, 1, PortState::Absent));
        assert_eq!(told(&up, &gone), "[Up(false)]");
        assert_eq!(told(&gone, &gone.clone()), "[]");
        let back = seen(7, 2, PortState::Up);
        assert_eq!(told(&gone, &back), "[Ether(07:07:07:07:07:07), Up(true)]");
        assert_eq!(told(&up, &back), "[Up(false), Ether(07:07:07:07:07:07), Up(true)]");
        // The same number, after a stay in another network namespace.
        assert_eq!(told(&up, &seen(5, 2, PortState::Up)), "[Up(false), Up(true)]");
        assert_eq!(told(&gone, &seen(5, 2, PortState::Down)), "[]");
    }
}
