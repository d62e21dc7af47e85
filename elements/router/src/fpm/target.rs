//! A router that gets FPM routes: usually one; two while one replaces the other.
use super::next_hops::{NextHops, ResolvedNextHop};
use super::reason::RejectReason;
use artery_device::{DeviceError, Interface};
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::router::{RouteSpec, Target as Hop};
use artery_netlink::{Path, RouteHop, RouteKind};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Finds the name of the host's interface with a number, if there is one.
type NameOf = fn(u32) -> Result<Option<String>, DeviceError>;

/// A router, for as long as its elements have it.
pub(crate) struct Target {
    router: Weak<SharedRouter>,
    /// The router's ports by name.
    ports: HashMap<String, PortId>,
    /// The host's interface to the router, if it has one for all ports.
    host: Option<String>,
    name_of: NameOf,
}

impl Target {
    /// A router whose host reaches it by one interface, or by those of ports, each with its port's name.
    pub(crate) fn new(
        router: &Arc<SharedRouter>,
        host: Option<&str>,
        host_ports: &[(String, String)],
    ) -> Target {
        let names = router.lock_tables().ports().into_iter().map(|port| port.name);
        let mut ports: HashMap<String, PortId> = names.zip((0..).map(PortId)).collect();
        for (port, interface) in host_ports {
            if let Some(port) = ports.get(port).copied() {
                ports.insert(interface.clone(), port);
            }
        }
        let (router, host) = (Arc::downgrade(router), host.map(str::to_string));
        Target { router, ports, host, name_of: Interface::name_of }
    }

    pub(crate) fn router(&self) -> Option<Arc<SharedRouter>> {
        self.router.upgrade()
    }

    /// What a path is to this router. `is_local`: whether numbers of interfaces are those of this host.
    pub(super) fn route_spec(
        &self,
        path: &Path,
        next_hops: &NextHops,
        is_local: bool,
    ) -> Result<RouteSpec, RejectReason> {
        let end = match path.kind {
            RouteKind::Blackhole => Some(Hop::Blackhole),
            RouteKind::Unreachable => Some(Hop::Unreachable),
            RouteKind::Prohibit => Some(Hop::Prohibited),
            _ => None,
        };
        if let Some(end) = end {
            return Ok(RouteSpec::to(end));
        }
        let resolved;
        let hops = if path.object == 0 {
            &path.hops
        } else {
            match next_hops.resolve_next_hop(path.object)? {
                ResolvedNextHop::Blackhole => return Ok(RouteSpec::to(Hop::Blackhole)),
                ResolvedNextHop::Hops(hops) => resolved = hops,
            }
            &resolved
        };
        let mtu = path.mtu.map(|mtu| mtu.clamp(68, u16::MAX.into()) as u16);
        let hop = |hop: &RouteHop| Ok((self.resolve_hop(hop, mtu, is_local)?, u32::from(hop.weight)));
        let next_hops = hops.iter().map(hop).collect::<Result<Vec<_>, RejectReason>>()?;
        Ok(RouteSpec { next_hops, ..RouteSpec::default() })
    }

