//! Next hops by number: the values in a routing table are these numbers.
use artery_l3::next_hop::Numbers;
use artery_lpm::Group;
use artery_rcu::{Domain, Published, Turn};
use std::hash::Hash;
use std::sync::Arc;

/// What a next hop must be able to do.
pub(crate) trait Hop: Copy + Eq + Hash + Send + Sync + 'static {}
impl<H: Copy + Eq + Hash + Send + Sync + 'static> Hop for H {}

/// The writer's half of a table's next hops: each has a number while routes use it.
pub(crate) struct NextHops<H: Hop> {
    numbers: Numbers<H>,
    published: Arc<Published<Vec<Option<H>>>>,
    /// Whether there are next hops that are not published yet.
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
        let published = Arc::new(Published::new(domain, vec![None]));
        NextHops { numbers: Numbers::new(domain), published, is_behind: false }
    }

    pub(crate) fn reader(&self) -> HopReader<H> {
        HopReader(self.published.clone())
    }

    /// The number of `hop`, with one more reference. Readers know a new one after [`publish`](Self::publish),
    /// which must come before the route.
    pub(crate) fn acquire(&mut self, hop: H) -> Group {
        let (number, is_new) = self.numbers.acquire(hop);
        self.is_behind |= is_new;
        number
    }

    /// Drops one reference to the next hop of this number.
    pub(crate) fn release(&mut self, number: Group) {
        self.numbers.release_users(number, 1);
    }

    /// The next hop of a number.
    pub(crate) fn hop(&self, number: Group) -> Option<H> {
        self.numbers.get(number).copied()
    }

    /// Shows readers what was acquired.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.is_behind) {
            self.published.publish(self.numbers.known().map(|hop| hop.copied()).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_lpm::NO_GROUP;

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
}
