//! The evaluation of rules for a packet.
//!
//! Rules whose matching has an effect, or whose answer depends on when they are evaluated, are *eager* and
//! evaluated in order. Of the others only the last that matches counts, so these are evaluated from the end,
//! and only where something depends on which it was: before the packet changes or evaluation leaves a rule
//! set. `find_last_match` does that.
use super::candidates::Candidates;
use super::counters::Counters;
use super::index::{Sets, TableIndex};
use super::memo::Memo;
use super::query::End;
use super::test::{Conditions, Rare, Test};
use super::threshold::Threshold;
use super::{
    Actions, Compiled, Decision, Failure, Logged, MAX_DEPTH, RuleId, RuleOutcome, RuleRecord, Surroundings,
};
use crate::facts::{Facts, Tag};
use crate::rule::{Action, Log, Rule, StateKeeping};
use std::ops::Range;
use std::sync::Arc;

/// Calls of anchors that one packet may cause: rule sets that call each other twice each would
/// keep it for years.
const MAX_CALLS: usize = 4096;

/// All rule sets of a [`Compiled`].
pub(super) struct Program {
    /// The first is the main rule set.
    pub(super) blocks: Box<[Block]>,
    /// Indexed by [`RuleId`], one for each rule.
    pub(super) tests: Box<[Test]>,
    /// Indexed by [`RuleId`], one for each rule.
    pub(super) effects: Box<[Effect]>,
    pub(super) conditions: Conditions,
    /// The blocks that anchors call.
    pub(super) calls: Box<[Box<[u32]>]>,
    /// Of the tables that rules use, if they use any.
    pub(super) index: Option<Arc<TableIndex>>,
}

impl Program {
    fn rare_conditions(&self, id: RuleId) -> Option<&Rare> {
        let place = (self.tests[id.0 as usize].rare as usize).checked_sub(1)?;
        Some(&self.conditions.rare[place])
    }

    /// Has a rule go on with what it has counted as another.
    pub(super) fn inherit_counts(&mut self, id: RuleId, before: &Program, old: RuleId) {
        let Some(counted) = before.rare_conditions(old) else { return };
        let place = (self.tests[id.0 as usize].rare as usize).checked_sub(1);
        if let Some(rare) = place.and_then(|place| self.conditions.rare.get_mut(place)) {
            (rare.rate, rare.once) = (counted.rate.clone(), counted.once.clone());
        }
    }

    pub(super) fn rate_threshold(&self, id: RuleId) -> Option<&Threshold> {
        self.rare_conditions(id)?.rate.as_deref()
    }

    pub(super) fn is_expired(&self, id: RuleId) -> bool {
        self.rare_conditions(id).is_some_and(Rare::is_expired)
    }
}

pub(super) struct Block {
    /// Its place among the rule sets.
    pub(super) number: usize,
    /// The id of its first rule.
    pub(super) first: u32,
    pub(super) len: u32,
    pub(super) candidates: Candidates,
    /// A row of the rules that are evaluated in order.
    pub(super) eager: Box<[u64]>,
}

/// What happens when a rule matches.
#[derive(Debug)]
pub(super) struct Effect {
    pub(super) kind: EffectKind,
    pub(super) is_quick: bool,
    pub(super) tag: Tag,
    /// Whether it has a pool.
    pub(super) translates: bool,
    pub(super) log: Option<Log>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectKind {
    Decide,
    Match,
    /// Index into [`Program::calls`]: the blocks that it calls.
    Call(u32),
}

impl Effect {
    /// Whether later rules may see another packet.
    fn may_change_the_packet(&self) -> bool {
        matches!(self.kind, EffectKind::Call(_)) || (self.kind == EffectKind::Match && self.translates)
    }
}

/// What a worker needs for evaluations of one [`Compiled`], and what the last one left: lists.
pub struct Scratch {
    matched: Vec<RuleId>,
    logged: Vec<Logged>,
    /// Rows of candidates of the rule sets that evaluation is in.
    row: Vec<u64>,
    memo: Memo,
    /// Whether every rule is evaluated, one by one. For comparisons: the results are the same.
    pub is_plain: bool,
}

impl Scratch {
    /// Forgets the packet before.
    #[inline]
    fn begin(&mut self) {
        self.matched.clear();
        self.logged.clear();
        self.row.clear();
        self.memo.reset_answers();
    }

