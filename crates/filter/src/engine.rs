//! The filter of one worker: what elements ask about each packet.
//!
//! A batch is tested in three passes, so that it waits for memory together: [`Filter::look`] takes each packet apart and asks
//! for a line of the index, [`Filter::approach`] asks for the lines of the state that it may have, [`Filter::test`] says what
//! becomes of it. Where there is a state, rules are not asked.
//!
//! Batches of which nearly all packets have states go by less than a look: [`Filter::glance`], [`Filter::approach_all`] and
//! [`Filter::pass_quickly`], or [`Filter::pass_through`] at two interfaces at once, and [`Filter::pass_behind`] where they leave
//! that had a state where they came in. [`Filter::end`] tells what was counted for rules meanwhile.
//!
//! A packet that passes may have been changed: addresses, ports, sequence numbers, whatever `scrub` and `set` say. What the
//! filter sends itself (resets, errors, handshakes in other hosts' place) is in [`Filter::take_answers`], what others should
//! know in [`Filter::take_events`].
mod answer;
mod control;
mod counted;
mod create;
mod exchange;
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

pub use answer::{Answer, Towards};
pub use control::{Killed, LimitStays, Part, Settings};
pub use counted::{Counted, InterfaceCounts, LimitCounter, Status};
pub use random::Random;
pub use runs::are_of_one_flow;
pub use through::{Glance, Through};

use crate::dissect::{At, Dissected, Reason, dissect};
use crate::evaluate::{Compiled, Counters, Routes, RuleId, Scratch};
use crate::facts::{Direction, Tag};
use crate::fragments::{Assembled, Fragments, Joined, must_not_be_one};
use crate::log::LogRecord;
use crate::options::{Limit, Timeout};
use crate::rule::Flush;
use crate::sources::{PoolUse, Sources};
use crate::states::{Extra, Key, NONE, Names, Records, StateId, States, flag};
use crate::timeouts::{OfRule, adapted, lifetime};
use crate::track::Stage;
use crate::translate::pool::Rotation;
use artery_rcu::Turn;
use quick::Quick;
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
    /// The rules.
    pub compiled: &'a Compiled,
    /// The turn that tables are read in.
    pub turn: &'a Turn<'r>,
    /// The routing table.
    pub routes: &'a dyn Routes,
    /// The names of interfaces, for the log.
    pub names: &'a dyn Names,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It goes on.
    Pass(Passed),
    /// It ends here.
    Drop(Reason),
    /// It is a fragment, and was taken; others are awaited.
    Kept,
    /// It was the last fragment of a packet, which is in [`Filter::take_assembled`] and is to be tested in its place.
    Assembled,
}

/// What a packet goes on with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Its state; told to [`Filter::look`] where the packet leaves, it saves a search.
    pub state: Option<StateId>,
    /// Its tag.
    pub tag: Tag,
    /// The priority that it gets.
    pub priority: Option<u8>,
    /// Whether it has a way of its own: [`Filter::way`].
    pub has_way: bool,
}

/// Where a packet goes instead of where it would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The routing table that it is looked up in: `rtable`.
    pub routing_table: Option<u32>,
    /// The neighbor that it is led to: `route-to` and `reply-to`.
    pub gateway: Option<IpAddr>,
}

/// A packet that was looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    hash: u64,
    quick: Quick,
    at: At,
    bucket: u32,
    /// The state that it may have.
    likely: u32,
    /// The state that it has where it came in.
    hint: u32,
}

