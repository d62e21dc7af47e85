//! Established connections that programs forward past the user's policy: a table of flows, one for each
//! direction, in arrays that programs and this process share.
//!
//! A bucket has [`WAYS`] records. A flow lies in any of those of its bucket; one that finds no room stays
//! with the kernel. The word with the protocol is written last and cleared first, and a record is used
//! again only when all runs of programs that may have seen it have ended.
use super::candidates::Candidates;
use super::layout::{MOST_PORTS, MULTIPLIER, mix};
use super::shared_arrays::SharedArrays;
use artery_storage::Words;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Records of a bucket.
pub(super) const WAYS: usize = 8;
/// Set in every tag. Below it are the bits of a tag that a hash has chosen.
pub(super) const TAGGED: u32 = 8;
/// Times this, a tag is that of all records of a bucket.
pub(super) const ALL_TAGS: u32 = 0x1111_1111;
/// Added to the protocol's number in a record that is in use.
pub(super) const IN_USE: u32 = 0x100;
/// In the word of properties: the packet is of an established connection.
pub(super) const ESTABLISHED: u32 = 1 << 30;
/// The same: its addresses or ports are replaced, of IPv4.
pub(super) const TRANSLATED: u32 = 1 << 31;
/// The same of IPv6: another bit, so that one test tells a program that nothing of IPv4 is replaced.
pub(super) const TRANSLATED_V6: u32 = 1 << 29;
/// The same: where the port that packets must leave by begins, plus one; 0 for any.
pub(super) const EXIT: u32 = 8;
/// The same for the port that packets must arrive at.
pub(super) const ENTRY: u32 = 16;
/// The same: packets stay with the kernel, and are counted by what keeps their connection.
pub(super) const KEPT_BY_RULE: u32 = 1 << 24;
pub(super) const KEPT_BY_WINDOW: u32 = 1 << 25;
/// Removed records that wait for runs of programs to end before that is waited for.
const MOST_WAITING: usize = 512;

/// Where the words of a record are, in 32-bit words, and how many buckets there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLayout {
    /// The name of the array.
    pub(super) array: &'static str,
    /// Words of a record: a power of two.
    pub(super) words: usize,
    pub(super) bucket_bits: u32,
    /// Words of each of both addresses, which come first.
    pub(super) address: usize,
    /// Ports, or the identifier, type and code of an echo; then the protocol and [`IN_USE`].
    pub(super) ports: usize,
    /// [`ESTABLISHED`], whether it is translated, and ports.
    pub(super) properties: usize,
    /// The bit of properties that says so.
    pub(super) translated: u32,
    /// The addresses and ports that packets leave with. With those of IPv6, in the word behind its ports, is
    /// what replacing the addresses adds to a sum of 32-bit words.
    pub(super) new_source: usize,
    pub(super) new_destination: usize,
    pub(super) new_ports: usize,
    /// Ticks after which a packet goes to the kernel, which renews its entry; 0 for never. Of TCP only a
    /// packet that comes as long after the last one does.
    pub(super) interval: usize,
    /// Not 0 once a packet was seen that may close the connection.
    pub(super) closing: usize,
    /// The tick, of 64 bits, at which the last packet went to the kernel for renewal, or, of TCP and without
    /// an interval, at which the last one came.
    pub(super) stamp: usize,
    /// Where the record is in its bucket, in bytes.
    pub(super) offset: usize,
}

pub(super) const FLOWS4: FlowLayout = FlowLayout {
    array: "flows4",
    words: 16,
    bucket_bits: 16,
    address: 1,
    ports: 2,
    properties: 4,
    translated: TRANSLATED,
    interval: 5,
    stamp: 6,
    new_source: 8,
    new_destination: 9,
    new_ports: 10,
    closing: 11,
    offset: 15,
};
pub(super) const FLOWS6: FlowLayout = FlowLayout {
    array: "flows6",
    words: 32,
    bucket_bits: 14,
    address: 4,
    ports: 8,
    properties: 10,
    translated: TRANSLATED_V6,
    interval: 11,
    stamp: 12,
    closing: 14,
    new_source: 16,
    new_destination: 20,
    new_ports: 24,
    offset: 31,
};

impl FlowLayout {
    /// The layout for the family of an address.
    pub(super) fn of(address: IpAddr) -> FlowLayout {
        if address.is_ipv4() { FLOWS4 } else { FLOWS6 }
    }
    /// Words of a bucket.
    pub(super) fn bucket_words(self) -> usize {
        self.words * WAYS
    }
    /// Bits of a hash behind those that choose the bucket; they are the tag, with [`TAGGED`].
    pub(super) fn tag_shift(self) -> u32 {
        32 - self.bucket_bits - TAGGED.ilog2()
    }
    fn count(self) -> usize {
        self.bucket_words() << self.bucket_bits
    }
}

