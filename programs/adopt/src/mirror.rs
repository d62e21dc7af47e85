//! Mirrors the kernel's tables, and resolves them for packets that are forwarded.
//!
//! [`Mirror`] is fed with records and sends a [`Sink`] the changes; it uses no socket and no clock.
//! [`MirrorDriver`] feeds it: with all records at the start, with changes as the kernel sends them, and with
//! all records again when some may have been missed. What is still right is not withdrawn meanwhile.
//!
//! The mirror may leave packets to the kernel that the kernel forwards; it must not forward packets that
//! the kernel does not forward, or forwards elsewhere. Two things it follows late: a route that ends by
//! itself is gone when the kernel has cleared it away, and what the kernel does without a notification is
//! found by the next resync.
mod driver;
mod kept;
mod links;
mod merged;
mod paths;
mod plan;
mod recording_sink;
mod routes;
mod sink;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod vrf;
mod world;

pub use driver::{MirrorDriver, PollOutcome};
pub use kept::{ExcludedPrefix, RouteCondition};
pub use plan::{ExcludedPackets, ExclusionReason};
pub use recording_sink::{RecordingSink, VrfRoutes};
pub use sink::{Exclusion, Hop, NextHopSet, NextHopSetId, Sink};
pub use vrf::{FibBinding, Vrf};

use crate::kernel::{Address, Family, Link, Manner, Neighbor, News, Record, Route, RouteKind, Rule};
use artery_l3::router::ReversePath;
use artery_lpm::Prefix;
use artery_wire::EtherAddr;
use merged::FamilyTables;
use paths::Paths;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use sync::DumpState;
use vrf::VrfState;
use world::KernelState;

/// RTPROT_KERNEL: a route that the kernel has made.
const BY_KERNEL: u8 = 2;

/// The kernel's tables, merged into one set of routes for each family.
#[derive(Debug, Default)]
pub struct Mirror {
    world: KernelState,
    paths: Paths,
    v4: FamilyTables<u32>,
    v6: FamilyTables<u128>,
    addresses: HashSet<Address>,
    neighbors: HashMap<(u32, IpAddr), EtherAddr>,
    /// Those of them that the kernel does not find [by itself](Neighbor::is_found_by_use).
    given: HashSet<(u32, IpAddr)>,
    rules4: Rules,
    rules6: Rules,
    vrfs: VrfState,
    dump: Option<DumpState>,
    /// The family whose routes are compared with what a dump found.
    swept: Option<Family>,
    /// Whether the kernel ever had a reason to look up all sources: a rule, a route to the machine itself
    /// that it has not made, a realm. It doesn't forget the first two either.
    has_asked: bool,
    needs_resync: bool,
}

/// The rules of a family.
#[derive(Debug, Default)]
struct Rules {
    rules: Vec<Rule>,
    exclusion: Exclusion,
    reasons: Vec<ExclusionReason>,
}

impl Mirror {
    /// Applies a change that the kernel has sent.
    pub fn apply_change(&mut self, news: News, sink: &mut dyn Sink) {
        if let Some(roll) = &mut self.dump {
            roll.mark_touched(&news.record);
        }
        let is_gone = news.is_gone;
        match news.record {
            Record::Route(route) => self.apply_route(is_gone, news.manner, &route, sink),
            Record::Neighbor(neighbor) => self.apply_neighbor(is_gone, &neighbor, sink),
            Record::Link(link) => self.apply_link(is_gone, link, sink),
            Record::Address(address) => self.apply_address(is_gone, address, sink),
            Record::NextHop(object) => self.apply_object(is_gone, object, sink),
            Record::Rule(rule) => self.apply_rule(is_gone, rule, sink),
            Record::Settings(settings) => self.apply_settings(is_gone, settings, sink),
        }
    }

    /// Whether something has happened since the last call after which the kernel may have changed
    /// more than it notified.
    pub fn resync_requested(&mut self) -> bool {
        std::mem::take(&mut self.needs_resync)
    }

    /// Why packets stay with the kernel, besides what routes say.
    pub fn exclusion_reasons(&self) -> impl Iterator<Item = &ExclusionReason> {
        self.rules4.reasons.iter().chain(&self.rules6.reasons)
    }

