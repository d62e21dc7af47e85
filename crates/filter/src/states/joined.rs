//! Two states of a connection that know the same, kept in one line.
//!
//! The states of a connection that is forwarded are a [pair](super::HotLines), and mostly one says what the other says: neither translates,
//! both have seen the same packets. Such states are *joined*: what changes is kept in the line of the first place, for both,
//! and the other line is not looked at. The first one's link, which is known, is then the other's record. Whatever needs a state
//! by itself [parts](States::part) them, or asks for a [copy](States::alone); they are joined again when they are alike.
use super::table::States;
use super::{Hot, NONE, Narrow, flag};
use crate::options::Timeout;
use crate::track::Stage;
use artery_wire::IpProtocol;

/// Flags of states that may be joined, but for the direction.
const PLAIN: u8 = flag::LIVE;

impl States {
    /// Whether a state is joined with that beside it.
    #[inline(always)]
    pub(crate) fn is_joined(&self, number: u32) -> bool {
        self.hot.first(number).is_some_and(|first| first.is_joined)
    }

    /// The state of the same connection at another interface, or NONE.
    #[inline(always)]
    pub(crate) fn link_of(&self, number: u32) -> u32 {
        match self.hot.get(number) {
            Some(hot) if hot.is_joined => number ^ 1,
            Some(hot) => hot.link,
            None => NONE,
        }
    }

    /// When the last packet came that kept a state alive, in milliseconds.
    #[inline]
    pub(crate) fn seen(&self, number: u32) -> u32 {
        let hot = &self.hot[number as usize];
        if hot.is_joined { self.hot[number as usize & !1].seen } else { hot.seen }
    }

    /// A state as it would be if it were not joined.
    pub(crate) fn alone(&self, number: u32) -> Hot {
        let hot = self.hot[number as usize];
        if !hot.is_joined {
            return hot;
        }
        let Hot { second, halves, peers, seen, .. } = self.hot[number as usize & !1];
        Hot { second, halves, peers, seen, link: number ^ 1, is_joined: false, ..hot }
    }

    /// Joins a state with that beside it, if they say the same of one connection; what they counted may differ.
    pub(crate) fn join(&mut self, number: u32) {
        let (first, second) = (number & !1, number | 1);
        if !self.are_alike(first, second) {
            return;
        }
        for n in [first, second] {
            self.cold[n as usize].take_counts(&mut self.hot[n as usize]);
        }
        self.hot[first as usize].link = self.hot[second as usize].record;
        self.hot[first as usize].is_joined = true;
        self.hot[second as usize].is_joined = true;
    }

    /// Lets a state that is not joined count lately from nothing; what it has counted stays.
    pub(crate) fn take_counts(&mut self, number: u32) {
        if let Some(hot) = self.hot.get_mut(number).filter(|hot| !hot.is_joined) {
            self.cold[number as usize].take_counts(hot);
        }
    }

    /// The same as `join` if they have counted the same lately, so that both have seen each packet.
    #[inline(never)]
    pub(crate) fn join_if_even(&mut self, number: u32) {
        let [one, other] = [number, number ^ 1].map(|n| self.hot.get(n).map(|hot| (hot.second, hot.halves)));
        if one == other {
            self.join(number);
        }
    }

    fn are_alike(&self, first: u32, second: u32) -> bool {
        let Some([one, other]) = self.hot.pair(first) else { return false };
        (one.flags ^ other.flags == flag::OUT && one.flags & !flag::OUT == PLAIN)
            && (one.link == second && other.link == first)
            && other.narrow == one.narrow.turned()
            && (one.protocol == other.protocol && one.peers == other.peers)
            && (one.is_settled() && one.class == other.class)
            && !one.is_joined
    }

    /// Parts a state from that with which it is joined: both lines are right after that.
    #[inline]
    pub(crate) fn part(&mut self, number: u32) {
        if self.hot[number as usize].is_joined {
            self.part_joined(number);
        }
    }

    #[cold]
    fn part_joined(&mut self, number: u32) {
        let (first, second) = (number as usize & !1, number as usize | 1);
        self.hot[second] = self.alone(second as u32);
        self.hot[first] = self.alone(first as u32);
    }

    /// Counts packets for both of two states that are joined, where the first line has no room for them.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_joined(&mut self, number: u32, from: usize, packets: u16, bytes: u32) {
        let (first, second) = (number as usize & !1, number as usize | 1);
        let mut copy = self.hot[first];
        self.cold[second].count(&mut copy, from, packets, bytes);
        self.cold[first].count(&mut self.hot[first], from, packets, bytes);
    }
}

impl Hot {
    /// Whether plain packets may change no more than numbers, and its timeout is what its ends say.
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

    /// Whether it is that of a packet which comes in and has one of two states that are joined, by their first line.
    #[inline(always)]
    pub(crate) fn is_joined_for(&self, number: u32, narrow: Narrow, protocol: u8) -> bool {
        self.is_joined && self.narrow == narrow.turned_by(number) && self.protocol.0 == protocol
    }

    /// The record of one of two states that are joined, by their first line.
    #[inline(always)]
    pub(crate) fn joined_record(&self, number: u32) -> u32 {
        if number.is_multiple_of(2) { self.record } else { self.link }
    }

    /// Which end sent a packet that comes in and has one of two states that are joined, by their first line: 0 is that which
    /// sent first.
    #[inline(always)]
    pub(crate) fn joined_sender(&self, number: u32) -> usize {
        (u32::from(self.has(flag::OUT)) ^ number & 1) as usize
    }
}
