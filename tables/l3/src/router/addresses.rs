//! The router's own addresses: what routes each brings, and what goes with it when it goes.
use super::port::{Port, port_towards, shares_prefix};
use super::side::{Claim, Ip, Source};
use super::{BadAddress, RouterError, Tables};
use crate::PortId;
use crate::next_hop::{Hop, Selection};
use crate::path::Outcome;
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Address, Group, Prefix};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A route that has lost next hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Destination prefix of the route.
    pub prefix: AnyPrefix,
    /// The gateways that are on no link any more.
    pub gateways: Vec<IpAddr>,
    /// Whether the route has gone with them.
    pub is_gone: bool,
}

/// What a group loses with a network.
struct Stranding {
    gateways: Vec<IpAddr>,
    /// The members that stay.
    left: Vec<(Hop, u32)>,
    selection: Selection,
}

impl Tables {
    /// Gives a port an address, and with it the routes that follow: to itself, to the network it is connected
    /// to, and for IPv4 to all hosts of that (not in a /31, RFC 3021, nor in a /32).
    pub fn add_address(&mut self, port: PortId, address: IpAddr, len: u8) -> Result<(), RouterError> {
        self.port_mut(port)?;
        check_address(address, len).map_err(|why| RouterError::BadAddress { address, len, why })?;
        if let Some(owner) = self.address_owner(address) {
            return Err(RouterError::AddressExists { address, port: self.port_name(owner) });
        }
        let mut added = Vec::new();
        for (first, len, source, hop) in address_routes(port, address, len) {
            if let Err(error) = self.add_owned(first, len, source, hop) {
                for (first, len, source, hop) in added {
                    self.remove_owned(first, len, source, hop)?;
                }
                return Err(error);
            }
            added.push((first, len, source, hop));
        }
        self.port_mut(port)?.addresses.push((address, len));
        self.publish_ports();
        Ok(())
    }

    /// Lets a port answer ARP and Neighbor Discovery for a virtual address in one of its prefixes: that of a
    /// service that others render, to whom its packets are sent before they are looked up. What is left of
    /// them is for the router, which answers pings. It is the source of nothing that the router says, and
    /// others may send from it.
    pub fn add_virtual_address(&mut self, port: PortId, address: IpAddr) -> Result<(), RouterError> {
        let Some(len) = self.port_mut(port)?.prefix_of(address) else {
            return Err(RouterError::VirtualOffLink { address, port: self.port_name(port) });
        };
        check_address(address, len).map_err(|why| RouterError::BadAddress { address, len, why })?;
        let has = |port: &Port| port.owns_address(address) || port.virtual_addresses.contains(&address);
        if let Some(owner) = self.ports.iter().find(|port| has(port)) {
            return Err(RouterError::AddressExists { address, port: owner.spec.name.clone() });
        }
        let all = if address.is_ipv4() { 32 } else { 128 };
        let hop = Hop::End { outcome: Outcome::Local, port: Some(port) };
        self.add_owned(address, all, Source::Local(port), hop)?;
        self.port_mut(port)?.virtual_addresses.push(address);
        self.publish_ports();
        Ok(())
    }

    /// Takes an address from a port, and with it what hangs on it: the routes that it brought, neighbors that
    /// are on none of the port's networks any more, and of all routes the gateways that are on no link of
    /// theirs. Says which routes these were; those that have no next hop left have gone.
    pub fn remove_address(
        &mut self,
        port: PortId,
        address: IpAddr,
        now: Duration,
    ) -> Result<Vec<Lost>, RouterError> {
        let name = self.port_name(port);
        let addresses = &mut self.port_mut(port)?.addresses;
        let Some(at) = addresses.iter().position(|(own, _)| *own == address) else {
            return Err(RouterError::NoSuchAddress { address, port: name });
        };
        let (_, len) = addresses.remove(at);
        self.publish_ports();
        for (first, len, source, hop) in address_routes(port, address, len) {
            self.remove_owned(first, len, source, hop)?;
        }
        let lost = self.drop_unreachable_gateways(port, now)?;
        match address {
            IpAddr::V4(own) => self.forget_neighbors(port, Prefix::of(own.to_bits(), len), now)?,
            IpAddr::V6(own) => self.forget_neighbors(port, Prefix::of(own.to_bits(), len), now)?,
        }
        Ok(lost)
    }

