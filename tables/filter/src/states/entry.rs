//! What a state consists of, by how often it is needed.
use crate::facts::{Direction, Family, Interface, Tag};
use crate::options::Timeout;
use crate::rule::Scrub;
use crate::states::{Key, NONE, NarrowKey};
use crate::track::Peer;
use artery_wire::IpProtocol;
use std::net::IpAddr;

/// Flags of a state.
pub(crate) mod flag {
    /// There is a state here.
    pub(crate) const LIVE: u8 = 1;
    /// It was made by a packet that went out.
    pub(crate) const OUT: u8 = 2;
    /// It holds at its interface only.
    pub(crate) const BOUND: u8 = 4;
    /// Its addresses are those of IPv6.
    pub(crate) const SIX: u8 = 8;
    /// Its two keys differ.
    pub(crate) const TRANSLATED: u8 = 16;
    /// Its sequence numbers are moved.
    pub(crate) const MOVED: u8 = 32;
    /// It wants things of packets that few states want.
    pub(crate) const EXTRA: u8 = 64;
    /// Its windows are not tracked.
    pub(crate) const SLOPPY: u8 = 128;
}

/// The line that each packet needs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// Of the wire's key.
    pub(crate) narrow: NarrowKey,
    /// Addresses of the stack's key where it is another. Otherwise bytes that were counted
    /// lately, of both directions.
    pub(crate) second: [u32; 2],
    /// Its ports, or packets.
    pub(crate) halves: [u16; 2],
    /// The end that sent the first packet, and the other.
    pub(crate) peers: [Peer; 2],
    /// The state of the same connection at another interface; of the first of a merged
    /// pair, the other's record.
    pub(crate) link: u32,
    /// When the last packet came that kept it alive, in milliseconds.
    pub(crate) seen: u32,
    /// Index of the record of its rule.
    pub(crate) record: u32,
    pub(crate) protocol: IpProtocol,
    pub(crate) flags: u8,
    /// The kind of timeout that holds.
    pub(crate) class: u8,
    /// Whether it is [merged](super::joined) with the other of its pair.
    pub(crate) is_merged: bool,
}

const _: () = assert!(size_of::<Hot>() == 64 && size_of::<Cold>() == 64);

impl Hot {
    pub(crate) const FREE: Hot = Hot {
        narrow: NarrowKey::EMPTY,
        second: [0; 2],
        halves: [0; 2],
        peers: [Peer {
            low: 0,
            high: 0,
            max_window: 0,
            stage: crate::track::Stage(0),
            scale: crate::track::Scale::UNKNOWN,
        }; 2],
        link: NONE,
        seen: 0,
        record: NONE,
        protocol: IpProtocol(0),
        flags: 0,
        class: 0,
        is_merged: false,
    };

    /// The narrow part of a key: 0 is the wire's, 1 the stack's.
    #[inline(always)]
    pub(crate) fn narrow_key(&self, side: usize) -> NarrowKey {
        if side == 0 || !self.has_flag(flag::TRANSLATED) {
            return self.narrow;
        }
        let ([a, b], [p, q]) = (self.second.map(u64::from), self.halves.map(u32::from));
        NarrowKey::of_words(a << 32 | b, p << 16 | q)
    }

    /// Sets the narrow part of the stack's key, which differs from the wire's.
    pub(super) fn set_stack_key(&mut self, narrow: NarrowKey) {
        let (addresses, ports) = narrow.to_words();
        self.flags |= flag::TRANSLATED;
        self.second = [(addresses >> 32) as u32, addresses as u32];
        self.halves = [(ports >> 16) as u16, ports as u16];
    }

    /// Its protocol and its flags.
    #[inline(always)]
    pub(crate) fn kind_bits(&self) -> u16 {
        Hot::kind_of(self.protocol.0, self.flags)
    }

    #[inline(always)]
    pub(crate) const fn kind_of(protocol: u8, flags: u8) -> u16 {
        u16::from_le_bytes([protocol, flags])
    }

    #[inline(always)]
    pub(crate) fn has_flag(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline(always)]
    pub(crate) fn direction(&self) -> Direction {
        if self.has_flag(flag::OUT) { Direction::Out } else { Direction::In }
    }

    /// Counts a packet of the end that sent first (0), or of the other; says whether there was room for
    /// it in this line.
    #[inline(always)]
    pub(crate) fn count_packet(&mut self, from: usize, length: u32) -> bool {
        !self.has_flag(flag::TRANSLATED) && self.count_inline(from, 1, length)
    }

    /// The same for packets of a state that does not translate, [so many](MOST_AT_ONCE) at
    /// most, and their bytes.
    #[inline(always)]
    pub(crate) fn count_inline(&mut self, from: usize, packets: u16, bytes: u32) -> bool {
        // The bytes of so many packets fit: none is longer than a header of IPv6 and what it can announce.
        const MOST: u16 = 65_000;
        let has_room = self.halves[from] < MOST;
        if has_room {
            self.halves[from] += packets;
            self.second[from] = self.second[from].wrapping_add(bytes);
        }
        has_room
    }

    pub(crate) fn family(&self) -> Family {
        if self.has_flag(flag::SIX) { Family::Inet6 } else { Family::Inet }
    }

    /// The kind of timeout that holds.
    pub(crate) fn timeout_kind(&self) -> Timeout {
        Timeout::NAMES[usize::from(self.class) % Timeout::NAMES.len()].0
    }

