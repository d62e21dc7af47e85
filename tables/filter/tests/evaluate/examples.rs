//! Rule sets as text, and what they say of a packet.
use super::naive::{Roads, Simple};
use artery_filter::anchors::Anchors;
use artery_filter::evaluate::{
    Compiled, Counters, Decision, Failure, RuleOutcome, Scratch, Surroundings, load_rulesets, skip_steps,
};
use artery_filter::facts::{Direction, Facts, Interface, Tag};
use artery_filter::names::Interfaces;
use artery_filter::rule::BlockReturn;
use artery_filter::syntax::{Environment, ParseSettings, parse};
use artery_filter::tables::Tables;
use artery_rcu::{Domain, Reader};
use artery_wire::IpProtocol;
use std::time::Duration;

/// A filter without states.
struct Bench {
    reader: Reader,
    tables: Tables,
    anchors: Anchors,
    interfaces: Interfaces,
    compiled: Compiled,
    counters: Counters,
    scratch: Scratch,
}

impl Bench {
    fn new(text: &str) -> Bench {
        let domain = Domain::new();
        let (mut tables, mut anchors) = (Tables::new(&domain), Anchors::default());
        let interfaces = super::random::interfaces();
        let compiled = Compiled::new(&anchors, &mut tables, &interfaces);
        let (counters, scratch) = (Counters::new(&compiled), Scratch::new(&compiled, 0));
        anchors.flush_rules("");
        let mut bench =
            Bench { reader: domain.reader(), tables, anchors, interfaces, compiled, counters, scratch };
        bench.load("", text).unwrap();
        bench
    }

    fn load(&mut self, path: &str, text: &str) -> Result<(), String> {
        let parsed = parse("stdin", text.as_bytes(), &Environment::fixture(), &ParseSettings::default());
        let ruleset = parsed.map_err(|faults| faults[0].to_string())?.ruleset;
        let loaded = load_rulesets(
            vec![(path.into(), ruleset)],
            &mut self.anchors,
            &mut self.tables,
            &self.interfaces,
            Duration::ZERO,
        );
        self.scratch.flush_counters(&self.compiled);
        self.compiled = loaded.map_err(|errors| errors[0].to_string())?;
        self.counters = Counters::new(&self.compiled);
        self.scratch = Scratch::new(&self.compiled, 0);
        Ok(())
    }

    fn ask(&mut self, facts: &mut Facts) -> RuleOutcome {
        self.ask_at(facts, 0, 0)
    }

    fn ask_at(&mut self, facts: &mut Facts, seconds: u64, random: u32) -> RuleOutcome {
        let turn = self.reader.turn();
        let mut surroundings = Surroundings {
            turn: &turn,
            routes: &Roads,
            now: Duration::from_secs(seconds),
            random: &mut || random,
            translate: &mut Simple,
            is_question: false,
        };
        let outcome = self.compiled.evaluate(facts, &mut surroundings, &mut self.scratch, &self.counters);
        self.compiled.count_packet(&outcome, &self.scratch, facts, &self.counters);
        outcome
    }

    fn passes(&mut self, facts: Facts) -> bool {
        self.ask(&mut facts.clone()).decision == Decision::Pass
    }
}

fn tcp(source: &str, port: u16) -> Facts {
    Facts {
        interface: Interface(0),
        received_on: Some(Interface(0)),
        direction: Direction::In,
        protocol: IpProtocol::TCP,
        source: source.parse().unwrap(),
        destination: "10.9.9.9".parse().unwrap(),
        source_port: 1000,
        destination_port: port,
        tcp_flags: 2,
        icmp: (0, 0),
        tos: 0,
        is_fragment: false,
        has_options: false,
        priority: 3,
        tag: Tag(0),
        length: 60,
    }
}

#[test]
fn the_last_rule_that_matches_decides_unless_one_is_quick() {
    let passes = |text: &str| Bench::new(text).passes(tcp("10.0.0.1", 80));
    assert!(passes(""));
    assert!(passes("block\npass\n"));
    assert!(!passes("pass\nblock\n"));
    assert!(passes("pass quick\nblock\n"));
    assert!(!passes("pass\nblock quick\npass\n"));
    assert!(passes("block\npass quick proto udp\npass\n"));
    assert!(!passes("pass\nmatch\nblock proto tcp to port 80\nmatch\n"));
}

