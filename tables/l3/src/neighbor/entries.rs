//! The neighbors of one table, and what has to stay in step with them: words, the index, timers, who may be
//! pushed out, and whose use is watched.
//!
//! Each operation costs a few steps down a tree of those who have a timer, or may be pushed out: O(log
//! entries). None looks at neighbors it is not about.
use super::engine::Limit;
use super::index::{Key, NeighborIndex, NeighborReader};
use super::links::{Link, NeighborId};
use super::neighbor_ids::NeighborIds;
use super::protocol::{NeighborEntry, State};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// For so long a neighbor must have been seen unused until it may be pushed out, if it was ever used.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// The number of a neighbor in its table, until it is removed.
pub(super) type At = usize;

/// One neighbor. A pinned one may have no entry: it has an id, and nothing is known of it.
pub(super) struct Slot<A> {
    pub(super) address: A,
    pub(super) id: NeighborId,
    pub(super) entry: Option<NeighborEntry>,
    pub(super) pins: u32,
    pub(super) trial: Trial,
    /// It was used since its last timer.
    pub(super) was_used: bool,
    /// What is known of it counts no more, and is yet to be forgotten.
    pub(super) is_doomed: bool,
    timer: Option<Duration>,
    rank: Option<(Rank, Duration)>,
    /// Its place in [`Entries::watched`].
    watched: Option<usize>,
}

/// Whether a neighbor, whatever its state, has to show that it is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// It was used, or solicited, which is the same.
    Passed,
    /// Learnt from a message; no packet has ever been sent to it.
    Untried,
    /// The table is full, and checks which neighbors were used lately.
    Anew,
}

/// Which entries are evicted first when the table is full; others are never evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It has never been known.
    NeverValid,
    /// Learnt from a message; no packet has ever been sent to it.
    Untried,
    /// It is known and was not used for some time.
    Idle,
}

pub(super) struct Entries<A> {
    by_address: HashMap<A, At>,
    slots: Vec<Slot<A>>,
    /// Numbers of slots that are no neighbor's.
    free: Vec<At>,
    index: NeighborIndex<A>,
    places: Arc<NeighborIds>,
    timers: BTreeSet<(Duration, At)>,
    /// By rank, then by the time since when they have had it.
    victims: BTreeSet<(Rank, Duration, At)>,
    watched: Vec<At>,
    /// Entries to remove; some may have been removed since.
    doomed: Vec<At>,
    /// The link is down: no neighbor can be reached.
    is_down: bool,
}

