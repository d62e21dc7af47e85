//! Sources: how many states and connections each has, how fast it makes them, and which address of a
//! pool is its own.
use crate::evaluate::RuleId;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// Whom a source is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All rules that track globally.
    Global,
    /// One rule, by its record.
    Rule(u32),
    /// A pool of a rule that holds now, whose address it keeps.
    Pool(RuleId, PoolUse),
}

/// What a rule has a pool for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolUse {
    /// The addresses of `nat-to`.
    Nat,
    /// The addresses of `rdr-to`.
    Redirect,
    /// The next hops of `route-to` and `reply-to`.
    Route,
}

/// A source in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceKey {
    /// The source address, of either family.
    pub address: IpAddr,
    /// What it is counted for.
    pub scope: Scope,
}

/// Connections a time: an average that is moved by each, in thousandths of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    count: u64,
    last_ms: u64,
    seconds: u32,
}

impl Rate {
    /// Counts a connection; returns how many there were in the last `seconds`, in thousandths.
    fn record_connection(&mut self, now_ms: u64, seconds: u32) -> u64 {
        let (span, age) = (u64::from(seconds.max(1)) * 1000, now_ms.saturating_sub(self.last_ms));
        self.count = if age >= span { 0 } else { self.count - self.count * age / span };
        (self.last_ms, self.seconds) = (now_ms, seconds);
        self.count += 1000;
        self.count
    }
}

/// What is known of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Who it is, and for whom it is counted.
    pub key: SourceKey,
    /// Number of its states now.
    pub states: u32,
    /// Its connections of TCP that were established.
    pub connections: u32,
    /// The address that it has of a pool.
    pub kept: Option<IpAddr>,
    rate: Rate,
    created_ms: u64,
    idle_since_ms: u64,
}

impl Source {
    /// Writes it as `pfctl -s Sources` shows it. `more` is for a second line: the time, for how long
    /// sources without states are kept, both in milliseconds, and the number of the rule that it is counted
    /// for, if that is known.
    pub fn print_source(
        &self,
        more: Option<(u64, u64, Option<u32>)>,
        out: &mut impl fmt::Write,
    ) -> fmt::Result {
        write!(out, "{}", self.key.address)?;
        if let Some(kept) = self.kept {
            let word = match self.key.scope {
                Scope::Pool(_, PoolUse::Redirect) => "rdr-to",
                Scope::Pool(_, PoolUse::Route) => "route-to",
                _ => "nat-to",
            };
            write!(out, " {word} {kept}")?;
        }
        let (Source { states, connections, .. }, Rate { count, seconds, .. }) = (self, self.rate);
        let (whole, tenths) = (count / 1000, count % 1000 / 100);
        writeln!(out, " ( states {states}, connections {connections}, rate {whole}.{tenths}/{seconds}s )")?;
        let Some((now_ms, kept_ms, rule)) = more else { return Ok(()) };
        write!(out, "   age {}", Clock(now_ms.saturating_sub(self.created_ms)))?;
        if self.states == 0 {
            write!(out, ", expires in {}", Clock((self.idle_since_ms + kept_ms).saturating_sub(now_ms)))?;
        }
        rule.map_or(Ok(()), |rule| write!(out, ", rule {rule}"))?;
        writeln!(out)
    }
}

/// Milliseconds as hours, minutes and seconds.
struct Clock(u64);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

/// Limits of sources that can be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are those of pfctl -s info
pub enum Exceeded {
    MaxStatesPerRule,
    MaxSourceStates,
    MaxSourceNodes,
    MaxSourceConnections,
    MaxSourceRate,
}

/// What a rule allows each source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Sources that the rule may have.
    pub nodes: Option<u32>,
    /// States of a source.
    pub states: Option<u32>,
    /// Established connections of a source.
    pub connections: Option<u32>,
    /// At most so many connections in so many seconds.
    pub rate: Option<(u32, u32)>,
}

/// All sources of one worker.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    by_key: HashMap<SourceKey, u32>,
    sources: Vec<Option<Source>>,
    free: Vec<u32>,
    /// Sources by the rule that they are counted for.
    of_rule: HashMap<u32, u32>,
    /// States of sources that are forgotten, by numbers that must not come to mean others yet.
    orphans: HashMap<u32, u32>,
    /// How often sources were looked for, came and went.
    pub counters: [u64; 3],
}

impl Sources {
    /// How many there are.
    pub fn len(&self) -> u32 {
        self.by_key.len() as u32
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// All sources that exist now.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().flatten()
    }

