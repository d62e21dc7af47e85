//! The fast path for a batch of packets, without a [`PacketLookup`](super::PacketLookup) for each: at one
//! interface, or at two at once, as through a switch.
//!
//! The state of a packet is found at the incoming interface; it links to the state at the outgoing one, which
//! needs no second search. Exceptions are left to be tested as elsewhere, and nothing has changed then.
use super::quick::{FastPathHeader, StateHit};
use super::{Filter, PacketView, Passed};
use crate::dissect::HookContext;
use crate::evaluate::Compiled;
use crate::facts::{Direction, Tag};
use crate::states::StateId;

/// By how many packets memory is asked for again before it is looked at: of what is asked for a whole batch
/// at once processors forget a part, since they wait for no more than some dozen lines at a time.
const AHEAD: usize = 12;
/// Fewer states than these are in near caches, so that one prefetch is enough.
const NEAR: u32 = 16_384;

/// What became of a packet that was to go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThroughVerdict {
    /// It has passed at both interfaces.
    Passed,
    /// It has passed where it came in, and is to be tested where it leaves.
    Entered(Passed),
    /// It is to be tested.
    Unknown,
}

/// What is parsed of a packet for the search of its state.
#[derive(Clone, Copy, Debug)]
pub struct ParsedKey {
    hash: u64,
    pub(super) header: FastPathHeader,
    /// The line of the index, and then the state that it may have.
    pub(super) place: u32,
}

impl ParsedKey {
    /// Whether the fast path does not take the packet.
    #[inline(always)]
    pub fn is_exception(&self) -> bool {
        self.header.length == 0
    }

    /// The view of a fast-path packet that comes in.
    pub fn view(&self) -> PacketView {
        PacketView::of_header(self.header)
    }
}

impl Filter {
    /// Looks at a packet that begins with its header of IP.
    #[inline(always)]
    pub fn parse_key(&self, bytes: &[u8], direction: Direction) -> ParsedKey {
        self.parse_key_and_view(bytes, direction, |_| ())
    }

    /// The same; what had to be parsed of an exception is handed to `keep`.
    #[inline(always)]
    pub fn parse_key_and_view(
        &self,
        bytes: &[u8],
        direction: Direction,
        keep: impl FnOnce(PacketView),
    ) -> ParsedKey {
        let (quick, hash) = match FastPathHeader::parse_plain(bytes, direction) {
            Some(quick) => (quick, self.states.hash_narrow(quick.narrow, quick.protocol)),
            None => (FastPathHeader::NONE, self.hash_exception(bytes, direction, keep)),
        };
        ParsedKey { hash, header: quick, place: self.states.prefetch_bucket(hash) }
    }

    /// The hash of a packet that will go another way, for the memory that it needs then.
    #[cold]
    #[inline(never)]
    fn hash_exception(&self, bytes: &[u8], direction: Direction, keep: impl FnOnce(PacketView)) -> u64 {
        let view = PacketView::of_exception(bytes);
        keep(view);
        view.key(direction).map_or(0, |key| self.states.hash(&key))
    }

    /// Asks for the states that packets may have. Returns by how many packets these are to be [asked for
    /// again](Filter::prefetch_again) before they are looked at.
    #[inline(always)]
    pub fn prefetch_states(&self, keys: &mut [ParsedKey]) -> usize {
        if self.states.len() < NEAR {
            keys.iter_mut().for_each(|key| self.prefetch_likely(key));
            return keys.len();
        }
        for n in 0..keys.len() {
            if let Some(soon) = keys.get(n + AHEAD) {
                self.states.prefetch_bucket_again(soon.place);
            }
            self.prefetch_likely(&mut keys[n]);
        }
        AHEAD
    }

    /// Asks again for the state that a packet may have, if there is one.
    #[inline(always)]
    pub fn prefetch_again(&self, key: Option<&ParsedKey>) {
        if let Some(key) = key {
            self.states.prefetch_first(key.place);
        }
    }

    #[inline(always)]
    pub(super) fn prefetch_likely(&self, key: &mut ParsedKey) {
        key.place = self.states.prefetch_candidate_first(key.hash, key.place);
    }

