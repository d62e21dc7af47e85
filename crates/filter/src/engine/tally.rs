//! What plain packets of a batch add to the counters of rules: mostly to those of one rule, packet after packet.
use super::Filter;
use super::InterfaceCounts;
use crate::dissect::At;
use crate::facts::{Direction, Family, Interface};
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

/// Packets of one direction that were not yet told to the counts of the interface that they were at.
#[derive(Clone, Copy)]
pub(super) struct InterfaceTally {
    pub(super) interface: Interface,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl InterfaceTally {
    pub(super) const EMPTY: InterfaceTally = InterfaceTally { interface: Interface(0), packets: 0, bytes: 0 };

    /// Adds it to what is counted at interfaces: all of it has passed.
    pub(super) fn add_to(&self, interfaces: &mut [InterfaceCounts], direction: Direction) {
        if let Some(counts) = interfaces.get_mut(usize::from(self.interface.0)) {
            counts.packets[Family::Inet as usize][direction as usize][0] += self.packets;
            counts.bytes[Family::Inet as usize][direction as usize][0] += self.bytes;
        }
    }
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
        self.tally_at(interface, direction, packets, bytes);
        if self.tallies[direction as usize].record != record {
            self.tally_for(record, direction);
        }
        let tally = &mut self.tallies[direction as usize];
        tally.packets += u32::from(packets);
        tally.bytes += u64::from(bytes);
    }

    /// Counts packets of IPv4 for the interface that they have passed, with others there.
    #[inline(always)]
    pub(super) fn tally_at(&mut self, interface: Interface, direction: Direction, packets: u16, bytes: u32) {
        if self.interface_tallies[direction as usize].interface != interface {
            self.tally_for_interface(interface, direction);
        }
        let tally = &mut self.interface_tallies[direction as usize];
        tally.packets += u64::from(packets);
        tally.bytes += u64::from(bytes);
    }

    /// Tells what was counted at an interface, and counts at another one from now on.
    #[inline(never)]
    fn tally_for_interface(&mut self, interface: Interface, direction: Direction) {
        let tally = &mut self.interface_tallies[direction as usize];
        let told = std::mem::replace(tally, InterfaceTally { interface, ..InterfaceTally::EMPTY });
        told.add_to(&mut self.counted.interfaces, direction);
    }

    /// Ends a batch that went the quick way: tells the counters of rules what was counted in it.
    pub fn end(&mut self) {
        for direction in [Direction::In, Direction::Out] {
            self.tally_for(NONE, direction);
            self.tally_for_interface(self.interface_tallies[direction as usize].interface, direction);
        }
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
