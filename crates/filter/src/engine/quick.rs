//! The quick way: what nearly all packets need, in few steps.
//!
//! A plain packet of TCP or UDP over IPv4 whose state is where it was expected, and changes nothing but numbers. Whatever is
//! otherwise goes the full way, which would come to the same answer.
use super::{Filter, Look, Passed};
use crate::dissect::{At, half, word};
use crate::facts::Direction;
use crate::options::Timeout;
use crate::states::{Hot, Key, NONE, Narrow, StateId, flag};
use crate::track::{Moved, Peer, Segment, Stage, track_plain};
use artery_wire::{IpProtocol, TcpFlags};

pub(super) const TCP: u8 = IpProtocol::TCP.0;
pub(super) const UDP: u8 = IpProtocol::UDP.0;
/// Segments with one of these may change more than numbers.
const CHANGES: u8 = TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0;

/// What is seen of a plain packet at first sight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quick {
    /// Its key, as entries keep it.
    pub(super) narrow: Narrow,
    /// Its length by its own account; 0 if it is not plain.
    pub(super) length: u16,
    pub(super) protocol: u8,
}

impl Quick {
    /// Of a packet that is not plain.
    pub(super) const NONE: Quick = Quick { narrow: Narrow::EMPTY, length: 0, protocol: 0 };

    /// Looks at a packet.
    #[inline(always)]
    pub(super) fn of(bytes: &[u8], direction: Direction) -> Quick {
        Quick::plain(bytes, direction).unwrap_or(Quick::NONE)
    }

    /// Looks at a packet; None if it is not plain.
    #[inline(always)]
    pub(super) fn plain(bytes: &[u8], direction: Direction) -> Option<Quick> {
        let header = bytes.first_chunk::<28>()?;
        let (length, protocol) = (half(header, 2), header[9]);
        let end = usize::from(length);
        let is_plain = is_whole(header)
            && end <= bytes.len()
            && match protocol {
                UDP => (28..=end).contains(&(20 + usize::from(half(header, 24)))),
                TCP => {
                    bytes.get(32).is_some_and(|byte| (40..=end).contains(&(20 + usize::from(byte >> 4) * 4)))
                }
                _ => false,
            };
        let narrow = Narrow::of_header(header);
        let narrow = if direction == Direction::In { narrow } else { narrow.turned() };
        is_plain.then_some(Quick { narrow, length, protocol })
    }

    /// Looks at a packet that comes in behind this one; None if it is not plain or of another flow. The protocol is this one's, which
    /// a compiler does not know of it.
    #[inline(always)]
    pub(super) fn next(&self, bytes: &[u8], protocol: u8) -> Option<Quick> {
        let header = bytes.first_chunk::<28>()?;
        let is_next = header[9] == protocol && Narrow::of_header(header) == self.narrow;
        if is_next { Quick::plain(bytes, Direction::In) } else { None }
    }

    /// The kind of a state that may go the quick way, without the direction.
    #[inline(always)]
    fn kind(&self) -> u16 {
        Hot::kind_of(self.protocol, flag::LIVE)
    }
}

/// Whether a header of IPv4 has no options and belongs to no fragment.
#[inline(always)]
pub(super) fn is_whole(header: &[u8; 28]) -> bool {
    const SEEN: u64 = u64::from_ne_bytes([0xff, 0, 0, 0, 0, 0, 0x3f, 0xff]);
    const PLAIN: u64 = u64::from_ne_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);
    let [first, ..] = header.as_chunks().0 else { return false };
    u64::from_ne_bytes(*first) & SEEN == PLAIN
}

/// The flag among the protocol and the flags.
const OUT: u16 = Hot::kind_of(0, flag::OUT);

/// What a plain packet tells its states.
pub(super) enum Told {
    /// That it came.
    Datagram,
    /// Numbers of TCP, and nothing else.
    Segment(Segment),
}

impl Told {
    /// Takes it out of a plain packet; None if it may change more than numbers.
    #[inline(always)]
    pub(super) fn of<'p>(bytes: &impl Fn() -> &'p [u8], quick: &Quick) -> Option<Told> {
        if quick.protocol != TCP {
            return Some(Told::Datagram);
        }
        let header = bytes().first_chunk::<40>()?;
        let flags = TcpFlags(header[33]);
        let headers = 20 + u32::from(header[32] >> 4) * 4;
        let segment = Segment {
            flags,
            seq: word(header, 24),
            ack: word(header, 28),
            window: half(header, 34),
            payload: u32::from(quick.length).wrapping_sub(headers),
            scale: None,
        };
        (flags.0 & CHANGES == 0).then_some(Told::Segment(segment))
    }

    /// Whether two states know the same of a connection.
    #[inline(always)]
    fn finds_alike(&self, one: &Hot, other: &Hot) -> bool {
        let ([a, b], [c, d]) = (&one.peers, &other.peers);
        let are_alike = match self {
            Told::Segment(_) => a.difference(c) | b.difference(d) == 0,
            Told::Datagram => (a.stage, b.stage) == (c.stage, d.stage),
        };
        are_alike && one.class == other.class
    }

    /// What a state notes of its connection; None if there is more to it.
    #[inline(always)]
    pub(super) fn news(&self, hot: &Hot, from: usize) -> Option<News> {
        let class = match self {
            Told::Segment(_) => Timeout::TcpEstablished,
            Told::Datagram => {
                Timeout::of_datagrams(hot.peers.iter().all(|peer| peer.stage == Stage::MULTIPLE))
            }
        };
        if hot.class == class as u8 { self.news_of_settled(hot, from) } else { None }
    }

    /// The same for a state whose timeout is what its ends say, as it is of those that are joined.
    #[inline(always)]
    pub(super) fn news_of_settled(&self, hot: &Hot, from: usize) -> Option<News> {
        self.news_between(&hot.peers[from], &hot.peers[1 - from])
    }

    /// The same by what is known of both ends.
    #[inline(always)]
    pub(super) fn news_between(&self, source: &Peer, destination: &Peer) -> Option<News> {
        match self {
            Told::Segment(segment) => track_plain(source, destination, segment).map(News::Moved),
            Told::Datagram => {
                // The sender has sent before, and the other has not, or has been answered: nothing is news.
                let is_news = source.stage == Stage::NO_TRAFFIC || destination.stage == Stage::SINGLE;
                (!is_news).then_some(News::None)
            }
        }
    }
}

