//! The MAC table: an address and a VLAN map to a port, looked up without a lock while one writer changes the
//! table.
//!
//! The table is an array of buckets of one cache line. A key of 60 bits goes through a permutation that
//! depends on a secret; its low bits choose a bucket, the others are the tag that stands there. So a bucket
//! and a tag give the key back, and no key is kept beside. Where the bucket is full, an entry goes to a
//! second one that follows from the first and the tag; the first counts how many did, so that a lookup of
//! what isn't there seldom looks at two lines.
//!
//! | bytes of a bucket | hold |
//! |---|---|
//! | 0 to 39 | five entries, a word each: see [`MacEntry`] |
//! | 40 to 59 | when each of the five was last seen, in seconds |
//! | 60 to 63 | how many went on to their second bucket |
//!
//! One load tells key, port and kind of an entry, and one store changes them: no reader sees half an entry.
//! The writer moves an entry from its first bucket to its second when another needs the place, and back when
//! there is room again; it stands in the one before it leaves the other. A lookup that looks at the first, at
//! the second, and at the first once more finds it, unless held up so long between two of these looks that
//! the entry comes back and goes away again meanwhile: then it is missed by that lookup, as if the address
//! were not known, and a frame is flooded once.
use crate::mac_lines::{Hit, Line, Lines, PLACES, SHIFT};
use artery_storage::{HugePages, Pages, Storage, Words};
use artery_storage::{Simd, prefetch};
use artery_wire::EtherAddr;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most ports that entries can name.
pub const MOST_PORTS: usize = 2048;
/// Most addresses that a table is made for.
pub const MOST_ENTRIES: u32 = 1 << 22;

/// Fewest buckets, as a power of two: with fewer, tags would have more bits than there is room for.
const LEAST_BITS: u32 = 11;
/// From this many buckets on, huge pages are requested.
const HUGE_BITS: u32 = 14;

/// Bits of a key.
const BITS: u32 = 60;
const KEY: u64 = (1 << BITS) - 1;

/// An address in a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacKey(u64);