    /// For a worker and a rule set.
    pub fn new(compiled: &Compiled, worker: usize) -> Scratch {
        let program = &compiled.program;
        Scratch {
            matched: Vec::with_capacity(64),
            logged: Vec::with_capacity(64),
            row: Vec::with_capacity(
                program.blocks.iter().map(|block| block.candidates.all_rules().len()).sum(),
            ),
            memo: Memo::new(program.conditions.addresses.tables.len(), worker),
            is_plain: false,
        }
    }

    /// The `match` rules that matched, in order.
    pub fn matched(&self) -> &[RuleId] {
        &self.matched
    }

    /// The rules by which the packet is to be logged, in order.
    pub fn logged(&self) -> &[Logged] {
        &self.logged
    }

    /// Adds what was counted for tables to their counters; before it is dropped, and before these are read.
    pub fn flush_counters(&mut self, compiled: &Compiled) {
        self.memo.flush_counters(&compiled.program.conditions.addresses.tables);
    }
}

struct Walk<'a, 's, 'r> {
    program: &'a Program,
    rules: &'a [RuleRecord],
    counters: &'a Counters,
    facts: &'a mut Facts,
    surroundings: &'a mut Surroundings<'s, 'r>,
    scratch: &'a mut Scratch,
    /// The index of small tables, if it is used.
    sets: Option<&'a Sets>,
    /// The anchor rule that called the rule set that evaluation is in.
    anchor: Option<RuleId>,
    depth: usize,
    calls: usize,
    /// The last rule that decided, and the anchor rule it was reached by.
    last: Option<(RuleId, Option<RuleId>)>,
    decisions: u32,
    translations: u32,
    actions: Actions,
    nat: Option<RuleId>,
    redirect: Option<RuleId>,
}

pub(super) fn evaluate(
    program: &Program,
    rules: &[RuleRecord],
    facts: &mut Facts,
    surroundings: &mut Surroundings<'_, '_>,
    scratch: &mut Scratch,
    counters: &Counters,
) -> RuleOutcome {
    scratch.begin();
    let sets = match &program.index {
        Some(index) if !scratch.is_plain => index.current_sets(surroundings.turn),
        _ => None,
    };
    if let Some(sets) = sets {
        scratch.memo.go_by(sets, &program.conditions.addresses.tables);
    }
    let mut walk = Walk {
        program,
        rules,
        counters,
        facts,
        surroundings,
        scratch,
        sets,
        anchor: None,
        depth: 0,
        calls: 0,
        last: None,
        decisions: 0,
        translations: 0,
        actions: Actions::default(),
        nat: None,
        redirect: None,
    };
    let decision = walk.evaluate_block(0).and_then(|_| walk.finish_decision());
    walk.build_outcome(decision.unwrap_or_else(Decision::Fail))
}

