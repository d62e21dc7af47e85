//! Runs: packets of one flow behind one another, as a connection sends them. Where one has passed those behind it need neither
//! hash nor search, and what they add to counters is told at once.
use super::Filter;
use super::quick::{Quick, TCP, Told, UDP};
use super::through::Glance;
use crate::dissect::At;
use crate::facts::Direction;
use crate::states::{MOST_AT_ONCE, Narrow, StateId};
use crate::track::Peer;

/// Whether two packets that begin with headers of IPv4 seem to be of one flow, in the same direction.
#[inline]
pub fn are_of_one_flow(one: &[u8], other: &[u8]) -> bool {
    let flow =
        |bytes: &[u8]| bytes.first_chunk().map(|header: &[u8; 28]| (header[9], Narrow::of_header(header)));
    flow(one).is_some_and(|flow_of_one| Some(flow_of_one) == flow(other))
}

/// What packets of a run add to counters.
struct Counted {
    /// Of their state, and of that where they leave.
    records: [u32; 2],
    packets: u16,
    bytes: u32,
}

impl Filter {
    /// Looks at a packet, and finds the state that it may have, without waiting for what others of a batch need.
    #[inline]
    pub fn glance_at_once(&self, bytes: &[u8], direction: Direction) -> Glance {
        let mut glance = self.glance(bytes, direction);
        self.approach_likely(&mut glance);
        glance
    }

    /// Lets packets [pass through](Filter::pass_through) behind one that just did, as long as they are of its flow and nothing
    /// else is to be said of them; says how many.
    #[inline(never)]
    pub fn pass_run<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p [u8]>,
        glance: &Glance,
        (from, to): (At, At),
    ) -> usize {
        let Some(Counted { records: [enters, leaves], packets, bytes }) =
            self.run(packets, &glance.quick, glance.place)
        else {
            return 0;
        };
        self.tally_more(enters, from, packets, bytes);
        self.tally_more(leaves, to, packets, bytes);
        packets.into()
    }

    /// The same where they come in, behind one that [passed](Filter::pass_quickly) there by a state.
    #[inline(never)]
    pub fn enter_run<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p [u8]>,
        glance: &Glance,
        (state, at): (StateId, At),
    ) -> usize {
        let run = || self.run(packets, &glance.quick, state.number);
        let Some(counted) = (at.direction == Direction::In).then(run).flatten() else { return 0 };
        self.tally_more(counted.records[0], at, counted.packets, counted.bytes);
        counted.packets.into()
    }

    /// Takes packets of a flow into account by a state that is joined, up to the first that is another's or for which that is
    /// not quickly done, and not more than may be counted at once.
    #[inline(always)]
    fn run<'p>(
        &mut self,
        packets: impl Iterator<Item = &'p [u8]>,
        quick: &Quick,
        number: u32,
    ) -> Option<Counted> {
        let now = self.now_ms as u32;
        let first = self.states.hot.first_mut(number)?;
        let is_its = first.is_joined_for(number, quick.narrow, quick.protocol)
            && now.wrapping_sub(first.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = first.joined_sender(number);
        let ends = [first.peers[from], first.peers[1 - from]];
        let (count, bytes, [source, destination]) = match quick.protocol {
            TCP => segments(packets, quick, ends),
            _ => datagrams(packets, quick, ends),
        };
        (first.peers[from], first.peers[1 - from]) = (source, destination);
        first.seen = now;
        let records = [number, number ^ 1].map(|number| first.joined_record(number));
        if !first.count_plainly(from, count, bytes) {
            self.states.count_joined(number, from, count, bytes);
        }
        Some(Counted { records, packets: count, bytes })
    }
}

/// Segments of a flow behind one that has passed: how many pass as well, their bytes, and what is known of both ends then.
#[inline(always)]
fn segments<'p>(
    packets: impl Iterator<Item = &'p [u8]>,
    quick: &Quick,
    [mut source, mut destination]: [Peer; 2],
) -> (u16, u32, [Peer; 2]) {
    let (count, bytes) = follow(packets, |packet| {
        let next = quick.next(packet, TCP)?;
        let told = Told::of(&|| packet, &next)?;
        told.news_between(&source, &destination)?.note(&mut source, &mut destination);
        Some(next.length)
    });
    (count, bytes, [source, destination])
}

/// The same for datagrams, which tell no more than the first of them.
#[inline(always)]
fn datagrams<'p>(
    packets: impl Iterator<Item = &'p [u8]>,
    quick: &Quick,
    ends: [Peer; 2],
) -> (u16, u32, [Peer; 2]) {
    let [source, destination] = &ends;
    let (count, bytes) = match Told::Datagram.news_between(source, destination) {
        Some(_) => follow(packets, |packet| Some(quick.next(packet, UDP)?.length)),
        None => (0, 0),
    };
    (count, bytes, ends)
}

/// Counts packets and their bytes up to the first of which no length is told.
#[inline(always)]
fn follow<'p>(
    packets: impl Iterator<Item = &'p [u8]>,
    length: impl FnMut(&'p [u8]) -> Option<u16>,
) -> (u16, u32) {
    let lengths = packets.take(MOST_AT_ONCE.into()).map_while(length);
    lengths.fold((0, 0), |(count, bytes), length| (count + 1, bytes + u32::from(length)))
}
