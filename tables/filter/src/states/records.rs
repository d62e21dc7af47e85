//! What states have of their rules: options that hold for as long as they live, also when the rules are gone.
use super::NONE;
use crate::evaluate::{RuleId, RuleRecord};
use crate::rule::{Flush, SourceTrack};
use crate::sources::Allowance;
use crate::timeouts::OwnTimeouts;
use std::collections::HashMap;
use std::sync::Arc;

/// A rule as its states see it.
#[derive(Clone, Debug)]
pub(crate) struct StateRuleRecord {
    /// The rule among those that hold now; None if it is gone.
    pub(crate) rule: Option<RuleId>,
    /// Its number in its rule set, and that of the `anchor` rule through which it was reached.
    pub(crate) number: u32,
    pub(crate) anchor_number: Option<u32>,
    pub(crate) label: Arc<str>,
    /// Its states now, and states or rules that lead here otherwise.
    pub(crate) states: u32,
    pub(crate) users: u32,
    pub(crate) max: Option<u32>,
    pub(crate) allows_options: bool,
    pub(crate) timeouts: OwnTimeouts,
    pub(crate) has_own_timeouts: bool,
    pub(crate) source_track: Option<SourceTrack>,
    pub(crate) allowance: Allowance,
    pub(crate) overload: Option<Overload>,
}

/// Where sources go that go too far.
#[derive(Clone, Debug)]
pub(crate) struct Overload {
    /// The path of the anchor whose rule it is, and the name that it has for the table.
    pub(crate) anchor: Arc<str>,
    pub(crate) table: Arc<str>,
    pub(crate) flush: Flush,
}

/// All records, by number.
#[derive(Debug, Default)]
pub(crate) struct StateRuleRecords {
    records: Vec<Option<StateRuleRecord>>,
    free: Vec<u32>,
    /// The rules of records, which each packet asks for.
    rules: Vec<u32>,
    by_rule: HashMap<RuleId, u32>,
    /// Those with timeouts of their own.
    pub(crate) with_timeouts: u32,
}

impl StateRuleRecords {
    pub(crate) fn get(&self, number: u32) -> Option<&StateRuleRecord> {
        self.records.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut StateRuleRecord> {
        self.records.get_mut(number as usize)?.as_mut()
    }

    /// The rule of a record, if it holds now.
    #[inline(always)]
    pub(crate) fn rule(&self, number: u32) -> Option<RuleId> {
        self.rules.get(number as usize).filter(|rule| **rule != NONE).map(|rule| RuleId(*rule))
    }

    /// The record of a rule that holds now.
    pub(crate) fn of_rule(&mut self, id: RuleId, found: &RuleRecord, anchor_number: Option<u32>) -> u32 {
        if let Some(known) = self.by_rule.get(&id) {
            return *known;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.rules.push(NONE);
            self.records.len() as u32 - 1
        });
        let record = StateRuleRecord::new(id, found, anchor_number);
        self.with_timeouts += u32::from(record.has_own_timeouts);
        self.records[place as usize] = Some(record);
        self.rules[place as usize] = id.0;
        self.by_rule.insert(id, place);
        place
    }

    /// Makes a record stay for another state.
    pub(crate) fn use_by_state(&mut self, number: u32, is_its_rule: bool) {
        if let Some(record) = self.get_mut(number) {
            record.users += 1;
            record.states += u32::from(is_its_rule);
        }
    }

    /// Ends that; a record of a rule that is gone goes with its last state.
    pub(crate) fn leave_by_state(&mut self, number: u32, was_its_rule: bool) {
        let Some(record) = self.get_mut(number) else { return };
        record.users = record.users.saturating_sub(1);
        record.states = record.states.saturating_sub(was_its_rule.into());
        if record.users == 0 && record.rule.is_none() {
            self.free_record(number);
        }
    }

    fn free_record(&mut self, number: u32) {
        if let Some(record) = self.records[number as usize].take() {
            self.with_timeouts -= u32::from(record.has_own_timeouts);
            self.free.push(number);
        }
    }

    /// Renumbers the records for a new rule set; `kept` maps the rules that stay to their new ids.
    pub(crate) fn renumber_rules(&mut self, kept: &HashMap<RuleId, RuleId>) {
        self.by_rule.clear();
        self.rules.fill(NONE);
        for number in 0..self.records.len() as u32 {
            let Some(record) = self.get_mut(number) else { continue };
            record.rule = record.rule.and_then(|rule| kept.get(&rule).copied());
            match record.rule {
                Some(rule) => {
                    self.by_rule.insert(rule, number);
                    self.rules[number as usize] = rule.0;
                }
                None if record.users == 0 => self.free_record(number),
                None => (),
            }
        }
    }
}

impl StateRuleRecord {
    fn new(id: RuleId, found: &RuleRecord, anchor_number: Option<u32>) -> StateRuleRecord {
        let rule = &found.rule;
        let options = &rule.state.options;
        let mut timeouts = [0; 20];
        options.timeouts.iter().for_each(|(timeout, seconds)| timeouts[*timeout as usize] = *seconds);
        StateRuleRecord {
            rule: Some(id),
            number: found.number,
            anchor_number,
            label: rule.label.as_str().into(),
            states: 0,
            users: 0,
            max: options.max,
            allows_options: rule.allows_options,
            has_own_timeouts: !options.timeouts.is_empty(),
            timeouts,
            source_track: source_tracking(options),
            allowance: Allowance {
                nodes: options.max_source_nodes,
                states: options.max_source_states,
                connections: options.max_source_connections,
                rate: options.max_source_rate,
            },
            overload: options.overload.as_ref().map(|(table, flush)| Overload {
                anchor: found.anchor.clone(),
                table: table.as_str().into(),
                flush: *flush,
            }),
        }
    }
}

/// Limits of sources imply that they are tracked: those of connections and states by the rule.
fn source_tracking(options: &crate::rule::StateOptions) -> Option<SourceTrack> {
    let has_limit = options.max_source_nodes.is_some()
        || options.max_source_states.is_some()
        || options.max_source_connections.is_some()
        || options.max_source_rate.is_some();
    options.source_track.or(has_limit.then_some(SourceTrack::Rule))
}