/// What others should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A source has gone beyond what its rule allows, and belongs into a table.
    Overload {
        /// The source.
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
    settings: Settings,
    /// What this worker counts for rules.
    counters: Arc<Counters>,
    /// What batches have yet to tell these, by direction.
    tallies: [Tally; 2],
    states: States,
    records: Records,
    sources: Sources,
    fragments: Fragments,
    pools: HashMap<(RuleId, PoolUse), Rotation>,
    /// States by the address that `least-states` gave them.
    led: HashMap<IpAddr, u32>,
    random: Random,
    scratch: Scratch,
    worker: usize,
    counted: Counted,
    now_ms: u64,
    /// No state ends sooner than so long after a packet.
    least_lifetime_ms: u32,
    answers: Vec<Answer>,
    events: Vec<Event>,
    assembled: Option<Joined>,
    way: Way,
    /// Whether a state was ever there whose packets are changed.
    changes: bool,
    /// Where the search for states that are over goes on.
    hand: u32,
    swept_ms: u64,
}

impl Filter {
    /// A filter without states, for these rules; `worker` is the worker's number.
    pub fn new(settings: Settings, compiled: &Compiled, worker: usize, random: Random) -> io::Result<Filter> {
        let states = States::new(settings.limits.limit(Limit::States))?;
        let mut filter = Filter {
            settings,
            counters: Arc::new(Counters::new(compiled)),
            tallies: [Tally::EMPTY; 2],
            states,
            records: Records::default(),
            sources: Sources::default(),
            fragments: Fragments::default(),
            pools: HashMap::new(),
            led: HashMap::new(),
            random,
            scratch: Scratch::new(compiled, worker),
            worker,
            counted: Counted::default(),
            now_ms: 0,
            least_lifetime_ms: 0,
            answers: Vec::new(),
            events: Vec::new(),
            assembled: None,
            way: Way::default(),
            changes: false,
            hand: 0,
            swept_ms: 0,
        };
        filter.count_at(compiled.interfaces());
        filter.note_lifetimes();
        Ok(filter)
    }

    /// Begins a batch: the time, since any fixed instant.
    #[inline]
    pub fn begin(&mut self, now: Duration) {
        self.now_ms = now.as_secs().saturating_mul(1000).saturating_add(now.subsec_millis().into());
    }

    /// Looks at a packet that begins with its header of IP; `came` is the state that it had where it came in.
    #[inline]
    pub fn look(&self, bytes: &[u8], at: At, came: Option<StateId>) -> Look {
        let quick = Quick::of(bytes, at.direction);
        let hint = came.and_then(|came| self.states.resolve(came)).unwrap_or(NONE);
        let linked = self.states.link_of(hint);
        let mut look = Look { hash: 0, quick, at, bucket: NONE, likely: linked, hint };
        if linked != NONE {
            self.states.prefetch(linked);
        } else if let Some(hash) = self.hash(bytes, &look) {
            (look.hash, look.bucket) = (hash, self.states.begin(hash));
        }
        look
    }

    /// The hash of a packet's key, if it has one.
    #[inline]
    fn hash(&self, bytes: &[u8], look: &Look) -> Option<u64> {
        match look.quick.length {
            0 => Some(self.states.hash(&dissect(bytes).ok()?.key(look.at.direction))),
            _ => Some(self.states.hash_narrow(look.quick.narrow, look.quick.protocol)),
        }
    }

    /// Asks for the state that a packet may have.
    #[inline]
    pub fn approach(&self, look: &mut Look) {
        if look.bucket != NONE {
            look.likely = self.states.approach(look.hash, look.bucket);
        }
    }

    /// Says what becomes of a packet, and changes its bytes as is due. Counters of rules know of it at the [end](Filter::end) of
    /// its batch.
    #[inline]
    pub fn test(&mut self, bytes: &mut [u8], look: &Look, rules: &Rules<'_, '_>) -> Verdict {
        if rules.compiled.skips(look.at.interface) || !self.settings.is_enabled {
            return Verdict::Pass(Passed { tag: look.at.tag, ..Passed::default() });
        }
        let passed = match look.quick.length > 0 && !self.settings.is_thorough {
            true => self.test_quickly(bytes, look).or_else(|| self.test_elsewhere(bytes, look)),
            false => None,
        };
        match passed {
            Some(passed) => Verdict::Pass(passed),
            None => self.test_fully(bytes, look, rules),
        }
    }

