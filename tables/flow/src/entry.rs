//! The cache line of a flow.
//!
//! | word | holds |
//! |---|---|
//! | 0, 1 (IPv6: 0 to 4) | the key |
//! | 5 | action, and the generation that it belongs to above it |
//! | 6 | when it was last seen (32 bits), state (8), flags (8), version (16) |
//! | 7 | IPv6: bytes (38 bits) and packets (26 bits) |
//! | 2, 3 | IPv4: packets, bytes |
//!
//! One thread reads and writes. The words are atomics because that is what a region of a `Storage` consists
//! of; relaxed loads and stores of them are plain ones.
use super::key::{FlowKey, PacketInfo};
use super::state::FlowState;
use super::tick::Tick;
use artery_wire::TcpFlags;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The words of an entry: one cache line.
pub(super) type Line = [AtomicU64; 8];

const ANSWER: usize = 5;
const STATUS: usize = 6;
const COUNTS: usize = 7;
const PACKETS: usize = 2;
const BYTES: usize = 3;
/// Bits of the bytes in the one word in which IPv6 counts.
const BYTES_BITS: u32 = 38;
const MOST_BYTES: u64 = (1 << BYTES_BITS) - 1;
const MOST_PACKETS: u64 = (1 << (64 - BYTES_BITS)) - 1;

/// What a flow leads to, and the generation of the tables in which that was right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Answer {
    /// What to do with the flow's packets: a number that the caller defines.
    pub action: u32,
    /// Generation of the action: an answer of another generation must be looked up again.
    pub generation: u32,
}

/// Flags of an entry.
pub(super) const LIVE: u8 = 1;
pub(super) const YOUNG: u8 = 2;
pub(super) const IMPORTED: u8 = 4;
pub(super) const PINNED: u8 = 8;
pub(super) const MARKED: u8 = 16;
/// It came from elsewhere, also if packets of it were seen since: it has an origin.
pub(super) const SHARED: u8 = 32;
/// Follows from the others and the state: the flow is proven, and only time or TCP's control bits change it.
const USED: u8 = 0x80;

/// How old the time of a flow's last packet may become before it is written again: an eighth of a second.
pub(super) const COARSE: u32 = 1250;
/// What of TCP's control bits may change a flow that is in use.
const CHANGES: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);

/// The word that changes with what a flow does, but not with every packet. That of no flow is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) seen: Tick,
    pub(super) state: FlowState,
    pub(super) flags: u8,
    pub(super) version: u16,
}

impl Status {
    #[inline(always)]
    pub(super) fn has_flags(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    #[inline(always)]
    fn of_word(word: u64) -> Status {
        Status {
            seen: Tick(word as u32),
            state: FlowState::ALL[(word >> 32) as usize % FlowState::ALL.len()],
            flags: (word >> 40) as u8 & !USED,
            version: (word >> 48) as u16,
        }
    }

    #[inline(always)]
    fn to_word(self) -> u64 {
        let is_used = self.flags & (LIVE | YOUNG | IMPORTED) == LIVE && self.state.is_in_use();
        let flags = self.flags | if is_used { USED } else { 0 };
        u64::from(self.seen.0)
            | (self.state as u64) << 32
            | u64::from(flags) << 40
            | u64::from(self.version) << 48
    }
}

/// What packets change of a flow beside its counts and the time of the last one: two are equal unless state,
/// flags or version have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowSnapshot(u32);

impl FlowSnapshot {
    /// The state of its connection.
    pub fn state(self) -> FlowState {
        self.status().state
    }

    /// Whether it was not proven yet.
    pub fn is_young(self) -> bool {
        self.status().has_flags(YOUNG)
    }

    /// Whether it was imported, and no packet of it was seen here.
    pub fn is_imported(self) -> bool {
        self.status().has_flags(IMPORTED)
    }

