//! What the copies of a router's slow path on all workers share: claims of its addresses, room for packets that wait,
//! news of neighbors that were asked in vain, and counters.
use super::claims::Claims;
use super::held::{Neighbor, Room};
use artery_table::PortId;
use artery_table::neighbor::{Action, Happened, NeighborEvent};
use artery_table::router::PortAction;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most failures that are kept for workers that have not looked yet.
const FAILURES: usize = 4096;

/// Neighbors that were asked in vain.
#[derive(Default)]
struct Failures {
    list: VecDeque<Neighbor>,
    /// How many there were before those in the list.
    before: u64,
}

impl Failures {
    fn push(&mut self, neighbor: Neighbor) {
        if self.list.len() >= FAILURES {
            self.list.pop_front();
            self.before += 1;
        }
        self.list.push_back(neighbor);
    }
    /// Those behind the first so many, of which the count becomes that of all.
    fn since(&self, seen: &mut u64) -> Vec<Neighbor> {
        let skipped = seen.saturating_sub(self.before) as usize;
        *seen = self.before + self.list.len() as u64;
        self.list.iter().skip(skipped).copied().collect()
    }
}

/// What the copies of a router's slow path share.
pub(super) struct Together {
    claims: Mutex<Claims>,
    /// How many of the router's addresses may not be used.
    unusable: AtomicUsize,
    room: Arc<Room>,
    /// By worker, as of its last call.
    counters: Mutex<Vec<Arc<Mutex<Counters>>>>,
    /// Neighbors that were asked in vain, of late: whichever worker hears of it, packets wait on others too.
    failures: Mutex<Failures>,
    /// Whether the tables and claims of a router that is being replaced were taken over.
    pub(super) is_heir: AtomicBool,
}

impl Together {
    /// With these claims, and room for so many packets that wait.
    pub(super) fn new(claims: Claims, hold: usize) -> Together {
        Together {
            claims: Mutex::new(claims),
            unusable: AtomicUsize::new(usize::MAX),
            room: Arc::new(Room::new(hold)),
            counters: Mutex::default(),
            failures: Mutex::default(),
            is_heir: AtomicBool::new(false),
        }
    }
    /// What was counted on all workers.
    pub(super) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        locked(&self.counters).iter().for_each(|worker| sum.add(&locked(worker)));
        sum
    }
    /// A place for the counters of one more worker.
    pub(super) fn worker(&self) -> Arc<Mutex<Counters>> {
        let place = Arc::default();
        locked(&self.counters).push(Arc::clone(&place));
        place
    }
    /// Room for packets that wait.
    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }
    /// The claims of the router's addresses. Whoever wants the tables, too, takes them first.
    pub(super) fn claims(&self) -> MutexGuard<'_, Claims> {
        locked(&self.claims)
    }
    /// Whether an address of the router may be used.
    pub(super) fn is_usable(&self, port: PortId, address: IpAddr) -> bool {
        self.unusable.load(Relaxed) == 0 || self.claims().is_usable((port, address))
    }
    /// Neighbors that were asked in vain since so many of them were `seen`.
    pub(super) fn failures(&self, seen: &mut u64) -> Vec<Neighbor> {
        locked(&self.failures).since(seen)
    }
    /// Keeps which neighbors were asked in vain.
    pub(super) fn note_failures(&self, actions: &[(PortId, PortAction)]) {
        let failed = |(port, action): &(PortId, PortAction)| match action {
            PortAction::V4(Action::Event(NeighborEvent { address, what: Happened::Failed, .. })) => {
                Some((*port, IpAddr::V4((*address).into())))
            }
            PortAction::V6(Action::Event(NeighborEvent { address, what: Happened::Failed, .. })) => {
                Some((*port, IpAddr::V6((*address).into())))
            }
            _ => None,
        };
        actions.iter().filter_map(failed).for_each(|neighbor| locked(&self.failures).push(neighbor));
    }
    /// Keeps how many addresses may be used.
    pub(super) fn note(&self, claims: &Claims) {
        self.unusable.store(claims.unusable(), Relaxed);
    }
}

/// What is behind a mutex; whole between any two statements that can panic.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $name:literal,)*) => {
        /// What the slow path of one worker counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters { $($(#[$doc])* pub(crate) $field: u64,)* }

        impl Counters {
            /// Names and values, in a fixed order.
            pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$(($name, self.$field)),*].into_iter()
            }
            fn add(&mut self, other: &Counters) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// ICMP and ICMPv6 errors sent.
    errors "icmp-errors",
    /// Errors not sent because there were too many.
    errors_limited "icmp-errors-limited",
    /// Errors not sent because the rules forbid it.
    errors_forbidden "icmp-errors-forbidden",
    /// Redirects sent.
    redirects "redirects",
    /// Redirects not sent because there were too many.
    redirects_limited "redirects-limited",
    /// Echo requests answered.
    echoes "echo-replies",
    /// Echo requests not answered because there were too many.
    echoes_limited "echo-replies-limited",
    /// Fragments made of packets.
    fragments "fragments-made",
    /// Packets put together of fragments.
    reassembled "reassembled",
    /// Packets that began to wait for a neighbor.
    held "held",
    /// Packets that waited and went.
    released "released",
    /// ARP messages received.
    arp "arp-received",
    /// Neighbor Discovery messages received.
    nd "nd-received",
    /// Messages between neighbors not looked at because there were too many.
    messages_limited "neighbor-messages-limited",
    /// Questions for neighbors sent.
    questions "neighbor-questions-sent",
    /// Answers to neighbors sent.
    answers "neighbor-answers-sent",
    /// Announcements and probes of own addresses sent.
    announcements "announcements-sent",
    /// Messages of stations that use an address of the router.
    conflicts "address-conflicts",
}