impl MacKey {
    /// The key of an address, of which 48 bits count, in a VLAN, of which 12 do.
    #[inline]
    pub fn new(address: u64, vlan: u16) -> MacKey {
        MacKey((address << 12 | u64::from(vlan & 0xfff)) & KEY)
    }
    /// The key of an address in a VLAN.
    pub fn from_address(address: EtherAddr, vlan: u16) -> MacKey {
        MacKey::new(bits_of(address), vlan)
    }
    /// The address, without the VLAN.
    pub fn address(self) -> EtherAddr {
        let [_, _, address @ ..] = (self.0 >> 12).to_be_bytes();
        EtherAddr(address)
    }
    /// The VLAN, in the lower 12 bits of the key.
    pub fn vlan(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

/// An address as a number.
pub(super) fn bits_of(address: EtherAddr) -> u64 {
    let [a, b, c, d, e, f] = address.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// A permutation of keys that can't be foreseen without the seed.
#[derive(Clone, Copy)]
struct Mix {
    mask: u64,
    factors: [u64; 2],
    inverses: [u64; 2],
}

impl Mix {
    fn new(seed: [u64; 3]) -> Mix {
        let [mask, first, second] = seed.map(scramble_word);
        let factors = [first | 1, second | 1];
        Mix { mask: mask & KEY, factors, inverses: factors.map(modular_inverse) }
    }

    #[inline(always)]
    fn mix_key(&self, key: MacKey) -> u64 {
        let mut word = (key.0 ^ self.mask).wrapping_mul(self.factors[0]) & KEY;
        word ^= word >> 30;
        word = word.wrapping_mul(self.factors[1]) & KEY;
        word ^ word >> 30
    }

    /// A shift by half the bits or more is undone by itself.
    fn unmix_key(&self, mixed: u64) -> MacKey {
        let mut word = mixed ^ mixed >> 30;
        word = word.wrapping_mul(self.inverses[1]) & KEY;
        word ^= word >> 30;
        MacKey(word.wrapping_mul(self.inverses[0]) & KEY ^ self.mask)
    }
}

/// Words of which each bit hangs on every bit of what they are made of: small factors would mix little.
fn scramble_word(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The multiplicative inverse of an uneven number modulo 2⁶⁴ (Newton's method doubles the
/// bits that are right).
fn modular_inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
}

/// An entry as it stands in a bucket.
///
/// | bits | |
/// |---|---|
/// | 15 to 63 | tag |
/// | 14 | whether this is the key's second bucket |
/// | 13 | 1; a place is free where it is 0 |
/// | 12 | static: it neither moves nor gets old |
/// | 11 | sticky: it gets old, and doesn't move |
/// | 0 to 10 | port |
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

const TAG_SHIFT: u32 = 15;
const SECOND: u64 = 1 << 14;
const PRESENT: u64 = 1 << 13;
const STATIC: u64 = 1 << 12;
const STICKY: u64 = 1 << 11;
const PORT: u64 = STICKY - 1;
const _: () = assert!(PRESENT == 1 << SHIFT);

impl Word {
    fn is_free(self) -> bool {
        self.0 & PRESENT == 0
    }
    fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }
    fn is_second(self) -> bool {
        self.0 & SECOND != 0
    }
    #[inline(always)]
    fn port(self) -> u16 {
        (self.0 & PORT) as u16
    }
}

/// How an entry is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MacEntryKind {
    /// It was learned: it moves, and gets old.
    #[default]
    Dynamic,
    /// It was learned at a port whose addresses don't move.
    Sticky,
    /// It was given: it neither moves nor gets old.
    Static,
}

/// What is known of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MacEntry {
    word: u64,
    seen: u32,
    bucket: u32,
    place: u32,
}

impl MacEntry {
    /// Port that the address is at.
    #[inline(always)]
    pub fn port(self) -> u16 {
        Word(self.word).port()
    }
    /// Whether it never moves nor gets old.
    #[inline(always)]
    pub fn is_static(self) -> bool {
        self.word & STATIC != 0
    }
    /// Whether it stays at its port.
    #[inline(always)]
    pub fn is_pinned(self) -> bool {
        self.word & (STATIC | STICKY) != 0
    }
    /// When it was last seen, in seconds.
    #[inline(always)]
    pub fn last_seen(self) -> u32 {
        self.seen
    }
    /// How it is kept.
    pub fn kind(self) -> MacEntryKind {
        match (self.word & STATIC != 0, self.word & STICKY != 0) {
            (true, _) => MacEntryKind::Static,
            (false, true) => MacEntryKind::Sticky,
            (false, false) => MacEntryKind::Dynamic,
        }
    }
    /// Whether it is so old after `timeout` seconds that it counts as absent; `u32::MAX` is never.
    #[inline(always)]
    pub fn is_old(self, now: u32, timeout: u32) -> bool {
        // Of two workers one may be a moment behind: a time to come is none that is long past.
        let age = now.wrapping_sub(self.last_seen()) as i32;
        age > timeout.min(i32::MAX as u32) as i32 && !self.is_static()
    }
}

impl std::fmt::Debug for MacEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at port {} seen {}", self.kind(), self.port(), self.last_seen())
    }
}

/// Where a key is to be looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacProbe {
    bucket: u32,
    tag: u64,
}

impl MacProbe {
    /// Bits that spread keys.
    pub(super) fn hash(self) -> u64 {
        self.tag
    }
}

/// What became of an address that was to be put into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// Both buckets, and those that their entries could go to, are full.
    Crowded,
}

/// Addresses and their ports; see the module. Only one thread may change it at a time.
pub struct MacTable {
    lines: Words<Line>,
    bits: u32,
    /// One less than the number of buckets.
    mask: u32,
    mix: Mix,
    simd: Simd,
}

impl MacTable {
    /// An empty table with room for this many entries.
    pub fn new(entries: u32) -> io::Result<MacTable> {
        MacTable::with_seed(entries, [0_u8, 1, 2].map(|word| RandomState::new().hash_one(word)))
    }

    /// One whose order of keys follows from words.
    pub(super) fn with_seed(entries: u32, seed: [u64; 3]) -> io::Result<MacTable> {
        let entries = u64::from(entries.min(MOST_ENTRIES));
        // Five have room in a bucket, and chance deals them unevenly: 3.2 are meant for each.
        let is_enough = |bits: &u32| entries * 5 <= 16 << bits;
        let bits = (LEAST_BITS..).find(is_enough).unwrap_or(LEAST_BITS);
        let storage: &dyn Storage = if bits >= HUGE_BITS { &HugePages } else { &Pages };
        let lines = Words::new(storage, "mac-table", 1 << bits)?;
        Ok(MacTable { lines, bits, mask: (1 << bits) - 1, mix: Mix::new(seed), simd: Simd::detect_best() })
    }

    /// Number of buckets in the table.
    pub(super) fn bucket_count(&self) -> u32 {
        self.mask + 1
    }

    #[inline(always)]
    fn bucket_line(&self, bucket: u32) -> &Line {
        &self.lines[bucket as usize]
    }

