//! Packets without a state: rules are evaluated, and may create a state.
use super::translator::{Translator, translated_key};
use super::{Filter, FilterVerdict, LimitCounter, PacketLookup, Passed, Random, RouteTo, Rules, answer};
use crate::dissect::{Dissected, FilterDropReason};
use crate::evaluate::{Decision, Failure, RuleId, RuleOutcome, Surroundings};
use crate::facts::{Direction, Facts, Family};
use crate::log::LogAction;
use crate::options::{Limit, Timeout};
use crate::rule::{Action, Binding, RouteKind, Rule, SourceTrack, StateKeeping};
use crate::scrub;
use crate::sources::{Scope, SourceKey};
use crate::states::{CannotInsert, Cold, Extra, Hot, Key, NewState, flag};
use crate::track::{Peer, Segment, Stage};
use crate::translate::{FiveTuple, rewrite_ends};
use artery_wire::{IpProtocol, TcpFlags};
use std::net::IpAddr;
use std::time::Duration;

/// What rules said of a packet, and how it was translated meanwhile.
pub(super) struct Ruling {
    pub(super) outcome: RuleOutcome,
    /// What the packet is on the other side.
    pub(super) facts: Facts,
    kept: Option<u32>,
    given: Option<IpAddr>,
    pub(super) gateway: Option<IpAddr>,
}

impl From<Failure> for FilterDropReason {
    fn from(failure: Failure) -> FilterDropReason {
        match failure {
            Failure::Translate => FilterDropReason::Translate,
            Failure::Depth => FilterDropReason::Match,
        }
    }
}

impl Filter {
    /// Asks rules about a packet.
    #[inline(never)]
    pub(super) fn evaluate_rules(
        &mut self,
        bytes: &mut [u8],
        mut seen: Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
    ) -> FilterVerdict {
        // A record that is made now may have the number of one for which packets are still counted.
        self.end_batch();
        let ruling = self.match_rules(&seen, look, rules, false);
        let outcome = &ruling.outcome;
        // As pf counts: whatever rules decide. Those that they block are counted with all that are dropped.
        if outcome.decision == Decision::Pass {
            self.counted.reasons[FilterDropReason::Match as usize] += 1;
        }
        rules.compiled.count_packet(outcome, &self.scratch, &ruling.facts, &self.counters);
        self.count_tables(&seen, look, rules, &ruling);
        self.log_ruling(bytes, &seen, look, rules, outcome);
        match outcome.decision {
            Decision::Pass if seen.has_options && !outcome.allows_options => {
                FilterVerdict::Drop(FilterDropReason::IpOption)
            }
            Decision::Pass => match self.let_pass(bytes, &mut seen, look, rules, &ruling) {
                Ok(passed) => FilterVerdict::Pass(passed),
                Err(reason) => FilterVerdict::Drop(reason),
            },
            Decision::Block(told) => {
                self.queue_reply(answer::to_blocked(bytes, &seen, told, look.at.has_partial_checksum));
                FilterVerdict::Drop(FilterDropReason::Match)
            }
            Decision::Fail(failure) => FilterVerdict::Drop(failure.into()),
        }
    }

    /// Counts a packet for the tables of the rule that decided about it, by the addresses that this saw.
    fn count_tables(&self, seen: &Dissected, look: &PacketLookup, rules: &Rules<'_, '_>, ruling: &Ruling) {
        let RuleOutcome { rule: Some(id), nat, redirect, .. } = ruling.outcome else { return };
        let translates = nat == Some(id) || redirect == Some(id);
        let facts = if translates { seen.rule_facts(&look.at) } else { ruling.facts };
        rules.compiled.count_tables(id, &facts, self.worker, rules.turn);
    }

