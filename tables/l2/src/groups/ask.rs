//! When to query hosts for their groups, and the query frames.
use super::{GroupKey, Orders, Realm};
use artery_wire::membership::{igmp_query, mld_query};
use artery_wire::{EtherAddr, EtherType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How often general queries are sent (RFC 3376 section 8.2), how often at first, and how many
/// of these (8.6, 8.7).
const INTERVAL: Duration = Duration::from_secs(125);
const FIRST_INTERVAL: Duration = Duration::from_secs(31);
const FIRST_TIMES: u8 = 2;
/// How often group queries are sent after a leave, and how many (RFC 3376 sections 8.8, 8.9).
const LAST_INTERVAL: Duration = Duration::from_secs(1);
const LAST_TIMES: u8 = 2;
/// Most groups queried at the same time; members of groups beyond leave without a query.
const MAX_GROUP_QUERIES: usize = 256;

/// A query to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// The VLAN that it is sent in.
    pub(crate) vlan: u16,
    /// Source address; unspecified where another router is the querier.
    pub(super) source: IpAddr,
    /// The group that is meant; all if none is.
    pub(super) group: Option<IpAddr>,
}

impl Query {
    /// The frame without a tag, with this source address.
    pub(crate) fn build_frame(&self, from: EtherAddr) -> Option<Vec<u8>> {
        let (ether_type, packet, to) = match (self.source, self.group) {
            (IpAddr::V4(source), None) => of_ipv4(source, None),
            (IpAddr::V4(source), Some(IpAddr::V4(group))) => of_ipv4(source, Some(group)),
            (IpAddr::V6(source), None) => of_ipv6(source, None),
            (IpAddr::V6(source), Some(IpAddr::V6(group))) => of_ipv6(source, Some(group)),
            _ => return None,
        };
        Some([&to.0[..], &from.0, &ether_type.0.to_be_bytes(), &packet].concat())
    }
}

fn of_ipv4(source: Ipv4Addr, group: Option<Ipv4Addr>) -> (EtherType, Vec<u8>, EtherAddr) {
    let (packet, to) = igmp_query(source, group);
    (EtherType::IPV4, packet, EtherAddr::multicast_v4(to))
}

fn of_ipv6(source: Ipv6Addr, group: Option<Ipv6Addr>) -> (EtherType, Vec<u8>, EtherAddr) {
    let (packet, to) = mld_query(source, group);
    (EtherType::IPV6, packet, EtherAddr::multicast_v6(to))
}

/// Queries to send, and their times.
#[derive(Clone, Debug, Default)]
pub(super) struct QuerySchedule {
    /// When the next general query is due; at once where it isn't known.
    next_for_all: Option<Duration>,
    /// How many times they were.
    times: u8,
    /// Groups whose last members may have left.
    ones: Vec<GroupQuery>,
    /// Whether all groups are to be queried because the topology of the bridges has changed.
    hurries: bool,
}

#[derive(Clone, Copy, Debug)]
struct GroupQuery {
    key: GroupKey,
    times: u8,
    at: Duration,
}

impl QuerySchedule {
    /// Queries a group for its remaining members.
    pub(super) fn query_group(&mut self, key: GroupKey, now: Duration) {
        if self.ones.len() < MAX_GROUP_QUERIES && !self.ones.iter().any(|one| one.key == key) {
            self.ones.push(GroupQuery { key, times: LAST_TIMES, at: now });
        }
    }

    /// The group has no more members: cancels its query.
    pub(super) fn cancel_query(&mut self, key: GroupKey) {
        self.ones.retain(|one| one.key != key);
    }

    /// Sends general queries at once.
    pub(super) fn query_all_now(&mut self) {
        self.hurries = true;
    }

    /// Whether that was said, for the first time since.
    pub(super) fn drain_query_all(&mut self) -> bool {
        let hurries = std::mem::take(&mut self.hurries);
        if hurries {
            self.next_for_all = None;
        }
        hurries
    }

    /// When the next query is due.
    pub(super) fn next(&self) -> Option<Duration> {
        let hurry = self.hurries.then_some(Duration::ZERO);
        self.ones.iter().map(|one| one.at).chain(self.next_for_all).chain(hurry).min()
    }

    /// Queries that are due; `own` is the address by which the switch asks in a realm, if it has no other
    /// querier. In those that are `hurried` hosts are asked in any case, for IPv4 with the unspecified source
    /// (RFC 4541 section 2.1.1).
    pub(super) fn due_queries(
        &mut self,
        orders: &Orders,
        hurried: &[Realm],
        own: impl Fn(Realm) -> Option<IpAddr>,
        now: Duration,
    ) -> Vec<Query> {
        let mut queries = Vec::new();
        if self.next_for_all.is_none_or(|next| next <= now) {
            let is_first = self.times < FIRST_TIMES;
            self.times = self.times.saturating_add(1);
            self.next_for_all = Some(now + if is_first { FIRST_INTERVAL } else { INTERVAL });
            let both = |vlan: &u16| [false, true].map(|is_ipv6| Realm { vlan: *vlan, is_ipv6 });
            let asked = orders.vlans.iter().flat_map(both);
            let query = |realm: Realm| Some(Query { vlan: realm.vlan, source: own(realm)?, group: None });
            queries.extend(asked.filter_map(query));
        }
        for one in self.ones.iter_mut().filter(|one| one.at <= now) {
            (one.times, one.at) = (one.times - 1, now + LAST_INTERVAL);
            let source = own(one.key.realm());
            queries.extend(source.map(|source| Query {
                vlan: one.key.vlan,
                source,
                group: Some(one.key.group),
            }));
        }
        self.ones.retain(|one| one.times > 0);
        let others = hurried.iter().filter(|realm| !realm.is_ipv6 && own(**realm).is_none());
        let source = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        queries.extend(others.map(|realm| Query { vlan: realm.vlan, source, group: None }));
        queries
    }
}
