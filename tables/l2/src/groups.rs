//! Members of multicast groups, learned from IGMP and MLD messages of hosts and routers, so that frames for a
//! group of IP go to its members and to routers only (RFC 4541).
//!
//! [`Groups`] is the learned state, behind a lock that only such messages and time take; [`GroupView`] is
//! what frames are looked up in. Without a querier nothing is known of hosts that don't report by themselves,
//! and frames go to all.
mod ask;
#[cfg(test)]
mod tests;
mod view;

use ask::Query;
pub use view::{Audience, GroupView};

use artery_wire::membership::Membership;
use ask::QuerySchedule;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Most groups that are known; those beyond go to all ports.
pub const MOST_GROUPS: usize = 4096;
/// How long a host counts as a member that says nothing more (RFC 3376 section 8.4).
const MEMBERSHIP: Duration = Duration::from_secs(260);
/// The same of a router and of a querier (RFC 3376 section 8.5).
const PRESENCE: Duration = Duration::from_secs(255);
/// In what time all members answer a query (RFC 3376 section 8.3).
const ANSWERS: Duration = Duration::from_secs(10);
/// How long one stays a member after it, or another behind the same port, has left (RFC 3376 section
/// 8.8: twice a second).
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// What has happened is shown to frames this often at most, so that hosts that come and go
/// quickly cost others nothing.
const SHOWN_EVERY: Duration = Duration::from_millis(10);
/// How often is looked for what is over.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// A group in a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupKey {
    /// VLAN that the group is in.
    pub(super) vlan: u16,
    /// IP address of the group.
    pub(super) group: IpAddr,
}

/// A version of IP in a VLAN: each has its own routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Realm {
    vlan: u16,
    is_ipv6: bool,
}

impl Realm {
    fn of(vlan: u16, address: IpAddr) -> Realm {
        Realm { vlan, is_ipv6: address.is_ipv6() }
    }
}

impl GroupKey {
    fn realm(self) -> Realm {
        Realm::of(self.vlan, self.group)
    }
}

/// A port for which something holds up to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Until {
    port: u16,
    at: Duration,
}

/// State of the routers of a realm.
#[derive(Clone, Debug, Default)]
struct Routers {
    ports: Vec<Until>,
    /// Another querier, its port, and until when it counts as there.
    querier: Option<(IpAddr, u16, Duration)>,
    /// From when on members are known, as a general query was sent and had time to be answered.
    since: Option<Duration>,
    /// Whether that was so when last looked at.
    is_known: bool,
}

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal,)*) => {
        /// What became of a message about groups.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Heard { $($(#[doc = $doc])* $variant,)* }

        impl Heard {
            /// All outcomes, one counter each.
            pub const ALL: &'static [Heard] = &[$(Heard::$variant),*];
            /// The name that counters have.
            pub const fn name(self) -> &'static str {
                match self { $(Heard::$variant => $name),* }
            }
        }
    };
}

outcomes! {
    /// A host reported its groups.
    Report "group-reports",
    /// A router sent a query or announced itself.
    Router "group-queries",
    /// It says nothing that could be believed.
    Bad "group-malformed",
    /// There are as many groups as may be, or the message named one beyond.
    Full "group-full",
}

/// Members and routers that were learned.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: HashMap<GroupKey, Vec<Until>>,
    realms: HashMap<Realm, Routers>,
    queries: QuerySchedule,
    /// Whether something is not shown yet, and when it was last.
    is_changed: bool,
    shown_at: Duration,
    next_sweep: Duration,
}

/// How the switch is configured to query groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// The address by which the switch sends queries itself, if it does.
    pub(super) querier: Option<Ipv4Addr>,
    /// The VLANs in which it sends queries.
    pub(super) vlans: Vec<u16>,
    /// The source address of its queries for IPv6.
    pub(super) own_ipv6: Option<Ipv6Addr>,
}

impl Orders {
    /// The source address of queries in a realm.
    fn own(&self, realm: Realm) -> Option<IpAddr> {
        let own = match realm.is_ipv6 {
            true => self.querier.and(self.own_ipv6).map(IpAddr::from),
            false => self.querier.map(IpAddr::from),
        };
        own.filter(|_| self.vlans.contains(&realm.vlan))
    }
}

impl Groups {
    /// Takes a message that came by a port; `is_fast` says that only one host is behind the port, so that a
    /// leave needs no query.
    pub(super) fn snoop_message(
        &mut self,
        (port, vlan): (u16, u16),
        message: Membership<'_>,
        is_fast: bool,
        now: Duration,
    ) -> Heard {
        match message {
            Membership::Query { source, .. } => {
                self.process_query(port, Realm::of(vlan, source), source, now)
            }
            Membership::Router(source) => {
                self.add_router(port, Realm::of(vlan, source), now);
                Heard::Router
            }
            Membership::Report(reports) => {
                let mut heard = Heard::Report;
                for (group, is_in) in reports.filter(|(group, _)| !is_for_all(*group)) {
                    let key = GroupKey { vlan, group };
                    match is_in {
                        true if !self.join_group(key, port, now) => heard = Heard::Full,
                        true => {}
                        false => self.leave_group(key, port, is_fast, now),
                    }
                }
                heard
            }
        }
    }

