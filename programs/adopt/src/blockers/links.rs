//! What interfaces say of themselves and of each other: masters, XDP programs, interfaces on top of others.
use super::{Blocker, BlockerKind, Bridging, Direction, Family, OwnHook, Port, PortTunnel, sysctl};
use artery_netlink::IpTunnel;
use artery_netlink::request::{self as netlink, Attributes, u16_at, u32_at};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::collections::BTreeMap;
use std::io;

const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
/// Bytes of `struct ifinfomsg`.
const FIXED: usize = 16;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LOWER: u16 = 5;
const MASTER: u16 = 10;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
/// IFLA_MACVLAN_MODE, and those of its modes (MACVLAN_MODE_PASSTHRU, MACVLAN_MODE_SOURCE)
/// that share the address.
const MACVLAN_MODE: u16 = 1;
const SHARING_MODES: u32 = 8 | 16;
const LOWER_NAMESPACE: u16 = 37;
const XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const XDP_PROGRAM: u16 = 4;
const ETHERNET: u16 = 1;
const PPP: u16 = 512;
const UP: u32 = 1;
const LOOPBACK: u32 = 8;

/// Kinds of interfaces that take packets for the address of the one that they are on, and those that may.
const SHARING: [&str; 2] = ["ipvlan", "ipvtap"];
const MACVLANS: [&str; 2] = ["macvlan", "macvtap"];
/// Kinds of interfaces that packets of IPsec arrive by.
const OF_IPSEC: [&str; 2] = ["vti", "xfrm"];
/// What a VRF says of its kind.
const VRF: &str = "vrf";

/// The kind of bridges.
const BRIDGE: &str = "bridge";

/// An interface, as it says.
struct Link {
    index: u32,
    name: String,
    kind: String,
    is_ethernet: bool,
    is_ppp: bool,
    is_up: bool,
    is_loopback: bool,
    master: Option<u32>,
    /// What it is on, if that is in the same namespace.
    lower: Option<u32>,
    mtu: u32,
    program: Option<XdpProgram>,
    /// Whether it takes packets for the address of the one that it is on.
    is_sharing: bool,
    tunnel: Option<IpTunnel>,
}

/// An XDP program, by its number, which there may be several of.
struct XdpProgram(Option<u32>);

/// Why packets of VRFs stay where a graph forwards.
pub const NO_VRFS: &str = "which the graph does not know";
/// Why packets of VRFs stay where only established connections are forwarded.
pub const UNTRACKED: &str = "whose connections are not followed past rules";

/// All Ethernet interfaces that are up, but the loopback.
pub fn ethernet_ports() -> io::Result<Vec<Port>> {
    let is_wanted = |link: &Link| link.is_ethernet && link.is_up && !link.is_loopback;
    Ok(dump_links()?.into_iter().filter(is_wanted).map(Port::from).collect())
}

/// The interface of this name, if there is one.
pub fn port(name: &str) -> io::Result<Option<Port>> {
    Ok(dump_links()?.into_iter().find(|link| link.name == name).map(Port::from))
}

/// Ports, and the interfaces that VLANs among them are on.
pub(super) fn with_those_below(ports: &[Port]) -> io::Result<Vec<Port>> {
    if ports.iter().all(|port| port.vlan_on.is_none()) {
        return Ok(ports.to_vec());
    }
    let is_known = |index: u32| ports.iter().any(|port| port.index == index);
    let is_below =
        |link: &Link| ports.iter().any(|port| port.vlan_on == Some(link.index)) && !is_known(link.index);
    let below = dump_links()?.into_iter().filter(is_below).map(Port::from);
    Ok(ports.iter().cloned().chain(below).collect())
}

/// Those of some ports that are there, by the names that they have now, and the VLANs on them, which have
/// settings of their own.
pub fn with_vlans(ports: &[Port]) -> io::Result<Vec<Port>> {
    Ok(and_vlans(ports, dump_links()?))
}

fn and_vlans(ports: &[Port], links: Vec<Link>) -> Vec<Port> {
    let is_on_one = |port: &Port| ports.iter().any(|other| port.vlan_on == Some(other.index));
    let is_new = |port: &Port| ports.iter().all(|other| other.index != port.index);
    let named = |port: &Port| {
        let link = links.iter().find(|link| link.index == port.index)?;
        Some(Port { name: link.name.clone(), ..port.clone() })
    };
    let known: Vec<Port> = ports.iter().filter_map(named).collect();
    known.into_iter().chain(links.into_iter().map(Port::from).filter(is_new).filter(is_on_one)).collect()
}

