//! Runs: packets of one flow in succession, as a connection sends them. Where one has passed, those behind it
//! need neither hash nor search, and are added to the counters together.
use super::quick::{FastPathHeader, StateUpdate, TCP, UDP};
use super::through::ParsedKey;
use super::{Filter, PacketView};
use crate::dissect::HookContext;
use crate::facts::Direction;
use crate::states::{MOST_AT_ONCE, NarrowKey, StateId};
use crate::track::Peer;

/// Whether two packets that begin with headers of IPv4 seem to be of one flow, in the same direction.
#[inline]
pub fn are_of_one_flow(one: &[u8], other: &[u8]) -> bool {
    let flow =
        |bytes: &[u8]| bytes.first_chunk().map(|header: &[u8; 28]| (header[9], NarrowKey::of_header(header)));
    flow(one).is_some_and(|flow_of_one| Some(flow_of_one) == flow(other))
}

/// What packets of a run add to counters.
struct RunCounts {
    /// Of their state, and of that where they leave.
    records: [u32; 2],
    packets: u16,
    bytes: u32,
}

impl Filter {
    /// Looks at a packet, and finds the state that it may have, without waiting for what others
    /// of a batch need.
    #[inline]
    pub fn parse_keys(&self, bytes: &[u8], direction: Direction) -> ParsedKey {
        self.parse_keys_and_view(bytes, direction, |_| ())
    }

    /// The same; what had to be parsed of an exception is handed to `keep`.
    #[inline]
    pub fn parse_keys_and_view(
        &self,
        bytes: &[u8],
        direction: Direction,
        keep: impl FnOnce(PacketView),
    ) -> ParsedKey {
        let mut key = self.parse_key_and_view(bytes, direction, keep);
        self.prefetch_likely(&mut key);
        key
    }

    /// Lets packets [pass through](Filter::pass_through) behind one that just did, as long as they are of its
    /// flow and nothing else has to be checked; returns how many.
    #[inline(never)]
    pub fn pass_run<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p [u8]>,
        key: &ParsedKey,
        (from, to): (HookContext, HookContext),
    ) -> usize {
        let Some(RunCounts { records: [enters, leaves], packets, bytes }) =
            self.update_run(packets, &key.header, key.place)
        else {
            return 0;
        };
        self.tally_more(enters, from, packets, bytes);
        self.tally_more(leaves, to, packets, bytes);
        packets.into()
    }

    /// The same where they come in, behind one that [passed](Filter::pass_fast) there by a state.
    #[inline(never)]
    pub fn enter_run<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p [u8]>,
        key: &ParsedKey,
        (state, at): (StateId, HookContext),
    ) -> usize {
        let run = || self.update_run(packets, &key.header, state.number);
        let Some(counted) = (at.direction == Direction::In).then(run).flatten() else { return 0 };
        self.tally_more(counted.records[0], at, counted.packets, counted.bytes);
        counted.packets.into()
    }

    /// Updates a merged state for packets of a flow, up to the first that belongs to another flow or needs
    /// the full path, and for at most as many as may be counted at once.
    #[inline(always)]
    fn update_run<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p [u8]>,
        quick: &FastPathHeader,
        number: u32,
    ) -> Option<RunCounts> {
        let now = self.now_ms as u32;
        let first = self.states.hot.first_mut(number)?;
        let is_its = first.is_merged_for(number, quick.narrow, quick.protocol)
            && now.wrapping_sub(first.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = first.merged_sender(number);
        let ends = [first.peers[from], first.peers[1 - from]];
        let (count, bytes, [source, destination]) = match quick.protocol {
            TCP => accept_segments(packets, quick, ends),
            _ => accept_datagrams(packets, quick, ends),
        };
        (first.peers[from], first.peers[1 - from]) = (source, destination);
        first.seen = now;
        let records = [number, number ^ 1].map(|number| first.merged_record(number));
        if !first.count_inline(from, count, bytes) {
            self.states.count_merged(number, from, count, bytes);
        }
        Some(RunCounts { records, packets: count, bytes })
    }
}

/// Segments of a flow behind one that has passed: how many pass as well, their bytes, and what is known
/// of both ends then.
#[inline(always)]
fn accept_segments<'p>(
    packets: impl Iterator<Item = &'p [u8]>,
    quick: &FastPathHeader,
    [mut source, mut destination]: [Peer; 2],
) -> (u16, u32, [Peer; 2]) {
    let (count, bytes) = count_accepted(packets, |packet| {
        let next = quick.next(packet, TCP)?;
        let told = StateUpdate::from_packet(&|| packet, &next)?;
        told.update_between(&source, &destination)?.apply_to_peers(&mut source, &mut destination);
        Some(next.length)
    });
    (count, bytes, [source, destination])
}

/// The same for datagrams, which change no more than the first of them.
#[inline(always)]
fn accept_datagrams<'p>(
    packets: impl Iterator<Item = &'p [u8]>,
    quick: &FastPathHeader,
    ends: [Peer; 2],
) -> (u16, u32, [Peer; 2]) {
    let [source, destination] = &ends;
    let (count, bytes) = match StateUpdate::Datagram.update_between(source, destination) {
        Some(_) => count_accepted(packets, |packet| Some(quick.next(packet, UDP)?.length)),
        None => (0, 0),
    };
    (count, bytes, ends)
}

/// Counts packets and their bytes up to the first whose length is unknown.
#[inline(always)]
fn count_accepted<'p>(
    packets: impl Iterator<Item = &'p [u8]>,
    length: impl FnMut(&'p [u8]) -> Option<u16>,
) -> (u16, u32) {
    let lengths = packets.take(MOST_AT_ONCE.into()).map_while(length);
    lengths.fold((0, 0), |(count, bytes), length| (count + 1, bytes + u32::from(length)))
}
