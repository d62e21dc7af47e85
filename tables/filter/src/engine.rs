//! The filter of one worker: its verdict on each packet.
//!
//! A batch is tested in three passes, so that the waits for memory overlap: [`Filter::prepare_lookup`]
//! parses each packet and prefetches a line of the index, [`Filter::prefetch_state`] prefetches the lines of
//! the candidate state, and [`Filter::test_packet`] returns the verdict. Rules are evaluated only for
//! packets without a state.
//!
//! Batches of which nearly all packets have states take less work per packet: [`Filter::parse_key`],
//! [`Filter::prefetch_states`] and [`Filter::pass_fast`], or [`Filter::pass_through`] for two interfaces at
//! once, and [`Filter::pass_linked`] at the outgoing interface for packets that had a state at the incoming
//! one. [`Filter::end_batch`] adds what was counted for rules meanwhile to their counters.
//!
//! A packet that passes may have been changed: addresses, ports, sequence numbers, whatever `scrub` and `set`
//! say. Packets that the filter itself sends (resets, errors, handshakes in other hosts' place) are in
//! [`Filter::drain_replies`], events for control in [`Filter::drain_events`].
mod answer;
mod control;
mod counted;
mod create;
mod exchange;
mod explain;
mod exported;
mod joined;
mod known;
mod proxy;
mod quick;
mod quoted;
mod random;
mod runs;
mod tally;
mod through;
mod translator;
mod view;

pub use answer::{ReplyDirection, ReplyPacket};
pub use control::{FilterSettings, KillCounts, StateLimitError, StateRange};
pub use counted::{FilterCounters, FilterStatus, InterfaceCounts, LimitCounter};
pub use explain::{FilterBasis, FilterExplanation};
pub use exported::{ExportedState, ReportReason};
pub use random::Random;
pub use runs::are_of_one_flow;
pub use through::{ParsedKey, ThroughVerdict};
pub use view::PacketView;

use crate::dissect::{Dissected, FilterDropReason, HookContext};
use crate::evaluate::{Compiled, Counters, Routes, RuleId, Scratch};
use crate::facts::{Direction, Tag};
use crate::fragments::{Fragments, ReassembledPacket, ReassemblyOutcome, must_not_be_one};
use crate::log::LogRecord;
use crate::options::{Limit, Timeout};
use crate::rule::Flush;
use crate::sources::{PoolUse, Sources};
use crate::states::{Extra, InterfaceLookup, Key, NONE, StateId, StateRuleRecords, States, flag};
use crate::timeouts::{RuleTimeouts, adapt_timeout, state_lifetime};
use crate::track::Stage;
use crate::translate::pool::Rotation;
use artery_rcu::Turn;
use exported::Exports;
use quick::FastPathHeader;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;

/// Most answers and events that wait to be taken.
const MOST_WAITING: usize = 1024;

/// What a worker knows of the rules in a turn.
#[derive(Clone, Copy)]
pub struct Rules<'a, 'r> {
    /// The compiled rules and their anchors.
    pub compiled: &'a Compiled,
    /// The turn that tables are read in.
    pub turn: &'a Turn<'r>,
    /// The routing table that rules may refer to.
    pub routes: &'a dyn Routes,
    /// The names of interfaces, for the log.
    pub names: &'a dyn InterfaceLookup,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FilterVerdict {
    /// It passes, with these results.
    Pass(Passed),
    /// It is dropped, for this reason.
    Drop(FilterDropReason),
    /// It is a fragment, and was taken; others are awaited.
    Kept,
    /// It was the last fragment of a packet, which is in [`Filter::pop_assembled`] and is to be
    /// tested in its place.
    Assembled,
}

/// What a packet goes on with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Its state. Handed to [`Filter::prepare_lookup`] where the packet leaves, it saves a search.
    pub state: Option<StateId>,
    /// The tag that rules gave it; 0 is none.
    pub tag: Tag,
    /// The priority that it gets.
    pub priority: Option<u8>,
    /// Whether rules chose its route: see [`Filter::route_to`].
    pub has_way: bool,
}

/// Where a packet goes instead of where it would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTo {
    /// The routing table that it is looked up in: `rtable`.
    pub routing_table: Option<u32>,
    /// The neighbor that it is sent to: `route-to` and `reply-to`.
    pub gateway: Option<IpAddr>,
}

/// A packet that was looked at.
#[derive(Clone, Copy, Debug)]
pub struct PacketLookup {
    hash: u64,
    view: PacketView,
    /// That of the view, as packets in this direction have it.
    header: FastPathHeader,
    at: HookContext,
    bucket: u32,
    /// The state that it may have.
    candidate: u32,
    /// The state that it has where it came in.
    hint: u32,
}