    /// A source by its number.
    pub fn get(&self, number: u32) -> Option<&Source> {
        self.sources.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Source> {
        self.sources.get_mut(number as usize)?.as_mut()
    }

    /// The source with this key, which is added if there is room; `limit` is for all, the
    /// allowance's for its rule.
    pub fn find_or_add(
        &mut self,
        key: SourceKey,
        limit: u32,
        allowance: &Allowance,
        now_ms: u64,
    ) -> Result<u32, Exceeded> {
        self.counters[0] += 1;
        if let Some(number) = self.by_key.get(&key) {
            return Ok(*number);
        }
        let of_rule = match key.scope {
            Scope::Rule(rule) => self.of_rule.get(&rule).copied().unwrap_or(0),
            Scope::Global | Scope::Pool(..) => 0,
        };
        if allowance.nodes.is_some_and(|nodes| of_rule >= nodes) || self.len() >= limit {
            return Err(Exceeded::MaxSourceNodes);
        }
        Ok(self.add_source(key, now_ms))
    }

    fn add_source(&mut self, key: SourceKey, now_ms: u64) -> u32 {
        let source = Source {
            key,
            states: 0,
            connections: 0,
            kept: None,
            rate: Rate::default(),
            created_ms: now_ms,
            idle_since_ms: now_ms,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.sources.push(None);
            self.sources.len() as u32 - 1
        });
        self.sources[number as usize] = Some(source);
        self.by_key.insert(key, number);
        if let Scope::Rule(rule) = key.scope {
            *self.of_rule.entry(rule).or_default() += 1;
        }
        self.counters[1] += 1;
        number
    }

    /// Counts a state more for a source; an error if the source is at its limit.
    pub fn add_state(&mut self, number: u32, allowance: &Allowance) -> Result<(), Exceeded> {
        let Some(source) = self.get_mut(number) else { return Ok(()) };
        if allowance.states.is_some_and(|most| source.states >= most) {
            return Err(Exceeded::MaxSourceStates);
        }
        source.states += 1;
        Ok(())
    }

    /// Counts an established connection of a source; an error if it exceeds the limit or the rate.
    pub fn add_connection(
        &mut self,
        number: u32,
        allowance: &Allowance,
        now_ms: u64,
    ) -> Result<(), Exceeded> {
        let Some(source) = self.get_mut(number) else { return Ok(()) };
        source.connections += 1;
        let connections = source.connections;
        let rate =
            allowance.rate.map(|(most, seconds)| (most, source.rate.record_connection(now_ms, seconds)));
        if allowance.connections.is_some_and(|most| connections > most) {
            return Err(Exceeded::MaxSourceConnections);
        }
        match rate {
            Some((most, count)) if count > u64::from(most) * 1000 => Err(Exceeded::MaxSourceRate),
            _ => Ok(()),
        }
    }

    /// Makes a source keep an address.
    pub fn set_kept_address(&mut self, number: u32, address: IpAddr) {
        if let Some(source) = self.get_mut(number) {
            source.kept = Some(address);
        }
    }

    /// Counts a state less for a source, and a connection less if it was one.
    pub fn end_state(&mut self, number: u32, was_connection: bool, now_ms: u64) {
        let Some(source) = self.get_mut(number) else { return self.end_orphan(number) };
        source.states = source.states.saturating_sub(1);
        source.connections = source.connections.saturating_sub(was_connection.into());
        source.idle_since_ms = now_ms;
    }

    fn end_orphan(&mut self, number: u32) {
        let Some(states) = self.orphans.get_mut(&number) else { return };
        *states -= 1;
        if *states == 0 {
            self.orphans.remove(&number);
            self.free.push(number);
        }
    }

    /// Forgets sources that had no state for so long.
    pub fn expire_idle(&mut self, now_ms: u64, keep_ms: u64) {
        let is_over =
            |source: &Source| source.states == 0 && now_ms.saturating_sub(source.idle_since_ms) >= keep_ms;
        self.remove_where(is_over);
    }

    /// Forgets sources by their addresses; states that they have stay and are counted no more.
    pub fn remove_matching(&mut self, mut is: impl FnMut(IpAddr) -> bool) -> usize {
        self.remove_where(|source| is(source.key.address))
    }

