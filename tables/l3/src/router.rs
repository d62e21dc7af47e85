//! The tables of a router, for the thread that changes them: ports and their addresses, routes with their
//! next hops, and the neighbors of each port.
//!
//! Workers get [`Readers`]. What they see follows from few things that are stored or published one at a time:
//! a route leads to a group by the routing table, the group to an adjacency by the published
//! [`AdjacencyTable`](crate::path::AdjacencyTable), the adjacency to a link address by a neighbor's word. So
//! a neighbor that moves is one store, a next hop that dies one publication, and neither looks at any route.
//!
//! [`Tables`] send nothing and know no clock. After calls that take `now`, and when [`Tables::poll`] has said
//! so, call `poll`, and do what [`Tables::drain_actions`] hands out.
mod addresses;
mod built_in;
mod error;
mod neighbors;
mod port;
mod protocol;
mod routes;
mod side;
mod spec;

pub use crate::next_hop::{GroupView, MemberView};
pub use addresses::Lost;
pub use error::{BadAddress, RouterError};
pub use neighbors::{Engines, ExternalEngines, OwnEngines, PortAction};
pub use port::{PortSettings, PortSpec, PortView, ReversePath, link_local};
pub use protocol::Protocol;
pub use routes::{RouteView, Standing};
pub use side::{Ip, Source};
pub use spec::{RouteSpec, Target};

use crate::PortId;
use crate::neighbor::{Links, PortChange};
use crate::next_hop::{Hop, Hops};
use crate::path::PathReader;
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Policy, Prefix, RouteTable, TableError};
use artery_rcu::{Domain, Published};
use artery_storage::{GrowingPages, Storage};
use artery_wire::EtherAddr;
use port::Port;
use side::{Claim, Side};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const MOST_PORTS: usize = 4096;
/// Neighbors' ids beyond those that may be in use, as it takes a moment until one is used again.
const SPARE_IDS: usize = 1 << 13;

/// What tables are made with.
#[derive(Clone)]
pub struct Settings {
    /// Engine that forwards IPv4.
    pub policy_v4: Policy<u32>,
    /// Engine that forwards IPv6.
    pub policy_v6: Policy<u128>,
    /// Where memory comes from.
    pub storage: Arc<dyn Storage>,
    /// Most neighbors of all ports together.
    pub most_neighbors: usize,
    /// What random times follow from.
    pub seed: u64,
    /// Whether IPv4 link-local addresses are forwarded as any other, as Linux does against
    /// RFC 3927 section 2.7.
    pub forward_ipv4_link_local: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy_v4: Policy::default(),
            policy_v6: Policy::default(),
            storage: Arc::new(GrowingPages),
            most_neighbors: 1 << 18,
            seed: 0,
            forward_ipv4_link_local: false,
        }
    }
}

/// What workers need; a clone for each.
#[derive(Clone)]
pub struct Readers {
    /// Decides where IPv4 packets go.
    pub v4: PathReader<u32>,
    /// Decides where IPv6 packets go.
    pub v6: PathReader<u128>,
    /// The ports, by number.
    pub ports: Arc<Published<Vec<PortView>>>,
}

/// How much work changes have made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Prefixes changed in the routing tables one by one.
    pub routes: u64,
    /// Groups of next hops whose slots were worked out.
    pub groups: u64,
}

/// All tables of one router, for the thread that changes them.
pub struct Tables {
    v4: Side<u32>,
    v6: Side<u128>,
    ports: Vec<Port>,
    hops: Hops,
    links: Arc<Links>,
    engines: Box<dyn Engines>,
    actions: Vec<(PortId, PortAction)>,
    forward_ipv4_link_local: bool,
    /// When gateways that don't answer are solicited again.
    retry: Option<Duration>,
    /// The ports as they were published last, and how often they were.
    views: Vec<PortView>,
    published_ports: u64,
    published: Arc<Published<Vec<PortView>>>,
}