/// What others should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterEvent {
    /// A source has gone beyond what its rule allows, and belongs into a table.
    Overload {
        /// The source address that exceeded a limit.
        address: IpAddr,
        /// The path of the anchor whose rule says so.
        anchor: Arc<str>,
        /// The name that rules there have for the table.
        table: Arc<str>,
        /// Which of its states have been ended.
        flush: Flush,
    },
    /// A packet is logged.
    Log(LogRecord),
}

/// The filter of one worker.
pub struct Filter {
    settings: FilterSettings,
    /// What this worker counts for rules.
    counters: Arc<Counters>,
    /// What batches have yet to add to these, by direction.
    tallies: [Tally; 2],
    states: States,
    records: StateRuleRecords,
    sources: Sources,
    fragments: Fragments,
    pools: HashMap<(RuleId, PoolUse), Rotation>,
    /// States by the address that `least-states` gave them.
    assigned: HashMap<IpAddr, u32>,
    random: Random,
    scratch: Scratch,
    worker: usize,
    counted: FilterCounters,
    now_ms: u64,
    /// No state ends sooner than so long after a packet.
    least_lifetime_ms: u32,
    answers: Vec<ReplyPacket>,
    events: Vec<FilterEvent>,
    assembled: Option<ReassembledPacket>,
    route_to: RouteTo,
    /// Whether a state was ever there whose packets are changed.
    rewrites: bool,
    /// States that others export; None where they are not exported.
    exports: Option<Exports>,
    /// Where the search for states that are over goes on.
    sweep_cursor: u32,
    swept_ms: u64,
}

impl Filter {
    /// A filter without states, for these rules; `worker` is the worker's number.
    pub fn new(
        settings: FilterSettings,
        compiled: &Compiled,
        worker: usize,
        random: Random,
    ) -> io::Result<Filter> {
        let states = States::new(settings.limits.limit(Limit::States))?;
        let mut filter = Filter {
            settings,
            counters: Arc::new(Counters::new(compiled)),
            tallies: [Tally::EMPTY; 2],
            states,
            records: StateRuleRecords::default(),
            sources: Sources::default(),
            fragments: Fragments::default(),
            pools: HashMap::new(),
            assigned: HashMap::new(),
            random,
            scratch: Scratch::new(compiled, worker),
            worker,
            counted: FilterCounters::default(),
            now_ms: 0,
            least_lifetime_ms: 0,
            answers: Vec::new(),
            events: Vec::new(),
            assembled: None,
            route_to: RouteTo::default(),
            rewrites: false,
            exports: None,
            sweep_cursor: 0,
            swept_ms: 0,
        };
        filter.count_at(compiled.interface_count());
        filter.update_least_lifetime();
        Ok(filter)
    }

    /// Begins a batch: the time, since any fixed instant.
    #[inline]
    pub fn begin_batch(&mut self, now: Duration) {
        self.now_ms = now.as_secs().saturating_mul(1000).saturating_add(now.subsec_millis().into());
    }

    /// Looks at a packet that begins with its header of IP; `came` is the state that it had where it came in.
    #[inline]
    pub fn prepare_lookup(&self, bytes: &[u8], at: HookContext, came: Option<StateId>) -> PacketLookup {
        self.prepare_parsed(PacketView::parse(bytes), at, came)
    }

    /// The same for a packet of which this was parsed.
    #[inline]
    pub fn prepare_parsed(&self, view: PacketView, at: HookContext, came: Option<StateId>) -> PacketLookup {
        let header = view.header_in(at.direction);
        let hint = came.and_then(|came| self.states.resolve_id(came)).unwrap_or(NONE);
        let linked = self.states.link_of(hint);
        let mut look = PacketLookup { hash: 0, view, header, at, bucket: NONE, candidate: linked, hint };
        if linked != NONE {
            self.states.prefetch(linked);
        } else if let Some(hash) = self.hash(&look) {
            (look.hash, look.bucket) = (hash, self.states.prefetch_bucket(hash));
        }
        look
    }

    /// The hash of a packet's key, if it has one.
    #[inline]
    fn hash(&self, look: &PacketLookup) -> Option<u64> {
        match look.header.length {
            0 => Some(self.states.hash(&look.view.key(look.at.direction)?)),
            _ => Some(self.states.hash_narrow(look.header.narrow, look.header.protocol)),
        }
    }

    /// Asks for the state that a packet may have.
    #[inline]
    pub fn prefetch_state(&self, look: &mut PacketLookup) {
        if look.bucket != NONE {
            look.candidate = self.states.prefetch_candidate(look.hash, look.bucket);
        }
    }

