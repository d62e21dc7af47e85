//! State that the copies of a router's slow path on all workers share: claims of its addresses, the budget
//! for pending packets, failed neighbors, and counters.
use super::claims::Claims;
use super::pending_queue::{Neighbor, PacketBudget};
use artery_l3::PortId;
use artery_l3::neighbor::{Action, Happened, NeighborEvent};
use artery_l3::router::PortAction;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most failures that are kept for workers that have not read them yet.
const FAILURES: usize = 4096;

/// Neighbors whose resolution failed.
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
    /// Failures after the first `seen`, which becomes the count of all.
    fn failures_since(&self, seen: &mut u64) -> Vec<Neighbor> {
        let skipped = seen.saturating_sub(self.before) as usize;
        *seen = self.before + self.list.len() as u64;
        self.list.iter().skip(skipped).copied().collect()
    }
}

/// What the copies of a router's slow path share.
pub(super) struct SharedState {
    claims: Mutex<Claims>,
    /// How many of the router's addresses may not be used.
    unusable: AtomicUsize,
    room: Arc<PacketBudget>,
    /// By worker, as of its last call.
    counters: Mutex<Vec<Arc<Mutex<Counters>>>>,
    /// Recent neighbors whose resolution failed: the worker that learns of it shares it, since packets
    /// wait on others too.
    failures: Mutex<Failures>,
    /// Whether a copy has restored the tables and claims of the replaced router.
    pub(super) is_successor: AtomicBool,
}

impl SharedState {
    /// Shared state with these claims, and a budget of `hold` pending packets.
    pub(super) fn new(claims: Claims, hold: usize) -> SharedState {
        SharedState {
            claims: Mutex::new(claims),
            unusable: AtomicUsize::new(usize::MAX),
            room: Arc::new(PacketBudget::new(hold)),
            counters: Mutex::default(),
            failures: Mutex::default(),
            is_successor: AtomicBool::new(false),
        }
    }
    /// What was counted on all workers.
    pub(super) fn total_counters(&self) -> Counters {
        let mut sum = Counters::default();
        lock_mutex(&self.counters).iter().for_each(|worker| sum.add(&lock_mutex(worker)));
        sum
    }
    /// Adds the counters of one more worker.
    pub(super) fn add_worker(&self) -> Arc<Mutex<Counters>> {
        let place = Arc::default();
        lock_mutex(&self.counters).push(Arc::clone(&place));
        place
    }
    /// The budget for pending packets.
    pub(super) fn packet_budget(&self) -> &Arc<PacketBudget> {
        &self.room
    }
    /// The claims of the router's addresses. Lock order: the tables first, then this.
    pub(super) fn lock_claims(&self) -> MutexGuard<'_, Claims> {
        lock_mutex(&self.claims)
    }
    /// Whether an address of the router may be used.
    pub(super) fn is_usable(&self, port: PortId, address: IpAddr) -> bool {
        self.unusable.load(Relaxed) == 0 || self.lock_claims().is_usable((port, address))
    }
    /// Neighbors whose resolution failed since so many of them were `seen`.
    pub(super) fn failures_since(&self, seen: &mut u64) -> Vec<Neighbor> {
        lock_mutex(&self.failures).failures_since(seen)
    }
    /// Records the neighbors whose resolution failed.
    pub(super) fn record_failures(&self, actions: &[(PortId, PortAction)]) {
        let failed = |(port, action): &(PortId, PortAction)| match action {
            PortAction::V4(Action::Event(NeighborEvent { address, what: Happened::Failed, .. })) => {
                Some((*port, IpAddr::V4((*address).into())))
            }
            PortAction::V6(Action::Event(NeighborEvent { address, what: Happened::Failed, .. })) => {
                Some((*port, IpAddr::V6((*address).into())))
            }
            _ => None,
        };
        actions.iter().filter_map(failed).for_each(|neighbor| lock_mutex(&self.failures).push(neighbor));
    }
    /// Updates the number of addresses that may not be used.
    pub(super) fn update_unusable(&self, claims: &Claims) {
        self.unusable.store(claims.unusable_count(), Relaxed);
    }
}

/// Locks a mutex whose data is consistent between any two statements that can panic.
pub(super) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    /// Redirects sent to packets' senders.
    redirects "redirects",
    /// Redirects not sent because there were too many.
    redirects_limited "redirects-limited",
    echoes "echo-replies",
    /// Echo requests not answered because there were too many.
    echoes_limited "echo-replies-limited",
    /// Fragments made of packets.
    fragments "fragments-made",
    /// Packets reassembled from fragments.
    reassembled "reassembled",
    /// Packets that began to wait for a neighbor.
    held "held",
    /// Packets that waited and went.
    released "released",
    arp "arp-received",
    /// Neighbor Discovery messages received.
    nd "nd-received",
    /// Messages between neighbors ignored because there were too many.
    messages_limited "neighbor-messages-limited",
    /// Questions for neighbors sent.
    questions "neighbor-questions-sent",
    /// Answers to neighbors sent.
    answers "neighbor-answers-sent",
    /// Announcements and probes of own addresses sent.
    announcements "announcements-sent",
    /// Messages of other hosts that use an address of the router.
    conflicts "address-conflicts",
}
