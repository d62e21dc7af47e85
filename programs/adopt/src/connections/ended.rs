//! Entries that have ended a moment ago.
//!
//! Processors send their events by themselves: an event about a packet may come behind that of the entry's
//! end, which another processor has sent. It must not bring the connection back, whose end nothing would tell
//! once more.
use std::collections::HashSet;

/// Numbers of entries, those that ended since the last turn apart from those of the turn before.
#[derive(Debug, Default)]
pub(super) struct EndedEntries([HashSet<u32>; 2]);

impl EndedEntries {
    pub(super) fn insert(&mut self, id: u32) {
        self.0[0].insert(id);
    }

    /// There is a new entry of that number.
    pub(super) fn remove(&mut self, id: u32) {
        for ended in &mut self.0 {
            ended.remove(&id);
        }
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.0.iter().any(|ended| ended.contains(&id))
    }

    /// Begins another turn, and forgets what ended before the last one.
    pub(super) fn begin_turn(&mut self) {
        self.0.swap(0, 1);
        self.0[0].clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_remembered_for_a_turn_at_least_and_until_another_has_its_number() {
        let mut ended = EndedEntries::default();
        ended.insert(7);
        ended.begin_turn();
        assert!(ended.contains(7) && !ended.contains(8));
        ended.begin_turn();
        assert!(!ended.contains(7));
        ended.insert(7);
        ended.begin_turn();
        ended.remove(7);
        assert!(!ended.contains(7));
    }
}
