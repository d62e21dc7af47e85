//! What adopted bridges and their members do to frames that the fast path does not: VLANs, rules for bridged
//! frames, states of members.
use super::{Blocker, BlockerKind, Bridging, Direction, Port, hooks, nftables};
use crate::bridges::{BridgeLink, MemberSettings, dump_links};
use std::io;

/// What keeps traffic of bridges among these ports.
pub(super) fn find_blockers(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let bridges: Vec<&Port> = ports.iter().filter(|port| port.bridging == Bridging::Bridge).collect();
    if bridges.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = of_links(ports, &dump_links()?);
    // Frames for the bridge pass through these as bridged ones do, up to where they are let in.
    for guard in nftables::of_bridges()?.into_iter().chain(hooks::of_bridges()?) {
        found.extend(bridges.iter().map(|bridge| guard.clone().at_port(bridge.index, Direction::Both)));
    }
    Ok(found)
}

/// What keeps traffic of a member whose program the kernel refused.
pub(crate) fn refused_member(port: &Port, why: &str) -> Blocker {
    let what = format!("{}: the kernel does not take its program: {why}", port.name);
    at(port, what, format!("shown by: ip -d link show dev {}", port.name))
}

fn of_links(ports: &[Port], links: &[(u32, BridgeLink)]) -> Vec<Blocker> {
    let found = ports.iter().flat_map(|port| {
        let link = links.iter().find(|(index, _)| *index == port.index).map(|(_, link)| *link);
        match (port.bridging, link) {
            (Bridging::Bridge, Some(BridgeLink::Bridge(settings))) => {
                of_bridge(port, settings.filters_vlans, settings.ageing_time)
            }
            (Bridging::Member(_), Some(BridgeLink::Member { settings, .. })) => of_member(port, settings),
            _ => of_vlan(port, ports).into_iter().collect(),
        }
    });
    found.collect()
}

fn of_bridge(bridge: &Port, filters_vlans: bool, ageing_time: u32) -> Vec<Blocker> {
    let name = &bridge.name;
    let change = |setting| format!("changed by: ip link set {name} type bridge {setting}");
    let vlans =
        filters_vlans.then(|| at(bridge, format!("bridge {name} filters VLANs"), change("vlan_filtering 0")));
    let ageing = (ageing_time == 0)
        .then(|| at(bridge, format!("bridge {name} learns no addresses"), change("ageing_time 30000")));
    vlans.into_iter().chain(ageing).collect()
}

fn of_member(member: &Port, settings: MemberSettings) -> Vec<Blocker> {
    let name = &member.name;
    let shown = || format!("shown by: bridge -d link show dev {name}");
    let state = (!settings.forwards())
        .then(|| at(member, format!("{name} is in state {} of its bridge", settings.state_name()), shown()));
    let tunnel =
        settings.has_vlan_tunnel.then(|| at(member, format!("{name} maps VLANs to tunnels"), shown()));
    state.into_iter().chain(tunnel).collect()
}

/// A VLAN on a bridge, or on a member of one.
fn of_vlan(vlan: &Port, ports: &[Port]) -> Option<Blocker> {
    let below = ports.iter().find(|port| Some(port.index) == vlan.vlan_on)?;
    let what = match below.bridging {
        Bridging::None => return None,
        Bridging::Bridge => format!("{} is a VLAN on bridge {}", vlan.name, below.name),
        Bridging::Member(_) => format!("{} is a VLAN on {}, a member of a bridge", vlan.name, below.name),
    };
    Some(at(vlan, what, format!("shown by: ip -d link show dev {}", vlan.name)))
}

fn at(port: &Port, what: String, remedy: String) -> Blocker {
    Blocker::new(BlockerKind::Bridge, what, remedy).at_port(port.index, Direction::Both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridges::BridgeSettings;

    #[test]
    fn what_keeps_a_bridge_or_a_member_is_named() {
        let port = |index, name: &str, vlan_on, bridging| Port {
            index,
            name: name.into(),
            vlan_on,
            own: None,
            bridging,
            tunnel: None,
        };
        let ports = [
            port(1, "br0", None, Bridging::Bridge),
            port(2, "lan1", None, Bridging::Member(1)),
            port(3, "lan2", None, Bridging::Member(1)),
            port(4, "br0.7", Some(1), Bridging::None),
            port(5, "lan1.7", Some(2), Bridging::None),
            port(6, "eth2", None, Bridging::None),
            port(7, "eth2.7", Some(6), Bridging::None),
        ];
        let bridge = |filters_vlans, ageing_time| {
            let settings =
                BridgeSettings { filters_vlans, has_spanning_tree: false, ageing_time, forward_delay: 0 };
            (1, BridgeLink::Bridge(settings))
        };
        let member = |index, state| {
            let settings = MemberSettings { state, has_vlan_tunnel: false };
            (index, BridgeLink::Member { bridge: 1, settings })
        };
        let said = |links: &[(u32, BridgeLink)]| {
            of_links(&ports, links).into_iter().map(|guard| guard.what).collect::<Vec<_>>()
        };
        let vlans = ["br0.7 is a VLAN on bridge br0", "lan1.7 is a VLAN on lan1, a member of a bridge"];
        assert_eq!(said(&[bridge(false, 30_000), member(2, 3), member(3, 3)]), vlans);
        let kept = said(&[bridge(true, 0), member(2, 3), member(3, 4)]);
        assert_eq!(
            kept[..3],
            [
                "bridge br0 filters VLANs",
                "bridge br0 learns no addresses",
                "lan2 is in state blocking of its bridge"
            ]
        );
    }
}