impl Walk<'_, '_, '_> {
    /// Asks the rules of a rule set; true if that ends the evaluation.
    fn evaluate_block(&mut self, number: u32) -> Result<bool, Failure> {
        let program = self.program;
        let block = &program.blocks[number as usize];
        let base = self.scratch.row.len();
        self.scratch.row.resize(base + block.candidates.all_rules().len(), 0);
        let is_over = self.match_in_block(block, base);
        self.scratch.row.truncate(base);
        is_over
    }

    fn match_in_block(&mut self, block: &Block, base: usize) -> Result<bool, Failure> {
        self.write_row(block, base);
        let mut translations = self.translations;
        // All rules before `settled` are evaluated, or overruled by one that is.
        let (mut settled, mut at) = (0, 0);
        while let Some(next) = self.next(block, base, at) {
            at = next + 1;
            let id = RuleId(block.first + next as u32);
            if !self.rule_matches(id) {
                self.exclude_denied(block, base);
                continue;
            }
            let effect = &self.program.effects[id.0 as usize];
            let decides = effect.kind == EffectKind::Decide;
            if !decides && (effect.is_quick || effect.may_change_the_packet()) {
                self.find_last_match(block, base, settled..next);
                settled = at;
            }
            let applied = self.apply_effect(id, effect);
            if !matches!(applied, Ok(false)) {
                self.counters.add_evaluations(id);
                return applied;
            }
            if decides {
                settled = at;
            }
            if std::mem::replace(&mut translations, self.translations) != self.translations {
                self.write_row(block, base);
            }
        }
        self.find_last_match(block, base, settled..block.len as usize);
        if let Some(last) = (block.first + block.len).checked_sub(1).filter(|_| block.len > 0) {
            self.counters.add_evaluations(RuleId(last));
        }
        Ok(false)
    }

    fn write_row(&mut self, block: &Block, base: usize) {
        let row = &mut self.scratch.row[base..];
        if self.scratch.is_plain {
            row[..block.candidates.all_rules().len()].copy_from_slice(block.candidates.all_rules());
        } else {
            block.candidates.write_row(self.facts, row);
        }
        if let Some(sets) = self.sets {
            let Scratch { row, memo, .. } = &mut *self.scratch;
            let row = &mut row[base..];
            for (end, address) in
                [(End::Source, self.facts.source), (End::Destination, self.facts.destination)]
            {
                sets.narrow_row(block.number, end, row, || memo.class(end, address, sets));
            }
        }
    }

    /// The next candidate of those that are evaluated in order.
    fn next(&self, block: &Block, base: usize, from: usize) -> Option<usize> {
        let eager = self.in_order(block).iter().enumerate().skip(from / 64);
        let mut above = u64::MAX << (from % 64);
        for (word, eager) in eager {
            let bits = self.scratch.row[base + word] & eager & above;
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            above = u64::MAX;
        }
        None
    }

    fn in_order<'b>(&self, block: &'b Block) -> &'b [u64] {
        if self.scratch.is_plain { block.candidates.all_rules() } else { &block.eager }
    }

    /// Finds the last rule that matches among those in a range that are not evaluated in order.
    fn find_last_match(&mut self, block: &Block, base: usize, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start / 64, (range.end - 1) / 64);
        for word in (first..=last).rev() {
            let mut open = !self.in_order(block)[word];
            if word == last {
                open &= u64::MAX >> (63 - (range.end - 1) % 64);
            }
            if word == first {
                open &= u64::MAX << (range.start % 64);
            }
            loop {
                let bits = self.scratch.row[base + word] & open;
                if bits == 0 {
                    break;
                }
                let place = 63 - bits.leading_zeros();
                let id = RuleId(block.first + word as u32 * 64 + place);
                if self.rule_matches(id) {
                    return self.set_decision(id);
                }
                open &= !(1 << place);
                self.exclude_denied(block, base);
            }
        }
    }

    /// Leaves out the rules that would repeat a table query that just failed.
    fn exclude_denied(&mut self, block: &Block, base: usize) {
        if let Some(asked) = self.scratch.memo.pop_denied().filter(|_| !self.scratch.is_plain) {
            block.candidates.exclude_denied(asked, &mut self.scratch.row[base..]);
        }
    }

    fn rule_matches(&mut self, id: RuleId) -> bool {
        let test = &self.program.tests[id.0 as usize];
        let memo = (self.sets, &mut self.scratch.memo);
        test.matches_packet(self.facts, &self.program.conditions, self.surroundings, memo)
    }

    fn set_decision(&mut self, id: RuleId) {
        self.last = Some((id, self.anchor));
        self.decisions += 1;
    }

    /// Does what a rule that matches says; true if that ends the evaluation.
    fn apply_effect(&mut self, id: RuleId, effect: &Effect) -> Result<bool, Failure> {
        if effect.tag != Tag::default() {
            self.facts.tag = effect.tag;
        }
        match effect.kind {
            EffectKind::Call(call) => {
                return self.call_anchor(id, &self.program.calls[call as usize], effect.is_quick);
            }
            EffectKind::Decide => self.set_decision(id),
            EffectKind::Match => {
                self.scratch.matched.push(id);
                let rules = self.rules;
                self.merge_actions(&rules[id.0 as usize].rule);
                self.translate_packet(id, effect)?;
                self.record_log(id, effect);
            }
        }
        self.log_matches(id, effect);
        Ok(effect.is_quick)
    }

    fn call_anchor(&mut self, id: RuleId, blocks: &[u32], is_quick: bool) -> Result<bool, Failure> {
        self.calls += 1;
        if self.depth == MAX_DEPTH || self.calls > MAX_CALLS {
            return Err(Failure::Depth);
        }
        let outer = self.anchor.replace(id);
        let decisions = self.decisions;
        self.depth += 1;
        let mut is_over = false;
        for block in blocks {
            is_over = self.evaluate_block(*block)?;
            if is_over {
                break;
            }
        }
        self.depth -= 1;
        self.anchor = outer;
        Ok(is_over || (is_quick && self.decisions != decisions))
    }

    fn translate_packet(&mut self, id: RuleId, effect: &Effect) -> Result<(), Failure> {
        if !effect.translates {
            return Ok(());
        }
        let rule = &self.rules[id.0 as usize].rule;
        self.surroundings
            .translate
            .apply_translation(id, rule, self.facts)
            .map_err(|_| Failure::Translate)?;
        self.translations += 1;
        self.scratch.memo.reset_answers();
        self.nat = rule.nat.as_ref().map(|_| id).or(self.nat);
        self.redirect = rule.redirect.as_ref().map(|_| id).or(self.redirect);
        Ok(())
    }

    /// Lets a rule's actions override those of earlier rules.
    fn merge_actions(&mut self, rule: &Rule) {
        let actions = &mut self.actions;
        actions.tos = rule.set.tos.or(rule.scrub.tos).or(actions.tos);
        actions.priority = rule.set.priority.or(actions.priority);
        actions.routing_table = rule.routing_table.or(actions.routing_table);
        if let Some(log) = rule.log.as_ref().filter(|log| log.is_all) {
            actions.log_all = Some(log.interface);
        }
        let (all, scrub) = (&mut actions.scrub, &rule.scrub);
        all.is_given |= scrub.is_given;
        all.clears_df |= scrub.clears_df;
        all.randomises_id |= scrub.randomises_id;
        all.reassembles_tcp |= scrub.reassembles_tcp;
        all.min_ttl = scrub.min_ttl.or(all.min_ttl);
        all.max_mss = scrub.max_mss.or(all.max_mss);
    }

    fn record_log(&mut self, id: RuleId, effect: &Effect) {
        if let Some(log) = &effect.log {
            self.scratch.logged.push(Logged { rule: id, anchor: self.anchor, interface: log.interface });
        }
    }

    /// Logs a rule that matched for each earlier one that asked to hear of it; those
    /// are logged by themselves.
    fn log_matches(&mut self, id: RuleId, effect: &Effect) {
        if effect.log.as_ref().is_some_and(|log| log.is_matches) {
            return;
        }
        let Scratch { matched, logged, .. } = &mut *self.scratch;
        for earlier in matched.iter() {
            let log = self.program.effects[earlier.0 as usize].log.as_ref();
            if let Some(log) = log.filter(|log| log.is_matches) {
                logged.push(Logged { rule: id, anchor: self.anchor, interface: log.interface });
            }
        }
    }

    /// Does what the deciding rule says.
    fn finish_decision(&mut self) -> Result<Decision, Failure> {
        let Some((id, anchor)) = self.last else {
            return Ok(Decision::Pass);
        };
        let rules = self.rules;
        let (rule, effect) = (&rules[id.0 as usize].rule, &self.program.effects[id.0 as usize]);
        self.merge_actions(rule);
        self.anchor = anchor;
        if rule.action == Action::Pass {
            self.translate_packet(id, effect)?;
        }
        self.record_log(id, effect);
        Ok(match rule.action {
            Action::Block(answer) => Decision::Block(answer),
            _ => Decision::Pass,
        })
    }

    fn build_outcome(&self, decision: Decision) -> RuleOutcome {
        let rule = self.last.map(|(id, _)| &self.rules[id.0 as usize].rule);
        let passing = rule.filter(|_| decision == Decision::Pass);
        RuleOutcome {
            decision,
            rule: self.last.map(|(id, _)| id),
            anchor: self.last.and_then(|(_, anchor)| anchor),
            keep: passing.map_or(StateKeeping::No, |rule| rule.state.keep),
            allows_options: passing.is_some_and(|rule| rule.allows_options),
            tag: self.facts.tag,
            actions: self.actions,
            nat: self.nat,
            redirect: self.redirect,
            route: passing.and_then(|rule| rule.route.as_ref()).map(|(kind, _)| *kind),
        }
    }
}
