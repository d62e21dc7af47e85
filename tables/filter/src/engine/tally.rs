//! What fast-path packets of a batch add to the counters of rules: mostly to those of one
//! rule, packet after packet.
use super::Filter;
use super::InterfaceCounts;
use crate::dissect::HookContext;
use crate::facts::{Direction, Family, Interface};
use crate::states::NONE;

/// IPv4 packets of one direction that were not yet added to the counters of their rule, and to the counts of
/// the interface that they have passed.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    place: TallyKey,
    pub(super) packets: u32,
    bytes: u64,
}

/// The record of a rule, and an interface, in one word: they are compared for each packet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TallyKey(u64);

impl TallyKey {
    #[inline(always)]
    fn new(record: u32, interface: Interface) -> TallyKey {
        TallyKey(u64::from(interface.0) << 32 | u64::from(record))
    }

    fn record(self) -> u32 {
        self.0 as u32
    }

    fn interface(self) -> usize {
        (self.0 >> 32) as usize
    }
}

impl Tally {
    pub(super) const EMPTY: Tally = Tally { place: TallyKey(NONE as u64), packets: 0, bytes: 0 };

    /// Adds it to what is counted at interfaces.
    pub(super) fn add_to(&self, interfaces: &mut [InterfaceCounts], direction: Direction) {
        if let Some(counts) = interfaces.get_mut(self.place.interface()) {
            counts.packets[Family::Inet as usize][direction as usize][0] += u64::from(self.packets);
            counts.bytes[Family::Inet as usize][direction as usize][0] += self.bytes;
        }
    }
}

impl Filter {
    /// Counts a packet for the rule of its state and for its interface, with others of both.
    #[inline(always)]
    pub(super) fn count_packet(&mut self, record: u32, at: HookContext, length: u16) {
        self.tally_more(record, at, 1, length.into());
    }

    /// The same for some packets, and their bytes.
    #[inline(always)]
    pub(super) fn tally_more(&mut self, record: u32, at: HookContext, packets: u16, bytes: u32) {
        let place = TallyKey::new(record, at.interface);
        if self.tallies[at.direction as usize].place != place {
            self.tally_for(place, at.direction);
        }
        let tally = &mut self.tallies[at.direction as usize];
        tally.packets += u32::from(packets);
        tally.bytes += u64::from(bytes);
    }

    /// Ends a batch that took the fast path: adds what was counted in it to the counters.
    pub fn end_batch(&mut self) {
        self.tally_for(Tally::EMPTY.place, Direction::In);
        self.tally_for(Tally::EMPTY.place, Direction::Out);
    }

    /// Tells what was counted, and counts for another rule or interface from now on.
    #[inline(never)]
    fn tally_for(&mut self, place: TallyKey, direction: Direction) {
        let tally = &mut self.tallies[direction as usize];
        let told = std::mem::replace(tally, Tally { place, ..Tally::EMPTY });
        told.add_to(&mut self.counted.interfaces, direction);
        self.states.counters[0] += u64::from(told.packets);
        if let Some(rule) = self.records.rule(told.place.record()) {
            self.counters.add_packets(rule, direction, told.packets.into(), told.bytes);
        }
    }
}
