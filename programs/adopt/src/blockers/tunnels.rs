//! What packets of tunnels need the kernel for: options of a tunnel, others that packets may be for, and
//! rules for packets from and to the machine itself, which outer packets are.
use super::links::{self, TunnelKind, TunnelLink, find_tunnels};
use super::{
    Blocker, BlockerKind, Bridging, Direction, Family, Port, PortTunnel, at_tunnels, hooks, ipsec, nftables,
};
use crate::pppoe;
use artery_netlink::{IpTunnel, TunnelProtocol};
use std::io;
use std::net::Ipv4Addr;

/// What keeps traffic of the tunnels among these ports.
pub(super) fn find_blockers(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let links = find_tunnels(ports)?;
    let mut found = find_session_blockers(ports);
    found.extend(links.iter().flat_map(|link| of_tunnel(link, &links)));
    if links.iter().all(|link| link.port.is_none()) {
        return Ok(found);
    }
    let guards = nftables::of_machine()?.into_iter().chain(hooks::of_machine()?).chain(ipsec::of_machine()?);
    found.extend(at_tunnels(&guards.collect::<Vec<_>>(), ports));
    Ok(found)
}

/// What of that the kernel sends no notification of.
pub(super) fn find_polled(ports: &[Port]) -> Vec<Blocker> {
    let mut found = find_session_blockers(ports);
    if ports.iter().any(|port| port.tunnel == Some(PortTunnel::OverIpv4)) {
        found.extend(hooks::of_machine().unwrap_or_default());
    }
    found
}

/// What leaves all packets of interfaces of PPP among these ports to the kernel.
fn find_session_blockers(ports: &[Port]) -> Vec<Blocker> {
    let of_port = |port: &Port| {
        let Some(PortTunnel::Ppp(carrier)) = &port.tunnel else { return None };
        let (what, remedy) = why_no_session(&port.name, carrier.as_deref(), ports)?;
        Some(Blocker::new(BlockerKind::Tunnel, what, remedy).at_port(port.index, Direction::Both))
    };
    ports.iter().filter_map(of_port).collect()
}

/// Says that an interface of PPP was there before the session that it is to be.
pub(crate) fn lost_session(port: &Port) -> Option<Blocker> {
    let Some(PortTunnel::Ppp(Some(carrier))) = &port.tunnel else { return None };
    let name = &port.name;
    let what = format!("{name} was there without the session at {carrier}, which may be another interface's");
    let remedy =
        format!("give that one a name of its own and begin it again; shown by: ip link show dev {name}");
    Some(Blocker::new(BlockerKind::Tunnel, what, remedy).at_port(port.index, Direction::Both))
}

/// Says that programs have no room to look a tunnel up by its header.
pub(crate) fn tunnel_without_room(port: &Port) -> Blocker {
    let what = format!("{}: no room among the tunnels that programs look up", port.name);
    let remedy = "adopt fewer tunnels between the same ends".to_owned();
    Blocker::new(BlockerKind::Tunnel, what, remedy).at_port(port.index, Direction::In)
}

/// Why the session of an interface of PPP is not known, and what shows or changes that.
fn why_no_session(name: &str, carrier: Option<&str>, ports: &[Port]) -> Option<(String, String)> {
    let shown = || "shown by: cat /proc/net/pppoe".to_owned();
    let Some(carrier) = carrier else {
        let what = format!("{name} is an interface of PPP, and the kernel does not say what carries it");
        let remedy = format!(
            "where it is the only session of PPPoE at an interface, and neither filters nor compresses \
             packets: --pppoe {name}=INTERFACE"
        );
        return Some((what, remedy));
    };
    let vlans = links::with_vlans(ports).unwrap_or_default();
    if ports.iter().chain(&vlans).all(|port| port.name != carrier) {
        let what = format!("{carrier}, which carries {name}, is not adopted");
        return Some((what, format!("name it among the ports: {carrier} {name}")));
    }
    let is_bridge = |port: &Port| port.name == carrier && port.bridging == Bridging::Bridge;
    if ports.iter().any(is_bridge) {
        let what = format!("the frames of {name} come and go by bridge {carrier}");
        return Some((what, format!("shown by: ip -d link show dev {carrier}")));
    }
    match pppoe::find_only(carrier) {
        Ok(Ok(_)) => None,
        Ok(Err(0)) => Some((format!("{carrier} has no session of PPPoE, which {name} is to be"), shown())),
        Ok(Err(number)) => Some((
            format!("{carrier} has {number} sessions of PPPoE, and the kernel does not say which {name} is"),
            shown(),
        )),
        Err(error) => Some((format!("the sessions of PPPoE can't be read: {error}"), shown())),
    }
}

