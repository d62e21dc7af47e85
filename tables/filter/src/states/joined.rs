//! Two states of a connection that hold the same, kept in one line: a merged pair.
//!
//! The states of a forwarded connection are a [pair](super::HotLines), and mostly both hold the same: neither
//! translates, both have seen the same packets. Such states are *merged*: what changes is kept in the first
//! line, for both, and the other line is not read. The first one's link, which is known, is then the other's
//! record. Code that needs a state by itself [splits](States::split_pair) the pair, or takes a
//! [copy](States::unmerged); they are merged again when they are alike.
use super::table::States;
use super::{Hot, NONE, NarrowKey, flag};
use crate::options::Timeout;
use crate::track::Stage;
use artery_wire::IpProtocol;

/// Flags of states that may be merged, apart from the direction.
const PLAIN: u8 = flag::LIVE;

impl States {
    /// Whether a state is merged with the other of its pair.
    #[inline(always)]
    pub(crate) fn is_merged(&self, number: u32) -> bool {
        self.hot.first_of_pair(number).is_some_and(|first| first.is_merged)
    }

    /// The state of the same connection at another interface, or NONE.
    #[inline(always)]
    pub(crate) fn link_of(&self, number: u32) -> u32 {
        match self.hot.get(number) {
            Some(hot) if hot.is_merged => number ^ 1,
            Some(hot) => hot.link,
            None => NONE,
        }
    }

    /// When the last packet came that kept a state alive, in milliseconds.
    #[inline]
    pub(crate) fn last_seen(&self, number: u32) -> u32 {
        let hot = &self.hot[number as usize];
        if hot.is_merged { self.hot[number as usize & !1].seen } else { hot.seen }
    }

    /// A state as it would be if it were not merged.
    pub(crate) fn unmerged(&self, number: u32) -> Hot {
        let hot = self.hot[number as usize];
        if !hot.is_merged {
            return hot;
        }
        let Hot { second, halves, peers, seen, .. } = self.hot[number as usize & !1];
        Hot { second, halves, peers, seen, link: number ^ 1, is_merged: false, ..hot }
    }

    /// Merges a state with the other of its pair, if they hold the same of one connection;
    /// their counts may differ.
    pub(crate) fn merge_pair(&mut self, number: u32) {
        let (first, second) = (number & !1, number | 1);
        if !self.are_alike(first, second) {
            return;
        }
        for n in [first, second] {
            self.cold[n as usize].absorb_counts(&mut self.hot[n as usize]);
        }
        self.hot[first as usize].link = self.hot[second as usize].record;
        self.hot[first as usize].is_merged = true;
        self.hot[second as usize].is_merged = true;
    }

    /// Adds the recent counts of a state that is not merged to its totals, and restarts them at zero.
    pub(crate) fn absorb_counts(&mut self, number: u32) {
        if let Some(hot) = self.hot.get_mut(number).filter(|hot| !hot.is_merged) {
            self.cold[number as usize].absorb_counts(hot);
        }
    }

    /// The same as `merge_pair` if their recent counts are equal, so that both have seen each packet.
    #[inline(never)]
    pub(crate) fn merge_if_even(&mut self, number: u32) {
        let [one, other] = [number, number ^ 1].map(|n| self.hot.get(n).map(|hot| (hot.second, hot.halves)));
        if one == other {
            self.merge_pair(number);
        }
    }

    fn are_alike(&self, first: u32, second: u32) -> bool {
        let Some([one, other]) = self.hot.get_pair(first) else { return false };
        (one.flags ^ other.flags == flag::OUT && one.flags & !flag::OUT == PLAIN)
            && (one.link == second && other.link == first)
            && other.narrow == one.narrow.swap_ends()
            && (one.protocol == other.protocol && one.peers == other.peers)
            && (one.is_settled() && one.class == other.class)
            && !one.is_merged
    }

    /// Splits a merged pair: both lines are right after that.
    #[inline]
    pub(crate) fn split_pair(&mut self, number: u32) {
        if self.hot[number as usize].is_merged {
            self.split_merged(number);
        }
    }

    #[cold]
    fn split_merged(&mut self, number: u32) {
        let (first, second) = (number as usize & !1, number as usize | 1);
        self.hot[second] = self.unmerged(second as u32);
        self.hot[first] = self.unmerged(first as u32);
    }

    /// Counts packets for both of two merged states, where the first line has no room for them.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_merged(&mut self, number: u32, from: usize, packets: u16, bytes: u32) {
        let (first, second) = (number as usize & !1, number as usize | 1);
        let mut copy = self.hot[first];
        self.cold[second].count_packets(&mut copy, from, packets, bytes);
        self.cold[first].count_packets(&mut self.hot[first], from, packets, bytes);
    }
}

impl Hot {
    /// Whether fast-path packets may change no more than numbers, and its timeout follows
    /// from its ends' stages.
    fn is_settled(&self) -> bool {
        let class = match self.protocol {
            IpProtocol::TCP => Timeout::TcpEstablished,
            IpProtocol::UDP => {
                Timeout::of_datagrams(self.peers.iter().all(|peer| peer.stage == Stage::MULTIPLE))
            }
            _ => return false,
        };
        self.class == class as u8
    }

    /// Whether it belongs to a packet which comes in and has one of two merged states, by their first line.
    #[inline(always)]
    pub(crate) fn is_merged_for(&self, number: u32, narrow: NarrowKey, protocol: u8) -> bool {
        self.is_merged && self.narrow == narrow.swap_ends_if(number) && self.protocol.0 == protocol
    }

    /// The record of one of two merged states, by their first line.
    #[inline(always)]
    pub(crate) fn merged_record(&self, number: u32) -> u32 {
        if number.is_multiple_of(2) { self.record } else { self.link }
    }

    /// Which end sent a packet that comes in and has one of two merged states, by their first line: 0 is the
    /// end that sent first.
    #[inline(always)]
    pub(crate) fn merged_sender(&self, number: u32) -> usize {
        (u32::from(self.has_flag(flag::OUT)) ^ number & 1) as usize
    }
}
