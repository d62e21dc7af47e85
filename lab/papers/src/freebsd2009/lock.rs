//! The locks and reference counts that baselines are made of, in three kinds: as they are, watched,
//! and none at all.
//!
//! A baseline is written once, over [`Locks`]. [`Plain`] is what is timed against others. [`Watched`] counts
//! for each thread what it locks, and looks at the clock around every 61st operation and whenever it has to
//! wait; what looking costs is taken off. [`Alone`] has no locks and cannot be shared, which the compiler
//! sees to: it is the build for one processor.
//!
//! Locks are those of the standard library: they spin for a while, and then sleep in the kernel. One
//! acquisition and its release are two atomic read-modify-writes, a reference taken or dropped is one.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::Instant;

/// A kind of locks.
pub(super) trait Locks: 'static {
    /// For one at a time.
    type Mutex<T>: Exclusive<T>;
    /// For several readers or one writer.
    type Rw<T>: Shared<T>;
    /// A reference-counted pointer, such as `Arc`.
    type Ref<T>: Deref<Target = T> + Clone;
    /// Makes the first reference.
    fn share<T>(value: T) -> Self::Ref<T>;
}

/// What a mutex does.
pub(super) trait Exclusive<T> {
    fn new(value: T) -> Self;
    /// Runs `act` with exclusive access.
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R;
}

/// What a lock for readers and writers does.
pub(super) trait Shared<T> {
    fn new(value: T) -> Self;
    /// Runs `act` while no writer runs.
    fn read<R>(&self, act: impl FnOnce(&T) -> R) -> R;
    /// Runs `act` while no other reader or writer runs.
    fn write<R>(&self, act: impl FnOnce(&mut T) -> R) -> R;
}

/// Locks as they are.
pub(super) struct Plain;

impl Locks for Plain {
    type Mutex<T> = Mutex<T>;
    type Rw<T> = RwLock<T>;
    type Ref<T> = Arc<T>;
    fn share<T>(value: T) -> Arc<T> {
        Arc::new(value)
    }
}

impl<T> Exclusive<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Mutex::new(value)
    }
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Shared<T> for RwLock<T> {
    fn new(value: T) -> Self {
        RwLock::new(value)
    }
    #[inline]
    fn read<R>(&self, act: impl FnOnce(&T) -> R) -> R {
        act(&RwLock::read(self).unwrap_or_else(PoisonError::into_inner))
    }
    #[inline]
    fn write<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut RwLock::write(self).unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) struct Alone;

impl Locks for Alone {
    type Mutex<T> = RefCell<T>;
    type Rw<T> = RefCell<T>;
    type Ref<T> = Rc<T>;
    fn share<T>(value: T) -> Rc<T> {
        Rc::new(value)
    }
}

impl<T> Exclusive<T> for RefCell<T> {
    fn new(value: T) -> Self {
        RefCell::new(value)
    }
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.borrow_mut())
    }
}

impl<T> Shared<T> for RefCell<T> {
    fn new(value: T) -> Self {
        RefCell::new(value)
    }
    #[inline]
    fn read<R>(&self, act: impl FnOnce(&T) -> R) -> R {
        act(&self.borrow())
    }
    #[inline]
    fn write<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.borrow_mut())
    }
}

/// What a thread did with locks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) locks: u64,
    /// Those of them that another thread had at that moment.
    pub(super) contended: u64,
    /// Atomic read-modify-writes, those of locks among them.
    pub(super) rmw: u64,
    /// Nanoseconds in locks and reference counts: all of waiting, and an estimate from every 61st
    /// operation for the rest.
    pub(super) nanos: f64,
}

/// Every how many operations one is timed: a prime, so that it is not always the same one of a packet.
const STRIDE: u32 = 61;

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally { locks: 0, contended: 0, rmw: 0, nanos: 0.0 }) };
    static UNTIL_TIMED: Cell<u32> = const { Cell::new(STRIDE) };
    /// Nanoseconds that two looks at the clock add to what is between them.
    static LOOK: Cell<f64> = const { Cell::new(-1.0) };
}

/// Takes what this thread has counted.
pub(super) fn take_tally() -> Tally {
    TALLY.take()
}

impl Tally {
    /// Adds that of another thread.
    pub(super) fn add(&mut self, other: Tally) {
        self.locks += other.locks;
        self.contended += other.contended;
        self.rmw += other.rmw;
        self.nanos += other.nanos;
    }
}

fn count(change: impl FnOnce(&mut Tally)) {
    let mut tally = TALLY.get();
    change(&mut tally);
    TALLY.set(tally);
}

/// The longest that an operation takes by itself: what takes longer lost its processor meanwhile, which has
/// nothing to do with the lock and would count for 61.
const LONGEST: f64 = 5000.0;

/// Runs an operation on uncontended locks, and times a sample of them.
#[inline]
fn watch<R>(operation: impl FnOnce() -> R) -> R {
    let left = UNTIL_TIMED.get() - 1;
    if left > 0 {
        UNTIL_TIMED.set(left);
        return operation();
    }
    UNTIL_TIMED.set(STRIDE);
    let (done, nanos) = timed(operation);
    count(|tally| tally.nanos += nanos.min(LONGEST) * f64::from(STRIDE));
    done
}

/// Does something, and says how many nanoseconds it took without the looks at the clock.
fn timed<R>(act: impl FnOnce() -> R) -> (R, f64) {
    let start = Instant::now();
    let done = act();
    // Less than nothing now and then: what is too little once is too much another time.
    (done, start.elapsed().as_nanos() as f64 - clock_cost())
}

