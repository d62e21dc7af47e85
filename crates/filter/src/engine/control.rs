//! What control asks of a worker's filter: other rules, lists of states, ends of states, dumps.
use super::{Event, Filter};
use crate::evaluate::{Compiled, Counters, RuleId, Scratch};
use crate::facts::Interface;
use crate::options::{Limit, Limits, SetOption};
use crate::rule::Ruleset;
use crate::sources::Source;
use crate::states::{Birth, Cold, DumpError, Dumped, Extra, Hot, Kill, NONE, Names, StateView, flag};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// What options say that the filter itself must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Timeouts and limits.
    pub limits: Limits,
    /// Whether fragments are put together, and then whether those are, too, that must not be any.
    pub reassemble: Option<bool>,
    /// Whether states are bound to interfaces if their rule does not say.
    pub is_bound: bool,
    /// The interface of `set loginterface`.
    pub log_interface: Option<Interface>,
    /// What tells this filter from others.
    pub host_id: u32,
    /// Whether packets are looked at at all: `pfctl -e` and `-d`.
    pub is_enabled: bool,
}

impl Default for Settings {
    /// As in pf.conf(5).
    fn default() -> Settings {
        Settings {
            limits: Limits::default(),
            reassemble: Some(false),
            is_bound: false,
            log_interface: None,
            host_id: 1,
            is_enabled: true,
        }
    }
}

impl Settings {
    /// What the options of a rule set say; `interface` knows interfaces by name.
    pub fn of(ruleset: &Ruleset, interface: impl Fn(&str) -> Option<Interface>) -> Settings {
        let mut settings = Settings { limits: ruleset.limits(), ..Settings::default() };
        for line in &ruleset.options {
            match &line.option {
                SetOption::Reassemble(is_on, clears_df) => settings.reassemble = is_on.then_some(*clears_df),
                SetOption::StatePolicy(is_bound) => settings.is_bound = *is_bound,
                SetOption::LogInterface(name) => {
                    settings.log_interface = name.as_ref().and_then(|name| interface(&name.0));
                }
                SetOption::HostId(id) => settings.host_id = *id,
                _ => (),
            }
        }
        settings
    }
}

/// How much ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Killed(pub usize);

impl Filter {
    /// Adds what this worker counted for itself to the counters of tables: before other rules are loaded, and when the
    /// counters are asked for.
    pub fn tell_tables(&mut self, compiled: &Compiled) {
        self.scratch.tell(compiled);
    }

    /// Takes other rules. States stay, with what their rules asked; the counters of those are counted no more.
    pub fn load(&mut self, settings: Settings, compiled: &Compiled) -> io::Result<()> {
        self.states.set_limit(settings.limits.limit(Limit::States))?;
        self.settings = settings;
        self.records.forget_rules();
        self.pools.clear();
        self.scratch = Scratch::new(compiled, self.worker);
        self.counters = Arc::new(Counters::new(compiled));
        self.note_lifetimes();
        Ok(())
    }

    /// What the options say.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What this worker counts for the rules that it has.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Turns the filter on or off; states stay.
    pub fn enable(&mut self, is_enabled: bool) {
        self.settings.is_enabled = is_enabled;
    }

