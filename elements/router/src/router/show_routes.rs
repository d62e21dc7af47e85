//! Routes and next hops as JSON, of tables of any size.
//!
//! Routes are read from the tables in slices, so that other users of the tables wait for one slice at most;
//! they are written without the lock. A listing thus combines several moments, and is consistent within each
//! slice.
use super::chosen::{ChosenJson, chosen_for};
use super::json::{SCHEMA, Schema, port_name, to_json};
use super::route_text::{parse_ip, parse_prefix};
use super::router_worker;
use super::router_worker::IpRouter;
use artery_engine::{Context, HandlerError, Resources};
use artery_forward::shared::{NamedRouters, SharedRouter};
use artery_l3::next_hop::Hop;
use artery_l3::path::Outcome;
use artery_l3::router::{GroupView, Ip, MemberView, PortView, RouteView, Source, Tables};
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Group, Prefix};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;

/// Routes that are read from the tables under one lock.
const SLICE: usize = 1024;

/// A next hop, as in `ip -json route`.
#[derive(Serialize)]
pub(super) struct NextHopJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    weight: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
}

/// The next hops of a route.
#[derive(Serialize)]
struct GroupJson {
    #[serde(rename = "type")]
    kind: &'static str,
    next_hops: Vec<NextHopJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    group: Group,
}

/// A next-hop group in a list of groups.
#[derive(Serialize)]
struct SharedGroupJson {
    group: Group,
    routes: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    next_hops: Vec<ShareJson>,
}

/// A next hop, and how much of its group's packets it gets now.
#[derive(Serialize)]
struct ShareJson {
    #[serde(flatten)]
    next_hop: NextHopJson,
    slots: usize,
    share: f64,
}

#[derive(Serialize)]
struct NextHopsJson {
    #[serde(flatten)]
    schema: Schema,
    groups: Vec<SharedGroupJson>,
}

/// The route of one address.
#[derive(Serialize)]
struct RouteJson {
    #[serde(flatten)]
    schema: Schema,
    dst: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    outcome: &'static str,
    #[serde(flatten)]
    group: Option<GroupJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<ChosenJson>,
}

impl NextHopJson {
    fn of(member: &MemberView, ports: &[PortView]) -> NextHopJson {
        let mtu = match member.hop {
            Hop::Gateway { mtu, .. } | Hop::OnLink { mtu, .. } => mtu,
            Hop::End { .. } => None,
        };
        NextHopJson {
            gateway: member.hop.gateway().map(|(_, gateway)| gateway),
            port: member.hop.port().map(|port| port_name(ports, port)),
            weight: member.weight,
            state: if member.is_alive { "up" } else { "down" },
            mtu,
        }
    }
}

impl GroupJson {
    fn of(group: &GroupView, ports: &[PortView]) -> GroupJson {
        GroupJson {
            kind: route_kind(group),
            next_hops: group.members.iter().map(|member| NextHopJson::of(member, ports)).collect(),
            method: selection_method(group),
            group: group.group,
        }
    }
}

impl SharedGroupJson {
    fn of(group: &GroupView, ports: &[PortView]) -> SharedGroupJson {
        let all: usize = group.members.iter().map(|member| member.slots).sum();
        let share = |member: &MemberView| ShareJson {
            next_hop: NextHopJson::of(member, ports),
            slots: member.slots,
            share: member.slots as f64 / all.max(1) as f64,
        };
        SharedGroupJson {
            group: group.group,
            routes: group.routes,
            kind: route_kind(group),
            method: selection_method(group),
            next_hops: group.members.iter().map(share).collect(),
        }
    }
}

/// The type of routes with this group, in the words of `ip route`.
fn route_kind(group: &GroupView) -> &'static str {
    match group.members.first().map(|member| member.hop) {
        Some(Hop::End { outcome: Outcome::Prohibited, .. }) => "prohibit",
        Some(Hop::End { outcome, .. }) => outcome.name(),
        _ => "unicast",
    }
}

/// How one of several members is chosen.
fn selection_method(group: &GroupView) -> Option<&'static str> {
    (group.members.len() > 1).then(|| group.selection.name())
}

/// What routes are wanted.
#[derive(Debug, Default, PartialEq, Eq)]
struct RouteQuery {
    family: Option<u8>,
    within: Option<AnyPrefix>,
    after: Option<AnyPrefix>,
    limit: Option<usize>,
}

/// `[4|6] [PREFIX] [after PREFIX] [limit NUMBER]`.
fn parse_query(text: &str) -> Result<RouteQuery, String> {
    let (mut wanted, mut words) = (RouteQuery::default(), text.split_whitespace());
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("'{word}' is the last word; its value is missing"));
        match word {
            "4" => wanted.family = Some(4),
            "6" => wanted.family = Some(6),
            "after" => wanted.after = Some(parse_prefix(value()?)?),
            "limit" => {
                let text = value()?;
                let number = text.parse().ok().filter(|number| *number > 0);
                wanted.limit = Some(number.ok_or_else(|| format!("limit {text}: not a number from 1 on"))?);
            }
            _ => wanted.within = Some(parse_prefix(word)?),
        }
    }
    Ok(wanted)
}