/// What looking at the clock adds to an operation: a lock of one's own, one at a time between looks, against
/// many in a row. It is more than two looks by themselves, as the processor does nothing else meanwhile.
fn clock_cost() -> f64 {
    if LOOK.get() < 0.0 {
        let own = Mutex::new(0u32);
        let one = || {
            let start = Instant::now();
            let guard = own.lock();
            let nanos = start.elapsed().as_nanos() as f64;
            drop(guard);
            nanos
        };
        let mut ones: Vec<f64> = (0..1001).map(|_| one()).collect();
        ones.sort_by(f64::total_cmp);
        let row = || {
            let start = Instant::now();
            (0..1000).for_each(|_| own.with(|count| *count = count.wrapping_add(1)));
            // Each is two operations.
            start.elapsed().as_nanos() as f64 / 2000.0
        };
        let least = (0..21).map(|_| row()).fold(f64::INFINITY, f64::min);
        LOOK.set((ones[500] - least).max(0.0));
    }
    LOOK.get()
}

/// Locks that are watched.
pub(super) struct Watched;

/// A mutex that is watched.
pub(super) struct WatchedMutex<T>(Mutex<T>);
/// A lock for readers and writers that is watched.
pub(super) struct WatchedRw<T>(RwLock<T>);
/// A reference that is watched.
pub(super) struct WatchedRef<T>(Option<Arc<T>>);

impl Locks for Watched {
    type Mutex<T> = WatchedMutex<T>;
    type Rw<T> = WatchedRw<T>;
    type Ref<T> = WatchedRef<T>;
    fn share<T>(value: T) -> WatchedRef<T> {
        WatchedRef(Some(Arc::new(value)))
    }
}

/// Counts an acquisition, and takes the lock at once or else by waiting, which is timed every time.
fn acquire<G>(at_once: impl FnOnce() -> Result<G, TryLockError<G>>, wait: impl FnOnce() -> G) -> G {
    let (guard, waited) = match watch(at_once) {
        Ok(guard) => (guard, None),
        Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), None),
        Err(TryLockError::WouldBlock) => {
            let (guard, nanos) = timed(wait);
            (guard, Some(nanos))
        }
    };
    count(|tally| {
        tally.locks += 1;
        tally.rmw += 2;
        tally.contended += u64::from(waited.is_some());
        tally.nanos += waited.unwrap_or(0.0);
    });
    guard
}

impl<T> Exclusive<T> for WatchedMutex<T> {
    fn new(value: T) -> Self {
        WatchedMutex(Mutex::new(value))
    }
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let wait = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = acquire(|| self.0.try_lock(), wait);
        let done = act(&mut guard);
        watch(|| drop(guard));
        done
    }
}

impl<T> Shared<T> for WatchedRw<T> {
    fn new(value: T) -> Self {
        WatchedRw(RwLock::new(value))
    }
    fn read<R>(&self, act: impl FnOnce(&T) -> R) -> R {
        let wait = || self.0.read().unwrap_or_else(PoisonError::into_inner);
        let guard = acquire(|| self.0.try_read(), wait);
        let done = act(&guard);
        watch(|| drop(guard));
        done
    }
    fn write<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let wait = || self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut guard = acquire(|| self.0.try_write(), wait);
        let done = act(&mut guard);
        watch(|| drop(guard));
        done
    }
}

impl<T> Deref for WatchedRef<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is taken by drop alone")
    }
}

impl<T> Clone for WatchedRef<T> {
    fn clone(&self) -> Self {
        count(|tally| tally.rmw += 1);
        watch(|| WatchedRef(self.0.clone()))
    }
}

impl<T> Drop for WatchedRef<T> {
    fn drop(&mut self) {
        count(|tally| tally.rmw += 1);
        let inner = self.0.take();
        watch(|| drop(inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adds_up<L: Locks>() {
        let (mutex, rw) = (L::Mutex::<u32>::new(1), L::Rw::<u32>::new(10));
        mutex.with(|value| *value += 1);
        rw.write(|value| *value += 1);
        let both = L::share(mutex.with(|value| *value) + rw.read(|value| *value));
        assert_eq!(*both.clone(), 13);
    }

    #[test]
    fn all_kinds_guard_the_same() {
        adds_up::<Plain>();
        adds_up::<Alone>();
        adds_up::<Watched>();
    }

    #[test]
    fn what_is_watched_is_counted_for_its_thread() {
        take_tally();
        adds_up::<Watched>();
        let tally = take_tally();
        // Four locks of two each; a reference that was made, taken and dropped twice.
        assert_eq!((tally.locks, tally.rmw, tally.contended), (4, 4 * 2 + 3, 0));
        assert_eq!(std::thread::spawn(take_tally).join().unwrap(), Tally::default());
        adds_up::<Plain>();
        assert_eq!(take_tally(), Tally::default());
    }

    #[test]
    fn a_lock_that_another_thread_has_is_contended_and_waiting_takes_time() {
        let mutex = Arc::new(WatchedMutex::new(0));
        let (held, wanted) = (Arc::new(std::sync::Barrier::new(2)), mutex.clone());
        let other = {
            let (mutex, held) = (mutex.clone(), held.clone());
            std::thread::spawn(move || {
                mutex.with(|value| {
                    held.wait();
                    // Long enough that the other one comes meanwhile.
                    let start = Instant::now();
                    while start.elapsed().as_millis() < 50 {
                        std::thread::yield_now();
                    }
                    *value = 7;
                });
            })
        };
        take_tally();
        held.wait();
        assert_eq!(wanted.with(|value| *value), 7);
        let tally = take_tally();
        other.join().unwrap();
        assert_eq!((tally.locks, tally.contended), (1, 1));
        assert!(tally.nanos > 1e6, "{tally:?}");
    }
}