    /// Lets a packet pass, if the fast path can, at an interface where [it is
    /// enabled](Filter::is_fast_path_at); returns its state. The packet is not changed, and gets no tag here.
    #[inline(always)]
    pub fn pass_fast<'p>(
        &mut self,
        bytes: impl Fn() -> &'p [u8],
        key: &ParsedKey,
        at: HookContext,
    ) -> Option<StateId> {
        let ParsedKey { header: quick, place, .. } = key;
        if at.direction == Direction::In
            && let Some([record, _]) = self.update_merged(&bytes, quick, *place)
        {
            self.count_packet(record, at, quick.length);
            return Some(StateId { number: *place });
        }
        self.pass_unmerged(bytes(), key, at)
    }

    /// The same by a state that is not merged, or is not the one that was prefetched.
    #[inline(never)]
    fn pass_unmerged(&mut self, bytes: &[u8], key: &ParsedKey, at: HookContext) -> Option<StateId> {
        let ParsedKey { header: quick, place, .. } = key;
        if quick.length == 0 {
            return None;
        }
        let (number, StateHit { link, record }) =
            match self.update_ingress(bytes, quick, *place, at.direction) {
                Some(known) => (*place, known),
                None => self.enter_elsewhere(bytes, *place, at)?,
            };
        // The paired line was prefetched with this one. A link to any other line is prefetched
        // where the packet leaves.
        if link != number ^ 1 {
            self.states.prefetch(link);
        }
        self.count_packet(record, at, quick.length);
        Some(StateId { number })
    }

    /// Asks for the state of a packet that will leave and had this one where it came in.
    #[inline(always)]
    pub fn prefetch_behind(&self, came: Option<StateId>) {
        if let Some(StateId { number }) = came {
            self.states.prefetch_first(number);
        }
    }

    /// The same for a packet that leaves and had a state where it came in, which mostly links to the state
    /// here. It needs no parsed key.
    #[inline(always)]
    pub fn pass_linked(&mut self, bytes: &[u8], came: StateId, at: HookContext) -> Option<StateId> {
        if let Some((record, length)) = self.leave_merged(bytes, came) {
            self.count_packet(record, at, length);
            return Some(StateId { number: came.number ^ 1 });
        }
        self.pass_linked_unmerged(bytes, came, at)
    }

    /// The same by a state that is not merged.
    #[inline(never)]
    fn pass_linked_unmerged(&mut self, bytes: &[u8], came: StateId, at: HookContext) -> Option<StateId> {
        let quick = FastPathHeader::parse_plain(bytes, Direction::Out)?;
        let linked = self.states.link_of(came.number);
        let (number, StateHit { link, record }) =
            match self.update_fast(&|| bytes, &quick, linked, Direction::Out) {
                Some(known) => (linked, known),
                None => self.enter_elsewhere(bytes, linked, at)?,
            };
        self.count_packet(record, at, quick.length);
        match link == came.number {
            true => self.states.merge_if_even(number),
            false => self.states.link_states(came.number, number),
        }
        Some(StateId { number })
    }

    /// Lets a packet pass through, if the fast path can: from one interface to another, where [it is
    /// enabled](Filter::is_fast_path_at). The packet is not changed.
    #[inline(always)]
    pub fn pass_through<'p>(
        &mut self,
        bytes: impl Fn() -> &'p [u8],
        key: &ParsedKey,
        (from, to): (HookContext, HookContext),
    ) -> ThroughVerdict {
        let ParsedKey { header: quick, place, .. } = key;
        match self.update_merged(&bytes, quick, *place) {
            Some(records) => self.tally_both(records, (from, to), quick.length),
            None => self.pass_each(bytes(), key, (from, to)),
        }
    }

    #[inline(always)]
    fn tally_both(
        &mut self,
        [record, behind]: [u32; 2],
        (from, to): (HookContext, HookContext),
        length: u16,
    ) -> ThroughVerdict {
        self.count_packet(record, from, length);
        self.count_packet(behind, to, length);
        ThroughVerdict::Passed
    }

    /// Takes a packet into account by a state and that beside it; returns their records.
    fn update_connection(&mut self, bytes: &[u8], quick: &FastPathHeader, number: u32) -> Option<[u32; 2]> {
        match self.states.is_merged(number) {
            true => self.update_merged(&|| bytes, quick, number),
            false => self.update_pair(&|| bytes, quick, number),
        }
    }

    /// The same by states that are not merged, or are not those that were prefetched, or at one interface and
    /// then at the other.
    #[inline(never)]
    fn pass_each(
        &mut self,
        bytes: &[u8],
        key: &ParsedKey,
        (from, to): (HookContext, HookContext),
    ) -> ThroughVerdict {
        let ParsedKey { header: quick, place, hash } = key;
        if quick.length == 0 {
            return ThroughVerdict::Unknown;
        }
        if let Some(records) = self.update_connection(bytes, quick, *place) {
            return self.tally_both(records, (from, to), quick.length);
        }
        let number = self.find_fast(quick, *hash, *place, from).unwrap_or(*place);
        if number != *place
            && let Some(records) = self.update_connection(bytes, quick, number)
        {
            return self.tally_both(records, (from, to), quick.length);
        }
        let Some(StateHit { link, record }) = self.update_fast(&|| bytes, quick, number, Direction::In)
        else {
            return ThroughVerdict::Unknown;
        };
        self.count_packet(record, from, quick.length);
        let turned = FastPathHeader { narrow: quick.narrow.swap_ends(), ..*quick };
        match self.update_fast(&|| bytes, &turned, link, Direction::Out) {
            Some(known) => {
                self.count_packet(known.record, to, quick.length);
                ThroughVerdict::Passed
            }
            None => {
                let state = Some(StateId { number });
                ThroughVerdict::Entered(Passed { state, tag: Tag(0), ..Passed::default() })
            }
        }
    }

    /// Updates a state for a packet: its pair as well, if the packet comes in and they are merged.
    #[inline(always)]
    fn update_ingress(
        &mut self,
        bytes: &[u8],
        quick: &FastPathHeader,
        number: u32,
        direction: Direction,
    ) -> Option<StateHit> {
        if direction == Direction::In && self.states.is_merged(number) {
            let [record, _] = self.update_merged(&|| bytes, quick, number)?;
            return Some(StateHit { link: number ^ 1, record });
        }
        self.update_fast(&|| bytes, quick, number, direction)
    }

    /// Updates the state of a packet for which another state had been prefetched. The packet is parsed again,
    /// so that what was read of it stays in registers where this is not needed.
    #[cold]
    #[inline(never)]
    fn enter_elsewhere(&mut self, bytes: &[u8], likely: u32, at: HookContext) -> Option<(u32, StateHit)> {
        let quick = FastPathHeader::parse_or_none(bytes, at.direction);
        let hash = self.states.hash_narrow(quick.narrow, quick.protocol);
        let number = self.find_fast(&quick, hash, likely, at)?;
        Some((number, self.update_ingress(bytes, &quick, number, at.direction)?))
    }

    /// Whether the fast path may be used at an interface.
    #[inline]
    pub fn is_fast_path_at(&self, at: HookContext, compiled: &Compiled) -> bool {
        self.settings.is_enabled && !self.settings.is_thorough && !compiled.skips_interface(at.interface)
    }
}
