//! The table of states: their lines, and the index by which they are found.
//!
//! A state that leads to another of the same connection has it beside it where there was room: both lines are
//! known, and can be asked for, as soon as one is.
use super::entry::Wide;
use super::reservation::{self, Reservation};
use super::{Cold, Extra, Hot, HotLines, Key, NONE, NarrowKey, Secret, StateId, flag};
use crate::facts::{Direction, Family, Interface, Tag};
use artery_storage::prefetch;
use artery_storage::{BEYOND_LINE, NO_ENTRY, TagIndex};
use std::collections::HashMap;
use std::io;

/// Most buckets that are split or merged for a state.
const STEPS: usize = 2;

/// Where keys are in pairs of them.
const WIRE: usize = 0;
const STACK: usize = 1;

/// All states of a worker. A state's keys are in the index by twice its number, plus one for
/// that of the stack.
pub(crate) struct States {
    index: TagIndex,
    pub(crate) hot: HotLines,
    pub(crate) cold: Vec<Cold>,
    wide: Vec<Wide>,
    extra: Vec<Option<Box<Extra>>>,
    /// Pairs of places without a state: the numbers of their first ones.
    free: Vec<u32>,
    count: u32,
    secret: Secret,
    limit: u32,
    keys: u32,
    next_id: u64,
    pub(crate) half_open: u32,
    /// States that hold at one interface only, by that.
    pub(crate) bound: HashMap<Interface, u32>,
    /// How often states were looked for, came and went.
    pub(crate) counters: [u64; 3],
}

/// What a state begins with.
pub(crate) struct NewState {
    pub(crate) keys: [Key; 2],
    pub(crate) hot: Hot,
    pub(crate) cold: Cold,
    pub(crate) extra: Option<Box<Extra>>,
    /// The state of the same connection at another interface, or NONE.
    pub(crate) beside: u32,
}

/// Why a state could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CannotInsert {
    /// There are as many as there may be.
    Full,
    /// There is one with one of its keys.
    Taken,
}

