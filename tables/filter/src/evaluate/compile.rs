//! From rule sets with names to their compiled form.
use super::address::{AddressTest, Addresses, EndTest};
use super::candidates::Candidates;
use super::index::{Askers, TableIndex};
use super::test::{Conditions, PortTest, Rare, Test};
use super::threshold::Threshold;
use super::walk::{Block, Effect, EffectKind, Program};
use super::{Compiled, RuleRecord};
use crate::anchors::{AnchorTarget, Anchors, LoadedRuleset, resolve_calls};
use crate::names::{Interfaces, Tags};
use crate::options::SetOption;
use crate::rule::{
    Action, AddressMatch, Endpoint, HostAddress, InterfaceName, On, Pool, PoolAddress, Rule, Ruleset,
};
use crate::tables::{NamelessTable, Table, TableFollower, Tables};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

impl Compiled {
    /// Compiles the main rule set and the anchors that it leads to. Rules
    /// must have been [checked](super::check_ruleset).
    pub fn new(anchors: &Anchors, tables: &mut Tables, interfaces: &Interfaces) -> Compiled {
        tables.begin_load();
        let mut compiler = Compiler::new(anchors, tables, interfaces);
        compiler.block_number("");
        let mut at = 0;
        while let Some(path) = compiler.paths.get(at).cloned() {
            compiler.add_ruleset(&path);
            at += 1;
        }
        let compiled = compiler.finish();
        tables.finish_load();
        compiled
    }

    /// Makes rules that speak of the addresses of interfaces follow these. New interfaces
    /// need a new compilation.
    pub fn update_interfaces(&self, interfaces: &Interfaces) {
        let mut dynamic = self.dynamic.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        dynamic.iter_mut().for_each(|(address, table)| table.follow_addresses(address, interfaces));
        self.program.index.iter().for_each(|index| index.rebuild_if_changed());
    }
}

struct Compiler<'a> {
    anchors: &'a Anchors,
    tables: &'a mut Tables,
    interfaces: &'a Interfaces,
    /// Paths of rule sets by their block.
    paths: Vec<String>,
    block_of: HashMap<String, u32>,
    rules: Vec<RuleRecord>,
    tests: Vec<Test>,
    effects: Vec<Effect>,
    calls: Vec<Box<[u32]>>,
    /// First and last but one rule of each block.
    ranges: Vec<(usize, usize)>,
    conditions: Conditions,
    place_of: HashMap<Option<On>, u16>,
    table_of: HashMap<*const Table, u32>,
    /// Names of tables that packets fill.
    filled: HashSet<String>,
    dynamic: Vec<(HostAddress, NamelessTable)>,
    tags: Tags,
}