/// Ports, with the members of bridges among them, which have their programs.
pub fn with_members(ports: &[Port]) -> io::Result<Vec<Port>> {
    Ok(and_members(ports, dump_links()?))
}

fn and_members(ports: &[Port], links: Vec<Link>) -> Vec<Port> {
    let is_bridge =
        |index: u32| ports.iter().any(|port| port.index == index && port.bridging == Bridging::Bridge);
    let bridge_of = |link: &Link| link.master.filter(|master| is_bridge(*master));
    let bridges: BTreeMap<u32, u32> =
        links.iter().filter_map(|link| Some((link.index, bridge_of(link)?))).collect();
    let bridging = |index: u32| bridges.get(&index).map(|bridge| Bridging::Member(*bridge));
    let known = ports.iter().map(|port| {
        let own = if port.bridging == Bridging::Bridge { Bridging::Bridge } else { Bridging::None };
        Port { bridging: bridging(port.index).unwrap_or(own), ..port.clone() }
    });
    let is_new = |port: &Port| ports.iter().all(|other| other.index != port.index);
    let members = links.into_iter().map(Port::from).filter(is_new).filter_map(|port| {
        let bridging = bridging(port.index)?;
        Some(Port { bridging, ..port })
    });
    known.chain(members).collect()
}

impl From<Link> for Port {
    fn from(link: Link) -> Port {
        let vlan_on = link.lower.filter(|_| link.kind == "vlan");
        let bridging = if link.kind == BRIDGE { Bridging::Bridge } else { Bridging::None };
        let tunnel = match link.tunnel {
            Some(_) => Some(PortTunnel::OverIpv4),
            None => link.is_ppp.then_some(PortTunnel::Ppp(None)),
        };
        Port { index: link.index, name: link.name, vlan_on, own: None, bridging, tunnel }
    }
}

/// What keeps traffic of these ports.
pub(super) fn guards(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let mut guards = of_links(&dump_links()?, ports);
    guards.extend(find_narrow(&super::routed_ports(ports))?);
    Ok(guards)
}

/// Ports by which IPv6 may send less than their links take, by a setting or a router's word (RFC 4861 section
/// 4.6.4): what is longer the kernel answers.
pub(super) fn find_narrow(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let mut guards = Vec::new();
    for link in dump_links()? {
        let name = format!("ipv6/conf/{}/mtu", link.name);
        let Some(port) = ports.iter().find(|port| port.index == link.index) else { continue };
        if let Some(mtu) = sysctl::number(&name)?.filter(|mtu| (1..link.mtu.into()).contains(mtu)) {
            let guard = sysctl::guard(
                BlockerKind::Forwarding,
                "IPv6 may not send what the link takes",
                &name,
                mtu,
                &link.mtu.to_string(),
            );
            guards.push(guard.for_family(Family::V6).at_port(port.index, Direction::Out));
        }
    }
    Ok(guards)
}

fn dump_links() -> io::Result<Vec<Link>> {
    let messages = netlink::dump(NETLINK_ROUTE, GET_LINK, &[0; FIXED])?;
    messages
        .iter()
        .filter(|message| message.kind == NEW_LINK)
        .map(|message| Link::read(&message.body))
        .collect()
}

impl Link {
    fn read(body: &[u8]) -> io::Result<Link> {
        let attributes = Attributes::after_header(FIXED, body)?;
        let flags = u32_at(body, 8)?;
        let xdp = attributes.nested(XDP)?;
        let attached = xdp.as_ref().and_then(|xdp| xdp.value(XDP_ATTACHED)).is_some_and(|value| value != [0]);
        let is_elsewhere = attributes.value(LOWER_NAMESPACE).is_some();
        let info = attributes.nested(INFO)?;
        let kind = info.as_ref().and_then(|info| info.text(INFO_KIND)).unwrap_or_default();
        let data = info.map_or(Ok(None), |info| info.nested(INFO_DATA))?;
        let mode = data.and_then(|data| data.number(MACVLAN_MODE)).unwrap_or(0);
        let is_macvlan = MACVLANS.contains(&kind.as_str());
        Ok(Link {
            is_sharing: SHARING.contains(&kind.as_str()) || is_macvlan && mode & SHARING_MODES != 0,
            kind,
            index: u32_at(body, 4)?,
            name: attributes.text(NAME).unwrap_or_default(),
            is_ethernet: u16_at(body, 2)? == ETHERNET,
            is_ppp: u16_at(body, 2)? == PPP,
            is_up: flags & UP != 0,
            is_loopback: flags & LOOPBACK != 0,
            master: attributes.number(MASTER),
            mtu: attributes.number(MTU).unwrap_or(0),
            lower: attributes.number(LOWER).filter(|_| !is_elsewhere),
            program: attached.then(|| XdpProgram(xdp.and_then(|xdp| xdp.number(XDP_PROGRAM)))),
            tunnel: IpTunnel::parse_message(body),
        })
    }
}