    /// The rules for packets of IPv4, in the order in which they are asked.
    pub fn ipv4_rules(&self) -> &[Rule] {
        &self.rules4.rules
    }

    /// Whether the kernel forwards packets of a family that come in by an interface.
    pub fn forwards(&self, family: Family, link: u32) -> bool {
        self.world.forwards(family, link)
    }

    /// Reverse-path checks of IPv4 sources, by the interface that packets come in by. Interfaces whose check
    /// only the kernel can do are left out.
    pub fn reverse_paths(&self) -> BTreeMap<u32, ReversePath> {
        let links = self.world.links.keys();
        links.filter_map(|link| Some((*link, self.reverse_path(*link)?))).collect()
    }

    fn reverse_path(&self, link: u32) -> Option<ReversePath> {
        let demanded = self.world.reverse_path(link)?;
        // With rules or local routes that the user made, the kernel looks sources up even where no check is
        // configured, and drops packets that claim to come from the machine.
        let is_asked = self.has_asked || !plan::is_default(&self.rules4.rules);
        // The kernel looks up the source as if the machine itself were to send.
        let is_for_machine = |rule: &Rule| rule.selectors.input.as_deref() == Some("lo");
        if (demanded != ReversePath::Off || is_asked) && self.rules4.rules.iter().any(is_for_machine) {
            return None;
        }
        let has_address = |own: &Address| own.link == link && own.family() == Family::V4;
        match demanded {
            ReversePath::Off if is_asked => Some(ReversePath::Loose),
            ReversePath::Loose if !self.addresses.iter().any(has_address) => Some(ReversePath::Strict),
            demanded => Some(demanded),
        }
    }

    /// The kernel's interfaces that the mirror knows, in this network namespace.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.world.links.values()
    }

    /// The addresses of the machine.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter()
    }

    /// The neighbors that packets can be sent to.
    pub fn neighbors(&self) -> impl Iterator<Item = (u32, IpAddr, EtherAddr)> {
        self.neighbors.iter().map(|(&(link, address), &mac)| (link, address, mac))
    }

    /// Whether a neighbor entry was given to the kernel by a program or a user. Its use needs no report, and
    /// must not be reported.
    pub fn is_given(&self, link: u32, address: IpAddr) -> bool {
        self.given.contains(&(link, address))
    }

    /// How many prefixes the tables of a family have.
    pub fn prefixes(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.v4.len(),
            Family::V6 => self.v6.len(),
        }
    }

    /// How many different things packets of routes do.
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    fn apply_route(&mut self, is_gone: bool, manner: Manner, route: &Route, sink: &mut dyn Sink) {
        let had = self.prefixes_of(route.family, route.table);
        self.has_asked |= is_made_local(route) || (route.has_realm && !is_gone);
        let was_right = match route.destination {
            IpAddr::V4(address) => {
                let prefix = Prefix::of(address.to_bits(), route.len);
                self.tables4(sink).apply_route(is_gone, manner, prefix, route)
            }
            IpAddr::V6(address) => {
                let prefix = Prefix::of(address.to_bits(), route.len);
                self.tables6(sink).apply_route(is_gone, manner, prefix, route)
            }
        };
        self.needs_resync |= !was_right;
        self.review_rules(route.family, route.table, had, sink);
    }

    /// How many prefixes a table has.
    fn prefixes_of(&self, family: Family, table: u32) -> usize {
        match family {
            Family::V4 => self.v4.len_of(table),
            Family::V6 => self.v6.len_of(table),
        }
    }

    /// Looks at the rules again where a table has its first prefix, or none any more: a rule that leads to
    /// nothing has no effect.
    fn review_rules(&mut self, family: Family, table: u32, had: usize, sink: &mut dyn Sink) {
        if (had == 0) != (self.prefixes_of(family, table) == 0) {
            self.plan_lookups(family, sink);
        }
    }

    fn apply_neighbor(&mut self, is_gone: bool, neighbor: &Neighbor, sink: &mut dyn Sink) {
        let key = (neighbor.link, neighbor.address);
        let mac = neighbor.usable_mac().filter(|_| !is_gone);
        match mac.is_some() && !neighbor.is_found_by_use() {
            true => drop(self.given.insert(key)),
            false => drop(self.given.remove(&key)),
        }
        let before = match mac {
            Some(mac) => self.neighbors.insert(key, mac),
            None => self.neighbors.remove(&key),
        };
        if before != mac {
            sink.set_neighbor(key.0, key.1, mac);
        }
    }

    fn apply_rule(&mut self, is_gone: bool, rule: Rule, sink: &mut dyn Sink) {
        let family = rule.family;
        // From now on they will have been changed, whatever becomes of them.
        self.has_asked |= family == Family::V4 && plan::is_default(&self.rules4.rules);
        let rules = &mut self.rules_mut(family).rules;
        match rules.iter().position(|old| *old == rule) {
            Some(at) if is_gone => drop(rules.remove(at)),
            None if !is_gone => {
                let at = rules.iter().position(|old| old.priority > rule.priority).unwrap_or(rules.len());
                rules.insert(at, rule);
            }
            _ => return,
        }
        self.plan_lookups(family, sink);
    }

    fn rules_mut(&mut self, family: Family) -> &mut Rules {
        match family {
            Family::V4 => &mut self.rules4,
            Family::V6 => &mut self.rules6,
        }
    }

    /// Finds what the rules come to now.
    fn plan_lookups(&mut self, family: Family, sink: &mut dyn Sink) {
        match family {
            Family::V4 => {
                let known = (&self.world, &self.paths, &self.vrfs);
                self.rules4.apply_plans(family, &mut self.v4, known, sink);
            }
            Family::V6 => {
                let known = (&self.world, &self.paths, &self.vrfs);
                self.rules6.apply_plans(family, &mut self.v6, known, sink);
            }
        }
    }
}

