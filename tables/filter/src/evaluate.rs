//! What the rules say of a packet that has no state.
//!
//! A [`Compiled`] is a rule set with its anchors, made ready by control and never changed; workers hold
//! packets against it. Rules are asked from the first to the last: the last that matches decides, `quick`
//! ends it, `match` rules act at once. What the compiled form leaves out or asks in another order never
//! changes an answer (see `candidates` and `walk`).
//!
//! Not here: states, what becomes of addresses in a translation ([`Translate`]), and packets themselves.
use crate::facts::{Direction, Facts, Interface, Tag};
use crate::names::Tags;
use crate::rule::{Action, BlockReturn, HostAddress, RouteKind, Rule, Scrub, StateKeeping};
use crate::tables::{CountedPacket, NamelessTable, Table, Use};
use artery_rcu::Turn;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod address;
mod candidates;
mod check;
mod compile;
mod counters;
mod index;
mod memo;
mod query;
mod skip;
mod test;
mod threshold;
mod walk;

pub use check::{CompileError, CompileErrorKind, check_ruleset, load_rulesets};
pub use counters::{Counters, RuleTotals};
pub use skip::skip_steps;
pub use threshold::Threshold;
pub use walk::Scratch;

/// How deep anchors may call anchors; what goes deeper is blocked.
pub const MAX_DEPTH: usize = 64;

/// A rule of a [`Compiled`], by its place among all of its rules, those of anchors among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// The decision on a packet, and the actions of the rules that matched.
///
/// The `match` rules that matched and those that log the packet are lists, and stay in the [`Scratch`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleOutcome {
    /// Whether it passes, and why not.
    pub decision: Decision,
    /// The rule that decided; None is the rule that lets pass what no rule speaks of, and keeps
    /// no state of it.
    pub rule: Option<RuleId>,
    /// The innermost `anchor` rule through which that rule was reached.
    pub anchor: Option<RuleId>,
    /// The kind of state that the deciding rule creates; its options are those of the rule.
    pub keep: StateKeeping,
    /// Whether it may have options.
    pub allows_options: bool,
    /// The tag it has from now on.
    pub tag: Tag,
    /// The actions of rules; the deciding rule's override those of `match` rules.
    pub actions: Actions,
    /// The last rule that translated its source (`nat-to`).
    pub nat: Option<RuleId>,
    /// The last rule that translated its destination (`rdr-to`).
    pub redirect: Option<RuleId>,
    /// The policy route of the deciding rule; the pool is the rule's.
    pub route: Option<RouteKind>,
}

/// Whether a packet passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A rule, or the default, passes it.
    Pass,
    /// A rule blocks it, with this reply to the sender. [`BlockReturn::Return`] is left as it is.
    Block(BlockReturn),
    /// It is dropped, though no rule says so.
    Fail(Failure),
}

/// Why a packet is dropped without a rule that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It could not be translated: counter `translate`.
    Translate,
    /// Anchors called anchors deeper than [`MAX_DEPTH`].
    Depth,
}

/// Actions of rules besides the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Actions {
    /// `set tos`, also that of old files' `scrub`.
    pub tos: Option<u8>,
    /// `set prio`: of all, and of those with low delay and empty acknowledgements.
    pub priority: Option<(u8, u8)>,
    /// The routing table of `rtable`, if set.
    pub routing_table: Option<u32>,
    /// `scrub`, all of them together; `tos` is above.
    pub scrub: Scrub,
    /// Whether each packet of the state is logged (`log (all)`), and to which interface.
    pub log_all: Option<u16>,
}

/// A record for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The rule that matched.
    pub rule: RuleId,
    /// The innermost `anchor` rule through which it was reached.
    pub anchor: Option<RuleId>,
    /// The log: 0 is pflog0.
    pub interface: u16,
}

/// Does what `nat-to` and `rdr-to` say.
pub trait Translate {
    /// Gives a packet the addresses and ports that a rule's `nat` and `redirect` ask for, one of which there
    /// is at least. Called as soon as a `match` rule matches, so that later rules see the new ones, and for
    /// the deciding rule at last.
    fn apply_translation(
        &mut self,
        id: RuleId,
        rule: &Rule,
        facts: &mut Facts,
    ) -> Result<(), CannotTranslate>;
}

/// No address or port is left for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotTranslate;

/// The queries of rules to the routing table.
pub trait Routes {
    /// Whether there is a route to an address.
    fn has_route(&self, address: IpAddr) -> bool;
    /// Whether packets to an address would leave by an interface, for `urpf-failed`.
    fn has_route_via(&self, address: IpAddr, interface: Interface) -> bool;
    /// Whether the route to an address has a label.
    fn has_label(&self, address: IpAddr, label: &str) -> bool;
}

/// What an evaluation looks at besides packet and rules.
pub struct Surroundings<'a, 'r> {
    /// The turn that tables are read in.
    pub turn: &'a Turn<'r>,
    /// The routing table that rules may refer to.
    pub routes: &'a dyn Routes,
    /// The time, for `max-pkt-rate`, from any fixed instant on.
    pub now: Duration,
    /// A source of random numbers, for `probability`.
    pub random: &'a mut dyn FnMut() -> u32,
    /// Chooses the addresses and ports of translations.
    pub translate: &'a mut dyn Translate,
    /// Whether the packet is only asked about: rules with `max-pkt-rate` and `once` count nothing.
    pub is_question: bool,
}

