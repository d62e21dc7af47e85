//! The set of translated flows, shared by all workers of a balancer, which recognizes their answers.
//!
//! Packets of a server outside these flows are not the service's: answers to health checks, and to clients
//! that use the server's own address. The addresses of an answer differ from those of the packet it answers,
//! so it may reach another worker than the one with the flow. Therefore this set is shared: a fixed array of
//! atomic words, eight to a bucket of one cache line, without locks. A word holds a part of the hash of the
//! answer's addresses, ports and protocol, and the time of the last packet in either direction. If a bucket
//! is full, the flow that was idle for longest is replaced; its client's next packet records it again.
//!
//! Limits: a server can't distinguish a translated connection from a direct one with the same client address
//! and port; the one that was opened later gets the answers. Two services with one member do not know of each
//! other: their connections from one client port at the same time, or shortly after each other, get the first
//! service's name. One in 2^37 other packets is mistaken for an answer by chance.
use super::about::KeyFromParts;
use super::fragments::FragmentPart;
use artery_flow::balance::Member;
use artery_flow::{Flow4, Flow6, IdleTimes, Scope, Seed};
use artery_storage::{Pages, Words};
use artery_wire::IpProtocol;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Words of a bucket.
const BUCKET: usize = 8;
/// Bits of a word for the time; the others are the tag.
const TIME_BITS: u32 = 24;
const TIME: u64 = (1 << TIME_BITS) - 1;
/// Time is counted in 2^8 ms, and wraps after 49 days.
const TICK_MS: u32 = 8;
/// Capacity limit of the set, in flows.
const MOST: usize = 1 << 26;

pub(super) struct NatFlows {
    words: Words<AtomicU64>,
    seed: Seed,
    /// Ticks without a packet after which a connection, or another flow, is over.
    idle_tcp: u64,
    idle_other: u64,
}

impl NatFlows {
    /// An empty set with room for about `flows`. Memory is allocated as flows come, 16 bytes for each.
    pub(super) fn new(flows: usize, idle: &IdleTimes) -> io::Result<NatFlows> {
        let words = flows.clamp(BUCKET, MOST).next_power_of_two() * 2;
        Ok(NatFlows {
            words: Words::new(&Pages, "translated flows", words)?,
            seed: Seed::random(),
            idle_tcp: to_ticks(idle.established),
            idle_other: to_ticks(idle.udp_stream),
        })
    }

    /// Records a packet, given from its IP header on, that was translated and goes to its member.
    #[inline]
    pub(super) fn record_packet(&self, packet: &[u8], now: Duration) {
        match packet.first().map_or(0, |first| first >> 4) {
            4 => self.record_packet_of::<Flow4>(packet, now),
            6 => self.record_packet_of::<Flow6>(packet, now),
            _ => {}
        }
    }

    #[inline]
    fn record_packet_of<K: KeyFromParts>(&self, packet: &[u8], now: Duration) {
        let seen = K::parse_packet(packet, Scope::Connection, 0).or_else(|| first_fragment(packet));
        if let Some(seen) = seen {
            self.record_flow(&seen.key.reversed(), now);
        }
    }

