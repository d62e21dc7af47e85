//! The fast path: what nearly all packets need, in few steps.
//!
//! It takes TCP or UDP packets over IPv4 whose state is where it was expected and only has its numbers
//! changed. All others are exceptions and take the full path, which would give the same verdict.
use super::{Filter, PacketLookup, Passed};
use crate::dissect::{HookContext, read_u16, read_u32};
use crate::facts::Direction;
use crate::options::Timeout;
use crate::states::{Hot, Key, NONE, NarrowKey, StateId, flag};
use crate::track::{Moved, Peer, Segment, Stage, track_fast};
use artery_wire::{IpProtocol, TcpFlags};

pub(super) const TCP: u8 = IpProtocol::TCP.0;
pub(super) const UDP: u8 = IpProtocol::UDP.0;
/// Segments with one of these may change more than numbers.
const CHANGES: u8 = TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0;

/// What is parsed of a fast-path packet first.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastPathHeader {
    /// Its key, as entries keep it.
    pub(super) narrow: NarrowKey,
    /// Its length by its own account; 0 if it is not plain.
    pub(super) length: u16,
    pub(super) protocol: u8,
}

impl FastPathHeader {
    /// Of a packet that is not plain.
    pub(super) const NONE: FastPathHeader =
        FastPathHeader { narrow: NarrowKey::EMPTY, length: 0, protocol: 0 };

    /// Looks at a packet.
    #[inline(always)]
    pub(super) fn parse_or_none(bytes: &[u8], direction: Direction) -> FastPathHeader {
        FastPathHeader::parse_plain(bytes, direction).unwrap_or(FastPathHeader::NONE)
    }

    /// Looks at a packet; None if it is not plain.
    #[inline(always)]
    pub(super) fn parse_plain(bytes: &[u8], direction: Direction) -> Option<FastPathHeader> {
        let header = bytes.first_chunk::<28>()?;
        let (length, protocol) = (read_u16(header, 2), header[9]);
        let end = usize::from(length);
        let is_plain = is_whole(header)
            && end <= bytes.len()
            && match protocol {
                UDP => (28..=end).contains(&(20 + usize::from(read_u16(header, 24)))),
                TCP => {
                    bytes.get(32).is_some_and(|byte| (40..=end).contains(&(20 + usize::from(byte >> 4) * 4)))
                }
                _ => false,
            };
        let narrow = NarrowKey::of_header(header);
        let narrow = if direction == Direction::In { narrow } else { narrow.swap_ends() };
        is_plain.then_some(FastPathHeader { narrow, length, protocol })
    }

    /// Parses a packet that comes in behind this one; None if it is an exception or of another flow. The
    /// protocol is this one's, which a compiler does not know of it.
    #[inline(always)]
    pub(super) fn next(&self, bytes: &[u8], protocol: u8) -> Option<FastPathHeader> {
        let header = bytes.first_chunk::<28>()?;
        let is_next = header[9] == protocol && NarrowKey::of_header(header) == self.narrow;
        if is_next { FastPathHeader::parse_plain(bytes, Direction::In) } else { None }
    }

    /// The kind of a state that may take the fast path, without the direction.
    #[inline(always)]
    fn state_kind(&self) -> u16 {
        Hot::kind_of(self.protocol, flag::LIVE)
    }
}

/// Whether a header of IPv4 has no options and belongs to no fragment.
#[inline(always)]
pub(super) fn is_whole(header: &[u8; 28]) -> bool {
    const SEEN: u64 = u64::from_ne_bytes([0xff, 0, 0, 0, 0, 0, 0x3f, 0xff]);
    const PLAIN: u64 = u64::from_ne_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);
    let [first, ..] = header.as_chunks().0 else { return false };
    u64::from_ne_bytes(*first) & SEEN == PLAIN
}

/// The flag among the protocol and the flags.
const OUT: u16 = Hot::kind_of(0, flag::OUT);

/// What a fast-path packet changes in its states.
pub(super) enum StateUpdate {
    /// A packet without numbers to track.
    Datagram,
    /// Numbers of TCP, and nothing else.
    Segment(Segment),
}