impl<'a> Compiler<'a> {
    fn new(anchors: &'a Anchors, tables: &'a mut Tables, interfaces: &'a Interfaces) -> Compiler<'a> {
        let everywhere = vec![true; interfaces.0.len() + 1].into();
        let conditions =
            Conditions { places: vec![everywhere], rare: Vec::new(), addresses: Addresses::default() };
        Compiler {
            anchors,
            tables,
            interfaces,
            paths: Vec::new(),
            block_of: HashMap::new(),
            rules: Vec::new(),
            tests: Vec::new(),
            effects: Vec::new(),
            calls: Vec::new(),
            ranges: Vec::new(),
            conditions,
            place_of: HashMap::from([(None, 0)]),
            table_of: HashMap::new(),
            filled: HashSet::new(),
            dynamic: Vec::new(),
            tags: anchors.tags().clone(),
        }
    }

    /// The block of a path, which is compiled in its turn.
    fn block_number(&mut self, path: &str) -> u32 {
        *self.block_of.entry(path.to_string()).or_insert_with_key(|path| {
            self.paths.push(path.clone());
            self.paths.len() as u32 - 1
        })
    }

    fn add_ruleset(&mut self, path: &str) {
        let LoadedRuleset { ruleset, load } = self.anchors.loaded_ruleset(path).cloned().unwrap_or_default();
        let first = self.rules.len();
        let anchor: Arc<str> = path.into();
        for ((number, rule), called) in
            ruleset.rules.iter().enumerate().zip(resolve_calls(path, &ruleset.rules))
        {
            let test = self.compile_test(rule, path);
            self.tests.push(test);
            let effect = self.compile_effect(rule, called);
            self.effects.push(effect);
            let record = self.compile_record(rule, &anchor, number as u32, &load);
            self.rules.push(record);
        }
        self.ranges.push((first, self.rules.len()));
    }

    fn compile_record(&mut self, rule: &Rule, anchor: &Arc<str>, number: u32, load: &Arc<()>) -> RuleRecord {
        let mut table = |pool: &Pool| self.pool_table(pool, anchor);
        let (nat_table, redirect_table) =
            (rule.nat.as_ref().and_then(&mut table), rule.redirect.as_ref().and_then(&mut table));
        let route_table = rule.route.as_ref().and_then(|(_, pool)| table(pool));
        if let Some((name, _)) = &rule.state.options.overload {
            self.filled.insert(name.clone());
            self.tables.reference_table(anchor, name); // it must not go while the rule is there
        }
        RuleRecord {
            rule: Arc::new(rule.clone()),
            anchor: anchor.clone(),
            number,
            nat_table,
            redirect_table,
            route_table,
            load: load.clone(),
        }
    }

    fn pool_table(&mut self, pool: &Pool, anchor: &str) -> Option<Arc<Table>> {
        match &pool.address {
            PoolAddress::Table(name) => Some(self.tables.pool_table(anchor, name)),
            PoolAddress::Host(address @ HostAddress::Dynamic { .. }, _) => Some(self.dynamic_table(address)),
            _ => None,
        }
    }

    fn compile_effect(&mut self, rule: &Rule, called: Option<AnchorTarget>) -> Effect {
        let kind = match &rule.action {
            Action::Pass | Action::Block(_) => EffectKind::Decide,
            Action::Match => EffectKind::Match,
            Action::Anchor(_) => {
                let blocks = self.called_blocks(called);
                self.calls.push(blocks);
                EffectKind::Call(self.calls.len() as u32 - 1)
            }
        };
        Effect {
            kind,
            is_quick: rule.is_quick,
            tag: self.tags.tag_or_none(&rule.tag),
            translates: rule.nat.is_some() || rule.redirect.is_some(),
            log: rule.log.clone(),
        }
    }

    fn called_blocks(&mut self, called: Option<AnchorTarget>) -> Box<[u32]> {
        let anchors = self.anchors;
        match called {
            Some(AnchorTarget::One(path)) => [self.block_number(&path)].into(),
            Some(AnchorTarget::Below(path)) => {
                let called =
                    anchors.child_paths(&path).into_iter().filter(|path| anchors.get(path).is_some());
                called.map(|path| self.block_number(&path)).collect()
            }
            None => [].into(),
        }
    }

    fn compile_test(&mut self, rule: &Rule, anchor: &str) -> Test {
        let source = self.compile_endpoint(&rule.source, anchor);
        let destination = self.compile_endpoint(&rule.destination, anchor);
        let place = match rule.is_of_account_only() {
            true => self.empty_interface_set(),
            false => self.interface_set(rule.on.as_ref()),
        };
        Test {
            source,
            destination,
            source_port: PortTest::new(rule.source.port),
            destination_port: PortTest::new(rule.destination.port),
            place,
            direction: rule.direction,
            family: rule.family,
            protocol: rule.protocol,
            flags: rule.flags,
            icmp: rule.icmp,
            rare: self.compile_rare(rule),
        }
    }

    fn compile_rare(&mut self, rule: &Rule) -> u32 {
        let received_on = rule.received_on.as_ref().map(|(is_negated, name)| {
            (*is_negated, self.interface_set(Some(&On::Interface(false, name.clone()))))
        });
        let tagged =
            rule.tagged.as_ref().map(|(is_negated, name)| (*is_negated, self.tags.tag_or_none(name)));
        let rare = Rare {
            is_fragment: rule.is_fragment,
            tos: rule.tos,
            priority: rule.priority,
            tagged,
            received_on,
            probability: rule.probability,
            rate: rule.max_packet_rate.map(|(packets, seconds)| Threshold::new(packets, seconds).into()),
            once: rule.is_once.then(Arc::default),
        };
        if !rare.has_conditions() {
            return 0;
        }
        self.conditions.rare.push(rare);
        self.conditions.rare.len() as u32
    }

    /// The number of the set of interfaces that a rule means.
    fn interface_set(&mut self, on: Option<&On>) -> u16 {
        if let Some(place) = self.place_of.get(&on.cloned()) {
            return *place;
        }
        let set = place_set(on, self.interfaces);
        let places = &mut self.conditions.places;
        let place = places.iter().position(|known| **known == *set).unwrap_or_else(|| {
            places.push(set);
            places.len() - 1
        });
        self.place_of.insert(on.cloned(), place as u16);
        place as u16
    }

    /// The number of the set without interfaces, of rules that never match.
    fn empty_interface_set(&mut self) -> u16 {
        let set: Box<[bool]> = vec![false; self.interfaces.0.len() + 1].into();
        let places = &mut self.conditions.places;
        let place = places.iter().position(|known| **known == *set).unwrap_or_else(|| {
            places.push(set);
            places.len() - 1
        });
        place as u16
    }

    fn compile_endpoint(&mut self, end: &Endpoint, anchor: &str) -> EndTest {
        let address = match &end.address {
            AddressMatch::Any => AddressTest::Any,
            AddressMatch::Host(host) => self.compile_host(host),
            AddressMatch::Range(first, last) => self.compile_range(*first, *last),
            AddressMatch::Table(name) => {
                let table = self.tables.reference_table(anchor, name);
                self.table_test(table)
            }
            AddressMatch::NoRoute => AddressTest::NoRoute,
            AddressMatch::UrpfFailed => AddressTest::UrpfFailed,
            AddressMatch::RouteLabel(label) => {
                self.conditions.addresses.labels.push(label.clone());
                AddressTest::Label(self.conditions.addresses.labels.len() as u32 - 1)
            }
        };
        EndTest { address, is_negated: end.is_negated }
    }

    fn compile_host(&mut self, host: &HostAddress) -> AddressTest {
        match host {
            HostAddress::Network(IpAddr::V4(address), length) => {
                let behind = u32::MAX.checked_shr(u32::from(*length)).unwrap_or(0);
                AddressTest::Range4(address.to_bits() & !behind, address.to_bits() | behind)
            }
            HostAddress::Network(IpAddr::V6(address), length) => {
                let behind = u128::MAX.checked_shr(u32::from(*length)).unwrap_or(0);
                self.compile_ipv6_range(address.to_bits() & !behind, address.to_bits() | behind)
            }
            HostAddress::Masked(address, mask) => {
                self.conditions.addresses.masks.push((*address, *mask));
                AddressTest::Masked(self.conditions.addresses.masks.len() as u32 - 1)
            }
            HostAddress::Dynamic { .. } => {
                let table = self.dynamic_table(host);
                self.table_test(table)
            }
        }
    }

    fn compile_range(&mut self, first: IpAddr, last: IpAddr) -> AddressTest {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => AddressTest::Range4(first.to_bits(), last.to_bits()),
            (IpAddr::V6(first), IpAddr::V6(last)) => self.compile_ipv6_range(first.to_bits(), last.to_bits()),
            _ => AddressTest::Range4(1, 0),
        }
    }

