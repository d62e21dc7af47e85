//! Random rule sets against random packets: the compiled form, the same asked rule by rule, and a straight
//! reading of what rules mean must agree in all that they leave.
mod changes;
mod examples;
mod naive;
mod random;

use artery_filter::anchors::Anchors;
use artery_filter::evaluate::{
    Compiled, Counters, Decision, Failure, RuleId, Scratch, Surroundings, check_ruleset,
};
use artery_filter::facts::{Facts, Tag};
use artery_filter::names::Interfaces;
use artery_filter::rule::{Action, HostAddress, Ruleset, TableAddress, TableDefinition};
use artery_filter::tables::{TableEntry, Tables};
use artery_rcu::{Domain, Turn};
use naive::{Naive, Name, Roads, Simple};
use random::{Random, TABLES, interfaces};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

/// One way to ask: a compiled rule set of its own, since rules remember.
struct Asked {
    compiled: Compiled,
    counters: Counters,
    scratch: Scratch,
    random: Random,
}

impl Asked {
    fn new(compiled: Compiled, is_plain: bool, seed: u64) -> Asked {
        let counters = Counters::new(&compiled);
        let mut scratch = Scratch::new(&compiled, 0);
        scratch.is_plain = is_plain;
        Asked { compiled, counters, scratch, random: Random(seed) }
    }

    fn ask(&mut self, facts: Facts, turn: &Turn<'_>, now: Duration) -> naive::Result {
        let mut facts = facts;
        let random = &mut self.random;
        let mut surroundings = Surroundings {
            turn,
            routes: &Roads,
            now,
            random: &mut || random.next() as u32,
            translate: &mut Simple,
            is_question: false,
        };
        let outcome =
            self.compiled.evaluate(&mut facts, &mut surroundings, &mut self.scratch, &self.counters);
        let name = |id: RuleId| -> Name {
            let record = self.compiled.rule(id);
            (record.anchor.to_string(), record.number)
        };
        let logged = self.scratch.logged().iter();
        let tag = self.compiled.tags().name(outcome.tag).to_string();
        facts.tag = Tag(0);
        naive::Result {
            decision: outcome.decision,
            rule: outcome.rule.map(name),
            anchor: outcome.anchor.map(name),
            keep: outcome.keep,
            allows_options: outcome.allows_options,
            tag,
            actions: outcome.actions,
            nat: outcome.nat.map(name),
            redirect: outcome.redirect.map(name),
            route: outcome.route,
            matched: self.scratch.matched().iter().map(|id| name(*id)).collect(),
            logged: logged.map(|log| (name(log.rule), log.anchor.map(name), log.interface)).collect(),
            facts,
        }
    }
}

/// Rule sets with those in braces beside them, as loading them leaves them.
fn spread(path: &str, ruleset: &Ruleset, all: &mut BTreeMap<String, Ruleset>) {
    let mut unnamed = 0;
    for rule in &ruleset.rules {
        let Action::Anchor(call) = &rule.action else { continue };
        let name = match &call.name {
            Some(name) => name.clone(),
            None => {
                unnamed += 1;
                format!("_{unnamed}")
            }
        };
        let below = if path.is_empty() { name } else { format!("{path}/{name}") };
        match &call.inline {
            Some(inline) => spread(&below, inline, all),
            None if call.name.is_none() => drop(all.entry(below).or_default()),
            None => (),
        }
    }
    all.insert(path.to_string(), ruleset.clone());
}

/// Random rule sets, their tables, and a naive reading of them.
fn world(random: &mut Random, tables: &mut Tables) -> (Anchors, Naive) {
    let mut anchors = Anchors::default();
    let mut rulesets = BTreeMap::new();
    // Those of the main rule set and of an anchor that has children; names that climb or loop among them.
    let most = if random.below(50) == 0 { 200 } else { 12 };
    let main = random.ruleset(&["a", "b", "a/*", "/a/c", "gone"], 2, most);
    let others = [
        ("a", random.ruleset(&["c", "d", "/b", "*"], 0, 4)),
        ("a/c", random.ruleset(&["../d", "/a"], 0, 3)),
        ("a/d", random.ruleset(&["../../b", "/a/*"], 0, 3)),
        ("b", random.ruleset(&["/a/d", "../a"], 0, 3)),
    ];
    for (path, ruleset) in others.into_iter().chain([("", main)]) {
        assert_eq!(check_ruleset(path, &ruleset), []);
        spread(path, &ruleset, &mut rulesets);
        anchors.load_ruleset(path, ruleset);
    }
    let mut contents = HashMap::new();
    for name in TABLES {
        let entries = random.entries();
        define(tables, name, &entries);
        contents.insert(name.to_string(), entries);
    }
    let naive = Naive {
        rulesets,
        tables: contents,
        interfaces: interfaces(),
        rates: HashMap::new(),
        expired: HashSet::new(),
    };
    (anchors, naive)
}

fn define(tables: &mut Tables, name: &str, entries: &[(IpAddr, u8, bool)]) {
    let address = |entry: &(IpAddr, u8, bool)| TableAddress {
        is_negated: entry.2,
        address: HostAddress::Network(entry.0, entry.1),
        weight: 0,
    };
    let definition = TableDefinition {
        name: name.to_string(),
        has_list: true,
        addresses: entries.iter().map(address).collect(),
        ..TableDefinition::default()
    };
    tables.define_tables(&[(String::new(), &definition)], &Interfaces::default(), Duration::ZERO).unwrap();
}

