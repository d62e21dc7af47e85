//! What plain packets of a batch add to the counters of rules: mostly to those of one rule, packet after packet.
use super::Filter;
use crate::dissect::At;
use crate::facts::Direction;
use crate::states::NONE;

/// Packets of one direction that were not yet told to the counters of the rule that they belong to.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    /// Of the rule.
    record: u32,
    pub(super) packets: u32,
    bytes: u64,
}

impl Tally {
    pub(super) const EMPTY: Tally = Tally { record: NONE, packets: 0, bytes: 0 };
}

impl Filter {
    /// Counts a packet for the rule of its state, with others of that rule, and for its interface.
    #[inline(always)]
    pub(super) fn tally(&mut self, record: u32, at: At, length: u16) {
        self.tally_more(record, at, 1, length.into());
    }

    /// The same for some packets, and their bytes.
    #[inline(always)]
    pub(super) fn tally_more(&mut self, record: u32, at: At, packets: u16, bytes: u32) {
        let At { interface, direction, .. } = at;
        self.count_passed(interface, direction, (packets.into(), bytes.into()));
        if self.tallies[direction as usize].record != record {
            self.tally_for(record, direction);
        }
        let tally = &mut self.tallies[direction as usize];
        tally.packets += u32::from(packets);
        tally.bytes += u64::from(bytes);
    }

    /// Ends a batch that went the quick way: tells the counters of rules what was counted in it.
    pub fn end(&mut self) {
        [Direction::In, Direction::Out].into_iter().for_each(|direction| self.tally_for(NONE, direction));
    }

    /// Tells what was counted, and counts for another rule from now on.
    #[inline(never)]
    fn tally_for(&mut self, record: u32, direction: Direction) {
        let tally = &mut self.tallies[direction as usize];
        let Tally { record: told, packets, bytes } =
            std::mem::replace(tally, Tally { record, ..Tally::EMPTY });
        self.states.counters[0] += u64::from(packets);
        if let Some(rule) = self.records.rule(told) {
            self.counters.add_packets(rule, direction, packets.into(), bytes);
        }
    }
}