    /// Forgets which addresses sources keep of pools of rules that are gone; `kept` says what those
    /// are called that stay.
    pub fn renumber_rules(&mut self, kept: &HashMap<RuleId, RuleId>) {
        self.remove_where(
            |source| matches!(source.key.scope, Scope::Pool(rule, _) if !kept.contains_key(&rule)),
        );
        for source in self.sources.iter_mut().flatten() {
            if let Scope::Pool(rule, _) = &mut source.key.scope
                && let Some(new) = kept.get(rule)
            {
                *rule = *new;
            }
        }
        let all = (0..).zip(&self.sources);
        self.by_key = all.filter_map(|(number, source)| Some((source.as_ref()?.key, number))).collect();
    }

    fn remove_where(&mut self, mut is: impl FnMut(&Source) -> bool) -> usize {
        let mut removed = 0;
        for number in 0..self.sources.len() {
            if self.sources[number].as_ref().is_some_and(&mut is) {
                self.remove(number as u32);
                removed += 1;
            }
        }
        removed
    }

    fn remove(&mut self, number: u32) {
        let Some(source) = self.sources[number as usize].take() else { return };
        self.by_key.remove(&source.key);
        if let Scope::Rule(rule) = source.key.scope
            && let Some(count) = self.of_rule.get_mut(&rule)
        {
            *count = count.saturating_sub(1);
        }
        match source.states {
            0 => self.free.push(number),
            states => drop(self.orphans.insert(number, states)),
        }
        self.counters[2] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SourceKey {
        SourceKey { address: IpAddr::from([10, 0, 0, n]), scope: Scope::Rule(1) }
    }

    #[test]
    fn a_rule_has_only_so_many_sources_and_a_source_so_many_states() {
        let (mut sources, allowance) =
            (Sources::default(), Allowance { nodes: Some(2), states: Some(1), ..Allowance::default() });
        let first = sources.find_or_add(key(1), 100, &allowance, 0).unwrap();
        sources.find_or_add(key(2), 100, &allowance, 0).unwrap();
        assert_eq!(sources.find_or_add(key(3), 100, &allowance, 0), Err(Exceeded::MaxSourceNodes));
        assert_eq!(sources.find_or_add(key(1), 100, &allowance, 0), Ok(first));
        assert_eq!(sources.add_state(first, &allowance), Ok(()));
        assert_eq!(sources.add_state(first, &allowance), Err(Exceeded::MaxSourceStates));
        sources.end_state(first, false, 5);
        assert_eq!(sources.add_state(first, &allowance), Ok(()));
    }

    #[test]
    fn the_number_of_a_forgotten_source_is_free_with_its_last_state() {
        let (mut sources, free) = (Sources::default(), Allowance::default());
        let first = sources.find_or_add(key(1), 100, &free, 0).unwrap();
        (0..2).for_each(|_| sources.add_state(first, &free).unwrap());
        assert_eq!(sources.remove_matching(|_| true), 1);
        sources.end_state(first, false, 0);
        assert_ne!(sources.find_or_add(key(2), 100, &free, 0), Ok(first));
        sources.end_state(first, false, 0);
        assert_eq!(sources.find_or_add(key(3), 100, &free, 0), Ok(first));
    }

    #[test]
    fn connections_are_limited_in_number_and_in_rate() {
        let mut sources = Sources::default();
        let few = Allowance { connections: Some(2), ..Allowance::default() };
        let source = sources.find_or_add(key(1), 100, &few, 0).unwrap();
        for expected in [Ok(()), Ok(()), Err(Exceeded::MaxSourceConnections)] {
            assert_eq!(sources.add_connection(source, &few, 0), expected);
        }
        let slow = Allowance { rate: Some((3, 10)), ..Allowance::default() };
        let source = sources.find_or_add(key(2), 100, &slow, 0).unwrap();
        let mut connect = |now_ms| sources.add_connection(source, &slow, now_ms);
        assert!((0..3).all(|_| connect(1000).is_ok()));
        assert_eq!(connect(1000), Err(Exceeded::MaxSourceRate));
        assert_eq!(connect(11_000), Ok(()));
    }

    #[test]
    fn sources_without_states_are_forgotten_in_time() {
        let (mut sources, free) = (Sources::default(), Allowance::default());
        let [busy, _] = [1, 2].map(|n| sources.find_or_add(key(n), 100, &free, 0).unwrap());
        sources.add_state(busy, &free).unwrap();
        sources.expire_idle(4999, 5000);
        assert_eq!(sources.len(), 2);
        sources.expire_idle(5000, 5000);
        assert_eq!(sources.iter().map(|source| source.key).collect::<Vec<_>>(), [key(1)]);
    }
}