impl<A: Key> Entries<A> {
    /// A table without neighbors.
    pub(super) fn new(places: &Arc<NeighborIds>) -> Entries<A> {
        let secret = RandomState::new();
        let seed = [secret.hash_one(0), secret.hash_one(1)];
        Entries {
            by_address: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            index: NeighborIndex::new(places.domain(), places.links(), seed),
            places: places.clone(),
            timers: BTreeSet::new(),
            victims: BTreeSet::new(),
            watched: Vec::new(),
            doomed: Vec::new(),
            is_down: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }
    pub(super) fn find(&self, address: A) -> Option<At> {
        self.by_address.get(&address).copied()
    }
    pub(super) fn slot(&self, at: At) -> &Slot<A> {
        &self.slots[at]
    }
    /// For a change, after which [`sync_neighbor`](Self::sync_neighbor) must be called.
    pub(super) fn slot_mut(&mut self, at: At) -> &mut Slot<A> {
        &mut self.slots[at]
    }
    /// All neighbors, by address.
    pub(super) fn all_sorted(&self) -> Vec<At> {
        let mut all: Vec<At> = self.by_address.values().copied().collect();
        all.sort_by_key(|at| self.slots[*at].address);
        all
    }
    pub(super) fn reader(&self) -> NeighborReader<A> {
        self.index.reader()
    }

    /// Gives a new neighbor a place. Nothing is known of it.
    pub(super) fn add_neighbor(&mut self, address: A) -> Result<At, Limit> {
        let id = self.places.alloc_id()?;
        let slot = Slot {
            address,
            id,
            entry: None,
            pins: 0,
            trial: Trial::Passed,
            was_used: false,
            is_doomed: false,
            timer: None,
            rank: None,
            watched: None,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.by_address.insert(address, at);
        self.index.add_neighbor(address, id);
        Ok(at)
    }

    /// Forgets what is known of a neighbor, and the neighbor, unless it is pinned.
    pub(super) fn forget_neighbor(&mut self, at: At, now: Duration) {
        let slot = &mut self.slots[at];
        slot.entry = None;
        (slot.trial, slot.was_used, slot.is_doomed) = (Trial::Passed, false, false);
        let (address, id, is_pinned) = (slot.address, slot.id, slot.pins > 0);
        self.sync_neighbor(at, now);
        if !is_pinned {
            self.by_address.remove(&address);
            self.index.remove(address);
            self.places.free_id(id);
            self.free.push(at);
        }
    }

    /// Brings all else in step with a neighbor that has changed.
    pub(super) fn sync_neighbor(&mut self, at: At, now: Duration) {
        self.sync_word(at);
        self.sync_timer(at);
        self.sync_rank(at, now);
        self.sync_watch(at);
    }

    /// One store, and none if workers see what they should. What workers have said of use before they were
    /// asked counts for nothing.
    fn sync_word(&mut self, at: At) {
        let (slot, links) = (&self.slots[at], self.places.links());
        let link = if self.is_down { Link::UNKNOWN } else { slot.worker_link() };
        let shown = links.get(slot.id);
        if link.wants_report() && !shown.wants_report() {
            links.clear_used(slot.id);
        }
        if link != shown {
            links.set_link(slot.id, link);
        }
    }

    fn sync_timer(&mut self, at: At) {
        let slot = &mut self.slots[at];
        let timer = slot.entry.as_ref().and_then(|entry| entry.deadline);
        if timer != slot.timer {
            slot.timer.map(|old| self.timers.remove(&(old, at)));
            timer.map(|new| self.timers.insert((new, at)));
            slot.timer = timer;
        }
    }

    fn sync_rank(&mut self, at: At, now: Duration) {
        let slot = &mut self.slots[at];
        let rank = slot.eviction_rank();
        if rank != slot.rank.map(|(rank, _)| rank) {
            if let Some((old, since)) = slot.rank {
                self.victims.remove(&(old, since, at));
            }
            slot.rank = rank.map(|rank| (rank, now));
            rank.map(|rank| self.victims.insert((rank, now, at)));
        }
    }

    /// Restarts the count of the time in which a neighbor that may be evicted was not used.
    pub(super) fn renew_rank(&mut self, at: At, now: Duration) {
        if let Some((rank, since)) = self.slots[at].rank {
            self.victims.remove(&(rank, since, at));
            self.victims.insert((rank, now, at));
            self.slots[at].rank = Some((rank, now));
        }
    }

    fn sync_watch(&mut self, at: At) {
        let slot = &mut self.slots[at];
        match (slot.is_watched(), slot.watched) {
            (true, None) => {
                slot.watched = Some(self.watched.len());
                self.watched.push(at);
            }
            (false, Some(place)) => {
                slot.watched = None;
                self.watched.swap_remove(place);
                if let Some(moved) = self.watched.get(place) {
                    self.slots[*moved].watched = Some(place);
                }
            }
            _ => {}
        }
    }

    /// Whether the neighbor was used since it was first asked, or last said so.
    pub(super) fn clear_used(&self, at: At) -> bool {
        self.places.links().clear_used(self.slots[at].id)
    }
    /// When the first timer is due, and whose it is.
    pub(super) fn first_timer(&self) -> Option<(Duration, At)> {
        self.timers.first().copied()
    }
    /// The entry that is evicted next, and since when it could have been.
    pub(super) fn first_victim(&self) -> Option<(Rank, Duration, At)> {
        self.victims.first().copied()
    }
    /// Those whose use is to be looked for every now and then, in no order. Removal moves the
    /// last to its place.
    pub(super) fn watched(&self) -> &[At] {
        &self.watched
    }
    /// Numbers of slots end here; some may be no neighbor's.
    pub(super) fn end(&self) -> At {
        self.slots.len()
    }

    /// Ends what is known of all but static neighbors, and says of how many. Workers see it at once; to
    /// forget them, which takes a hundred times as long, can be done bit by bit.
    pub(super) fn mark_learned_for_removal(&mut self) -> usize {
        let before = self.doomed.len();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let is_learnt = slot.entry.as_ref().is_some_and(|entry| !entry.is_static);
            if is_learnt && !slot.is_doomed {
                slot.is_doomed = true;
                self.places.links().set_link(slot.id, Link::UNKNOWN);
                self.doomed.push(at);
            }
        }
        self.doomed.len() - before
    }
    /// The next entry to remove.
    pub(super) fn next_marked(&mut self) -> Option<At> {
        while let Some(at) = self.doomed.pop() {
            if self.slots[at].is_doomed {
                return Some(at);
            }
        }
        None
    }
    /// Whether there may be one.
    pub(super) fn has_marked(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Shows workers no link address, or those that are known again.
    pub(super) fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
        for at in 0..self.slots.len() {
            // Words of those that are no neighbor's may be another's.
            if self.slots[at].entry.is_some() {
                self.sync_word(at);
            }
        }
    }
    pub(super) fn is_down(&self) -> bool {
        self.is_down
    }
}

impl<A> Slot<A> {
    /// What is known of it.
    pub(super) fn known_entry(&self) -> Option<&NeighborEntry> {
        self.entry.as_ref().filter(|_| !self.is_doomed)
    }

    /// What workers are to see.
    fn worker_link(&self) -> Link {
        let Some(entry) = self.known_entry() else { return Link::UNKNOWN };
        match entry.usable_link() {
            Some(address) if entry.wants_report() || self.trial != Trial::Passed => {
                Link::ready(address).with_report()
            }
            Some(address) => Link::ready(address),
            None if entry.has_failed() => Link::UNREACHABLE,
            None => Link::UNKNOWN,
        }
    }

    /// An entry that is pinned, static, or solicited because it was used, has no rank.
    fn eviction_rank(&self) -> Option<Rank> {
        let entry = self.entry.as_ref().filter(|entry| self.pins == 0 && !entry.is_static)?;
        match (entry.state, self.trial) {
            (State::Incomplete | State::Failed, _) => Some(Rank::NeverValid),
            (_, Trial::Untried) => Some(Rank::Untried),
            (State::Stale | State::Unreachable, _) | (_, Trial::Anew) => Some(Rank::Idle),
            _ => None,
        }
    }

    /// Whether nothing but a look tells that it is used: near the end of its life, a timer looks.
    fn is_watched(&self) -> bool {
        let Some(entry) = &self.entry else { return false };
        let is_asleep = matches!(entry.state, State::Stale | State::Unreachable);
        !entry.is_static && entry.usable_link().is_some() && (is_asleep || self.trial != Trial::Passed)
    }
}
