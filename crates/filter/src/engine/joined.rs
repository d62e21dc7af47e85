//! The quick way of packets whose states where they come in and where they leave are joined: one line tells it all.
use super::Filter;
use super::quick::{Quick, Told, is_whole};
use crate::dissect::half;
use crate::states::{Narrow, StateId};

impl Filter {
    /// Takes a plain packet into account that comes in and has one of two states that are joined: for both, as it
    /// will leave.
    /// Returns their records, that of its own first; None if it must go the full way, and nothing has changed.
    #[inline(always)]
    pub(super) fn know_joined<'p>(
        &mut self,
        bytes: &impl Fn() -> &'p [u8],
        quick: &Quick,
        number: u32,
    ) -> Option<[u32; 2]> {
        match Told::of(bytes, quick)? {
            Told::Datagram => self.know_joined_told(quick, &Told::Datagram, number),
            Told::Segment(segment) => self.know_joined_told(quick, &Told::Segment(segment), number),
        }
    }

    #[inline(always)]
    fn know_joined_told(&mut self, quick: &Quick, told: &Told, number: u32) -> Option<[u32; 2]> {
        let now = self.now_ms as u32;
        let first = self.states.hot.first_mut(number)?;
        let is_its = first.is_joined_for(number, quick.narrow, quick.protocol)
            && now.wrapping_sub(first.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = first.joined_sender(number);
        told.news_of_settled(first, from)?.note_in(first, from);
        first.seen = now;
        let records = [number, number ^ 1].map(|number| first.joined_record(number));
        if !first.count_plainly(from, 1, quick.length.into()) {
            self.states.count_joined(number, from, 1, quick.length.into());
        }
        Some(records)
    }

    /// The record of the state where a plain packet leaves that had a state joined with it where it came in, and its length by
    /// its own account; None if that is not so. All else was done there, and looked at: what a header of UDP or TCP says of
    /// lengths, which nothing changes on its way.
    #[inline(always)]
    pub(super) fn leave_joined(&self, bytes: &[u8], came: StateId) -> Option<(u32, u16)> {
        let header = bytes.first_chunk::<28>()?;
        let length = half(header, 2);
        let first = self.states.hot.first(came.number)?;
        let is_its = is_whole(header)
            && (28..=bytes.len()).contains(&length.into())
            // It leaves with the addresses that it came with, in the same order.
            && first.is_joined_for(came.number, Narrow::of_header(header), header[9]);
        is_its.then(|| (first.joined_record(came.number ^ 1), length))
    }
}