/// A rule set and its anchors, ready for evaluation by any number of workers.
pub struct Compiled {
    rules: Box<[RuleRecord]>,
    program: walk::Program,
    tags: Tags,
    skipped: Box<[bool]>,
    /// Tables of the addresses of interfaces, written by control.
    dynamic: Mutex<Vec<(HostAddress, NamelessTable)>>,
}

/// A rule and where it stands.
#[derive(Clone)]
pub struct RuleRecord {
    /// The rule as it was read.
    pub rule: Arc<Rule>,
    /// The path of its anchor; empty for the main rule set.
    pub anchor: Arc<str>,
    /// Its number in its rule set, which is what `pfctl` shows.
    pub number: u32,
    /// What `nat-to` chooses from, where that is a table or the addresses of an interface.
    pub nat_table: Option<Arc<Table>>,
    /// The same of `rdr-to`.
    pub redirect_table: Option<Arc<Table>>,
    /// The same of `route-to` and `reply-to`.
    pub route_table: Option<Arc<Table>>,
    /// That of its rule set.
    load: Arc<()>,
}

impl Compiled {
    /// Decides about a packet. Addresses and ports in `facts` are the translated ones afterwards.
    pub fn evaluate(
        &self,
        facts: &mut Facts,
        surroundings: &mut Surroundings<'_, '_>,
        scratch: &mut Scratch,
        counters: &Counters,
    ) -> RuleOutcome {
        walk::evaluate(&self.program, &self.rules, facts, surroundings, scratch, counters)
    }

    /// The rules that were in another one already, as they were called there, by what they are called here:
    /// those of rule sets that were not loaded in between.
    pub fn kept_of(&self, before: &Compiled) -> HashMap<RuleId, RuleId> {
        let key = |record: &RuleRecord| (Arc::as_ptr(&record.load), record.number);
        let known: HashMap<_, RuleId> = before.rules.iter().map(key).zip(before.rule_ids()).collect();
        let kept = self.rules.iter().map(key).zip(self.rule_ids());
        kept.filter_map(|(key, id)| Some((*known.get(&key)?, id))).collect()
    }

    /// Goes on with what rules that stay have counted: `once` and `max-pkt-rate`.
    pub fn inherit_counters(&mut self, before: &Compiled) {
        for (old, new) in self.kept_of(before) {
            self.program.inherit_counts(new, &before.program, old);
        }
    }

    /// Whether packets at an interface are none of the filter's business: `set skip on`.
    pub fn skips_interface(&self, interface: Interface) -> bool {
        self.skipped.get(usize::from(interface.0)).copied().unwrap_or(false)
    }

    /// How many interfaces it was compiled for.
    pub fn interface_count(&self) -> usize {
        self.skipped.len()
    }

    /// All rules, by [`RuleId`]: the main rule set's first, in order, then those of anchors.
    pub fn rules(&self) -> &[RuleRecord] {
        &self.rules
    }

    /// The ids of all rules.
    pub fn rule_ids(&self) -> impl Iterator<Item = RuleId> + use<> {
        (0..self.rules.len() as u32).map(RuleId)
    }

    /// A rule and where it stands; the id must be one of this rule set.
    pub fn rule(&self, id: RuleId) -> &RuleRecord {
        &self.rules[id.0 as usize]
    }

    /// The names of tags.
    pub fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Counts a packet for the rules that it met, as `pfctl -v -s rules` shows.
    pub fn count_packet(&self, outcome: &RuleOutcome, scratch: &Scratch, facts: &Facts, counters: &Counters) {
        let rules = outcome.rule.iter().chain(&outcome.anchor).chain(scratch.matched());
        rules.for_each(|id| counters.add_packet(*id, facts.direction, facts.length));
    }

    /// Counts a packet for the tables that a rule tests its addresses with, as `pfctl -vv -s Tables` shows.
    pub fn count_tables(&self, id: RuleId, facts: &Facts, worker: usize, turn: &Turn<'_>) {
        let test = &self.program.tests[id.0 as usize];
        let by = match self.rule(id).rule.action {
            Action::Pass => Use::Pass,
            Action::Block(_) => Use::Block,
            _ => Use::Match,
        };
        let packet = CountedPacket { turn, worker, direction: facts.direction, by, length: facts.length };
        for (end, address) in [(test.source, facts.source), (test.destination, facts.destination)] {
            if let address::AddressTest::Table(table) = end.address {
                self.program.conditions.addresses.tables[table as usize].count_packet(
                    &packet,
                    address,
                    end.is_negated,
                );
            }
        }
    }

    /// Counts a packet of a state for its rule's `max-pkt-rate`; false if there are more than may be.
    pub fn rate_holds(&self, id: RuleId, now: Duration) -> bool {
        self.program.rate_threshold(id).is_none_or(|rate| rate.count_event(now))
    }

    /// The same, without counting the packet.
    pub fn rate_would_hold(&self, id: RuleId, now: Duration) -> bool {
        self.program.rate_threshold(id).is_none_or(|rate| rate.would_pass(now))
    }

    /// Whether a rule has matched that was to match but once.
    pub fn is_expired(&self, id: RuleId) -> bool {
        self.program.is_expired(id)
    }
}

impl Direction {
    /// Its place in pairs of counters: in, then out.
    pub fn index(self) -> usize {
        self as usize
    }
}
