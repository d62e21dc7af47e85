//! Packets of which not all fragments are there yet: a bounded number of them, for a bounded time.
use artery_wire::Ipv4Assembly;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Memory of a packet besides its bytes: about the frame that its owner keeps.
const OVERHEAD: usize = 2304;

/// Packets by what their fragments share, each with whatever belongs to it.
pub struct Reassembly<K, T> {
    parts: HashMap<K, Parts<T>>,
    bytes: usize,
    /// Above so many bytes, the oldest packets are dropped until a quarter is free.
    most_bytes: usize,
    wait: Duration,
}

struct Parts<T> {
    assembly: Ipv4Assembly,
    of: T,
    until: Duration,
}

/// The result of adding a fragment.
pub enum FragmentOutcome<T> {
    /// The fragment completed this packet.
    Whole(Vec<u8>, T),
    /// The packet still lacks fragments.
    Waits,
    /// It contradicts earlier fragments, so the packet is dropped.
    Bad(Option<T>),
}

/// A packet that was given up.
pub struct GivenUp<T> {
    /// Its first bytes, if the first fragment is there.
    pub first: Option<Vec<u8>>,
    pub of: T,
}

impl<K: Copy + Eq + Hash, T> Reassembly<K, T> {
    /// Fragments wait for at most `wait`, and take at most `most_bytes`.
    pub fn new(wait: Duration, most_bytes: usize) -> Reassembly<K, T> {
        Reassembly { parts: HashMap::new(), bytes: 0, most_bytes, wait }
    }

    /// Adds a fragment, as an IPv4 one.
    pub fn add_fragment(
        &mut self,
        key: K,
        fragment: &[u8],
        of: impl FnOnce() -> T,
        now: Duration,
    ) -> FragmentOutcome<T> {
        let wait = self.wait;
        let parts = self.parts.entry(key).or_insert_with(|| {
            self.bytes += OVERHEAD;
            Parts { assembly: Ipv4Assembly::default(), of: of(), until: now + wait }
        });
        let before = parts.assembly.memory();
        let added = parts.assembly.add_fragment(fragment);
        self.bytes = self.bytes + parts.assembly.memory() - before;
        match added {
            Ok(None) => FragmentOutcome::Waits,
            Ok(Some(packet)) => match self.remove(&key) {
                Some(parts) => FragmentOutcome::Whole(packet, parts.of),
                None => FragmentOutcome::Bad(None),
            },
            Err(_) => FragmentOutcome::Bad(self.remove(&key).map(|parts| parts.of)),
        }
    }

    /// What belongs to a packet that waits.
    pub fn context_of(&mut self, key: &K) -> Option<&mut T> {
        self.parts.get_mut(key).map(|parts| &mut parts.of)
    }

    /// When the first of them has waited long enough.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.parts.values().map(|parts| parts.until).min()
    }

    /// Removes the packets whose time is over.
    pub fn expire_packets(&mut self, now: Duration) -> Vec<GivenUp<T>> {
        let is_due = |(key, parts): (&K, &Parts<T>)| (parts.until <= now).then_some(*key);
        let due: Vec<K> = self.parts.iter().filter_map(is_due).collect();
        due.iter().filter_map(|key| self.abandon_packet(key)).collect()
    }

    /// Removes the oldest packets, if they take too many bytes.
    pub fn shrink_memory(&mut self) -> Vec<GivenUp<T>> {
        if self.bytes <= self.most_bytes {
            return Vec::new();
        }
        let mut oldest: Vec<(Duration, K)> =
            self.parts.iter().map(|(key, parts)| (parts.until, *key)).collect();
        oldest.sort_unstable_by_key(|(until, _)| *until);
        let mut given_up = Vec::new();
        for (_, key) in oldest {
            if self.bytes <= self.most_bytes / 4 * 3 {
                break;
            }
            given_up.extend(self.abandon_packet(&key));
        }
        given_up
    }

    fn abandon_packet(&mut self, key: &K) -> Option<GivenUp<T>> {
        let Parts { assembly, of, .. } = self.remove(key)?;
        Some(GivenUp { first: assembly.first_fragment(), of })
    }

    fn remove(&mut self, key: &K) -> Option<Parts<T>> {
        let parts = self.parts.remove(key)?;
        self.bytes = self.bytes.saturating_sub(OVERHEAD + parts.assembly.memory());
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::ip4;

    fn fragment(offset: usize, more: bool, len: usize) -> Vec<u8> {
        ip4().fragment(offset, more).raw(17, vec![7; len]).bytes()
    }
    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn the_oldest_are_given_up_when_they_take_too_much() {
        let mut all = Reassembly::new(Duration::from_secs(30), 100_000);
        let mut given_up = Vec::new();
        for n in 0..1000_u64 {
            let now = NOW + Duration::from_millis(n);
            all.add_fragment(n, &fragment(0, true, 800), || n, now);
            given_up.extend(all.shrink_memory().into_iter().map(|gone| gone.of));
        }
        assert!(all.bytes <= 100_000 && given_up.len() > 800);
        assert!(given_up.is_sorted());
        assert!(all.context_of(&999).is_some());
        let rest = all.expire_packets(NOW + Duration::from_secs(40));
        assert_eq!((rest.len() + given_up.len(), all.bytes, all.next_deadline()), (1000, 0, None));
        assert!(rest.iter().all(|gone| gone.first.as_ref().is_some_and(|first| first.len() == 820)));
    }

    #[test]
    fn a_packet_is_whole_once_and_what_contradicts_it_ends_it() {
        let mut all = Reassembly::new(Duration::from_secs(30), 100_000);
        assert!(matches!(
            all.add_fragment(1, &fragment(800, false, 10), || 'a', NOW),
            FragmentOutcome::Waits
        ));
        let FragmentOutcome::Whole(packet, 'a') = all.add_fragment(1, &fragment(0, true, 800), || 'b', NOW)
        else {
            panic!()
        };
        assert_eq!((packet.len(), all.bytes), (830, 0));
        all.add_fragment(1, &fragment(0, true, 16), || 'c', NOW);
        assert!(matches!(
            all.add_fragment(1, &fragment(8, true, 16), || 'd', NOW),
            FragmentOutcome::Bad(Some('c'))
        ));
        assert_eq!(all.bytes, 0);
    }
}
