//! Fragments, put together before rules see them.
//!
//! Where fragments of IPv4 overlap, what came first stays: the later fragment is cut, or the part of an
//! earlier one that lies behind its beginning. Fragments of IPv6 that overlap are dropped with all of
//! their packet (RFC 5722).
use crate::dissect::{Dissected, FilterDropReason, read_u16, read_u32};
use crate::facts::Family;
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6, naming_place};
use std::collections::{HashMap, VecDeque};

/// Most fragments of a packet.
const MOST_OF_PACKET: usize = 256;
const LONGEST: usize = 65_535;
/// Places in the order that no packet need have before they are looked through.
const SPARE_PLACES: usize = 64;

/// What the fragments of a packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FragmentKey {
    addresses: [u128; 2],
    id: u32,
    protocol: IpProtocol,
    family: Family,
}

/// A piece of a packet.
#[derive(Clone, Debug)]
struct Piece {
    start: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }
}

/// What there is of a packet.
#[derive(Clone, Debug, Default)]
struct Pieces {
    /// The headers before the fragmented part, without that of fragments, once the first fragment came.
    header: Vec<u8>,
    pieces: Vec<Piece>,
    end: Option<usize>,
    /// The longest fragment that came.
    longest: u16,
    /// Whether nothing of it may pass any more.
    is_spoilt: bool,
    began_ms: u64,
    /// Which packet it is of all that began.
    serial: u64,
}

/// What became of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReassemblyOutcome {
    /// It waits for others.
    Waiting,
    /// The packet is whole.
    Whole(ReassembledPacket),
    /// It is dropped, for this reason.
    Dropped(FilterDropReason),
}

/// A packet that was put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassembledPacket {
    /// The packet, from its IP header on.
    pub bytes: Vec<u8>,
    /// The longest of its fragments: those that it is split into again may be as long.
    pub longest: u16,
    /// Bytes of headers in front of what was split: each fragment has them.
    pub headers: u16,
    /// What its fragments had in common.
    pub id: u32,
}

/// Fragments that wait for others of their packets.
#[derive(Debug, Default)]
pub struct Fragments {
    packets: HashMap<FragmentKey, Pieces>,
    /// In the order in which they began, with their serial numbers; some may be whole by now.
    order: VecDeque<(FragmentKey, u64)>,
    count: u32,
    begun: u64,
    /// How often packets were looked for, came and went.
    pub counters: [u64; 3],
}

/// A fragment, taken apart.
struct Fragment<'a> {
    whole: FragmentKey,
    start: usize,
    more: bool,
    header: Vec<u8>,
    bytes: &'a [u8],
}

impl Fragments {
    /// How many fragments wait.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether no fragment waits for others.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a fragment; of the oldest packets so many are forgotten that no more than `limit`
    /// fragments and packets wait.
    pub fn add_fragment(
        &mut self,
        bytes: &[u8],
        seen: &Dissected,
        now_ms: u64,
        limit: u32,
    ) -> ReassemblyOutcome {
        let Some(fragment) = Fragment::parse(bytes, seen) else {
            return ReassemblyOutcome::Dropped(FilterDropReason::Fragment);
        };
        if fragment.is_malformed() {
            return ReassemblyOutcome::Dropped(FilterDropReason::Fragment);
        }
        // A spoilt packet has no fragments, and waits to spoil those that come yet.
        while self.count.max(self.packets.len() as u32) >= limit.max(1) {
            self.forget_oldest();
        }
        let whole = fragment.whole;
        self.counters[0] += 1;
        if !self.packets.contains_key(&whole) {
            self.begin_packet(whole, now_ms);
        }
        let Some(pieces) = self.packets.get_mut(&whole) else { return ReassemblyOutcome::Waiting };
        let before = pieces.pieces.len();
        let result = pieces.add_piece(fragment, seen.end as u16);
        self.count = self.count + pieces.pieces.len() as u32 - before as u32;
        if result.is_err() && pieces.is_spoilt {
            self.count -= pieces.pieces.len() as u32;
            pieces.pieces.clear();
        }
        match result {
            Ok(true) => self.finish_packet(&whole),
            Ok(false) => ReassemblyOutcome::Waiting,
            Err(reason) => ReassemblyOutcome::Dropped(reason),
        }
    }

