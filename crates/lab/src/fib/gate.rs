//! No engine is timed before its answers are right.
use super::engine::{BURST, Engine};
use super::family::Family;
use super::oracle::{Oracle, probes};
use super::updates::Routes;
use anyhow::ensure;
use artery_table::synthetic::Random;
use artery_table::{Group, Prefix};

/// Compares an engine with the oracle: as it is, with a part of the routes withdrawn or changed, and as it was.
pub fn check<A: Family>(engine: &mut dyn Engine<A>, routes: &Routes<A>, count: usize) -> anyhow::Result<()> {
    const UPDATES: usize = 2000;
    let mut oracle = Oracle::new(routes);
    compare(engine, &oracle, &probes(routes, count, 11))?;
    let mut random = Random::new(12);
    let changed: Vec<(Prefix<A>, Group)> =
        (0..UPDATES.min(routes.len())).map(|_| routes[random.below(routes.len() as u64) as usize]).collect();
    for (n, &(prefix, group)) in changed.iter().enumerate() {
        if n % 2 == 0 {
            engine.withdraw(prefix);
            oracle.withdraw(prefix);
        } else {
            engine.announce(prefix, 1 + group % 64);
            oracle.announce(prefix, 1 + group % 64);
        }
    }
    // Mostly where something has changed.
    let near = [probes(&changed, count / 2, 13), probes(routes, count / 10, 14)].concat();
    compare(engine, &oracle, &near)?;
    for &(prefix, group) in &changed {
        engine.announce(prefix, group);
    }
    compare(engine, &Oracle::new(routes), &near)
}

fn compare<A: Family>(engine: &mut dyn Engine<A>, oracle: &Oracle<A>, addresses: &[A]) -> anyhow::Result<()> {
    let name = engine.name();
    let reader = engine.reader();
    for burst in addresses.chunks(BURST) {
        let (mut many, mut each) = ([0; BURST], [0; BURST]);
        reader.batch(burst, &mut many[..burst.len()]);
        reader.each(burst, &mut each[..burst.len()]);
        for (at, &address) in burst.iter().enumerate() {
            let right = oracle.lookup(address);
            let address = address.to_ip();
            ensure!(many[at] == right, "{name}: batch says {} for {address}, not {right}", many[at]);
            ensure!(each[at] == right, "{name}: single lookup says {} for {address}, not {right}", each[at]);
        }
    }
    reader.rest();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::catalog::Catalog;
    use artery_table::synthetic::{prefixes, random_groups};

    fn all_agree<A: Catalog>() {
        let routes = random_groups(&prefixes::<A>(3000, 1), 64, 1);
        for entry in A::engines() {
            let mut engine = (entry.load)(&routes).unwrap();
            assert_eq!(engine.name(), entry.name);
            check(&mut *engine, &routes, 20_000).unwrap();
        }
    }

    #[test]
    fn all_ipv4_engines_agree_with_the_oracle() {
        all_agree::<u32>();
    }

    #[test]
    fn all_ipv6_engines_agree_with_the_oracle() {
        all_agree::<u128>();
    }

    #[test]
    fn an_engine_that_lacks_a_route_does_not_pass() {
        let routes = random_groups(&prefixes::<u32>(1000, 1), 64, 1);
        let mut engine = crate::fib::radix::Radix::<u32>::default();
        routes[1..].iter().for_each(|&(prefix, group)| engine.insert(prefix, group));
        assert!(check(&mut engine, &routes, 20_000).is_err());
    }
}
