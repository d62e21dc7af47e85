//! All records of a part, compared with what is known: what the kernel no longer has is removed, what is new
//! is added, and what is unchanged isn't touched.
//!
//! Changes go on meanwhile. What has changed since the part was asked for is known better than by the answer,
//! which may be older or newer: the changes that make it so have yet to be read.
use super::{Mirror, Sink};
use crate::kernel::{Address, Family, Manner, News, Record, RecordKind, Route, Rule};
use artery_lpm::Prefix;
use std::collections::HashSet;
use std::net::IpAddr;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RecordKey {
    Link(u32),
    Address(Address),
    NextHop(u32),
    Neighbor(u32, IpAddr),
}

impl RecordKey {
    fn of(record: &Record) -> Option<RecordKey> {
        match record {
            Record::Link(link) => Some(RecordKey::Link(link.index)),
            Record::Address(address) => Some(RecordKey::Address(address.clone())),
            Record::NextHop(object) => Some(RecordKey::NextHop(object.id)),
            Record::Neighbor(neighbor) => Some(RecordKey::Neighbor(neighbor.link, neighbor.address)),
            Record::Route(_) | Record::Rule(_) | Record::Settings(_) => None,
        }
    }
}

/// What a dump of a part has found so far.
#[derive(Debug)]
pub(super) struct DumpState {
    part: RecordKind,
    found: HashSet<RecordKey>,
    /// What has changed meanwhile.
    touched: HashSet<RecordKey>,
    rules: Vec<Rule>,
    /// Routes of one prefix in one table, for the same sources, which come one after the other.
    routes: Vec<Route>,
    /// Whether any rule has changed meanwhile.
    has_new_rules: bool,
}

impl DumpState {
    pub(super) fn mark_touched(&mut self, record: &Record) {
        self.has_new_rules |= matches!(record, Record::Rule(_));
        self.touched.extend(RecordKey::of(record));
    }
}

impl Mirror {
    /// All records of a part come now.
    pub fn begin_part(&mut self, part: RecordKind) {
        match part {
            RecordKind::Routes(Family::V4) => self.v4.begin_dump(),
            RecordKind::Routes(Family::V6) => self.v6.begin_dump(),
            _ => {}
        }
        self.dump = Some(DumpState {
            part,
            found: HashSet::new(),
            touched: HashSet::new(),
            rules: Vec::new(),
            routes: Vec::new(),
            has_new_rules: false,
        });
    }

    /// This is one of them.
    pub fn add_found(&mut self, record: Record, sink: &mut dyn Sink) {
        let Some(roll) = &mut self.dump else { return };
        match record {
            Record::Route(route) => {
                // Notifications keep routes for some sources only apart from the other routes
                // of the same prefix.
                let key = |route: &Route| (route.table, route.len, route.destination, route.source);
                if roll.routes.last().is_some_and(|last| key(last) != key(&route)) {
                    self.found_prefix(sink);
                }
                self.dump.as_mut().expect("nothing ends it here").routes.push(route);
            }
            Record::Rule(rule) => roll.rules.push(rule),
            record => {
                let key = RecordKey::of(&record);
                let is_touched = key.as_ref().is_some_and(|key| roll.touched.contains(key));
                roll.found.extend(key);
                if !is_touched {
                    let news = News { is_gone: false, manner: Manner::Plain, record };
                    self.apply_found(news, sink);
                }
            }
        }
    }

    /// Applies what a dump has found; it doesn't count as a change meanwhile.
    fn apply_found(&mut self, news: News, sink: &mut dyn Sink) {
        let roll = self.dump.take();
        self.apply_change(news, sink);
        self.dump = roll;
    }

    /// All routes of a prefix, for the same sources, were found.
    fn found_prefix(&mut self, sink: &mut dyn Sink) {
        let Some(roll) = &mut self.dump else { return };
        let mut routes = std::mem::take(&mut roll.routes);
        let Some(first) = routes.first() else { return };
        let (family, table, len) = (first.family, first.table, first.len);
        let had = self.prefixes_of(family, table);
        self.has_asked |= routes.iter().any(|route| super::is_made_local(route) || route.has_realm);
        match first.destination {
            IpAddr::V4(ip) => self.tables4(sink).set_found(Prefix::of(ip.to_bits(), len), &routes),
            IpAddr::V6(ip) => self.tables6(sink).set_found(Prefix::of(ip.to_bits(), len), &routes),
        }
        self.review_rules(family, table, had, sink);
        routes.clear();
        if let Some(roll) = &mut self.dump {
            roll.routes = routes;
        }
    }

