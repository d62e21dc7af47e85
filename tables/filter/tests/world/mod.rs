//! A filter with three interfaces (`lo0`, `em0`, `em1`), rules of a text, and a clock.
#![allow(dead_code, reason = "each test file uses a part of this")]
use artery_filter::anchors::Anchors;
use artery_filter::dissect::{FilterDropReason, HookContext};
use artery_filter::engine::{
    Filter, FilterEvent, FilterExplanation, FilterSettings, FilterVerdict, Passed, Random, ReplyPacket,
    Rules, StateRange, ThroughVerdict,
};
use artery_filter::evaluate::{Compiled, Counters, Routes, RuleId, RuleTotals, load_rulesets};
use artery_filter::facts::{Direction, Interface};
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_filter::rule::Ruleset;
use artery_filter::states::{InterfaceLookup, StateId, StateSelector, Verbosity};
use artery_filter::syntax::{self, Environment};
use artery_filter::tables::Tables;
use artery_rcu::{Domain, Reader};
use artery_wire::TcpFlags;
use std::net::IpAddr;
use std::time::Duration;

pub(crate) const EM0: Interface = Interface(1);
pub(crate) const EM1: Interface = Interface(2);

pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const FIN_ACK: TcpFlags = TcpFlags(0x11);
pub(crate) const SYN_ACK: TcpFlags = TcpFlags(0x12);
pub(crate) const RST: TcpFlags = TcpFlags::RST;

struct NoRoutes;

impl Routes for NoRoutes {
    fn has_route(&self, _: IpAddr) -> bool {
        true
    }

    fn has_route_via(&self, _: IpAddr, _: Interface) -> bool {
        true
    }

    fn has_label(&self, _: IpAddr, _: &str) -> bool {
        false
    }
}

pub(crate) struct InterfaceNames;

impl InterfaceLookup for InterfaceNames {
    fn interface(&self, interface: Interface) -> &str {
        ["lo0", "em0", "em1"][usize::from(interface.0)]
    }
}

/// The number of an interface.
pub(crate) fn interface(name: &str) -> Option<Interface> {
    interfaces().find_interface(name)
}

fn interfaces() -> Interfaces {
    let address =
        |text: &str, length| InterfaceAddress { address: text.parse().unwrap(), length, peer: None };
    let record = |name: &str, addresses| InterfaceRecord {
        name: name.into(),
        is_loopback: name == "lo0",
        addresses,
        ..InterfaceRecord::default()
    };
    Interfaces(vec![
        record("lo0", vec![address("127.0.0.1", 8)]),
        record("em0", vec![address("192.0.2.1", 24), address("2001:db8::1", 64)]),
        record("em1", vec![address("10.0.0.1", 24)]),
    ])
}

pub(crate) struct World {
    pub(crate) filter: Filter,
    pub(crate) compiled: Compiled,
    anchors: Anchors,
    pub(crate) tables: Tables,
    reader: Reader,
    pub(crate) now: Duration,
    pub(crate) hint: Option<StateId>,
}

impl World {
    /// With rules of a text.
    #[track_caller]
    pub(crate) fn new(text: &str) -> World {
        let domain = Domain::new();
        let (mut anchors, mut tables) = (Anchors::default(), Tables::new(&domain));
        let (compiled, settings) = compile(text, &mut anchors, &mut tables);
        let filter = Filter::new(settings, &compiled, 0, Random::from_seed(42)).unwrap();
        let reader = domain.reader();
        World { filter, compiled, anchors, tables, reader, now: Duration::from_secs(1000), hint: None }
    }

    #[track_caller]
    pub(crate) fn reload(&mut self, text: &str) {
        let (compiled, settings) = compile(text, &mut self.anchors, &mut self.tables);
        self.follow(compiled, settings);
    }

    /// Switches the filter off.
    pub(crate) fn disable(&mut self) {
        let settings = FilterSettings { is_enabled: false, ..self.filter.settings().clone() };
        self.filter.load_rules(settings, &self.compiled, &self.compiled).unwrap();
    }

    /// Has all packets take the full path.
    pub(crate) fn be_thorough(&mut self) {
        let settings = FilterSettings { is_thorough: true, ..self.filter.settings().clone() };
        self.filter.load_rules(settings, &self.compiled, &self.compiled).unwrap();
    }

    /// Loads rules into an anchor.
    #[track_caller]
    pub(crate) fn load_anchor(&mut self, path: &str, text: &str) {
        let ruleset = parse(text);
        let settings = self.filter.settings().clone();
        let compiled = load_rulesets(
            vec![(path.into(), ruleset)],
            &mut self.anchors,
            &mut self.tables,
            &interfaces(),
            Duration::ZERO,
        );
        self.follow(compiled.unwrap_or_else(|errors| panic!("{errors:?}")), settings);
    }

