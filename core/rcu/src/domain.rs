//! Who reads, since when, and what waits to be freed.
//!
//! The plan. The epoch is a counter that only grows. A writer first takes a value out of sight of new turns
//! (*unlinks* it), then increments the epoch and notes the new number beside the value. A reader copies the
//! epoch to where writers see it when a turn begins. The value may be freed once every reader that is awake
//! shows a number at least as great as the noted one: each has then begun a turn after the unlinking.
//!
//! Why that holds, for a reader that could still see the old value:
//! - If its turn read an epoch at least as great as the noted one, the acquire load saw the increment and
//!   hence the unlinking before it: the turn sees the new value.
//! - If its turn read a smaller one, the reader showed that number (or slept) and then passed a sequentially
//!   consistent fence before its first look. The writer unlinks, passes such a fence, and looks at what the
//!   reader shows. One fence is first: either the writer sees the small number and waits, or the reader sees
//!   the unlinking.
//!
//! A turn that finds the epoch unchanged since the last one shows the same number already and need not store.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering::*, fence, wait_a_little};

/// What a reader shows while it holds no references and wants none.
const PARKED: u64 = u64::MAX;

/// One group of readers and writers with their clock; all published values of a router share one.
pub struct Domain {
    epoch: OwnLine<AtomicU64>,
    control: OwnLine<Mutex<Control>>,
}

/// Keeps what one side writes off the cache lines that the other side polls.
#[repr(align(128))]
struct OwnLine<T>(T);

type Deferred = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Control {
    readers: Vec<Arc<OwnLine<AtomicU64>>>,
    /// What to do and from which epoch on, oldest first: epochs are handed out under this lock.
    deferred: VecDeque<(u64, Deferred)>,
}

impl Domain {
    /// Makes a domain without readers.
    pub fn new() -> Arc<Domain> {
        Arc::new(Domain {
            epoch: OwnLine(AtomicU64::new(1)),
            control: OwnLine(Mutex::new(Control::default())),
        })
    }

    /// Enters a new reader, parked until its first turn.
    pub fn reader(self: &Arc<Self>) -> Reader {
        let shown = Arc::new(OwnLine(AtomicU64::new(PARKED)));
        self.lock_control().readers.push(shown.clone());
        Reader { domain: self.clone(), shown, epoch: PARKED }
    }

    /// Calls `action` once every turn that is under way now has ended.
    ///
    /// It is called by whichever thread next finds the grace period over in
    /// [`publish`](crate::Published::publish), `defer`, [`run_deferred`](Self::run_deferred) or
    /// [`synchronize`](Self::synchronize), never by a reader's turn, and at the latest when the domain is
    /// dropped. An action that holds the domain itself keeps it alive until then.
    pub fn defer(&self, action: Box<dyn FnOnce() + Send>) {
        let mut control = self.lock_control();
        let epoch = self.advance_epoch();
        control.deferred.push_back((epoch, action));
        drop(control);
        self.run_deferred();
    }

    /// Drops `value` once every turn that is under way now has ended.
    ///
    /// It must be out of reach of new turns already.
    pub fn retire<T: Send + 'static>(&self, value: T) {
        self.defer(Box::new(move || drop(value)));
    }

    /// Carries out what was deferred and whose grace period is over, and returns how many actions that were.
    pub fn run_deferred(&self) -> usize {
        let mut control = self.lock_control();
        let ripe = self.drain_ripe(&mut control);
        drop(control); // an action may publish or defer
        let count = ripe.len();
        ripe.into_iter().for_each(|(_, action)| action());
        count
    }

    /// Waits until every turn that is under way now has ended, then carries out what was deferred before.
    ///
    /// For control threads only: it never returns on a thread whose own reader is neither parked nor dropped.
    pub fn synchronize(&self) {
        let target = {
            let _in_order = self.lock_control();
            self.advance_epoch()
        };
        let mut round = 0;
        while oldest_shown(&self.lock_control()) < target {
            wait_a_little(round);
            round = round.saturating_add(1);
        }
        self.run_deferred();
    }

    /// Marks this moment: what was unlinked before it is out of everyone's sight when
    /// [`is_over`](Self::is_over) says so. Cheaper than [`retire`](Self::retire) for a table that keeps its
    /// own list of what to reuse.
    pub fn ticket(&self) -> Ticket {
        let _in_order = self.lock_control();
        Ticket(self.advance_epoch())
    }

    /// Says whether every turn that was under way when `ticket` was taken has ended.
    pub fn is_over(&self, ticket: Ticket) -> bool {
        oldest_shown(&self.lock_control()) >= ticket.0
    }

    /// Counts the deferred actions that have not been carried out.
    pub fn pending(&self) -> usize {
        self.lock_control().deferred.len()
    }

    /// Begins a new epoch and returns its number.
    fn advance_epoch(&self) -> u64 {
        self.epoch.0.fetch_add(1, AcqRel) + 1
    }

    fn drain_ripe(&self, control: &mut Control) -> VecDeque<(u64, Deferred)> {
        if control.deferred.is_empty() {
            return VecDeque::new();
        }
        let oldest = oldest_shown(control);
        let ripe = control.deferred.partition_point(|(epoch, _)| *epoch <= oldest);
        let waiting = control.deferred.split_off(ripe);
        std::mem::replace(&mut control.deferred, waiting)
    }

    /// No user code runs under this lock, so a poisoned one holds nothing half done.
    fn lock_control(&self) -> MutexGuard<'_, Control> {
        self.control.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The smallest epoch that an awake reader shows.