impl Tables {
    /// Tables without ports, whose readers take turns of `domain`. `engines` finds the neighbors of
    /// ports that are added.
    pub fn new(
        domain: &Arc<Domain>,
        settings: Settings,
        make_engines: impl FnOnce(&Arc<crate::neighbor::NeighborIds>, u64) -> Box<dyn Engines>,
    ) -> Result<Tables, TableError> {
        let ids = settings.most_neighbors + SPARE_IDS;
        let links = Arc::new(Links::new(&*settings.storage, ids)?);
        let places = crate::neighbor::NeighborIds::new(domain, &links, settings.most_neighbors);
        let storage = || settings.storage.clone();
        let readers = || Published::new(domain, Vec::new());
        let mut tables = Tables {
            v4: Side::new(RouteTable::new(domain, settings.policy_v4, storage())?, Arc::new(readers())),
            v6: Side::new(
                RouteTable::new(domain, settings.policy_v6, storage())?,
                Arc::new(Published::new(domain, Vec::new())),
            ),
            ports: Vec::new(),
            hops: Hops::new(domain, &links),
            engines: make_engines(&places, settings.seed),
            links,
            actions: Vec::new(),
            forward_ipv4_link_local: settings.forward_ipv4_link_local,
            retry: None,
            views: Vec::new(),
            published_ports: 0,
            published: Arc::new(Published::new(domain, Vec::new())),
        };
        for (address, len, outcome) in built_in::routes(settings.forward_ipv4_link_local) {
            tables.add_owned(address, len, Source::BuiltIn, Hop::end(outcome)).map_err(
                |error| match error {
                    RouterError::Table(error) => error,
                    other => unreachable!("a built-in route needs no neighbor: {other}"),
                },
            )?;
        }
        Ok(tables)
    }

    /// The readers that workers share.
    pub fn readers(&self) -> Readers {
        let (ways, links) = (self.hops.adjacency_table(), &self.links);
        Readers {
            v4: PathReader::new(self.v4.table.reader(), ways.clone(), self.v4.readers.clone(), links.clone()),
            v6: PathReader::new(self.v6.table.reader(), ways, self.v6.readers.clone(), links.clone()),
            ports: self.published.clone(),
        }
    }

    /// Adds a port; numbers count from 0. It has a link-local IPv6 address at once.
    pub fn add_port(&mut self, spec: PortSpec) -> Result<PortId, RouterError> {
        if self.ports.len() >= MOST_PORTS {
            return Err(RouterError::TooManyPorts);
        }
        let id = PortId(self.ports.len() as u16);
        let (v4, v6) = (self.engines.engine_v4(id, &spec), self.engines.engine_v6(id, &spec));
        let address = spec.address;
        self.hops.set_port(id, spec.mtu, spec.is_up);
        self.ports.push(Port { spec, addresses: Vec::new(), virtual_addresses: Vec::new() });
        self.v4.add_engine(v4);
        self.v6.add_engine(v6);
        self.add_link_local(id, address)?;
        self.publish_ports();
        Ok(id)
    }

    fn add_link_local(&mut self, port: PortId, address: EtherAddr) -> Result<(), RouterError> {
        let hop = Hop::End { outcome: crate::path::Outcome::Local, port: Some(port) };
        self.add_owned(link_local(address).into(), 128, Source::Local(port), hop)
    }

    /// A port's link has come up or gone down. Routes by a port that is down go by their other next hops at
    /// once; its dynamic neighbors are forgotten.
    pub fn set_up(&mut self, port: PortId, is_up: bool, now: Duration) -> Result<(), RouterError> {
        let spec = &mut self.port_mut(port)?.spec;
        if spec.is_up == is_up {
            return Ok(());
        }
        spec.is_up = is_up;
        let mtu = spec.mtu;
        self.hops.set_port(port, mtu, is_up);
        self.hops.publish_adjacencies();
        self.publish_ports();
        self.resolve_shared::<u32>()?;
        self.resolve_shared::<u128>()?;
        if is_up {
            self.hops.clear_failures(port);
            self.hops.publish_adjacencies();
        }
        self.notify_engines(port, if is_up { PortChange::Up } else { PortChange::Down }, now)
    }

    /// A port has another link address, and therefore another link-local one.
    pub fn set_link_address(
        &mut self,
        port: PortId,
        address: EtherAddr,
        now: Duration,
    ) -> Result<(), RouterError> {
        let old = std::mem::replace(&mut self.port_mut(port)?.spec.address, address);
        if old == address {
            return Ok(());
        }
        self.add_link_local(port, address)?;
        let hop = Hop::End { outcome: crate::path::Outcome::Local, port: Some(port) };
        self.remove_owned(link_local(old).into(), 128, Source::Local(port), hop)?;
        self.publish_ports();
        self.notify_engines(port, PortChange::LinkAddress, now)
    }

    /// The interface behind a port carries packets of this many bytes from now on; the port
    /// keeps to its limit.
    pub fn set_mtu(&mut self, port: PortId, carried: u16) -> Result<(), RouterError> {
        let spec = &mut self.port_mut(port)?.spec;
        let mtu = spec.limited_mtu(carried);
        spec.mtu = mtu;
        let is_up = spec.is_up;
        self.hops.set_port(port, mtu, is_up);
        self.hops.publish_adjacencies();
        self.publish_ports();
        Ok(())
    }

