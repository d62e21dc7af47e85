//! Packets without a state: rules are asked, and a state may come of it.
use super::translator::{Translator, key};
use super::{Filter, LimitCounter, Look, Passed, Random, Rules, Verdict, Way, answer};
use crate::dissect::{Dissected, Reason};
use crate::evaluate::{Decision, Failure, Outcome, RuleId, Surroundings};
use crate::facts::{Direction, Facts, Family};
use crate::log::LogAction;
use crate::options::{Limit, Timeout};
use crate::rule::{Action, Binding, Keep, RouteKind, Rule, SourceTrack};
use crate::scrub;
use crate::sources::{Scope, SourceKey};
use crate::states::{Birth, CannotInsert, Cold, Extra, Hot, Key, flag};
use crate::track::{Peer, Segment, Stage};
use crate::translate::{Ends, rewrite};
use artery_wire::{IpProtocol, TcpFlags};
use std::net::IpAddr;
use std::time::Duration;

/// What rules said of a packet, and how it was translated meanwhile.
struct Ruling {
    outcome: Outcome,
    /// What the packet is on the other side.
    facts: Facts,
    kept: Option<u32>,
    given: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

impl Filter {
    /// Asks rules about a packet.
    #[inline(never)]
    pub(super) fn ask(
        &mut self,
        bytes: &mut [u8],
        mut seen: Dissected,
        look: &Look,
        rules: &Rules<'_, '_>,
    ) -> Verdict {
        // A record that is made now may have the number of one for which packets are still counted.
        self.end();
        let ruling = self.rule(&seen, look, rules);
        let outcome = &ruling.outcome;
        // As pf counts: whatever rules decide. Those that they block are counted with all that are dropped.
        if outcome.decision == Decision::Pass {
            self.counted.reasons[Reason::Match as usize] += 1;
        }
        rules.compiled.count(outcome, &self.scratch, &ruling.facts, &self.counters);
        self.count_tables(&seen, look, rules, &ruling);
        self.log_ruling(bytes, &seen, look, rules, outcome);
        match outcome.decision {
            Decision::Pass if seen.has_options && !outcome.allows_options => Verdict::Drop(Reason::IpOption),
            Decision::Pass => match self.let_pass(bytes, &mut seen, look, rules, &ruling) {
                Ok(passed) => Verdict::Pass(passed),
                Err(reason) => Verdict::Drop(reason),
            },
            Decision::Block(told) => {
                self.answer(answer::to_blocked(bytes, &seen, told, look.at.is_unfinished));
                Verdict::Drop(Reason::Match)
            }
            Decision::Fail(Failure::Translate) => Verdict::Drop(Reason::Translate),
            Decision::Fail(Failure::Depth) => Verdict::Drop(Reason::Match),
        }
    }

    /// Counts a packet for the tables of the rule that decided about it, by the addresses that this saw.
    fn count_tables(&self, seen: &Dissected, look: &Look, rules: &Rules<'_, '_>, ruling: &Ruling) {
        let Outcome { rule: Some(id), nat, redirect, .. } = ruling.outcome else { return };
        let translates = nat == Some(id) || redirect == Some(id);
        let facts = if translates { seen.facts(&look.at) } else { ruling.facts };
        rules.compiled.count_tables(id, &facts, self.worker, rules.turn);
    }

    fn rule(&mut self, seen: &Dissected, look: &Look, rules: &Rules<'_, '_>) -> Ruling {
        let mut facts = seen.facts(&look.at);
        let mut chance = Random::of(self.random.word());
        let mut draw = || chance.half();
        let mut translator = Translator {
            pools: &mut self.pools,
            compiled: rules.compiled,
            turn: rules.turn,
            states: &self.states,
            led: &self.led,
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
        };
        let outcome =
            rules.compiled.evaluate(&mut facts, &mut surroundings, &mut self.scratch, &self.counters);
        let pool = outcome.rule.and_then(|id| Some((id, rules.compiled.rule(id).rule.route.as_ref()?)));
        let is_led = outcome.decision == Decision::Pass;
        let gateway =
            pool.filter(|_| is_led).and_then(|(id, (_, pool))| translator.gateway(id, pool, &facts));
        let (kept, given) = (translator.kept, translator.given);
        Ruling { outcome, facts, kept, given, gateway }
    }