fn oldest_shown(control: &Control) -> u64 {
    fence(SeqCst); // pairs with Reader::begin: we see what it shows, or it sees what we unlinked
    control.readers.iter().map(|shown| shown.0.load(Acquire)).min().unwrap_or(PARKED)
}

impl Drop for Domain {
    /// Carries out what is left: readers and published values hold the domain, so there are none.
    fn drop(&mut self) {
        let rest = std::mem::take(&mut self.lock_control().deferred);
        rest.into_iter().for_each(|(_, action)| action());
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = self.lock_control();
        f.debug_struct("Domain")
            .field("epoch", &self.epoch.0.load(Relaxed))
            .field("readers", &control.readers.len())
            .field("pending", &control.deferred.len())
            .finish()
    }
}

/// A moment that a grace period is counted from; see [`Domain::ticket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// One worker's standing in a domain.
pub struct Reader {
    domain: Arc<Domain>,
    shown: Arc<OwnLine<AtomicU64>>,
    /// What `shown` holds; only this reader writes it.
    epoch: u64,
}

/// One turn of a worker's loop: while it lasts, what was read in it stays.
pub struct Turn<'r> {
    domain: &'r Domain,
    _reader: PhantomData<&'r mut Reader>,
    _not_send: PhantomData<*const ()>,
}

impl Reader {
    /// Begins a turn, and so ends the last one.
    #[inline]
    pub fn turn(&mut self) -> Turn<'_> {
        let epoch = self.domain.epoch.0.load(Acquire);
        if epoch != self.epoch {
            self.begin_turn(epoch);
        }
        Turn { domain: &self.domain, _reader: PhantomData, _not_send: PhantomData }
    }

    /// Ends the last turn without beginning one: a worker about to sleep holds up no writer.
    pub fn park(&mut self) {
        self.epoch = PARKED;
        self.shown.0.store(PARKED, Release);
    }

    #[cold]
    fn begin_turn(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.shown.0.store(epoch, Release); // what was read in the last turn was read before this
        fence(SeqCst); // pairs with oldest_shown
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.domain.lock_control().readers.retain(|shown| !Arc::ptr_eq(shown, &self.shown));
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reader = f.debug_struct("Reader");
        if self.epoch == PARKED {
            reader.field("epoch", &"parked")
        } else {
            reader.field("epoch", &self.epoch)
        }
        .finish()
    }
}