    fn status(self) -> Status {
        Status::of_word(u64::from(self.0) << 32)
    }
}

#[inline(always)]
pub(super) fn load_key<K: FlowKey>(line: &Line) -> K {
    K::from_words(|n| line[n].load(Relaxed))
}

/// Compares without a branch a word.
#[inline(always)]
pub(super) fn has_key<K: FlowKey>(line: &Line, key: &K) -> bool {
    (0..K::WORDS).fold(0, |unlike, n| unlike | line[n].load(Relaxed) ^ key.nth_word(n)) == 0
}

pub(super) fn set_key<K: FlowKey>(line: &Line, key: &K) {
    (0..K::WORDS).for_each(|n| line[n].store(key.nth_word(n), Relaxed));
}

#[inline(always)]
pub(super) fn load_answer(line: &Line) -> Answer {
    let word = line[ANSWER].load(Relaxed);
    Answer { action: word as u32, generation: (word >> 32) as u32 }
}

pub(super) fn set_answer(line: &Line, answer: Answer) {
    line[ANSWER].store(u64::from(answer.action) | u64::from(answer.generation) << 32, Relaxed);
}

#[inline(always)]
pub(super) fn load_status(line: &Line) -> Status {
    Status::of_word(line[STATUS].load(Relaxed))
}

/// The status without the time of the last packet.
#[inline(always)]
pub(super) fn load_snapshot(line: &Line) -> FlowSnapshot {
    FlowSnapshot((line[STATUS].load(Relaxed) >> 32) as u32)
}

/// Whether a packet changes nothing of a flow but its counts, in few steps; of some that don't it says no.
#[inline(always)]
pub(super) fn is_unchanged(line: &Line, sight: &PacketInfo, now: Tick) -> bool {
    let word = line[STATUS].load(Relaxed);
    (word & u64::from(USED) << 40 != 0)
        && !sight.flags.intersects(CHANGES)
        && now.0.wrapping_sub(word as u32) < COARSE
}

#[inline(always)]
pub(super) fn set_status(line: &Line, status: Status) {
    line[STATUS].store(status.to_word(), Relaxed);
}

pub(super) fn clear(line: &Line) {
    line[STATUS].store(0, Relaxed);
}

/// Loads the packet and byte counts.
#[inline(always)]
pub(super) fn load_counts<K: FlowKey>(line: &Line) -> [u64; 2] {
    if K::WORDS == 2 {
        return [line[PACKETS].load(Relaxed), line[BYTES].load(Relaxed)];
    }
    let word = line[COUNTS].load(Relaxed);
    [word >> BYTES_BITS, word & MOST_BYTES]
}

/// Sets packets and bytes, each to the most that there is room for if that is less.
#[inline(always)]
pub(super) fn set_counts<K: FlowKey>(line: &Line, [packets, bytes]: [u64; 2]) {
    if K::WORDS == 2 {
        line[PACKETS].store(packets, Relaxed);
        line[BYTES].store(bytes, Relaxed);
    } else {
        let word = packets.min(MOST_PACKETS) << BYTES_BITS | bytes.min(MOST_BYTES);
        line[COUNTS].store(word, Relaxed);
    }
}

/// Counts a packet, and says how many there were with it.
#[inline(always)]
pub(super) fn count_packet<K: FlowKey>(line: &Line, sight: &PacketInfo) -> u64 {
    let [packets, bytes] = load_counts::<K>(line);
    // In 64 bits they don't come to an end; in fewer they stay at their most.
    let packets = packets.wrapping_add(1);
    set_counts::<K>(line, [packets, bytes.wrapping_add(sight.bytes.into())]);
    packets
}

#[cfg(test)]
mod tests {
    use super::super::key::{Flow4, Flow6};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_field_is_read_as_it_was_set(
            words: [u64; 5],
            action: u32,
            generation: u32,
            seen: u32,
            flags: u8,
            version: u16,
        ) {
            let line = Line::default();
            let (four, six) = (Flow4::from_words(|n| words[n]), Flow6::from_words(|n| words[n]));
            let state = FlowState::ALL[usize::from(flags % 8)];
            let status = Status { seen: Tick(seen), state, flags: flags & !USED, version };
            set_key(&line, &six);
            set_answer(&line, Answer { action, generation });
            set_status(&line, status);
            set_counts::<Flow6>(&line, [words[0] >> 40, words[1] >> 30]);
            prop_assert_eq!((load_key::<Flow6>(&line), self::load_status(&line)), (six, status));
            prop_assert_eq!(load_answer(&line), Answer { action, generation });
            prop_assert_eq!(load_counts::<Flow6>(&line), [words[0] >> 40, words[1] >> 30]);
            set_key(&line, &four);
            set_counts::<Flow4>(&line, [words[2], words[3]]);
            prop_assert_eq!(load_key::<Flow4>(&line), four);
            prop_assert_eq!(load_counts::<Flow4>(&line), [words[2], words[3]]);
            prop_assert!(
                has_key(&line, &four) && !has_key(&line, &Flow4::from_words(|n| words[n] ^ n as u64))
            );
        }
    }

    #[test]
    fn counters_stay_at_their_most() {
        let line = Line::default();
        set_counts::<Flow6>(&line, [u64::MAX, 1]);
        assert_eq!(load_counts::<Flow6>(&line), [MOST_PACKETS, 1]);
        set_counts::<Flow6>(&line, [1, u64::MAX]);
        assert_eq!(load_counts::<Flow6>(&line), [1, MOST_BYTES]);
    }
}