    #[inline(never)]
    fn test_fully(&mut self, bytes: &mut [u8], look: &Look, rules: &Rules<'_, '_>) -> Verdict {
        let verdict = match dissect(bytes) {
            Ok(seen) => self.test_dissected(bytes, look, seen, rules),
            Err(reason) => Verdict::Drop(reason),
        };
        self.count(look, bytes, &verdict);
        verdict
    }

    fn test_dissected(
        &mut self,
        bytes: &mut [u8],
        look: &Look,
        mut seen: Dissected,
        rules: &Rules<'_, '_>,
    ) -> Verdict {
        if seen.is_fragment {
            return self.test_fragment(bytes, look, seen, rules);
        }
        if seen.is_icmp_error() {
            return self.test_error(bytes, look, seen, rules);
        }
        self.states.counters[0] += 1;
        if let Some(number) = self.find(look, &seen.key(look.at.direction))
            && let Some(verdict) = self.pass_known(number, bytes, &mut seen, look, rules)
        {
            return verdict;
        }
        self.ask(bytes, seen, look, rules)
    }

    /// The state of a packet; none that is over.
    fn find(&mut self, look: &Look, key: &Key) -> Option<u32> {
        let At { direction, interface, .. } = look.at;
        let number = match self.states.is(look.likely, key, direction, interface) {
            true => look.likely,
            false => self.states.find(key, self.states.hash(key), direction, interface)?,
        };
        if !self.is_over(number) {
            return Some(number);
        }
        self.end_state(number);
        None
    }

    /// Whether a state has lived for too long without a packet.
    fn is_over(&self, number: u32) -> bool {
        let age = (self.now_ms as u32).wrapping_sub(self.states.seen(number));
        if age < self.least_lifetime_ms {
            return false;
        }
        // A packet from the future, where the clock went back, was seen now.
        let age = age as i32;
        age >= 0 && age as u128 >= self.lifetime(number).as_millis()
    }

    fn lifetime(&self, number: u32) -> Duration {
        let hot = &self.states.hot[number as usize];
        let record = self.records.get(hot.record).filter(|record| record.has_own_timeouts);
        let of_rule = record.map(|record| OfRule { timeouts: &record.timeouts, states: record.states });
        lifetime(&self.settings.limits, hot.timeout(), self.states.len(), of_rule)
    }

    /// Puts fragments together if that is wanted; otherwise rules are asked, and no state is made.
    fn test_fragment(
        &mut self,
        bytes: &mut [u8],
        look: &Look,
        seen: Dissected,
        rules: &Rules<'_, '_>,
    ) -> Verdict {
        let Some(clears_df) = self.settings.reassemble else {
            return self.ask(bytes, seen, look, rules);
        };
        if must_not_be_one(bytes, &seen) && !clears_df {
            return Verdict::Drop(Reason::Fragment);
        }
        let limit = self.settings.limits.limit(Limit::Fragments);
        match self.fragments.add(bytes, &seen, self.now_ms, limit) {
            Assembled::Waiting => Verdict::Kept,
            Assembled::Dropped(reason) => Verdict::Drop(reason),
            Assembled::Whole(joined) => {
                self.assembled = Some(joined);
                Verdict::Assembled
            }
        }
    }

    /// The packet that fragments made.
    pub fn take_assembled(&mut self) -> Option<Joined> {
        self.assembled.take()
    }

    /// What the filter sends itself since this was last called.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Where the packet that passed last goes instead of where it would.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Whether packets may be changed for the sake of a state, whatever rules there are now.
    pub fn changes_packets(&self) -> bool {
        self.changes
    }

    /// Notes whether a new state changes packets.
    fn note_changes(&mut self, number: u32) {
        let hot = &self.states.hot[number as usize];
        let is_other = hot.has(flag::TRANSLATED | flag::MOVED) || hot.peers[0].stage >= Stage::PROXY_SOURCE;
        let writes = |extra: &Extra| extra.scrub.is_given || extra.tos.is_some();
        self.changes |= is_other || self.states.extra(number).is_some_and(writes);
    }