    fn compile_ipv6_range(&mut self, first: u128, last: u128) -> AddressTest {
        self.conditions.addresses.ranges.push((first, last));
        AddressTest::Range6(self.conditions.addresses.ranges.len() as u32 - 1)
    }

    fn table_test(&mut self, table: Arc<Table>) -> AddressTest {
        let tables = &mut self.conditions.addresses.tables;
        AddressTest::Table(*self.table_of.entry(Arc::as_ptr(&table)).or_insert_with(|| {
            tables.push(table);
            tables.len() as u32 - 1
        }))
    }

    fn dynamic_table(&mut self, address: &HostAddress) -> Arc<Table> {
        if let Some((_, table)) = self.dynamic.iter().find(|(known, _)| known == address) {
            return table.table().clone();
        }
        let mut nameless = self.tables.new_nameless();
        nameless.follow_addresses(address, self.interfaces);
        let table = nameless.table().clone();
        self.dynamic.push((address.clone(), nameless));
        table
    }

    fn finish(mut self) -> Compiled {
        // Where a rule may log all later matches, all rules must be evaluated in order.
        let hears = |effect: &Effect| effect.log.as_ref().is_some_and(|log| log.is_matches);
        let all_in_order = self.effects.iter().any(hears);
        let block = |(number, &(first, end)): (usize, &(usize, usize))| {
            let candidates = Candidates::new(&self.tests[first..end], &self.conditions);
            let mut eager = vec![0; candidates.all_rules().len()];
            for place in (0..end - first).filter(|place| all_in_order || self.is_eager(first + place)) {
                eager[place / 64] |= 1 << (place % 64);
            }
            Block { number, first: first as u32, len: (end - first) as u32, candidates, eager: eager.into() }
        };
        let blocks = self.ranges.iter().enumerate().map(block).collect();
        let index = self.index();
        let skipped = skipped_interfaces(self.anchors.get(""), self.interfaces);
        Compiled {
            rules: self.rules.into(),
            program: Program {
                blocks,
                tests: self.tests.into(),
                effects: self.effects.into(),
                conditions: self.conditions,
                calls: self.calls.into(),
                index,
            },
            tags: self.tags,
            skipped,
            dynamic: Mutex::new(self.dynamic),
        }
    }

