//! Packets that have a state.
use super::{Filter, FilterEvent, FilterVerdict, PacketLookup, Passed, RouteTo, Rules, answer, is_forward};
use crate::dissect::{Dissected, FilterDropReason};
use crate::evaluate::RuleId;
use crate::log::{LogAction, LogRecord};
use crate::options::Timeout;
use crate::rule::Flush;
use crate::scrub;
use crate::sources::Exceeded;
use crate::states::{Extra, NONE, Overload, flag};
use crate::track::{Segment, Stage, Tracked, tcp_class, track_segment, track_sloppily};
use crate::translate::{FiveTuple, move_sack, rewrite_ends, set_word};
use artery_wire::{IpProtocol, TcpFlags};
use std::time::Duration;

/// What the state of a packet says of it.
enum StateOutcome {
    Pass,
    Drop(FilterDropReason),
    /// The state was over: it is as if there had been none.
    Gone,
}

impl Filter {
    /// The verdict for a packet with a state; None if the state was over, and rules have to be evaluated.
    #[inline]
    pub(super) fn pass_by_state(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        seen: &mut Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
    ) -> Option<FilterVerdict> {
        let n = number as usize;
        self.states.split_pair(number);
        if self.states.hot[n].has_flag(flag::EXTRA) && self.is_dead_to(number, seen) {
            return Some(FilterVerdict::Drop(FilterDropReason::StateMismatch));
        }
        let is_forward = is_forward(look.at.direction, self.states.hot[n].flags);
        let found = match seen.protocol {
            IpProtocol::TCP => self.track_tcp(number, bytes, seen, is_forward),
            _ => self.track_other(number, is_forward),
        };
        match found {
            StateOutcome::Pass => (),
            StateOutcome::Drop(reason) => return Some(FilterVerdict::Drop(reason)),
            StateOutcome::Gone => return None,
        }
        if seen.has_options && !self.allows_options(number) {
            return Some(FilterVerdict::Drop(FilterDropReason::IpOption));
        }
        let side = usize::from(!is_forward);
        self.states.count_packet(number, side, seen.end);
        if look.hint != NONE && self.states.hot[n].link != look.hint {
            self.states.link_states(look.hint, number);
        }
        let hot = &self.states.hot[n];
        if let Some(rule) = self.records.rule(hot.record) {
            self.counters.add_packet(rule, look.at.direction, seen.end);
        }
        let mut passed =
            Passed { state: Some(self.states.state_id(number)), tag: look.at.tag, ..Passed::default() };
        if hot.has_flag(flag::TRANSLATED | flag::MOVED | flag::EXTRA) {
            if hot.has_flag(flag::EXTRA)
                && let Err(reason) = self.apply_options(number, bytes, seen, look, rules, &mut passed)
            {
                return Some(FilterVerdict::Drop(reason));
            }
            self.translate_packet(number, bytes, seen, look, is_forward);
        }
        Some(FilterVerdict::Pass(passed))
    }

    /// Whether a state is as good as ended for a packet, which must not keep it alive either. A SYN
    /// begins a new connection.
    fn is_dead_to(&self, number: u32, seen: &Dissected) -> bool {
        let is_syn = seen.protocol == IpProtocol::TCP
            && seen.flags.contains(TcpFlags::SYN)
            && !seen.flags.contains(TcpFlags::ACK);
        !is_syn && self.states.extra(number).is_some_and(|extra| extra.is_dead)
    }