#[test]
fn anchors_that_call_themselves_end_in_a_block() {
    let mut bench = Bench::new("pass\nanchor a\n");
    bench.load("a", "pass\nanchor \"/b\"\n").unwrap();
    assert!(bench.passes(tcp("10.0.0.1", 80)));
    bench.load("b", "pass\nanchor \"/a\"\n").unwrap();
    assert_eq!(bench.ask(&mut tcp("10.0.0.1", 80)).decision, Decision::Fail(Failure::Depth));
    bench.load("b", "anchor \"/a\" proto udp\n").unwrap();
    assert!(bench.passes(tcp("10.0.0.1", 80)));
}

#[test]
fn anchors_that_call_two_each_end_though_none_calls_itself() {
    let mut bench = Bench::new("anchor a0\n");
    for n in 0..60 {
        let text = format!("anchor \"/a{0}\"\nanchor \"/a{0}\"\n", n + 1);
        bench.load(&format!("a{n}"), &text).unwrap();
    }
    assert_eq!(bench.ask(&mut tcp("10.0.0.1", 80)).decision, Decision::Fail(Failure::Depth));
}

#[test]
fn quick_anchors_end_evaluation_only_if_something_inside_decided() {
    let mut bench = Bench::new("anchor a quick {\n  block proto tcp to port 80\n}\npass\n");
    assert!(!bench.passes(tcp("10.0.0.1", 80)));
    assert!(bench.passes(tcp("10.0.0.1", 81)));
}

#[test]
fn a_translation_of_a_match_rule_is_seen_by_later_rules_only() {
    let text = "block from 10.0.0.1\nmatch in from 10.0.0.1 rdr-to 10.0.0.7\npass to 10.0.0.7\n";
    let mut facts = tcp("10.0.0.1", 80);
    let outcome = Bench::new(text).ask(&mut facts);
    assert_eq!((outcome.decision, outcome.redirect.is_some()), (Decision::Pass, true));
    assert_eq!(facts.destination.to_string(), "10.0.0.7");
}

#[test]
fn what_cannot_be_translated_is_dropped() {
    let mut bench = Bench::new("pass in rdr-to 10.0.0.7\n");
    let facts = Facts { source_port: 3, ..tcp("10.0.0.1", 80) };
    assert_eq!(bench.ask(&mut facts.clone()).decision, Decision::Fail(Failure::Translate));
}

#[test]
fn a_rule_that_is_once_matches_the_first_packet_of_any_worker() {
    let mut bench = Bench::new("block\npass proto tcp to port 80 once\n");
    assert!(!bench.passes(tcp("10.0.0.1", 81)));
    assert!(bench.passes(tcp("10.0.0.1", 80)));
    assert!(!bench.passes(tcp("10.0.0.1", 80)));
}

#[test]
fn a_rule_stops_to_match_above_its_rate_and_begins_again() {
    let mut bench = Bench::new("block\npass max-pkt-rate 2/10\n");
    let mut passes = |seconds| bench.ask_at(&mut tcp("10.0.0.1", 80), seconds, 0).decision == Decision::Pass;
    assert_eq!([100, 100, 101, 101, 115].map(&mut passes), [true, true, false, false, true]);
}

#[test]
fn probability_is_the_share_of_numbers_below_it() {
    let mut bench = Bench::new("pass\nblock probability 25%\n");
    let mut blocks = |random| bench.ask_at(&mut tcp("10.0.0.1", 80), 0, random).decision != Decision::Pass;
    assert!(blocks(0) && blocks(1 << 29) && !blocks(1 << 31) && !blocks(u32::MAX));
}