    fn log_ruling(
        &mut self,
        bytes: &[u8],
        seen: &Dissected,
        look: &Look,
        rules: &Rules<'_, '_>,
        outcome: &Outcome,
    ) {
        if self.scratch.logged().is_empty() {
            return;
        }
        for logged in self.scratch.logged().to_vec() {
            // A record tells what its own rule says, whatever a later one decides.
            let action = match &rules.compiled.rule(logged.rule).rule.action {
                Action::Pass if Some(logged.rule) == outcome.rule && outcome.decision != Decision::Pass => {
                    LogAction::Block
                }
                Action::Pass => LogAction::Pass,
                Action::Block(_) => LogAction::Block,
                Action::Match | Action::Anchor(_) => LogAction::Match,
            };
            let (rule, anchor) = (Some(logged.rule), logged.anchor);
            self.log(bytes, seen, look, rules, logged.interface, rule, anchor, action);
        }
    }

    /// Does what else rules said of a packet that passes.
    fn let_pass(
        &mut self,
        bytes: &mut [u8],
        seen: &mut Dissected,
        look: &Look,
        rules: &Rules<'_, '_>,
        ruling: &Ruling,
    ) -> Result<Passed, Reason> {
        let outcome = &ruling.outcome;
        let mut passed = Passed { tag: outcome.tag, ..Passed::default() };
        let keeps = outcome.keep != Keep::No && !seen.is_fragment && !seen.is_icmp_error();
        if keeps && let Some(id) = outcome.rule {
            let number = self.create(bytes, seen, look, rules, ruling, id)?;
            passed.state = Some(self.states.id(number));
            self.states.link(look.hint, number);
            // From here on both count the same packets, whatever has not come through before.
            self.states.take_counts(look.hint);
            if self.states.hot[number as usize].peers[0].stage == Stage::PROXY_SOURCE {
                let high = self.states.hot[number as usize].peers[0].high;
                self.greet(number, seen, high);
                return Err(Reason::Synproxy);
            }
            self.change(number, bytes, seen, look, true);
        } else if !seen.is_fragment && !seen.is_icmp_error() {
            let (addresses, ports) = key(&ruling.facts, seen).ends(look.at.direction);
            rewrite(bytes, seen, Ends { addresses, ports });
        }
        self.act(bytes, seen, ruling, &mut passed);
        Ok(passed)
    }

    /// Changes a packet as rules asked.
    fn act(&mut self, bytes: &mut [u8], seen: &Dissected, ruling: &Ruling, passed: &mut Passed) {
        let actions = &ruling.outcome.actions;
        if actions.scrub.is_given {
            scrub::apply(bytes, seen, &actions.scrub, self.random.half() as u16);
        }
        if let Some(tos) = actions.tos {
            scrub::set_tos(bytes, seen.family, tos);
        }
        passed.priority =
            actions.priority.map(|(all, urgent)| if seen.tos & 0x10 != 0 { urgent } else { all });
        let gateway = ruling.gateway.filter(|_| ruling.outcome.route == Some(RouteKind::RouteTo));
        self.way = Way { routing_table: actions.routing_table, gateway };
        passed.has_way = self.way != Way::default();
    }

    /// Makes a state.
    fn create(
        &mut self,
        bytes: &[u8],
        seen: &Dissected,
        look: &Look,
        rules: &Rules<'_, '_>,
        ruling: &Ruling,
        id: RuleId,
    ) -> Result<u32, Reason> {
        let (record, rule) = self.record(rules, id, ruling.outcome.anchor);
        self.check_rule(record)?;
        let source = self.count_source(record, seen)?;
        let also: Vec<RuleId> =
            self.scratch.matched().iter().chain(&ruling.outcome.anchor).copied().collect();
        let also: Vec<u32> = also.into_iter().map(|id| self.record(rules, id, None).0).collect();
        let mut hot = self.first_line(seen, bytes, look, &rule, record);
        let moved = self.begin_handshake(&mut hot, seen, look, ruling.outcome.keep);
        let keys = self.keys(seen, look, &ruling.facts);
        let cold = Cold {
            packets: [1, 0],
            bytes: [seen.end.into(), 0],
            created_ms: self.now_ms,
            moved: [moved, 0],
            interface: look.at.interface,
            ..Cold::FREE
        };
        let mut extra = extra(ruling, [source, ruling.kept], also.clone(), bytes, seen, look);
        if rule.max_packet_rate.is_some() {
            extra.get_or_insert_default().has_rate = true;
        }
        let birth = Birth { keys, hot, cold, extra: extra.map(Box::new), beside: look.hint };
        match self.states.insert(birth) {
            Ok(number) => {
                self.note_birth(id, record, &also, ruling);
                self.note_changes(number);
                Ok(number)
            }
            Err(error) => {
                source.iter().for_each(|source| self.sources.end_state(*source, false, self.now_ms));
                Err(match error {
                    CannotInsert::Full => Reason::Memory,
                    CannotInsert::Taken => Reason::StateInsert,
                })
            }
        }
    }