    /// Follows a connection of TCP.
    #[inline]
    fn track_tcp(&mut self, number: u32, bytes: &[u8], seen: &Dissected, is_forward: bool) -> StateOutcome {
        let n = number as usize;
        let from = usize::from(!is_forward);
        let hot = &mut self.states.hot[n];
        if hot.peers[0].stage >= Stage::PROXY_SOURCE {
            return self.shake_hands(number, seen, is_forward).map_or(StateOutcome::Pass, StateOutcome::Drop);
        }
        let is_syn = seen.flags.contains(TcpFlags::SYN);
        if is_syn
            && !seen.flags.contains(TcpFlags::ACK)
            && hot.peers.iter().all(|peer| peer.stage >= Stage::ESTABLISHED)
        {
            return self.handle_syn(number, seen, from);
        }
        let ack = if hot.has_flag(flag::MOVED) { self.unmoved_ack(number, seen, from) } else { seen.ack };
        let segment = Segment {
            flags: seen.flags,
            seq: seen.seq,
            ack,
            window: seen.window,
            payload: seen.payload,
            scale: if is_syn { scrub::window_scale(bytes, seen) } else { None },
        };
        let hot = &mut self.states.hot[n];
        let [first, second] = &mut hot.peers;
        let (source, destination) = if is_forward { (first, second) } else { (second, first) };
        let tracked = match hot.flags & flag::SLOPPY {
            0 => track_segment(source, destination, &segment),
            _ => track_sloppily(source, destination, segment.flags),
        };
        match tracked {
            Tracked::Accepted => self.refresh_timeout(number),
            Tracked::Loose => StateOutcome::Pass,
            Tracked::Mismatch => StateOutcome::Drop(FilterDropReason::StateMismatch),
            Tracked::MismatchInHandshake => {
                if !seen.flags.contains(TcpFlags::RST) {
                    self.queue_reply(Some(answer::reset_stray(seen)));
                }
                StateOutcome::Drop(FilterDropReason::StateMismatch)
            }
        }
    }

    #[inline]
    fn refresh_timeout(&mut self, number: u32) -> StateOutcome {
        let hot = &mut self.states.hot[number as usize];
        hot.seen = self.now_ms as u32;
        let (before, [one, other]) = (hot.class, hot.peers.map(|peer| peer.stage));
        let class = tcp_class(one, other) as u8;
        if class == before {
            return StateOutcome::Pass;
        }
        self.states.set_class(number, class);
        let was_opening = before <= Timeout::TcpOpening as u8;
        let is_open = class != Timeout::TcpOpening as u8 && class != Timeout::TcpClosed as u8;
        match was_opening && is_open && !self.record_connection(number) {
            true => StateOutcome::Drop(FilterDropReason::SourceLimit),
            false => StateOutcome::Pass,
        }
    }

    /// A SYN for a connection that is established: both ends find out by a challenge (RFC 5961). For one that
    /// is over, it begins a new one.
    #[cold]
    fn handle_syn(&mut self, number: u32, seen: &Dissected, from: usize) -> StateOutcome {
        let peers = self.states.hot[number as usize].peers;
        if peers.iter().all(|peer| peer.stage >= Stage::FIN_WAIT_2) {
            self.end_state(number);
            return StateOutcome::Gone;
        }
        let (source, destination) = (peers[from], peers[1 - from]);
        let moved = self.states.cold[number as usize].moved[1 - from];
        self.queue_reply(Some(answer::build_challenge_ack(seen, &source, &destination, moved)));
        StateOutcome::Drop(FilterDropReason::StateMismatch)
    }

    /// What a segment acknowledges in the numbers that its addressee chose. An end whose numbers are moved
    /// for the other's sake gets its own difference with its first segment.
    #[cold]
    fn unmoved_ack(&mut self, number: u32, seen: &Dissected, from: usize) -> u32 {
        let n = number as usize;
        let is_proxied = self.states.extra(number).is_some_and(|extra| extra.is_proxied);
        let (hot, cold) = (&mut self.states.hot[n], &mut self.states.cold[n]);
        if hot.peers[from].low == 0 && cold.moved[from] == 0 && !is_proxied {
            cold.moved[from] = self.random.next_u32().wrapping_sub(seen.seq).max(1);
        }
        seen.ack.wrapping_sub(cold.moved[1 - from])
    }