    /// A query without an address is sent on behalf of a router, so its sender is not one
    /// (RFC 4541 section 2.1.1).
    fn process_query(&mut self, port: u16, realm: Realm, source: IpAddr, now: Duration) -> Heard {
        if source.is_unspecified() {
            return Heard::Router;
        }
        self.add_router(port, realm, now);
        let Some(routers) = self.realms.get_mut(&realm) else { return Heard::Router };
        let stays = routers.querier.is_some_and(|(known, _, until)| until > now && known < source);
        if !stays {
            routers.querier = Some((source, port, now + PRESENCE));
            routers.since.get_or_insert(now + ANSWERS);
        }
        Heard::Router
    }

    fn add_router(&mut self, port: u16, realm: Realm, now: Duration) {
        let ports = &mut self.realms.entry(realm).or_default().ports;
        self.is_changed |= refresh_port(ports, Until { port, at: now + PRESENCE });
    }

    /// Whether there was room.
    fn join_group(&mut self, key: GroupKey, port: u16, now: Duration) -> bool {
        let is_full = self.members.len() >= MOST_GROUPS;
        let ports = match self.members.entry(key) {
            Entry::Vacant(_) if is_full => return false,
            entry => entry.or_default(),
        };
        self.is_changed |= refresh_port(ports, Until { port, at: now + MEMBERSHIP });
        true
    }

    /// A host has left; others behind the same port may still be members, which answer a query.
    fn leave_group(&mut self, key: GroupKey, port: u16, is_fast: bool, now: Duration) {
        let Entry::Occupied(mut known) = self.members.entry(key) else { return };
        let ports = known.get_mut();
        let Some(at) = ports.iter().position(|until| until.port == port) else { return };
        if !is_fast {
            ports[at].at = ports[at].at.min(now + LAST_ANSWERS);
            return self.queries.query_group(key, now);
        }
        ports.remove(at);
        if ports.is_empty() {
            known.remove();
            self.queries.cancel_query(key);
        }
        self.is_changed = true;
    }

    /// Forgets members and routers that were learned at a port.
    pub(super) fn forget_port(&mut self, port: u16) {
        self.retain_ports(|until| until.port != port);
        for routers in self.realms.values_mut() {
            routers.querier = routers.querier.filter(|(_, at, _)| *at != port);
        }
    }

    /// Keeps only the members and routers that pass.
    fn retain_ports(&mut self, is_kept: impl Fn(&Until) -> bool) {
        let mut is_changed = false;
        let mut keep = |ports: &mut Vec<Until>| {
            let before = ports.len();
            ports.retain(&is_kept);
            is_changed |= ports.len() != before;
        };
        self.members.values_mut().for_each(&mut keep);
        self.realms.values_mut().for_each(|routers| keep(&mut routers.ports));
        self.members.retain(|_, ports| !ports.is_empty());
        self.is_changed |= is_changed;
    }

    /// Restarts queries, because another source address is to be used.
    pub(super) fn restart_queries(&mut self) {
        self.queries = QuerySchedule::default();
    }

    /// The topology of the bridges has changed: members may be elsewhere, so that for a while frames go to
    /// all, and hosts are asked (RFC 4541 section 2.1.1).
    pub(super) fn mark_changed(&mut self) {
        self.queries.query_all_now();
    }

    /// Expires members and routers; returns the queries that are due.
    pub(super) fn tick(&mut self, orders: &Orders, now: Duration) -> Vec<Query> {
        let hurried = self.hurry_queries(now);
        if now >= self.next_sweep {
            self.next_sweep = now + SWEPT_EVERY;
            self.sweep_expired(orders, now);
        }
        let Groups { queries: asks, realms, .. } = self;
        let own = |realm: Realm| {
            let other = realms.get(&realm).and_then(|routers| routers.querier);
            let own = orders.own(realm)?;
            other.is_none_or(|(other, _, until)| until <= now || own < other).then_some(own)
        };
        asks.due_queries(orders, &hurried, own, now)
    }

    /// Realms that are to be queried now, if all are: until then no group is forgotten there.
    fn hurry_queries(&mut self, now: Duration) -> Vec<Realm> {
        let mut hurried = Vec::new();
        if self.queries.drain_query_all() {
            for (realm, routers) in self.realms.iter_mut().filter(|(_, routers)| routers.since.is_some()) {
                routers.since = Some(now + ANSWERS);
                hurried.push(*realm);
            }
            self.next_sweep = now;
        }
        hurried
    }

