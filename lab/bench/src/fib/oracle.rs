//! The judge of all engines: the longest prefix by looking for it at every length, and nothing clever.
use super::family::Family;
use artery_lpm::synthetic::RandomAddress;
use artery_lpm::{Group, NO_GROUP, Prefix};
use artery_wire::Random;
use std::collections::HashMap;

/// All routes by their length, those of the longest first.
pub struct Oracle<A>(Vec<(u8, HashMap<A, Group>)>);

impl<A: Family> Oracle<A> {
    /// Takes note of all routes.
    pub fn new(routes: &[(Prefix<A>, Group)]) -> Oracle<A> {
        let mut lengths: HashMap<u8, HashMap<A, Group>> = HashMap::new();
        for (prefix, group) in routes {
            lengths.entry(prefix.len()).or_default().insert(prefix.first(), *group);
        }
        let mut lengths: Vec<_> = lengths.into_iter().collect();
        lengths.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
        Oracle(lengths)
    }

    /// The group of the longest route that covers an address.
    pub fn lookup(&self, address: A) -> Group {
        let of_length = |(len, routes): &(u8, HashMap<A, Group>)| routes.get(&address.network(*len)).copied();
        self.0.iter().find_map(of_length).unwrap_or(NO_GROUP)
    }

    /// Adds a route, or replaces its group.
    pub fn announce(&mut self, prefix: Prefix<A>, group: Group) {
        match self.0.iter_mut().find(|(len, _)| *len == prefix.len()) {
            Some((_, routes)) => {
                routes.insert(prefix.first(), group);
            }
            None => {
                let at = self.0.partition_point(|(len, _)| *len > prefix.len());
                self.0.insert(at, (prefix.len(), HashMap::from([(prefix.first(), group)])));
            }
        }
    }

    /// Removes the route of a prefix, if there is one.
    pub fn withdraw(&mut self, prefix: Prefix<A>) {
        if let Some((_, routes)) = self.0.iter_mut().find(|(len, _)| *len == prefix.len()) {
            routes.remove(&prefix.first());
        }
    }
}

/// Random addresses, random addresses of prefixes, and the addresses on both sides of prefixes' ends.
pub fn probes<A: Family>(routes: &[(Prefix<A>, Group)], count: usize, seed: u64) -> Vec<A> {
    let mut random = Random::new(seed);
    let mut probes = Vec::with_capacity(count + 6);
    while probes.len() < count {
        probes.push(random.address_in(A::unicast()));
        if routes.is_empty() {
            continue;
        }
        let prefix = routes[random.below(routes.len() as u64) as usize].0;
        probes.extend([prefix.first(), prefix.last(), random.address_in(prefix)]);
        probes.extend(prefix.last().next());
        probes.extend(before(prefix.first()));
    }
    probes
}

/// The address before this one; none before the first.
fn before<A: Family>(address: A) -> Option<A> {
    // All bits from the last one that is set are turned over.
    let zeros = (0..A::BITS).take_while(|&bit| address.field(A::BITS - 1 - bit, 1) == 0).count() as u8;
    let kept = A::BITS.checked_sub(zeros + 1)?;
    Some(address.network(kept).or(A::MAX ^ A::MAX.network(kept + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_lpm::synthetic::{generate_prefixes, random_groups};

    #[test]
    fn the_oracle_agrees_with_a_linear_scan() {
        let mut routes = random_groups(&generate_prefixes::<u32>(2000, 1), 64, 1);
        routes.push((Prefix::ALL, 99));
        let oracle = Oracle::new(&routes);
        for address in probes(&routes, 2000, 2) {
            let covering = routes.iter().filter(|(prefix, _)| prefix.contains(address));
            let longest = covering.max_by_key(|(prefix, _)| prefix.len());
            assert_eq!(Some(oracle.lookup(address)), longest.map(|route| route.1));
        }
    }

    #[test]
    fn the_address_before_is_one_less() {
        for address in [1u32, 2, 3, 0x8000_0000, 0x0a00_0000, u32::MAX, 0x0100] {
            assert_eq!(before(address), Some(address - 1));
        }
        assert_eq!(before(0u32), None);
        assert_eq!(before(1u128 << 125), Some((1u128 << 125) - 1));
    }
}