    /// All states.
    pub fn states(&self) -> impl Iterator<Item = StateView<'_>> {
        self.states.numbers().map(|number| self.view(number))
    }

    fn view(&self, number: u32) -> StateView<'_> {
        let (hot, cold) =
            (&self.states.entries[number as usize].hot, &self.states.entries[number as usize].cold);
        let age_ms = (self.now_ms as u32).wrapping_sub(hot.seen);
        let left = self.lifetime(number).as_millis().saturating_sub(age_ms.into());
        StateView {
            counts: self.states.entries[number as usize].counts(),
            hot,
            cold,
            extra: self.states.extra(number),
            keys: [0, 1].map(|side| self.states.key(number, side)),
            record: self.records.get(hot.record),
            now_ms: self.now_ms,
            expires_in_s: (left / 1000) as u64,
            host_id: self.settings.host_id,
        }
    }

    /// All sources.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }

    /// States that a rule made and that are still there.
    pub fn states_of(&self, rule: RuleId) -> u32 {
        self.records.find(rule).map_or(0, |record| record.states)
    }

    /// Ends states: `pfctl -k`.
    pub fn kill(&mut self, kill: &Kill) -> Killed {
        self.end_where(|state| kill.means(state))
    }

    /// Ends all states: `pfctl -F states`.
    pub fn flush_states(&mut self) -> Killed {
        self.end_where(|_| true)
    }

    /// Forgets all sources: `pfctl -F Sources`.
    pub fn flush_sources(&mut self) -> Killed {
        Killed(self.sources.kill(|_| true))
    }

    /// Forgets sources: `pfctl -K`.
    pub fn kill_sources(&mut self, is: impl FnMut(IpAddr) -> bool) -> Killed {
        Killed(self.sources.kill(is))
    }

    /// Counts from nothing: `pfctl -F info`.
    pub fn clear_counted(&mut self) {
        self.counted = super::Counted::default();
        self.states.counters = [0; 3];
        self.sources.counters = [0; 3];
        self.fragments.counters = [0; 3];
    }

    fn end_where(&mut self, mut is: impl FnMut(&StateView<'_>) -> bool) -> Killed {
        let ended: Vec<u32> = self.states.numbers().filter(|number| is(&self.view(*number))).collect();
        ended.iter().for_each(|number| self.end_state(*number));
        Killed(ended.len())
    }

    /// Makes the states of a source go, all or those of a record. They go with the next look at them, as a packet may be under
    /// way that has one.
    pub(super) fn end_states_of(&mut self, address: IpAddr, record: Option<u32>) {
        let numbers: Vec<u32> = self.states.numbers().collect();
        for number in numbers {
            let is_its = self.view(number).first_ends()[0] == address;
            let hot = &mut self.states.entries[number as usize].hot;
            if is_its && record.is_none_or(|record| record == hot.record) {
                hot.peers.iter_mut().for_each(|peer| peer.stage = crate::track::Stage::TIME_WAIT);
                self.states.set_class(number, crate::options::Timeout::TcpClosed as u8);
                self.states.entries[number as usize].hot.flags |= flag::EXTRA;
                self.states.extra_mut(number).is_dead = true;
            }
        }
    }

    /// All states as bytes: `pfctl -S`.
    pub fn dump(&self, names: &dyn Names) -> Vec<u8> {
        let mut bytes = crate::states::MAGIC.to_vec();
        for number in self.states.numbers() {
            let hot = &self.states.entries[number as usize].hot;
            if hot.peers.iter().all(|peer| peer.stage.tcp_name().is_some()) {
                self.dumped(number, names).write(&mut bytes);
            }
        }
        bytes
    }

    fn dumped(&self, number: u32, names: &dyn Names) -> Dumped {
        let view = self.view(number);
        let (hot, cold) = (view.hot, view.cold);
        let interface = if hot.has(flag::BOUND) { names.interface(cold.interface) } else { "" };
        let record = view.record.filter(|record| record.anchor_number.is_none() && record.rule.is_some());
        Dumped {
            id: cold.id,
            creator: if view.creator() == 0 { self.settings.host_id } else { view.creator() },
            direction: view.direction(),
            interface: interface.to_string(),
            keys: view.keys,
            peers: hot.peers,
            moved: cold.moved,
            class: hot.timeout(),
            is_sloppy: hot.has(flag::SLOPPY),
            packets: view.counts.0,
            bytes: view.counts.1,
            age_ms: self.now_ms.saturating_sub(cold.created_ms),
            idle_ms: (self.now_ms as u32).wrapping_sub(hot.seen),
            rule: record.map(|record| record.number),
        }
    }

    /// Takes states of a dump: `pfctl -L`. Those that are there already, or that there is no room for, are passed over.
    pub fn restore(
        &mut self,
        bytes: &[u8],
        interface: impl Fn(&str) -> Option<Interface>,
        compiled: &Compiled,
    ) -> Result<usize, DumpError> {
        let states = Dumped::read_all(bytes)?;
        let taken = states.iter().filter(|state| self.take(state, &interface, compiled).is_some());
        Ok(taken.count())
    }

    fn take(
        &mut self,
        state: &Dumped,
        interface: impl Fn(&str) -> Option<Interface>,
        compiled: &Compiled,
    ) -> Option<()> {
        let is_bound = !state.interface.is_empty();
        let bound_to = if is_bound { interface(&state.interface)? } else { Interface(0) };
        let record = self.record_of(state.rule, compiled);
        let flags = [
            (state.direction == crate::facts::Direction::Out, flag::OUT),
            (is_bound, flag::BOUND),
            (state.keys[0].family == crate::facts::Family::Inet6, flag::SIX),
            (state.is_sloppy, flag::SLOPPY),
            (state.moved != [0; 2], flag::MOVED),
        ];
        let hot = Hot {
            peers: state.peers,
            seen: (self.now_ms as u32).wrapping_sub(state.idle_ms),
            record,
            protocol: state.keys[0].protocol,
            flags: flags.iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag),
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
        };
        let is_own = state.creator == self.settings.host_id;
        let extra = (!is_own).then(|| Box::new(Extra { creator: state.creator, ..Extra::default() }));
        self.states.insert(Birth { keys: state.keys, hot, cold, extra }).ok()?;
        self.records.use_by_state(record, true);
        if let Some(rule) = self.records.rule(record) {
            self.counters.add_state(rule);
        }
        Some(())
    }

    /// The record of a rule by its number in the main rule set.
    fn record_of(&mut self, number: Option<u32>, compiled: &Compiled) -> u32 {
        let Some(number) = number else { return NONE };
        let id = RuleId(number);
        match compiled.rules().get(number as usize) {
            Some(found) if found.anchor.is_empty() => self.records.of_rule(id, &found.rule, number, None),
            _ => NONE,
        }
    }

    /// The events that are told, without taking them.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}
