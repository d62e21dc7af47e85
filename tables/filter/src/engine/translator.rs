//! New addresses and ports for packets that get a state: what `nat-to`, `rdr-to` and `route-to` say.
use super::Random;
use crate::dissect::{Dissected, address_to_u128};
use crate::evaluate::{CannotTranslate, Compiled, RuleId, Translate};
use crate::facts::{Direction, Facts};
use crate::rule::{Comparison, HostAddress, Pool, PoolAddress, PoolChoice, Rule};
use crate::sources::{Allowance, PoolUse, Scope, SourceKey, Sources};
use crate::states::{Key, States};
use crate::translate::pool::{Choice, ChoiceInput, Rotation, free_port, redirected_port};
use artery_rcu::Turn;
use artery_wire::IpProtocol;
use std::collections::HashMap;
use std::net::IpAddr;

/// Most addresses of a pool that are tried for a packet.
const MOST_TRIED: u128 = 64;

/// Translates a packet during the evaluation of rules.
pub(super) struct Translator<'a, 'r> {
    pub(super) pools: &'a mut HashMap<(RuleId, PoolUse), Rotation>,
    pub(super) compiled: &'a Compiled,
    pub(super) turn: &'a Turn<'r>,
    pub(super) states: &'a States,
    pub(super) assigned: &'a HashMap<IpAddr, u32>,
    pub(super) sources: &'a mut Sources,
    pub(super) source_limit: u32,
    pub(super) random: &'a mut Random,
    pub(super) seen: &'a Dissected,
    pub(super) now_ms: u64,
    /// The source that keeps its address, once there is one.
    pub(super) kept: Option<u32>,
    /// The address that `least-states` gave.
    pub(super) given: Option<IpAddr>,
}

impl Translate for Translator<'_, '_> {
    fn apply_translation(
        &mut self,
        id: RuleId,
        rule: &Rule,
        facts: &mut Facts,
    ) -> Result<(), CannotTranslate> {
        // What has no state of its own is not translated by rules.
        if self.seen.is_fragment || self.seen.is_icmp_error() {
            return Ok(());
        }
        if let Some(pool) = &rule.nat {
            self.apply_nat(id, pool, facts)?;
        }
        match &rule.redirect {
            Some(pool) => self.apply_redirect(id, rule, pool, facts),
            None => Ok(()),
        }
    }
}

impl Translator<'_, '_> {
    fn apply_nat(&mut self, id: RuleId, pool: &Pool, facts: &mut Facts) -> Result<(), CannotTranslate> {
        let old = facts.source;
        let tries = self.build_choice(id, PoolUse::Nat, pool, facts).count().min(MOST_TRIED);
        let is_fixed =
            pool.is_sticky || matches!(pool.choice, PoolChoice::Single | PoolChoice::SourceHash(_));
        for _ in 0..if is_fixed { 1 } else { tries } {
            let address = self.choose_address(id, PoolUse::Nat, pool, facts, old).ok_or(CannotTranslate)?;
            if let Some(port) = self.free_port(pool, address, facts) {
                facts.source = address;
                set_source_port(facts, port);
                return Ok(());
            }
        }
        Err(CannotTranslate)
    }

    /// A port of an address with which answers find this packet's state and no other.
    fn free_port(&mut self, pool: &Pool, address: IpAddr, facts: &Facts) -> Option<u16> {
        let has_ports = matches!(facts.protocol, IpProtocol::TCP | IpProtocol::UDP);
        let is_icmp = matches!(facts.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6);
        let (states, seen, random) = (self.states, self.seen, self.random.next_u32());
        let opposite = match facts.direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let is_free = |port| {
            let mut facts = Facts { source: address, ..*facts };
            set_source_port(&mut facts, port);
            !states.is_taken(&translated_key(&facts, seen), opposite)
        };
        if !has_ports && !is_icmp {
            return is_free(facts.source_port).then_some(facts.source_port);
        }
        free_port(pool, facts.source_port, is_icmp, random, is_free)
    }