/// What packets of one direction of a connection have in common, as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The source address on arrival.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// Source and destination port in network order, or an echo's identifier, type and code.
    pub ports: [u8; 4],
    /// The protocol's number (IANA).
    pub protocol: u8,
}

impl FlowKey {
    /// The words that the key's part of a record has, the protocol's among them.
    pub(super) fn to_words(self) -> Vec<u32> {
        let last = [u32::from_ne_bytes(self.ports), u32::from(self.protocol) | IN_USE];
        [address_words(self.source), address_words(self.destination), last.to_vec()].concat()
    }
}

/// An address as records have it.
fn address_words(address: IpAddr) -> Vec<u32> {
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match address {
        IpAddr::V4(address) => address.octets().chunks(4).map(word).collect(),
        IpAddr::V6(address) => address.octets().chunks(4).map(word).collect(),
    }
}

/// What is to be added to a sum of 32-bit words in ones' complement where these words replace others
/// (RFC 1624, equation 3).
fn sum_difference(old: &[u32], new: &[u32]) -> u32 {
    let add = |sum: u32, word: u32| {
        let (sum, is_carried) = sum.overflowing_add(word);
        sum + u32::from(is_carried)
    };
    old.iter().zip(new).fold(0, |sum, (old, new)| add(add(sum, !old), *new))
}

/// What is done with packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowAction {
    /// The addresses and ports that packets leave with, if they are others.
    pub translation: Option<Translation>,
    /// The number of the port that packets must arrive at; others go to the kernel.
    pub entry: Option<u32>,
    /// The number of the port that packets must leave by; otherwise they go to the kernel.
    pub exit: Option<u32>,
    /// After so many ticks of the kernel's clock a packet goes to the kernel, of TCP after so many without a
    /// packet; 0 for never.
    pub interval: u32,
    /// Why packets stay with the kernel, if they do.
    pub kept_by: Option<FlowKeeper>,
}

/// What keeps packets of an established connection in the kernel, which are counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKeeper {
    /// A rule that is, or may be, about them.
    Rule,
    /// Segments out of window, which the kernel minds.
    Window,
}

/// The addresses and ports that packets of a flow leave with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The source address, of the flow's family.
    pub source: IpAddr,
    /// The destination address, which routes are looked up by, of the same family.
    pub destination: IpAddr,
    /// As in [`FlowKey`].
    pub ports: [u8; 4],
}

/// What programs have noted of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowNote {
    /// The tick of its last packet, for flows without an interval.
    pub stamp: u64,
    /// Whether a packet was seen that may close the connection.
    pub is_closing: bool,
}

/// The flows of both families.
pub struct FlowTable {
    words: [Words<AtomicU32>; 2],
    /// Mixed into every hash, so that no sender can fill a bucket on purpose.
    pub(super) seed: u32,
    /// The place of each flow's record, by its first word.
    places: HashMap<FlowKey, usize>,
    /// Records, by family and place, that runs of programs may still see.
    waiting: HashSet<(bool, usize)>,
    /// Whether a flow found no room for a record that waits.
    lacks_waiting: bool,
    pub(super) candidates: Candidates,
}

impl FlowTable {
    /// A table without flows.
    pub(super) fn new(arrays: &SharedArrays, seed: u32) -> io::Result<FlowTable> {
        let words = |layout: FlowLayout| Words::new(arrays, layout.array, layout.count());
        let (places, waiting) = (HashMap::new(), HashSet::new());
        let (words, candidates) = ([words(FLOWS4)?, words(FLOWS6)?], Candidates::new(arrays)?);
        Ok(FlowTable { words, seed, places, waiting, lacks_waiting: false, candidates })
    }

    /// Has packets of a flow counted that stay with the kernel, by what keeps them. False if its bucket is
    /// half full: flows that are forwarded need the room.
    pub fn insert_kept(&mut self, key: FlowKey, kept_by: FlowKeeper) -> bool {
        let layout = FlowLayout::of(key.source);
        let words = &self.words[usize::from(key.source.is_ipv6())];
        let bucket = self.bucket(layout, &key.to_words());
        let is_used = |way: &usize| words[bucket + way * layout.words + layout.ports + 1].load(Relaxed) != 0;
        (0..WAYS).filter(is_used).count() < WAYS / 2
            && self.insert(key, &FlowAction { kept_by: Some(kept_by), ..FlowAction::default() })
    }

