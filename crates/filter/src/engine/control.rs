//! What control asks of a worker's filter: other rules, lists of states, ends of states.
use super::{Event, Filter};
use crate::evaluate::{Compiled, Counters, Scratch};
use crate::options::{Limit, Limits, SetOption, Timeout};
use crate::rule::{InterfaceName, Ruleset};
use crate::sources::{Scope, Source};
use crate::states::{Reservation, StateView, flag};
use crate::track::Stage;
use std::fmt;
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
    /// The interface or group of `set loginterface`.
    pub log_interface: Option<InterfaceName>,
    /// What tells this filter from others.
    pub host_id: u32,
    /// Whether packets are looked at at all: `pfctl -e` and `-d`.
    pub is_enabled: bool,
    /// Whether no packet goes the quick way: for tests, which hold that against the full one.
    pub is_thorough: bool,
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
            is_thorough: false,
        }
    }
}

impl Settings {
    /// What the options of a rule set say.
    pub fn of(ruleset: &Ruleset) -> Settings {
        let mut settings = Settings { limits: ruleset.limits(), ..Settings::default() };
        for line in &ruleset.options {
            match &line.option {
                SetOption::Reassemble(is_on, clears_df) => settings.reassemble = is_on.then_some(*clears_df),
                SetOption::StatePolicy(is_bound) => settings.is_bound = *is_bound,
                SetOption::LogInterface(name) => settings.log_interface = name.clone(),
                SetOption::HostId(id) => settings.host_id = *id,
                _ => (),
            }
        }
        settings
    }
}

/// A higher limit of states for which there is no memory.
#[derive(Debug)]
pub struct LimitStays {
    /// The limit that rules ask for.
    pub wanted: u32,
    /// The limit that holds as before.
    pub limit: u32,
    /// Why.
    pub error: io::Error,
}

impl fmt::Display for LimitStays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitStays { wanted, limit, error } = self;
        let megabytes = Reservation::bytes(*wanted) >> 20;
        write!(f, "no memory for {wanted} states, {megabytes} MiB: {error}; their limit stays {limit}")
    }
}

/// Some of the places that states can have. A state keeps its place for as long as it lives: who goes through one part after
/// the other meets each that is there all the time once, and packets pass meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first place.
    pub from: u32,
    /// How many there are.
    pub places: u32,
}

impl Part {
    /// All places.
    pub const ALL: Part = Part { from: 0, places: u32::MAX };
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

    /// Takes other rules in the place of those `before`. States stay, with what their rules asked. Rules of which the rule set
    /// stays count on; the counters of others are counted no more. Where there is no memory for a higher limit of states, all
    /// holds but that.
    pub fn load(
        &mut self,
        settings: Settings,
        before: &Compiled,
        compiled: &Compiled,
    ) -> Result<(), LimitStays> {
        self.end();
        let (wanted, limit) = (settings.limits.limit(Limit::States), self.states.limit());
        let limited = self.states.set_limit(wanted);
        self.settings = settings;
        let kept = compiled.kept_of(before);
        self.records.follow(&kept);
        let pools = std::mem::take(&mut self.pools).into_iter();
        self.pools = pools.filter_map(|((id, of), pool)| Some(((*kept.get(&id)?, of), pool))).collect();
        self.sources.follow(&kept);
        self.scratch = Scratch::new(compiled, self.worker);
        self.counters = Arc::new(Counters::following(compiled, &self.counters, &kept));
        if let Some(moved) = before.tags().moved_to(compiled.tags()) {
            self.states.rename_tags(&moved);
        }
        if compiled.interfaces() != self.counted.interfaces.len() {
            self.count_at(compiled.interfaces());
        }
        self.note_lifetimes();
        limited.map_err(|error| LimitStays { wanted, limit, error })
    }

    /// What the options say.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What this worker counts for the rules that it has.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// All states.
    pub fn states(&self) -> impl Iterator<Item = StateView<'_>> {
        self.states_in(Part::ALL)
    }

    /// The states of a part.
    pub fn states_in(&self, part: Part) -> impl Iterator<Item = StateView<'_>> {
        self.numbers_in(part).map(|number| self.view(number))
    }

    /// Where the part begins that is next; None if there is no place behind this one.
    pub fn behind(&self, part: Part) -> Option<u32> {
        let next = part.from.saturating_add(part.places);
        ((next as usize) < self.states.hot.len()).then_some(next)
    }

    pub(super) fn numbers_in(&self, part: Part) -> impl Iterator<Item = u32> + use<'_> {
        let end = part.from.saturating_add(part.places).min(self.states.hot.len() as u32);
        (part.from..end).filter(|number| self.states.is_live(*number))
    }

    pub(super) fn view(&self, number: u32) -> StateView<'_> {
        let (hot, cold) = (self.states.alone(number), &self.states.cold[number as usize]);
        let age_ms = (self.now_ms as u32).wrapping_sub(hot.seen);
        let left = self.lifetime(number).as_millis().saturating_sub(age_ms.into());
        StateView {
            counts: cold.counts(&hot),
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

    /// Whether there is any state.
    pub fn has_states(&self) -> bool {
        self.states.len() > 0
    }

    /// Writes a source as `pfctl -s Sources` shows it, or as `-v -s Sources`.
    pub fn print_source(&self, source: &Source, is_verbose: bool, out: &mut impl fmt::Write) -> fmt::Result {
        let rule = match source.key.scope {
            Scope::Rule(record) => self.records.get(record).map(|record| record.number),
            Scope::Global | Scope::Pool(..) => None,
        };
        let kept_ms = self.settings.limits.timeout(Timeout::SourceTrack).as_millis() as u64;
        source.print(is_verbose.then_some((self.now_ms, kept_ms, rule)), out)
    }

    /// All sources.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }

    /// Ends states of a part: `pfctl -k` and `-F states`.
    pub fn end_in(&mut self, part: Part, mut is: impl FnMut(&StateView<'_>) -> bool) -> Killed {
        let ended: Vec<u32> = self.numbers_in(part).filter(|number| is(&self.view(*number))).collect();
        ended.iter().for_each(|number| self.end_state(*number));
        Killed(ended.len())
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
        self.end();
        let interfaces = self.counted.interfaces.len();
        self.counted = super::Counted::default();
        self.count_at(interfaces);
        self.states.counters = [0; 3];
        self.sources.counters = [0; 3];
        self.fragments.counters = [0; 3];
    }

    /// Makes the states of a source go, all or those of a record. They go with the next look at them, as a packet may be under
    /// way that has one.
    pub(super) fn end_states_of(&mut self, address: IpAddr, record: Option<u32>) {
        let numbers: Vec<u32> = self.states.numbers().collect();
        for number in numbers {
            let is_its = self.view(number).first_ends()[0] == address;
            let own = self.states.hot[number as usize].record;
            if is_its && record.is_none_or(|record| record == own) {
                self.make_dead(number);
            }
        }
    }

    /// Makes a state go by its timeout: none of its packets passes any more.
    pub(super) fn make_dead(&mut self, number: u32) {
        self.states.part(number);
        let hot = &mut self.states.hot[number as usize];
        hot.peers.iter_mut().for_each(|peer| peer.stage = Stage::TIME_WAIT);
        hot.flags |= flag::EXTRA;
        self.states.set_class(number, Timeout::TcpClosed as u8);
        self.states.extra_mut(number).is_dead = true;
    }

    /// The events that are told, without taking them.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}