fn of_links(links: &[Link], ports: &[Port]) -> Vec<Blocker> {
    let mut guards = Vec::new();
    for port in ports {
        let Some(link) = links.iter().find(|link| link.index == port.index) else { continue };
        guards.extend((!link.is_ethernet && !port.is_tunnel()).then(|| of_header(port)));
        let master = link.master.filter(|master| port.bridging != Bridging::Member(*master));
        let master = master.map(|master| links.iter().find(|link| link.index == master));
        let master = master.filter(|master| !is_followed(port, *master));
        guards.extend(master.map(|master| of_master(port, master)));
        guards.extend(
            link.program
                .as_ref()
                .filter(|_| port.own != Some(OwnHook::Xdp))
                .map(|program| of_program(port, program)),
        );
        let on_it = links.iter().filter(|other| other.lower == Some(port.index));
        guards.extend(on_it.filter(|other| other.is_sharing).map(|other| of_child(port, other)));
    }
    guards
}

/// Leaves what arrives at those of these ports that belong to a VRF to the kernel, for a reason.
pub fn of_vrfs(ports: &[Port], family: Option<Family>, why: &str) -> Vec<Blocker> {
    // What can't be read here keeps everything by itself.
    of_vrfs_among(&dump_links().unwrap_or_default(), ports, family, why)
}

fn of_vrfs_among(links: &[Link], ports: &[Port], family: Option<Family>, why: &str) -> Vec<Blocker> {
    let in_vrf = |port: &Port| {
        let master = links.iter().find(|link| link.index == port.index)?.master?;
        let vrf = links.iter().find(|link| link.index == master && link.kind == VRF)?;
        let what = format!("{} belongs to VRF {}, {why}", port.name, vrf.name);
        let blocker = Blocker::new(BlockerKind::Master, what, master_remedy(&port.name));
        Some(blocker.for_family(family).at_port(port.index, Direction::In))
    };
    ports.iter().filter_map(in_vrf).collect()
}

/// An interface that packets with an outer header of IPv4 may arrive by.
pub(super) struct TunnelLink {
    pub(super) name: String,
    pub(super) kind: TunnelKind,
    /// The port that it is, or of a veth also the VLAN or bond over it, if that is one.
    pub(super) port: Option<Port>,
}

pub(super) enum TunnelKind {
    Plain(IpTunnel),
    /// Of IPsec, for which packets of IPIP may be, too.
    Ipsec,
    /// Hands over packets as they were sent: the checksum within another header may still be missing, which
    /// the card shall write, and no program sees that.
    Veth,
}

/// All such interfaces, if any of these ports is a tunnel over IPv4.
pub(super) fn find_tunnels(ports: &[Port]) -> io::Result<Vec<TunnelLink>> {
    if ports.iter().all(|port| port.tunnel != Some(PortTunnel::OverIpv4)) {
        return Ok(Vec::new());
    }
    let tunnel_of = |link: Link| {
        let kind = match link.tunnel {
            Some(tunnel) => TunnelKind::Plain(tunnel),
            None if OF_IPSEC.contains(&link.kind.as_str()) => TunnelKind::Ipsec,
            None if link.kind == "veth" => TunnelKind::Veth,
            None => return None,
        };
        let is_it = |port: &&Port| match kind {
            TunnelKind::Veth => {
                port.index == link.index
                    || port.vlan_on == Some(link.index)
                    || link.master == Some(port.index)
            }
            _ => port.index == link.index,
        };
        let port = ports.iter().find(is_it).cloned();
        Some(TunnelLink { name: link.name, kind, port })
    };
    Ok(dump_links()?.into_iter().filter_map(tunnel_of).collect())
}