    fn resolve_hop(&self, hop: &RouteHop, mtu: Option<u16>, is_local: bool) -> Result<Hop, RejectReason> {
        let port = if is_local { self.find_port(hop.link)? } else { None };
        let is_link_local = |gateway: IpAddr| match gateway {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let port = match (port, hop.gateway) {
            (Some(port), _) => Some(port),
            (None, None) => return Err(RejectReason::NoPort),
            (None, Some(gateway)) if is_link_local(gateway) => Some(self.only_port()?),
            (None, Some(_)) => None,
        };
        Ok(Hop::Via { port, gateway: hop.gateway, mtu })
    }

    /// Where there is one port, a link-local address is there.
    fn only_port(&self) -> Result<PortId, RejectReason> {
        if self.ports.values().all(|port| *port == PortId(0)) {
            Ok(PortId(0))
        } else {
            Err(RejectReason::LinkLocal)
        }
    }

    /// The port that an interface of this host stands for; None if the gateway's prefix decides.
    fn find_port(&self, link: u32) -> Result<Option<PortId>, RejectReason> {
        let name = match link {
            0 => None,
            // It may be an interface that is not the router's, such as one for management. If the prefix
            // decided, packets would leave by a port that the route does not name, and it would stay so.
            link => (self.name_of)(link).map_err(|_| RejectReason::UnknownInterface)?,
        };
        match name {
            Some(name) if Some(&name) != self.host.as_ref() => {
                self.ports.get(&name).map(|port| Some(*port)).ok_or(RejectReason::Interface)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::paths::{PathKey, Paths};
    use super::*;
    use artery_l3::router::Protocol;

    const LINK: u32 = 7;

    fn target(name_of: NameOf) -> Target {
        let ports = HashMap::from([("eth1".to_string(), PortId(0))]);
        Target { router: Weak::new(), ports, host: Some("artery0".into()), name_of }
    }

    fn unknown(_: u32) -> Result<Option<String>, DeviceError> {
        Err(DeviceError::Refused { name: "interface 7".into(), why: "too many open files".into() })
    }

    fn path(link: u32, gateway: &str) -> Path {
        let hop = RouteHop {
            link,
            gateway: Some(gateway.parse().unwrap()),
            weight: 1,
            is_dead: false,
            is_without_carrier: false,
            has_encapsulation: false,
        };
        Path { kind: RouteKind::Unicast, object: 0, hops: vec![hop], mtu: None }
    }

    /// The port of the only next hop.
    fn port(spec: Result<RouteSpec, RejectReason>) -> Result<Option<PortId>, RejectReason> {
        match spec?.next_hops[..] {
            [(Hop::Via { port, .. }, 1)] => Ok(port),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_interface_that_zebra_names_decides_the_port() {
        let named = |link: u32, gateway: &str, name_of: NameOf| {
            port(target(name_of).route_spec(&path(link, gateway), &NextHops::default(), true))
        };
        for gateway in ["10.0.1.9", "fe80::9"] {
            assert_eq!(named(LINK, gateway, |_| Ok(Some("eth1".into()))), Ok(Some(PortId(0))));
            assert_eq!(named(LINK, gateway, |_| Ok(Some("mgmt0".into()))), Err(RejectReason::Interface));
            assert_eq!(named(LINK, gateway, unknown), Err(RejectReason::UnknownInterface));
        }
        let undecided: [NameOf; 2] = [|_| Ok(None), |_| Ok(Some("artery0".into()))];
        for name_of in undecided {
            assert_eq!(named(LINK, "10.0.1.9", name_of), Ok(None), "the prefix decides");
        }
        assert_eq!(named(0, "10.0.1.9", unknown), Ok(None), "no interface is named");
        let remote = target(unknown).route_spec(&path(LINK, "10.0.1.9"), &NextHops::default(), false);
        assert_eq!(port(remote), Ok(None), "zebra runs elsewhere");
    }

    #[test]
    fn an_interface_that_was_unknown_is_asked_for_when_the_route_comes_again() {
        let (mut paths, mut targets) = (Paths::default(), [target(unknown)]);
        let path = Ok(path(LINK, "10.0.1.9"));
        let key = PathKey { protocol: Protocol(186), path, is_local: true, session: 0 };
        let number = paths.acquire_path(key.clone(), &NextHops::default(), &targets);
        assert_eq!(paths.route_spec(number, 0), Err(RejectReason::UnknownInterface));
        targets[0].name_of = |_| Ok(Some("eth1".into()));
        assert_eq!(paths.acquire_path(key.clone(), &NextHops::default(), &targets), number);
        assert_eq!(port(paths.route_spec(number, 0).cloned()), Ok(Some(PortId(0))));
        targets[0].name_of = unknown;
        assert_eq!(paths.acquire_path(key, &NextHops::default(), &targets), number);
        assert_eq!(port(paths.route_spec(number, 0).cloned()), Ok(Some(PortId(0))), "what is known stays");
    }
}