    #[inline]
    fn track_other(&mut self, number: u32, is_forward: bool) -> StateOutcome {
        let n = number as usize;
        let from = usize::from(!is_forward);
        let hot = &mut self.states.hot[n];
        hot.seen = self.now_ms as u32;
        if matches!(hot.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) {
            self.states.set_class(number, Timeout::IcmpError as u8);
            return StateOutcome::Pass;
        }
        hot.peers[from].stage = hot.peers[from].stage.max(Stage::SINGLE);
        if hot.peers[1 - from].stage == Stage::SINGLE {
            hot.peers[1 - from].stage = Stage::MULTIPLE;
        }
        let is_multiple = hot.peers.iter().all(|peer| peer.stage == Stage::MULTIPLE);
        let class = match (hot.protocol, is_multiple) {
            (IpProtocol::UDP, _) => Timeout::of_datagrams(is_multiple),
            (_, false) => Timeout::OtherSingle,
            (_, true) => Timeout::OtherMultiple,
        };
        self.states.set_class(number, class as u8);
        StateOutcome::Pass
    }

    fn allows_options(&self, number: u32) -> bool {
        let record = self.states.hot[number as usize].record;
        self.records.get(record).is_some_and(|record| record.allows_options)
    }

    /// Does what few states want.
    #[inline(never)]
    fn apply_options(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        seen: &mut Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
        passed: &mut Passed,
    ) -> Result<(), FilterDropReason> {
        let is_forward = is_forward(look.at.direction, self.states.hot[number as usize].flags);
        let tsdiff = self.settings.limits.timeout(Timeout::TcpTsdiff);
        let id = self.random.next_u32() as u16;
        let record = self.states.hot[number as usize].record;
        let Some(extra) = self.states.extra_of(number) else { return Ok(()) };
        if extra.has_rate
            && let Some(rule) = self.records.rule(record)
            && !rules.compiled.rate_holds(rule, Duration::from_millis(self.now_ms))
        {
            return Err(FilterDropReason::Match);
        }
        for also in &extra.also {
            if let Some(rule) = self.records.rule(*also) {
                self.counters.add_packet(rule, look.at.direction, seen.end);
            }
        }
        if extra.scrub.reassembles_tcp {
            super::counted::check_tcp(
                extra,
                bytes,
                seen,
                usize::from(!is_forward),
                self.now_ms as u32,
                tsdiff,
            )?;
        }
        if extra.scrub.is_given {
            scrub::apply(bytes, seen, &extra.scrub, id);
        }
        if let Some(tos) = extra.tos {
            scrub::set_tos(bytes, seen.family, tos);
        }
        self.route_to = set_packet_options(extra, seen, is_forward, passed);
        passed.has_way = self.route_to != RouteTo::default();
        if let Some(log) = extra.log_all {
            let rule = self.records.rule(record);
            self.log_packet(bytes, seen, look, rules, log, rule, None, LogAction::Pass);
        }
        Ok(())
    }

    /// Gives a packet the ends and numbers that it has on the other side of the filter.
    #[inline(never)]
    pub(super) fn translate_packet(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        seen: &mut Dissected,
        look: &PacketLookup,
        is_forward: bool,
    ) {
        let hot = &self.states.hot[number as usize];
        if hot.has_flag(flag::MOVED) && seen.protocol == IpProtocol::TCP {
            let moved = self.states.cold[number as usize].moved;
            let from = usize::from(!is_forward);
            set_word(bytes, seen, 4, seen.seq.wrapping_add(moved[from]));
            if seen.flags.contains(TcpFlags::ACK) {
                set_word(bytes, seen, 8, seen.ack.wrapping_sub(moved[1 - from]));
                move_sack(bytes, seen, moved[1 - from]);
            }
        }
        if self.states.hot[number as usize].has_flag(flag::TRANSLATED) {
            let (addresses, ports) = self.other_key(number, look).packet_ends(look.at.direction);
            rewrite_ends(bytes, seen, FiveTuple { addresses, ports });
        }
    }