    /// Returns the verdict for a packet, and changes its bytes accordingly. Counters of rules are updated at
    /// the [end](Filter::end_batch) of its batch. What has to be parsed for it is in the lookup's
    /// [view](PacketLookup::view) afterwards.
    #[inline]
    pub fn test_packet(
        &mut self,
        bytes: &mut [u8],
        look: &mut PacketLookup,
        rules: &Rules<'_, '_>,
    ) -> FilterVerdict {
        if rules.compiled.skips_interface(look.at.interface) || !self.settings.is_enabled {
            return FilterVerdict::Pass(Passed { tag: look.at.tag, ..Passed::default() });
        }
        let passed = match look.header.length > 0 && !self.settings.is_thorough {
            true => self.test_fast(bytes, look).or_else(|| self.test_elsewhere(bytes, look)),
            false => None,
        };
        match passed {
            Some(passed) => FilterVerdict::Pass(passed),
            None => self.test_fully(bytes, look, rules),
        }
    }

    #[inline(never)]
    fn test_fully(
        &mut self,
        bytes: &mut [u8],
        look: &mut PacketLookup,
        rules: &Rules<'_, '_>,
    ) -> FilterVerdict {
        let verdict = match look.view.dissect(bytes) {
            Ok(seen) => self.test_dissected(bytes, look, seen, rules),
            Err(reason) => FilterVerdict::Drop(reason),
        };
        self.count_verdict(look, bytes, &verdict);
        verdict
    }

    fn test_dissected(
        &mut self,
        bytes: &mut [u8],
        look: &PacketLookup,
        mut seen: Dissected,
        rules: &Rules<'_, '_>,
    ) -> FilterVerdict {
        if seen.is_fragment {
            return self.test_fragment(bytes, look, seen, rules);
        }
        if seen.is_icmp_error() {
            return self.test_error(bytes, look, seen, rules);
        }
        self.states.counters[0] += 1;
        if let Some(number) = self.find_state(look, &seen.state_key(look.at.direction))
            && let Some(verdict) = self.pass_by_state(number, bytes, &mut seen, look, rules)
        {
            return verdict;
        }
        self.evaluate_rules(bytes, seen, look, rules)
    }

    /// The state of a packet; none that is over.
    fn find_state(&mut self, look: &PacketLookup, key: &Key) -> Option<u32> {
        let HookContext { direction, interface, .. } = look.at;
        let number = match self.states.is_match(look.candidate, key, direction, interface) {
            true => look.candidate,
            false => self.states.find_state(key, self.states.hash(key), direction, interface)?,
        };
        if !self.is_over(number) {
            return Some(number);
        }
        self.end_state(number);
        None
    }

    /// Whether a state has lived for too long without a packet.
    fn is_over(&self, number: u32) -> bool {
        let age = (self.now_ms as u32).wrapping_sub(self.states.last_seen(number));
        if age < self.least_lifetime_ms {
            return false;
        }
        // A packet from the future, where the clock went back, was seen now.
        let age = age as i32;
        age >= 0 && age as u128 >= self.state_lifetime(number).as_millis()
    }

    fn state_lifetime(&self, number: u32) -> Duration {
        let hot = &self.states.hot[number as usize];
        let record = self.records.get(hot.record).filter(|record| record.has_own_timeouts);
        let of_rule = record.map(|record| RuleTimeouts { timeouts: &record.timeouts, states: record.states });
        state_lifetime(&self.settings.limits, hot.timeout_kind(), self.states.len(), of_rule)
    }

    /// Reassembles fragments if that is set; otherwise rules are evaluated, and no state is made.
    fn test_fragment(
        &mut self,
        bytes: &mut [u8],
        look: &PacketLookup,
        seen: Dissected,
        rules: &Rules<'_, '_>,
    ) -> FilterVerdict {
        let Some(clears_df) = self.settings.reassemble else {
            return self.evaluate_rules(bytes, seen, look, rules);
        };
        if must_not_be_one(bytes, &seen) && !clears_df {
            return FilterVerdict::Drop(FilterDropReason::Fragment);
        }
        let limit = self.settings.limits.limit(Limit::Fragments);
        match self.fragments.add_fragment(bytes, &seen, self.now_ms, limit) {
            ReassemblyOutcome::Waiting => FilterVerdict::Kept,
            ReassemblyOutcome::Dropped(reason) => FilterVerdict::Drop(reason),
            ReassemblyOutcome::Whole(joined) => {
                self.assembled = Some(joined);
                FilterVerdict::Assembled
            }
        }
    }

    /// The packet that fragments made.
    pub fn pop_assembled(&mut self) -> Option<ReassembledPacket> {
        self.assembled.take()
    }

    /// What the filter sends itself since this was last called.
    pub fn drain_replies(&mut self) -> Vec<ReplyPacket> {
        std::mem::take(&mut self.answers)
    }

    /// Where the packet that passed last goes instead of where it would.
    pub fn route_to(&self) -> RouteTo {
        self.route_to
    }