    /// Takes the gateways that are on none of the port's networks out of all routes.
    fn drop_unreachable_gateways(&mut self, port: PortId, now: Duration) -> Result<Vec<Lost>, RouterError> {
        let stranded = |hop: &Hop| {
            hop.gateway().filter(|(at, _)| *at == port).map(|(_, gateway)| gateway).filter(|gateway| {
                !is_link_local(*gateway) && self.ports[usize::from(port.0)].prefix_of(*gateway).is_none()
            })
        };
        let mut changes = HashMap::new();
        for group in self.hops.groups() {
            let Some((members, selection)) = self.hops.group_members(group) else { continue };
            let gateways: Vec<IpAddr> = members.iter().filter_map(|(hop, _)| stranded(hop)).collect();
            if !gateways.is_empty() {
                let left: Vec<_> = members.into_iter().filter(|(hop, _)| stranded(hop).is_none()).collect();
                changes.insert(group, Stranding { gateways, left, selection });
            }
        }
        let mut lost = Vec::new();
        if !changes.is_empty() {
            self.reroute_groups::<u32>(&changes, &mut lost, now)?;
            self.reroute_groups::<u128>(&changes, &mut lost, now)?;
        }
        Ok(lost)
    }

    /// Lets routes of these groups go by the members that are left, or go.
    fn reroute_groups<A: Ip>(
        &mut self,
        changes: &HashMap<Group, Stranding>,
        lost: &mut Vec<Lost>,
        now: Duration,
    ) -> Result<(), RouterError> {
        let routes = A::side(self).all_requested(&self.hops);
        let routes: Vec<_> = routes.filter(|(_, claim)| changes.contains_key(&claim.group)).collect();
        for (prefix, claim) in routes {
            let Some(Stranding { gateways, left, selection }) = changes.get(&claim.group) else { continue };
            if left.is_empty() {
                self.delete_requested(prefix, claim, now)?;
            } else {
                let protocol = self.hops.group_protocol(claim.group);
                let new = self.group_of(left, *selection, protocol, Some(claim.group), now)?;
                let new = Claim { source: claim.source, group: new };
                self.install_requested(prefix, new, Some(claim.group), now)?;
            }
            lost.push(Lost {
                prefix: A::any_prefix(prefix),
                gateways: gateways.clone(),
                is_gone: left.is_empty(),
            });
        }
        Ok(())
    }

    /// Forgets the neighbors in a prefix that the port is not connected to any more.
    fn forget_neighbors<A: Ip>(
        &mut self,
        port: PortId,
        prefix: Prefix<A>,
        now: Duration,
    ) -> Result<(), RouterError> {
        let entries = A::split_tables(self).0.engine_of(port)?.entries(now);
        for entry in entries.into_iter().filter(|entry| prefix.contains(entry.address)) {
            if self.ports[usize::from(port.0)].prefix_of(entry.address.to_ip()).is_none() {
                A::split_tables(self).0.engine_of(port)?.delete_neighbor(entry.address, now);
            }
        }
        self.collect_actions::<A>(port);
        Ok(())
    }