    /// Where a key is to be looked for.
    #[inline(always)]
    pub fn probe_key(&self, key: MacKey) -> MacProbe {
        self.place_mixed(self.mix.mix_key(key))
    }

    #[inline(always)]
    fn place_mixed(&self, mixed: u64) -> MacProbe {
        MacProbe { bucket: mixed as u32 & self.mask, tag: mixed >> self.bits }
    }

    /// Mixes a key, and asks for the memory that a lookup of it needs.
    #[inline(always)]
    pub(super) fn prefetch_key(&self, key: MacKey) -> u64 {
        let mixed = self.mix.mix_key(key);
        prefetch(self.bucket_line(mixed as u32 & self.mask));
        mixed
    }

    /// Looks pairs of keys up, and tells by their numbers what their first buckets have of both. None if they
    /// lack one: then it may be in its second, or came or moved a moment ago.
    #[inline(always)]
    pub(super) fn find_pairs(
        &self,
        pairs: &[[u64; 2]],
        mut told: impl FnMut(usize, [u64; 2], Option<[MacEntry; 2]>),
    ) {
        let lines = Lines { lines: &self.lines, bits: self.bits };
        let mask = self.mask;
        lines.find_pairs(self.simd, pairs, move |n, pair, hits| {
            let entry = |mixed: u64, Hit { word, seen, place }| {
                let bucket = mixed as u32 & mask;
                MacEntry { word, seen, bucket, place }
            };
            told(n, pair, hits.map(|[first, second]| [entry(pair[0], first), entry(pair[1], second)]));
        });
    }

    /// What is known of a key that was mixed.
    pub(super) fn find_mixed(&self, mixed: u64) -> Option<MacEntry> {
        self.find_entry(self.place_mixed(mixed))
    }

    /// The other bucket of a tag.
    #[inline(always)]
    fn other_bucket(&self, bucket: u32, tag: u64) -> u32 {
        bucket ^ (tag as u32 & self.mask | 1)
    }

    /// What is known of a key.
    #[inline(always)]
    pub fn find_entry(&self, sought: MacProbe) -> Option<MacEntry> {
        let MacProbe { bucket, tag } = sought;
        let line = self.bucket_line(bucket);
        // One that comes back is counted until it is here, one that goes from before it does.
        let before = line.beyond.load(Acquire);
        match in_line(line, bucket, tag << 2 | 1) {
            None if before | line.beyond.load(Relaxed) != 0 => self.find_beyond(sought),
            found => found,
        }
    }

    /// The same, in the key's second bucket, or in its first if it has just come back.
    #[inline(never)]
    fn find_beyond(&self, sought: MacProbe) -> Option<MacEntry> {
        let MacProbe { bucket, tag } = sought;
        let second = self.other_bucket(bucket, tag);
        in_line(self.bucket_line(second), second, tag << 2 | 3)
            .or_else(|| in_line(self.bucket_line(bucket), bucket, tag << 2 | 1))
    }

    /// Notes that an address was seen, if that is not known of this second already.
    #[inline(always)]
    pub fn refresh_entry(&self, entry: MacEntry, now: u32) {
        if entry.seen != now {
            self.bucket_line(entry.bucket).seen[entry.place as usize].store(now, Relaxed);
        }
    }

    /// Adds a key that is not there.
    pub(super) fn insert_key(&self, key: MacKey, port: u16, kind: MacEntryKind, now: u32) -> Put {
        let MacProbe { bucket, tag } = self.probe_key(key);
        let kind = match kind {
            MacEntryKind::Dynamic => 0,
            MacEntryKind::Sticky => STICKY,
            MacEntryKind::Static => STATIC,
        };
        let word = tag << TAG_SHIFT | PRESENT | kind | u64::from(port) & PORT;
        let second = self.other_bucket(bucket, tag);
        let room = || {
            // Where a port floods, entries of others stay where they are found sooner, if that can be.
            [true, false].into_iter().find_map(|is_alike| {
                let make = |bucket| Some((bucket, self.make_room(bucket, port, is_alike)?));
                make(second).or_else(|| make(bucket))
            })
        };
        let free = |bucket| Some((bucket, self.free_place(bucket)?));
        match free(bucket).or_else(|| free(second)).or_else(room) {
            Some((to, place)) if to == bucket => self.write_entry(bucket, place, word, now),
            Some((_, place)) => {
                self.count_beyond(bucket, true);
                self.write_entry(second, place, word | SECOND, now);
            }
            None => return Put::Crowded,
        }
        Put::Done
    }

    fn load_word(&self, bucket: u32, place: u32) -> Word {
        Word(self.bucket_line(bucket).words[place as usize].load(Relaxed))
    }

