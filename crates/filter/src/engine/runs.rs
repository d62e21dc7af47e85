//! Runs: packets of one flow behind one another, as a connection sends them. Where one has passed those behind it need neither
//! hash nor search, and what they add to counters is told at once.
use super::Filter;
use super::quick::{Quick, Told};
use super::through::Glance;
use crate::dissect::At;
use crate::facts::Direction;
use crate::states::{MOST_AT_ONCE, Narrow, StateId};

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
    pub fn pass_run<'p>(&mut self, packets: impl Iterator<Item = &'p [u8]>, glance: &Glance) -> usize {
        let Some(Counted { records: [enters, leaves], packets, bytes }) =
            self.run(packets, &glance.quick, glance.place)
        else {
            return 0;
        };
        self.tally_more(enters, Direction::In, packets, bytes);
        self.tally_more(leaves, Direction::Out, packets, bytes);
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
        self.tally_more(counted.records[0], Direction::In, counted.packets, counted.bytes);
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
        let first = self.states.hot.get_mut(number & !1)?;
        let is_its = first.is_joined_for(number, quick.narrow, quick.protocol)
            && now.wrapping_sub(first.seen) < self.least_lifetime_ms;
        if !is_its {
            return None;
        }
        let from = first.joined_sender(number);
        let (mut count, mut bytes) = (0, 0);
        for packet in packets.take(MOST_AT_ONCE.into()) {
            let next = Quick::of(packet, Direction::In);
            let is_next = next.length != 0 && (next.narrow, next.protocol) == (quick.narrow, quick.protocol);
            let told = if is_next { Told::of(&|| packet, &next) } else { None };
            let Some(news) = told.and_then(|told| told.news_of_settled(first, from)) else { break };
            news.note(first, from);
            count += 1;
            bytes += u32::from(next.length);
        }
        first.seen = now;
        let records = [number, number ^ 1].map(|number| first.joined_record(number));
        if !first.count_plainly(from, count, bytes) {
            self.states.count_joined(number, from, count, bytes);
        }
        Some(Counted { records, packets: count, bytes })
    }
}