    /// The port on whose link a gateway is, if it is one that a packet can go to. A link-local gateway is on
    /// many links, so `wanted` must say on which.
    pub fn port_of_gateway(&self, gateway: IpAddr, wanted: Option<PortId>) -> Result<PortId, RouterError> {
        if let Some(port) = wanted.filter(|port| usize::from(port.0) >= self.ports.len()) {
            return Err(RouterError::NoSuchPort(port));
        }
        if let Some(owner) = self.address_owner(gateway) {
            return Err(RouterError::GatewayIsOwn { gateway, port: self.port_name(owner) });
        }
        if !is_host(gateway) {
            return Err(RouterError::GatewayIsNoHost(gateway));
        }
        if is_link_local(gateway) {
            return wanted.ok_or(RouterError::GatewayNeedsPort(gateway));
        }
        let port = match wanted {
            Some(port) => {
                let name = self.port_name(port);
                let on = &self.ports[usize::from(port.0)];
                if on.spec.settings.onlink || on.prefix_of(gateway).is_some() {
                    Ok(port)
                } else {
                    Err(RouterError::GatewayOffLink { gateway, port: Some(name) })
                }
            }
            None => {
                port_towards(&self.ports, gateway).ok_or(RouterError::GatewayOffLink { gateway, port: None })
            }
        }?;
        let near = self.ports[usize::from(port.0)].addresses.iter();
        let is_broadcast =
            |(own, len): &(IpAddr, u8)| shares_prefix(*own, gateway, *len) && is_broadcast(gateway, *len);
        if near.clone().any(is_broadcast) { Err(RouterError::GatewayIsNoHost(gateway)) } else { Ok(port) }
    }

    /// The claim of an address's route, if it has one; see [`Source`].
    pub(super) fn owned_claims<A: Ip>(&self, prefix: Prefix<A>) -> bool {
        let is_owned = |claim: &Claim| claim.source < Source::Static;
        A::side(self).claims.get(&prefix).is_some_and(|claims| claims.iter().any(is_owned))
    }
}

/// The routes that an address brings.
fn address_routes(port: PortId, address: IpAddr, len: u8) -> Vec<(IpAddr, u8, Source, Hop)> {
    let end = |outcome| Hop::End { outcome, port: Some(port) };
    let (all, first, last) = match address {
        IpAddr::V4(own) => {
            let prefix = Prefix::of(own.to_bits(), len);
            (32, prefix.first().to_ip(), prefix.last().to_ip())
        }
        IpAddr::V6(own) => {
            let prefix = Prefix::of(own.to_bits(), len);
            (128, prefix.first().to_ip(), prefix.last().to_ip())
        }
    };
    let mut routes = vec![(address, all, Source::Local(port), end(Outcome::Local))];
    if is_link_local(address) {
        return routes;
    }
    if len < all {
        routes.push((first, len, Source::Connected(port), Hop::OnLink { port, mtu: None }));
    }
    if len < all - 1 {
        match address {
            IpAddr::V4(_) => {
                let broadcast = |address| (address, all, Source::Broadcast(port), end(Outcome::Broadcast));
                routes.extend([broadcast(first), broadcast(last)]);
            }
            // The anycast address of all routers on the link (RFC 4291 section 2.6.1).
            IpAddr::V6(_) if first != address => {
                routes.push((first, all, Source::Local(port), end(Outcome::Local)));
            }
            IpAddr::V6(_) => {}
        }
    }
    routes
}

fn check_address(address: IpAddr, len: u8) -> Result<(), BadAddress> {
    if AnyPrefix::new(address, len).is_err() {
        Err(BadAddress::Length)
    } else if !is_host(address) {
        Err(BadAddress::NoHost)
    } else if is_broadcast(address, len) {
        Err(BadAddress::Broadcast)
    } else {
        Ok(())
    }
}

/// Whether one host can have an address.
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let octet = address.octets()[0];
            octet != 0 && octet < 224 && !address.is_loopback()
        }
        IpAddr::V6(address) => {
            !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && address.to_ipv4_mapped().is_none()
        }
    }
}

/// Whether an IPv4 address means its network or all of its hosts.
fn is_broadcast(address: IpAddr, len: u8) -> bool {
    let IpAddr::V4(address) = address else { return false };
    let prefix = Prefix::of(address.to_bits(), len);
    len < 31 && [prefix.first(), prefix.last()].map(Ipv4Addr::from_bits).contains(&address)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if Ipv6Addr::is_unicast_link_local(&address))
}