/// A listing in the making.
struct Listing<'a> {
    router: &'a SharedRouter,
    ports: Vec<PortView>,
    text: String,
    /// Most routes still to be listed.
    left: usize,
    /// The last one that did.
    last: Option<AnyPrefix>,
    is_cut: bool,
}

/// Reads routes on the caller's thread, without a worker.
pub(super) fn read_without_worker(
    resources: &Resources,
    element: &str,
    text: &str,
) -> Result<String, HandlerError> {
    let router = resources.get::<NamedRouters>().get(element);
    let router = router.ok_or_else(|| HandlerError::NoElement(element.to_string()))?;
    routes_json(&router, text).map_err(HandlerError::Refused)
}

/// Serves the handler `routes_json`.
pub(super) fn routes_json(router: &SharedRouter, text: &str) -> Result<String, String> {
    let wanted = parse_query(text)?;
    let mut listing = Listing {
        router,
        ports: router.lock_tables().ports(),
        text: format!(
            "{{\"schema_version\":{},\"version\":\"{}\",\"routes\":[",
            SCHEMA.schema_version, SCHEMA.version
        ),
        left: wanted.limit.unwrap_or(usize::MAX),
        last: None,
        is_cut: false,
    };
    if wanted.family != Some(6) {
        listing.list_routes(
            &wanted,
            |prefix| if let AnyPrefix::V4(prefix) = prefix { Some(prefix) } else { None },
        );
    }
    // All IPv6 prefixes sort after an IPv4 prefix.
    if wanted.family != Some(4) {
        listing.list_routes(
            &wanted,
            |prefix| if let AnyPrefix::V6(prefix) = prefix { Some(prefix) } else { None },
        );
    }
    Ok(listing.finish())
}

impl Listing<'_> {
    fn list_routes<A: Ip>(&mut self, wanted: &RouteQuery, own: impl Fn(AnyPrefix) -> Option<Prefix<A>>) {
        let within = match wanted.within.map(&own) {
            Some(None) => return,
            Some(Some(prefix)) => prefix,
            None => Prefix::ALL,
        };
        let (mut from, mut with_own) = match wanted.after.map(&own) {
            Some(Some(after)) if after >= within => (after, false),
            // All IPv4 routes were before an IPv6 one.
            Some(None) if A::BITS == 32 => return,
            _ => (within, true),
        };
        loop {
            let slice = self.next_slice(from, with_own, within);
            let Some(last) = slice.last() else { return };
            let Some(next) = own(last.prefix) else { return };
            (from, with_own) = (next, false);
            if !self.write_routes(&slice) || slice.len() < SLICE {
                return;
            }
        }
    }

    /// The next routes, with the texts of their groups.
    fn next_slice<A: Ip>(&mut self, from: Prefix<A>, with_own: bool, within: Prefix<A>) -> Vec<ListedRoute> {
        let tables = self.router.lock_tables();
        let is_within = |route: &RouteView| is_within(route.prefix, A::any_prefix(within));
        let routes = tables.routes_from(from, with_own).take_while(is_within).take(SLICE);
        let by_hand = self.router.routes_by_hand();
        let mut groups =
            GroupTexts { tables: &tables, ports: &self.ports, by_hand: &by_hand, texts: HashMap::new() };
        routes.map(|route| groups.render_route(route)).collect()
    }

    /// Writes a slice of routes; returns whether more may be written.
    fn write_routes(&mut self, slice: &[ListedRoute]) -> bool {
        for route in slice {
            if self.left == 0 {
                self.is_cut = true;
                return false;
            }
            self.left -= 1;
            let comma = if self.last.is_some() { "," } else { "" };
            self.last = Some(route.prefix);
            let (dst, source) = (route.prefix, route.source);
            // Writing to a string can't fail. Neither needs an escape.
            let _ = write!(self.text, "{comma}{{\"dst\":\"{dst}\",\"source\":\"{source}\",");
            if route.is_by_hand {
                self.text.push_str("\"by_hand\":true,");
            }
            self.text.push_str(&route.rest);
        }
        true
    }

    fn finish(mut self) -> String {
        self.text.push(']');
        if let Some(last) = self.last.filter(|_| self.is_cut) {
            let _ = write!(self.text, ",\"next\":\"{last}\"");
        }
        self.text.push('}');
        self.text
    }
}

