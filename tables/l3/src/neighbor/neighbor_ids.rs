//! Which neighbor has which word: ids, that all tables of a router share.
//!
//! An id that is given back has its word cleared at once. A worker that met it in this turn reads "unknown"
//! and never another neighbor's address: the id is handed out again after every such turn has ended.
use super::engine::Limit;
use super::links::{Link, Links, NeighborId};
use artery_rcu::Domain;
use artery_storage::RetireList;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first id of a router with many neighbors.
const MANY: NeighborId = NeighborId::new(1 << 10);

/// The ids of a router's neighbors.
pub struct NeighborIds {
    domain: Arc<Domain>,
    links: Arc<Links>,
    /// Most ids in use at a time.
    most: usize,
    /// Tables are changed under one lock of their owner's, so this lock is never contended.
    ids: Mutex<Ids>,
}

struct Ids {
    in_use: usize,
    /// From this number on, none was ever used.
    fresh: u32,
    free: Vec<NeighborId>,
    /// Given back; workers may still know them.
    known: RetireList<NeighborId>,
}

impl NeighborIds {
    /// The ids of `links`, whose readers take turns of `domain`. At most `most` are in use at a time; there
    /// should be some thousands more, as it takes a grace period until an id is used again.
    pub fn new(domain: &Arc<Domain>, links: &Arc<Links>, most: usize) -> Arc<NeighborIds> {
        let ids = Ids { in_use: 0, fresh: 0, free: Vec::new(), known: RetireList::new(domain) };
        Arc::new(NeighborIds { domain: domain.clone(), links: links.clone(), most, ids: Mutex::new(ids) })
    }

    /// The words that the ids lead to.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }
    /// The domain of whose turns workers look at the words.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
    /// How many ids are in use.
    pub fn in_use(&self) -> usize {
        self.lock_ids().in_use
    }

    /// Hands out an id whose word is clear and that no worker knows.
    pub fn alloc_id(&self) -> Result<NeighborId, Limit> {
        let mut ids = self.lock_ids();
        if ids.in_use >= self.most {
            return Err(Limit::Total);
        }
        let id = ids.alloc_id(self.links.capacity()).ok_or(Limit::Total)?;
        ids.in_use += 1;
        if id == MANY {
            self.links.expect_many();
        }
        Ok(id)
    }

    /// Takes an id back that nothing leads to any more.
    pub fn free_id(&self, id: NeighborId) {
        self.links.set_link(id, Link::UNKNOWN);
        let mut ids = self.lock_ids();
        ids.in_use -= 1;
        ids.known.retire(id);
    }

    /// No code of others runs under this lock, so a poisoned one holds nothing half done.
    fn lock_ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ids {
    /// One of the numbers below `end`. Ids come in groups out of their grace period; to ask for that is
    /// cheaper than to begin a new one, which is done only when there are no others.
    fn alloc_id(&mut self, end: usize) -> Option<NeighborId> {
        if self.free.is_empty() {
            self.known.reclaim_ready(|id| self.free.push(id));
        }
        if self.free.is_empty() && (self.fresh as usize) < end {
            self.fresh += 1;
            return Some(NeighborId::new(self.fresh - 1));
        }
        if self.free.is_empty() {
            self.known.close_batch();
            self.known.reclaim_ready(|id| self.free.push(id));
        }
        self.free.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_storage::Pages;
    use artery_wire::EtherAddr;

    #[test]
    fn an_id_is_used_again_when_no_turn_can_know_it() {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 1).unwrap());
        let places = NeighborIds::new(&domain, &links, 1);
        let mut reader = domain.reader();
        let turn = reader.turn();
        let id = places.alloc_id().unwrap();
        links.set_link(id, Link::ready(EtherAddr([2; 6])));
        assert_eq!((places.alloc_id(), places.in_use()), (Err(Limit::Total), 1));
        places.free_id(id);
        assert_eq!((links.get(id), places.alloc_id()), (Link::UNKNOWN, Err(Limit::Total)));
        let _ = turn;
        reader.turn();
        assert_eq!((places.alloc_id(), places.in_use()), (Ok(id), 1));
    }

    #[test]
    fn no_more_are_in_use_than_is_allowed() {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 100).unwrap());
        let places = NeighborIds::new(&domain, &links, 2);
        let ids = [places.alloc_id().unwrap(), places.alloc_id().unwrap()];
        assert!(ids[0] != ids[1] && places.alloc_id() == Err(Limit::Total));
        places.free_id(ids[0]);
        assert!(places.alloc_id().is_ok_and(|id| id != ids[1]));
    }
}
