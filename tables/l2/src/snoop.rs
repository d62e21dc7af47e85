//! IGMP and MLD snooping: what a switch does with messages about groups.
use super::groups::{GroupKey, GroupView, Groups, Heard, Orders};
use super::{PortState, Role, Switch, View, lock_unpoisoned};
use artery_rcu::Turn;
use artery_wire::membership::{BadMembership, Membership};
use artery_wire::{EtherAddr, EtherType};
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Where an address ends in a frame, and a tag begins.
const TAG_AT: usize = 12;

impl Switch {
    /// The members of groups, as of this turn.
    #[inline]
    pub fn groups<'t>(&'t self, turn: &'t Turn<'_>) -> &'t GroupView {
        self.group_view.read(turn)
    }

    /// Takes what was said of groups at a port, in a VLAN.
    pub fn snoop_message(
        &self,
        view: &View,
        place: (u16, u16),
        message: Result<Membership<'_>, BadMembership>,
        now: Duration,
    ) -> Heard {
        let Ok(message) = message else { return Heard::Bad };
        let mut groups = lock_unpoisoned(&self.groups);
        let heard = groups.snoop_message(place, message, view.leaves_fast(place.0), now);
        self.show_groups(&mut groups, now);
        heard
    }

    /// Expires groups and sends due queries; returns the query frames, with this source address, each with
    /// the port that it is for.
    pub fn tick_groups(&self, view: &View, from: EtherAddr, now: Duration) -> Vec<(u16, Vec<u8>)> {
        if !view.snoops() {
            return Vec::new();
        }
        let mut groups = lock_unpoisoned(&self.groups);
        let queries = groups.tick(&view.query_orders(from), now);
        self.show_groups(&mut groups, now);
        drop(groups);
        let frames = queries.iter().filter_map(|query| Some((query.vlan, query.build_frame(from)?)));
        let at_ports = |(vlan, frame): (u16, Vec<u8>)| {
            view.in_vlan(vlan).map(move |(port, is_tagged)| match is_tagged {
                true => (port, insert_tag(&frame, vlan)),
                false => (port, frame.clone()),
            })
        };
        frames.flat_map(at_ports).collect()
    }

    /// When [`tick_groups`](Switch::tick_groups) has something to do next.
    pub fn next_group_deadline(&self, view: &View) -> Option<Duration> {
        view.snoops().then(|| lock_unpoisoned(&self.groups).next_deadline())
    }

    fn show_groups(&self, groups: &mut Groups, now: Duration) {
        if let Some(view) = groups.changed_view(now) {
            self.group_view.publish(view);
        }
    }

    /// Forgets all members and routers.
    pub(super) fn forget_groups(&self) {
        *lock_unpoisoned(&self.groups) = Groups::default();
        self.group_view.publish(GroupView::default());
    }

    /// The members of groups: a line `GROUP[@VID] IF SECONDS` for each member, and `router[@VID] ipv4|ipv6 IF
    /// SECONDS` for each port with a router; after the seconds they are forgotten.
    pub fn list_groups(&self, now: Duration) -> String {
        let (names, default_vlan) = (self.port_names(), self.config().default_vlan());
        let name = |port: u16| names.get(usize::from(port)).map_or("?", |name| &**name);
        let at = |vlan: u16| if vlan == default_vlan { String::new() } else { format!("@{vlan}") };
        let groups = lock_unpoisoned(&self.groups);
        let mut text = String::new();
        for (GroupKey { vlan, group }, port, seconds) in groups.list_members(now) {
            let _ = writeln!(text, "{group}{} {} {seconds}", at(vlan), name(port));
        }
        for (vlan, is_ipv6, port, seconds) in groups.list_routers(now) {
            let family = if is_ipv6 { "ipv6" } else { "ipv4" };
            let _ = writeln!(text, "router{} {family} {} {seconds}", at(vlan), name(port));
        }
        text
    }
}

impl View {
    /// The configured queries, with the switch's own address.
    fn query_orders(&self, own: EtherAddr) -> Orders {
        let mut vlans: Vec<u16> = self.open_ports().filter_map(|(_, port)| port.vlan()).collect();
        vlans.sort_unstable();
        vlans.dedup();
        Orders { querier: self.querier, vlans, own_ipv6: Some(link_local(own)) }
    }

    /// The ports that frames of a VLAN may leave by, with whether they have a tag there.
    fn in_vlan(&self, vlan: u16) -> impl Iterator<Item = (u16, bool)> {
        let is_in = move |(at, port): (u16, &super::view::PortView)| match port.vlan() == Some(vlan) {
            true => Some((at, false)),
            false => port.tagged.contains(vlan).then_some((at, true)),
        };
        self.open_ports().filter_map(is_in)
    }

    fn open_ports(&self) -> impl Iterator<Item = (u16, &super::view::PortView)> {
        let is_open = |port: &super::view::PortView| {
            port.role == Role::Member && port.is_running && port.state == PortState::Forwarding
        };
        (0..).zip(&self.ports).filter(move |(_, port)| self.is_up() && is_open(port))
    }
}

/// The link-local address that follows from a MAC address (RFC 4291 appendix A).
fn link_local(station: EtherAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = station.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A frame with the tag of a VLAN.
fn insert_tag(frame: &[u8], vlan: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(TAG_AT);
    [addresses, &EtherType::VLAN.0.to_be_bytes(), &vlan.to_be_bytes(), rest].concat()
}