    fn begin_packet(&mut self, whole: FragmentKey, now_ms: u64) {
        self.counters[1] += 1;
        self.begun += 1;
        let pieces = Pieces { began_ms: now_ms, serial: self.begun, ..Pieces::default() };
        self.packets.insert(whole, pieces);
        self.order.push_back((whole, self.begun));
        // Packets that are whole leave their places behind, which are as many as those that wait at most.
        if self.order.len() > 2 * self.packets.len() + SPARE_PLACES {
            let packets = &self.packets;
            self.order.retain(|(whole, serial)| is_waiting(packets, whole, *serial));
        }
    }

    fn finish_packet(&mut self, whole: &FragmentKey) -> ReassemblyOutcome {
        let Some(pieces) = self.remove(whole) else { return ReassemblyOutcome::Waiting };
        match pieces.assemble_packet(whole.family) {
            Some(bytes) => ReassemblyOutcome::Whole(ReassembledPacket {
                bytes,
                longest: pieces.longest,
                headers: pieces.header.len() as u16,
                id: whole.id,
            }),
            None => ReassemblyOutcome::Dropped(FilterDropReason::Fragment),
        }
    }

    /// Forgets packets that began so long ago.
    pub fn expire_packets(&mut self, now_ms: u64, keep_ms: u64) {
        let is_young = |pieces: &Pieces, serial| {
            pieces.serial == serial && now_ms.saturating_sub(pieces.began_ms) < keep_ms
        };
        while let Some((whole, serial)) = self.order.front()
            && !self.packets.get(whole).is_some_and(|pieces| is_young(pieces, *serial))
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        match self.order.pop_front() {
            Some((whole, serial)) if is_waiting(&self.packets, &whole, serial) => drop(self.remove(&whole)),
            Some(_) => (),
            None => (self.packets, self.count) = (HashMap::new(), 0),
        }
    }

    fn remove(&mut self, whole: &FragmentKey) -> Option<Pieces> {
        let pieces = self.packets.remove(whole)?;
        self.count -= pieces.pieces.len() as u32;
        self.counters[2] += 1;
        Some(pieces)
    }
}

/// Whether a packet waits since it had this number.
fn is_waiting(packets: &HashMap<FragmentKey, Pieces>, whole: &FragmentKey, serial: u64) -> bool {
    packets.get(whole).is_some_and(|pieces| pieces.serial == serial)
}

