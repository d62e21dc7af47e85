//! A router's tables with ports, and a worker that looks packets up.
use artery_l3::PortId;
use artery_l3::neighbor::Kind;
use artery_l3::path::{Explained, ForwardDecision, Method, Outcome};
use artery_l3::router::{OwnEngines, PortSpec, Readers, RouteSpec, RouterError, Settings, Tables, Target};
use artery_lpm::load;
use artery_rcu::{Domain, Reader};
use artery_storage::Pages;
use artery_wire::EtherAddr;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NOW: Duration = Duration::from_secs(1000);

pub(crate) struct Rig {
    pub(crate) domain: Arc<Domain>,
    pub(crate) tables: Tables,
    pub(crate) readers: Readers,
    pub(crate) turns: Reader,
}

/// A link address that shows which neighbor has it.
pub(crate) fn mac(port: u16, host: u8) -> EtherAddr {
    EtherAddr([2, 0, 0, port as u8 + 1, 0, host])
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn prefix(text: &str) -> load::AnyPrefix {
    load::parse_prefix(text).unwrap()
}

pub(crate) fn via(gateway: &str) -> RouteSpec {
    RouteSpec::via(ip(gateway))
}

pub(crate) fn via_port(port: u16, gateway: &str) -> RouteSpec {
    RouteSpec::to(Target::Via { port: Some(PortId(port)), gateway: Some(ip(gateway)), mtu: None })
}

impl Rig {
    /// Ports eth0, eth1 … with the addresses 10.0.0.1/24 and 2001:db8:0::1/64,
    /// 10.0.1.1/24 and 2001:db8:1::1/64 …
    pub(crate) fn new(ports: u16) -> Rig {
        let mut rig = Rig::bare(ports);
        for port in 0..ports {
            rig.address(port, &format!("10.0.{port}.1"), 24).unwrap();
            rig.address(port, &format!("2001:db8:{port}::1"), 64).unwrap();
        }
        rig
    }

    /// A rig with ports that have no addresses.
    pub(crate) fn bare(ports: u16) -> Rig {
        let domain = Domain::new();
        let settings = Settings { storage: Arc::new(Pages), most_neighbors: 1 << 17, ..Settings::default() };
        let engines = |places: &_, seed| Box::new(OwnEngines::new(places, seed)) as _;
        let mut tables = Tables::new(&domain, settings, engines).unwrap();
        for port in 0..ports {
            let spec = PortSpec::new(&format!("eth{port}"), mac(port, 1));
            assert_eq!(tables.add_port(spec).unwrap(), PortId(port));
        }
        let (readers, turns) = (tables.readers(), domain.reader());
        Rig { domain, tables, readers, turns }
    }

    pub(crate) fn address(&mut self, port: u16, address: &str, len: u8) -> Result<(), RouterError> {
        self.tables.add_address(PortId(port), ip(address), len)
    }

    pub(crate) fn add(&mut self, to: &str, spec: &RouteSpec) -> Result<(), RouterError> {
        self.tables.add_route(prefix(to), spec, NOW)
    }

    pub(crate) fn replace(&mut self, to: &str, spec: &RouteSpec) {
        self.tables.replace_route(prefix(to), spec, NOW).unwrap();
    }

    pub(crate) fn delete(&mut self, to: &str) -> Result<(), RouterError> {
        self.tables.delete_route(prefix(to), NOW)
    }

    /// Makes a neighbor known.
    pub(crate) fn know(&mut self, port: u16, address: &str, host: u8) {
        self.tables.set_neighbor(PortId(port), ip(address), mac(port, host), Kind::Static, NOW).unwrap();
    }

    /// The result for a packet; `flow` is its number for whatever method.
    pub(crate) fn explain(&mut self, to: &str, flow: u32) -> Explained {
        let turn = self.turns.turn();
        match ip(to) {
            IpAddr::V4(to) => self.readers.v4.explain_path(&turn, to.to_bits(), |_: Method| flow),
            IpAddr::V6(to) => self.readers.v6.explain_path(&turn, to.to_bits(), |_: Method| flow),
        }
    }

    pub(crate) fn decide(&mut self, to: &str) -> ForwardDecision {
        self.explain(to, 0).decision
    }

    pub(crate) fn outcome(&mut self, to: &str) -> Outcome {
        self.decide(to).outcome
    }

    /// The port and the link address that a packet leaves by.
    pub(crate) fn sent(&mut self, to: &str) -> Option<(u16, EtherAddr)> {
        let decision = self.decide(to);
        (decision.outcome == Outcome::Forward).then(|| (decision.port.0, decision.link.address().unwrap()))
    }
}