    /// Has packets of a flow forwarded. False if its bucket is full.
    pub fn insert(&mut self, key: FlowKey, action: &FlowAction) -> bool {
        self.remove(&key);
        let layout = FlowLayout::of(key.source);
        let is_v6 = key.source.is_ipv6();
        let words = &self.words[usize::from(is_v6)];
        let key_words = key.to_words();
        let bucket = self.bucket(layout, &key_words);
        let place = |way: usize| bucket + way * layout.words;
        let is_free = |place: &usize| {
            words[place + layout.ports + 1].load(Relaxed) == 0 && !self.waiting.contains(&(is_v6, *place))
        };
        let Some(place) = (0..WAYS).map(place).find(is_free) else {
            self.lacks_waiting |=
                (0..WAYS).any(|way| self.waiting.contains(&(is_v6, bucket + way * layout.words)));
            return false;
        };
        let record = &words[place..][..layout.words];
        let (last, first) = key_words.split_last().expect("a key has words");
        first.iter().zip(record).for_each(|(new, word)| word.store(*new, Relaxed));
        let mut properties = ESTABLISHED;
        if let Some(new) = &action.translation {
            properties |= layout.translated;
            let words = [address_words(new.source), address_words(new.destination)].concat();
            record[layout.new_ports].store(u32::from_ne_bytes(new.ports), Relaxed);
            if is_v6 {
                record[layout.new_ports + 1].store(sum_difference(first, &words), Relaxed);
            }
            words.iter().zip(&record[layout.new_source..]).for_each(|(new, word)| word.store(*new, Relaxed));
        }
        let bits = |port: Option<u32>, at: u32| port.map_or(0, |port| (port % MOST_PORTS as u32 + 1) << at);
        properties |= bits(action.exit, EXIT) | bits(action.entry, ENTRY);
        properties |= match action.kept_by {
            None => 0,
            Some(FlowKeeper::Rule) => KEPT_BY_RULE,
            Some(FlowKeeper::Window) => KEPT_BY_WINDOW,
        };
        record[layout.properties].store(properties, Relaxed);
        record[layout.interval].store(action.interval, Relaxed);
        for at in [layout.closing, layout.stamp, layout.stamp + 1] {
            record[at].store(0, Relaxed);
        }
        record[layout.offset].store((4 * (place - bucket)) as u32, Relaxed);
        record[layout.ports + 1].store(*last, Release);
        let tag = self.hash(&key_words) >> layout.tag_shift() & (TAGGED - 1) | TAGGED;
        self.set_tag(is_v6, place, tag);
        self.places.insert(key, place);
        true
    }

    /// Leaves packets of a flow to the kernel.
    pub fn remove(&mut self, key: &FlowKey) {
        let Some(place) = self.places.remove(key) else { return };
        let (layout, is_v6) = (FlowLayout::of(key.source), key.source.is_ipv6());
        self.set_tag(is_v6, place, 0);
        let record = &self.words[usize::from(is_v6)][place..][..layout.words];
        record[layout.ports + 1].store(0, Release);
        // A program compares addresses before ports: those of this flow must be gone before the record gets
        // another's ports, or a run that compared them before would take that for this flow.
        record[..layout.ports].iter().for_each(|word| word.store(0, Release));
        self.waiting.insert((is_v6, place));
    }

    /// What programs have noted of a flow.
    pub fn note(&self, key: &FlowKey) -> Option<FlowNote> {
        let place = *self.places.get(key)?;
        let layout = FlowLayout::of(key.source);
        let record = &self.words[usize::from(key.source.is_ipv6())][place..][..layout.words];
        let half = |at: usize| u64::from(record[layout.stamp + at].load(Acquire));
        // Only whether it has changed matters.
        let stamp = half(1) << 32 | half(0);
        Some(FlowNote { stamp, is_closing: record[layout.closing].load(Acquire) != 0 })
    }

    /// Flows without a record that programs saw several packets of, and those that they saw a closing packet
    /// of; `most` at most.
    pub fn drain_candidates(&mut self, most: usize) -> Vec<FlowKey> {
        self.candidates.drain(most)
    }

