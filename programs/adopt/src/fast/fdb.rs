//! The forwarding databases of adopted bridges, as programs at members of bridges look them up: at which
//! member frames of a source address are known to arrive.
//!
//! A bucket has [`WAYS`] keys, and behind them the stamp of each. A key is one word, so that a program never
//! sees half of it, and a place may be used again at once: a stamp that a program writes for the address
//! that was there before only delays a renewal, by no more than one interval. An address that finds no room
//! stays with the kernel.
use super::layout::{MOST_PORTS, MULTIPLIER, mix};
use super::shared_arrays::SharedArrays;
use artery_storage::Words;
use artery_wire::EtherAddr;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Keys of a bucket: a cache line.
pub(super) const WAYS: usize = 8;
/// Room for 32,768 addresses.
pub(super) const BUCKET_BITS: u32 = 12;
/// 64-bit words of a bucket: keys, then stamps.
pub(super) const BUCKET_WORDS: usize = 2 * WAYS;
/// Stands beside the member's number in a key, so that no key is zero.
pub(super) const IN_USE: u32 = 0x80;
/// Where in a key the number of the member is; the address is below.
pub(super) const MEMBER: u32 = 48;
const _: () = assert!(MOST_PORTS <= IN_USE as usize);
/// The stamp of an address that does not age.
pub(super) const NEVER_AGES: u64 = u64::MAX;

/// The source addresses of frames that are forwarded, by member.
pub(super) struct FdbTable {
    words: Words<AtomicU64>,
    /// By member: ticks after which a frame of an address goes to the kernel, which renews its entry.
    intervals: Words<AtomicU64>,
    /// Mixed into every hash, so that nobody outside can fill a bucket on purpose.
    pub(super) seed: u32,
    places: HashMap<u64, usize>,
    /// The numbers of members with those of their bridges.
    bridges: HashMap<u32, u32>,
}

impl FdbTable {
    /// An empty table.
    pub(super) fn new(arrays: &SharedArrays, seed: u32) -> io::Result<FdbTable> {
        Ok(FdbTable {
            words: Words::new(arrays, "fdb", BUCKET_WORDS << BUCKET_BITS)?,
            intervals: Words::new(arrays, "fdb-intervals", MOST_PORTS)?,
            seed,
            places: HashMap::new(),
            bridges: HashMap::new(),
        })
    }

    /// Says which bridge a member is of, by the numbers of both, or that it is of none.
    pub(super) fn set_bridge(&mut self, member: u32, bridge: Option<u32>) {
        match bridge {
            Some(bridge) => drop(self.bridges.insert(member, bridge)),
            None => drop(self.bridges.remove(&member)),
        }
    }

    /// The number of the bridge that a member is of.
    pub(super) fn bridge(&self, member: u32) -> Option<u32> {
        self.bridges.get(&member).copied()
    }

    /// Sets after how many ticks a frame of each address at a member goes to the kernel.
    pub(super) fn set_interval(&self, member: u32, ticks: u64) {
        self.intervals[member as usize].store(ticks, Release);
    }

    /// Has frames from an address forwarded that arrive at a member. False if its bucket is full.
    pub(super) fn insert(&mut self, member: u32, source: EtherAddr, ages: bool) -> bool {
        let key = to_key(member, source);
        let bucket = self.bucket(key);
        let is_free = |place: &usize| self.words[*place].load(Relaxed) == 0;
        let known = self.places.get(&key).copied();
        let Some(place) = known.or_else(|| (bucket..bucket + WAYS).find(is_free)) else { return false };
        let stamp = &self.words[place + WAYS];
        match ages {
            // The first frame goes to the kernel.
            true if known.is_none() || stamp.load(Relaxed) == NEVER_AGES => stamp.store(0, Relaxed),
            true => {}
            false => stamp.store(NEVER_AGES, Relaxed),
        }
        self.words[place].store(key, Release);
        self.places.insert(key, place);
        true
    }

    /// Leaves frames from an address that arrive at a member to the kernel.
    pub(super) fn remove(&mut self, member: u32, source: EtherAddr) {
        if let Some(place) = self.places.remove(&to_key(member, source)) {
            self.words[place].store(0, Release);
        }
    }

    /// What a program finds: the stamp of an address at a member, and the member's interval.
    pub(super) fn find(&self, member: u32, source: [u8; 6]) -> Option<(u64, u64)> {
        let key = to_key(member, EtherAddr(source));
        let bucket = self.bucket(key);
        let place = (bucket..bucket + WAYS).find(|place| self.words[*place].load(Acquire) == key)?;
        let interval = self.intervals[member as usize].load(Acquire);
        Some((self.words[place + WAYS].load(Acquire), interval))
    }

    /// How many addresses have room.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    fn bucket(&self, key: u64) -> usize {
        let hash = mix(mix(self.seed, key as u32), (key >> 32) as u32);
        (hash.wrapping_mul(MULTIPLIER) >> (32 - BUCKET_BITS)) as usize * BUCKET_WORDS
    }
}

/// The address as a program loads it, below the number of the member.
fn to_key(member: u32, EtherAddr([a, b, c, d, e, f]): EtherAddr) -> u64 {
    let low = u64::from(u16::from_ne_bytes([a, b]));
    let high = u64::from(u32::from_ne_bytes([c, d, e, f]));
    u64::from(member | IN_USE) << MEMBER | high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_at_its_member_alone_until_it_is_removed() {
        let Ok(mut table) = FdbTable::new(&SharedArrays::default(), 7) else { return };
        let source = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            EtherAddr([2, 0, a, b, c, d])
        };
        let kept: Vec<u32> = (0..4000).filter(|n| table.insert(n % 3, source(*n), n % 2 == 0)).collect();
        assert!(kept.len() > 3900 && table.len() == kept.len(), "{}", kept.len());
        table.set_interval(0, 250);
        for n in &kept {
            let stamp = if n % 2 == 0 { 0 } else { NEVER_AGES };
            let interval = if n % 3 == 0 { 250 } else { 0 };
            assert_eq!(table.find(n % 3, source(*n).octets()), Some((stamp, interval)));
            assert_eq!(table.find(n % 3 + 1, source(*n).octets()), None);
        }
        for n in &kept {
            table.remove(n % 3, source(*n));
            assert_eq!(table.find(n % 3, source(*n).octets()), None);
        }
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn more_addresses_than_a_bucket_has_room_for_stay_out() {
        let Ok(mut table) = FdbTable::new(&SharedArrays::default(), 7) else { return };
        let source = |n: u32| EtherAddr([2, 1, (n >> 16) as u8, (n >> 8) as u8, n as u8, 1]);
        let first = table.bucket(to_key(1, source(0)));
        let same: Vec<u32> =
            (0..).filter(|n| table.bucket(to_key(1, source(*n))) == first).take(WAYS + 1).collect();
        let kept: Vec<bool> = same.iter().map(|n| table.insert(1, source(*n), true)).collect();
        assert_eq!(kept, [[true; WAYS].as_slice(), &[false]].concat());
        table.remove(1, source(same[0]));
        assert!(table.insert(1, source(same[WAYS]), true));
    }
}