impl StateUpdate {
    /// Takes it from a fast-path packet; None if the packet may change more than numbers.
    #[inline(always)]
    pub(super) fn from_packet<'p>(
        bytes: &impl Fn() -> &'p [u8],
        quick: &FastPathHeader,
    ) -> Option<StateUpdate> {
        if quick.protocol != TCP {
            return Some(StateUpdate::Datagram);
        }
        let header = bytes().first_chunk::<40>()?;
        let flags = TcpFlags(header[33]);
        let headers = 20 + u32::from(header[32] >> 4) * 4;
        let segment = Segment {
            flags,
            seq: read_u32(header, 24),
            ack: read_u32(header, 28),
            window: read_u16(header, 34),
            payload: u32::from(quick.length).wrapping_sub(headers),
            scale: None,
        };
        (flags.0 & CHANGES == 0).then_some(StateUpdate::Segment(segment))
    }

    /// Whether two states know the same of a connection.
    #[inline(always)]
    fn finds_alike(&self, one: &Hot, other: &Hot) -> bool {
        let ([a, b], [c, d]) = (&one.peers, &other.peers);
        let are_alike = match self {
            StateUpdate::Segment(_) => a.difference(c) | b.difference(d) == 0,
            StateUpdate::Datagram => (a.stage, b.stage) == (c.stage, d.stage),
        };
        are_alike && one.class == other.class
    }

    /// What a state notes of its connection; None if there is more to it.
    #[inline(always)]
    pub(super) fn peer_update(&self, hot: &Hot, from: usize) -> Option<PeerUpdate> {
        let class = match self {
            StateUpdate::Segment(_) => Timeout::TcpEstablished,
            StateUpdate::Datagram => {
                Timeout::of_datagrams(hot.peers.iter().all(|peer| peer.stage == Stage::MULTIPLE))
            }
        };
        if hot.class == class as u8 { self.settled_update(hot, from) } else { None }
    }

    /// The same for a state whose timeout follows from its ends' stages, as in merged states.
    #[inline(always)]
    pub(super) fn settled_update(&self, hot: &Hot, from: usize) -> Option<PeerUpdate> {
        self.update_between(&hot.peers[from], &hot.peers[1 - from])
    }

    /// The same by what is known of both ends.
    #[inline(always)]
    pub(super) fn update_between(&self, source: &Peer, destination: &Peer) -> Option<PeerUpdate> {
        match self {
            StateUpdate::Segment(segment) => track_fast(source, destination, segment).map(PeerUpdate::Moved),
            StateUpdate::Datagram => {
                // The sender has sent before, and the other has not, or has been answered: nothing is news.
                let is_news = source.stage == Stage::NO_TRAFFIC || destination.stage == Stage::SINGLE;
                (!is_news).then_some(PeerUpdate::None)
            }
        }
    }
}

/// What a state records of its connection when a fast-path packet comes.
#[derive(Clone, Copy)]
pub(super) enum PeerUpdate {
    None,
    /// Numbers of TCP. They are written to each state by themselves: to copy all that one knows would wait
    /// for what was just written to it.
    Moved(Moved),
}

impl PeerUpdate {
    #[inline(always)]
    pub(super) fn apply_to_state(self, hot: &mut Hot, from: usize) {
        let [first, second] = &mut hot.peers;
        let (source, destination) = if from == 0 { (first, second) } else { (second, first) };
        self.apply_to_peers(source, destination);
    }

    #[inline(always)]
    pub(super) fn apply_to_peers(self, source: &mut Peer, destination: &mut Peer) {
        if let PeerUpdate::Moved(moved) = self {
            moved.apply_to_peers(source, destination);
        }
    }
}

/// What a state says that has taken a packet into account.
pub(super) struct StateHit {
    /// The state of the same connection at another interface.
    pub(super) link: u32,
    pub(super) record: u32,
}

impl Filter {
    /// Lets a fast-path packet of a state pass; None if it must take the full path, and nothing has changed.
    #[inline(always)]
    pub(super) fn test_fast(&mut self, bytes: &[u8], look: &PacketLookup) -> Option<Passed> {
        let PacketLookup { header: quick, candidate: likely, at, .. } = look;
        let StateHit { link, record } = self.update_fast(&|| bytes, quick, *likely, at.direction)?;
        self.count_packet(record, *at, quick.length);
        if look.hint != NONE && link != look.hint {
            self.states.link_states(look.hint, *likely);
        }
        let state = Some(StateId { number: *likely });
        Some(Passed { state, tag: at.tag, ..Passed::default() })
    }

    /// The same by the state that it has, where another was more likely.
    #[cold]
    #[inline(never)]
    pub(super) fn test_elsewhere(&mut self, bytes: &[u8], look: &PacketLookup) -> Option<Passed> {
        if look.bucket == NONE {
            return None;
        }
        let likely = self.find_fast(&look.header, look.hash, look.candidate, look.at)?;
        self.test_fast(bytes, &PacketLookup { candidate: likely, ..*look })
    }

