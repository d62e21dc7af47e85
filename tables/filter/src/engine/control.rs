//! Operations of control on a worker's filter: loading rules, listing states, ending states.
use super::{Filter, FilterEvent};
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
pub struct FilterSettings {
    /// Timeouts and limits of the filter.
    pub limits: Limits,
    /// Whether fragments are put together, and then whether those are, too, that must not be any.
    pub reassemble: Option<bool>,
    /// Whether states are bound to interfaces if their rule does not say.
    pub is_bound: bool,
    /// The interface or group of `set loginterface`.
    pub log_interface: Option<InterfaceName>,
    /// The number that distinguishes this filter from others.
    pub host_id: u32,
    /// Whether packets are looked at at all: `pfctl -e` and `-d`.
    pub is_enabled: bool,
    /// Whether no packet takes the fast path: for tests, which compare it with the full path.
    pub is_thorough: bool,
}

impl Default for FilterSettings {
    /// The defaults of pf.conf(5).
    fn default() -> FilterSettings {
        FilterSettings {
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

impl FilterSettings {
    /// What the options of a rule set say.
    pub fn from_ruleset(ruleset: &Ruleset) -> FilterSettings {
        let mut settings = FilterSettings { limits: ruleset.effective_limits(), ..FilterSettings::default() };
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

/// The memory for a higher limit of states could not be reserved.
#[derive(Debug)]
pub struct StateLimitError {
    /// The limit that rules set.
    pub wanted: u32,
    /// The limit that holds as before.
    pub limit: u32,
    /// Why, as the system reports it.
    pub error: io::Error,
}

impl fmt::Display for StateLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateLimitError { wanted, limit, error } = self;
        let megabytes = Reservation::memory_size(*wanted) >> 20;
        write!(f, "no memory for {wanted} states, {megabytes} MiB: {error}; their limit stays {limit}")
    }
}

/// A range of the slots that states can have. A state keeps its slot while it lives: an iteration over one
/// range after another visits each state that lives throughout exactly once, and packets pass meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRange {
    /// The first slot of the range.
    pub from: u32,
    /// How many there are.
    pub places: u32,
}

impl StateRange {
    /// The range of all slots.
    pub const ALL: StateRange = StateRange { from: 0, places: u32::MAX };
}

/// How many states ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillCounts(pub usize);

impl Filter {
    /// Adds what this worker counted for itself to the counters of tables: before other rules are loaded, and
    /// when the counters are read.
    pub fn flush_table_counters(&mut self, compiled: &Compiled) {
        self.scratch.flush_counters(compiled);
    }

    /// Replaces the rules `before`. States stay, with the options of their rules. Rules whose rule set stays
    /// continue to count; the counters of others stop. If the memory for a higher limit of states can't be
    /// reserved, everything but that limit takes effect.
    pub fn load_rules(
        &mut self,
        settings: FilterSettings,
        before: &Compiled,
        compiled: &Compiled,
    ) -> Result<(), StateLimitError> {
        self.end_batch();
        let (wanted, limit) = (settings.limits.limit(Limit::States), self.states.limit());
        let limited = self.states.set_limit(wanted);
        self.settings = settings;
        let kept = compiled.kept_of(before);
        self.records.renumber_rules(&kept);
        let pools = std::mem::take(&mut self.pools).into_iter();
        self.pools = pools.filter_map(|((id, of), pool)| Some(((*kept.get(&id)?, of), pool))).collect();
        self.sources.renumber_rules(&kept);
        self.scratch = Scratch::new(compiled, self.worker);
        self.counters = Arc::new(Counters::inherit_counters(compiled, &self.counters, &kept));
        if let Some(moved) = before.tags().moved_to(compiled.tags()) {
            self.states.rename_tags(&moved);
        }
        if compiled.interface_count() != self.counted.interfaces.len() {
            self.count_at(compiled.interface_count());
        }
        self.update_least_lifetime();
        limited.map_err(|error| StateLimitError { wanted, limit, error })
    }

    /// What the options say.
    pub fn settings(&self) -> &FilterSettings {
        &self.settings
    }

    /// What this worker counts for the rules that it has.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// All states of this worker.
    pub fn states(&self) -> impl Iterator<Item = StateView<'_>> {
        self.states_in(StateRange::ALL)
    }

    /// The states of a part.
    pub fn states_in(&self, part: StateRange) -> impl Iterator<Item = StateView<'_>> {
        self.numbers_in(part).map(|number| self.state_view(number))
    }

