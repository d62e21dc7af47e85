//! Routes in order.
use super::heaps::{DEFAULT, Entry, Heaps, ROOT};
use super::{Art, Home};
use crate::address::{Address, Prefix};
use crate::runs::Group;

/// Routes in the order of their prefixes: by first address, the shorter one first.
pub struct Routes<'a, A> {
    art: &'a Art<A>,
    /// The tables on the way, from the one where the walk began.
    way: Vec<Place<A>>,
    /// A route that comes before those of the way.
    before: Option<(Prefix<A>, Group)>,
}

/// A place in the walk through one table.
struct Place<A> {
    heap: usize,
    level: usize,
    /// The first address of the table.
    base: A,
    /// The index to look at next; those below `top` are walked.
    index: usize,
    /// Where the walk began: when it has come back here, it is done.
    top: usize,
}

impl<A: Address> Art<A> {
    /// All routes, in the order of their prefixes.
    pub fn iter(&self) -> Routes<'_, A> {
        let before = self.get(Prefix::ALL).map(|group| (Prefix::ALL, group));
        let root = Place { heap: ROOT, level: 0, base: A::ZERO, index: DEFAULT, top: DEFAULT };
        Routes { art: self, way: vec![root.skip_index(self)], before }
    }

    /// The routes of longer prefixes within this one, in order; its own route is not among them.
    pub fn more_specifics(&self, prefix: Prefix<A>) -> Routes<'_, A> {
        if prefix.len() == 0 {
            return Routes { before: None, ..self.iter() };
        }
        let level = self.heaps.strides.level_of(prefix.len());
        let place = self.heap_for(prefix.first(), level).and_then(|heap| {
            let Home { index, .. } = self.home_in(heap, prefix, level);
            let base = prefix.first().network(self.heaps.levels()[level].offset);
            self.place_below(Place { heap, level, base, index, top: index })
        });
        Routes { art: self, way: place.into_iter().collect(), before: None }
    }

    /// The routes that come after a prefix, whether it has a route or not: so a walk goes on
    /// that was left there.
    pub fn routes_after(&self, prefix: Prefix<A>) -> Routes<'_, A> {
        if prefix.len() == 0 {
            return self.more_specifics(prefix);
        }
        let (last, levels) = (self.heaps.strides.level_of(prefix.len()), self.heaps.levels());
        let mut way = Vec::with_capacity(levels.len());
        for (number, level) in levels.iter().enumerate().take(last + 1) {
            let Some(heap) = self.heap_for(prefix.first(), number) else { break };
            let base = prefix.first().network(level.offset);
            let is_last = number == last;
            let index = if is_last {
                self.home_in(heap, prefix, number).index
            } else {
                level.slot_index(prefix.first())
            };
            let at = Place { heap, level: number, base, index, top: DEFAULT };
            let child =
                if is_last && index >= level.fringe() { self.place_below(Place { ..at }) } else { None };
            way.push(at.skip_index(self));
            way.extend(child);
        }
        Routes { art: self, way, before: None }
    }

    /// Where the walk of what lies below an index begins, if there can be anything.
    fn place_below(&self, place: Place<A>) -> Option<Place<A>> {
        let level = self.heaps.levels()[place.level];
        if place.index < level.fringe() {
            return Some(place.skip_index(self));
        }
        let child = self.heaps.entry_at(place.heap + place.index).child()?;
        let first = A::from_field(place.index - level.fringe(), level.offset, level.stride);
        let base = place.base.or(first);
        let below = Place { heap: child, level: place.level + 1, base, index: DEFAULT, top: DEFAULT };
        Some(below.skip_index(self))
    }
}

impl<A: Address> Place<A> {
    /// The walk from here without the index itself.
    fn skip_index(self, art: &Art<A>) -> Place<A> {
        let index = next_index(self.index, self.top, art.heaps.levels()[self.level].fringe());
        Place { index, ..self }
    }
}

/// The index after this one in the order of prefixes, `top` when there is none below it.
fn next_index(index: usize, top: usize, fringe: usize) -> usize {
    if index < fringe {
        return index << 1;
    }
    // Up from right children, then to the right.
    let mut index = index;
    while index != top && index & 1 == 1 {
        index >>= 1;
    }
    if index == top { top } else { index + 1 }
}

impl<A: Address> Iterator for Routes<'_, A> {
    type Item = (Prefix<A>, Group);

    fn next(&mut self) -> Option<(Prefix<A>, Group)> {
        if let Some(route) = self.before.take() {
            return Some(route);
        }
        loop {
            let place = self.way.last_mut()?;
            if place.index == place.top {
                self.way.pop();
                continue;
            }
            let level = self.art.heaps.levels()[place.level];
            let at = Place { ..*place };
            place.index = next_index(at.index, at.top, level.fringe());
            let (entry, route) = self.art.route_at(&at);
            if entry.child().is_some() {
                self.way.extend(self.art.place_below(at));
            }
            if route.is_some() {
                return route;
            }
        }
    }
}

impl<A: Address> Art<A> {
    /// The word at a place, and the route whose home it is.
    fn route_at(&self, place: &Place<A>) -> (Entry, Option<(Prefix<A>, Group)>) {
        let heaps: &Heaps<A> = &self.heaps;
        let entry = heaps.entry_at(place.heap + place.index);
        let shown = self.shown_entry(entry);
        let cover = if place.index >> 1 == DEFAULT {
            Entry::NONE
        } else {
            heaps.entry_at(place.heap + (place.index >> 1))
        };
        if shown == cover {
            return (entry, None);
        }
        let len = place.index.ilog2() as u8;
        let offset = heaps.levels()[place.level].offset;
        let first = place.base.or(A::from_field(place.index - (1 << len), offset, len));
        (entry, Some((Prefix::of(first, offset + len), shown.group())))
    }
}
