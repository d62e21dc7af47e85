//! Captures frames as programs received them, with what was decided, while a capture is active.
//!
//! A program that copies frames replaces the normal one during a capture, so that capturing costs nothing at
//! other times. Each processor has a ring of its own, which it overwrites: what was not taken in time is
//! counted as lost. The reader first reads how far the rings are filled, then waits until all runs of
//! programs have ended that may have filled them.
//!
//! Samples of frames are copied in the same way, by programs that are there for good: one of N forwarded
//! frames, and its headers alone.
use super::layout::{MOST_PORTS, Reason};
use super::memory::NoMemory;
use super::shared_arrays::SharedArrays;
use artery_device::bpf;
use artery_storage::Words;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Bytes of a slot's header, behind which is the frame.
pub(super) const HEADER: usize = 64;
/// Bytes from one processor's count to the next one's: a line of the cache.
pub(super) const HEAD: usize = 64;
/// Where in such a line the frames are counted that are skipped before the next sample.
pub(super) const SKIPPED: i16 = 8;
/// Most processors that have rings of their own.
const MOST_RINGS: usize = 64;

/// Where in a slot's header things are: what was decided, the VLAN, the port (4 bytes each), the time (8
/// bytes), the length of the frame and of what is kept of it (4 bytes each).
pub(super) const VERDICT: i16 = 0;
pub(super) const VLAN: i16 = 4;
pub(super) const PORT: i16 = 8;
pub(super) const TIME: i16 = 16;
pub(super) const LENGTH: i16 = 24;
pub(super) const KEPT: i16 = 28;
/// Stands in what was decided beside the port that the frame leaves by.
pub(super) const FORWARDED: u32 = 1 << 16;
/// Stands beside a VLAN that is not in the frame.
pub(super) const TAGGED: u32 = 1 << 16;

/// What was decided of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureVerdict {
    /// It went out by the port of this number.
    Forwarded(u32),
    /// It went to the kernel.
    Kernel(Reason),
}

/// A frame, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// What the program decided about the frame.
    pub verdict: CaptureVerdict,
    /// The number of the port that it came by, which for a VLAN's is that of the interface that carries it.
    pub port: u32,
    /// Nanoseconds on the kernel's monotonic clock.
    pub time: u64,
    /// Bytes that it had, its tag included.
    pub length: u32,
    /// The first of them.
    pub bytes: Vec<u8>,
}

/// Which frames programs copy to the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Forwarded,
    /// Forwarded ones, and those for the kernel.
    All,
    /// One of so many that are forwarded.
    Sampled(u32),
}

impl Copied {
    /// Bytes of a slot, and slots of a processor: powers of two.
    fn slots(self) -> (usize, usize) {
        match self {
            Copied::Forwarded | Copied::All => (2048, 512),
            Copied::Sampled(_) => (256, 2048),
        }
    }
}

/// Rings that programs fill.
pub(super) struct CaptureRings {
    pub(super) arrays: SharedArrays,
    pub(super) copied: Copied,
    /// Bytes of a slot, and slots of a processor.
    pub(super) slot: usize,
    pub(super) slots: usize,
    /// How many rings there are: a power of two.
    pub(super) rings: usize,
    frames: Words<AtomicU64>,
    heads: Words<AtomicU64>,
    taken: Vec<u64>,
    lost: u64,
}

impl CaptureRings {
    pub(super) fn new(copied: Copied) -> Result<CaptureRings, NoMemory> {
        let (arrays, rings, (slot, slots)) = (SharedArrays::default(), rings(), copied.slots());
        let made = CaptureRings {
            frames: Words::new(&arrays, "frames", rings * slots * slot / 8)?,
            heads: Words::new(&arrays, "heads", rings * HEAD / 8)?,
            taken: vec![0; rings],
            lost: 0,
            copied,
            slot,
            slots,
            rings,
            arrays,
        };
        if let Copied::Sampled(interval) = copied {
            let first = |ring| &made.heads[(ring * HEAD + SKIPPED as usize) / 8];
            (0..rings).for_each(|ring| first(ring).store(u64::from(interval / 2), Relaxed));
        }
        Ok(made)
    }

    /// Most bytes of a frame that are kept.
    pub(super) fn snap(&self) -> usize {
        self.slot - HEADER
    }

    /// Removes the captured frames from the rings and returns them in the order of time.
    pub(super) fn drain_frames(&mut self) -> Vec<Captured> {
        let heads: Vec<u64> = (0..self.rings).map(|ring| self.ring_head(ring)).collect();
        if heads == self.taken || bpf::wait_for_runs().is_err() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (ring, head) in heads.into_iter().enumerate() {
            self.drain_ring(ring, head, &mut found);
        }
        found.sort_by_key(|captured| captured.time);
        found
    }