    fn note_birth(&mut self, id: RuleId, record: u32, also: &[u32], ruling: &Ruling) {
        self.records.use_by_state(record, true);
        also.iter().for_each(|also| self.records.use_by_state(*also, false));
        self.counters.add_state(id);
        if let Some(given) = ruling.given {
            *self.led.entry(given).or_default() += 1;
        }
        if let Some(kept) = ruling.kept {
            // A source that keeps an address has as many states as it likes.
            let _ = self.sources.add_state(kept, &crate::sources::Allowance::default());
        }
    }

    fn record(
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
    fn check_rule(&mut self, record: u32) -> Result<(), Reason> {
        match self.records.get(record) {
            Some(record) if record.max.is_some_and(|max| record.states >= max) => {
                self.counted.limits[LimitCounter::MaxStates as usize] += 1;
                Err(Reason::StateLimit)
            }
            _ => Ok(()),
        }
    }

    /// The source of a packet, if the rule tracks any.
    fn count_source(&mut self, number: u32, seen: &Dissected) -> Result<Option<u32>, Reason> {
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
            self.counted.note_exceeded(exceeded);
            Reason::SourceLimit
        })
    }

    /// What is known of a connection after its first packet.
    fn first_line(&self, seen: &Dissected, bytes: &[u8], look: &Look, rule: &Rule, record: u32) -> Hot {
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
    fn begin_handshake(&mut self, hot: &mut Hot, seen: &Dissected, look: &Look, keep: Keep) -> u32 {
        let is_syn = seen.protocol == IpProtocol::TCP
            && seen.flags.contains(TcpFlags::SYN)
            && !seen.flags.contains(TcpFlags::ACK);
        match keep {
            Keep::Modulate if is_syn => {
                hot.flags |= flag::MOVED;
                self.random.half().max(1)
            }
            Keep::Synproxy if is_syn && look.at.direction == Direction::In => {
                hot.peers[0].high = self.random.half();
                hot.peers[0].stage = Stage::PROXY_SOURCE;
                0
            }
            _ => 0,
        }
    }

    /// The keys of wire and stack: the packet's own, and the translated one.
    fn keys(&self, seen: &Dissected, look: &Look, facts: &Facts) -> [Key; 2] {
        let translated = key(facts, seen);
        match look.at.direction {
            Direction::In => [seen.key(Direction::In), translated],
            Direction::Out => [translated, seen.key(Direction::Out)],
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
        return ([Peer::first(&segment), Peer::silent()], Timeout::TcpFirst);
    }
    let class = match seen.protocol {
        IpProtocol::UDP => Timeout::UdpFirst,
        IpProtocol::ICMP | IpProtocol::ICMPV6 => return ([Peer::default(); 2], Timeout::IcmpFirst),
        _ => Timeout::OtherFirst,
    };
    ([Peer { stage: Stage::SINGLE, ..Peer::default() }, Peer::default()], class)
}

/// What few states have, if this one has any of it.
fn extra(
    ruling: &Ruling,
    sources: [Option<u32>; 2],
    also: Vec<u32>,
    bytes: &[u8],
    seen: &Dissected,
    look: &Look,
) -> Option<Extra> {
    let (outcome, actions) = (&ruling.outcome, &ruling.outcome.actions);
    let is_synproxy = outcome.keep == Keep::Synproxy && seen.protocol == IpProtocol::TCP;
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
        led: ruling.given,
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