    /// Where the next range begins; None after the last slot.
    pub fn next_start(&self, part: StateRange) -> Option<u32> {
        let next = part.from.saturating_add(part.places);
        ((next as usize) < self.states.hot.len()).then_some(next)
    }

    pub(super) fn numbers_in(&self, part: StateRange) -> impl Iterator<Item = u32> + use<'_> {
        let end = part.from.saturating_add(part.places).min(self.states.hot.len() as u32);
        (part.from..end).filter(|number| self.states.is_live(*number))
    }

    pub(super) fn state_view(&self, number: u32) -> StateView<'_> {
        let (hot, cold) = (self.states.unmerged(number), &self.states.cold[number as usize]);
        let age_ms = (self.now_ms as u32).wrapping_sub(hot.seen);
        let left = self.state_lifetime(number).as_millis().saturating_sub(age_ms.into());
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
        source.print_source(is_verbose.then_some((self.now_ms, kept_ms, rule)), out)
    }

    /// All sources of this worker.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }

    /// Ends states of a part: `pfctl -k` and `-F states`.
    pub fn end_in(&mut self, part: StateRange, mut is: impl FnMut(&StateView<'_>) -> bool) -> KillCounts {
        let ended: Vec<u32> = self.numbers_in(part).filter(|number| is(&self.state_view(*number))).collect();
        ended.iter().for_each(|number| self.end_state(*number));
        KillCounts(ended.len())
    }

    /// Forgets all sources: `pfctl -F Sources`.
    pub fn flush_sources(&mut self) -> KillCounts {
        KillCounts(self.sources.remove_matching(|_| true))
    }

    /// Forgets sources: `pfctl -K`.
    pub fn kill_sources(&mut self, is: impl FnMut(IpAddr) -> bool) -> KillCounts {
        KillCounts(self.sources.remove_matching(is))
    }

    /// Counts from nothing: `pfctl -F info`.
    pub fn clear_counted(&mut self) {
        self.end_batch();
        let interfaces = self.counted.interfaces.len();
        self.counted = super::FilterCounters::default();
        self.count_at(interfaces);
        self.states.counters = [0; 3];
        self.sources.counters = [0; 3];
        self.fragments.counters = [0; 3];
    }

    /// Makes the states of a source go, all or those of a record. They go with the next look at them, as a
    /// packet may be under way that has one.
    pub(super) fn end_states_of(&mut self, address: IpAddr, record: Option<u32>) {
        let numbers: Vec<u32> = self.states.live_numbers().collect();
        for number in numbers {
            let is_its = self.state_view(number).first_ends()[0] == address;
            let own = self.states.hot[number as usize].record;
            if is_its && record.is_none_or(|record| record == own) {
                self.make_dead(number);
            }
        }
    }

    /// Makes a state go by its timeout: none of its packets passes any more.
    pub(super) fn make_dead(&mut self, number: u32) {
        self.states.split_pair(number);
        let hot = &mut self.states.hot[number as usize];
        hot.peers.iter_mut().for_each(|peer| peer.stage = Stage::TIME_WAIT);
        hot.flags |= flag::EXTRA;
        self.states.set_class(number, Timeout::TcpClosed as u8);
        self.states.extra_mut(number).is_dead = true;
    }

    /// The pending events, without draining them.
    pub fn events(&self) -> &[FilterEvent] {
        &self.events
    }
}