    /// The longest packet that a port is to carry, whatever its interface does, if that was set.
    pub fn mtu_limit(&self, port: PortId) -> Option<u16> {
        self.ports.get(usize::from(port.0))?.spec.mtu_limit
    }

    /// The router behaves otherwise on a port.
    pub fn set_port_settings(&mut self, port: PortId, settings: PortSettings) -> Result<(), RouterError> {
        self.port_mut(port)?.spec.settings = settings;
        self.publish_ports();
        Ok(())
    }

    /// The ports, by number.
    pub fn ports(&self) -> Vec<PortView> {
        self.views.clone()
    }

    /// The same, for a look at them.
    pub fn port_views(&self) -> &[PortView] {
        &self.views
    }

    /// A number that is another one whenever something about a port has changed.
    pub fn ports_version(&self) -> u64 {
        self.published_ports
    }

    /// The port of this name.
    pub fn find_port(&self, name: &str) -> Option<PortId> {
        self.ports.iter().position(|port| port.spec.name == name).map(|at| PortId(at as u16))
    }

    /// The port that has an address, link-local ones too.
    pub fn address_owner(&self, address: IpAddr) -> Option<PortId> {
        self.ports.iter().position(|port| port.owns_address(address)).map(|at| PortId(at as u16))
    }

    /// How much work changes have made so far.
    pub fn work_done(&self) -> Work {
        Work { routes: self.v4.changes + self.v6.changes, groups: self.hops.recomputed_count() }
    }

    fn port_mut(&mut self, port: PortId) -> Result<&mut Port, RouterError> {
        self.ports.get_mut(usize::from(port.0)).ok_or(RouterError::NoSuchPort(port))
    }

    fn port_name(&self, port: PortId) -> String {
        self.ports.get(usize::from(port.0)).map(|port| port.spec.name.clone()).unwrap_or_default()
    }

    fn publish_ports(&mut self) {
        self.views = self.ports.iter().map(|port| port.view(self.forward_ipv4_link_local)).collect();
        self.published_ports += 1;
        self.published.publish(self.views.clone());
    }

    /// Where several ports are connected to a prefix, one that is up forwards.
    fn resolve_shared<A: Ip>(&mut self) -> Result<(), RouterError> {
        let (side, ports, _) = A::split_tables(self);
        let is_connected = |claim: &&Claim| matches!(claim.source, Source::Connected(_));
        let shared = side.claims.iter().filter(|(_, claims)| claims.iter().filter(is_connected).count() > 1);
        let prefixes: Vec<Prefix<A>> = shared.map(|(prefix, _)| *prefix).collect();
        prefixes.into_iter().try_for_each(|prefix| side.install_best(prefix, is_up(ports)))
    }

    /// Adds a route that follows from an address or holds anywhere.
    fn add_owned(&mut self, address: IpAddr, len: u8, source: Source, hop: Hop) -> Result<(), RouterError> {
        let members = [(hop, 1)];
        let Ok(group) = self.hops.acquire_group(&members, Default::default(), None, None, |_, _| Err(()))
        else {
            unreachable!("only gateways have neighbors to be found")
        };
        self.hops.publish_adjacencies();
        let claim = Claim { source, group };
        let done = match AnyPrefix::new(address, len) {
            Ok(AnyPrefix::V4(prefix)) => self.v4.add_claim(prefix, claim, is_up(&self.ports), &self.hops),
            Ok(AnyPrefix::V6(prefix)) => self.v6.add_claim(prefix, claim, is_up(&self.ports), &self.hops),
            Err(_) => Err(RouterError::BadAddress { address, len, why: BadAddress::Length }),
        };
        done.inspect_err(|_| self.hops.release_group(group, 1))
    }

    /// Removes such a route.
    fn remove_owned(
        &mut self,
        address: IpAddr,
        len: u8,
        source: Source,
        hop: Hop,
    ) -> Result<(), RouterError> {
        let Some(group) = self.hops.find_single(hop) else { return Ok(()) };
        let claim = Claim { source, group };
        match AnyPrefix::new(address, len) {
            Ok(AnyPrefix::V4(prefix)) => self.v4.remove_claim(prefix, claim, is_up(&self.ports))?,
            Ok(AnyPrefix::V6(prefix)) => self.v6.remove_claim(prefix, claim, is_up(&self.ports))?,
            Err(_) => {}
        }
        self.hops.release_group(group, 1);
        Ok(())
    }
}

/// Whether a port is up.
fn is_up(ports: &[Port]) -> impl Fn(PortId) -> bool + '_ {
    |port| ports.get(usize::from(port.0)).is_some_and(|port| port.spec.is_up)
}