    /// Whether there are answers or events to take.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty() || !self.events.is_empty()
    }

    /// What others should know since this was last called.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn answer(&mut self, answer: Option<Answer>) {
        match answer {
            Some(answer) if self.answers.len() < MOST_WAITING => self.answers.push(answer),
            Some(_) => self.counted.lost_answers += 1,
            None => (),
        }
    }

    fn tell(&mut self, event: Event) {
        match self.events.len() < MOST_WAITING {
            true => self.events.push(event),
            false => self.counted.lost_events += 1,
        }
    }

    /// Removes a state, and what it counted for.
    fn end_state(&mut self, number: u32) {
        let record = self.states.hot[number as usize].record;
        let extra = self.states.remove(number);
        if let Some(rule) = self.records.rule(record) {
            self.counters.end_state(rule);
        }
        self.records.leave_by_state(record, true);
        let Some(extra) = extra else { return };
        extra.also.iter().for_each(|also| self.records.leave_by_state(*also, false));
        if let Some(address) = extra.led {
            self.leave_address(address);
        }
        let is_connection = [extra.is_connection, false];
        for (source, is_connection) in extra.sources.iter().zip(is_connection) {
            source.iter().for_each(|source| self.sources.end_state(*source, is_connection, self.now_ms));
        }
    }

    /// Notes that a state less leads to an address.
    fn leave_address(&mut self, address: IpAddr) {
        if let Some(states) = self.led.get_mut(&address) {
            *states -= 1;
            if *states == 0 {
                self.led.remove(&address);
            }
        }
    }

    /// Looks at up to `budget` states and forgets those that are over; now and then, at fragments and sources as well. Call
    /// it after each batch, and where nothing happens, too.
    pub fn maintain(&mut self, budget: usize) -> usize {
        let mut ended = 0;
        for _ in 0..budget.min(self.states.hot.len()) {
            let number = self.hand;
            self.hand = if number as usize + 1 >= self.states.hot.len() { 0 } else { number + 1 };
            if self.states.is_live(number) && self.is_over(number) {
                self.end_state(number);
                ended += 1;
            }
        }
        let interval = self.settings.limits.timeout(Timeout::Interval).as_millis() as u64;
        if self.now_ms.saturating_sub(self.swept_ms) >= interval {
            self.swept_ms = self.now_ms;
            self.sweep();
        }
        self.note_lifetimes();
        ended
    }

    fn sweep(&mut self) {
        let keep = |timeout| self.settings.limits.timeout(timeout).as_millis() as u64;
        let (fragment, source) = (keep(Timeout::Fragment), keep(Timeout::SourceTrack));
        self.fragments.expire(self.now_ms, fragment);
        self.sources.expire(self.now_ms, source);
    }

    /// Finds out for how long after a packet no state can be over.
    fn note_lifetimes(&mut self) {
        let start = self.settings.limits.timeouts[Timeout::AdaptiveStart as usize];
        let of_states = self.settings.limits.timeouts.iter().take(Timeout::Fragment as usize);
        let least = of_states.copied().min().unwrap_or(0);
        // Lifetimes shrink as states become more, but there are never more than the limit allows.
        let (count, limit) = (self.states.len(), self.settings.limits.limit(Limit::States));
        let shortest = match count <= start {
            true => Duration::from_secs(least.into()),
            false => adapted(&self.settings.limits, least, count.max(limit)),
        };
        let is_plain = self.records.with_timeouts == 0;
        self.least_lifetime_ms = if is_plain { shortest.as_millis().min(u32::MAX.into()) as u32 } else { 0 };
    }
}

/// Whether a packet that goes this way goes the way of a state's first packet.
#[inline(always)]
fn is_forward(direction: Direction, flags: u8) -> bool {
    (direction == Direction::Out) == (flags & flag::OUT != 0)
}