    /// Whether the handshake of TCP is not over.
    #[inline(always)]
    pub(crate) fn is_half_open(&self) -> bool {
        self.class <= Timeout::TcpOpening as u8 && self.protocol == IpProtocol::TCP
    }
}

/// Most packets that are counted at once.
pub(crate) const MOST_AT_ONCE: u16 = 256;

/// The line for the rest; counts are in it of translated states, and what went over elsewhere.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    /// In the direction of the first packet, and in the other.
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
    pub(crate) created_ms: u64,
    /// Identifies the state among all others, here and on other hosts.
    pub(crate) id: u64,
    /// What is added to the sequence numbers of the first end, and of the other.
    pub(crate) moved: [u32; 2],
    /// Where it was made.
    pub(crate) interface: Interface,
    /// Whether it is exported, as by pflow(4).
    pub(crate) is_exported: bool,
}

impl Cold {
    pub(crate) const FREE: Cold = Cold {
        packets: [0; 2],
        bytes: [0; 2],
        created_ms: 0,
        id: 0,
        moved: [0; 2],
        interface: Interface(0),
        is_exported: false,
    };

    /// Counts packets here, where there is room for more, and what was counted lately in the
    /// other line with them.
    #[cold]
    pub(crate) fn count_packets(&mut self, hot: &mut Hot, from: usize, packets: u16, bytes: u32) {
        self.absorb_counts(hot);
        self.packets[from] += u64::from(packets);
        self.bytes[from] += u64::from(bytes);
    }

    /// Takes over what was counted lately in the other line.
    pub(super) fn absorb_counts(&mut self, hot: &mut Hot) {
        (self.packets, self.bytes) = self.counts(hot);
        if !hot.has_flag(flag::TRANSLATED) {
            (hot.second, hot.halves) = ([0; 2], [0; 2]);
        }
    }

    /// Packets and bytes of both directions.
    pub(crate) fn counts(&self, hot: &Hot) -> ([u64; 2], [u64; 2]) {
        let (mut packets, mut bytes) = (self.packets, self.bytes);
        if !hot.has_flag(flag::TRANSLATED) {
            for from in 0..2 {
                bytes[from] += u64::from(hot.second[from]);
                packets[from] += u64::from(hot.halves[from]);
            }
        }
        (packets, bytes)
    }
}

/// What few states have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    /// The source that it counts for, that whose address it keeps, and whether the first has
    /// it as a connection.
    pub(crate) sources: [Option<u32>; 2],
    pub(crate) is_connection: bool,
    /// The address that `least-states` gave it.
    pub(crate) assigned: Option<IpAddr>,
    /// Records of rules that count its packets, too: those of `match` and `anchor`.
    pub(crate) also: Vec<u32>,
    pub(crate) scrub: Scrub,
    pub(crate) tos: Option<u8>,
    pub(crate) priority: Option<(u8, u8)>,
    pub(crate) tag: Tag,
    pub(crate) routing_table: Option<u32>,
    /// Log of each packet.
    pub(crate) log_all: Option<u16>,
    /// Next hops for packets of the first direction, and of the other.
    pub(crate) routes: [Option<IpAddr>; 2],
    /// Whether its rule has a `max-pkt-rate`.
    pub(crate) has_rate: bool,
    /// Whether it is as good as ended: none of its packets passes.
    pub(crate) is_dead: bool,
    /// The segment size of the first SYN, for the filter's own handshake.
    pub(crate) segment_size: Option<u16>,
    /// Whether the filter shook hands for both ends.
    pub(crate) is_proxied: bool,
    /// The greatest time to live that each end had, and its latest timestamp, for `reassemble tcp`.
    pub(crate) ttl: [u8; 2],
    pub(crate) stamps: [Option<(u32, u32)>; 2],
    /// Who made it; 0 is this filter.
    pub(crate) creator: u32,
}

/// Both keys of a state of IPv6, of which an entry has no room for all.
pub(crate) type Wide = Option<Box<[Key; 2]>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_packets_at_once_as_there_may_be_are_counted_across_every_overflow() {
        let (mut hot, mut cold) = (Hot { flags: flag::LIVE, ..Hot::FREE }, Cold::FREE);
        let bytes = u32::from(MOST_AT_ONCE) * (40 + 65_535);
        for _ in 0..2000 {
            if !hot.count_inline(0, MOST_AT_ONCE, bytes) {
                cold.count_packets(&mut hot, 0, MOST_AT_ONCE, bytes);
            }
        }
        let packets = 2000 * u64::from(MOST_AT_ONCE);
        assert_eq!(cold.counts(&hot), ([packets, 0], [packets * (40 + 65_535), 0]));
    }

    #[test]
    fn counts_are_right_across_every_overflow() {
        for flags in [flag::LIVE, flag::LIVE | flag::TRANSLATED] {
            let (mut hot, mut cold) = (Hot { flags, ..Hot::FREE }, Cold::FREE);
            let mut expected = ([0_u64; 2], [0_u64; 2]);
            for n in 0..400_000_u32 {
                let (from, length) = (usize::from(!n.is_multiple_of(3)), n % 65_536);
                if !hot.count_packet(from, length) {
                    cold.count_packets(&mut hot, from, 1, length);
                }
                expected.0[from] += 1;
                expected.1[from] += u64::from(length);
            }
            assert_eq!(cold.counts(&hot), expected);
            assert!(
                flags == flag::LIVE || (hot.second, hot.halves) == ([0; 2], [0; 2]),
                "there is the stack's key"
            );
        }
    }
}