    /// Whether packets may be changed for the sake of a state, whatever rules there are now.
    pub fn changes_packets(&self) -> bool {
        self.rewrites
    }

    /// Records whether a new state changes packets.
    fn record_rewrites(&mut self, number: u32) {
        let hot = &self.states.hot[number as usize];
        let is_other =
            hot.has_flag(flag::TRANSLATED | flag::MOVED) || hot.peers[0].stage >= Stage::PROXY_SOURCE;
        let writes = |extra: &Extra| extra.scrub.is_given || extra.tos.is_some();
        self.rewrites |= is_other || self.states.extra(number).is_some_and(writes);
    }

    /// Whether there are answers or events to take.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty() || !self.events.is_empty()
    }

    /// What others should know since this was last called.
    pub fn drain_events(&mut self) -> Vec<FilterEvent> {
        std::mem::take(&mut self.events)
    }

    fn queue_reply(&mut self, answer: Option<ReplyPacket>) {
        match answer {
            Some(answer) if self.answers.len() < MOST_WAITING => self.answers.push(answer),
            Some(_) => self.counted.lost_answers += 1,
            None => (),
        }
    }

    fn queue_event(&mut self, event: FilterEvent) {
        if self.events.len() < MOST_WAITING { self.events.push(event) } else { self.counted.lost_events += 1 }
    }

    /// Removes a state, and what it counted for.
    fn end_state(&mut self, number: u32) {
        self.report_end(number);
        let record = self.states.hot[number as usize].record;
        let extra = self.states.remove(number);
        if let Some(rule) = self.records.rule(record) {
            self.counters.end_state(rule);
        }
        self.records.leave_by_state(record, true);
        let Some(extra) = extra else { return };
        extra.also.iter().for_each(|also| self.records.leave_by_state(*also, false));
        if let Some(address) = extra.assigned {
            self.leave_address(address);
        }
        let is_connection = [extra.is_connection, false];
        for (source, is_connection) in extra.sources.iter().zip(is_connection) {
            source.iter().for_each(|source| self.sources.end_state(*source, is_connection, self.now_ms));
        }
    }

    /// Counts one state less for an address.
    fn leave_address(&mut self, address: IpAddr) {
        if let Some(states) = self.assigned.get_mut(&address) {
            *states -= 1;
            if *states == 0 {
                self.assigned.remove(&address);
            }
        }
    }

    /// Looks at up to `budget` states and forgets those that are over; now and then, at fragments and sources
    /// as well. Call it after each batch, and where nothing happens, too.
    pub fn purge_expired(&mut self, budget: usize) -> usize {
        let mut ended = 0;
        for _ in 0..budget.min(self.states.hot.len()) {
            let number = self.sweep_cursor;
            self.sweep_cursor = if number as usize + 1 >= self.states.hot.len() { 0 } else { number + 1 };
            match self.states.is_live(number) {
                true if self.is_over(number) => {
                    self.end_state(number);
                    ended += 1;
                }
                true => self.report_active(number),
                false => {}
            }
        }
        let interval = self.settings.limits.timeout(Timeout::Interval).as_millis() as u64;
        if self.now_ms.saturating_sub(self.swept_ms) >= interval {
            self.swept_ms = self.now_ms;
            self.purge_tables();
        }
        self.update_least_lifetime();
        ended
    }

    fn purge_tables(&mut self) {
        let keep = |timeout| self.settings.limits.timeout(timeout).as_millis() as u64;
        let (fragment, source) = (keep(Timeout::Fragment), keep(Timeout::SourceTrack));
        self.fragments.expire_packets(self.now_ms, fragment);
        self.sources.expire_idle(self.now_ms, source);
    }

    /// Finds out for how long after a packet no state can be over.
    fn update_least_lifetime(&mut self) {
        let start = self.settings.limits.timeouts[Timeout::AdaptiveStart as usize];
        let of_states = self.settings.limits.timeouts.iter().take(Timeout::Fragment as usize);
        let least = of_states.copied().min().unwrap_or(0);
        // Lifetimes shrink as states become more, but there are never more than the limit allows.
        let (count, limit) = (self.states.len(), self.settings.limits.limit(Limit::States));
        let shortest = match count <= start {
            true => Duration::from_secs(least.into()),
            false => adapt_timeout(&self.settings.limits, least, count.max(limit)),
        };
        let is_plain = self.records.with_timeouts == 0;
        self.least_lifetime_ms = if is_plain { shortest.as_millis().min(u32::MAX.into()) as u32 } else { 0 };
    }
}

/// Whether a packet of this direction goes in the direction of a state's first packet.
#[inline(always)]
fn is_forward(direction: Direction, flags: u8) -> bool {
    (direction == Direction::Out) == (flags & flag::OUT != 0)
}
