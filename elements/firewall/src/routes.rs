//! Routes for the rules `no-route` and `urpf-failed`, from the tables of an IPRouter, which packets
//! read without a lock.
use artery_engine::{ArgError, Args};
use artery_filter::evaluate::Routes;
use artery_filter::facts::Interface;
use artery_forward::shared::{self, SharedRouter};
use artery_l3::PortId;
use artery_l3::path::Outcome;
use artery_l3::router::{PortView, Readers};
use artery_rcu::Turn;
use std::net::IpAddr;
use std::sync::Arc;

/// The routes of a router for a worker's filter, which numbers the ports differently.
pub(crate) struct RouterRoutes {
    router: Arc<SharedRouter>,
    readers: Readers,
    /// By interface; None for interfaces that are not ports of the router.
    ports: Vec<Option<PortId>>,
}

impl RouterRoutes {
    /// Those of the router that the argument ROUTER names; `names` are the interfaces in their order, `first`
    /// the number of the first of them.
    pub(crate) fn new(args: &Args<'_>, names: &[String], first: u16) -> Result<RouterRoutes, ArgError> {
        let router = shared::find_router(args)?;
        let views = router.lock_tables().ports();
        let number = |name: &String| {
            let found = views.iter().position(|view| view.name == *name);
            let known = || views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>().join(", ");
            found.map(|number| Some(PortId(number as u16))).ok_or_else(|| {
                let why =
                    format!("PORT {name} is not a port of {}, whose ports are {}", router.name(), known());
                ArgError::wrong_at(name, why)
            })
        };
        let mut ports = vec![None; first.into()];
        ports.extend(names.iter().map(number).collect::<Result<Vec<_>, _>>()?);
        Ok(RouterRoutes { readers: router.readers().clone(), router, ports })
    }

    /// The router's view of its port at an interface.
    #[inline]
    pub(super) fn port_view<'t>(&'t self, interface: Interface, turn: &'t Turn<'_>) -> Option<&'t PortView> {
        let port = (*self.ports.get(usize::from(interface.0))?)?;
        self.readers.ports.read(turn).get(usize::from(port.0))
    }

    /// Another number when the router's routes may have changed.
    pub(super) fn changes(&self) -> u64 {
        self.router.change_count()
    }
}

/// The routes of a router during one turn. Without a router, rules that need routes are
/// refused at load time.
pub(super) struct TurnRoutes<'a, 'r> {
    pub(super) router: Option<&'a RouterRoutes>,
    pub(super) turn: &'a Turn<'r>,
}

impl Routes for TurnRoutes<'_, '_> {
    /// Blackhole routes count as routes, and so do those to the router itself.
    fn has_route(&self, address: IpAddr) -> bool {
        let Some(RouterRoutes { readers, .. }) = self.router else { return true };
        let outcome = match address {
            IpAddr::V4(address) => {
                readers.v4.explain_path(self.turn, address.to_bits(), |_| 0).decision.outcome
            }
            IpAddr::V6(address) => {
                readers.v6.explain_path(self.turn, address.to_bits(), |_| 0).decision.outcome
            }
        };
        outcome != Outcome::NoRoute
    }

    /// Addresses of a link are at each of them.
    fn has_route_via(&self, address: IpAddr, interface: Interface) -> bool {
        let Some(RouterRoutes { readers, ports, .. }) = self.router else { return true };
        let Some(Some(port)) = ports.get(usize::from(interface.0)).copied() else { return true };
        match address {
            IpAddr::V4(address) => readers.v4.leads_by(self.turn, address.to_bits(), Some(port)),
            IpAddr::V6(address) if address.is_unicast_link_local() => true,
            IpAddr::V6(address) => readers.v6.leads_by(self.turn, address.to_bits(), Some(port)),
        }
    }

    fn has_label(&self, _: IpAddr, _: &str) -> bool {
        false
    }
}