impl<'a> Fragment<'a> {
    fn parse(bytes: &'a [u8], seen: &Dissected) -> Option<Fragment<'a>> {
        match seen.family {
            Family::Inet => Fragment::of_inet(bytes, seen),
            Family::Inet6 => Fragment::of_inet6(bytes, seen),
        }
    }

    fn of_inet(bytes: &'a [u8], seen: &Dissected) -> Option<Fragment<'a>> {
        let ip = Ipv4::new(bytes).ok()?;
        let whole = FragmentKey {
            addresses: seen.addresses,
            id: ip.id().into(),
            protocol: seen.protocol,
            family: Family::Inet,
        };
        let (upper, end) = (seen.upper as usize, seen.end as usize);
        Some(Fragment {
            whole,
            start: ip.fragment_offset(),
            more: ip.more_fragments(),
            header: bytes[..upper].to_vec(),
            bytes: &bytes[upper..end],
        })
    }

    fn of_inet6(bytes: &'a [u8], seen: &Dissected) -> Option<Fragment<'a>> {
        const FRAGMENT_HEADER: usize = 8;
        let found = Ip6Headers::parse_packet(bytes).ok()?.fragment?;
        let (whole_protocol, at) = (IpProtocol(0), found.at);
        let next = *bytes.get(at)?;
        let mut header = bytes.get(..at)?.to_vec();
        let named_at = naming_place(&header)?;
        header[named_at] = next;
        let whole = FragmentKey {
            addresses: seen.addresses,
            id: read_u32(bytes, at + 4),
            protocol: whole_protocol,
            family: Family::Inet6,
        };
        let bytes = bytes.get(at + FRAGMENT_HEADER..seen.end as usize)?;
        Some(Fragment { whole, start: found.offset, more: found.more, header, bytes })
    }

    /// Whether it can be no part of a packet.
    fn is_malformed(&self) -> bool {
        let is_uneven = self.more && !self.bytes.len().is_multiple_of(8);
        self.bytes.is_empty() || is_uneven || self.start + self.bytes.len() > LONGEST
    }
}

impl Pieces {
    /// Adds a fragment; says whether all are there.
    fn add_piece(&mut self, fragment: Fragment<'_>, length: u16) -> Result<bool, FilterDropReason> {
        let end = fragment.start + fragment.bytes.len();
        let last = self.pieces.last().map_or(0, Piece::end);
        let is_beyond = self.end.is_some_and(|known| end > known || !fragment.more && end != known);
        let ends_early = !fragment.more && end < last;
        if self.is_spoilt || is_beyond || ends_early || self.pieces.len() >= MOST_OF_PACKET {
            self.is_spoilt |= fragment.whole.family == Family::Inet6;
            return Err(FilterDropReason::Fragment);
        }
        let (is_last, is_first) = (!fragment.more, fragment.start == 0);
        let header = fragment.header;
        let piece = Piece { start: fragment.start, bytes: fragment.bytes.to_vec() };
        match fragment.whole.family {
            Family::Inet => self.add_cut(piece)?,
            Family::Inet6 => self.add_whole(piece)?,
        }
        if is_last {
            self.end = Some(end);
        }
        if is_first && self.header.is_empty() {
            self.header = header;
        }
        self.longest = self.longest.max(length);
        Ok(self.is_whole())
    }

    /// Adds the part of a piece that is not there yet.
    fn add_cut(&mut self, mut piece: Piece) -> Result<(), FilterDropReason> {
        let mut at = self.pieces.partition_point(|there| there.start <= piece.start);
        if let Some(before) = at.checked_sub(1).map(|before| &self.pieces[before]) {
            let overlap = before.end().saturating_sub(piece.start);
            if overlap >= piece.bytes.len() {
                return Err(FilterDropReason::Fragment);
            }
            piece.bytes.drain(..overlap);
            piece.start += overlap;
        }
        while let Some(after) = self.pieces.get_mut(at).filter(|after| after.start < piece.end()) {
            let overlap = piece.end() - after.start;
            if overlap < after.bytes.len() {
                after.bytes.drain(..overlap);
                after.start += overlap;
                break;
            }
            self.pieces.remove(at);
        }
        at = self.pieces.partition_point(|there| there.start < piece.start);
        self.pieces.insert(at, piece);
        Ok(())
    }

    /// Adds a piece that overlaps none; one that is there already is passed over.
    fn add_whole(&mut self, piece: Piece) -> Result<(), FilterDropReason> {
        let overlapped =
            self.pieces.iter().find(|there| there.start < piece.end() && piece.start < there.end());
        match overlapped {
            Some(there) if there.start == piece.start && there.bytes == piece.bytes => Ok(()),
            Some(_) => {
                self.is_spoilt = true;
                Err(FilterDropReason::Fragment)
            }
            None => {
                let at = self.pieces.partition_point(|there| there.start < piece.start);
                self.pieces.insert(at, piece);
                Ok(())
            }
        }
    }

    fn is_whole(&self) -> bool {
        let mut reached = 0;
        let has_no_gap = self.pieces.iter().all(|piece| {
            let meets = piece.start == reached;
            reached = piece.end();
            meets
        });
        has_no_gap && self.end == Some(reached) && !self.header.is_empty()
    }

    fn assemble_packet(&self, family: Family) -> Option<Vec<u8>> {
        let mut bytes = self.header.clone();
        self.pieces.iter().for_each(|piece| bytes.extend(&piece.bytes));
        match family {
            Family::Inet => {
                let total = u16::try_from(bytes.len()).ok()?;
                let mut ip = Ipv4::new(&mut bytes).ok()?;
                ip.set_total_length(total);
                ip.set_fragment_field(0);
                ip.fill_checksum();
            }
            Family::Inet6 => {
                let length = u16::try_from(bytes.len() - Ipv6::<&[u8]>::LEN).ok()?;
                Ipv6::new(&mut bytes).ok()?.set_payload_length(length);
            }
        }
        Some(bytes)
    }
}

/// Whether a packet of IPv4 says that it must not be a fragment.
pub(crate) fn must_not_be_one(bytes: &[u8], seen: &Dissected) -> bool {
    seen.family == Family::Inet && read_u16(bytes, 6) & 0x4000 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dissect::dissect_packet;
    use artery_wire::Ipv4Fragments;
    use artery_wire::build::{ip4, ip6};
    use proptest::prelude::*;

    fn add(fragments: &mut Fragments, bytes: &[u8]) -> ReassemblyOutcome {
        fragments.add_fragment(bytes, &dissect_packet(bytes).unwrap(), 0, 1000)
    }

    /// A fragment with `count` units of a byte.
    fn four(at: usize, byte: u8, count: usize, more: bool) -> Vec<u8> {
        ip4().fragment(at * 8, more).raw(253, vec![byte; count * 8]).bytes()
    }

    fn six(at: usize, byte: u8, count: usize, more: bool) -> Vec<u8> {
        ip6().fragment(at * 8, more, 77).raw(253, vec![byte; count * 8]).bytes()
    }

    /// The bytes of units that make up the packet.
    #[track_caller]
    fn expect(parts: &[Vec<u8>], units: Option<&[u8]>) {
        let mut fragments = Fragments::default();
        let results: Vec<_> = parts.iter().map(|part| add(&mut fragments, part)).collect();
        let whole = results.iter().find_map(|result| match result {
            ReassemblyOutcome::Whole(joined) => Some(joined.bytes.clone()),
            _ => None,
        });
        let payload: Option<Vec<u8>> = units.map(|units| units.iter().flat_map(|unit| [*unit; 8]).collect());
        let expected = payload.map(|payload| match dissect_packet(&parts[0]).unwrap().family {
            Family::Inet => ip4().raw(253, payload).bytes(),
            Family::Inet6 => ip6().raw(253, payload).bytes(),
        });
        assert_eq!(whole, expected);
    }

    #[test]
    fn of_overlapping_fragments_of_ipv4_the_earlier_part_stays() {
        // Its beginning lies in an earlier one: cut, or dropped as a whole.
        expect(&[four(0, 1, 2, true), four(1, 2, 3, true), four(4, 3, 1, false)], Some(&[1, 1, 2, 2, 3]));
        expect(&[four(0, 1, 3, true), four(1, 2, 1, true), four(3, 3, 1, false)], Some(&[1, 1, 1, 3]));
        // Its end lies in one that came before it: that is cut, or dropped as a whole.
        expect(&[four(2, 2, 2, false), four(0, 1, 3, true)], Some(&[1, 1, 1, 2]));
        expect(&[four(1, 2, 1, true), four(0, 1, 3, true), four(3, 3, 1, false)], Some(&[1, 1, 1, 3]));
    }

    #[test]
    fn overlapping_fragments_of_ipv6_spoil_the_packet() {
        expect(&[six(0, 1, 2, true), six(2, 2, 1, false)], Some(&[1, 1, 2]));
        expect(&[six(0, 1, 2, true), six(0, 1, 2, true), six(2, 2, 1, false)], Some(&[1, 1, 2]));
        expect(&[six(0, 1, 2, true), six(1, 2, 2, true), six(2, 2, 1, false), six(0, 1, 2, true)], None);
    }

    #[test]
    fn fragments_that_contradict_the_end_are_dropped() {
        expect(&[four(1, 2, 1, false), four(2, 2, 1, true), four(0, 1, 1, true)], Some(&[1, 2]));
        expect(&[four(0, 1, 3, true), four(1, 2, 1, false)], None);
        let uneven = ip4().fragment(0, true).raw(253, [0; 9]).bytes();
        let found = add(&mut Fragments::default(), &uneven);
        assert_eq!(found, ReassemblyOutcome::Dropped(FilterDropReason::Fragment));
        let long = ip4().fragment(65_528, false).raw(253, [0; 8]).bytes();
        let found = add(&mut Fragments::default(), &long);
        assert_eq!(found, ReassemblyOutcome::Dropped(FilterDropReason::Fragment));
    }

    #[test]
    fn extension_headers_before_that_of_fragments_stay() {
        let part =
            |at, more| ip6().extension(60, [1, 4, 0, 0, 0, 0]).fragment(at, more, 5).raw(253, [9; 8]).bytes();
        let mut fragments = Fragments::default();
        assert_eq!(add(&mut fragments, &part(8, false)), ReassemblyOutcome::Waiting);
        let expected = ip6().extension(60, [1, 4, 0, 0, 0, 0]).raw(253, [9; 16]).bytes();
        let outcome = add(&mut fragments, &part(0, true));
        assert!(matches!(outcome, ReassemblyOutcome::Whole(joined) if joined.bytes == expected));
        assert!(fragments.is_empty());
    }

    #[test]
    fn fragments_that_wait_are_bounded_in_number_and_in_time() {
        let mut fragments = Fragments::default();
        for id in 0..50 {
            let bytes = ip4().id(id).fragment(0, true).raw(253, [0; 8]).bytes();
            fragments.add_fragment(&bytes, &dissect_packet(&bytes).unwrap(), u64::from(id), 10);
            assert!(fragments.len() <= 10);
        }
        fragments.expire_packets(49 + 60_000, 60_000);
        assert!(fragments.is_empty());
        assert_eq!(fragments.counters[1], fragments.counters[2]);
    }

    #[test]
    fn packets_that_are_whole_or_spoilt_take_no_room() {
        let mut fragments = Fragments::default();
        let mut add = |bytes: Vec<u8>, limit| {
            let _ = fragments.add_fragment(&bytes, &dissect_packet(&bytes).unwrap(), 0, limit);
            (fragments.packets.len(), fragments.order.len())
        };
        for id in 0..1000 {
            let part = |at, more| ip4().id(id % 10).fragment(at, more).raw(253, [0; 8]).bytes();
            add(part(0, true), 1000);
            let (waiting, places) = add(part(8, false), 1000);
            assert!(waiting == 0 && places <= 70, "{places} places for nothing");
        }
        for id in 0..1000 {
            // The second overlaps the first.
            add(ip6().fragment(0, true, id).raw(253, [0; 16]).bytes(), 10);
            let (waiting, places) = add(ip6().fragment(8, true, id).raw(253, [0; 16]).bytes(), 10);
            assert!(waiting <= 10 && places <= 90, "{waiting} packets in {places} places");
        }
        fragments.expire_packets(60_000, 60_000);
        assert_eq!((fragments.packets.len(), fragments.order.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_make_the_packet(
            payload in prop::collection::vec(any::<u8>(), 0..3000),
            mtu in 68_usize..900,
            order in prop::collection::vec(any::<u16>(), 90),
        ) {
            let packet = ip4().id(7).options([131, 3, 4]).raw(253, &payload).bytes();
            let mut parts: Vec<_> =
                Ipv4Fragments::split_packet(&packet, mtu).unwrap().map(|part| part.to_bytes()).collect();
            prop_assume!(parts.len() > 1);
            let mut keys = order.into_iter();
            parts.sort_by_cached_key(|_| keys.next());
            let mut fragments = Fragments::default();
            let (last, before) = parts.split_last().unwrap();
            let seen = |bytes: &[u8]| dissect_packet(bytes).unwrap();
            for part in before {
                prop_assert_eq!(
                    fragments.add_fragment(part, &seen(part), 0, 1000),
                    ReassemblyOutcome::Waiting
                );
            }
            let whole = fragments.add_fragment(last, &seen(last), 0, 1000);
            let is_packet = matches!(whole, ReassemblyOutcome::Whole(joined) if joined.bytes == packet);
            prop_assert!(is_packet);
        }
    }
}