impl States {
    pub(crate) fn new(limit: u32) -> io::Result<States> {
        let reserved = reservation::reserved_states(limit);
        let Reservation { index, hot } = Reservation::new(limit)?;
        Ok(States {
            index,
            hot,
            cold: with_room(reserved)?,
            wide: with_room(reserved)?,
            extra: with_room(reserved)?,
            free: Vec::new(),
            count: 0,
            secret: Secret::random(),
            limit,
            keys: 0,
            next_id: 1,
            bound: HashMap::new(),
            half_open: 0,
            counters: [0; 3],
        })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// How many there may be.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Allows another number of states; those above it stay until they end. Without memory for
    /// more the limit stays.
    pub(crate) fn set_limit(&mut self, limit: u32) -> io::Result<()> {
        if limit > self.limit {
            let mut index = reservation::index(limit)?;
            self.hot.make_room(reservation::reserved_states(limit))?;
            std::mem::swap(&mut self.index, &mut index);
            self.keys = 0;
            let numbers: Vec<u32> = self.live_numbers().collect();
            numbers.iter().for_each(|number| {
                self.index_keys(*number);
            });
        }
        self.limit = limit;
        Ok(())
    }

    pub(crate) fn is_live(&self, number: u32) -> bool {
        self.hot.get(number).is_some_and(|hot| hot.has_flag(flag::LIVE))
    }

    /// The number of a state, if there is one; it may be another by now.
    #[inline]
    pub(crate) fn resolve_id(&self, id: StateId) -> Option<u32> {
        self.is_live(id.number).then_some(id.number)
    }

    #[inline]
    pub(crate) fn state_id(&self, number: u32) -> StateId {
        StateId { number }
    }

    /// A key of a state: that of the wire, or that of the stack.
    pub(crate) fn key(&self, number: u32, side: usize) -> Key {
        key_of(&self.hot, &self.wide, number, side)
    }

    pub(crate) fn extra(&self, number: u32) -> Option<&Extra> {
        self.extra[number as usize].as_deref()
    }

    /// What few states have, to change, if this one has it.
    pub(crate) fn extra_of(&mut self, number: u32) -> Option<&mut Extra> {
        self.extra[number as usize].as_deref_mut()
    }

    pub(crate) fn extra_mut(&mut self, number: u32) -> &mut Extra {
        self.split_pair(number);
        self.hot[number as usize].flags |= flag::EXTRA;
        self.extra[number as usize].get_or_insert_default()
    }

    /// Renumbers tags; one without a new number becomes no tag.
    pub(crate) fn rename_tags(&mut self, moved: &[Tag]) {
        for extra in self.extra.iter_mut().flatten() {
            let place = usize::from(extra.tag.0).checked_sub(1);
            extra.tag = place.and_then(|place| moved.get(place)).copied().unwrap_or_default();
        }
    }

    /// The numbers of all states.
    pub(crate) fn live_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.hot.len() as u32).filter(|n| self.is_live(*n))
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.secret.hash(key)
    }

    /// The hash of a key of IPv4, by its narrow part.
    #[inline(always)]
    pub(crate) fn hash_narrow(&self, narrow: NarrowKey, protocol: u8) -> u64 {
        self.secret.hash_narrow(narrow, protocol)
    }

    /// Asks for the line of the index in which a hash is; says which it is.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, hash: u64) -> u32 {
        self.index.begin(hash)
    }

    /// Asks again for a line of the index.
    #[inline(always)]
    pub(crate) fn prefetch_bucket_again(&self, bucket: u32) {
        self.index.prefetch_bucket(bucket);
    }

    /// Prefetches the lines of the candidate state for this hash, and of the other of its
    /// pair; returns its number.
    #[inline(always)]
    pub(crate) fn prefetch_candidate(&self, hash: u64, bucket: u32) -> u32 {
        self.prefetch_candidate_by(hash, bucket, |number| self.prefetch(number))
    }

    /// The same without the second line, which merged states don't need.
    #[inline(always)]
    pub(crate) fn prefetch_candidate_first(&self, hash: u64, bucket: u32) -> u32 {
        self.prefetch_candidate_by(hash, bucket, |number| self.prefetch_first(number))
    }

    #[inline(always)]
    fn prefetch_candidate_by(&self, hash: u64, bucket: u32, prefetch: impl Fn(u32)) -> u32 {
        match self.index.candidate(hash, bucket, |entry| prefetch(entry / 2)) {
            BEYOND_LINE => self.prefetch_overflow(hash, bucket),
            NO_ENTRY => NONE,
            likely => likely / 2,
        }
    }

    /// The same where it is not in the first line.
    #[cold]
    #[inline(never)]
    fn prefetch_overflow(&self, hash: u64, bucket: u32) -> u32 {
        let likely = self.index.candidate_beyond(hash, bucket);
        if likely == NO_ENTRY || likely == BEYOND_LINE {
            return NONE;
        }
        self.prefetch(likely / 2);
        likely / 2
    }

    /// Asks for the first line of a state, and for that of the state beside it.
    #[inline(always)]
    pub(crate) fn prefetch(&self, number: u32) {
        self.hot.get_pair(number).into_iter().flatten().for_each(prefetch);
    }

    /// Asks for the first of both.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, number: u32) {
        self.hot.first_of_pair(number).into_iter().for_each(prefetch);
    }

    /// Whether a state is that of packets with this key and direction at this interface.
    #[inline(always)]
    pub(crate) fn is_match(
        &self,
        number: u32,
        key: &Key,
        direction: Direction,
        interface: Interface,
    ) -> bool {
        // The other line of merged states may be far away, and they don't translate.
        if let Some(first) = self.hot.first_of_pair(number).filter(|first| first.is_merged) {
            return first.is_merged_for(number, key.narrow_key(), key.protocol.0)
                && key.family == Family::Inet;
        }
        let Some(hot) = self.hot.get(number) else { return false };
        let side = key_side(direction);
        hot.narrow_key(side) == key.narrow_key()
            && hot.protocol == key.protocol
            && hot.has_flag(flag::LIVE)
            && hot.family() == key.family
            && (!hot.has_flag(flag::SIX | flag::BOUND) || self.is_exactly(number, key, side, interface))
    }

    #[inline(never)]
    fn is_exactly(&self, number: u32, key: &Key, side: usize, interface: Interface) -> bool {
        let hot = &self.hot[number as usize];
        let is_here = !hot.has_flag(flag::BOUND) || self.cold[number as usize].interface == interface;
        is_here && self.wide[number as usize].as_ref().is_none_or(|keys| keys[side] == *key)
    }

    /// The state of packets with this key and direction at this interface.
    #[inline]
    pub(crate) fn find_state(
        &self,
        key: &Key,
        hash: u64,
        direction: Direction,
        interface: Interface,
    ) -> Option<u32> {
        self.index
            .find(hash, |entry| self.is_match(entry / 2, key, direction, interface))
            .map(|entry| entry / 2)
    }

    /// Whether a state has this key on a side, at whatever interface.
    pub(crate) fn is_taken(&self, key: &Key, direction: Direction) -> bool {
        let side = key_side(direction);
        self.index.find(self.hash(key), |entry| self.key(entry / 2, side) == *key).is_some()
    }

    pub(crate) fn insert(&mut self, birth: NewState) -> Result<u32, CannotInsert> {
        if self.len() >= self.limit {
            return Err(CannotInsert::Full);
        }
        if self.has_collision(&birth) {
            return Err(CannotInsert::Taken);
        }
        let number = self.place_state(birth);
        if !self.index_keys(number) {
            self.free_state(number);
            return Err(CannotInsert::Full);
        }
        self.half_open += u32::from(self.hot[number as usize].is_half_open());
        if self.hot[number as usize].has_flag(flag::BOUND) {
            *self.bound.entry(self.cold[number as usize].interface).or_default() += 1;
        }
        self.counters[1] += 1;
        Ok(number)
    }

    fn has_collision(&self, birth: &NewState) -> bool {
        let interface = birth.cold.interface;
        let is_there = |direction, side: usize| {
            let key = &birth.keys[side];
            self.find_state(key, self.hash(key), direction, interface).is_some()
        };
        is_there(Direction::In, WIRE) || is_there(Direction::Out, STACK)
    }

    /// Puts a state into a free place.
    fn place_state(&mut self, birth: NewState) -> u32 {
        let NewState { keys, mut hot, mut cold, extra, beside } = birth;
        hot.narrow = keys[WIRE].narrow_key();
        hot.flags |= flag::LIVE;
        if keys[WIRE] != keys[STACK] {
            hot.set_stack_key(keys[STACK].narrow_key());
        }
        hot.flags |= if extra.is_some() { flag::EXTRA } else { 0 };
        let wide: Wide = hot.has_flag(flag::SIX).then(|| Box::new(keys));
        if cold.id == 0 {
            cold.id = self.next_id;
        }
        // An id that came with a dump of this filter's is not given again.
        self.next_id = self.next_id.max(cold.id.wrapping_add(1));
        let number = self.free_place(beside);
        let n = number as usize;
        (self.hot[n], self.cold[n], self.wide[n], self.extra[n]) = (hot, cold, wide, extra);
        self.count += 1;
        number
    }

    /// A place without a state: that beside another, if it is free, or else the first of a pair.
    fn free_place(&mut self, beside: u32) -> u32 {
        let next = beside ^ 1;
        if self.is_live(beside) && !self.is_live(next) {
            return next;
        }
        self.free.pop().unwrap_or_else(|| {
            self.cold.extend([Cold::FREE; 2]);
            self.wide.extend([None, None]);
            self.extra.extend([None, None]);
            self.hot.add_pair()
        })
    }

    /// Adds the keys of a state to the index; says whether there was room.
    fn index_keys(&mut self, number: u32) -> bool {
        let hashes = [WIRE, STACK].map(|side| self.hash(&self.key(number, side)));
        if !self.index.insert(hashes[WIRE], number * 2) {
            return false;
        }
        self.keys += 1;
        if self.hot[number as usize].has_flag(flag::TRANSLATED) {
            if !self.index.insert(hashes[STACK], number * 2 + 1) {
                self.index.remove(hashes[WIRE], number * 2);
                self.keys -= 1;
                return false;
            }
            self.keys += 1;
        }
        self.grow_index();
        true
    }

    fn grow_index(&mut self) {
        let States { index, hot, wide, secret, .. } = self;
        for _ in 0..STEPS {
            if !index.is_full(self.keys) {
                break;
            }
            let hash = |entry: u32| secret.hash(&key_of(hot, wide, entry / 2, entry as usize % 2));
            index.grow(hash, |entry| prefetch(&hot[entry as usize / 2]));
        }
    }

    /// Counts a packet of the end of a state that sent first (0), or of the other.
    #[inline(always)]
    pub(crate) fn count_packet(&mut self, number: u32, from: usize, length: u32) {
        let n = number as usize;
        if !self.hot[n].count_packet(from, length) {
            self.cold[n].count_packets(&mut self.hot[n], from, 1, length);
        }
    }

    /// Removes a state; returns what few states have.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Box<Extra>> {
        self.split_pair(number);
        let hot = self.hot[number as usize];
        self.index.remove(self.hash(&self.key(number, WIRE)), number * 2);
        self.keys -= 1;
        if hot.has_flag(flag::TRANSLATED) {
            self.index.remove(self.hash(&self.key(number, STACK)), number * 2 + 1);
            self.keys -= 1;
        }
        if let Some(linked) = self.hot.get_mut(hot.link)
            && !linked.is_merged
            && linked.link == number
        {
            linked.link = NONE;
        }
        self.half_open -= u32::from(hot.is_half_open());
        if hot.has_flag(flag::BOUND)
            && let Some(states) = self.bound.get_mut(&self.cold[number as usize].interface)
        {
            *states -= 1;
        }
        self.counters[2] += 1;
        for _ in 0..STEPS {
            if !self.index.is_sparse(self.keys) || !self.index.shrink() {
                break;
            }
        }
        self.free_state(number)
    }

    fn free_state(&mut self, number: u32) -> Option<Box<Extra>> {
        let n = number as usize;
        (self.hot[n], self.cold[n], self.wide[n]) = (Hot::FREE, Cold::FREE, None);
        self.count -= 1;
        if !self.is_live(number ^ 1) {
            self.free.push(number & !1);
        }
        self.extra[n].take()
    }

    /// Whether a state links to another that links back.
    fn is_linked(&self, number: u32) -> bool {
        let other = self.link_of(number);
        self.is_live(other) && self.link_of(other) == number
    }

    /// Makes two states of a connection know of one another, unless they know others that know them.
    #[inline]
    pub(crate) fn link_states(&mut self, one: u32, other: u32) {
        if one != other && self.is_live(one) && self.is_live(other) {
            for (from, to) in [(one, other), (other, one)] {
                if !self.is_linked(from) {
                    self.hot[from as usize].link = to;
                }
            }
        }
    }

    /// Sets the kind of timeout of a state.
    #[inline(always)]
    pub(crate) fn set_class(&mut self, number: u32, class: u8) {
        let hot = &mut self.hot[number as usize];
        if hot.class != class {
            let was = hot.is_half_open();
            hot.class = class;
            self.half_open = self.half_open + u32::from(hot.is_half_open()) - u32::from(was);
        }
    }
}

fn with_room<T>(count: usize) -> io::Result<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count)?;
    Ok(vector)
}

/// A key of a state.
fn key_of(hot: &HotLines, wide: &[Wide], number: u32, side: usize) -> Key {
    let hot = &hot[number as usize];
    match &wide[number as usize] {
        Some(keys) => keys[side],
        None => Key::of_narrow(hot.narrow_key(side), hot.protocol),
    }
}

/// The side whose key packets have that go this way.
#[inline(always)]
fn key_side(direction: Direction) -> usize {
    match direction {
        Direction::In => WIRE,
        Direction::Out => STACK,
    }
}
