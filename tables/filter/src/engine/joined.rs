//! The fast path of packets whose states where they come in and where they leave are merged:
//! one line holds both.
use super::Filter;
use super::quick::{FastPathHeader, StateUpdate, is_whole};
use crate::dissect::read_u16;
use crate::states::{NarrowKey, StateId};

impl Filter {
    /// Updates the state of a fast-path packet that comes in and has one of two merged states: for both, as
    /// the packet will leave. Returns their records, that of its own first; None if it must take the full
    /// path, and nothing has changed.
    #[inline(always)]
    pub(super) fn update_merged<'p>(
        &mut self,
        bytes: &impl Fn() -> &'p [u8],
        quick: &FastPathHeader,
        number: u32,
    ) -> Option<[u32; 2]> {
        match StateUpdate::from_packet(bytes, quick)? {
            StateUpdate::Datagram => self.update_merged_with(quick, &StateUpdate::Datagram, number),
            StateUpdate::Segment(segment) => {
                self.update_merged_with(quick, &StateUpdate::Segment(segment), number)
            }
        }
    }

    #[inline(always)]
    fn update_merged_with(
        &mut self,
        quick: &FastPathHeader,
        told: &StateUpdate,
        number: u32,
    ) -> Option<[u32; 2]> {
        let now = self.now_ms as u32;
        let first = self.states.hot.first_mut(number)?;
        let is_its = first.is_merged_for(number, quick.narrow, quick.protocol)
            && now.wrapping_sub(first.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = first.merged_sender(number);
        told.settled_update(first, from)?.apply_to_state(first, from);
        first.seen = now;
        let records = [number, number ^ 1].map(|number| first.merged_record(number));
        if !first.count_inline(from, 1, quick.length.into()) {
            self.states.count_merged(number, from, 1, quick.length.into());
        }
        Some(records)
    }

    /// The record of the state where a fast-path packet leaves that had a merged state where it came in, and
    /// its length by its own account; None if that is not so. All else was updated and checked there: the
    /// lengths in the header of UDP or TCP, which nothing changes in between.
    #[inline(always)]
    pub(super) fn leave_merged(&self, bytes: &[u8], came: StateId) -> Option<(u32, u16)> {
        let header = bytes.first_chunk::<28>()?;
        let length = read_u16(header, 2);
        let first = self.states.hot.first_of_pair(came.number)?;
        let is_its = is_whole(header)
            && (28..=bytes.len()).contains(&length.into())
            // It leaves with the addresses that it came with, in the same order.
            && first.is_merged_for(came.number, NarrowKey::of_header(header), header[9]);
        is_its.then(|| (first.merged_record(came.number ^ 1), length))
    }
}
