//! What the filter would do with a packet, for people who ask. Nothing is counted, logged, created or sent.
use super::known::set_packet_options;
use super::translator::translated_key;
use super::{Filter, PacketLookup, Passed, Rules, is_forward};
use crate::dissect::{Dissected, FilterDropReason, HookContext, dissect_packet, dissect_quoted};
use crate::evaluate::{Counters, Decision, RuleId, RuleOutcome, Scratch};
use crate::facts::{Direction, Tag};
use crate::rule::{BlockReturn, RouteKind, StateKeeping};
use crate::translate::{FiveTuple, rewrite_ends};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The answer to a question about a packet; its bytes are what goes on then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterExplanation {
    /// What decides: a state, rules, or that the filter passes all there.
    pub basis: FilterBasis,
    /// The rule of it: that of the state, or that which decides; None if there is none, or none any more.
    pub rule: Option<RuleId>,
    /// The tag that the packet has afterwards.
    pub tag: Tag,
    /// Where it is sent instead of where it would go: `route-to`.
    pub gateway: Option<IpAddr>,
}

/// What decides about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterBasis {
    /// The filter is disabled, and passes all.
    Disabled,
    /// `set skip on` its interface, which passes it.
    Skipped,
    /// It is a fragment, which waits for the others.
    Fragment,
    /// The state of its connection, which passes it.
    State,
    /// The state of the packet that this ICMP error quotes, which passes it.
    QuotedState,
    /// Rules, or that none matches, pass it; with this kind of state from now on.
    Pass(StateKeeping),
    /// A rule blocks it, also one whose `max-pkt-rate` is reached, and its sender gets this.
    Block(BlockReturn),
    /// It is dropped, though no rule blocks it.
    Drop(FilterDropReason),
}

impl FilterBasis {
    /// Whether the packet goes on.
    pub fn is_pass(self) -> bool {
        !matches!(self, FilterBasis::Fragment | FilterBasis::Block(_) | FilterBasis::Drop(_))
    }
}

impl FilterExplanation {
    fn of_basis(basis: FilterBasis, at: HookContext) -> FilterExplanation {
        FilterExplanation { basis, rule: None, tag: at.tag, gateway: None }
    }
}

impl Filter {
    /// Explains what becomes of a packet that begins with its header of IP, and translates its addresses
    /// and ports as the filter would. Sequence numbers are taken to be those that a connection expects. Where
    /// chance decides (`probability`, a pool in random order, the port of `nat-to`), it is one of the
    /// answers.
    pub fn explain_packet(
        &mut self,
        bytes: &mut [u8],
        at: HookContext,
        rules: &Rules<'_, '_>,
    ) -> FilterExplanation {
        let of = |basis| FilterExplanation::of_basis(basis, at);
        if !self.settings.is_enabled {
            return of(FilterBasis::Disabled);
        }
        if rules.compiled.skips_interface(at.interface) {
            return of(FilterBasis::Skipped);
        }
        let mut seen = match dissect_packet(bytes) {
            Ok(seen) => seen,
            Err(reason) => return of(FilterBasis::Drop(reason)),
        };
        if seen.is_fragment && self.settings.reassemble.is_some() {
            return of(FilterBasis::Fragment);
        }
        let look = self.prepare_lookup(bytes, at, None);
        if let Some(number) = self.state_of_question(bytes, &seen, at) {
            let rule = self.records.rule(self.states.unmerged(number).record);
            return match seen.is_icmp_error() {
                true => FilterExplanation { rule, ..of(FilterBasis::QuotedState) },
                false => {
                    let said = self.explain_state(number, &seen, &look, rules);
                    if said.basis.is_pass() {
                        let (addresses, ports) = self.other_key(number, &look).packet_ends(at.direction);
                        rewrite_ends(bytes, &mut seen, FiveTuple { addresses, ports });
                    }
                    FilterExplanation { rule, ..said }
                }
            };
        }
        self.explain_rules(bytes, seen, &look, rules)
    }

    fn explain_state(
        &self,
        number: u32,
        seen: &Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
    ) -> FilterExplanation {
        let of = |basis| FilterExplanation::of_basis(basis, look.at);
        let Some(extra) = self.states.extra(number) else { return of(FilterBasis::State) };
        let hot = self.states.unmerged(number);
        let now = Duration::from_millis(self.now_ms);
        let rule = self.records.rule(hot.record).filter(|_| extra.has_rate);
        if rule.is_some_and(|rule| !rules.compiled.rate_would_hold(rule, now)) {
            return of(FilterBasis::Block(BlockReturn::Drop));
        }
        let mut passed = Passed { tag: look.at.tag, ..Passed::default() };
        let route = set_packet_options(extra, seen, is_forward(look.at.direction, hot.flags), &mut passed);
        FilterExplanation { tag: passed.tag, gateway: route.gateway, ..of(FilterBasis::State) }
    }

    /// The state that passes a packet, or the one that it quotes.
    fn state_of_question(&self, bytes: &[u8], seen: &Dissected, at: HookContext) -> Option<u32> {
        let key = match seen.is_icmp_error() {
            false => seen.state_key(at.direction),
            true => {
                let quoted = dissect_quoted(bytes.get(seen.upper as usize + 8..seen.end as usize)?).ok()?;
                let opposite = match at.direction {
                    Direction::In => Direction::Out,
                    Direction::Out => Direction::In,
                };
                quoted.state_key(opposite)
            }
        };
        let found = self.states.find_state(&key, self.states.hash(&key), at.direction, at.interface);
        found.filter(|number| !seen.is_fragment && !self.is_over(*number))
    }

    fn explain_rules(
        &mut self,
        bytes: &mut [u8],
        mut seen: Dissected,
        look: &PacketLookup,
        rules: &Rules<'_, '_>,
    ) -> FilterExplanation {
        // What choosing an address and evaluating rules change is put back.
        let (pools, sources, random) = (self.pools.clone(), self.sources.clone(), self.random.clone());
        let counters = std::mem::replace(&mut self.counters, Arc::new(Counters::new(rules.compiled)));
        let scratch = std::mem::replace(&mut self.scratch, Scratch::new(rules.compiled, self.worker));
        let ruling = self.match_rules(&seen, look, rules, true);
        (self.pools, self.sources, self.random) = (pools, sources, random);
        (self.counters, self.scratch) = (counters, scratch);

        let RuleOutcome { decision, rule, keep, tag, route, allows_options, .. } = ruling.outcome;
        let basis = match decision {
            Decision::Pass if seen.has_options && !allows_options => {
                FilterBasis::Drop(FilterDropReason::IpOption)
            }
            Decision::Pass => FilterBasis::Pass(keep),
            Decision::Block(told) => FilterBasis::Block(told),
            Decision::Fail(failure) => FilterBasis::Drop(failure.into()),
        };
        if basis.is_pass() && !seen.is_fragment && !seen.is_icmp_error() {
            let (addresses, ports) = translated_key(&ruling.facts, &seen).packet_ends(look.at.direction);
            rewrite_ends(bytes, &mut seen, FiveTuple { addresses, ports });
        }
        let gateway = ruling.gateway.filter(|_| route == Some(RouteKind::RouteTo));
        FilterExplanation { basis, rule, tag, gateway }
    }
}
