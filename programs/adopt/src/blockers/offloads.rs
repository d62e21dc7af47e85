//! What becomes of frames before programs of XDP see them, or would have become: VLAN tags that a card takes
//! off, and members of a bond.
use super::{Blocker, BlockerKind, Direction, OwnHook, Port, links};
use artery_device::{DeviceError, Interface, strips_tags};

/// What keeps traffic of ports that have a program.
pub(super) fn find_blockers(ports: &[Port]) -> Vec<Blocker> {
    find_blockers_of_xdp(&with_xdp(ports))
}

/// What of it the kernel sends no notification of.
pub(super) fn find_polled(ports: &[Port]) -> Vec<Blocker> {
    find_tag_strippers(&with_xdp(ports))
}

/// What keeps traffic of ports that are forwarded by XDP, or would be.
pub fn find_blockers_of_xdp(by_xdp: &[Port]) -> Vec<Blocker> {
    let mut found = find_tag_strippers(by_xdp);
    found.extend(links::find_bonds(by_xdp).iter().map(bond_blocker));
    found
}

fn with_xdp(ports: &[Port]) -> Vec<Port> {
    ports.iter().filter(|port| port.own == Some(OwnHook::Xdp)).cloned().collect()
}

fn find_tag_strippers(by_xdp: &[Port]) -> Vec<Blocker> {
    let strips = |port: &Port| Interface::find(&port.name).and_then(|found| strips_tags(&found));
    by_xdp.iter().filter_map(|port| tag_blocker(port, strips(port))).collect()
}

/// A program of XDP at a bond runs at all its members, also at those that the bond does not receive by.
fn bond_blocker(port: &Port) -> Blocker {
    let what = format!(
        "{} is a bond, and XDP would forward what arrives at members that it does not receive by",
        port.name
    );
    let remedy = format!("shown by: ip -d link show master {}; adopt it by tc", port.name);
    Blocker::new(BlockerKind::Offload, what, remedy).at_port(port.index, Direction::In)
}

/// One that is gone, or does not say, takes nothing off.
fn tag_blocker(port: &Port, strips: Result<bool, DeviceError>) -> Option<Blocker> {
    let what =
        format!("{}: its driver takes VLAN tags off, so that XDP would take all VLANs for one", port.name);
    let remedy = format!("changed by: ethtool -K {} rxvlan off; or adopt it by tc", port.name);
    strips
        .unwrap_or(false)
        .then(|| Blocker::new(BlockerKind::Offload, what, remedy).at_port(port.index, Direction::In))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_takes_tags_off_keeps_what_arrives_there() {
        let port = Port { index: 2, name: "eth0".into(), ..Port::default() };
        let found = tag_blocker(&port, Ok(true)).unwrap();
        assert_eq!((found.port, found.family, found.direction), (Some(2), None, Direction::In));
        assert!(found.remedy.contains("ethtool -K eth0 rxvlan off"), "{found}");
        assert_eq!(tag_blocker(&port, Ok(false)), None);
    }
}