    /// The index of the tables that rules use, which follows them from now on.
    fn index(&mut self) -> Option<Arc<TableIndex>> {
        let tables = &self.conditions.addresses.tables;
        if tables.is_empty() {
            return None;
        }
        let is_filled = |table: &Table| self.filled.contains(table.name());
        let blocks = self.ranges.iter().map(|(first, end)| Askers::of_tests(&self.tests[*first..*end]));
        let index = Arc::new(TableIndex::new(self.tables.domain(), tables, is_filled, blocks));
        self.tables.follow_by(index.clone());
        Some(index)
    }

    fn is_eager(&self, rule: usize) -> bool {
        let (test, effect) = (&self.tests[rule], &self.effects[rule]);
        let rare = (test.rare as usize).checked_sub(1).map(|rare| &self.conditions.rare[rare]);
        effect.kind != EffectKind::Decide
            || effect.is_quick
            || effect.tag.0 != 0
            || rare.is_some_and(Rare::is_order_dependent)
    }
}

/// Which interfaces are meant; the last answer is for those that are not known.
fn place_set(on: Option<&On>, interfaces: &Interfaces) -> Box<[bool]> {
    let known = interfaces.0.iter().map(|record| match on {
        None => true,
        Some(On::Interface(is_negated, name)) => record.is_called(name) != *is_negated,
        Some(On::Any) => !record.is_loopback,
        Some(On::Domain(is_negated, domain)) => (record.domain == *domain) != *is_negated,
    });
    let unknown = match on {
        None | Some(On::Any) => true,
        Some(On::Interface(is_negated, _)) => *is_negated,
        Some(On::Domain(is_negated, domain)) => (*domain == 0) != *is_negated,
    };
    known.chain([unknown]).collect()
}

fn skipped_interfaces(main: Option<&Arc<Ruleset>>, interfaces: &Interfaces) -> Box<[bool]> {
    let options = main.into_iter().flat_map(|ruleset| &ruleset.options);
    let names: Vec<&InterfaceName> = options
        .filter_map(|line| match &line.option {
            SetOption::Skip(names) => Some(names),
            _ => None,
        })
        .flatten()
        .collect();
    interfaces.0.iter().map(|record| names.iter().any(|name| record.is_called(name))).collect()
}
