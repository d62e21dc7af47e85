//! From a hash to the entries that may have its key: linear hashing with buckets of one cache line.
//!
//! A bucket has twelve places: a tag of a byte, which is a part of the hash and zero where the place is free,
//! and the entry's number. A flow that finds its bucket full goes to an overflow line that hangs on it; few
//! do, and a bucket has at most [`MOST_OVERFLOW`]. The index grows by a bucket at a time: bucket `n` is split
//! off bucket `n` minus the highest power of two in it, and so it shrinks. There is never a second index,
//! nothing is moved but the flows of one bucket, and every lookup looks into one bucket at any time.
//!
//! | word of a line | holds |
//! |---|---|
//! | 0 | tags of places 0 to 7 |
//! | 1 | tags of places 8 to 11; above them, the overflow line's number plus one, or zero |
//! | 2 to 7 | two numbers each |
use crate::simd::bytes_like;
use crate::{Storage, Words, prefetch};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The words of a line: one cache line.
type Line = [AtomicU64; 8];

/// Places of a line.
const PLACES: u32 = 12;
/// Overflow lines that a bucket may have: more only come about when keys are chosen by someone
/// who knows the seed.
const MOST_OVERFLOW: u32 = 4;
const LEAST: u32 = 16;

/// How full an index may be.
///
/// Between two powers of two some buckets are already split and the others hold twice as much, so that these
/// overflow early. The emptier an index, the fewer keys are in overflow lines, and the more memory it takes.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// It grows when more than this many hundredths of its places are taken.
    full: u64,
    /// It shrinks when fewer are.
    sparse: u64,
}

impl Fill {
    /// About 9 bytes a key: where memory counts.
    pub const TIGHT: Fill = Fill { full: 60, sparse: 25 };
    /// About 12 bytes a key: where time counts, and keys of the index are looked up again and again.
    pub const LOOSE: Fill = Fill { full: 45, sparse: 18 };

    /// Buckets for this many flows, before it grows.
    fn bucket_count(self, flows: u32) -> u64 {
        u64::from(flows) * 100 / (u64::from(PLACES) * self.full)
    }
}

/// Buckets whose memory is given back together.
const RELEASED: u32 = 1024;

/// Stands for "no entry found".
pub const NO_ENTRY: u32 = u32::MAX;
/// No entry that is known without looking into overflow lines.
pub const BEYOND_LINE: u32 = u32::MAX - 1;
/// A bit for each place.
const ALL_PLACES: u32 = (1 << PLACES) - 1;
/// The first word with numbers.
const NUMBERS: usize = 2;

/// Where flows are found by their hash.
pub struct TagIndex {
    /// Buckets, and overflow lines behind the most of those.
    words: Words<AtomicU64>,
    fill: Fill,
    most: u32,
    count: u32,
    /// One less than the power of two that is at least the number of buckets.
    mask: u32,
    /// Overflow lines: those ever used, and the first of those given back plus one.
    used: u32,
    spare: u32,
    /// Overflow lines that hang on a bucket now, and the most of them.
    hanging: u32,
    most_overflow: u32,
    /// Flows that went from a bucket to another as the index grew or shrank.
    moved: u64,
}

/// A place of a line that may hold the flow that is looked for.
#[derive(Clone, Copy)]
struct Place {
    line: u32,
    place: u32,
}

impl TagIndex {
    /// Room for `flows` flows; memory is taken as they come.
    pub fn new(flows: u32, fill: Fill, storage: &dyn Storage) -> io::Result<TagIndex> {
        let [most, most_overflow] = TagIndex::most(flows, fill);
        let words = Words::new(storage, "flow index", (most + most_overflow) as usize * 8)?;
        Ok(TagIndex {
            words,
            fill,
            most,
            count: LEAST,
            mask: LEAST - 1,
            used: 0,
            spare: 0,
            hanging: 0,
            most_overflow,
            moved: 0,
        })
    }

    /// Most buckets and overflow lines for this many flows.
    fn most(flows: u32, fill: Fill) -> [u32; 2] {
        let most = (fill.bucket_count(flows) + 2).max(LEAST.into()) as u32;
        [most, most / 2 + 16]
    }

    /// Bytes of the room for `flows` flows, whether they are there or not.
    pub fn room(flows: u32, fill: Fill) -> u64 {
        let lines: u64 = TagIndex::most(flows, fill).map(u64::from).iter().sum();
        lines * size_of::<Line>() as u64
    }