    pub(super) fn match_rules(
        &mut self,
        seen: &Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
        is_question: bool,
    ) -> Ruling {
        let mut facts = seen.rule_facts(&look.at);
        let mut chance = Random::from_seed(self.random.next_u64());
        let mut draw = || chance.next_u32();
        let mut translator = Translator {
            pools: &mut self.pools,
            compiled: rules.compiled,
            turn: rules.turn,
            states: &self.states,
            assigned: &self.assigned,
            sources: &mut self.sources,
            source_limit: self.settings.limits.limit(Limit::SourceNodes),
            random: &mut self.random,
            seen,
            now_ms: self.now_ms,
            kept: None,
            given: None,
        };
        let mut surroundings = Surroundings {
            turn: rules.turn,
            routes: rules.routes,
            now: Duration::from_millis(self.now_ms),
            random: &mut draw,
            translate: &mut translator,
            is_question,
        };
        let outcome =
            rules.compiled.evaluate(&mut facts, &mut surroundings, &mut self.scratch, &self.counters);
        let pool = outcome.rule.and_then(|id| Some((id, rules.compiled.rule(id).rule.route.as_ref()?)));
        let is_led = outcome.decision == Decision::Pass;
        let gateway =
            pool.filter(|_| is_led).and_then(|(id, (_, pool))| translator.choose_gateway(id, pool, &facts));
        let (kept, given) = (translator.kept, translator.given);
        Ruling { outcome, facts, kept, given, gateway }
    }

    fn log_ruling(
        &mut self,
        bytes: &[u8],
        seen: &Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
        outcome: &RuleOutcome,
    ) {
        if self.scratch.logged().is_empty() {
            return;
        }
        for logged in self.scratch.logged().to_vec() {
            // A record holds what its own rule says, whatever a later one decides.
            let action = match &rules.compiled.rule(logged.rule).rule.action {
                Action::Pass if Some(logged.rule) == outcome.rule && outcome.decision != Decision::Pass => {
                    LogAction::Block
                }
                Action::Pass => LogAction::Pass,
                Action::Block(_) => LogAction::Block,
                Action::Match | Action::Anchor(_) => LogAction::Match,
            };
            let (rule, anchor) = (Some(logged.rule), logged.anchor);
            self.log_packet(bytes, seen, look, rules, logged.interface, rule, anchor, action);
        }
    }

    /// Does what else rules said of a packet that passes.
    fn let_pass(
        &mut self,
        bytes: &mut [u8],
        seen: &mut Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
        ruling: &Ruling,
    ) -> Result<Passed, FilterDropReason> {
        let outcome = &ruling.outcome;
        let mut passed = Passed { tag: outcome.tag, ..Passed::default() };
        let keeps = outcome.keep != StateKeeping::No && !seen.is_fragment && !seen.is_icmp_error();
        if keeps && let Some(id) = outcome.rule {
            let number = self.create_state(bytes, seen, look, rules, ruling, id)?;
            passed.state = Some(self.states.state_id(number));
            self.states.link_states(look.hint, number);
            // From here on both count the same packets, whatever has not come through before.
            self.states.absorb_counts(look.hint);
            if self.states.hot[number as usize].peers[0].stage == Stage::PROXY_SOURCE {
                let high = self.states.hot[number as usize].peers[0].high;
                self.send_syn_ack(number, seen, high);
                return Err(FilterDropReason::Synproxy);
            }
            self.translate_packet(number, bytes, seen, look, true);
        } else if !seen.is_fragment && !seen.is_icmp_error() {
            let (addresses, ports) = translated_key(&ruling.facts, seen).packet_ends(look.at.direction);
            rewrite_ends(bytes, seen, FiveTuple { addresses, ports });
        }
        self.apply_actions(bytes, seen, ruling, &mut passed);
        Ok(passed)
    }

    /// Applies the changes that rules make to a packet.
    fn apply_actions(&mut self, bytes: &mut [u8], seen: &Dissected, ruling: &Ruling, passed: &mut Passed) {
        let actions = &ruling.outcome.actions;
        if actions.scrub.is_given {
            scrub::apply(bytes, seen, &actions.scrub, self.random.next_u32() as u16);
        }
        if let Some(tos) = actions.tos {
            scrub::set_tos(bytes, seen.family, tos);
        }
        passed.priority =
            actions.priority.map(|(all, urgent)| if seen.tos & 0x10 != 0 { urgent } else { all });
        let gateway = ruling.gateway.filter(|_| ruling.outcome.route == Some(RouteKind::RouteTo));
        self.route_to = RouteTo { routing_table: actions.routing_table, gateway };
        passed.has_way = self.route_to != RouteTo::default();
    }