    fn follow(&mut self, mut compiled: Compiled, settings: FilterSettings) {
        compiled.inherit_counters(&self.compiled);
        self.filter.load_rules(settings, &self.compiled, &compiled).unwrap();
        self.compiled = compiled;
    }

    pub(crate) fn sleep(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    /// What becomes of a packet; it is changed as is due.
    pub(crate) fn test(
        &mut self,
        interface: Interface,
        direction: Direction,
        bytes: &mut [u8],
    ) -> FilterVerdict {
        self.filter.begin_batch(self.now);
        let turn = self.reader.turn();
        let (routes, names) = (NoRoutes, InterfaceNames);
        let rules = Rules { compiled: &self.compiled, turn: &turn, routes: &routes, names: &names };
        let mut look =
            self.filter.prepare_lookup(bytes, HookContext::new(interface, direction), self.hint.take());
        self.filter.prefetch_state(&mut look);
        let verdict = self.filter.test_packet(bytes, &mut look, &rules);
        self.filter.end_batch();
        verdict
    }

    /// What would become of a packet, and its bytes then.
    pub(crate) fn explain(
        &mut self,
        interface: Interface,
        direction: Direction,
        bytes: &[u8],
    ) -> (FilterExplanation, Vec<u8>) {
        self.filter.begin_batch(self.now);
        let turn = self.reader.turn();
        let (routes, names) = (NoRoutes, InterfaceNames);
        let rules = Rules { compiled: &self.compiled, turn: &turn, routes: &routes, names: &names };
        let mut bytes = bytes.to_vec();
        let said = self.filter.explain_packet(&mut bytes, HookContext::new(interface, direction), &rules);
        (said, bytes)
    }

    /// What becomes of a packet that comes in by an interface and leaves by another, tested at each of them.
    pub(crate) fn cross(
        &mut self,
        from: Interface,
        to: Interface,
        bytes: &mut [u8],
    ) -> Option<FilterDropReason> {
        match self.test(from, Direction::In, bytes) {
            FilterVerdict::Pass(passed) => self.hint = passed.state,
            FilterVerdict::Drop(reason) => return Some(reason),
            other => panic!("{other:?}"),
        }
        self.leave(to, bytes)
    }

    /// The same at once, as far as that is possible.
    pub(crate) fn cross_at_once(
        &mut self,
        from: Interface,
        to: Interface,
        bytes: &mut [u8],
    ) -> Option<FilterDropReason> {
        self.filter.begin_batch(self.now);
        let enters = HookContext::new(from, Direction::In);
        let mut key = self.filter.parse_key(bytes, Direction::In);
        self.filter.prefetch_states(std::slice::from_mut(&mut key));
        let through =
            self.filter.pass_through(|| bytes, &key, (enters, HookContext::new(to, Direction::Out)));
        self.filter.end_batch();
        self.go_on(through, from, to, bytes)
    }

    /// What becomes of a packet that could go through at once, or could not.
    pub(crate) fn go_on(
        &mut self,
        through: ThroughVerdict,
        from: Interface,
        to: Interface,
        bytes: &mut [u8],
    ) -> Option<FilterDropReason> {
        match through {
            ThroughVerdict::Passed => None,
            ThroughVerdict::Unknown => self.cross(from, to, bytes),
            ThroughVerdict::Entered(passed) => {
                self.hint = passed.state;
                self.leave(to, bytes)
            }
        }
    }

    pub(crate) fn leave(&mut self, to: Interface, bytes: &mut [u8]) -> Option<FilterDropReason> {
        match self.test(to, Direction::Out, bytes) {
            FilterVerdict::Pass(_) => None,
            FilterVerdict::Drop(reason) => Some(reason),
            other => panic!("{other:?}"),
        }
    }

    /// The same at each of them at once, as far as that is possible.
    pub(crate) fn cross_at_a_glance(
        &mut self,
        from: Interface,
        to: Interface,
        bytes: &mut [u8],
    ) -> Option<FilterDropReason> {
        let mut came: Option<StateId> = None;
        for at in [HookContext::new(from, Direction::In), HookContext::new(to, Direction::Out)] {
            self.filter.begin_batch(self.now);
            self.hint = came;
            let passed = match came {
                Some(came) => self.filter.pass_linked(bytes, came, at),
                None => {
                    let mut key = self.filter.parse_key(bytes, at.direction);
                    self.filter.prefetch_states(std::slice::from_mut(&mut key));
                    self.filter.pass_fast(|| bytes, &key, at)
                }
            };
            self.filter.end_batch();
            let verdict = match passed {
                Some(state) => FilterVerdict::Pass(Passed { state: Some(state), ..Passed::default() }),
                None => self.test(at.interface, at.direction, bytes),
            };
            match verdict {
                FilterVerdict::Pass(passed) => came = passed.state,
                FilterVerdict::Drop(reason) => return Some(reason),
                other => panic!("{other:?}"),
            }
        }
        None
    }

    #[track_caller]
    fn pass(
        &mut self,
        interface: Interface,
        direction: Direction,
        bytes: impl Into<Vec<u8>>,
    ) -> (Vec<u8>, Passed) {
        let mut bytes = bytes.into();
        match self.test(interface, direction, &mut bytes) {
            FilterVerdict::Pass(passed) => (bytes, passed),
            other => panic!("{other:?} at {interface:?} {direction:?}"),
        }
    }

    /// A packet that must pass as it comes in by `em0`; returns it as it goes on.
    #[track_caller]
    pub(crate) fn comes(&mut self, bytes: impl Into<Vec<u8>>) -> Vec<u8> {
        self.pass(EM0, Direction::In, bytes).0
    }

    /// A packet that must pass as it leaves by `em0`; returns it as it goes on.
    #[track_caller]
    pub(crate) fn leaves(&mut self, bytes: impl Into<Vec<u8>>) -> Vec<u8> {
        self.pass(EM0, Direction::Out, bytes).0
    }

    /// The same, with what it goes on with.
    #[track_caller]
    pub(crate) fn passes(
        &mut self,
        at: Interface,
        direction: Direction,
        bytes: impl Into<Vec<u8>>,
    ) -> Passed {
        self.pass(at, direction, bytes).1
    }

    /// A packet that must end as it comes in by `em0`.
    #[track_caller]
    pub(crate) fn refuses(&mut self, bytes: impl Into<Vec<u8>>, why: FilterDropReason) {
        let verdict = self.test(EM0, Direction::In, &mut bytes.into());
        assert_eq!(verdict, FilterVerdict::Drop(why));
    }

    /// A packet that must end as it leaves by `em0`.
    #[track_caller]
    pub(crate) fn withholds(&mut self, bytes: impl Into<Vec<u8>>, why: FilterDropReason) {
        let verdict = self.test(EM0, Direction::Out, &mut bytes.into());
        assert_eq!(verdict, FilterVerdict::Drop(why));
    }

    /// What was counted for each rule.
    pub(crate) fn totals(&self) -> Vec<RuleTotals> {
        let counters = self.filter.counters();
        let rules = 0..self.compiled.rules().len() as u32;
        rules.map(|rule| Counters::sum_rule([&*counters], RuleId(rule))).collect()
    }

    pub(crate) fn states(&self) -> usize {
        self.filter.states().count()
    }

    pub(crate) fn maintain(&mut self) -> usize {
        self.filter.begin_batch(self.now);
        self.filter.purge_expired(1_000_000)
    }

    /// All states as they are listed.
    pub(crate) fn list(&mut self, verbosity: Verbosity) -> String {
        self.filter.begin_batch(self.now);
        let mut text = String::new();
        self.filter
            .states()
            .for_each(|state| state.print_state(&InterfaceNames, verbosity, &mut text).unwrap());
        text
    }

    pub(crate) fn kill(&mut self, kill: StateSelector) -> usize {
        self.filter.end_in(StateRange::ALL, |state| kill.matches_state(state)).0
    }

    pub(crate) fn flush(&mut self) {
        self.filter.end_in(StateRange::ALL, |_| true);
    }

    /// The only answer that waits.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> ReplyPacket {
        let mut answers = self.filter.drain_replies();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    pub(crate) fn events(&mut self) -> Vec<FilterEvent> {
        self.filter.drain_events()
    }

    pub(crate) fn reason(&self, reason: FilterDropReason) -> u64 {
        self.filter.collect_counters().reasons[reason as usize]
    }
}

#[track_caller]
fn parse(text: &str) -> Ruleset {
    let environment = Environment { interfaces: interfaces(), ..Environment::fixture() };
    let parsed = syntax::parse("stdin", text.as_bytes(), &environment, &syntax::ParseSettings::default());
    parsed.unwrap_or_else(|faults| panic!("{faults:?}")).ruleset
}

#[track_caller]
fn compile(text: &str, anchors: &mut Anchors, tables: &mut Tables) -> (Compiled, FilterSettings) {
    let ruleset = parse(text);
    let settings = FilterSettings::from_ruleset(&ruleset);
    let compiled =
        load_rulesets(vec![(String::new(), ruleset)], anchors, tables, &interfaces(), Duration::ZERO);
    (compiled.unwrap_or_else(|errors| panic!("{errors:?}")), settings)
}
