//! Groups as frames meet them: never changed, only replaced.
use super::{GroupKey, Realm, is_for_all};
use crate::switch::decide::Entered;
use crate::switch::{Sight, View};
use artery_wire::membership::Membership;
use artery_wire::{EtherType, Ipv4, Ipv6};
use std::collections::HashMap;
use std::net::IpAddr;

/// See the module.
#[derive(Debug, Default)]
pub struct GroupView {
    pub(super) members: HashMap<GroupKey, Box<[u16]>>,
    /// Where members are known, with the ports of its routers.
    pub(super) realms: HashMap<Realm, Box<[u16]>>,
    /// Whether there may be more groups than are known.
    pub(super) is_full: bool,
}

/// Who gets a frame that goes to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience<'a> {
    /// All ports.
    All,
    /// Members of the group, and routers.
    Members(&'a [u16], &'a [u16]),
    /// Routers, as what hosts say of their groups: others who hear it would keep silent themselves (RFC 4541 section
    /// 2.1.1).
    Routers(&'a [u16]),
}

impl Audience<'_> {
    /// Whether it is part of it.
    pub fn has(self, view: &View, port: u16) -> bool {
        let (members, routers) = match self {
            Audience::All => return true,
            Audience::Members(members, routers) => (members, routers),
            Audience::Routers(routers) => (&[][..], routers),
        };
        members.contains(&port) || routers.contains(&port) || view.has_router(port)
    }
}

impl GroupView {
    /// Who gets a frame that goes to a group of Ethernet.
    pub fn audience(&self, view: &View, sight: &Sight<'_>, entered: &Entered) -> Audience<'_> {
        if !view.snoops() {
            return Audience::All;
        }
        let (ether_type, packet) = sight.carried(entered.is_tagged());
        let group = match ether_type {
            EtherType::IPV4 => Ipv4::new(packet).ok().map(|header| IpAddr::from(header.dst())),
            EtherType::IPV6 => Ipv6::new(packet).ok().map(|header| IpAddr::from(header.dst())),
            _ => None,
        };
        let Some(group) = group.filter(IpAddr::is_multicast) else { return Audience::All };
        let Some(routers) = self.realms.get(&Realm::of(entered.place.vlan, group)) else {
            return Audience::All;
        };
        if matches!(Membership::read(ether_type, packet), Ok(Some(Membership::Report(_)))) {
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
