//! Errors of ICMP: they belong to the state of the packet that they quote.
use super::{Filter, Look, Passed, Rules, Verdict, is_forward};
use crate::dissect::{Dissected, Reason, dissect_quoted};
use crate::facts::Direction;
use crate::states::flag;
use crate::track::at_or_after;
use crate::translate::{Ends, rewrite_error};
use artery_wire::IpProtocol;

impl Filter {
    /// What becomes of an error.
    pub(super) fn test_error(
        &mut self,
        bytes: &mut [u8],
        look: &Look,
        mut seen: Dissected,
        rules: &Rules<'_, '_>,
    ) -> Verdict {
        let quoted = &bytes[seen.upper as usize + 8..seen.end as usize];
        let quoted = match dissect_quoted(quoted) {
            Ok(quoted) => quoted,
            Err(reason) => return Verdict::Drop(reason),
        };
        // What is quoted went the other way.
        let opposite = match look.at.direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let key = quoted.key(opposite);
        self.states.counters[0] += 1;
        let found = self.states.find(&key, self.states.hash(&key), look.at.direction, look.at.interface);
        let Some(number) = found.filter(|number| !self.is_over(*number)) else {
            return self.ask(bytes, seen, look, rules);
        };
        if !self.could_have_sent(number, &quoted, opposite) {
            return Verdict::Drop(Reason::StateMismatch);
        }
        match self.pass_error(number, bytes, look, &mut seen, &quoted, opposite) {
            Ok(()) => {
                let state = Some(self.states.id(number));
                Verdict::Pass(Passed { state, tag: look.at.tag, ..Passed::default() })
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Whether the number of a quoted segment lies in what its sender could have sent.
    fn could_have_sent(&self, number: u32, quoted: &Dissected, went: Direction) -> bool {
        let hot = self.states.alone(number);
        if quoted.protocol != IpProtocol::TCP || hot.has(flag::SLOPPY) {
            return true;
        }
        let from = usize::from(!is_forward(went, hot.flags));
        let (source, destination) = (&hot.peers[from], &hot.peers[1 - from]);
        let is_scaled = source.scale.is_known() && destination.scale.is_known();
        let shift = if is_scaled { destination.scale.shift() } else { 0 };
        let window = u32::from(destination.max_window) << shift;
        // On the side where it comes back, the numbers of a sender that is moved are the moved ones.
        let moved = if hot.has(flag::MOVED) { self.states.cold[number as usize].moved[from] } else { 0 };
        let seq = quoted.seq.wrapping_sub(moved);
        at_or_after(source.high, seq) && at_or_after(seq, source.low.wrapping_sub(window))
    }

    fn pass_error(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        look: &Look,
        seen: &mut Dissected,
        quoted: &Dissected,
        went: Direction,
    ) -> Result<(), Reason> {
        self.states.part(number);
        let hot = &self.states.hot[number as usize];
        let side = usize::from(!is_forward(look.at.direction, hot.flags));
        let (is_translated, is_moved) = (hot.has(flag::TRANSLATED), hot.has(flag::MOVED));
        self.states.count(number, side, seen.end);
        if is_moved && quoted.protocol == IpProtocol::TCP {
            let moved = self.states.cold[number as usize].moved[1 - side];
            let at = (seen.upper + 8 + quoted.upper) as usize + 4;
            let old = quoted.seq.wrapping_sub(moved);
            crate::translate::replace_in_error(bytes, seen, at, &old.to_be_bytes())?;
        }
        if is_translated {
            let (addresses, ports) = self.other_key(number, look).ends(went);
            return rewrite_error(bytes, seen, Ends { addresses, ports });
        }
        Ok(())
    }
}