    fn create_state(
        &mut self,
        bytes: &[u8],
        seen: &Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
        ruling: &Ruling,
        id: RuleId,
    ) -> Result<u32, FilterDropReason> {
        let (record, rule) = self.find_record(rules, id, ruling.outcome.anchor);
        self.check_rule(record)?;
        let source = self.count_source(record, seen)?;
        let also: Vec<RuleId> =
            self.scratch.matched().iter().chain(&ruling.outcome.anchor).copied().collect();
        let also: Vec<u32> = also.into_iter().map(|id| self.find_record(rules, id, None).0).collect();
        let mut hot = self.first_line(seen, bytes, look, &rule, record);
        let moved = self.begin_handshake(&mut hot, seen, look, ruling.outcome.keep);
        let keys = self.state_keys(seen, look, &ruling.facts);
        let cold = Cold {
            packets: [1, 0],
            bytes: [seen.end.into(), 0],
            created_ms: self.now_ms,
            moved: [moved, 0],
            interface: look.at.interface,
            is_exported: rule.state.options.is_pflow,
            ..Cold::FREE
        };
        let mut extra = build_extra(ruling, [source, ruling.kept], also.clone(), bytes, seen, look);
        if rule.max_packet_rate.is_some() {
            extra.get_or_insert_default().has_rate = true;
        }
        let birth = NewState { keys, hot, cold, extra: extra.map(Box::new), beside: look.hint };
        match self.states.insert(birth) {
            Ok(number) => {
                self.count_new_state(id, record, &also, ruling);
                self.record_rewrites(number);
                Ok(number)
            }
            Err(error) => {
                source.iter().for_each(|source| self.sources.end_state(*source, false, self.now_ms));
                Err(match error {
                    CannotInsert::Full => FilterDropReason::Memory,
                    CannotInsert::Taken => FilterDropReason::StateInsert,
                })
            }
        }
    }

    fn count_new_state(&mut self, id: RuleId, record: u32, also: &[u32], ruling: &Ruling) {
        self.records.use_by_state(record, true);
        also.iter().for_each(|also| self.records.use_by_state(*also, false));
        self.counters.add_state(id);
        if let Some(given) = ruling.given {
            *self.assigned.entry(given).or_default() += 1;
        }
        if let Some(kept) = ruling.kept {
            // A source that keeps an address has as many states as it likes.
            let _ = self.sources.add_state(kept, &crate::sources::Allowance::default());
        }
    }

    fn find_record(
        &mut self,
        rules: &Rules<'_, '_>,
        id: RuleId,
        anchor: Option<RuleId>,
    ) -> (u32, std::sync::Arc<Rule>) {
        let found = rules.compiled.rule(id);
        let anchor = anchor.map(|anchor| rules.compiled.rule(anchor).number);
        let number = self.records.of_rule(id, found, anchor);
        (number, found.rule.clone())
    }

    /// `max` of the rule.
    fn check_rule(&mut self, record: u32) -> Result<(), FilterDropReason> {
        match self.records.get(record) {
            Some(record) if record.max.is_some_and(|max| record.states >= max) => {
                self.counted.limits[LimitCounter::MaxStates as usize] += 1;
                Err(FilterDropReason::StateLimit)
            }
            _ => Ok(()),
        }
    }

    /// The source of a packet, if the rule tracks any.
    fn count_source(&mut self, number: u32, seen: &Dissected) -> Result<Option<u32>, FilterDropReason> {
        let Some(record) = self.records.get(number) else { return Ok(None) };
        let Some(track) = record.source_track else { return Ok(None) };
        let allowance = record.allowance;
        let scope = match track {
            SourceTrack::Global => Scope::Global,
            SourceTrack::Rule => Scope::Rule(number),
        };
        let limit = self.settings.limits.limit(Limit::SourceNodes);
        let key = SourceKey { address: seen.address(0), scope };
        let source = self.sources.find_or_add(key, limit, &allowance, self.now_ms);
        let counted = source.and_then(|source| {
            self.sources.add_state(source, &allowance)?;
            Ok(source)
        });
        counted.map(Some).map_err(|exceeded| {
            self.counted.count_exceeded(exceeded);
            FilterDropReason::SourceLimit
        })
    }

