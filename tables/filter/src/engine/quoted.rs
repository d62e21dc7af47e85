//! Errors of ICMP: they belong to the state of the packet that they quote.
use super::{Filter, FilterVerdict, PacketLookup, Passed, Rules, is_forward};
use crate::dissect::{Dissected, FilterDropReason, dissect_quoted};
use crate::facts::Direction;
use crate::states::flag;
use crate::track::at_or_after;
use crate::translate::{FiveTuple, rewrite_error};
use artery_wire::IpProtocol;

impl Filter {
    /// What becomes of an error.
    pub(super) fn test_error(
        &mut self,
        bytes: &mut [u8],
        look: &PacketLookup,
        mut seen: Dissected,
        rules: &Rules<'_, '_>,
    ) -> FilterVerdict {
        let quoted = &bytes[seen.upper as usize + 8..seen.end as usize];
        let quoted = match dissect_quoted(quoted) {
            Ok(quoted) => quoted,
            Err(reason) => return FilterVerdict::Drop(reason),
        };
        // What is quoted went the other way.
        let opposite = match look.at.direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let key = quoted.state_key(opposite);
        self.states.counters[0] += 1;
        let found =
            self.states.find_state(&key, self.states.hash(&key), look.at.direction, look.at.interface);
        let Some(number) = found.filter(|number| !self.is_over(*number)) else {
            return self.evaluate_rules(bytes, seen, look, rules);
        };
        if !self.could_have_sent(number, &quoted, opposite) {
            return FilterVerdict::Drop(FilterDropReason::StateMismatch);
        }
        match self.pass_error(number, bytes, look, &mut seen, &quoted, opposite) {
            Ok(()) => {
                let state = Some(self.states.state_id(number));
                FilterVerdict::Pass(Passed { state, tag: look.at.tag, ..Passed::default() })
            }
            Err(reason) => FilterVerdict::Drop(reason),
        }
    }

    /// Whether the number of a quoted segment lies in what its sender could have sent.
    fn could_have_sent(&self, number: u32, quoted: &Dissected, went: Direction) -> bool {
        let hot = self.states.unmerged(number);
        if quoted.protocol != IpProtocol::TCP || hot.has_flag(flag::SLOPPY) {
            return true;
        }
        let from = usize::from(!is_forward(went, hot.flags));
        let (source, destination) = (&hot.peers[from], &hot.peers[1 - from]);
        let is_scaled = source.scale.is_known() && destination.scale.is_known();
        let shift = if is_scaled { destination.scale.shift() } else { 0 };
        let window = u32::from(destination.max_window) << shift;
        // On the side where it comes back, the numbers of a sender that is moved are the moved ones.
        let moved = if hot.has_flag(flag::MOVED) { self.states.cold[number as usize].moved[from] } else { 0 };
        let seq = quoted.seq.wrapping_sub(moved);
        at_or_after(source.high, seq) && at_or_after(seq, source.low.wrapping_sub(window))
    }

    fn pass_error(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        look: &PacketLookup,
        seen: &mut Dissected,
        quoted: &Dissected,
        went: Direction,
    ) -> Result<(), FilterDropReason> {
        self.states.split_pair(number);
        let hot = &self.states.hot[number as usize];
        let side = usize::from(!is_forward(look.at.direction, hot.flags));
        let (is_translated, is_moved) = (hot.has_flag(flag::TRANSLATED), hot.has_flag(flag::MOVED));
        self.states.count_packet(number, side, seen.end);
        if is_moved && quoted.protocol == IpProtocol::TCP {
            let moved = self.states.cold[number as usize].moved[1 - side];
            let at = (seen.upper + 8 + quoted.upper) as usize + 4;
            let old = quoted.seq.wrapping_sub(moved);
            crate::translate::replace_in_error(bytes, seen, at, &old.to_be_bytes())?;
        }
        if is_translated {
            let (addresses, ports) = self.other_key(number, look).packet_ends(went);
            return rewrite_error(bytes, seen, FiveTuple { addresses, ports });
        }
        Ok(())
    }
}