fn of_tunnel(link: &TunnelLink, links: &[TunnelLink]) -> Vec<Blocker> {
    let (Some(port), TunnelKind::Plain(tunnel)) = (&link.port, &link.kind) else { return Vec::new() };
    let name = &port.name;
    let at = |direction: Direction, what: String| {
        let blocker =
            Blocker::new(BlockerKind::Tunnel, what, format!("shown by: ip -d link show dev {name}"));
        blocker.at_port(port.index, direction)
    };
    if let Some(option) = tunnel.option {
        return vec![at(Direction::Both, format!("{name} is a tunnel with an option: {option}"))];
    }
    let of_ipv4 = (tunnel.protocol == TunnelProtocol::Ipip)
        .then(|| at(Direction::Both, format!("{name} is a tunnel of IPIP, which carries IPv4 alone")))
        .map(|one| one.for_family(Family::V6));
    let rival = links.iter().find(|other| other.name != link.name && may_take(&other.kind, tunnel));
    let is_unfinished = |other: &&TunnelLink| other.port.is_some() && matches!(other.kind, TunnelKind::Veth);
    let arrives = match (rival, links.iter().find(is_unfinished)) {
        (Some(rival), _) => Some(format!("{} may take what arrives by {name}", rival.name)),
        (None, Some(veth)) => {
            Some(format!("packets within others may come by {} without checksums", veth.name))
        }
        (None, None) => {
            tunnel.local.is_unspecified().then(|| format!("{name} has no local address of its own"))
        }
    };
    of_ipv4.into_iter().chain(arrives.map(|what| at(Direction::In, what))).collect()
}

