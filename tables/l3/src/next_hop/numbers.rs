//! Numbers for things that are shared: equal things have one number for as long as it is in use.
use artery_lpm::{Group, NO_GROUP};
use artery_rcu::Domain;
use artery_storage::RetireList;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

/// Different things, each with a number and a count of its users. A number is used again only when no turn
/// can still know what it meant. 0 ([`NO_GROUP`]) is the number of nothing.
pub struct Numbers<T> {
    numbers: HashMap<T, Group>,
    /// By number. What lost its last user stays until its number is used again: a turn under
    /// way may still ask.
    things: Vec<Option<(T, u32)>>,
    free: Vec<Group>,
    retired: RetireList<Group>,
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    /// Nothing has a number yet; threads that read numbers take turns of `domain`.
    pub fn new(domain: &Arc<Domain>) -> Numbers<T> {
        Numbers {
            numbers: HashMap::new(),
            things: vec![None],
            free: Vec::new(),
            retired: RetireList::new(domain),
        }
    }

    /// The number of a thing for one more user, and whether it is new.
    pub fn acquire(&mut self, thing: T) -> (Group, bool) {
        let (number, is_new) = match self.numbers.entry(thing) {
            Entry::Occupied(entry) => (*entry.get(), false),
            Entry::Vacant(entry) => {
                self.retired.reclaim_ready(|number| self.free.push(number));
                let number = self.free.pop().unwrap_or_else(|| {
                    self.things.push(None);
                    (self.things.len() - 1) as Group
                });
                self.things[number as usize] = Some((entry.key().clone(), 0));
                entry.insert(number);
                (number, true)
            }
        };
        self.add_users(number, 1);
        (number, is_new)
    }

    /// So many more users of the thing that has this number.
    pub fn add_users(&mut self, number: Group, users: u32) {
        if let Some(Some((_, count))) = self.things.get_mut(number as usize) {
            *count += users;
        }
    }

    /// So many users less; says whether they were the last.
    pub fn release_users(&mut self, number: Group, users: u32) -> bool {
        let Some(Some((thing, count))) = self.things.get_mut(number as usize) else { return false };
        if *count == 0 || users == 0 {
            return false;
        }
        *count = count.saturating_sub(users);
        if *count > 0 {
            return false;
        }
        self.numbers.remove(thing);
        self.retired.retire(number);
        true
    }

    /// The number of a thing that is in use.
    pub fn find(&self, thing: &T) -> Option<Group> {
        self.numbers.get(thing).copied()
    }
    /// What is in use under a number.
    pub fn get(&self, number: Group) -> Option<&T> {
        let (thing, users) = self.things.get(number as usize)?.as_ref()?;
        (*users > 0).then_some(thing)
    }
    /// How many use what has this number.
    pub fn user_count(&self, number: Group) -> u32 {
        self.things.get(number as usize).and_then(Option::as_ref).map_or(0, |(_, users)| *users)
    }
    /// By number: what is in use, and what a turn under way may still ask for.
    pub fn known(&self) -> impl Iterator<Item = Option<&T>> {
        self.things.iter().map(|thing| thing.as_ref().map(|(thing, _)| thing))
    }
    /// What a number means, or meant to turns that are under way.
    pub fn meaning(&self, number: Group) -> Option<&T> {
        self.things.get(number as usize)?.as_ref().map(|(thing, _)| thing)
    }
    /// What is in use, in the order of numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Group, &T)> {
        let numbered = (NO_GROUP..).zip(&self.things);
        numbered.filter_map(|(number, thing)| match thing {
            Some((thing, users)) if *users > 0 => Some((number, thing)),
            _ => None,
        })
    }
    /// How many things are in use.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
    /// Whether nothing is in use.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_share_a_number_while_they_are_used() {
        let mut numbers = Numbers::new(&Domain::new());
        let ((a, new), (b, _)) = (numbers.acquire("a"), numbers.acquire("b"));
        assert!(new && a != b && a != NO_GROUP);
        assert_eq!(numbers.acquire("a"), (a, false));
        assert_eq!(numbers.get(a), Some(&"a"));
        assert_eq!(numbers.user_count(a), 2);
        numbers.add_users(a, 3);
        assert!(!numbers.release_users(a, 4));
        assert_eq!((numbers.get(a), numbers.find(&"a"), numbers.len()), (Some(&"a"), Some(a), 2));
        assert!(numbers.release_users(a, 1) && !numbers.release_users(a, 1));
        assert_eq!((numbers.get(a), numbers.find(&"a"), numbers.get(NO_GROUP)), (None, None, None));
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [(b, &"b")]);
    }

    #[test]
    fn a_number_is_not_used_again_while_a_turn_may_know_it() {
        let domain = Domain::new();
        let mut numbers = Numbers::new(&domain);
        let mut reader = domain.reader();
        let turn = reader.turn();
        let all: Vec<Group> = (0..300).map(|thing| numbers.acquire(thing).0).collect();
        all.iter().for_each(|number| assert!(numbers.release_users(*number, 1)));
        assert!(!all.contains(&numbers.acquire(1000).0));
        let _ = turn;
        reader.turn();
        assert!(all.contains(&numbers.acquire(1001).0));
    }
}