#[test]
fn answers_states_and_tags_are_those_of_the_rules() {
    let mut bench = Bench::new("match tag x\nblock return\npass proto tcp to port 80 tagged x label web\n");
    let outcome = bench.ask(&mut tcp("10.0.0.1", 80));
    assert_eq!(outcome.decision, Decision::Pass);
    assert_eq!(bench.compiled.tags().name(outcome.tag), "x");
    assert_eq!(bench.compiled.rule(outcome.rule.unwrap()).rule.label, "web");
    assert_eq!(bench.ask(&mut tcp("10.0.0.1", 81)).decision, Decision::Block(BlockReturn::Return));
    let counters = [&bench.counters];
    let totals = bench.compiled.rule_ids().map(|id| Counters::sum_rule(counters, id).packets[0]);
    assert_eq!(totals.collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn tables_are_found_by_rules_and_survive_a_load_if_they_persist() {
    let mut bench = Bench::new("table <t> persist { 10.0.0.0/24, !10.0.0.7 }\nblock\npass from <t>\n");
    assert!(bench.passes(tcp("10.0.0.1", 80)) && !bench.passes(tcp("10.0.0.7", 80)));
    bench.load("", "table <t> persist\nblock\npass from <t>\n").unwrap();
    assert!(bench.passes(tcp("10.0.0.1", 80)) && !bench.passes(tcp("10.0.0.7", 80)));
    bench.load("", "table <t> { 10.0.0.7 }\nblock\npass from <t>\n").unwrap();
    assert!(!bench.passes(tcp("10.0.0.1", 80)) && bench.passes(tcp("10.0.0.7", 80)));
    bench.scratch.flush_counters(&bench.compiled);
    let listing = bench.tables.list_tables("", 2, &|_| String::new());
    let expected = "\tEvaluations: [ NoMatch: 3                  Match: 3                  ]";
    assert!(listing.contains(expected), "{listing}");
    let outcome = bench.ask(&mut tcp("10.0.0.7", 80));
    let turn = bench.reader.turn();
    bench.compiled.count_tables(outcome.rule.unwrap(), &tcp("10.0.0.7", 80), 3, &turn);
    let listing = bench.tables.list_tables("", 2, &|_| String::new());
    assert!(
        listing.contains("\tIn/Pass:     [ Packets: 1                  Bytes: 60                 ]"),
        "{listing}"
    );
    bench.load("", "block\n").unwrap();
    assert_eq!(bench.tables.list_tables("", 0, &|_| String::new()), "");
}

#[test]
fn addresses_of_interfaces_are_followed() {
    let mut bench = Bench::new("block\npass from (em0)\n");
    assert!(bench.passes(tcp("10.0.0.1", 80)) && !bench.passes(tcp("10.0.0.3", 80)));
    bench.interfaces.0[0].addresses[0].address = "10.0.0.3".parse().unwrap();
    bench.compiled.update_interfaces(&bench.interfaces);
    assert!(!bench.passes(tcp("10.0.0.1", 80)) && bench.passes(tcp("10.0.0.3", 80)));
}

#[test]
fn what_is_wrong_is_refused_by_name_and_changes_nothing() {
    let mut bench = Bench::new("table <t> persist { 10.0.0.1 }\nblock from <t>\n");
    let refused = bench.load("", "table <t> { 10.0.0.2 }\npass\nanchor \"../above\"\n");
    assert_eq!(refused, Err("stdin:3: anchor name leads above the main ruleset".to_string()));
    assert!(!bench.passes(tcp("10.0.0.1", 80)));
    bench.tables.most_entries = 1;
    let refused = bench.load("", "table <t> { 10.0.0.2, 10.0.0.3 }\npass\n");
    let why =
        "too many table entries: 2 are more than the limit of 1; `set limit table-entries 2` allows them";
    assert_eq!(refused, Err(format!("stdin:1: {why}")));
    assert!(!bench.passes(tcp("10.0.0.1", 80)));
    bench.tables.most_tables = 1;
    let refused = bench.load("", "table <t> { 10.0.0.2 }\ntable <u> persist\npass from { <t> <u> }\n");
    let why = "too many tables: 2 are more than the limit of 1; `set limit tables 2` allows them";
    assert_eq!(refused, Err(format!("stdin:2: {why}")));
    assert!(!bench.passes(tcp("10.0.0.1", 80)));
}

#[test]
fn skipped_interfaces_are_told() {
    let bench = Bench::new("set skip on { lo0 wan }\n");
    let skipped = [0, 1, 2, 3, 9].map(|interface| bench.compiled.skips_interface(Interface(interface)));
    assert_eq!(skipped, [false, true, true, true, false]);
}

#[test]
fn skip_steps_lead_to_the_next_rule_that_differs() {
    let text = "block in on em0 proto tcp\npass in on em0 proto tcp to port 22\npass out proto udp\n";
    let parsed = parse("stdin", text.as_bytes(), &Environment::fixture(), &ParseSettings::default()).unwrap();
    let steps = skip_steps(&parsed.ruleset.rules);
    assert_eq!(steps[0], "  [ Skip steps: i=2 d=2 r=end f=end p=2 sa=end da=end sp=end ]\n");
    assert_eq!(steps[2], "  [ Skip steps: i=end d=end r=end f=end p=end sa=end da=end sp=end dp=end ]\n");
}
