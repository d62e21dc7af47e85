//! ART, the allotment routing table: all routes of a family, with exact and longest match.
//!
//! # The tables
//!
//! A table decides the next `s` bits of an address, `s` being the stride of its level. It is a complete
//! binary tree of `2^(s+1)` words, its *heap*: node `i` has the children `2i` and `2i + 1`, and the last row,
//! from `2^s` on, is the *fringe*, one slot for each value of the `s` bits. A prefix that ends `l` bits into
//! the table, `1 <= l <= s`, has its home at the *base index* `2^l + v`, `v` being these bits. Every index
//! shows the longest prefix of this table that covers it (that is the *allotment*), so that a lookup is one
//! load from the fringe. Longer prefixes are in a child: then the slot leads to the child's heap, and what
//! the slot would show moves to the child's index 1, its *default*, which is not painted through the child. A
//! lookup so takes the last default on its way when it ends at an empty slot. An update paints in one table
//! and the defaults of its children, nowhere else. The route of all addresses is the default of the root.
//!
//! # The words
//!
//! All heaps are parts of one array of 32-bit words. A word is
//!
//! | bit 31 | bits 26 to 30 | bits 0 to 25 | |
//! |---|---|---|---|
//! | 0 | 0 | 0 | no route |
//! | 0 | length | group | a route that ends this many bits into its table (0: the route of all addresses) |
//! | 1 | heap, 31 bits | | the child's heap begins at this word |
//!
//! Index 0 of a heap counts the routes and children of its table; a table that counts none is freed. Only the
//! writer looks at it and at what lies between index 1 and the fringe.
//!
//! Removing a route means to find the words that show it and no others. Pointers or numbers of routes serve
//! for that elsewhere; the length is enough. The routes of one table that cover one index are nested, so they
//! differ in length: below a base index, two words are equal if and only if they show the same route. A word
//! thus says where packets go with no second load, a route costs no memory beside the heaps, and a new group
//! for a route is painted like a new route: word by word, each of them right before or after. (Had routes
//! numbers with their group stored beside, a reader that holds a number while a longer prefix comes and
//! *then* the group of the shorter one changes would see a group which was never right for its address.)
//!
//! # Readers
//!
//! They take no lock, and each answer was right at some moment between the lookup's begin and its end.
//! *Right* is meant address by address: for one address an update happens when the one word that matters is
//! stored.
//!
//! 1. *A table that a reader is in was linked when the reader read its slot*, and with it all tables above,
//!    since a table with children is not freed. It can't become another table under the reader: freed heaps
//!    are used again only after a grace period. All words of a freed table are empty but its default (or they
//!    stay as they were in that moment, when the whole table is cleared), and nothing is stored to it until
//!    then.
//! 2. *A route read from the fringe is right.* If its table is still linked, it is the longest match now. If
//!    not, it was so when the table was unlinked: after that nothing is stored to it, and that was after the
//!    lookup began.
//! 3. *An empty slot* means that a default is the answer, but the defaults on the way are several words. So
//!    there is a version, which an update that stores defaults steps before its first and after its last. The
//!    reader takes its answer only if the version is the same before and after the descent.
//!    * It is even: no default changed meanwhile. Take the moment when the slot was read or, if the last
//!      table was unlinked before, the moment before that. The slot was empty then, the tables above were
//!      linked, and the defaults were what they are: the answer was right then.
//!    * It is odd: one update was painting all the while. It paints in one table, where one slot is the
//!      address's, so on the address's way it stores to one word at most and the rest stays. The reader has
//!      found this word as it was before or after; the answer was right when it was read.
//!
//!    Otherwise the reader begins again. It does so only if the writer has done something since: a writer
//!    that is held up delays no reader.
//!
//! A new child is complete, its default first, before the slot leads to it, and a route that a child covered
//! comes back to the slot in the same store that unlinks the child: a route that is there is never missed.

mod heaps;
#[cfg(test)]
mod journal;
mod paint;
mod read;
mod report;
mod runs;
mod strides;
mod walk;

use crate::address::{Address, Prefix};
use crate::runs::{Group, NO_GROUP};
use artery_rcu::Domain;
use artery_storage::Storage;
use heaps::{DEFAULT, Entry, Heaps, ROOT, Space};
use paint::Painting;
use std::sync::Arc;
use std::{fmt, io};

pub use read::{ArtReader, ArtView};
pub use report::{LevelReport, MemoryReport};
pub use strides::{NotStrides, Strides};
pub use walk::Routes;

