//! What rules say, read straight from their description: one rule after the other,
//! nothing remembered, nothing skipped.
use artery_filter::anchors::{AnchorTarget, resolve_calls};
use artery_filter::evaluate::RuleId;
use artery_filter::evaluate::{
    Actions, CannotTranslate, Decision, Failure, MAX_DEPTH, Routes, Threshold, Translate,
};
use artery_filter::facts::{Facts, Interface};
use artery_filter::names::{Interfaces, Tags, mask_address};
use artery_filter::rule::{
    Action, AddressMatch, Endpoint, HostAddress, On, Pool, PoolAddress, RouteKind, Rule, Ruleset,
    StateKeeping,
};
use artery_wire::IpProtocol;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

/// A rule by the path of its anchor and its number.
pub(crate) type Name = (String, u32);

/// All that an evaluation leaves, with names instead of numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Result {
    pub(crate) decision: Decision,
    pub(crate) rule: Option<Name>,
    pub(crate) anchor: Option<Name>,
    pub(crate) keep: StateKeeping,
    pub(crate) allows_options: bool,
    pub(crate) tag: String,
    pub(crate) actions: Actions,
    pub(crate) nat: Option<Name>,
    pub(crate) redirect: Option<Name>,
    pub(crate) route: Option<RouteKind>,
    pub(crate) matched: Vec<Name>,
    pub(crate) logged: Vec<(Name, Option<Name>, u16)>,
    pub(crate) facts: Facts,
}

/// What rules are about, and what they remember.
pub(crate) struct Naive {
    pub(crate) rulesets: BTreeMap<String, Ruleset>,
    pub(crate) tables: HashMap<String, Vec<(IpAddr, u8, bool)>>,
    pub(crate) interfaces: Interfaces,
    pub(crate) rates: HashMap<Name, Threshold>,
    pub(crate) expired: HashSet<Name>,
}

/// Routes by the last byte of an address.
pub(crate) struct Roads;

fn last(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}

impl Routes for Roads {
    fn has_route(&self, address: IpAddr) -> bool {
        last(address).is_multiple_of(2)
    }

    fn has_route_via(&self, address: IpAddr, interface: Interface) -> bool {
        !(u16::from(last(address)) + interface.0).is_multiple_of(3)
    }

    fn has_label(&self, address: IpAddr, label: &str) -> bool {
        usize::from(last(address)) % 4 == label.len()
    }
}

/// Translates to the first address of a pool, and to ports that tell whether it was asked.
pub(crate) struct Simple;

impl Translate for Simple {
    fn apply_translation(
        &mut self,
        _: RuleId,
        rule: &Rule,
        facts: &mut Facts,
    ) -> std::result::Result<(), CannotTranslate> {
        translate(rule, facts)
    }
}

fn host(pool: &Pool) -> IpAddr {
    match pool.address {
        PoolAddress::Host(HostAddress::Network(address, _), _) => address,
        _ => unreachable!("pools of these tests are hosts"),
    }
}

fn translate(rule: &Rule, facts: &mut Facts) -> std::result::Result<(), CannotTranslate> {
    if facts.source_port % 5 == 3 {
        return Err(CannotTranslate);
    }
    if let Some(pool) = &rule.nat {
        facts.source = host(pool);
        facts.source_port ^= 1;
    }
    if let Some(pool) = &rule.redirect {
        facts.destination = host(pool);
        facts.destination_port ^= 2;
    }
    Ok(())
}

struct Run<'a> {
    naive: &'a mut Naive,
    random: &'a mut dyn FnMut() -> u32,
    now: Duration,
    tag: String,
    callers: Vec<Name>,
    last: Option<(Name, Rule, Option<Name>)>,
    decided: u32,
    result: Result,
}

impl Naive {
    /// Evaluates; the tag of `facts` is one of `tags`.
    pub(crate) fn evaluate(
        &mut self,
        facts: Facts,
        tags: &Tags,
        random: &mut dyn FnMut() -> u32,
        now: Duration,
    ) -> Result {
        let result = Result {
            decision: Decision::Pass,
            rule: None,
            anchor: None,
            keep: StateKeeping::No,
            allows_options: false,
            tag: String::new(),
            actions: Actions::default(),
            nat: None,
            redirect: None,
            route: None,
            matched: Vec::new(),
            logged: Vec::new(),
            facts,
        };
        let tag = tags.name(facts.tag).to_string();
        let mut run =
            Run { naive: self, random, now, tag, callers: Vec::new(), last: None, decided: 0, result };
        let outcome = run.ruleset("").and_then(|_| run.conclude());
        run.result.decision = outcome.unwrap_or_else(Decision::Fail);
        run.result.rule = run.last.as_ref().map(|last| last.0.clone());
        run.result.anchor = run.last.as_ref().and_then(|last| last.2.clone());
        run.result.tag = run.tag;
        if run.result.decision != Decision::Pass {
            (run.result.keep, run.result.allows_options, run.result.route) = (StateKeeping::No, false, None);
        }
        run.result
    }

