//! Ports, neighbors and drops as JSON.
use super::json::{SCHEMA, Schema, port_name, to_json};
use super::port_news::port_behind;
use super::route_text::port_of;
use super::router_worker::IpRouter;
use artery_device::{PortState, Ports};
use artery_engine::{Context, DropReason, HandlerError};
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::neighbor::{NeighborCounters, NeighborView};
use artery_l3::router::{Ip, PortSettings, PortView, ReversePath, Tables};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

#[derive(Serialize)]
struct NeighborsJson {
    #[serde(flatten)]
    schema: Schema,
    neighbors: Vec<NeighborJson>,
}

/// As in `ip -json neighbor`.
#[derive(Serialize)]
struct NeighborJson {
    dst: IpAddr,
    dev: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lladdr: Option<String>,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_s: Option<u64>,
    #[serde(rename = "static")]
    is_static: bool,
    published: bool,
    router: bool,
    next_hops: u32,
    probes: u8,
}

/// The handler `neighbors_json`: `[PORT]`.
pub(super) fn neighbors_json(router: &SharedRouter, text: &str, now: Duration) -> Result<String, String> {
    let (ports, numbers) = {
        let tables = router.lock_tables();
        let ports = tables.ports();
        let numbers = match text.trim() {
            "" => (0..ports.len() as u16).collect(),
            port => vec![port_of(&tables, port)?.0],
        };
        (ports, numbers)
    };
    let mut neighbors = Vec::new();
    for port in numbers.into_iter().map(PortId) {
        // Each listing locks the tables separately, so that other users wait for one at most.
        let v4 = router.lock_tables().neighbors::<u32>(port, now);
        let v6 = router.lock_tables().neighbors::<u128>(port, now);
        neighbors.extend(v4.iter().map(|view| neighbor_json(view, &port_name(&ports, port))));
        neighbors.extend(v6.iter().map(|view| neighbor_json(view, &port_name(&ports, port))));
    }
    Ok(to_json(&NeighborsJson { schema: SCHEMA, neighbors }))
}

fn neighbor_json<A: Ip>(view: &NeighborView<A>, port: &str) -> NeighborJson {
    NeighborJson {
        dst: view.address.to_ip(),
        dev: port.to_string(),
        lladdr: view.link.map(|link| link.to_string()),
        state: view.state.to_string(),
        expires_s: view.expires_in.map(|left| left.as_secs()),
        is_static: view.is_static,
        published: view.is_published,
        router: view.is_router,
        next_hops: view.pins,
        probes: view.asked,
    }
}

#[derive(Serialize)]
struct PortsJson {
    #[serde(flatten)]
    schema: Schema,
    ports: Vec<PortJson>,
}