impl Turn<'_> {
    /// Says whether references read under this turn are good for what `domain` publishes.
    #[inline]
    pub fn is_of(&self, domain: &Domain) -> bool {
        std::ptr::eq(self.domain, domain)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn counting(counter: &Arc<AtomicUsize>) -> Box<dyn FnOnce() + Send> {
        let counter = counter.clone();
        Box::new(move || {
            counter.fetch_add(1, SeqCst);
        })
    }

    #[test]
    fn without_readers_what_is_deferred_happens_at_once() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        domain.defer(counting(&done));
        assert_eq!((done.load(SeqCst), domain.pending()), (1, 0));
    }

    #[test]
    fn a_turn_under_way_holds_up_what_is_deferred_and_the_next_turn_lets_it_go() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut reader = domain.reader();
        reader.turn();
        domain.defer(counting(&done));
        assert_eq!((domain.run_deferred(), done.load(SeqCst), domain.pending()), (0, 0, 1));
        reader.turn();
        assert_eq!((domain.run_deferred(), done.load(SeqCst), domain.pending()), (1, 1, 0));
    }

    #[test]
    fn one_slow_reader_holds_up_what_a_quick_one_does_not() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let (mut quick, mut slow) = (domain.reader(), domain.reader());
        slow.turn();
        domain.defer(counting(&done));
        for _ in 0..3 {
            quick.turn();
            domain.run_deferred();
        }
        assert_eq!(done.load(SeqCst), 0);
        slow.turn();
        domain.run_deferred();
        assert_eq!(done.load(SeqCst), 1);
    }

    #[test]
    fn a_parked_reader_holds_up_nothing() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut sleeper = domain.reader();
        sleeper.turn();
        sleeper.park();
        domain.defer(counting(&done));
        domain.synchronize();
        assert_eq!(done.load(SeqCst), 1);
    }

    #[test]
    fn a_reader_that_wakes_after_a_retirement_does_not_hold_it_up_again() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let (mut waker, mut slow) = (domain.reader(), domain.reader());
        slow.turn();
        domain.defer(counting(&done));
        waker.turn();
        slow.park();
        domain.run_deferred();
        assert_eq!(done.load(SeqCst), 1);
    }

    #[test]
    fn a_dropped_reader_holds_up_nothing() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut reader = domain.reader();
        reader.turn();
        domain.defer(counting(&done));
        drop(reader);
        assert_eq!((domain.run_deferred(), done.load(SeqCst)), (1, 1));
    }

    #[test]
    fn an_action_may_defer_another() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let (again, inner) = (domain.clone(), counting(&done));
        domain.defer(Box::new(move || again.defer(inner)));
        assert_eq!((done.load(SeqCst), domain.pending()), (1, 0));
    }

    #[test]
    fn what_is_left_is_carried_out_when_the_domain_goes() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut reader = domain.reader();
        reader.turn();
        domain.defer(counting(&done));
        drop(domain);
        assert_eq!(done.load(SeqCst), 0);
        drop(reader);
        assert_eq!(done.load(SeqCst), 1);
    }

    #[test]
    fn actions_are_carried_out_in_the_order_of_their_deferral() {
        let (domain, order) = (Domain::new(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let mut reader = domain.reader();
        reader.turn();
        for n in 0..5 {
            let order = order.clone();
            domain.defer(Box::new(move || order.lock().unwrap().push(n)));
        }
        reader.park();
        assert_eq!(domain.run_deferred(), 5);
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_panicking_action_leaves_the_domain_usable() {
        let (domain, done) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let guarded = std::panic::AssertUnwindSafe(|| domain.defer(Box::new(|| panic!("on purpose"))));
        assert!(std::panic::catch_unwind(guarded).is_err());
        domain.defer(counting(&done));
        assert_eq!((done.load(SeqCst), domain.pending()), (1, 0));
    }

    #[test]
    fn a_turn_without_a_publication_stores_nothing() {
        let domain = Domain::new();
        let mut reader = domain.reader();
        reader.turn();
        reader.shown.0.store(77, Relaxed); // a store by the next turn would overwrite it
        reader.turn();
        assert_eq!(reader.shown.0.load(Relaxed), 77);
        domain.defer(Box::new(|| {}));
        reader.turn();
        assert_ne!(reader.shown.0.load(Relaxed), 77);
    }

    #[test]
    fn a_grace_period_is_waited_for() {
        let domain = Domain::new();
        let turning = std::sync::atomic::AtomicBool::new(true);
        let mut reader = domain.reader();
        let started = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                reader.turn();
                started.wait();
                while turning.load(Acquire) {
                    reader.turn();
                    std::thread::yield_now();
                }
                reader.park();
            });
            started.wait();
            for _ in 0..if cfg!(miri) { 3 } else { 100 } {
                domain.synchronize();
            }
            turning.store(false, Release);
        });
        assert_eq!(domain.pending(), 0);
    }
}
