//! States that go to another filter: `pfctl -S` and `-L`.
use super::{Filter, StateRange};
use crate::evaluate::{Compiled, RuleId};
use crate::facts::{Direction, Family, Interface};
use crate::names::Tags;
use crate::states::{
    Cold, DumpError, Extra, Hot, InterfaceLookup, NONE, NewState, StateActions, StateRecord, StateView, flag,
};
use std::net::IpAddr;

impl Filter {
    /// Adds the states of a part to a dump, as records: `pfctl -S`. Those whose handshake this
    /// filter makes itself stay.
    pub fn dump_states(
        &self,
        part: StateRange,
        names: &dyn InterfaceLookup,
        compiled: &Compiled,
        out: &mut Vec<u8>,
    ) {
        for number in self.numbers_in(part) {
            let hot = self.states.unmerged(number);
            let is_dead = self.states.extra(number).is_some_and(|extra| extra.is_dead);
            if !is_dead && hot.peers.iter().all(|peer| peer.stage.tcp_name().is_some()) {
                self.to_state_record(&self.state_view(number), names, compiled).write_record(out);
            }
        }
    }

    fn to_state_record(
        &self,
        view: &StateView<'_>,
        names: &dyn InterfaceLookup,
        compiled: &Compiled,
    ) -> StateRecord {
        let (hot, cold) = (&view.hot, view.cold);
        let interface = if hot.has_flag(flag::BOUND) { names.interface(cold.interface) } else { "" };
        let record = view.record.filter(|record| record.anchor_number.is_none() && record.rule.is_some());
        StateRecord {
            id: cold.id,
            creator: if view.creator() == 0 { self.settings.host_id } else { view.creator() },
            direction: view.direction(),
            interface: interface.to_string(),
            keys: view.keys,
            peers: hot.peers,
            moved: cold.moved,
            class: hot.timeout_kind(),
            is_sloppy: hot.has_flag(flag::SLOPPY),
            is_exported: cold.is_exported,
            packets: view.counts.0,
            bytes: view.counts.1,
            age_ms: self.now_ms.saturating_sub(cold.created_ms),
            idle_ms: (self.now_ms as u32).wrapping_sub(hot.seen),
            rule: record.map(|record| record.number),
            wants: view.extra.and_then(|extra| state_actions(extra, compiled.tags())).map(Box::new),
        }
    }

    /// Adds the states of a dump: `pfctl -L`. Those that exist already, or that find no room,
    /// are skipped; so are those of interfaces that this filter does not know. With `keeps_rules` they
    /// are states of the rules of the same numbers: the options of those rules hold for them. Returns
    /// how many were added.
    pub fn restore_states(
        &mut self,
        records: &[u8],
        keeps_rules: bool,
        interface: impl Fn(&str) -> Option<Interface>,
        compiled: &Compiled,
    ) -> Result<usize, DumpError> {
        let mut states = StateRecord::read_all(records)?;
        if !keeps_rules {
            states.iter_mut().for_each(|state| state.rule = None);
        }
        let taken =
            states.iter().filter(|state| self.restore_state(state, &interface, compiled).is_some()).count();
        self.update_least_lifetime();
        Ok(taken)
    }

    fn restore_state(
        &mut self,
        state: &StateRecord,
        interface: impl Fn(&str) -> Option<Interface>,
        compiled: &Compiled,
    ) -> Option<()> {
        let is_bound = !state.interface.is_empty();
        let bound_to = if is_bound { interface(&state.interface)? } else { Interface(0) };
        let record = self.record_of(state.rule, compiled);
        let hot = Hot {
            peers: state.peers,
            seen: (self.now_ms as u32).wrapping_sub(state.idle_ms),
            record,
            protocol: state.keys[0].protocol,
            flags: state_flags(state),
            class: state.class as u8,
            ..Hot::FREE
        };
        let cold = Cold {
            packets: state.packets,
            bytes: state.bytes,
            created_ms: self.now_ms.saturating_sub(state.age_ms),
            id: state.id,
            moved: state.moved,
            interface: bound_to,
            is_exported: state.is_exported,
        };
        let extra = self.extra_of(state, compiled.tags());
        let birth = NewState { keys: state.keys, hot, cold, extra, beside: NONE };
        let number = self.states.insert(birth).ok()?;
        self.skip_reported(number);
        self.record_rewrites(number);
        self.records.use_by_state(record, true);
        if let Some(rule) = self.records.rule(record) {
            self.counters.add_state(rule);
        }
        Some(())
    }

    fn extra_of(&self, state: &StateRecord, tags: &Tags) -> Option<Box<Extra>> {
        let creator = if state.creator == self.settings.host_id { 0 } else { state.creator };
        let is_plain = creator == 0 && state.wants.is_none();
        let wants = state.wants.as_deref().cloned().unwrap_or_default();
        let extra = Extra {
            scrub: wants.scrub,
            tos: wants.tos,
            priority: wants.priority,
            tag: tags.find_tag(&wants.tag).unwrap_or_default(),
            log_all: wants.log_all,
            routes: wants.routes,
            is_proxied: wants.is_proxied,
            creator,
            ..Extra::default()
        };
        (!is_plain).then(|| Box::new(extra))
    }

    /// The record of a rule by its number in the main rule set.
    fn record_of(&mut self, number: Option<u32>, compiled: &Compiled) -> u32 {
        let Some(number) = number else { return NONE };
        let id = RuleId(number);
        match compiled.rules().get(number as usize) {
            Some(found) if found.anchor.is_empty() => self.records.of_rule(id, found, None),
            _ => NONE,
        }
    }
}

fn state_flags(state: &StateRecord) -> u8 {
    let flags = [
        (state.direction == Direction::Out, flag::OUT),
        (!state.interface.is_empty(), flag::BOUND),
        (state.keys[0].family == Family::Inet6, flag::SIX),
        (state.is_sloppy, flag::SLOPPY),
        (state.moved != [0; 2], flag::MOVED),
    ];
    flags.iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag)
}

/// What a state wants of packets, if it wants anything that others should do as well.
fn state_actions(extra: &Extra, tags: &Tags) -> Option<StateActions> {
    let routes: [Option<IpAddr>; 2] = extra.routes;
    let wants = StateActions {
        tag: tags.name(extra.tag).to_string(),
        scrub: extra.scrub,
        tos: extra.tos,
        priority: extra.priority,
        log_all: extra.log_all,
        routes,
        is_proxied: extra.is_proxied,
    };
    (wants != StateActions::default()).then_some(wants)
}