#[derive(Serialize)]
struct PortJson {
    name: String,
    number: usize,
    up: bool,
    /// `up`, `down` or `absent`.
    state: &'static str,
    /// What the interface behind it is called now; null if it has none.
    interface: Option<String>,
    mtu: u16,
    lladdr: String,
    /// Addresses with prefix lengths, as `10.0.1.1/24`.
    addresses: Vec<String>,
    link_local: Ipv6Addr,
    /// Those of services that the port answers for.
    virtual_addresses: Vec<IpAddr>,
    duplicates: Vec<IpAddr>,
    settings: SettingsJson,
    arp: BTreeMap<&'static str, u64>,
    nd: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct SettingsJson {
    proxy_arp: bool,
    static_arp: bool,
    reverse_path: &'static str,
    redirects: bool,
}

/// Serves the handler `ports_json`.
pub(super) fn ports_json(r: &IpRouter) -> String {
    let views = r.router.lock_tables().ports();
    let devices: Vec<PortInterface> =
        views.iter().map(|view| PortInterface::of(&r.devices, r.names.device_name(&view.name))).collect();
    let tables = r.router.lock_tables();
    let events = r.router.lock_events();
    let port = |((number, view), behind): ((usize, PortView), PortInterface)| {
        port_json(number, view, behind, &tables, events.duplicates(PortId(number as u16)).collect())
    };
    let ports = tables.ports().into_iter().enumerate().zip(devices).map(port).collect();
    to_json(&PortsJson { schema: SCHEMA, ports })
}

/// The interface of a port.
struct PortInterface {
    is_absent: bool,
    interface: Option<String>,
}

impl PortInterface {
    fn of(devices: &Ports, name: &str) -> PortInterface {
        match port_behind(devices, name) {
            Some(port) if port.is_absent() => PortInterface { is_absent: true, interface: None },
            port => {
                let interface = port.and_then(|port| port.interface()).map(|interface| interface.name);
                PortInterface { is_absent: false, interface }
            }
        }
    }
}

fn port_json(
    number: usize,
    view: PortView,
    behind: PortInterface,
    tables: &Tables,
    duplicates: Vec<IpAddr>,
) -> PortJson {
    let id = PortId(number as u16);
    let v4 = view.v4.iter().map(|(own, len)| format!("{}/{len}", Ipv4Addr::from_bits(*own)));
    let v6 = view.v6.iter().map(|(own, len)| format!("{}/{len}", Ipv6Addr::from_bits(*own)));
    let virtual_v4 = view.virtual_v4.iter().map(|(own, _)| IpAddr::V4((*own).into()));
    let virtual_v6 = view.virtual_v6.iter().map(|(own, _)| IpAddr::V6((*own).into()));
    PortJson {
        number,
        up: view.is_up,
        state: match view.is_up {
            _ if behind.is_absent => PortState::Absent,
            true => PortState::Up,
            false => PortState::Down,
        }
        .name(),
        interface: behind.interface,
        mtu: view.mtu,
        lladdr: view.address.to_string(),
        addresses: v4.chain(v6).collect(),
        link_local: Ipv6Addr::from_bits(view.link_local),
        virtual_addresses: virtual_v4.chain(virtual_v6).collect(),
        duplicates,
        settings: settings_json(view.settings),
        arp: counters_map(tables.neighbor_counters::<u32>(id)),
        nd: counters_map(tables.neighbor_counters::<u128>(id)),
        name: view.name,
    }
}

fn settings_json(settings: PortSettings) -> SettingsJson {
    SettingsJson {
        proxy_arp: settings.proxy_arp,
        static_arp: settings.static_arp,
        reverse_path: reverse_path(settings.rpf),
        redirects: settings.redirects,
    }
}

/// The reverse-path check, as a word.
pub(super) fn reverse_path(check: ReversePath) -> &'static str {
    match check {
        ReversePath::Off => "off",
        ReversePath::Loose => "loose",
        ReversePath::Strict => "strict",
    }
}

fn counters_map(counters: NeighborCounters) -> BTreeMap<&'static str, u64> {
    counters.named().collect()
}

#[derive(Serialize)]
struct DropsJson {
    #[serde(flatten)]
    schema: Schema,
    total: u64,
    drops: Vec<DropJson>,
}

#[derive(Serialize)]
struct DropJson {
    reason: &'static str,
    sentence: &'static str,
    count: u64,
    element: String,
}

/// The handler `drops_json`: of all elements on all workers, the most frequent first.
pub(super) fn drops_json(cx: &mut Context<'_>) -> Result<String, HandlerError> {
    let counts = cx.element_counts()?;
    let mut drops = Vec::new();
    for (element, counts) in counts.iter().enumerate() {
        let element = cx.name_of(element);
        drops.extend(counts.drops.iter().map(|(reason, count)| drop_of(reason, count, element)));
    }
    drops.sort_by(|a, b| (b.count, a.reason, &a.element).cmp(&(a.count, b.reason, &b.element)));
    Ok(to_json(&DropsJson { schema: SCHEMA, total: drops.iter().map(|drop| drop.count).sum(), drops }))
}

fn drop_of(reason: DropReason, count: u64, element: &str) -> DropJson {
    DropJson {
        reason: reason.name(),
        sentence: reason.sentence().trim(),
        count,
        element: element.to_string(),
    }
}