    /// What is known of a connection after its first packet.
    fn first_line(
        &self,
        seen: &Dissected,
        bytes: &[u8],
        look: &PacketLookup,
        rule: &Rule,
        record: u32,
    ) -> Hot {
        let (peers, class) = first_peers(seen, bytes);
        let options = &rule.state.options;
        let is_bound = match options.binding {
            Some(binding) => binding == Binding::Bound,
            None => self.settings.is_bound,
        };
        let flags = [
            (look.at.direction == Direction::Out, flag::OUT),
            (is_bound, flag::BOUND),
            (seen.family == Family::Inet6, flag::SIX),
            (options.is_sloppy, flag::SLOPPY),
        ];
        let flags = flags.iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag);
        Hot {
            peers,
            seen: self.now_ms as u32,
            record,
            protocol: seen.protocol,
            flags,
            class: class as u8,
            ..Hot::FREE
        }
    }

    /// What `modulate` and `synproxy` make of a SYN; returns what the client's numbers are moved by.
    fn begin_handshake(
        &mut self,
        hot: &mut Hot,
        seen: &Dissected,
        look: &PacketLookup,
        keep: StateKeeping,
    ) -> u32 {
        let is_syn = seen.protocol == IpProtocol::TCP
            && seen.flags.contains(TcpFlags::SYN)
            && !seen.flags.contains(TcpFlags::ACK);
        match keep {
            StateKeeping::Modulate if is_syn => {
                hot.flags |= flag::MOVED;
                self.random.next_u32().max(1)
            }
            StateKeeping::Synproxy if is_syn && look.at.direction == Direction::In => {
                hot.peers[0].high = self.random.next_u32();
                hot.peers[0].stage = Stage::PROXY_SOURCE;
                0
            }
            _ => 0,
        }
    }

    /// The keys of wire and stack: the packet's own, and the translated one.
    fn state_keys(&self, seen: &Dissected, look: &PacketLookup, facts: &Facts) -> [Key; 2] {
        let translated = translated_key(facts, seen);
        match look.at.direction {
            Direction::In => [seen.state_key(Direction::In), translated],
            Direction::Out => [translated, seen.state_key(Direction::Out)],
        }
    }
}

/// Both ends after the first packet, and the timeout that holds then.
fn first_peers(seen: &Dissected, bytes: &[u8]) -> ([Peer; 2], Timeout) {
    if seen.protocol == IpProtocol::TCP {
        let is_syn = seen.flags.contains(TcpFlags::SYN);
        let segment = Segment {
            flags: seen.flags,
            seq: seen.seq,
            ack: seen.ack,
            window: seen.window,
            payload: seen.payload,
            scale: if is_syn { scrub::window_scale(bytes, seen) } else { None },
        };
        return ([Peer::first_sender(&segment), Peer::silent()], Timeout::TcpFirst);
    }
    let class = match seen.protocol {
        IpProtocol::UDP => Timeout::UdpFirst,
        IpProtocol::ICMP | IpProtocol::ICMPV6 => return ([Peer::default(); 2], Timeout::IcmpFirst),
        _ => Timeout::OtherFirst,
    };
    ([Peer { stage: Stage::SINGLE, ..Peer::default() }, Peer::default()], class)
}

/// What few states have, if this one has any of it.
fn build_extra(
    ruling: &Ruling,
    sources: [Option<u32>; 2],
    also: Vec<u32>,
    bytes: &[u8],
    seen: &Dissected,
    look: &PacketLookup,
) -> Option<Extra> {
    let (outcome, actions) = (&ruling.outcome, &ruling.outcome.actions);
    let is_synproxy = outcome.keep == StateKeeping::Synproxy && seen.protocol == IpProtocol::TCP;
    let led = |kind| ruling.gateway.filter(|_| outcome.route == Some(kind));
    let is_plain = sources == [None; 2]
        && also.is_empty()
        && !actions.scrub.is_given
        && actions.tos.is_none()
        && actions.priority.is_none()
        && actions.routing_table.is_none()
        && actions.log_all.is_none()
        && outcome.tag == look.at.tag
        && ruling.gateway.is_none()
        && ruling.given.is_none()
        && !is_synproxy;
    if is_plain {
        return None;
    }
    Some(Extra {
        sources,
        also,
        assigned: ruling.given,
        scrub: actions.scrub,
        tos: actions.tos,
        priority: actions.priority,
        tag: outcome.tag,
        routing_table: actions.routing_table,
        log_all: actions.log_all,
        routes: [led(RouteKind::RouteTo), led(RouteKind::ReplyTo)],
        segment_size: if is_synproxy { scrub::segment_size(bytes, seen) } else { None },
        ttl: [seen.ttl, 0],
        ..Extra::default()
    })
}