/// What a state notes of its connection when a plain packet comes.
#[derive(Clone, Copy)]
pub(super) enum News {
    None,
    /// Numbers of TCP. They are written to each state by themselves: to copy all that one knows would wait for what was just
    /// written to it.
    Moved(Moved),
}

impl News {
    #[inline(always)]
    pub(super) fn note_in(self, hot: &mut Hot, from: usize) {
        let [first, second] = &mut hot.peers;
        let (source, destination) = if from == 0 { (first, second) } else { (second, first) };
        self.note(source, destination);
    }

    #[inline(always)]
    pub(super) fn note(self, source: &mut Peer, destination: &mut Peer) {
        if let News::Moved(moved) = self {
            moved.note(source, destination);
        }
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
        let Known { link, record } = self.know_quickly(&|| bytes, quick, *likely, at.direction)?;
        self.tally(record, *at, quick.length);
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
    pub(super) fn know_quickly<'p>(
        &mut self,
        bytes: &impl Fn() -> &'p [u8],
        quick: &Quick,
        number: u32,
        direction: Direction,
    ) -> Option<Known> {
        // Each has a path of its own, on which nothing is left of the other.
        match Told::of(bytes, quick)? {
            Told::Datagram => self.know_told(quick, &Told::Datagram, number, direction),
            Told::Segment(segment) => self.know_told(quick, &Told::Segment(segment), number, direction),
        }
    }

    #[inline(always)]
    fn know_told(&mut self, quick: &Quick, told: &Told, number: u32, direction: Direction) -> Option<Known> {
        let now = self.now_ms as u32;
        let hot = self.states.hot.get_mut(number)?;
        let kind = hot.kind();
        let is_its = hot.narrow == quick.narrow
            && kind & !OUT == quick.kind()
            && !hot.is_joined
            && now.wrapping_sub(hot.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = usize::from((direction == Direction::Out) != (kind & OUT != 0));
        told.news(hot, from)?.note_in(hot, from);
        hot.seen = now;
        let known = Known { link: hot.link, record: hot.record };
        if !hot.count_plainly(from, 1, quick.length.into()) {
            self.states.cold[number as usize].count(hot, from, 1, quick.length.into());
        }
        Some(known)
    }

    /// Takes a plain packet into account by the state that it has where it comes in and that beside it, where it leaves;
    /// returns their records. What both know of a connection that they have seen from the same packet on is the same, and
    /// followed once. None if that is not so, or one of them says no; nothing has changed then.
    #[inline(always)]
    pub(super) fn know_both<'p>(
        &mut self,
        bytes: &impl Fn() -> &'p [u8],
        quick: &Quick,
        number: u32,
    ) -> Option<[u32; 2]> {
        match Told::of(bytes, quick)? {
            Told::Datagram => self.know_both_told(quick, &Told::Datagram, number),
            Told::Segment(segment) => self.know_both_told(quick, &Told::Segment(segment), number),
        }
    }

    #[inline(always)]
    fn know_both_told(&mut self, quick: &Quick, told: &Told, number: u32) -> Option<[u32; 2]> {
        let now = self.now_ms as u32;
        let [enters, leaves] = self.states.hot.pair_from(number)?;
        let kind = enters.kind();
        let are_one = enters.link == number ^ 1
            && enters.narrow == quick.narrow
            && kind & !OUT == quick.kind()
            && leaves.narrow == quick.narrow.turned()
            // Otherwise they were made by packets of either end.
            && leaves.kind() == kind ^ OUT
            && now.wrapping_sub(enters.seen) < self.least_lifetime_ms
            && now.wrapping_sub(leaves.seen) < self.least_lifetime_ms
            && told.finds_alike(enters, leaves);
        if !are_one {
            return None;
        }
        let from = usize::from(kind & OUT != 0);
        let (news, length) = (told.news(enters, from)?, quick.length.into());
        for (hot, n) in [(&mut *enters, number), (&mut *leaves, number ^ 1)] {
            news.note_in(hot, from);
            hot.seen = now;
            if !hot.count_plainly(from, 1, length) {
                self.states.cold[n as usize].count(hot, from, 1, length);
            }
        }
        let records = [enters.record, leaves.record];
        self.states.join(number);
        Some(records)
    }
}
