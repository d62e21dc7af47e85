//! What was taken out of readers' sight and may still be read for a while.
use artery_rcu::{Domain, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most things that wait together for one grace period.
const TOGETHER: usize = 256;

/// Things that a writer has unlinked, until no turn can see them any more.
///
/// Asking the domain costs a lock and a look at every reader, so things go through in groups.
pub struct RetireList<T> {
    domain: Arc<Domain>,
    /// Unlinked since the last group was closed.
    fresh: Vec<T>,
    waiting: VecDeque<(Ticket, Vec<T>)>,
}

impl<T> RetireList<T> {
    /// An empty one, for things that readers of `domain` see.
    pub fn new(domain: &Arc<Domain>) -> RetireList<T> {
        RetireList { domain: domain.clone(), fresh: Vec::new(), waiting: VecDeque::new() }
    }

    /// Takes something that new turns can't reach.
    pub fn retire(&mut self, thing: T) {
        self.fresh.push(thing);
        if self.fresh.len() >= TOGETHER {
            self.close_batch();
        }
    }

    /// Hands out what no turn can see any more.
    pub fn reclaim_ready(&mut self, mut each: impl FnMut(T)) {
        while let Some((ticket, _)) = self.waiting.front()
            && self.domain.is_over(*ticket)
            && let Some((_, things)) = self.waiting.pop_front()
        {
            things.into_iter().for_each(&mut each);
        }
    }

    /// Hands out everything, after waiting for the turns that are under way. For control
    /// threads only; see [`Domain::synchronize`].
    pub fn reclaim_all(&mut self, mut each: impl FnMut(T)) {
        self.close_batch();
        self.domain.synchronize();
        self.reclaim_ready(&mut each);
    }

    /// How many things are here.
    pub fn len(&self) -> usize {
        self.fresh.len() + self.waiting.iter().map(|(_, things)| things.len()).sum::<usize>()
    }

    /// Whether nothing is here.
    pub fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.waiting.is_empty()
    }

    /// Lets what has been put so far go through its grace period without waiting for more.
    pub fn close_batch(&mut self) {
        if !self.fresh.is_empty() {
            let things = std::mem::replace(&mut self.fresh, Vec::with_capacity(TOGETHER));
            self.waiting.push_back((self.domain.ticket(), things));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_before_the_turns_that_could_see_it_have_ended() {
        let domain = Domain::new();
        let mut retired = RetireList::new(&domain);
        let mut reader = domain.reader();
        let turn = reader.turn();
        (0..TOGETHER).for_each(|n| retired.retire(n));
        retired.reclaim_ready(|n| panic!("{n} left"));
        assert_eq!(retired.len(), TOGETHER);
        let _ = turn;
        reader.turn();
        let mut left = Vec::new();
        retired.reclaim_ready(|n| left.push(n));
        assert_eq!(left, (0..TOGETHER).collect::<Vec<_>>());
        assert!(retired.is_empty());
    }

    #[test]
    fn who_waits_gets_everything() {
        let domain = Domain::new();
        let mut retired = RetireList::new(&domain);
        retired.retire("one");
        let mut left = Vec::new();
        retired.reclaim_all(|thing| left.push(thing));
        assert_eq!(left, ["one"]);
    }
}
