//! One neighbor, which every worker reads without a lock.
//!
//! Its address and age are written under the table's lock. A query is claimed by any worker, by a
//! compare-and-swap; so is a place for a pending packet. Fields are read one by one: a reader that sees a
//! new address with the old age takes the neighbor for expired, holds the packet, and detects the answer
//! when it looks again.
use artery_engine::Time;
use artery_wire::EtherAddr;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

/// Shortest time between two queries for one address, and the same when ten have gone unanswered.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
const SLOW_QUERY_INTERVAL: Duration = Duration::from_secs(2);
const QUICK_QUERIES: u8 = 10;

/// In [`Neighbor::ether`], above the address: whether it is known; whether the neighbor was
/// removed from its table.
const KNOWN: u64 = 1 << 48;
const GONE: u64 = 1 << 49;

/// The state of one neighbor.
#[derive(Debug)]
pub(crate) struct Neighbor {
    pub(crate) ip: Ipv4Addr,
    ether: AtomicU64,
    live_at: AtomicU64,
    /// Zero if no query was sent since its last answer.
    polled_at: AtomicU64,
    polls_since_reply: AtomicU8,
    pending_packets: AtomicUsize,
}

/// The link address of a neighbor, as a lookup returns it.
pub(crate) struct KnownAddress {
    pub(crate) ether: EtherAddr,
    /// Whether to send a query, so that the address stays known.
    pub(crate) poll: bool,
    /// Until when this answer would be the same.
    pub(crate) until: Time,
}

/// What any worker does.
impl Neighbor {
    /// A neighbor that has not answered yet.
    pub(crate) fn new(ip: Ipv4Addr, now: Time) -> Neighbor {
        Neighbor {
            ip,
            ether: AtomicU64::new(as_bits(EtherAddr::BROADCAST)),
            live_at: AtomicU64::new(now.0),
            polled_at: AtomicU64::new(0),
            polls_since_reply: AtomicU8::new(0),
            pending_packets: AtomicUsize::new(0),
        }
    }

    /// The address, if it has answered. `poll` is set when `poll_timeout` has passed since; zero is never.
    pub(crate) fn lookup_address(
        &self,
        now: Time,
        timeout: Duration,
        poll_timeout: Duration,
    ) -> Option<KnownAddress> {
        let ether = self.known_address(now, timeout)?;
        let expires = if timeout.is_zero() { Time::NEVER } else { self.live_at() + timeout };
        if poll_timeout.is_zero() {
            return Some(KnownAddress { ether, poll: false, until: expires });
        }
        let due = self.live_at() + poll_timeout;
        let poll = now >= due && self.claim_query(now);
        Some(KnownAddress { ether, poll, until: expires.min(self.next_query().max(due)) })
    }

    /// The address while it is good.
    pub(crate) fn known_address(&self, now: Time, timeout: Duration) -> Option<EtherAddr> {
        let bits = self.ether.load(Acquire);
        (bits & KNOWN != 0 && !self.is_expired(now, timeout)).then(|| as_ether(bits))
    }

    /// Whether an answer is still expected, which will release pending packets.
    pub(crate) fn is_awaited(&self, now: Time, timeout: Duration) -> bool {
        self.ether.load(Acquire) & GONE == 0 && self.known_address(now, timeout).is_none()
    }

    /// Whether a query is due; true for one caller, which must send it.
    pub(crate) fn claim_query(&self, now: Time) -> bool {
        let polled_at = self.polled_at.load(Acquire);
        let claimed = now >= self.query_after(polled_at)
            && self.polled_at.compare_exchange(polled_at, now.0.max(1), AcqRel, Relaxed).is_ok();
        if claimed {
            let polls = self.polls_since_reply.load(Relaxed);
            self.polls_since_reply.store(polls.saturating_add(1), Relaxed);
        }
        claimed
    }
    fn next_query(&self) -> Time {
        self.query_after(self.polled_at.load(Acquire))
    }
    fn query_after(&self, polled_at: u64) -> Time {
        let tired = self.polls_since_reply.load(Relaxed) >= QUICK_QUERIES;
        let interval = if tired { SLOW_QUERY_INTERVAL } else { QUERY_INTERVAL };
        if polled_at == 0 { Time::ZERO } else { Time(polled_at) + interval }
    }