    /// Bytes of the buckets and overflow lines in use.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count + self.hanging) * size_of::<Line>() as u64
    }

    /// Entries that have changed their bucket while the index grew and shrank.
    pub fn moved_entries(&self) -> u64 {
        self.moved
    }

    /// Number of buckets in use.
    pub fn buckets(&self) -> u32 {
        self.count
    }

    /// Takes memory for the buckets of `flows` flows from the system, and for as many overflow lines as
    /// these have need of.
    pub fn populate(&mut self, flows: u32) {
        let buckets = (self.fill.bucket_count(flows) + 1).min(self.most.into()) as u32;
        let overflow = (buckets / 4).min(self.most_overflow);
        for (first, lines) in [(0, buckets), (self.most, overflow)] {
            let words = &self.words[first as usize * 8..(first + lines) as usize * 8];
            words.iter().step_by(4096 / 8).for_each(|word| word.store(word.load(Relaxed), Relaxed));
        }
    }

    #[inline(always)]
    fn line(&self, line: u32) -> &Line {
        &self.words.as_chunks().0[line as usize]
    }

    /// The bucket of a hash.
    #[inline(always)]
    fn bucket(&self, hash: u64) -> u32 {
        let bucket = hash as u32 & self.mask;
        if bucket >= self.count { bucket & self.mask >> 1 } else { bucket }
    }

    /// Asks for the line in which a hash will be looked for.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.line(self.bucket(hash)));
    }

    /// Asks for the line of a bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, bucket: u32) {
        prefetch(self.line(bucket));
    }

    /// The bucket of a hash, whose line is asked for.
    #[inline(always)]
    pub fn begin(&self, hash: u64) -> u32 {
        let bucket = self.bucket(hash);
        prefetch(self.line(bucket));
        bucket
    }

    /// The entry in a bucket that may be the one of a hash: [`NO_ENTRY`], or [`BEYOND_LINE`] if it could only
    /// be in an overflow line, which is asked for then. `soon` is called with the candidate, and of a second
    /// one if there are more.
    #[inline(always)]
    pub fn candidate(&self, hash: u64, bucket: u32, soon: impl Fn(u32)) -> u32 {
        let line = self.line(bucket);
        let places = with_tag(line, hash_tag(hash));
        if places == 0 {
            let Some(next) = overflow_line(line) else { return NO_ENTRY };
            prefetch(self.line(self.most + next));
            return BEYOND_LINE;
        }
        let first = number_at(line, places.trailing_zeros());
        soon(first);
        let others = places & (places - 1);
        if others != 0 {
            soon(number_at(line, others.trailing_zeros()));
        }
        first
    }

    /// As [`candidate`](Self::candidate), in a bucket's first overflow line.
    #[inline]
    pub fn candidate_beyond(&self, hash: u64, bucket: u32) -> u32 {
        let Some(next) = overflow_line(self.line(bucket)) else { return NO_ENTRY };
        let line = self.line(self.most + next);
        match (with_tag(line, hash_tag(hash)), overflow_line(line)) {
            (0, None) => NO_ENTRY,
            (0, Some(_)) => BEYOND_LINE,
            (places, _) => number_at(line, places.trailing_zeros()),
        }
    }

    /// The entry with this hash for which `is` holds.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut line = self.line(self.bucket(hash));
        loop {
            let mut places = with_tag(line, hash_tag(hash));
            while places != 0 {
                let number = number_at(line, places.trailing_zeros());
                if is(number) {
                    return Some(number);
                }
                places &= places - 1;
            }
            line = self.line(self.most + overflow_line(line)?);
        }
    }

    /// Adds an entry; says whether there was room.
    pub fn insert(&mut self, hash: u64, number: u32) -> bool {
        let bucket = self.bucket(hash);
        self.add(bucket, hash_tag(hash), number)
    }

    fn add(&mut self, bucket: u32, tag: u8, number: u32) -> bool {
        let (mut at, mut lines) = (bucket, 0);
        loop {
            let line = self.line(at);
            let free = with_tag(line, 0);
            if free != 0 {
                set_place(line, free.trailing_zeros(), tag, number);
                return true;
            }
            at = match overflow_line(line) {
                Some(next) => self.most + next,
                None if lines < MOST_OVERFLOW => match self.append(at) {
                    Some(next) => next,
                    None => return false,
                },
                None => return false,
            };
            lines += 1;
        }
    }

    /// Hangs an empty overflow line on a line that has none.
    #[cold]
    fn append(&mut self, at: u32) -> Option<u32> {
        let next = match self.spare {
            0 if self.used == self.most_overflow => return None,
            0 => {
                self.used += 1;
                self.used - 1
            }
            spare => {
                self.spare = overflow_line(self.line(self.most + spare - 1)).map_or(0, |next| next + 1);
                spare - 1
            }
        };
        clear(self.line(self.most + next));
        set_overflow(self.line(at), next + 1);
        self.hanging += 1;
        Some(self.most + next)
    }

    /// Removes an entry; says whether it was there.
    pub fn remove(&mut self, hash: u64, number: u32) -> bool {
        let bucket = self.bucket(hash);
        let Some(place) = self.place(bucket, hash_tag(hash), number) else { return false };
        // The last place of the last line fills the gap, so that a line that is empty can go.
        let (before, last) = self.last_line(bucket);
        if last == bucket {
            set_tag(self.line(place.line), place.place, 0);
            return true;
        }
        let from = self.line(last);
        let taken = taken_places(from);
        let filler = 31 - taken.leading_zeros();
        set_place(self.line(place.line), place.place, tag_at(from, filler), number_at(from, filler));
        set_tag(from, filler, 0);
        if taken.count_ones() == 1 {
            self.cut(before);
        }
        true
    }

    fn place(&self, bucket: u32, tag: u8, number: u32) -> Option<Place> {
        let mut at = bucket;
        loop {
            let line = self.line(at);
            let mut places = with_tag(line, tag);
            while places != 0 {
                let place = places.trailing_zeros();
                if number_at(line, place) == number {
                    return Some(Place { line: at, place });
                }
                places &= places - 1;
            }
            at = self.most + overflow_line(line)?;
        }
    }

    /// The last line of a bucket and the one before it.
    fn last_line(&self, bucket: u32) -> (u32, u32) {
        let (mut before, mut at) = (bucket, bucket);
        while let Some(next) = overflow_line(self.line(at)) {
            (before, at) = (at, self.most + next);
        }
        (before, at)
    }

    /// Gives back the overflow line that hangs on a line, which is its last.
    fn cut(&mut self, at: u32) {
        let Some(next) = overflow_line(self.line(at)) else { return };
        set_overflow(self.line(at), 0);
        set_overflow(self.line(self.most + next), self.spare);
        self.spare = next + 1;
        self.hanging -= 1;
        if self.hanging == 0 {
            (self.used, self.spare) = (0, 0);
        }
    }

    /// Says whether `flows` flows are too many for the buckets that there are.
    #[inline]
    pub fn is_full(&self, flows: u32) -> bool {
        u64::from(flows) * 100 > u64::from(self.count * PLACES) * self.fill.full && self.count < self.most
    }

    /// Says whether `flows` flows could do with fewer buckets.
    #[inline]
    pub fn is_sparse(&self, flows: u32) -> bool {
        u64::from(flows) * 100 < u64::from(self.count * PLACES) * self.fill.sparse && self.count > LEAST
    }

    /// Splits a bucket. `hash` is that of an entry, `soon` asks for the entry's line.
    pub fn grow(&mut self, hash: impl Fn(u32) -> u64, soon: impl Fn(u32)) {
        let new = self.count;
        if new > self.mask {
            self.mask = self.mask << 1 | 1;
        }
        self.count += 1;
        let old = new & self.mask >> 1;
        clear(self.line(new));
        self.split(old, new, hash);
        self.prefetch_next_splits(soon);
    }

    /// Gives each flow of a bucket the place that it has now.
    fn split(&mut self, old: u32, new: u32, hash: impl Fn(u32) -> u64) {
        let mut flows = Flows::default();
        self.drain_bucket(old, &mut flows);
        for (tag, number) in flows.iter() {
            let bucket = self.bucket(hash(number));
            self.moved += u64::from(bucket == new);
            let has_room = self.add(bucket, tag, number);
            debug_assert!(has_room, "two buckets have room for what one had");
        }
    }

    /// Asks for what the next splits need: the entries of the next one, the line of that after it.
    #[inline]
    fn prefetch_next_splits(&self, soon: impl Fn(u32)) {
        let next = self.count & if self.count > self.mask { self.mask } else { self.mask >> 1 };
        let line = self.line(next);
        let mut places = taken_places(line);
        while places != 0 {
            soon(number_at(line, places.trailing_zeros()));
            places &= places - 1;
        }
        prefetch(self.line(next + 1));
        if let Some(next) = overflow_line(line) {
            prefetch(self.line(self.most + next));
        }
    }

    /// Moves all flows of a bucket out of it.
    fn drain_bucket(&mut self, bucket: u32, flows: &mut Flows) {
        let mut at = bucket;
        loop {
            let line = self.line(at);
            for place in 0..PLACES {
                if tag_at(line, place) != 0 {
                    flows.push(tag_at(line, place), number_at(line, place));
                }
            }
            match overflow_line(line) {
                Some(next) => at = self.most + next,
                None => break,
            }
        }
        while overflow_line(self.line(bucket)).is_some() {
            let (before, _) = self.last_line(bucket);
            self.cut(before);
        }
        clear(self.line(bucket));
    }

    /// Merges the last bucket with the one that it was split off; says whether there was room for that.
    pub fn shrink(&mut self) -> bool {
        let last = self.count - 1;
        let old = last & self.mask >> 1;
        if !self.could_merge(old, last) {
            return false;
        }
        let mut flows = Flows::default();
        self.drain_bucket(last, &mut flows);
        for (tag, number) in flows.iter() {
            let has_room = self.add(old, tag, number);
            debug_assert!(has_room, "the room was counted");
            self.moved += 1;
        }
        self.count = last;
        if last == self.mask.div_ceil(2) {
            self.mask >>= 1;
        }
        if last.is_multiple_of(RELEASED) {
            self.words.release_range(last as usize * 8..(last + RELEASED).min(self.most) as usize * 8);
        }
        true
    }

    /// Says whether two buckets fit into one with the overflow lines that there are.
    fn could_merge(&self, old: u32, last: u32) -> bool {
        let lines = (self.taken_in(old) + self.taken_in(last)).div_ceil(PLACES).saturating_sub(1);
        lines <= MOST_OVERFLOW && lines <= self.most_overflow - self.hanging
    }

    fn taken_in(&self, bucket: u32) -> u32 {
        let (mut at, mut taken) = (bucket, 0);
        loop {
            let line = self.line(at);
            taken += PLACES - with_tag(line, 0).count_ones();
            match overflow_line(line) {
                Some(next) => at = self.most + next,
                None => return taken,
            }
        }
    }
}