    /// The state of a fast-path packet, if it is not the one that was prefetched.
    pub(super) fn find_fast(
        &self,
        quick: &FastPathHeader,
        hash: u64,
        likely: u32,
        at: HookContext,
    ) -> Option<u32> {
        let key = Key::of_narrow(quick.narrow, IpProtocol(quick.protocol));
        self.states.find_state(&key, hash, at.direction, at.interface).filter(|number| *number != likely)
    }

    /// Updates a state for a fast-path packet; None if the packet must take the full path,
    /// and nothing has changed.
    #[inline(always)]
    pub(super) fn update_fast<'p>(
        &mut self,
        bytes: &impl Fn() -> &'p [u8],
        quick: &FastPathHeader,
        number: u32,
        direction: Direction,
    ) -> Option<StateHit> {
        // Each has a path of its own, on which nothing is left of the other.
        match StateUpdate::from_packet(bytes, quick)? {
            StateUpdate::Datagram => self.update_fast_with(quick, &StateUpdate::Datagram, number, direction),
            StateUpdate::Segment(segment) => {
                self.update_fast_with(quick, &StateUpdate::Segment(segment), number, direction)
            }
        }
    }

    #[inline(always)]
    fn update_fast_with(
        &mut self,
        quick: &FastPathHeader,
        told: &StateUpdate,
        number: u32,
        direction: Direction,
    ) -> Option<StateHit> {
        let now = self.now_ms as u32;
        let hot = self.states.hot.get_mut(number)?;
        let kind = hot.kind_bits();
        let is_its = hot.narrow == quick.narrow
            && kind & !OUT == quick.state_kind()
            && !hot.is_merged
            && now.wrapping_sub(hot.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = usize::from((direction == Direction::Out) != (kind & OUT != 0));
        told.peer_update(hot, from)?.apply_to_state(hot, from);
        hot.seen = now;
        let known = StateHit { link: hot.link, record: hot.record };
        if !hot.count_inline(from, 1, quick.length.into()) {
            self.states.cold[number as usize].count_packets(hot, from, 1, quick.length.into());
        }
        Some(known)
    }

    /// Updates the state that a fast-path packet has where it comes in and the paired one, where it leaves;
    /// returns their records. Two states that have seen the same packets of a connection hold the same, which
    /// is tracked once. None if that is not so, or one of them refuses; nothing has changed then.
    #[inline(always)]
    pub(super) fn update_pair<'p>(
        &mut self,
        bytes: &impl Fn() -> &'p [u8],
        quick: &FastPathHeader,
        number: u32,
    ) -> Option<[u32; 2]> {
        match StateUpdate::from_packet(bytes, quick)? {
            StateUpdate::Datagram => self.update_pair_with(quick, &StateUpdate::Datagram, number),
            StateUpdate::Segment(segment) => {
                self.update_pair_with(quick, &StateUpdate::Segment(segment), number)
            }
        }
    }

    #[inline(always)]
    fn update_pair_with(
        &mut self,
        quick: &FastPathHeader,
        told: &StateUpdate,
        number: u32,
    ) -> Option<[u32; 2]> {
        let now = self.now_ms as u32;
        let [enters, leaves] = self.states.hot.pair_from(number)?;
        let kind = enters.kind_bits();
        let are_one = enters.link == number ^ 1
            && enters.narrow == quick.narrow
            && kind & !OUT == quick.state_kind()
            && leaves.narrow == quick.narrow.swap_ends()
            // Otherwise they were made by packets of either end.
            && leaves.kind_bits() == kind ^ OUT
            && now.wrapping_sub(enters.seen) < self.least_lifetime_ms
            && now.wrapping_sub(leaves.seen) < self.least_lifetime_ms
            && told.finds_alike(enters, leaves);
        if !are_one {
            return None;
        }
        let from = usize::from(kind & OUT != 0);
        let (news, length) = (told.peer_update(enters, from)?, quick.length.into());
        for (hot, n) in [(&mut *enters, number), (&mut *leaves, number ^ 1)] {
            news.apply_to_state(hot, from);
            hot.seen = now;
            if !hot.count_inline(from, 1, length) {
                self.states.cold[n as usize].count_packets(hot, from, 1, length);
            }
        }
        let records = [enters.record, leaves.record];
        self.states.merge_pair(number);
        Some(records)
    }
}