    /// Reserves a place for a pending packet, if fewer than `limit` are taken; zero means unlimited.
    pub(crate) fn claim_place(&self, limit: usize) -> bool {
        let taken = self.pending_packets.fetch_add(1, AcqRel);
        let has_room = limit == 0 || taken < limit;
        if !has_room {
            self.release_places(1);
        }
        has_room
    }
    /// Reserves places regardless of the limit, for packets that waited elsewhere.
    pub(crate) fn reserve_places(&self, packets: usize) {
        self.pending_packets.fetch_add(packets, AcqRel);
    }
    pub(crate) fn release_places(&self, packets: usize) {
        self.pending_packets.fetch_sub(packets, AcqRel);
    }

    /// When it last answered, or when the entry was created.
    pub(crate) fn live_at(&self) -> Time {
        Time(self.live_at.load(Acquire))
    }
    /// Whether what it answered is too old.
    pub(crate) fn is_expired(&self, now: Time, timeout: Duration) -> bool {
        !timeout.is_zero() && self.live_at() + timeout < now
    }
    /// Its last address, expired or not, and whether it is still valid.
    pub(crate) fn last_answer(&self) -> (EtherAddr, bool) {
        let bits = self.ether.load(Acquire);
        (as_ether(bits), bits & KNOWN != 0)
    }
}

/// Operations under the table's lock.
impl Neighbor {
    /// Sets the address; the broadcast address is none. Returns whether answers given before are wrong now.
    pub(crate) fn set_ether(&self, ether: EtherAddr) -> bool {
        let known = if ether.is_broadcast() { 0 } else { KNOWN };
        let bits = as_bits(ether) | known;
        self.polled_at.store(0, Release);
        self.polls_since_reply.store(0, Relaxed);
        self.ether.swap(bits, AcqRel) != bits
    }
    /// Marks the address as unknown.
    pub(crate) fn clear_address(&self) {
        self.ether.fetch_and(!KNOWN, AcqRel);
    }
    pub(crate) fn set_live_at(&self, time: Time) {
        self.live_at.store(time.0, Release);
    }
    /// Marks the neighbor as removed from its table: no answer will reach it.
    pub(crate) fn mark_removed(&self) {
        self.ether.fetch_or(GONE, AcqRel);
    }
}

fn as_bits(ether: EtherAddr) -> u64 {
    let [a, b, c, d, e, f] = ether.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn as_ether(bits: u64) -> EtherAddr {
    let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
    EtherAddr([a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xff]);

    #[test]
    fn an_address_is_kept_with_its_marks() {
        let neighbor = Neighbor::new([10, 0, 0, 2].into(), Time::ZERO);
        assert_eq!(neighbor.last_answer(), (EtherAddr::BROADCAST, false));
        assert!(neighbor.set_ether(ETHER) && !neighbor.set_ether(ETHER));
        assert_eq!(neighbor.known_address(Time::ZERO, Duration::ZERO), Some(ETHER));
        neighbor.mark_removed();
        assert!(!neighbor.is_awaited(Time::ZERO, Duration::ZERO));
        neighbor.clear_address();
        assert_eq!(neighbor.last_answer(), (ETHER, false));
        assert!(!neighbor.is_awaited(Time::ZERO, Duration::ZERO));
    }

    #[test]
    fn a_query_that_is_due_is_claimed_once() {
        let neighbor = Neighbor::new([10, 0, 0, 2].into(), Time::ZERO);
        let claims = |now| {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| usize::from(neighbor.claim_query(now)))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            })
        };
        for round in 0..50 {
            assert_eq!(claims(Time::new(1 + 3 * round, 0)), 1);
        }
    }

    #[test]
    fn places_to_wait_are_limited() {
        let neighbor = Neighbor::new([10, 0, 0, 2].into(), Time::ZERO);
        assert!(neighbor.claim_place(2) && neighbor.claim_place(2) && !neighbor.claim_place(2));
        neighbor.release_places(1);
        assert!(neighbor.claim_place(2) && neighbor.claim_place(0));
    }
}