    /// Frames that were overwritten before they were taken.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn ring_head(&self, ring: usize) -> u64 {
        self.heads[ring * HEAD / 8].load(Acquire)
    }

    fn drain_ring(&mut self, ring: usize, head: u64, found: &mut Vec<Captured>) {
        let first = self.taken[ring].max(head.saturating_sub(self.slots as u64));
        let read: Vec<_> = (first..head).map(|number| (number, self.read_slot(ring, number))).collect();
        // The slot that is being filled now is one of those that were read, if the ring has gone round.
        let oldest = (self.ring_head(ring) + 1).saturating_sub(self.slots as u64);
        let sound = read.into_iter().filter(|(number, _)| *number >= oldest);
        let before = found.len();
        found.extend(sound.filter_map(|(_, captured)| captured));
        self.lost += head - self.taken[ring] - (found.len() - before) as u64;
        self.taken[ring] = head;
    }

    /// What is in a slot; `None` where that makes no sense.
    fn read_slot(&self, ring: usize, number: u64) -> Option<Captured> {
        let first = (ring * self.slots + number as usize % self.slots) * self.slot / 8;
        let slot: Vec<u8> = self.frames[first..first + self.slot / 8]
            .iter()
            .flat_map(|word| word.load(Acquire).to_ne_bytes())
            .collect();
        parse_slot(&slot)
    }
}

fn parse_slot(slot: &[u8]) -> Option<Captured> {
    let word = |at: i16| {
        let bytes = slot.get(at as usize..at as usize + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let time = slot.get(TIME as usize..TIME as usize + 8)?;
    let (verdict, vlan) = (word(VERDICT)?, word(VLAN)?);
    let verdict = match verdict & FORWARDED {
        0 => CaptureVerdict::Kernel(*Reason::ALL.get(verdict as usize)?),
        // A hop says more than the port.
        _ => CaptureVerdict::Forwarded(verdict & (MOST_PORTS as u32 - 1)),
    };
    let mut bytes = slot.get(HEADER..HEADER + word(KEPT)? as usize)?.to_vec();
    let mut length = word(LENGTH)?;
    if vlan & TAGGED != 0 && bytes.len() >= 12 {
        let [high, low] = (vlan as u16).to_be_bytes();
        bytes.splice(12..12, [0x81, 0, high, low]);
        length += 4;
    }
    Some(Captured {
        verdict,
        port: word(PORT)?,
        time: u64::from_ne_bytes(time.try_into().ok()?),
        length: length.max(bytes.len() as u32),
        bytes,
    })
}

/// A ring for each processor that this machine may come to have, as far as there are rings.
fn rings() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(MOST_RINGS, |last| (last + 1).next_power_of_two().min(MOST_RINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: usize = 2048;

    fn slot(words: [(i16, u32); 4], bytes: &[u8]) -> Vec<u8> {
        let mut slot = vec![0; SLOT];
        for (at, word) in words {
            slot[at as usize..at as usize + 4].copy_from_slice(&word.to_ne_bytes());
        }
        slot[PORT as usize] = 3;
        slot[HEADER..HEADER + bytes.len()].copy_from_slice(bytes);
        slot
    }

    #[test]
    fn a_slot_says_what_was_decided_and_its_tag_is_put_back() {
        let frame: Vec<u8> = (0..60).collect();
        let words = [(VERDICT, FORWARDED | 7), (VLAN, TAGGED | 0x2009), (LENGTH, 1500), (KEPT, 60)];
        let captured = parse_slot(&slot(words, &frame)).unwrap();
        assert_eq!(captured.verdict, CaptureVerdict::Forwarded(7));
        assert_eq!(captured.port, 3);
        assert_eq!(captured.length, 1504);
        assert_eq!(&captured.bytes[10..18], &[10, 11, 0x81, 0, 0x20, 9, 12, 13][..]);
        assert_eq!(captured.bytes.len(), 64);
        let words = [(VERDICT, Reason::Expired as u32), (VLAN, 0), (LENGTH, 60), (KEPT, 60)];
        let captured = parse_slot(&slot(words, &frame)).unwrap();
        assert_eq!((captured.verdict, captured.bytes), (CaptureVerdict::Kernel(Reason::Expired), frame));
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        let words = [(VERDICT, 60_000), (VLAN, 0), (LENGTH, 60), (KEPT, 60)];
        assert_eq!(parse_slot(&slot(words, &[])), None, "no such reason");
        let words = [(VERDICT, 0), (VLAN, TAGGED), (LENGTH, 9), (KEPT, (SLOT - HEADER) as u32 + 1)];
        assert_eq!(parse_slot(&slot(words, &[])), None, "more than there is");
        assert_eq!(parse_slot(&[]), None);
        let words = [(VERDICT, 0), (VLAN, TAGGED), (LENGTH, 9), (KEPT, 9)];
        let found = parse_slot(&slot(words, &[])).map(|captured| captured.bytes.len());
        assert_eq!(found, Some(9), "too short for a tag");
    }
}
