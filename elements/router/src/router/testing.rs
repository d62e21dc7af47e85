//! A small router for tests: ports `a` and `b` with a gateway each, and routes for every outcome.
use super::{IngressInfo, RouterVerdict, TablesView};
use artery_l3::PortId;
use artery_l3::neighbor::Kind;
use artery_l3::path::Method;
use artery_l3::router::{OwnEngines, PortSpec, Readers, RouteSpec, Settings, Tables, Target};
use artery_lpm::load::AnyPrefix;
use artery_rcu::{Domain, Reader};
use artery_storage::Pages;
use artery_wire::EtherAddr;
use std::sync::Arc;
use std::time::Duration;

pub(in crate::router) const A: PortId = PortId(0);
pub(in crate::router) const B: PortId = PortId(1);
/// The MAC addresses of the router.
pub(in crate::router) const STATION_A: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 1]);
pub(in crate::router) const STATION_B: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 2]);
/// The MAC addresses of neighbors in the tables: 10.0.1.9 and 2001:db8:1::9 on `a`, the gateways 10.0.2.254
/// and 2001:db8:2::fe on `b`.
pub(in crate::router) const HOST: EtherAddr = EtherAddr([2, 0, 0, 0, 1, 9]);
pub(in crate::router) const GATEWAY: EtherAddr = EtherAddr([2, 0, 0, 0, 2, 254]);
pub(in crate::router) const NOW: Duration = Duration::from_secs(1000);

/// The classifier of a family.
type Judge = fn(&[u8], usize, IngressInfo, &TablesView<'_>, &mut dyn FnMut(Method) -> u32) -> RouterVerdict;

pub(in crate::router) struct Small {
    pub(in crate::router) tables: Tables,
    pub(in crate::router) readers: Readers,
    turns: Reader,
}

pub(in crate::router) fn small() -> Small {
    let domain = Domain::new();
    let settings = Settings { storage: Arc::new(Pages), most_neighbors: 1000, ..Settings::default() };
    let engines = |places: &Arc<_>, seed| Box::new(OwnEngines::new(places, seed)) as Box<_>;
    let mut tables = Tables::new(&domain, settings, engines).unwrap();
    for (name, station) in [("a", STATION_A), ("b", STATION_B)] {
        tables.add_port(PortSpec::new(name, station)).unwrap();
    }
    for (port, address, len) in
        [(A, "10.0.1.1", 24), (A, "2001:db8:1::1", 64), (B, "10.0.2.1", 24), (B, "2001:db8:2::1", 64)]
    {
        tables.add_address(port, address.parse().unwrap(), len).unwrap();
    }
    let via = |gateway: &str| Target::via(gateway.parse().unwrap());
    for (prefix, target) in [
        ("20.0.0.0/8", via("10.0.2.254")),
        ("21.0.0.0/8", Target::Blackhole),
        ("22.0.0.0/8", Target::Unreachable),
        ("23.0.0.0/8", Target::Prohibited),
        ("24.0.0.0/8", via("10.0.1.8")),
        (
            "25.0.0.0/8",
            Target::Via { port: None, gateway: Some("10.0.2.254".parse().unwrap()), mtu: Some(600) },
        ),
        ("26.0.0.0/8", via("10.0.2.77")),
        ("2001:db8:20::/48", via("2001:db8:2::fe")),
        ("2001:db8:21::/48", Target::Blackhole),
        ("2001:db8:22::/48", Target::Unreachable),
        ("2001:db8:23::/48", Target::Prohibited),
    ] {
        let (first, len) = prefix.split_once('/').unwrap();
        let prefix = AnyPrefix::new(first.parse().unwrap(), len.parse().unwrap()).unwrap();
        tables.add_route(prefix, &RouteSpec::to(target), NOW).unwrap();
    }
    for (port, address, link) in [
        (A, "10.0.1.9", HOST),
        (A, "10.0.1.8", HOST),
        (A, "2001:db8:1::9", HOST),
        (B, "10.0.2.254", GATEWAY),
        (B, "2001:db8:2::fe", GATEWAY),
    ] {
        tables.set_neighbor(port, address.parse().unwrap(), link, Kind::Static, NOW).unwrap();
    }
    Small { readers: tables.readers(), turns: domain.reader(), tables }
}

impl Small {
    /// The verdict on a packet.
    pub(in crate::router) fn judge(
        &mut self,
        judge: Judge,
        packet: &[u8],
        came: IngressInfo,
    ) -> RouterVerdict {
        let turn = self.turns.turn();
        let Readers { v4, v6, ports } = &self.readers;
        let view = TablesView { ports: ports.read(&turn), v4, v6, turn: &turn };
        judge(packet, usize::MAX, came, &view, &mut |_| 0)
    }
}