    fn free_place(&self, bucket: u32) -> Option<u32> {
        (0..PLACES as u32).find(|place| self.load_word(bucket, *place).is_free())
    }

    /// Moves an entry of a full bucket to its second one: of a port, or of another. Its place is
    /// to be written over.
    fn make_room(&self, bucket: u32, port: u16, is_alike: bool) -> Option<u32> {
        let may_go = |place: &u32| (self.load_word(bucket, *place).port() == port) == is_alike;
        (0..PLACES as u32).filter(may_go).find(|place| self.send_away(bucket, *place))
    }

    /// Writes an entry into its second bucket, if this is its first and there is room in that.
    fn send_away(&self, bucket: u32, place: u32) -> bool {
        let word = self.load_word(bucket, place);
        let second = self.other_bucket(bucket, word.tag());
        let Some(free) = self.free_place(second).filter(|_| !word.is_second()) else { return false };
        self.count_beyond(bucket, true);
        let seen = self.bucket_line(bucket).seen[place as usize].load(Relaxed);
        self.write_entry(second, free, word.0 | SECOND, seen);
        true
    }

    /// Moves an entry that is in its second bucket back to its first, if there is room by now.
    pub(super) fn bring_back(&self, entry: MacEntry) {
        let word = Word(entry.word);
        if !word.is_second() {
            return;
        }
        let first = self.other_bucket(entry.bucket, word.tag());
        if let Some(place) = self.free_place(first) {
            self.write_entry(first, place, word.0 & !SECOND, entry.seen);
            self.remove(entry);
        }
    }

    /// The second is stored before a reader could reach it.
    fn write_entry(&self, bucket: u32, place: u32, word: u64, seen: u32) {
        let line = self.bucket_line(bucket);
        line.seen[place as usize].store(seen, Relaxed);
        line.words[place as usize].store(word, Release);
    }

    /// Counts that one more entry, or one less, is in its second bucket and not in this one.
    fn count_beyond(&self, bucket: u32, is_more: bool) {
        let beyond = &self.bucket_line(bucket).beyond;
        let count = beyond.load(Relaxed);
        beyond.store(if is_more { count + 1 } else { count.saturating_sub(1) }, Release);
    }

    /// Sets the port of an entry, and that it was seen.
    pub(super) fn update_entry(&self, entry: MacEntry, port: u16, kind: MacEntryKind, now: u32) {
        let kind = match kind {
            MacEntryKind::Dynamic => 0,
            MacEntryKind::Sticky => STICKY,
            MacEntryKind::Static => STATIC,
        };
        let word = entry.word & !(PORT | STATIC | STICKY) | kind | u64::from(port) & PORT;
        self.write_entry(entry.bucket, entry.place, word, now);
    }

    /// Removes an entry and its tag.
    pub(super) fn remove(&self, entry: MacEntry) {
        let bucket = entry.bucket;
        self.bucket_line(bucket).words[entry.place as usize].store(0, Release);
        if Word(entry.word).is_second() {
            self.count_beyond(self.other_bucket(bucket, Word(entry.word).tag()), false);
        }
    }

    /// The entries of some buckets.
    pub(super) fn entries(&self, buckets: Range<u32>) -> impl Iterator<Item = (MacKey, MacEntry)> + '_ {
        let all = buckets.flat_map(|bucket| (0..PLACES as u32).map(move |place| (bucket, place)));
        all.filter_map(|(bucket, place)| {
            let line = self.bucket_line(bucket);
            let word = Word(line.words[place as usize].load(Acquire));
            if word.is_free() {
                return None;
            }
            let first = if word.is_second() { self.other_bucket(bucket, word.tag()) } else { bucket };
            let key = self.mix.unmix_key(word.tag() << self.bits | u64::from(first));
            let seen = line.seen[place as usize].load(Relaxed);
            Some((key, MacEntry { word: word.0, seen, bucket, place }))
        })
    }
}

/// The entry of a line that is recognised by these bits; all places are looked at, so that nothing
/// has to be guessed.
#[inline(always)]
fn in_line(line: &Line, bucket: u32, wanted: u64) -> Option<MacEntry> {
    let mut place = PLACES;
    for (n, word) in line.words.iter().enumerate() {
        place = if word.load(Acquire) >> SHIFT == wanted { n } else { place };
    }
    // The writer may have put another there since.
    let word = line.words.get(place)?.load(Acquire);
    let seen = line.seen[place].load(Relaxed);
    (word >> SHIFT == wanted).then_some(MacEntry { word, seen, bucket, place: place as u32 })
}

#[cfg(test)]
mod tests;