    /// The key that packets have on the other side of the filter.
    pub(super) fn other_key(&self, number: u32, look: &PacketLookup) -> crate::states::Key {
        let side = match look.at.direction {
            crate::facts::Direction::In => 1,
            crate::facts::Direction::Out => 0,
        };
        self.states.key(number, side)
    }

    /// Counts an established connection for its source; returns whether that was allowed.
    pub(super) fn record_connection(&mut self, number: u32) -> bool {
        let record = self.states.hot[number as usize].record;
        let Some(extra) = self.states.extra_of(number) else { return true };
        let Some(source) = extra.sources[0] else { return true };
        extra.is_connection = true;
        let Some(record) = self.records.get(record) else { return true };
        let allowance = record.allowance;
        match self.sources.add_connection(source, &allowance, self.now_ms) {
            Ok(()) => true,
            Err(exceeded) => {
                self.handle_overload(number, source, exceeded);
                false
            }
        }
    }

    /// A source went too far: it may come into a table, and lose its states.
    fn handle_overload(&mut self, number: u32, source: u32, exceeded: Exceeded) {
        self.counted.count_exceeded(exceeded);
        let record_number = self.states.hot[number as usize].record;
        let overload = self.records.get(record_number).and_then(|record| record.overload.clone());
        let Some(address) = self.sources.get(source).map(|source| source.key.address) else { return };
        self.make_dead(number);
        let Some(Overload { anchor, table, flush }) = overload else { return };
        self.counted.limits[super::LimitCounter::OverloadTable as usize] += 1;
        if flush != Flush::No {
            self.counted.limits[super::LimitCounter::OverloadFlush as usize] += 1;
            self.end_states_of(address, (flush == Flush::Rule).then_some(record_number));
        }
        self.queue_event(FilterEvent::Overload { address, anchor, table, flush });
    }

    /// Puts a packet into the log.
    #[expect(clippy::too_many_arguments, reason = "a record tells all of this")]
    pub(super) fn log_packet(
        &mut self,
        bytes: &[u8],
        seen: &Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
        log: u16,
        rule: Option<RuleId>,
        anchor: Option<RuleId>,
        action: LogAction,
    ) {
        let found = rule.and_then(|rule| rules.compiled.rules().get(rule.0 as usize));
        let caller = anchor.and_then(|anchor| rules.compiled.rules().get(anchor.0 as usize));
        let (path, number) = found.map_or(("", None), |record| (&*record.anchor, Some(record.number)));
        let is_main = path.is_empty();
        let record = LogRecord {
            log,
            action,
            reason: FilterDropReason::Match,
            interface: rules.names.interface(look.at.interface).to_string(),
            anchor: path.to_string(),
            rule: if is_main { number } else { caller.map(|caller| caller.number) },
            rule_in_anchor: number.filter(|_| !is_main),
            family: seen.family,
            direction: look.at.direction,
            length: seen.end,
            packet: bytes[..bytes.len().min(crate::log::SNAP_LENGTH)].to_vec(),
        };
        self.queue_event(FilterEvent::Log(record));
    }
}

/// What a state wants for a packet on its way.
pub(super) fn set_packet_options(
    extra: &Extra,
    seen: &Dissected,
    is_forward: bool,
    passed: &mut Passed,
) -> RouteTo {
    const LOW_DELAY: u8 = 0x10;
    if extra.tag.0 != 0 {
        passed.tag = extra.tag;
    }
    let is_empty_ack = seen.protocol == IpProtocol::TCP && seen.payload == 0 && seen.flags == TcpFlags::ACK;
    passed.priority = extra
        .priority
        .map(|(all, urgent)| if seen.tos & LOW_DELAY != 0 || is_empty_ack { urgent } else { all });
    RouteTo { routing_table: extra.routing_table, gateway: extra.routes[usize::from(!is_forward)] }
}
