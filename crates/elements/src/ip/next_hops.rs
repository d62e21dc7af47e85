//! Next hops by number: what the groups that a routing table holds stand for.
//!
//! A table has many routes and few next hops. Each different one has a number while a route leads there; numbers are
//! used again only when no turn can still know what they meant.
use artery_rcu::{Domain, Published, Turn};
use artery_table::{Group, Limbo};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

/// What a next hop must be able to do.
pub(crate) trait Hop: Copy + Eq + Hash + Send + Sync + 'static {}
impl<H: Copy + Eq + Hash + Send + Sync + 'static> Hop for H {}

/// The next hops of one table, for who changes it.
pub(crate) struct NextHops<H: Hop> {
    numbers: HashMap<H, Group>,
    /// By number: the next hop and how many routes lead there. Number 0 is no next hop. A next hop that lost its
    /// last route stays until its number is used again: a turn under way may still ask for it.
    hops: Vec<Option<(H, u32)>>,
    free: Vec<Group>,
    limbo: Limbo<Group>,
    published: Arc<Published<Vec<Option<H>>>>,
    /// Whether there are next hops that readers don't know yet.
    is_behind: bool,
}

/// The same for workers.
pub(crate) struct HopReader<H>(Arc<Published<Vec<Option<H>>>>);

impl<H> Clone for HopReader<H> {
    fn clone(&self) -> HopReader<H> {
        HopReader(self.0.clone())
    }
}

impl<H: Hop> HopReader<H> {
    /// All next hops as of this turn, by number.
    #[inline]
    pub(crate) fn all<'t>(&'t self, turn: &'t Turn<'_>) -> &'t [Option<H>] {
        self.0.read(turn)
    }
}

impl<H: Hop> NextHops<H> {
    pub(crate) fn new(domain: &Arc<Domain>) -> NextHops<H> {
        NextHops {
            numbers: HashMap::new(),
            hops: vec![None],
            free: Vec::new(),
            limbo: Limbo::new(domain),
            published: Arc::new(Published::new(domain, vec![None])),
            is_behind: false,
        }
    }

    pub(crate) fn reader(&self) -> HopReader<H> {
        HopReader(self.published.clone())
    }

    /// The number for one more route to `hop`. Readers know a new one after [`publish`](Self::publish), which must
    /// come before the route.
    pub(crate) fn acquire(&mut self, hop: H) -> Group {
        let number = match self.numbers.entry(hop) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.limbo.release(|number| self.free.push(number));
                let number = self.free.pop().unwrap_or_else(|| {
                    self.hops.push(None);
                    (self.hops.len() - 1) as Group
                });
                self.is_behind = true;
                self.hops[number as usize] = Some((hop, 0));
                *entry.insert(number)
            }
        };
        if let Some((_, routes)) = &mut self.hops[number as usize] {
            *routes += 1;
        }
        number
    }

    /// One route less leads to the next hop of this number.
    pub(crate) fn release(&mut self, number: Group) {
        let Some(Some((hop, routes))) = self.hops.get_mut(number as usize) else { return };
        *routes -= 1;
        if *routes == 0 {
            self.numbers.remove(hop);
            self.limbo.put(number);
        }
    }

    /// The next hop of a number.
    pub(crate) fn hop(&self, number: Group) -> Option<H> {
        let (hop, routes) = self.hops.get(number as usize).copied().flatten()?;
        (routes > 0).then_some(hop)
    }

    /// Shows readers what was acquired.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.is_behind) {
            self.published.publish(self.hops.iter().map(|hop| hop.map(|(hop, _)| hop)).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_table::NO_GROUP;

    #[test]
    fn equal_next_hops_share_a_number_while_routes_lead_there() {
        let domain = Domain::new();
        let mut hops = NextHops::new(&domain);
        let (a, b) = (hops.acquire("a"), hops.acquire("b"));
        assert_eq!((hops.acquire("a"), hops.hop(a), hops.hop(b)), (a, Some("a"), Some("b")));
        assert_ne!(a, b);
        hops.release(a);
        assert_eq!(hops.hop(a), Some("a"));
        hops.release(a);
        assert_eq!((hops.hop(a), hops.hop(NO_GROUP)), (None, None));
    }

    #[test]
    fn readers_know_what_was_published() {
        let domain = Domain::new();
        let mut hops = NextHops::new(&domain);
        let known = hops.reader();
        let mut reader = domain.reader();
        let a = hops.acquire("a");
        assert_eq!(known.all(&reader.turn()).len(), 1);
        hops.publish();
        assert_eq!(known.all(&reader.turn())[a as usize], Some("a"));
    }

    #[test]
    fn a_number_is_not_used_again_while_a_turn_may_know_it() {
        let domain = Domain::new();
        let mut hops = NextHops::new(&domain);
        let mut reader = domain.reader();
        let turn = reader.turn();
        let numbers: Vec<Group> = (0..300).map(|hop| hops.acquire(hop)).collect();
        numbers.iter().for_each(|number| hops.release(*number));
        assert!(!numbers.contains(&hops.acquire(1000)));
        let _ = turn;
        reader.turn();
        assert!(numbers.contains(&hops.acquire(1001)));
    }
}