/// A routing table with one writer and readers on any thread; the module explains how it works.
pub struct Art<A> {
    heaps: Arc<Heaps<A>>,
    space: Space,
    /// The tables of the last descent and the slots taken in them, by level.
    path: Vec<Step>,
    /// Number of tables by level.
    tables: Vec<usize>,
    routes: usize,
}

/// One table on a descent.
#[derive(Clone, Copy, Default)]
struct Step {
    heap: usize,
    /// The word through which the descent goes on.
    slot: usize,
}

impl<A: Address> Art<A> {
    /// The greatest group that a route can have.
    pub const MAX_GROUP: Group = heaps::MAX_GROUP;

    /// An empty table for readers of `domain`, with its heaps in an array from `storage`: up to 4 GiB, or as
    /// much as it gives.
    pub fn new(domain: &Arc<Domain>, strides: Strides<A>, storage: &dyn Storage) -> io::Result<Art<A>> {
        let heaps = Heaps::new(domain, strides, storage)?;
        let levels = heaps.levels().len();
        let mut tables = vec![0; levels];
        tables[0] = 1;
        let space = Space::new(&heaps);
        Ok(Art { heaps: Arc::new(heaps), space, path: vec![Step::default(); levels], tables, routes: 0 })
    }

    /// A table of the given routes, the last one winning where a prefix comes twice; fastest
    /// if they are sorted.
    pub fn build(
        domain: &Arc<Domain>,
        strides: Strides<A>,
        storage: &dyn Storage,
        routes: impl IntoIterator<Item = (Prefix<A>, Group)>,
    ) -> io::Result<Art<A>> {
        let mut art = Art::new(domain, strides, storage)?;
        for (prefix, group) in routes {
            art.insert(prefix, group).map_err(io::Error::other)?;
        }
        Ok(art)
    }

    /// A reader for another thread; clones of it are as good.
    pub fn reader(&self) -> ArtReader<A> {
        ArtReader::new(&self.heaps)
    }

    /// The strides of the levels.
    pub fn strides(&self) -> &Strides<A> {
        &self.heaps.strides
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// Whether the table has no routes.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Adds a route, or gives the route of this prefix another group, and returns the group it had.
    pub fn insert(&mut self, prefix: Prefix<A>, group: Group) -> Result<Option<Group>, CannotInsert> {
        if group == NO_GROUP || group > Self::MAX_GROUP {
            return Err(CannotInsert::Group(group));
        }
        if prefix.len() == 0 {
            return Ok(self.exchange_root_default(Entry::from_route(0, group)));
        }
        let wanted = self.heaps.strides.level_of(prefix.len());
        let reached = self.descend_to_table(prefix.first(), wanted);
        if reached < wanted {
            self.insert_below(reached, wanted, prefix, group)?;
            self.routes += 1;
            return Ok(None);
        }
        let Home { heap, index, entry, is_own, .. } = self.home_of(prefix, wanted);
        self.paint_entries(wanted, heap, index, entry, Entry::from_route(self.len_in(wanted, prefix), group));
        if is_own {
            return Ok(Some(entry.group()));
        }
        self.heaps.add_count(heap, 1);
        self.routes += 1;
        Ok(None)
    }

    /// Removes the route of this very prefix and returns its group.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<Group> {
        if prefix.len() == 0 {
            return self.exchange_root_default(Entry::NONE);
        }
        let wanted = self.heaps.strides.level_of(prefix.len());
        if self.descend_to_table(prefix.first(), wanted) < wanted {
            return None;
        }
        let Home { heap, index, entry, cover, is_own } = self.home_of(prefix, wanted);
        if !is_own {
            return None;
        }
        self.paint_entries(wanted, heap, index, entry, cover);
        self.routes -= 1;
        if self.heaps.add_count(heap, -1) == 0 {
            self.unlink_tables(wanted);
        }
        Some(entry.group())
    }

    /// The group that the route of exactly this prefix leads to.
    pub fn get(&self, prefix: Prefix<A>) -> Option<Group> {
        if prefix.len() == 0 {
            return self.heaps.entry_at(ROOT + DEFAULT).route_group();
        }
        let level = self.heaps.strides.level_of(prefix.len());
        let heap = self.heap_for(prefix.first(), level)?;
        let home = self.home_in(heap, prefix, level);
        home.is_own.then(|| home.entry.group())
    }