/// Whether the kernel may give packets of a tunnel to another (`ip_tunnel_lookup`): one with the same
/// addresses, or any address in the place of one, if it is bound to the interface where they arrive; and for
/// IPIP those of IPsec, which are asked first.
fn may_take(other: &TunnelKind, tunnel: &IpTunnel) -> bool {
    let other = match other {
        TunnelKind::Plain(other) if other.protocol == tunnel.protocol => other,
        TunnelKind::Plain(_) | TunnelKind::Veth => return false,
        TunnelKind::Ipsec => return tunnel.protocol == TunnelProtocol::Ipip,
    };
    let is_same = other.local == tunnel.local && other.remote == tunnel.remote;
    let is_like = |other: Ipv4Addr, one| other == one || other.is_unspecified() || other.is_multicast();
    is_same
        || other.lower.is_some() && is_like(other.local, tunnel.local) && is_like(other.remote, tunnel.remote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::TunnelOption;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    fn tunnel(protocol: TunnelProtocol, option: Option<TunnelOption>) -> IpTunnel {
        IpTunnel { protocol, local: LOCAL, remote: REMOTE, ttl: 0, tos: 0, lower: None, option }
    }

    /// The port tun7.
    fn adopted(tunnel: IpTunnel) -> TunnelLink {
        let port =
            Port { index: 7, name: "tun7".into(), tunnel: Some(PortTunnel::OverIpv4), ..Port::default() };
        TunnelLink { name: port.name.clone(), kind: TunnelKind::Plain(tunnel), port: Some(port) }
    }

    fn other(kind: TunnelKind) -> TunnelLink {
        TunnelLink { name: "tun8".into(), kind, port: None }
    }

    fn said(links: &[TunnelLink]) -> Vec<(String, Option<Family>, Direction)> {
        let guards = of_tunnel(&links[0], links);
        guards.into_iter().map(|guard| (guard.what, guard.family, guard.direction)).collect()
    }

    #[test]
    fn what_a_tunnel_leaves_to_the_kernel_is_named() {
        let of = |protocol, option| said(&[adopted(tunnel(protocol, option))]);
        assert_eq!(of(TunnelProtocol::Gre, None), []);
        let ipip = "tun7 is a tunnel of IPIP, which carries IPv4 alone".into();
        assert_eq!(of(TunnelProtocol::Ipip, None), [(ipip, Some(Family::V6), Direction::Both)]);
        let key = ("tun7 is a tunnel with an option: key".into(), None, Direction::Both);
        assert_eq!(of(TunnelProtocol::Gre, Some(TunnelOption::Key)), [key]);
        let anywhere = IpTunnel { local: Ipv4Addr::UNSPECIFIED, ..tunnel(TunnelProtocol::Gre, None) };
        let arrives = ("tun7 has no local address of its own".into(), None, Direction::In);
        assert_eq!(said(&[adopted(anywhere)]), [arrives]);
    }

    #[test]
    fn what_leaves_an_interface_of_ppp_to_the_kernel_is_named() {
        let ppp = |carrier: Option<&str>| {
            let tunnel = Some(PortTunnel::Ppp(carrier.map(str::to_owned)));
            let port = Port { index: 7, name: "ppp7".into(), tunnel, ..Port::default() };
            let carrier = Port { name: "eth7".into(), ..Port::default() };
            let bridge = Port { name: "br7".into(), bridging: Bridging::Bridge, ..Port::default() };
            let guards = find_session_blockers(&[port, carrier, bridge]);
            let [guard] = &guards[..] else { panic!("one is to be found: {guards:?}") };
            guard.to_string()
        };
        assert_eq!(
            ppp(None),
            "ppp7 is an interface of PPP, and the kernel does not say what carries it: IPv4 and IPv6 stay \
             with the kernel (where it is the only session of PPPoE at an interface, and neither filters nor \
             compresses packets: --pppoe ppp7=INTERFACE)"
        );
        assert!(ppp(Some("none7")).starts_with("none7, which carries ppp7, is not adopted: "));
        assert!(ppp(Some("eth7")).starts_with("eth7 has no session of PPPoE, which ppp7 is to be: "));
        assert!(ppp(Some("br7")).starts_with("the frames of ppp7 come and go by bridge br7: "));
    }

    #[test]
    fn a_tunnel_that_packets_may_be_for_keeps_what_arrives() {
        let gre = tunnel(TunnelProtocol::Gre, None);
        let takes = |kind| !said(&[adopted(gre.clone()), other(kind)]).is_empty();
        let bound = |local, remote, lower| {
            TunnelKind::Plain(IpTunnel { local, remote, lower, ..tunnel(TunnelProtocol::Gre, None) })
        };
        let any = Ipv4Addr::UNSPECIFIED;
        assert!(takes(bound(LOCAL, REMOTE, None)));
        // As gre0 is, which gets what no other tunnel takes.
        assert!(!takes(bound(any, any, None)) && takes(bound(any, any, Some(3))));
        assert!(takes(bound(any, REMOTE, Some(3))) && !takes(bound(LOCAL, LOCAL, Some(3))));
        assert!(!takes(TunnelKind::Plain(tunnel(TunnelProtocol::Ipip, None))) && !takes(TunnelKind::Ipsec));
        let ipip = [adopted(tunnel(TunnelProtocol::Ipip, None)), other(TunnelKind::Ipsec)];
        let taken = ("tun8 may take what arrives by tun7".into(), None, Direction::In);
        assert_eq!(said(&ipip)[1..], [taken]);
        let mut veth = other(TunnelKind::Veth);
        assert_eq!(said(&[adopted(gre.clone()), veth]), []);
        veth = TunnelLink { name: "eth1".into(), kind: TunnelKind::Veth, port: Some(Port::default()) };
        let unfinished = "packets within others may come by eth1 without checksums".into();
        assert_eq!(said(&[adopted(gre), veth]), [(unfinished, None, Direction::In)]);
    }
}
