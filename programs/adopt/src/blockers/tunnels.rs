//! What packets of tunnels need the kernel for: options of a tunnel, all that arrives, and rules for packets
//! of the machine itself, which outer packets are.
use super::links::find_tunnels;
use super::{Blocker, BlockerKind, Direction, Family, Port, at_tunnels, hooks, nftables};
use artery_netlink::{IpTunnel, TunnelProtocol};
use std::io;

/// What keeps traffic of the tunnels among these ports.
pub(super) fn find_blockers(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let tunnels = find_tunnels(ports)?;
    if tunnels.is_empty() {
        return Ok(Vec::new());
    }
    let mut found: Vec<Blocker> = tunnels.iter().flat_map(|(port, tunnel)| of_tunnel(port, tunnel)).collect();
    // Where connections are tracked, what arrives may be let in for what left.
    let guards: Vec<Blocker> = nftables::of_machine()?.into_iter().chain(hooks::of_machine()?).collect();
    found.extend(at_tunnels(&guards, ports));
    Ok(found)
}

/// What of that the kernel sends no notification of.
pub(super) fn find_polled(ports: &[Port]) -> Vec<Blocker> {
    if ports.iter().all(|port| !port.is_tunnel) {
        return Vec::new();
    }
    hooks::of_machine().unwrap_or_default()
}

fn of_tunnel(port: &Port, tunnel: &IpTunnel) -> Vec<Blocker> {
    let name = &port.name;
    let blocker = |what: String| {
        Blocker::new(BlockerKind::Tunnel, what, format!("shown by: ip -d link show dev {name}"))
    };
    let arrives = blocker(format!("{name} is a tunnel, whose headers the kernel takes off"));
    let option = tunnel.option.map(|option| blocker(format!("{name} is a tunnel with an option: {option}")));
    let of_ipv4 = (tunnel.protocol == TunnelProtocol::Ipip)
        .then(|| blocker(format!("{name} is a tunnel of IPIP, which carries IPv4 alone")))
        .map(|one| one.for_family(Family::V6).at_port(port.index, Direction::Out));
    let option = option.map(|one| one.at_port(port.index, Direction::Out));
    [arrives.at_port(port.index, Direction::In)].into_iter().chain(option.or(of_ipv4)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::TunnelOption;
    use std::net::Ipv4Addr;

    #[test]
    fn what_a_tunnel_leaves_to_the_kernel_is_named() {
        let port = Port { index: 7, name: "tun7".into(), is_tunnel: true, ..Port::default() };
        let tunnel = |protocol, option| IpTunnel {
            protocol,
            local: Ipv4Addr::new(192, 0, 2, 1),
            remote: Ipv4Addr::new(192, 0, 2, 2),
            ttl: 0,
            tos: 0,
            lower: None,
            option,
        };
        let said = |protocol, option| {
            let guards = of_tunnel(&port, &tunnel(protocol, option));
            guards.into_iter().map(|guard| (guard.what, guard.family, guard.direction)).collect::<Vec<_>>()
        };
        let arrives = ("tun7 is a tunnel, whose headers the kernel takes off".into(), None, Direction::In);
        assert_eq!(said(TunnelProtocol::Gre, None), std::slice::from_ref(&arrives));
        let ipip = "tun7 is a tunnel of IPIP, which carries IPv4 alone".into();
        let found = said(TunnelProtocol::Ipip, None);
        assert_eq!(found, [arrives.clone(), (ipip, Some(Family::V6), Direction::Out)]);
        let key = ("tun7 is a tunnel with an option: key".into(), None, Direction::Out);
        assert_eq!(said(TunnelProtocol::Gre, Some(TunnelOption::Key)), [arrives, key]);
    }
}
