//! Paths, each kept once however many routes have it, and what they come to.
use super::world::{KernelState, PathOutcome};
use super::{NextHopSet, NextHopSetId, Sink};
use crate::kernel::{Family, Path, RouteKind};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};

/// The number of a path.
pub(super) type PathId = u32;

/// What a path resolves to, as far as the selection of a route depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The search ends here.
    Decides,
    /// The search goes on in the next table.
    Throws,
    /// As if there were no such route.
    Unusable,
}

#[derive(Debug)]
struct PathEntry {
    key: (Family, Path),
    uses: u32,
    outcome: PathOutcome,
}

/// Numbers that rest before one is used again: a route lookup meanwhile may still find it.
const RESTING: usize = 256;

/// The number of each path of a family. All routes are looked up here, so that hashes are quick ones.
type PathIds = HashMap<Path, PathId, RandomState>;

/// Paths by number, each stored once, with their next-hop sets.
#[derive(Debug, Default)]
pub(super) struct Paths {
    entries: Vec<Option<PathEntry>>,
    numbers4: PathIds,
    numbers6: PathIds,
    free: VecDeque<PathId>,
}

impl Paths {
    /// The number of a path, which is used once more from now on.
    pub(super) fn acquire_path(
        &mut self,
        family: Family,
        path: &Path,
        world: &KernelState,
        sink: &mut dyn Sink,
    ) -> PathId {
        if let Some(&id) = self.ids_mut(family).get(path) {
            self.entry_mut(id).uses += 1;
            return id;
        }
        let outcome = world.resolve_path(family, path);
        let is_enough = self.free.len() > RESTING;
        let id = self.free.pop_front().filter(|_| is_enough).unwrap_or(self.entries.len() as PathId);
        if id as usize == self.entries.len() {
            self.entries.push(None);
        }
        if let (PathOutcome::NextHops(way), false) = (&outcome, is_always_the_kernels(path)) {
            sink.set_next_hops(family, NextHopSetId(id + 1), Some(way));
        }
        self.ids_mut(family).insert(path.clone(), id);
        self.entries[id as usize] = Some(PathEntry { key: (family, path.clone()), uses: 1, outcome });
        id
    }

    fn ids_mut(&mut self, family: Family) -> &mut PathIds {
        match family {
            Family::V4 => &mut self.numbers4,
            Family::V6 => &mut self.numbers6,
        }
    }

    /// A path is used once less.
    pub(super) fn release_path(&mut self, id: PathId, sink: &mut dyn Sink) {
        let entry = self.entry_mut(id);
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        let PathEntry { key: (family, path), .. } =
            self.entries[id as usize].take().expect("it was there a line before");
        self.ids_mut(family).remove(&path);
        self.free.push_back(id);
        if !is_always_the_kernels(&path) {
            sink.set_next_hops(family, NextHopSetId(id + 1), None);
        }
    }

    fn entry(&self, id: PathId) -> &PathEntry {
        self.entries[id as usize].as_ref().expect("who has the number of a path has a use of it")
    }

    fn entry_mut(&mut self, id: PathId) -> &mut PathEntry {
        self.entries[id as usize].as_mut().expect("who has the number of a path has a use of it")
    }

    /// A path by its number.
    pub(super) fn path(&self, id: PathId) -> &Path {
        &self.entry(id).key.1
    }

    /// What a path resolves to.
    #[inline]
    pub(super) fn standing(&self, id: PathId) -> Standing {
        standing_of(&self.entry(id).outcome)
    }

    /// The next-hop set of the path that decides.
    #[inline]
    pub(super) fn next_hop_set(&self, id: PathId) -> NextHopSetId {
        if is_always_the_kernels(&self.entry(id).key.1) { NextHopSetId::KERNEL } else { NextHopSetId(id + 1) }
    }

    /// Whether packets of a path end with an error, or may: what an object is may not be known.
    pub(super) fn may_reject(&self, id: PathId) -> bool {
        let PathEntry { key: (_, path), outcome, .. } = self.entry(id);
        match path.kind {
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
            RouteKind::Unicast => path.object != 0 && *outcome == PathOutcome::NextHops(NextHopSet::Kernel),
            _ => false,
        }
    }

    /// The paths of which something holds.
    pub(super) fn matching_paths(&self, holds: impl Fn(Family, &Path) -> bool) -> HashSet<PathId> {
        let numbered = self.entries.iter().enumerate();
        let kept = numbered.filter_map(|(id, kept)| Some((id as PathId, kept.as_ref()?)));
        kept.filter(|(_, kept)| holds(kept.key.0, &kept.key.1)).map(|(id, _)| id).collect()
    }

    /// Resolves again the paths for which `holds` is true, and sends what changed to the sink. Returns those
    /// whose routes may have to be selected again.
    pub(super) fn reevaluate(
        &mut self,
        world: &KernelState,
        holds: impl Fn(&Path) -> bool,
        sink: &mut dyn Sink,
    ) -> HashSet<PathId> {
        let mut changed = HashSet::new();
        for (id, kept) in self.entries.iter_mut().enumerate() {
            let Some(kept) = kept.as_mut().filter(|kept| holds(&kept.key.1)) else { continue };
            let outcome = world.resolve_path(kept.key.0, &kept.key.1);
            if outcome == kept.outcome {
                continue;
            }
            if let PathOutcome::NextHops(way) = &outcome {
                sink.set_next_hops(kept.key.0, NextHopSetId(id as PathId + 1), Some(way));
            }
            if standing_of(&outcome) != standing_of(&kept.outcome) {
                changed.insert(id as PathId);
            }
            kept.outcome = outcome;
        }
        changed
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.numbers4.len() + self.numbers6.len()
    }
}

fn standing_of(outcome: &PathOutcome) -> Standing {
    match outcome {
        PathOutcome::NextHops(_) => Standing::Decides,
        PathOutcome::Throw => Standing::Throws,
        PathOutcome::Unusable => Standing::Unusable,
    }
}

/// Whether a path leads to the kernel whatever happens to interfaces and objects.
fn is_always_the_kernels(path: &Path) -> bool {
    path.kind != RouteKind::Unicast || (path.object == 0 && path.hops.is_empty())
}
