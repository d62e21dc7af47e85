//! The interfaces that rules know: the loopback and the ports, with their addresses and groups.
use artery_common::frame_filter::FilterPort;
use artery_device::{Interface, default_route_interfaces, host_addresses};
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_forward::shared::SharedRouter;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of the first port among the interfaces of a filter: before it is the loopback,
/// which rules may name.
pub(super) const FIRST: u16 = 1;

/// The group of the interfaces of the host's default routes.
const EGRESS: &str = "egress";

/// An interface's own address, as PORT arguments say it.
pub(super) fn own_address((address, length): (IpAddr, u8)) -> InterfaceAddress {
    InterfaceAddress { address, length, peer: None }
}

/// An interface that rules can name, in the group of all.
pub(super) fn interface_record(name: &str, addresses: Vec<InterfaceAddress>) -> InterfaceRecord {
    InterfaceRecord { name: name.into(), groups: vec!["all".into()], addresses, ..InterfaceRecord::default() }
}

/// The port of a switch as an interface of rules.
pub(super) fn port_record(port: &FilterPort) -> InterfaceRecord {
    interface_record(&port.name, port.addresses.iter().copied().map(own_address).collect())
}

/// Ports behind the loopback of the host, which rules may name.
pub(super) fn with_loopback(ports: Vec<InterfaceRecord>) -> Interfaces {
    let loopback =
        vec![own_address((Ipv4Addr::LOCALHOST.into(), 8)), own_address((Ipv6Addr::LOCALHOST.into(), 128))];
    let mut records = vec![InterfaceRecord { is_loopback: true, ..interface_record("lo0", loopback) }];
    records.extend(ports);
    Interfaces(records)
}

/// Interfaces with the addresses that the host has at those of ports, and in the group `egress` if its
/// default routes lead there. An interface that the host lacks keeps its configured addresses. So does one
/// without addresses where these may come later, as for interfaces that the router creates.
pub(super) fn at_host(said: &Interfaces, devices: &[String], may_come: bool) -> io::Result<Interfaces> {
    let mut interfaces = said.clone();
    if devices.is_empty() {
        return Ok(interfaces);
    }
    let (all, outward) = (host_addresses()?, default_route_interfaces());
    let records = interfaces.0.iter_mut().skip(usize::from(FIRST) + 1);
    for (record, device) in records.zip(devices) {
        let Ok(interface) = Interface::find(device) else { continue };
        if outward.contains(device) {
            record.groups.push(EGRESS.to_string());
        }
        let own = all.iter().filter(|address| address.index == interface.index);
        let own =
            own.map(|own| InterfaceAddress { address: own.address, length: own.length, peer: own.peer });
        let mut found = InterfaceRecord { addresses: own.collect(), ..InterfaceRecord::default() };
        found.leave_out_automatic_addresses();
        if !found.addresses.is_empty() || !may_come {
            record.addresses = found.addresses;
        }
    }
    Ok(interfaces)
}

/// Adds the interfaces of default routes to the group `egress`, and removes the others.
/// Returns whether it changed.
pub(super) fn update_egress_group(interfaces: &mut Interfaces, router: &SharedRouter) -> bool {
    let tables = router.lock_tables();
    let outward = tables.default_route_ports();
    let names: Vec<&str> = outward
        .iter()
        .filter_map(|port| tables.port_views().get(usize::from(port.0)))
        .map(|view| view.name.as_str())
        .collect();
    let mut has_changed = false;
    for record in interfaces.0.iter_mut().skip(FIRST.into()) {
        let is_outward = names.contains(&record.name.as_str());
        if record.groups.iter().any(|group| group == EGRESS) != is_outward {
            has_changed = true;
            record.groups.retain(|group| group != EGRESS);
            record.groups.extend(is_outward.then(|| EGRESS.to_string()));
        }
    }
    has_changed
}