    /// The longest prefix with a route that contains the address, and its group.
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, Group)> {
        let mut heap = ROOT;
        let mut best = (0, self.heaps.entry_at(ROOT + DEFAULT));
        for level in self.heaps.levels() {
            let entry = self.heaps.entry_at(heap + level.slot_index(address));
            let Some(child) = entry.child() else {
                best = if entry.is_none() { best } else { (level.offset, entry) };
                break;
            };
            heap = child;
            let default = self.heaps.entry_at(heap + DEFAULT);
            best = if default.is_none() { best } else { (level.offset, default) };
        }
        let (offset, entry) = best;
        entry.route_group().map(|group| (Prefix::of(address, offset + entry.len()), group))
    }

    /// What addresses of `prefix` show, where no route as long as it or longer covers them: the group of the
    /// longest shorter prefix, [`NO_GROUP`] if there is none but perhaps the route of all addresses.
    pub fn cover(&self, prefix: Prefix<A>) -> Group {
        let shorter = (1..prefix.len()).rev().map(|len| Prefix::of(prefix.first(), len));
        shorter.filter_map(|shorter| self.get(shorter)).next().unwrap_or(NO_GROUP)
    }

    /// Removes all routes, for one address after another.
    ///
    /// Readers see an address lose its routes at once, or fall back on shorter prefixes first.
    pub fn clear(&mut self) {
        let root = self.heaps.levels()[0];
        for index in root.fringe()..root.words() {
            let entry = self.heaps.entry_at(ROOT + index);
            self.heaps.publish_entry(ROOT + index, Entry::NONE);
            if let Some(child) = entry.child() {
                self.retire_all(child, 1);
            }
        }
        self.exchange_root_default(Entry::NONE);
        for index in DEFAULT + 1..root.fringe() {
            self.heaps.store_entry(ROOT + index, Entry::NONE);
        }
        let count = self.heaps.add_count(ROOT, 0) as i32;
        self.heaps.add_count(ROOT, -count);
        self.routes = 0;
    }

    /// How much memory goes where.
    pub fn memory(&self) -> MemoryReport {
        MemoryReport::new(self.heaps.levels(), &self.tables, &self.space)
    }

    /// Goes down to the level `wanted`, or as far as there are tables, notes the way and
    /// returns the level reached.
    #[inline]
    fn descend_to_table(&mut self, address: A, wanted: usize) -> usize {
        let levels = self.heaps.levels();
        let mut heap = ROOT;
        for (number, step) in self.path[..wanted].iter_mut().enumerate() {
            let slot = heap + levels[number].slot_index(address);
            *step = Step { heap, slot };
            let Some(child) = self.heaps.entry_at(slot).child() else { return number };
            heap = child;
        }
        self.path[wanted].heap = heap;
        wanted
    }

    /// The heap of the table of this level on the way to an address, if there is one.
    fn heap_for(&self, address: A, level: usize) -> Option<usize> {
        self.heaps.levels()[..level].iter().try_fold(ROOT, |heap, level| {
            let slot = heap + level.slot_index(address);
            self.heaps.entry_at(slot).child()
        })
    }

    fn len_in(&self, level: usize, prefix: Prefix<A>) -> u8 {
        prefix.len() - self.heaps.levels()[level].offset
    }

    /// The home of a prefix in the table that `descend_to_table` has found.
    #[inline]
    fn home_of(&self, prefix: Prefix<A>, level: usize) -> Home {
        self.home_in(self.path[level].heap, prefix, level)
    }

    #[inline]
    fn home_in(&self, heap: usize, prefix: Prefix<A>, level: usize) -> Home {
        let index = self.heaps.levels()[level].base_index(prefix.first(), self.len_in(level, prefix));
        let entry = self.shown_entry(self.heaps.entry_at(heap + index));
        // A route that covers the whole table is not painted, so it does not count as a cover here.
        let cover =
            if index >> 1 == DEFAULT { Entry::NONE } else { self.heaps.entry_at(heap + (index >> 1)) };
        Home { heap, index, entry, cover, is_own: entry != cover }
    }

    /// The route that a word shows: its own, or the one that has moved to the child it leads to.
    #[inline]
    fn shown_entry(&self, entry: Entry) -> Entry {
        entry.child().map_or(entry, |child| self.heaps.entry_at(child + DEFAULT))
    }

    /// Replaces one route by another from an index of a table downwards.
    #[inline]
    fn paint_entries(&self, level: usize, heap: usize, index: usize, old: Entry, new: Entry) {
        if old != new {
            Painting { heaps: &self.heaps, level: self.heaps.levels()[level], heap, old, new }
                .paint_subtree(index);
        }
    }

    fn exchange_root_default(&mut self, new: Entry) -> Option<Group> {
        let old = self.heaps.entry_at(ROOT + DEFAULT);
        if new != old {
            let mut announced = false;
            self.heaps.announce_change(&mut announced);
            self.heaps.store_entry(ROOT + DEFAULT, new);
            self.heaps.conclude_change(announced);
        }
        self.routes = self.routes + usize::from(!new.is_none()) - usize::from(!old.is_none());
        old.route_group()
    }

    /// Inserts a route where tables are missing from the level after `reached` to `wanted`.
    #[cold]
    fn insert_below(
        &mut self,
        reached: usize,
        wanted: usize,
        prefix: Prefix<A>,
        group: Group,
    ) -> Result<(), CannotInsert> {
        self.alloc_tables(reached + 1, wanted)?;
        let link = self.path[reached];
        let first = self.path[reached + 1].heap;
        self.heaps.store_entry(first + DEFAULT, self.heaps.entry_at(link.slot));
        for level in reached + 1..=wanted {
            let heap = self.path[level].heap;
            self.heaps.add_count(heap, 1);
            self.tables[level] += 1;
            if level < wanted {
                let slot = heap + self.heaps.levels()[level].slot_index(prefix.first());
                self.heaps.store_entry(slot, Entry::child_at(self.path[level + 1].heap));
            }
        }
        let home = self.home_of(prefix, wanted);
        self.paint_entries(
            wanted,
            home.heap,
            home.index,
            Entry::NONE,
            Entry::from_route(self.len_in(wanted, prefix), group),
        );
        self.heaps.publish_entry(link.slot, Entry::child_at(first));
        self.heaps.add_count(link.heap, 1);
        Ok(())
    }

    /// Takes a heap for each of these levels into the path, or none at all.
    fn alloc_tables(&mut self, first: usize, last: usize) -> Result<(), CannotInsert> {
        for number in first..=last {
            match self.space.alloc_heap(&self.heaps, self.heaps.levels()[number]) {
                Some(heap) => self.path[number].heap = heap,
                None => {
                    for taken in first..number {
                        self.space.free_heap(self.path[taken].heap, self.heaps.levels()[taken]);
                    }
                    return Err(CannotInsert::Full);
                }
            }
        }
        Ok(())
    }

    /// Frees the table of this level on the path, which is empty, and those above that become so by that.
    #[cold]
    fn unlink_tables(&mut self, mut level: usize) {
        while level > 0 {
            let (empty, parent) = (self.path[level].heap, self.path[level - 1]);
            self.heaps.publish_entry(parent.slot, self.heaps.entry_at(empty + DEFAULT));
            self.space.retire_heap(empty, self.heaps.levels()[level], false);
            self.tables[level] -= 1;
            if self.heaps.add_count(parent.heap, -1) > 0 {
                break;
            }
            level -= 1;
        }
    }

    /// Retires the table of a heap, which is out of new turns' sight, and those below.
    fn retire_all(&mut self, heap: usize, number: usize) {
        let level = self.heaps.levels()[number];
        for index in level.fringe()..level.words() {
            if let Some(child) = self.heaps.entry_at(heap + index).child() {
                self.retire_all(child, number + 1);
            }
        }
        self.space.retire_heap(heap, level, true);
        self.tables[number] -= 1;
    }
}

impl<A: Address> fmt::Debug for Art<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Art")
            .field("strides", &self.heaps.strides)
            .field("routes", &self.routes)
            .field("tables", &self.tables)
            .finish()
    }
}

/// Where a prefix is, or would be, in its table.
struct Home {
    heap: usize,
    index: usize,
    /// What the index shows.
    entry: Entry,
    /// What it would show without the prefix's route.
    cover: Entry,
    /// Whether what it shows is the prefix's route.
    is_own: bool,
}

/// Why a route was not inserted; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotInsert {
    /// The array that the storage gave is used up.
    Full,
    /// This group is [`NO_GROUP`], or more than [`Art::MAX_GROUP`].
    Group(Group),
}

impl fmt::Display for CannotInsert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotInsert::Full => f.write_str("the routing table's memory is used up"),
            CannotInsert::Group(group) => {
                write!(f, "{group} is not a group of next hops: they go from 1 to {}", heaps::MAX_GROUP)
            }
        }
    }
}

impl std::error::Error for CannotInsert {}

#[cfg(test)]
mod interleaving;
#[cfg(test)]
mod tests;
