//! Groups as frames meet them: never changed, only replaced.
use super::{GroupKey, Realm, is_for_all};
use crate::decide::Ingress;
use crate::{FrameView, View};
use artery_wire::membership::Membership;
use artery_wire::{EtherType, Ipv4, Ipv6};
use std::collections::HashMap;
use std::net::IpAddr;

/// Ports by group, as frames are looked up.
#[derive(Debug, Default)]
pub struct GroupView {
    pub(super) members: HashMap<GroupKey, Box<[u16]>>,
    /// Where members are known, with the ports of its routers.
    pub(super) realms: HashMap<Realm, Box<[u16]>>,
    /// Whether there may be more groups than are known.
    pub(super) is_full: bool,
}

/// Ports that get a frame sent to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience<'a> {
    /// The frame goes to all ports.
    All,
    /// Members of the group, and routers.
    Members(&'a [u16], &'a [u16]),
    /// Routers only, for reports of hosts: other hosts that receive them would not report themselves
    /// (RFC 4541 section 2.1.1).
    Routers(&'a [u16]),
}

impl Audience<'_> {
    /// Whether it is part of it.
    pub fn contains_port(self, view: &View, port: u16) -> bool {
        let (members, routers) = match self {
            Audience::All => return true,
            Audience::Members(members, routers) => (members, routers),
            Audience::Routers(routers) => (&[][..], routers),
        };
        members.contains(&port) || routers.contains(&port) || view.has_router(port)
    }
}

impl GroupView {
    /// Ports that get a frame sent to an Ethernet group.
    pub fn find_audience(&self, view: &View, sight: &FrameView<'_>, entered: &Ingress) -> Audience<'_> {
        if !view.snoops() {
            return Audience::All;
        }
        let (ether_type, packet) = sight.inner_payload(entered.is_tagged());
        let group = match ether_type {
            EtherType::IPV4 => Ipv4::new(packet).ok().map(|header| IpAddr::from(header.dst())),
            EtherType::IPV6 => Ipv6::new(packet).ok().map(|header| IpAddr::from(header.dst())),
            _ => None,
        };
        let Some(group) = group.filter(IpAddr::is_multicast) else { return Audience::All };
        let Some(routers) = self.realms.get(&Realm::of(entered.place.vlan, group)) else {
            return Audience::All;
        };
        if matches!(Membership::parse_packet(ether_type, packet), Ok(Some(Membership::Report(_)))) {
            return Audience::Routers(routers);
        }
        match self.members.get(&GroupKey { vlan: entered.place.vlan, group }) {
            _ if is_for_all(group) => Audience::All,
            Some(members) => Audience::Members(members, routers),
            None if self.is_full => Audience::All,
            None => Audience::Members(&[], routers),
        }
    }
}
