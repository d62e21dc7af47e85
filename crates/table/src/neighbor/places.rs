//! Which neighbor has which word: ids, that all tables of a router share.
//!
//! An id that is given back has its word cleared at once. A worker that met it in this turn reads "unknown" and never
//! another neighbor's address: the id is handed out again after every such turn has ended.
use super::engine::Limit;
use super::links::{Link, Links, NeighborId};
use crate::Limbo;
use artery_rcu::Domain;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ids of a router's neighbors.
pub struct Places {
    domain: Arc<Domain>,
    links: Arc<Links>,
    /// Most ids in use at a time.
    most: usize,
    /// Tables are changed under one lock of their owner's, so nobody ever waits for this one.
    ids: Mutex<Ids>,
}

struct Ids {
    in_use: usize,
    /// From this number on, none was ever used.
    fresh: u32,
    free: Vec<NeighborId>,
    /// Given back; workers may still know them.
    known: Limbo<NeighborId>,
}

impl Places {
    /// The ids of `links`, whose readers take turns of `domain`. At most `most` are in use at a time; there should be
    /// some thousands more, as it takes a grace period until an id is used again.
    pub fn new(domain: &Arc<Domain>, links: &Arc<Links>, most: usize) -> Arc<Places> {
        let ids = Ids { in_use: 0, fresh: 0, free: Vec::new(), known: Limbo::new(domain) };
        Arc::new(Places { domain: domain.clone(), links: links.clone(), most, ids: Mutex::new(ids) })
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
        self.ids().in_use
    }

    /// Hands out an id whose word is clear and that no worker knows.
    pub fn take(&self) -> Result<NeighborId, Limit> {
        let mut ids = self.ids();
        if ids.in_use >= self.most {
            return Err(Limit::Total);
        }
        let id = ids.take(self.links.most()).ok_or(Limit::Total)?;
        ids.in_use += 1;
        Ok(id)
    }

    /// Takes an id back that nothing leads to any more.
    pub fn give_back(&self, id: NeighborId) {
        self.links.set(id, Link::UNKNOWN);
        let mut ids = self.ids();
        ids.in_use -= 1;
        ids.known.put(id);
    }

    /// No code of others runs under this lock, so a poisoned one holds nothing half done.
    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ids {
    /// One of the numbers below `end`. Ids come in groups out of their grace period; to ask for that is cheaper than
    /// to begin a new one, which is done only when there are no others.
    fn take(&mut self, end: usize) -> Option<NeighborId> {
        if self.free.is_empty() {
            self.known.release(|id| self.free.push(id));
        }
        if self.free.is_empty() && (self.fresh as usize) < end {
            self.fresh += 1;
            return Some(NeighborId::new(self.fresh - 1));
        }
        if self.free.is_empty() {
            self.known.close();
            self.known.release(|id| self.free.push(id));
        }
        self.free.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pages;
    use artery_wire::EtherAddr;

    #[test]
    fn an_id_is_used_again_when_no_turn_can_know_it() {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 1).unwrap());
        let places = Places::new(&domain, &links, 1);
        let mut reader = domain.reader();
        let turn = reader.turn();
        let id = places.take().unwrap();
        links.set(id, Link::ready(EtherAddr([2; 6])));
        assert_eq!((places.take(), places.in_use()), (Err(Limit::Total), 1));
        places.give_back(id);
        assert_eq!((links.get(id), places.take()), (Link::UNKNOWN, Err(Limit::Total)));
        let _ = turn;
        reader.turn();
        assert_eq!((places.take(), places.in_use()), (Ok(id), 1));
    }

    #[test]
    fn no_more_are_in_use_than_is_allowed() {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 100).unwrap());
        let places = Places::new(&domain, &links, 2);
        let ids = [places.take().unwrap(), places.take().unwrap()];
        assert!(ids[0] != ids[1] && places.take() == Err(Limit::Total));
        places.give_back(ids[0]);
        assert!(places.take().is_ok_and(|id| id != ids[1]));
    }
}
