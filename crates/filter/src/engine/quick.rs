//! The quick way: what nearly all packets need, in few steps.
//!
//! A plain packet of TCP or UDP over IPv4 whose state is where it was expected, and changes nothing but numbers. Whatever is
//! otherwise goes the full way, which would come to the same answer.
use super::{Filter, Look, Passed, is_forward};
use crate::dissect::{At, half, word};
use crate::facts::Direction;
use crate::options::Timeout;
use crate::states::{Hot, Key, NONE, StateId, flag};
use crate::track::{Segment, Stage, Tracked, track};
use artery_wire::{IpProtocol, TcpFlags};

const TCP: u8 = IpProtocol::TCP.0;
const UDP: u8 = IpProtocol::UDP.0;
/// Segments with one of these may change more than numbers.
const CHANGES: u8 = TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0;

/// What is seen of a plain packet at first sight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quick {
    /// Its key, as entries keep it.
    pub(super) narrow: [u32; 3],
    /// Its length by its own account; 0 if it is not plain.
    pub(super) length: u16,
    pub(super) protocol: u8,
}

impl Quick {
    /// Of a packet that is not plain.
    pub(super) const NONE: Quick = Quick { narrow: [0; 3], length: 0, protocol: 0 };

    /// Looks at a packet.
    #[inline(always)]
    pub(super) fn of(bytes: &[u8], direction: Direction) -> Quick {
        let Some(header) = bytes.first_chunk::<28>() else { return Quick::NONE };
        let (length, protocol) = (half(header, 2), header[9]);
        let room = usize::from(length).wrapping_sub(20);
        let is_plain = header[0] == 0x45
            && half(header, 6) & 0x3fff == 0
            && (20..=bytes.len()).contains(&usize::from(length))
            && match protocol {
                UDP => (8..=room).contains(&usize::from(half(header, 24))),
                TCP => bytes.get(32).is_some_and(|byte| (20..=room).contains(&(usize::from(byte >> 4) * 4))),
                _ => false,
            };
        if !is_plain {
            return Quick::NONE;
        }
        let (source, destination, ports) = (word(header, 12), word(header, 16), word(header, 20));
        let narrow = match direction {
            Direction::In => [source, destination, ports],
            Direction::Out => [destination, source, ports.rotate_left(16)],
        };
        Quick { narrow, length, protocol }
    }
}

/// What a state says that has taken a packet into account.
pub(super) struct Known {
    /// The state of the same connection at another interface.
    pub(super) link: u32,
    pub(super) record: u32,
}

impl Filter {
    /// Lets a plain packet of a state pass; None if it must go the full way, and nothing has changed.
    #[inline(always)]
    pub(super) fn test_quickly(&mut self, bytes: &[u8], look: &Look) -> Option<Passed> {
        let Look { quick, likely, at, .. } = look;
        let Known { link, record } = self.know_quickly(bytes, quick, *likely, at.direction)?;
        self.count_quickly(record, at.direction, quick.length);
        if look.hint != NONE && link != look.hint {
            self.states.link(look.hint, *likely);
        }
        let state = Some(StateId { number: *likely });
        Some(Passed { state, tag: at.tag, ..Passed::default() })
    }

    /// The same by the state that it has, where another was more likely.
    #[cold]
    #[inline(never)]
    pub(super) fn test_elsewhere(&mut self, bytes: &[u8], look: &Look) -> Option<Passed> {
        if look.bucket == NONE {
            return None;
        }
        let likely = self.find_quickly(&look.quick, look.hash, look.likely, look.at)?;
        self.test_quickly(bytes, &Look { likely, ..*look })
    }

    /// The state of a plain packet, if it is another than that which was likely.
    pub(super) fn find_quickly(&self, quick: &Quick, hash: u64, likely: u32, at: At) -> Option<u32> {
        let key = Key::of_narrow(quick.narrow, IpProtocol(quick.protocol));
        self.states.find(&key, hash, at.direction, at.interface).filter(|number| *number != likely)
    }

    /// Takes a plain packet of a state into account; None if it must go the full way, and nothing has changed.
    #[inline(always)]
    pub(super) fn know_quickly(
        &mut self,
        bytes: &[u8],
        quick: &Quick,
        number: u32,
        direction: Direction,
    ) -> Option<Known> {
        const ODD: u8 = !flag::OUT;
        let hot = self.states.hot.get_mut(number)?;
        let now = self.now_ms as u32;
        let is_its = hot.narrow == quick.narrow
            && hot.protocol.0 == quick.protocol
            && hot.flags & ODD == flag::LIVE
            && now.wrapping_sub(hot.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = usize::from(!is_forward(direction, hot.flags));
        match quick.protocol {
            TCP => track_quickly(hot, from, &plain_segment(bytes, quick)?)?,
            _ => {
                let stages = [hot.peers[from].stage, hot.peers[1 - from].stage];
                let class = match stages == [Stage::MULTIPLE; 2] {
                    true => Timeout::UdpMultiple,
                    false => Timeout::UdpSingle,
                };
                // The sender has sent before, and the other has not, or has been answered: nothing is news.
                let is_news = stages[0] == Stage::NO_TRAFFIC || stages[1] == Stage::SINGLE;
                if is_news || hot.class != class as u8 {
                    return None;
                }
            }
        }
        hot.seen = now;
        let known = Known { link: hot.link, record: hot.record };
        if !hot.count(from, quick.length.into()) {
            self.states.cold[number as usize].count(hot, from, quick.length.into());
        }
        Some(known)
    }

    /// Counts what is counted beside the state.
    #[inline(always)]
    pub(super) fn count_quickly(&mut self, record: u32, direction: Direction, length: u16) {
        self.states.counters[0] += 1;
        if let Some(rule) = self.records.rule(record) {
            self.counters.add_packet(rule, direction, length.into());
        }
    }
}

/// Follows an established connection; None if there is more to it.
#[inline(always)]
fn track_quickly(hot: &mut Hot, from: usize, segment: &Segment) -> Option<()> {
    let [mut first, mut second] = hot.peers;
    let (source, destination) = if from == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
    let is_established = (source.stage, destination.stage) == (Stage::ESTABLISHED, Stage::ESTABLISHED)
        && hot.class == Timeout::TcpEstablished as u8;
    if !is_established || track(source, destination, segment) != Tracked::Accepted {
        return None;
    }
    hot.peers = [first, second];
    Some(())
}

/// A segment that changes numbers at most.
#[inline(always)]
fn plain_segment(bytes: &[u8], quick: &Quick) -> Option<Segment> {
    let header = bytes.get(20..40)?;
    let flags = header[13];
    let payload = u32::from(quick.length) - 20 - u32::from(header[12] >> 4) * 4;
    (flags & CHANGES == 0).then(|| Segment {
        flags: TcpFlags(flags),
        seq: word(header, 4),
        ack: word(header, 8),
        window: half(header, 14),
        payload,
        scale: None,
    })
}