    fn is_in(&self, interface: Interface, on: &On) -> bool {
        let record = &self.interfaces.0[usize::from(interface.0)];
        match on {
            On::Interface(is_negated, name) => record.is_called(name) != *is_negated,
            On::Any => !record.is_loopback,
            On::Domain(is_negated, domain) => (record.domain == *domain) != *is_negated,
        }
    }

    fn end_holds(&self, end: &Endpoint, address: IpAddr, interface: Interface) -> bool {
        let contains = |network: IpAddr, length| {
            network.is_ipv4() == address.is_ipv4() && mask_address(address, length) == network
        };
        let holds = match &end.address {
            AddressMatch::Any => true,
            AddressMatch::Host(HostAddress::Network(network, length)) => contains(*network, *length),
            AddressMatch::Host(HostAddress::Masked(wanted, mask)) => match (address, wanted, mask) {
                (IpAddr::V4(a), IpAddr::V4(b), IpAddr::V4(mask)) => a & mask == b & mask,
                (IpAddr::V6(a), IpAddr::V6(b), IpAddr::V6(mask)) => a & mask == b & mask,
                _ => false,
            },
            AddressMatch::Host(dynamic) => self
                .interfaces
                .resolve_networks(dynamic)
                .iter()
                .any(|(network, length)| contains(*network, *length)),
            AddressMatch::Range(first, last) => {
                first.is_ipv4() == address.is_ipv4() && *first <= address && address <= *last
            }
            AddressMatch::Table(name) => {
                let entries = self.tables.get(name).into_iter().flatten();
                let containing = entries.filter(|(network, length, _)| contains(*network, *length));
                containing.max_by_key(|(_, length, _)| *length).is_some_and(|(_, _, is_negated)| !is_negated)
            }
            AddressMatch::NoRoute => !Roads.has_route(address),
            AddressMatch::UrpfFailed => !Roads.has_route_via(address, interface),
            AddressMatch::RouteLabel(label) => Roads.has_label(address, label),
        };
        holds != end.is_negated
    }

    fn ports_hold(rule: &Rule, facts: &Facts) -> bool {
        let asks = rule.source.port.is_some() || rule.destination.port.is_some();
        let has = !facts.is_fragment && facts.protocol.has_ports();
        let holds = rule.source.port.is_none_or(|port| port.matches_value(facts.source_port))
            && rule.destination.port.is_none_or(|port| port.matches_value(facts.destination_port));
        !asks || (has && holds)
    }

    fn protocol_holds(rule: &Rule, facts: &Facts) -> bool {
        let flags = rule.flags.of == 0
            || facts.protocol != IpProtocol::TCP
            || (!facts.is_fragment && facts.tcp_flags & rule.flags.of == rule.flags.set);
        let is_icmp = matches!(facts.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) && !facts.is_fragment;
        let icmp = rule.icmp.is_none_or(|(kind, code)| {
            is_icmp && facts.icmp.0 == kind && code.is_none_or(|code| facts.icmp.1 == code)
        });
        rule.protocol.is_none_or(|protocol| protocol == facts.protocol) && flags && icmp
    }
}

