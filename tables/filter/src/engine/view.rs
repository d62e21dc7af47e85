//! What is parsed of a packet, once: the view travels with it through its tests at all interfaces.
use super::PacketLookup;
use super::quick::FastPathHeader;
use crate::dissect::{Dissected, FilterDropReason, dissect_packet};
use crate::facts::Direction;
use crate::states::Key;

/// A packet from its IP header on, for tests at any interface: right as long as nothing changes the packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketView {
    /// As a packet has it that comes in.
    header: FastPathHeader,
    /// All that rules and states look at: of an exception from the start, of others once they need it.
    dissected: Option<Result<Dissected, FilterDropReason>>,
}

impl PacketView {
    /// Parses a packet that begins with its IP header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> PacketView {
        match FastPathHeader::parse_plain(bytes, Direction::In) {
            Some(header) => PacketView { header, dissected: None },
            None => PacketView::of_exception(bytes),
        }
    }

    /// Parses a packet that the fast path does not take.
    pub(super) fn of_exception(bytes: &[u8]) -> PacketView {
        PacketView { header: FastPathHeader::NONE, dissected: Some(dissect_packet(bytes)) }
    }

    /// Of a fast-path packet that comes in.
    pub(super) fn of_header(header: FastPathHeader) -> PacketView {
        PacketView { header, dissected: None }
    }

    /// The header of a fast-path packet that goes this way.
    #[inline(always)]
    pub(super) fn header_in(&self, direction: Direction) -> FastPathHeader {
        match direction {
            Direction::In => self.header,
            Direction::Out => FastPathHeader { narrow: self.header.narrow.swap_ends(), ..self.header },
        }
    }

    /// The key of an exception that goes this way, if it has one.
    #[inline(always)]
    pub(super) fn key(&self, direction: Direction) -> Option<Key> {
        Some(self.dissected?.ok()?.state_key(direction))
    }

    /// All that rules and states look at; `bytes` are those of the packet.
    #[inline(always)]
    pub(super) fn dissect(&mut self, bytes: &[u8]) -> Result<Dissected, FilterDropReason> {
        *self.dissected.get_or_insert_with(|| dissect_packet(bytes))
    }
}

impl PacketLookup {
    /// What was parsed of the packet.
    #[inline]
    pub fn view(&self) -> PacketView {
        self.view
    }
}