    fn sweep_expired(&mut self, orders: &Orders, now: Duration) {
        self.retain_ports(|until| until.at > now);
        let asked =
            orders.vlans.iter().flat_map(|vlan| [false, true].map(|is_ipv6| Realm { vlan: *vlan, is_ipv6 }));
        for realm in asked.filter(|realm| orders.own(*realm).is_some()) {
            self.realms.entry(realm).or_default().since.get_or_insert(now + ANSWERS);
        }
        for (realm, routers) in &mut self.realms {
            routers.querier = routers.querier.filter(|(_, _, until)| *until > now);
            if routers.querier.is_none() && orders.own(*realm).is_none() {
                routers.since = None;
            }
            let is_known = routers.since.is_some_and(|since| since <= now);
            self.is_changed |= std::mem::replace(&mut routers.is_known, is_known) != is_known;
        }
        self.realms.retain(|_, routers| !routers.ports.is_empty() || routers.since.is_some());
    }

    /// When [`tick`](Groups::tick) has something to do next.
    pub(super) fn next_deadline(&self) -> Duration {
        let shown = self.is_changed.then_some(self.shown_at + SHOWN_EVERY);
        [Some(self.next_sweep), shown, self.queries.next()].into_iter().flatten().min().unwrap_or_default()
    }

    /// What frames are to go by, if that has changed and is to be shown now.
    pub(super) fn changed_view(&mut self, now: Duration) -> Option<GroupView> {
        if !self.is_changed || now < self.shown_at + SHOWN_EVERY {
            return None;
        }
        (self.is_changed, self.shown_at) = (false, now);
        Some(self.view())
    }

    fn view(&self) -> GroupView {
        let places = |ports: &[Until]| ports.iter().map(|until| until.port).collect();
        let realms = self.realms.iter().filter(|(_, routers)| routers.is_known);
        GroupView {
            members: self.members.iter().map(|(key, ports)| (*key, places(ports))).collect(),
            realms: realms.map(|(realm, routers)| (*realm, places(&routers.ports))).collect(),
            is_full: self.members.len() >= MOST_GROUPS,
        }
    }

    /// Takes over what another switch has learned, of ports that have another place here or none.
    pub(super) fn adopt_state(&mut self, old: &Groups, place: impl Fn(u16) -> Option<u16>) {
        let moved = |ports: &[Until]| -> Vec<Until> {
            ports.iter().filter_map(|until| Some(Until { port: place(until.port)?, ..*until })).collect()
        };
        self.members = old.members.iter().map(|(key, ports)| (*key, moved(ports))).collect();
        let routers = |of: &Routers| Routers {
            ports: moved(&of.ports),
            querier: of.querier.and_then(|(address, port, at)| Some((address, place(port)?, at))),
            since: of.since,
            is_known: of.is_known,
        };
        self.realms = old.realms.iter().map(|(realm, of)| (*realm, routers(of))).collect();
        self.queries = old.queries.clone();
        self.is_changed = true;
    }

    /// Members of groups, a port each, and the seconds after which they are forgotten; sorted.
    pub(super) fn list_members(&self, now: Duration) -> Vec<(GroupKey, u16, u64)> {
        let of = |(key, ports): (&GroupKey, &Vec<Until>)| {
            let key = *key;
            ports
                .iter()
                .map(move |until| (key, until.port, until.at.saturating_sub(now).as_secs()))
                .collect::<Vec<_>>()
        };
        let mut list: Vec<_> = self.members.iter().flat_map(of).collect();
        list.sort_unstable();
        list
    }

    /// The VLANs of routers with whether it is for IPv6, their ports and seconds, likewise.
    pub(super) fn list_routers(&self, now: Duration) -> Vec<(u16, bool, u16, u64)> {
        let of = |(realm, routers): (&Realm, &Routers)| {
            let realm = *realm;
            let line = move |until: &Until| {
                (realm.vlan, realm.is_ipv6, until.port, until.at.saturating_sub(now).as_secs())
            };
            routers.ports.iter().map(line).collect::<Vec<_>>()
        };
        let mut list: Vec<_> = self.realms.iter().flat_map(of).collect();
        list.sort_unstable();
        list
    }
}

/// Notes up to when something holds for a port; says whether it did not before.
fn refresh_port(ports: &mut Vec<Until>, until: Until) -> bool {
    match ports.iter_mut().find(|known| known.port == until.port) {
        Some(known) => {
            known.at = until.at;
            false
        }
        None => {
            ports.push(until);
            true
        }
    }
}

/// Whether frames for a group go to all ports in any case: it is of this link only, which many are in without
/// saying so (RFC 4541 section 2.1.2).
fn is_for_all(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group.octets()[1] & 0xf <= 2,
    }
}