    /// Notes a flow by the key of its answers.
    pub(super) fn record_flow<K: KeyFromParts>(&self, answer: &K, now: Duration) {
        let (bucket, tag) = self.bucket_and_tag(answer);
        let word = tag | tick_of(now);
        // Other workers may write meanwhile. A flow that they replace is recorded again by its next packet.
        for _ in 0..BUCKET {
            let (slot, old) = match find_slot(bucket, tag) {
                Some((_, old)) if old == word => return,
                Some(found) => found,
                None => oldest_slot(bucket, now),
            };
            if slot.compare_exchange(old, word, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Whether a packet with this key answers a noted flow, which is in use then.
    #[inline]
    pub(super) fn is_answer<K: KeyFromParts>(&self, answer: &K, now: Duration) -> bool {
        let (bucket, tag) = self.bucket_and_tag(answer);
        let Some((slot, old)) = find_slot(bucket, tag) else { return false };
        let idle = if answer.protocol() == IpProtocol::TCP { self.idle_tcp } else { self.idle_other };
        if age_in_ticks(old, now) > idle {
            return false;
        }
        if old & TIME != tick_of(now) {
            // A concurrent writer has recorded the same time, or another flow.
            let _ = slot.compare_exchange(old, tag | tick_of(now), Relaxed, Relaxed);
        }
        true
    }

    /// Removes a flow: later packets from its server are no longer answers.
    pub(super) fn remove_flow<K: KeyFromParts>(&self, answer: &K) {
        let (bucket, tag) = self.bucket_and_tag(answer);
        if let Some((slot, old)) = find_slot(bucket, tag) {
            let _ = slot.compare_exchange(old, 0, Relaxed, Relaxed);
        }
    }

    /// The bucket of a key, and its tag, which is never 0.
    #[inline]
    fn bucket_and_tag<K: KeyFromParts>(&self, answer: &K) -> (&[AtomicU64; BUCKET], u64) {
        let hash = answer.hash(&self.seed);
        let buckets = self.words.as_chunks().0;
        (&buckets[hash as usize & (buckets.len() - 1)], (hash & !TIME) | 1 << 63)
    }
}

/// The key of a member's answers to a flow to the service.
pub(super) fn answer_key<K: KeyFromParts>(flow: &K, member: &Member) -> Option<K> {
    let ([client, _], [from, to]) = (flow.addresses(), flow.ports());
    K::from_parts([member.address, client], [member.port.unwrap_or(to), from], flow.protocol())
}

#[cold]
fn first_fragment<K: KeyFromParts>(packet: &[u8]) -> Option<artery_flow::KeyedPacket<K>> {
    match FragmentPart::parse_fragment(packet)? {
        (_, FragmentPart::First(seen)) => Some(seen),
        (_, FragmentPart::Later) => None,
    }
}

/// The word with a tag, and its value.
#[inline]
fn find_slot(bucket: &[AtomicU64; BUCKET], tag: u64) -> Option<(&AtomicU64, u64)> {
    bucket.iter().map(|slot| (slot, slot.load(Relaxed))).find(|(_, word)| word & !TIME == tag)
}

/// The word to replace: a free one, else the one that was idle for longest.
fn oldest_slot(bucket: &[AtomicU64; BUCKET], now: Duration) -> (&AtomicU64, u64) {
    let words = bucket.iter().map(|slot| (slot, slot.load(Relaxed)));
    let silence =
        |(_, word): &(&AtomicU64, u64)| if *word == 0 { u64::MAX } else { age_in_ticks(*word, now) };
    words.max_by_key(silence).unwrap_or((&bucket[0], 0))
}

#[inline]
fn tick_of(now: Duration) -> u64 {
    (now.as_millis() as u64 >> TICK_MS) & TIME
}

/// Ticks since a word's time; 0 if another worker's clock is a little ahead.
#[inline]
fn age_in_ticks(word: u64, now: Duration) -> u64 {
    let age = tick_of(now).wrapping_sub(word) & TIME;
    if age > TIME - 4 { 0 } else { age }
}

fn to_ticks(idle: Duration) -> u64 {
    (idle.as_millis() as u64 >> TICK_MS).min(TIME / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_flow::FlowKey as _;
    use std::net::{IpAddr, Ipv4Addr};

    const NOW: Duration = Duration::from_secs(1000);

    fn set(flows: usize) -> NatFlows {
        NatFlows::new(flows, &IdleTimes::default()).unwrap()
    }
    fn key(client: u16, protocol: IpProtocol) -> Flow4 {
        Flow4::new([Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(198, 51, 100, 7)], [80, client], protocol, 0)
    }

    #[test]
    fn what_was_noted_is_answered_until_it_is_silent_for_too_long_or_forgotten() {
        let set = set(1000);
        for (protocol, idle) in [(IpProtocol::TCP, 86_400), (IpProtocol::UDP, 180)] {
            let key = key(5, protocol);
            assert!(!set.is_answer(&key, NOW));
            set.record_flow(&key, NOW);
            let mut now = NOW;
            for _ in 0..3 {
                now += Duration::from_secs(idle);
                assert!(set.is_answer(&key, now), "an answer keeps the flow in use");
            }
            now += Duration::from_secs(idle + 1);
            assert!(!set.is_answer(&key, now));
            set.record_flow(&key, now);
            assert!(set.is_answer(&key, now));
            set.remove_flow(&key);
            assert!(!set.is_answer(&key, now));
        }
    }

    #[test]
    fn where_a_bucket_is_full_the_flow_that_was_silent_for_longest_makes_room() {
        let set = set(1);
        assert_eq!(set.words.len(), 2 * BUCKET);
        for client in 1..=200 {
            set.record_flow(&key(client, IpProtocol::TCP), NOW + Duration::from_secs(client.into()));
        }
        let now = NOW + Duration::from_secs(201);
        let known: Vec<u16> =
            (1..=200).filter(|client| set.is_answer(&key(*client, IpProtocol::TCP), now)).collect();
        assert_eq!(known.len(), 2 * BUCKET);
        assert!(known.iter().all(|client| *client > 140), "{known:?}");
    }

    #[test]
    fn the_key_of_an_answer_has_the_members_address_and_port() {
        let client = Ipv4Addr::new(198, 51, 100, 7);
        let flow = Flow4::new([client, Ipv4Addr::new(192, 0, 2, 1)], [5, 80], IpProtocol::TCP, 0);
        for (member, port) in [("a 10.0.0.1", 80), ("a 10.0.0.1:8080", 8080)] {
            let key: Flow4 = answer_key(&flow, &member.parse().unwrap()).unwrap();
            let expected = [IpAddr::from([10, 0, 0, 1]), client.into()];
            assert_eq!((key.addresses(), key.ports()), (expected, [port, 5]));
        }
    }
}