/// Those of these ports that are bonds. If they can't be read, nothing about interfaces can.
pub(super) fn find_bonds(ports: &[Port]) -> Vec<Port> {
    if ports.is_empty() {
        return Vec::new();
    }
    let links = dump_links().unwrap_or_default();
    let is_bond = |port: &&Port| links.iter().any(|link| link.index == port.index && link.kind == "bond");
    ports.iter().filter(is_bond).cloned().collect()
}

/// Whether packets of a port are forwarded by the routes of the VRF that it belongs to, which
/// the mirror follows.
fn is_followed(port: &Port, master: Option<&Link>) -> bool {
    let is_routed = port.bridging == Bridging::None && !port.is_tunnel();
    is_routed && master.is_some_and(|master| master.kind == VRF && master.is_up)
}

fn master_remedy(name: &str) -> String {
    format!("shown by: ip -d link show dev {name}")
}

fn of_header(port: &Port) -> Blocker {
    let what = format!("frames of {} have no Ethernet header", port.name);
    let remedy = format!("shown by: ip -d link show dev {}; adopt Ethernet ports", port.name);
    Blocker::new(BlockerKind::NoEthernet, what, remedy).at_port(port.index, Direction::Both)
}

fn of_master(port: &Port, master: Option<&Link>) -> Blocker {
    let name = &port.name;
    let what = match master.map(|master| (master.kind.as_str(), &master.name)) {
        None => format!("{name} belongs to another interface"),
        Some((VRF, master)) if port.is_tunnel() => format!("{name} belongs to VRF {master}"),
        Some((VRF, master)) => format!("{name} belongs to VRF {master}, which is down"),
        Some((kind, master)) => format!("{name} belongs to {kind} {master}"),
    };
    Blocker::new(BlockerKind::Master, what, master_remedy(name)).at_port(port.index, Direction::Both)
}

fn of_program(port: &Port, XdpProgram(number): &XdpProgram) -> Blocker {
    let is_of_artery = number.is_some_and(artery_device::bpf::is_of_artery);
    let whose = if is_of_artery { ", of Artery" } else { "" };
    let number = number.map_or("several".to_owned(), |number| format!("number {number}{whose}"));
    let what = format!("{} has an XDP program already, {number}", port.name);
    let remedy = format!("shown by: ip link show dev {}", port.name);
    Blocker::new(BlockerKind::Program, what, remedy).at_port(port.index, Direction::In)
}