    /// What can be read when there are some.
    pub(super) fn candidates_file(&self) -> BorrowedFd<'_> {
        self.candidates.ring.as_fd()
    }

    /// Flows whose packets are forwarded.
    pub fn len(&self) -> usize {
        self.places.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether so many records wait for runs of programs to end that this should be waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.lacks_waiting || self.waiting.len() >= MOST_WAITING
    }
    /// Lets records be used again: all runs of programs that may have seen them have ended.
    pub(super) fn reclaim_waiting(&mut self) {
        self.waiting.clear();
        self.lacks_waiting = false;
    }

    /// The record of a flow as a program finds it, by the words of its key.
    pub(super) fn find(&self, is_v6: bool, key: &[u32]) -> Option<FlowRecord<'_>> {
        let layout = if is_v6 { FLOWS6 } else { FLOWS4 };
        let bucket = self.bucket(layout, key);
        let records = self.words[usize::from(is_v6)][bucket..][..layout.bucket_words()].chunks(layout.words);
        let is_it =
            |record: &&[AtomicU32]| key.iter().zip(*record).all(|(key, word)| word.load(Acquire) == *key);
        records.into_iter().find(is_it).map(|words| FlowRecord { layout, words })
    }

    /// The bucket that a flow belongs to.
    #[cfg(test)]
    pub(super) fn bucket_of(&self, key: &FlowKey) -> usize {
        self.bucket(FlowLayout::of(key.source), &key.to_words())
    }

    /// The first word of the bucket that a flow belongs to: by its addresses and ports.
    fn bucket(&self, layout: FlowLayout, key: &[u32]) -> usize {
        (self.hash(key) >> (32 - layout.bucket_bits)) as usize * layout.bucket_words()
    }

    fn hash(&self, key: &[u32]) -> u32 {
        let mixed = key[..key.len() - 1].iter().fold(self.seed, |hash, word| mix(hash, *word));
        mixed.wrapping_mul(MULTIPLIER)
    }

    /// Whether all records of the bucket that a flow belongs to are used, by the words of its key.
    pub(super) fn is_full(&self, is_v6: bool, key: &[u32]) -> bool {
        let layout = if is_v6 { FLOWS6 } else { FLOWS4 };
        let bucket = self.bucket(layout, key) / layout.bucket_words();
        let all_used = TAGGED * ALL_TAGS;
        self.candidates.tags(is_v6, bucket).load(Acquire) & all_used == all_used
    }

    /// Writes the tag of a record.
    fn set_tag(&self, is_v6: bool, place: usize, tag: u32) {
        let layout = if is_v6 { FLOWS6 } else { FLOWS4 };
        let (bucket, way) = (place / layout.bucket_words(), place % layout.bucket_words() / layout.words);
        let (word, shift) = (self.candidates.tags(is_v6, bucket), way * 4);
        // This process alone writes it.
        word.store(word.load(Relaxed) & !(0xf << shift) | tag << shift, Release);
    }
}

/// A record, as it is read for a packet.
pub(super) struct FlowRecord<'a> {
    layout: FlowLayout,
    words: &'a [AtomicU32],
}

impl FlowRecord<'_> {
    pub(super) fn word(&self, at: usize) -> u32 {
        self.words[at].load(Acquire)
    }
    pub(super) fn properties(&self) -> u32 {
        self.word(self.layout.properties)
    }
    pub(super) fn interval(&self) -> u32 {
        self.word(self.layout.interval)
    }
    pub(super) fn is_closing(&self) -> bool {
        self.word(self.layout.closing) != 0
    }
    pub(super) fn stamp(&self) -> u64 {
        u64::from(self.word(self.layout.stamp + 1)) << 32 | u64::from(self.word(self.layout.stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_room_for_all_its_words_and_stamps_are_aligned() {
        for layout in [FLOWS4, FLOWS6] {
            let key = 2 * layout.address;
            assert_eq!(layout.ports, key);
            assert!(layout.properties > layout.ports + 1 && layout.stamp.is_multiple_of(2));
            assert!(layout.words.is_power_of_two() && layout.offset == layout.words - 1);
            assert!(layout.closing < layout.offset.min(16));
            assert!(layout.ports.is_multiple_of(2));
            assert!(layout.new_destination == layout.new_source + layout.address);
            assert!(layout.new_ports >= layout.new_destination + layout.address);
            assert!(layout.new_ports + 1 < layout.offset && layout.new_source > layout.stamp + 1);
        }
    }

    #[test]
    fn replaced_words_add_their_difference_to_a_sum() {
        let sum = |words: &[u32]| words.iter().fold(0_u64, |sum, word| sum + u64::from(*word)) % 0xffff;
        let (old, new) = ([1, u32::MAX, 0, 7], [0x2001_0db8, 0, 9, u32::MAX]);
        let difference = u64::from(sum_difference(&old, &new));
        assert_eq!((sum(&old) + difference) % 0xffff, sum(&new));
        assert_eq!(sum_difference(&old, &old), u32::MAX, "nothing is added");
    }
}
