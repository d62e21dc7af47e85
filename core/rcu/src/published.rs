//! One replaceable value. The crate's only unsafe code; it rests on what `domain.rs` argues about turns.

use std::fmt;
use std::sync::Arc;

use crate::sync::{AtomicPtr, Ordering::*};
use crate::{Domain, Turn};

/// A value that readers see whole and that a writer replaces at once.
///
/// Reading is one load and one compare: a turn of another domain protects nothing here, and panics.
pub struct Published<T> {
    /// From `Box::into_raw`, never null, owned by this.
    current: AtomicPtr<T>,
    domain: Arc<Domain>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes a first value to the readers of `domain`.
    pub fn new(domain: &Arc<Domain>, value: T) -> Self {
        Published { current: AtomicPtr::new(Box::into_raw(Box::new(value))), domain: domain.clone() }
    }

    /// Returns the value as of this turn or newer.
    ///
    /// # Panics
    /// When `turn` is of another domain than the value.
    #[inline]
    pub fn read<'t>(&'t self, turn: &'t Turn<'_>) -> &'t T {
        if !turn.is_of(&self.domain) {
            turn_of_another_domain();
        }
        // SAFETY: the pointer came from Box::into_raw. What it points to is freed by `Unlinked` after a grace
        // period of our domain, which cannot end within this turn, or by our drop, and 't borrows both.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Replaces the value; turns that begin from now on see the new one, and the old one is dropped when the
    /// turns under way have ended.
    pub fn publish(&self, value: T) {
        let old = self.current.swap(Box::into_raw(Box::new(value)), AcqRel);
        self.domain.retire(Unlinked(old));
    }

    /// Returns the domain whose turns read this value.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

#[cold]
#[inline(never)]
fn turn_of_another_domain() -> ! {
    panic!("a published value was read under a turn of another domain");
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        drop(Unlinked(self.current.load(Acquire))); // &mut self: nobody reads any more
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}

/// A value that new turns cannot reach. A raw pointer until it is dropped: a `Box` would claim to be the only
/// pointer to the value while turns under way still read it.
struct Unlinked<T>(*mut T);

// SAFETY: it owns its T, as a Box does.
unsafe impl<T: Send> Send for Unlinked<T> {}

impl<T> Drop for Unlinked<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Box::into_raw and was swapped out of its place (or that place is
        // being dropped), so only this drop frees it; `publish` defers the drop until no turn holds a
        // reference.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts its living copies.
    struct Counted(Arc<AtomicUsize>, u32);

    impl Counted {
        fn new(living: &Arc<AtomicUsize>, n: u32) -> Counted {
            living.fetch_add(1, Ordering::SeqCst);
            Counted(living.clone(), n)
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_next_turn_sees_what_was_published() {
        let domain = Domain::new();
        let (number, word) = (Published::new(&domain, 1), Published::new(&domain, "one"));
        let mut reader = domain.reader();
        number.publish(2);
        word.publish("two");
        let turn = reader.turn();
        assert_eq!((*number.read(&turn), *word.read(&turn)), (2, "two"));
    }

    #[test]
    fn a_reference_stays_good_for_its_turn_whatever_is_published() {
        let (domain, living) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let table = Published::new(&domain, Counted::new(&living, 1));
        let mut reader = domain.reader();
        let turn = reader.turn();
        let kept = table.read(&turn);
        table.publish(Counted::new(&living, 2));
        table.publish(Counted::new(&living, 3));
        domain.run_deferred();
        assert_eq!((kept.1, living.load(Ordering::SeqCst)), (1, 3));
        assert_eq!(table.read(&turn).1, 3);
        reader.park();
        domain.run_deferred();
        assert_eq!(living.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn every_value_is_dropped_once() {
        let (domain, living) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let table = Published::new(&domain, Counted::new(&living, 0));
        let mut reader = domain.reader();
        for n in 1..100 {
            reader.turn();
            table.publish(Counted::new(&living, n));
        }
        drop((table, reader, domain));
        assert_eq!(living.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn retired_values_are_few_while_readers_turn() {
        let (domain, living) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let table = Published::new(&domain, Counted::new(&living, 0));
        let (mut one, mut other) = (domain.reader(), domain.reader());
        for n in 1..1000 {
            table.publish(Counted::new(&living, n));
            assert!(domain.pending() <= 1 && living.load(Ordering::SeqCst) <= 2);
            one.turn();
            other.turn();
        }
    }

    #[test]
    #[should_panic(expected = "turn of another domain")]
    fn a_turn_of_another_domain_is_refused() {
        let (ours, theirs) = (Domain::new(), Domain::new());
        let table = Published::new(&ours, 1);
        let mut stranger = theirs.reader();
        table.read(&stranger.turn());
    }
}