fn of_child(port: &Port, child: &Link) -> Blocker {
    let what = format!("{} {} takes packets that arrive at {}", child.kind, child.name, port.name);
    let remedy = format!("shown by: ip -d link show dev {}", child.name);
    Blocker::new(BlockerKind::Child, what, remedy).at_port(port.index, Direction::In)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::request::written::{attribute, name, nested, number, survive};

    fn link(index: u32, called: &str, kind: &str, more: &[Vec<u8>]) -> Vec<u8> {
        link_of(index, called, &[name(INFO_KIND, kind)], more)
    }

    fn link_of(index: u32, called: &str, info: &[Vec<u8>], more: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; 2];
        body.extend(ETHERNET.to_ne_bytes());
        body.extend(index.to_ne_bytes());
        body.extend(UP.to_ne_bytes());
        body.extend([0; 4]);
        body.extend([name(NAME, called), nested(INFO, info), more.concat()].concat());
        body
    }

    fn said(bodies: &[Vec<u8>], own: Option<OwnHook>) -> Vec<(String, Direction)> {
        let links: Vec<_> = bodies.iter().map(|body| Link::read(body).unwrap()).collect();
        let port = Port {
            index: 2,
            name: "eth0".into(),
            vlan_on: None,
            own,
            bridging: Bridging::None,
            tunnel: None,
        };
        let guards = of_links(&links, &[port]);
        guards.into_iter().map(|guard| (guard.what, guard.direction)).collect()
    }

    #[test]
    fn masters_programs_and_those_who_share_an_address_keep_traffic() {
        let slave = |master: &[Vec<u8>]| [link(2, "eth0", "veth", &[number(MASTER, 7)]), master.concat()];
        let red = link(7, "red", "vrf", &[]);
        assert_eq!(said(&slave(std::slice::from_ref(&red)), None), [], "its routes are followed");
        let mut down = red.clone();
        down[8..12].copy_from_slice(&0_u32.to_ne_bytes());
        let is_down = ("eth0 belongs to VRF red, which is down".into(), Direction::Both);
        assert_eq!(said(&slave(&[down]), None), [is_down]);
        let links = slave(&[red]).map(|body| Link::read(&body).unwrap());
        let ports = [2, 3].map(|index| Port { index, name: "eth0".into(), ..Port::default() });
        let kept = of_vrfs_among(&links, &ports, Some(Family::V4), UNTRACKED);
        let [kept] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!(
            kept.to_string(),
            "eth0 belongs to VRF red, whose connections are not followed past rules: IPv4 that arrives there \
             stays with the kernel (shown by: ip -d link show dev eth0)"
        );
        let bridge = link(7, "br0", "bridge", &[]);
        let found = said(&slave(&[bridge]), Some(OwnHook::Tc));
        assert_eq!(found, [("eth0 belongs to bridge br0".into(), Direction::Both)]);
        let programmed = |attached| {
            let xdp = nested(XDP, &[attribute(XDP_ATTACHED, &[attached]), number(XDP_PROGRAM, 33)]);
            [link(2, "eth0", "veth", &[xdp])]
        };
        let there = ("eth0 has an XDP program already, number 33".into(), Direction::In);
        assert_eq!(said(&programmed(1), None), [there]);
        assert_eq!((said(&programmed(0), None), said(&programmed(1), Some(OwnHook::Xdp))), (vec![], vec![]));
        let child = |more: &[Vec<u8>]| {
            let lower = [&[number(LOWER, 2)], more].concat();
            [link(2, "eth0", "veth", &[]), link(3, "iv", "ipvlan", &lower)]
        };
        let found = said(&child(&[]), None);
        assert_eq!(found, [("ipvlan iv takes packets that arrive at eth0".into(), Direction::In)]);
        assert_eq!(said(&child(&[number(LOWER_NAMESPACE, 0)]), None), []);
        let macvlan = |mode| {
            let info = [name(INFO_KIND, "macvtap"), nested(INFO_DATA, &[number(MACVLAN_MODE, mode)])];
            [link(2, "eth0", "veth", &[]), link_of(3, "vm", &info, &[number(LOWER, 2)])]
        };
        assert_eq!([1, 2, 4].map(|mode| said(&macvlan(mode), None).len()), [0; 3]);
        assert_eq!([8, 16].map(|mode| said(&macvlan(mode), None).len()), [1; 2]);
    }

    #[test]
    fn frames_without_an_ethernet_header_stay() {
        let mut tun = link(2, "tun0", "tun", &[]);
        tun[2..4].copy_from_slice(&0xfffe_u16.to_ne_bytes());
        assert_eq!(said(&[tun], None), [("frames of eth0 have no Ethernet header".into(), Direction::Both)]);
    }

    #[test]
    fn a_vlan_knows_what_it_is_on_and_other_interfaces_do_not_say() {
        for (kind, on) in [("vlan", Some(2)), ("macvlan", None), ("veth", None)] {
            let port = Port::from(Link::read(&link(3, "one", kind, &[number(LOWER, 2)])).unwrap());
            assert_eq!((port.index, port.vlan_on), (3, on), "{kind}");
        }
    }

    #[test]
    fn vlans_on_ports_are_ports_and_no_other_interfaces_are() {
        let links = [link(2, "wan", "", &[]), link(3, "eth0.7", "vlan", &[number(LOWER, 2)])];
        let links = links.into_iter().chain([link(4, "eth1.7", "vlan", &[number(LOWER, 9)])]);
        let links = links.map(|body| Link::read(&body).unwrap()).collect();
        let eth0 = Port {
            index: 2,
            name: "eth0".into(),
            vlan_on: None,
            own: Some(OwnHook::Xdp),
            bridging: Bridging::None,
            tunnel: None,
        };
        let vlan = Port {
            index: 3,
            name: "eth0.7".into(),
            vlan_on: Some(2),
            own: None,
            bridging: Bridging::None,
            tunnel: None,
        };
        let renamed = Port { name: "wan".into(), ..eth0.clone() };
        assert_eq!(and_vlans(&[eth0], links), [renamed, vlan]);
    }

    #[test]
    fn any_bytes_are_a_link_or_an_error() {
        let xdp = nested(XDP, &[attribute(XDP_ATTACHED, &[1]), number(XDP_PROGRAM, 33)]);
        survive(&link(2, "eth0", "veth", &[number(MASTER, 7), xdp]), |body| Link::read(body).is_ok());
    }
}