impl Run<'_> {
    fn ruleset(&mut self, path: &str) -> std::result::Result<bool, Failure> {
        let rules = self.naive.rulesets.get(path).map(|ruleset| ruleset.rules.clone()).unwrap_or_default();
        let called = resolve_calls(path, &rules);
        for (number, (rule, called)) in rules.iter().zip(called).enumerate() {
            let name = (path.to_string(), number as u32);
            if self.holds(&name, rule) && self.apply(name, rule, called)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn holds(&mut self, name: &Name, rule: &Rule) -> bool {
        let facts = self.result.facts;
        let naive = &mut *self.naive;
        rule.direction.is_none_or(|direction| direction == facts.direction)
            && rule.family.is_none_or(|family| family == facts.family())
            && rule.on.as_ref().is_none_or(|on| naive.is_in(facts.interface, on))
            && Naive::protocol_holds(rule, &facts)
            && Naive::ports_hold(rule, &facts)
            && naive.end_holds(&rule.source, facts.source, facts.interface)
            && naive.end_holds(&rule.destination, facts.destination, facts.interface)
            && (!rule.is_fragment || facts.is_fragment)
            && rule.tos.is_none_or(|tos| tos == facts.tos)
            && rule.priority.is_none_or(|priority| priority == facts.priority)
            && rule.tagged.as_ref().is_none_or(|(is_negated, tag)| (*tag == self.tag) != *is_negated)
            && rule.received_on.as_ref().is_none_or(|(is_negated, by)| {
                let on = On::Interface(false, by.clone());
                facts.received_on.is_some_and(|interface| naive.is_in(interface, &on)) != *is_negated
            })
            && !naive.expired.contains(name)
            && rule.probability.is_none_or(|probability| (self.random)() < probability)
            && rule.max_packet_rate.is_none_or(|(packets, seconds)| {
                let rate =
                    naive.rates.entry(name.clone()).or_insert_with(|| Threshold::new(packets, seconds));
                rate.count_event(self.now)
            })
            && (!rule.is_once || naive.expired.insert(name.clone()))
    }

    fn apply(
        &mut self,
        name: Name,
        rule: &Rule,
        called: Option<AnchorTarget>,
    ) -> std::result::Result<bool, Failure> {
        if !rule.tag.is_empty() {
            self.tag = rule.tag.clone();
        }
        match &rule.action {
            Action::Anchor(_) => return self.call(name, rule, called),
            Action::Match => {
                self.result.matched.push(name.clone());
                self.act(rule);
                self.translate(&name, rule)?;
                self.log(&name, rule);
            }
            _ => {
                self.last = Some((name.clone(), rule.clone(), self.callers.last().cloned()));
                self.decided += 1;
            }
        }
        if !rule.log.as_ref().is_some_and(|log| log.is_matches) {
            for (path, number) in self.result.matched.clone() {
                let earlier = &self.naive.rulesets[&path].rules[number as usize];
                if let Some(log) = earlier.log.as_ref().filter(|log| log.is_matches) {
                    self.result.logged.push((name.clone(), self.callers.last().cloned(), log.interface));
                }
            }
        }
        Ok(rule.is_quick)
    }

    fn call(
        &mut self,
        name: Name,
        rule: &Rule,
        called: Option<AnchorTarget>,
    ) -> std::result::Result<bool, Failure> {
        if self.callers.len() == MAX_DEPTH {
            return Err(Failure::Depth);
        }
        let paths: Vec<String> = match called {
            Some(AnchorTarget::One(path)) => vec![path],
            Some(AnchorTarget::Below(path)) => {
                let is_child =
                    |known: &&String| known.rsplit_once('/').is_some_and(|(parent, _)| parent == path);
                self.naive.rulesets.keys().filter(is_child).cloned().collect()
            }
            None => Vec::new(),
        };
        self.callers.push(name);
        let before = self.decided;
        let mut is_over = false;
        for path in paths {
            is_over = self.ruleset(&path)?;
            if is_over {
                break;
            }
        }
        self.callers.pop();
        Ok(is_over || (rule.is_quick && self.decided != before))
    }

    fn act(&mut self, rule: &Rule) {
        let actions = &mut self.result.actions;
        let later = |new: Option<u8>, old: Option<u8>| if new.is_some() { new } else { old };
        actions.tos = later(rule.set.tos, later(rule.scrub.tos, actions.tos));
        actions.priority = if rule.set.priority.is_some() { rule.set.priority } else { actions.priority };
        actions.scrub.min_ttl = later(rule.scrub.min_ttl, actions.scrub.min_ttl);
        actions.scrub.is_given |= rule.scrub.is_given;
        actions.scrub.clears_df |= rule.scrub.clears_df;
        if let Some(log) = rule.log.as_ref().filter(|log| log.is_all) {
            actions.log_all = Some(log.interface);
        }
    }

    fn translate(&mut self, name: &Name, rule: &Rule) -> std::result::Result<(), Failure> {
        if rule.nat.is_none() && rule.redirect.is_none() {
            return Ok(());
        }
        translate(rule, &mut self.result.facts).map_err(|_| Failure::Translate)?;
        if rule.nat.is_some() {
            self.result.nat = Some(name.clone());
        }
        if rule.redirect.is_some() {
            self.result.redirect = Some(name.clone());
        }
        Ok(())
    }

    fn log(&mut self, name: &Name, rule: &Rule) {
        if let Some(log) = &rule.log {
            self.result.logged.push((name.clone(), self.callers.last().cloned(), log.interface));
        }
    }

    fn conclude(&mut self) -> std::result::Result<Decision, Failure> {
        let Some((name, rule, caller)) = self.last.clone() else {
            return Ok(Decision::Pass);
        };
        self.act(&rule);
        self.callers = caller.into_iter().collect();
        if rule.action == Action::Pass {
            self.translate(&name, &rule)?;
        }
        self.log(&name, &rule);
        self.result.keep = rule.state.keep;
        self.result.allows_options = rule.allows_options;
        self.result.route = rule.route.as_ref().map(|(kind, _)| *kind);
        Ok(match rule.action {
            Action::Block(answer) => Decision::Block(answer),
            _ => Decision::Pass,
        })
    }
}
