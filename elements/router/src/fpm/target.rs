//! A router that gets FPM routes: usually one; two while one replaces the other.
use super::next_hops::{NextHops, ResolvedNextHop};
use super::reason::RejectReason;
use artery_device::Interface;
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::router::{RouteSpec, Target as Hop};
use artery_netlink::{Path, RouteHop, RouteKind};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// A router, for as long as its elements have it.
pub(crate) struct Target {
    router: Weak<SharedRouter>,
    /// The router's ports by name.
    ports: HashMap<String, PortId>,
    /// The host's interface to the router, if it has one for all ports.
    host: Option<String>,
}

/// Where a next hop is, by the interface that a daemon names.
enum HopLocation {
    Port(PortId),
    /// At the port with the prefix that contains it.
    ByPrefix,
    /// Not at the router.
    Elsewhere,
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
        Target { router: Arc::downgrade(router), ports, host: host.map(str::to_string) }
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
        let place = if is_local { self.locate_link(hop.link) } else { HopLocation::ByPrefix };
        let is_link_local = |gateway: IpAddr| match gateway {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let port = match place {
            HopLocation::Elsewhere => return Err(RejectReason::Interface),
            HopLocation::Port(port) => Some(port),
            HopLocation::ByPrefix => match hop.gateway {
                None => return Err(RejectReason::NoPort),
                Some(gateway) if is_link_local(gateway) => Some(self.only_port()?),
                Some(_) => None,
            },
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

    fn locate_link(&self, link: u32) -> HopLocation {
        // Where the kernel can't be asked, gateways are found by their prefixes, as where no interface is
        // named.
        let name =
            Some(link).filter(|link| *link != 0).and_then(|link| Interface::name_of(link).ok().flatten());
        match name {
            Some(name) if Some(&name) == self.host.as_ref() => HopLocation::ByPrefix,
            Some(name) => {
                self.ports.get(&name).map_or(HopLocation::Elsewhere, |port| HopLocation::Port(*port))
            }
            None => HopLocation::ByPrefix,
        }
    }
}
