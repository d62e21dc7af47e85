//! Follows the interfaces of the machine behind a router's ports.
//!
//! [`Ports`] assigns an interface to each port: it follows the interface by its number, and replaces one that
//! is gone by one of the same name. An interface whose frames other elements move is followed by its name.
use super::port_update::PortUpdate;
use artery_device::{Interface, InterfaceMonitor, Port, PortState, Ports, split_vlan_name};
use artery_engine::names::Names;
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_wire::EtherAddr;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// Follows the interfaces behind ports.
pub(super) struct PortMonitor {
    news: InterfaceMonitor,
    ports: Arc<Ports>,
    followed: Vec<FollowedPort>,
}

/// A port and the interface behind it.
struct FollowedPort {
    port: PortId,
    /// What the interface is opened as: by the port's name, or, where the port is a VLAN, by
    /// that of its interface.
    device: String,
    was: InterfaceSnapshot,
}

/// The state of an interface at the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InterfaceSnapshot {
    interface: Interface,
    state: PortState,
    /// Of the open port, which changes when it gets another interface.
    generation: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct PortUpdates {
    pub(super) changes: Vec<(PortId, PortUpdate)>,
    /// Messages for the log, one sentence each.
    pub(super) log_lines: Vec<String>,
}

impl PortMonitor {
    /// Of the ports that are interfaces of this machine, if any is.
    pub(super) fn open(
        ports: Arc<Ports>,
        names: &Names,
        views: &[PortView],
    ) -> std::io::Result<Option<PortMonitor>> {
        // Listening starts first, so that no change is missed.
        let news = InterfaceMonitor::of_links()?;
        let find = |(port, view): (PortId, &PortView)| {
            let device = device_behind(&ports, names.device_name(&view.name))?;
            let was = read_interface(&ports, &device)?;
            Some(FollowedPort { port, device, was })
        };
        let followed: Vec<_> = (0..).map(PortId).zip(views).filter_map(find).collect();
        Ok((!followed.is_empty()).then_some(PortMonitor { news, ports, followed }))
    }

    /// Readable when there is news.
    pub(super) fn news_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// The ports whose links are down.
    pub(super) fn down_ports(&self) -> Vec<(PortId, PortUpdate)> {
        let down = self.followed.iter().filter(|followed| followed.was.state != PortState::Up);
        down.map(|followed| (followed.port, PortUpdate::Up(false))).collect()
    }

    /// What has changed since the last call.
    pub(super) fn poll_changes(&mut self) -> PortUpdates {
        let mut news = PortUpdates::default();
        // An element that receives or sends may have found out before the kernel's news were read.
        let is_news =
            self.news.has_changed() || self.followed.iter().any(|one| one.has_other_interface(&self.ports));
        if is_news {
            self.followed.iter_mut().for_each(|followed| followed.update_snapshot(&self.ports, &mut news));
        }
        news
    }
}

impl FollowedPort {
    fn has_other_interface(&self, ports: &Ports) -> bool {
        let is_other = |port: Arc<Port>| self.was.generation.is_some_and(|was| was != port.generation());
        ports.find(&self.device).is_some_and(is_other)
    }

    fn update_snapshot(&mut self, ports: &Ports, news: &mut PortUpdates) {
        if let Some(port) = ports.find(&self.device) {
            news.log_lines.extend(port.follow_interface());
        }
        let now = read_interface(ports, &self.device)
            .unwrap_or_else(|| InterfaceSnapshot { state: PortState::Absent, ..self.was.clone() });
        news.changes.extend(diff_interfaces(&self.was, &now).into_iter().map(|change| (self.port, change)));
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

fn read_interface(ports: &Ports, device: &str) -> Option<InterfaceSnapshot> {
    if let Some(port) = ports.find(device) {
        return Some(InterfaceSnapshot {
            interface: port.interface()?,
            state: port.state(),
            generation: Some(port.generation()),
        });
    }
    let interface = Interface::find(device).ok()?;
    let state = if interface.running { PortState::Up } else { PortState::Down };
    Some(InterfaceSnapshot { interface, state, generation: None })
}

/// The changes of a port. A port with another interface was down in between, even if that was not seen.
fn diff_interfaces(was: &InterfaceSnapshot, now: &InterfaceSnapshot) -> Vec<PortUpdate> {
    let mut changes = Vec::new();
    let has_other_generation = was.generation.zip(now.generation).is_some_and(|(was, now)| was != now);
    let is_other = was.interface.index != now.interface.index || has_other_generation;
    let (was_up, is_up) = (was.state == PortState::Up, now.state == PortState::Up);
    if was_up && (is_other || !is_up) {
        changes.push(PortUpdate::Up(false));
    }
    if let Some(mac) = now.interface.mac.filter(|mac| was.interface.mac != Some(*mac)) {
        changes.push(PortUpdate::Ether(EtherAddr(mac)));
    }
    if now.interface.mtu != was.interface.mtu {
        changes.push(PortUpdate::Mtu(now.interface.mtu.min(u16::MAX.into()) as u16));
    }
    // Last, so that the state is complete when the link comes up.
    if is_up && (is_other || !was_up) {
        changes.push(PortUpdate::Up(true));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(index: u32, generation: u32, state: PortState) -> InterfaceSnapshot {
        let interface = Interface { index, mac: Some([index as u8; 6]), ..Interface::find("lo").unwrap() };
        InterfaceSnapshot { interface, state, generation: Some(generation) }
    }

    #[test]
    fn a_port_that_has_another_interface_was_down_in_between() {
        let told =
            |was: &InterfaceSnapshot, now: &InterfaceSnapshot| format!("{:?}", diff_interfaces(was, now));
        let (up, gone) = (seen(5, 0, PortState::Up), seen(5, 1, PortState::Absent));
        assert_eq!(told(&up, &gone), "[Up(false)]");
        assert_eq!(told(&gone, &gone.clone()), "[]");
        let back = seen(7, 2, PortState::Up);
        assert_eq!(told(&gone, &back), "[Ether(07:07:07:07:07:07), Up(true)]");
        assert_eq!(told(&up, &back), "[Up(false), Ether(07:07:07:07:07:07), Up(true)]");
        // The same number, after a move to another network namespace and back.
        assert_eq!(told(&up, &seen(5, 2, PortState::Up)), "[Up(false), Up(true)]");
        assert_eq!(told(&gone, &seen(5, 2, PortState::Down)), "[]");
    }
}