#[test]
fn a_hundred_thousand_rule_sets_answer_as_a_straight_reading_of_them_does() {
    let domain = Domain::new();
    let mut reader = domain.reader();
    let (mut failures, mut decided, mut matched) = (HashMap::<Failure, u32>::new(), 0, 0);
    for seed in 0..100_000u64 {
        let mut random = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let mut tables = Tables::new(&domain);
        let (anchors, mut naive) = world(&mut random, &mut tables);
        let interfaces = interfaces();
        let draws = random.next();
        let mut compile =
            |is_plain| Asked::new(Compiled::new(&anchors, &mut tables, &interfaces), is_plain, draws);
        let (mut fast, mut plain) = (compile(false), compile(true));
        let mut naive_draws = Random(draws);
        for second in 0..4 {
            let turn = reader.turn();
            let (facts, now) = (random.facts(), Duration::from_secs(1000 + second));
            let mut draw = || naive_draws.next() as u32;
            let expected = naive.evaluate(facts, fast.compiled.tags(), &mut draw, now);
            let answer = fast.ask(facts, &turn, now);
            assert_eq!(answer, expected, "seed {seed}, packet {second}: {facts:?} of {:#?}", naive.rulesets);
            assert_eq!(plain.ask(facts, &turn, now), expected, "seed {seed}, packet {second}, rule by rule");
            decided += u32::from(expected.rule.is_some());
            matched += u32::from(!expected.matched.is_empty());
            if let Decision::Fail(failure) = expected.decision {
                *failures.entry(failure).or_default() += 1;
            }
            if random.below(2) == 0 {
                changes::change(&mut random, &mut tables, &mut naive, false);
            }
        }
    }
    // The random rule sets must be worth it.
    assert!(decided > 100_000 && matched > 30_000, "{decided} decided, {matched} matched");
    assert!(failures[&Failure::Translate] > 1000 && failures[&Failure::Depth] > 100, "{failures:?}");
}

#[test]
fn tables_that_grow_shrink_and_change_are_asked_as_they_are() {
    let domain = Domain::new();
    let mut reader = domain.reader();
    for seed in 0..200u64 {
        let mut random = Random(seed.wrapping_mul(0x9876_5432_10fe_dcb1));
        let mut tables = Tables::new(&domain);
        let (anchors, mut naive) = world(&mut random, &mut tables);
        let draws = random.next();
        let compiled = Compiled::new(&anchors, &mut tables, &interfaces());
        let mut asked = Asked::new(compiled, false, draws);
        let mut naive_draws = Random(draws);
        for second in 0..60 {
            let (facts, now) = (random.facts(), Duration::from_secs(1000 + second));
            let mut draw = || naive_draws.next() as u32;
            let expected = naive.evaluate(facts, asked.compiled.tags(), &mut draw, now);
            let answer = asked.ask(facts, &reader.turn(), now);
            assert_eq!(answer, expected, "seed {seed}, packet {second}: {facts:?} of {:#?}", naive.rulesets);
            if random.below(3) == 0 {
                changes::change(&mut random, &mut tables, &mut naive, true);
            }
        }
    }
}

/// So many rules that classes of packets share rows.
#[test]
fn thousands_of_rules_answer_as_they_do_one_by_one() {
    let domain = Domain::new();
    let mut reader = domain.reader();
    let mut random = Random(77);
    let mut tables = Tables::new(&domain);
    let mut ruleset = Ruleset::default();
    while ruleset.rules.len() < 6000 {
        let mut rule = random.ruleset(&[], 0, 1).rules.pop();
        rule.iter_mut().for_each(|rule| random.scatter(rule));
        ruleset.rules.extend(rule.filter(|rule| matches!(rule.action, Action::Pass | Action::Block(_))));
    }
    let mut anchors = Anchors::default();
    anchors.load_ruleset("", ruleset);
    let mut compile = |is_plain| Asked::new(Compiled::new(&anchors, &mut tables, &interfaces()), is_plain, 5);
    let (mut fast, mut plain) = (compile(false), compile(true));
    let mut decided = HashSet::new();
    for _ in 0..6000 {
        let facts = random.scattered_facts();
        let answer = fast.ask(facts, &reader.turn(), Duration::from_secs(9));
        assert_eq!(answer, plain.ask(facts, &reader.turn(), Duration::from_secs(9)), "{facts:?}");
        decided.insert(answer.rule);
    }
    assert!(decided.len() > 100, "{}", decided.len());
}

#[test]
fn tables_answer_by_the_longest_network_while_they_change() {
    let domain = Domain::new();
    let mut reader = domain.reader();
    let mut tables = Tables::new(&domain);
    let entry = |text: &str, length, is_negated| TableEntry::new(text.parse().unwrap(), length, is_negated);
    define(&mut tables, "t", &[]);
    let table = tables.reference_table("", "t");
    let address: IpAddr = "10.1.2.3".parse().unwrap();
    assert!(!table.contains(&reader.turn(), address));
    tables.add_addresses("", "t", &[entry("10.0.0.0", 8, false)], Duration::ZERO).unwrap();
    assert!(table.contains(&reader.turn(), address));
    tables.add_addresses("", "t", &[entry("10.1.0.0", 16, true)], Duration::ZERO).unwrap();
    assert!(!table.contains(&reader.turn(), address));
    tables.add_addresses("", "t", &[entry("10.1.2.3", 32, false)], Duration::ZERO).unwrap();
    assert!(table.contains(&reader.turn(), address));
}