/// A route that is about to be written.
struct ListedRoute {
    prefix: AnyPrefix,
    source: &'static str,
    /// Whether a handler set it, so that a router that starts has not got it.
    is_by_hand: bool,
    /// All after its source.
    rest: std::rc::Rc<str>,
}

/// The texts of groups, each written once in a slice.
struct GroupTexts<'a> {
    tables: &'a Tables,
    ports: &'a [PortView],
    by_hand: &'a HashMap<AnyPrefix, String>,
    texts: HashMap<Group, std::rc::Rc<str>>,
}

impl GroupTexts<'_> {
    fn render_route(&mut self, route: RouteView) -> ListedRoute {
        let rest = self.texts.entry(route.group).or_insert_with(|| {
            let group = self.tables.group_view(route.group);
            let text = group.map_or("{}".to_string(), |group| to_json(&GroupJson::of(&group, self.ports)));
            // The members of the object, as the end of the route's.
            text[1..].into()
        });
        let is_by_hand = route.source == Source::Static && self.by_hand.contains_key(&route.prefix);
        ListedRoute { prefix: route.prefix, source: route.source.name(), is_by_hand, rest: rest.clone() }
    }
}

fn is_within(inner: AnyPrefix, outer: AnyPrefix) -> bool {
    match (inner, outer) {
        (AnyPrefix::V4(inner), AnyPrefix::V4(outer)) => outer.covers(inner),
        (AnyPrefix::V6(inner), AnyPrefix::V6(outer)) => outer.covers(inner),
        _ => false,
    }
}

/// Serves the handler `nexthops_json`.
pub(super) fn next_hops(router: &SharedRouter) -> String {
    let (groups, ports) = {
        let tables = router.lock_tables();
        (tables.group_views(), tables.ports())
    };
    let groups = groups.iter().map(|group| SharedGroupJson::of(group, &ports)).collect();
    to_json(&NextHopsJson { schema: SCHEMA, groups })
}

/// The handler `route_json`. Of several next hops, the chosen one is that of an echo request
/// of the router itself.
pub(super) fn route_json(r: &mut IpRouter, text: &str, cx: &mut Context<'_>) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("whose route? name an address, such as 192.0.2.1".into());
    }
    let (dst, now) = (parse_ip(text)?, router_worker::now(cx));
    let tables = r.router.lock_tables();
    let (found, ports) = (tables.lookup_route(dst), tables.ports());
    let group = found.and_then(|route| tables.group_view(route.group));
    let (outcome, chosen) = chosen_for(&r.router, &tables, dst, cx.turn(), now);
    Ok(to_json(&RouteJson {
        schema: SCHEMA,
        dst,
        prefix: found.map(|route| route.prefix.to_string()),
        source: found.map(|route| route.source.name()),
        outcome: outcome.name(),
        group: group.map(|group| GroupJson::of(&group, &ports)),
        chosen,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::verdict::testing::{NOW, small};
    use super::*;
    use artery_l3::PortId;
    use artery_l3::router::{RouteSpec, Target};
    use artery_lpm::synthetic::{FULL_FEED_V4, FULL_FEED_V6, Shape, generate_prefixes};
    use std::time::Instant;

    fn load<A: Ip + Shape>(tables: &mut Tables, count: usize) {
        let ports = (0..2).map(|port| RouteSpec::to(Target::on_link(PortId(port))));
        let routes =
            generate_prefixes::<A>(count, 1).into_iter().enumerate().map(|(at, prefix)| (prefix, at % 2));
        tables.load_routes(&ports.collect::<Vec<_>>(), routes, NOW).unwrap();
    }

    #[test]
    fn a_full_table_is_written_in_time_that_grows_with_it_and_held_for_a_slice_at_a_time() {
        let mut tables = small().tables;
        load::<u32>(&mut tables, FULL_FEED_V4);
        load::<u128>(&mut tables, FULL_FEED_V6);
        let count = tables.route_count::<u32>() + tables.route_count::<u128>();
        let router = SharedRouter::new("router", tables, 1);
        let begin = Instant::now();
        let text = routes_json(&router, "").unwrap();
        println!("{count} routes: {} bytes, {:?}", text.len(), begin.elapsed());
        assert_eq!(text.matches("\"dst\"").count(), count);
        let begin = Instant::now();
        let slices = 500;
        let mut listing = Listing {
            router: &router,
            ports: Vec::new(),
            text: String::new(),
            left: usize::MAX,
            last: None,
            is_cut: false,
        };
        let mut from: Prefix<u32> = Prefix::ALL;
        for _ in 0..slices {
            let slice = listing.next_slice(from, false, Prefix::ALL);
            let Some(AnyPrefix::V4(last)) = slice.last().map(|route| route.prefix) else { break };
            from = last;
            assert!(listing.write_routes(&slice));
        }
        println!("a slice of {SLICE}: {:?}", begin.elapsed() / slices);
    }
}