    /// Ends a part: what wasn't among its records is gone, if `is_complete`. Returns whether
    /// to dump it again.
    ///
    /// There may be many routes: [`sweep_routes`](Self::sweep_routes) sweeps them, as long
    /// as it returns true.
    pub fn end_part(&mut self, is_complete: bool, sink: &mut dyn Sink) -> bool {
        self.found_prefix(sink);
        let Some(roll) = self.dump.take() else { return false };
        match roll.part {
            RecordKind::Routes(family) => self.swept = Some(family),
            RecordKind::Rules(_) if roll.has_new_rules => return true,
            RecordKind::Rules(family) => {
                self.rules_mut(family).rules = roll.rules;
                self.has_asked |= family == Family::V4 && !super::plan::is_default(&self.rules4.rules);
                self.plan_lookups(family, sink);
            }
            _ if is_complete => self.remove_unfound(&roll, sink),
            _ => return true,
        }
        false
    }

    /// Takes away some of the routes that a dump has not found; says whether there may be more.
    pub fn sweep_routes(&mut self, sink: &mut dyn Sink) -> bool {
        match self.swept {
            None => return false,
            Some(Family::V4) => {
                if let Some(lost) = self.v4.sweep_some() {
                    for (table, key) in lost {
                        let had = self.prefixes_of(Family::V4, table);
                        self.tables4(sink).remove_by_path(table, key, |_| true);
                        self.review_rules(Family::V4, table, had, sink);
                    }
                    return true;
                }
                self.needs_resync |= self.v4.end_dump();
            }
            Some(Family::V6) => {
                if let Some(lost) = self.v6.sweep_some() {
                    for (table, key) in lost {
                        let had = self.prefixes_of(Family::V6, table);
                        self.tables6(sink).remove_by_path(table, key, |_| true);
                        self.review_rules(Family::V6, table, had, sink);
                    }
                    return true;
                }
                self.needs_resync |= self.v6.end_dump();
            }
        }
        self.swept = None;
        false
    }

    /// Takes away what a dump has not found.
    fn remove_unfound(&mut self, roll: &DumpState, sink: &mut dyn Sink) {
        let is_lost = |key: &RecordKey| !roll.found.contains(key) && !roll.touched.contains(key);
        let lost: Vec<RecordKey> = self.known_keys(roll.part).into_iter().filter(is_lost).collect();
        for key in lost {
            match key {
                RecordKey::Link(index) => {
                    let link = self.world.links[&index].clone();
                    self.apply_link(true, link, sink);
                }
                RecordKey::Address(address) => self.apply_address(true, address, sink),
                RecordKey::NextHop(id) => {
                    // It may have gone with another one, or with its interface.
                    if let Some(object) = self.world.objects.get(&id).cloned() {
                        self.apply_object(true, object, sink);
                    }
                }
                RecordKey::Neighbor(link, address) => {
                    self.neighbors.remove(&(link, address));
                    sink.set_neighbor(link, address, None);
                }
            }
        }
    }

    /// All that is known of a part.
    fn known_keys(&self, part: RecordKind) -> Vec<RecordKey> {
        match part {
            RecordKind::Links => self.world.links.keys().map(|index| RecordKey::Link(*index)).collect(),
            RecordKind::Addresses(family) => {
                let of_family = |address: &&Address| address.family() == family;
                self.addresses.iter().filter(of_family).cloned().map(RecordKey::Address).collect()
            }
            RecordKind::NextHops => self.world.objects.keys().map(|id| RecordKey::NextHop(*id)).collect(),
            RecordKind::Neighbors(family) => {
                let of_family = |address: IpAddr| address.is_ipv4() == (family == Family::V4);
                let keys = self.neighbors.keys().filter(|(_, address)| of_family(*address));
                keys.map(|(link, address)| RecordKey::Neighbor(*link, *address)).collect()
            }
            RecordKind::Settings(_) | RecordKind::Rules(_) | RecordKind::Routes(_) => Vec::new(),
        }
    }
}