/// The flows of a bucket on their way to others: their tags and numbers.
struct Flows {
    flows: [(u8, u32); (PLACES * (MOST_OVERFLOW + 1)) as usize],
    count: usize,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows { flows: [(0, 0); (PLACES * (MOST_OVERFLOW + 1)) as usize], count: 0 }
    }
}

impl Flows {
    fn push(&mut self, tag: u8, number: u32) {
        self.flows[self.count] = (tag, number);
        self.count += 1;
    }

    fn iter(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.flows[..self.count].iter().copied()
    }
}

/// The part of a hash that a place shows; not zero, which is a free place's.
#[inline(always)]
fn hash_tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// The places of a line that show a tag, a bit for each.
#[inline(always)]
fn with_tag(line: &Line, tag: u8) -> u32 {
    bytes_like([0, 1].map(|n| line[n].load(Relaxed)), tag) & ALL_PLACES
}

/// The places of a line that are not free.
#[inline(always)]
fn taken_places(line: &Line) -> u32 {
    !with_tag(line, 0) & ALL_PLACES
}

#[inline(always)]
fn tag_at(line: &Line, place: u32) -> u8 {
    (line[place as usize / 8].load(Relaxed) >> (place % 8 * 8)) as u8
}

#[inline(always)]
fn number_at(line: &Line, place: u32) -> u32 {
    (line[NUMBERS + place as usize / 2].load(Relaxed) >> (place % 2 * 32)) as u32
}

fn set_tag(line: &Line, place: u32, tag: u8) {
    let (word, shift) = (&line[place as usize / 8], place % 8 * 8);
    word.store(word.load(Relaxed) & !(0xff << shift) | u64::from(tag) << shift, Relaxed);
}

fn set_place(line: &Line, place: u32, tag: u8, number: u32) {
    set_tag(line, place, tag);
    let (word, shift) = (&line[NUMBERS + place as usize / 2], place % 2 * 32);
    word.store(word.load(Relaxed) & !(0xffff_ffff << shift) | u64::from(number) << shift, Relaxed);
}

/// The overflow line that hangs on a line.
#[inline(always)]
fn overflow_line(line: &Line) -> Option<u32> {
    ((line[1].load(Relaxed) >> 32) as u32).checked_sub(1)
}

fn set_overflow(line: &Line, next: u32) {
    line[1].store(line[1].load(Relaxed) & 0xffff_ffff | u64::from(next) << 32, Relaxed);
}

/// Makes all places free and hangs nothing on the line.
fn clear(line: &Line) {
    line[0].store(0, Relaxed);
    line[1].store(0, Relaxed);
}