    fn apply_redirect(
        &mut self,
        id: RuleId,
        rule: &Rule,
        pool: &Pool,
        facts: &mut Facts,
    ) -> Result<(), CannotTranslate> {
        let old = facts.destination;
        facts.destination =
            self.choose_address(id, PoolUse::Redirect, pool, facts, old).ok_or(CannotTranslate)?;
        if matches!(facts.protocol, IpProtocol::TCP | IpProtocol::UDP) {
            let own = facts.destination_port;
            let first = first_port(rule.destination.port, own);
            facts.destination_port = redirected_port(pool, own, first);
        }
        Ok(())
    }

    /// The next hop that a packet is routed to, from a pool.
    pub(super) fn choose_gateway(&mut self, id: RuleId, pool: &Pool, facts: &Facts) -> Option<IpAddr> {
        self.choose_address(id, PoolUse::Route, pool, facts, facts.destination)
    }

    /// An address of a pool: the one that the source keeps, if it does.
    fn choose_address(
        &mut self,
        id: RuleId,
        pool_use: PoolUse,
        pool: &Pool,
        facts: &Facts,
        old: IpAddr,
    ) -> Option<IpAddr> {
        let source = if pool.is_sticky { self.find_source(id, pool_use, facts) } else { None };
        if let Some(kept) = source.and_then(|source| self.sources.get(source)?.kept) {
            self.kept = source;
            return Some(kept);
        }
        let (random, led) = (self.random.next_u128(), self.assigned);
        let states = |address| led.get(&address).copied().unwrap_or(0);
        let wish = ChoiceInput { addresses: [facts.source, facts.destination], old, random, states: &states };
        let choice = self.build_choice(id, pool_use, pool, facts);
        let key = self.random.next_key();
        let rotation = self.pools.entry((id, pool_use)).or_insert_with(|| Rotation::new(key));
        let address = choice.choose_address(pool, rotation, &wish)?;
        if let Some(source) = source {
            self.sources.set_kept_address(source, address);
            self.kept = Some(source);
        }
        if pool.choice == PoolChoice::LeastStates {
            self.given = Some(address);
        }
        Some(address)
    }

    fn find_source(&mut self, id: RuleId, pool_use: PoolUse, facts: &Facts) -> Option<u32> {
        let key = SourceKey { address: facts.source, scope: Scope::Pool(id, pool_use) };
        self.sources.find_or_add(key, self.source_limit, &Allowance::default(), self.now_ms).ok()
    }

    /// The addresses of a pool, as they are now.
    fn build_choice(&self, id: RuleId, pool_use: PoolUse, pool: &Pool, facts: &Facts) -> Choice {
        let record = self.compiled.rule(id);
        let table = match pool_use {
            PoolUse::Nat => &record.nat_table,
            PoolUse::Redirect => &record.redirect_table,
            PoolUse::Route => &record.route_table,
        };
        match (&pool.address, table) {
            (PoolAddress::Host(HostAddress::Network(address, length), _), _) => {
                Choice::new(&[(*address, *length)], facts.family())
            }
            (_, Some(table)) => Choice::new(table.members(self.turn), facts.family()),
            _ => Choice::default(),
        }
    }
}

/// The key of a packet with these ends, on the side of the filter where it goes.
pub(super) fn translated_key(facts: &Facts, seen: &Dissected) -> Key {
    let mut ports = [facts.source_port, facts.destination_port];
    if matches!(facts.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) {
        ports = seen.ports;
        ports[seen.icmp_end()] = facts.source_port;
    }
    let translated = Dissected {
        addresses: [address_to_u128(facts.source), address_to_u128(facts.destination)],
        ports: if has_ports(facts.protocol) { ports } else { seen.ports },
        ..*seen
    };
    translated.state_key(facts.direction)
}

/// Whether translation moves ports, or what stands for them.
fn has_ports(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6)
}

fn set_source_port(facts: &mut Facts, port: u16) {
    facts.source_port = port;
    if matches!(facts.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) {
        facts.destination_port = port;
    }
}

/// The first port that a rule tests for.
fn first_port(asked: Option<Comparison<u16>>, own: u16) -> u16 {
    match asked {
        Some(Comparison::Equal(port) | Comparison::Range(port, _) | Comparison::GreaterOrEqual(port)) => port,
        Some(Comparison::Between(port, _) | Comparison::Greater(port)) => port.saturating_add(1),
        _ => own,
    }
}
