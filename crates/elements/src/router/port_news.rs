//! What becomes of the interfaces of the machine behind a router's ports: the router follows them.
use super::port_text::Change;
use artery_device::{HostNews, Interface, split_vlan_name};
use artery_table::PortId;
use artery_table::router::PortView;
use artery_wire::EtherAddr;
use rustix::fd::{AsFd as _, BorrowedFd};

/// Hears of the interfaces behind ports.
pub(super) struct PortNews {
    news: HostNews,
    known: Vec<(PortId, Interface)>,
}

impl PortNews {
    /// Of the ports that are interfaces of this machine, if any is.
    pub(super) fn open(ports: &[PortView]) -> std::io::Result<Option<PortNews>> {
        let find = |(id, port): (PortId, &PortView)| Some((id, behind(port)?));
        // Listening comes first, so that no change falls between.
        let news = HostNews::of_links()?;
        let known: Vec<_> = (0..).map(PortId).zip(ports).filter_map(find).collect();
        Ok((!known.is_empty()).then_some(PortNews { news, known }))
    }

    /// Readable when there is news.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// The ports whose links carry nothing.
    pub(super) fn down(&self) -> Vec<(PortId, Change)> {
        let down = self.known.iter().filter(|(_, interface)| !interface.running);
        down.map(|(port, _)| (*port, Change::Up(false))).collect()
    }

    /// What has changed since the last call.
    pub(super) fn take(&mut self) -> Vec<(PortId, Change)> {
        let mut changes = Vec::new();
        if self.news.take() {
            self.known.iter_mut().for_each(|(port, was)| look(*port, was, &mut changes));
        }
        changes
    }
}

/// The interface behind a port: the one of its name, or, if there is none, the one whose VLAN it is.
fn behind(port: &PortView) -> Option<Interface> {
    let parent = || Interface::find(split_vlan_name(&port.name)?.0).ok();
    Interface::find(&port.name).ok().or_else(parent)
}

fn look(port: PortId, was: &mut Interface, changes: &mut Vec<(PortId, Change)>) {
    // Another one of the name is not the one that the port uses.
    let same = Interface::find(&was.name).ok().filter(|now| now.index == was.index);
    let Some(now) = same else {
        if std::mem::take(&mut was.running) {
            changes.push((port, Change::Up(false)));
        }
        return;
    };
    if let Some(mac) = now.mac.filter(|_| now.mac != was.mac) {
        changes.push((port, Change::Ether(EtherAddr(mac))));
    }
    if now.mtu != was.mtu {
        changes.push((port, Change::Mtu(now.mtu.min(u16::MAX.into()) as u16)));
    }
    // Last, so that what is said when it comes up is right.
    if now.running != was.running {
        changes.push((port, Change::Up(now.running)));
    }
    *was = now;
}