/// Whether the user added this local route. The kernel makes one itself for each address.
fn is_made_local(route: &Route) -> bool {
    route.table == plan::LOCAL && route.path.kind == RouteKind::Local && route.protocol != BY_KERNEL
}

impl Rules {
    fn apply_plans<A: sink::FamilySink>(
        &mut self,
        family: Family,
        merged: &mut FamilyTables<A>,
        (world, paths, vrfs): (&KernelState, &Paths, &VrfState),
        sink: &mut dyn Sink,
    ) {
        let links: Vec<&Link> = world.links.values().collect();
        let build =
            |vrf| plan::build_plan::<A>(&self.rules, &links, vrf, |table: u32| merged.len_of(table) == 0);
        let mut made = build(None);
        let mut vrf_plans = Vec::new();
        for (table, ports) in vrfs.tables() {
            let of_vrf = build(Some(table));
            made.exclude_of_vrf(of_vrf.exclusion, of_vrf.reasons, ports);
            vrf_plans.push((table, of_vrf.plan));
        }
        if let Exclusion::From(links) = &mut made.exclusion {
            links.sort_unstable();
            links.dedup();
        }
        let (is_new, keeps_more) = (made.exclusion != self.exclusion, made.exclusion != Exclusion::Nothing);
        self.exclusion = made.exclusion;
        self.reasons = made.reasons;
        // Packets are left to the kernel before routes change that they must not go by, and given back after.
        if is_new && keeps_more {
            sink.exclude(family, &self.exclusion);
        }
        merged.apply_plan(made.plan, paths, sink);
        merged.retain_vrf_plans(|table| vrf_plans.iter().any(|(kept, _)| *kept == table));
        for (table, plan) in vrf_plans {
            merged.apply_vrf_plan(table, plan, paths, sink);
        }
        if is_new && !keeps_more {
            sink.exclude(family, &self.exclusion);
        }
    }

    /// Whether any depends on which interfaces there are.
    fn depend_on_links(&self) -> bool {
        let selects = |rule: &Rule| {
            let selectors = &rule.selectors;
            selectors.is_vrf || selectors.input.is_some() || selectors.output.is_some()
        };
        self.rules.iter().any(selects)
    }
}
