//! No engine is timed before its answers are right.
use super::engine::{BURST, Engine};
use super::family::Family;
use super::oracle::{Oracle, probes};
use super::updates::Routes;
use anyhow::bail;
use artery_lpm::synthetic::RandomAddress;
use artery_lpm::{Address, Group, Prefix};
use artery_wire::Random;
use std::collections::BTreeMap;
use std::fmt;

/// Batches of random updates; one more undoes them all.
const BATCHES: usize = 8;
/// Addresses to each update of those batches, about.
const ADDRESSES_AN_UPDATE: usize = 100;
/// Groups that updates give.
const GROUPS: u64 = 64;

/// A route's new group; none to withdraw it.
type Update<A> = (Prefix<A>, Option<Group>);

/// What every engine with a table has to answer: as the table is, after each of several batches of random
/// updates, and after all has been undone. The oracle is asked once for all engines.
pub struct Gate<A> {
    steps: Vec<Step<A>>,
}

/// Updates, and the right answers after them.
struct Step<A> {
    updates: Vec<Update<A>>,
    addresses: Vec<A>,
    right: Vec<Group>,
}

/// What engines have answered rightly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Engines that were loaded and checked.
    pub engines: usize,
    /// Batches of updates that each went through.
    pub batches: usize,
    /// Updates of all engines.
    pub updates: usize,
    /// Addresses of all engines, each looked up alone and in a batch.
    pub addresses: usize,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, other: Checked) {
        self.engines += other.engines;
        self.batches = self.batches.max(other.batches);
        self.updates += other.updates;
        self.addresses += other.addresses;
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { engines, batches, updates, addresses } = self;
        write!(
            f,
            "{engines} loaded engines agreed with the oracle on {addresses} random and boundary addresses in \
             all, as loaded and after each of {batches} batches of updates ({updates} in all), the last of \
             which undid the others"
        )
    }
}

impl<A: Family> Gate<A> {
    /// Draws updates and about `count` addresses, and asks the oracle.
    pub fn new(routes: &Routes<A>, count: usize) -> Gate<A> {
        let mut oracle = Oracle::new(routes);
        let mut steps = vec![Step::new(&oracle, Vec::new(), probes(routes, count / 2, 11))];
        let mut churn =
            Churn { routes, random: Random::new(12), before: BTreeMap::new(), touched: Vec::new() };
        for number in 0..=BATCHES {
            let updates = match number {
                BATCHES => churn.undo(),
                _ => churn.batch((count / ADDRESSES_AN_UPDATE / BATCHES).max(16)),
            };
            updates.iter().for_each(|&(prefix, group)| match group {
                Some(group) => oracle.announce(prefix, group),
                None => oracle.withdraw(prefix),
            });
            // Mostly where something has changed.
            let changed: Vec<_> =
                updates.iter().map(|&(prefix, group)| (prefix, group.unwrap_or(0))).collect();
            let (share, seed) = (count / 2 / (BATCHES + 1), 20 + 2 * number as u64);
            let near = [probes(&changed, share * 3 / 4, seed), probes(routes, share / 4, seed + 1)].concat();
            steps.push(Step::new(&oracle, updates, near));
        }
        Gate { steps }
    }

    /// Takes an engine with the table through all steps; afterwards it has the table again.
    pub fn check(&self, engine: &mut dyn Engine<A>) -> anyhow::Result<Checked> {
        let mut checked = Checked { engines: 1, batches: self.steps.len() - 1, ..Checked::default() };
        for (number, step) in self.steps.iter().enumerate() {
            for &(prefix, group) in &step.updates {
                match group {
                    Some(group) => engine.announce(prefix, group),
                    None => engine.withdraw(prefix),
                }
            }
            step.compare(engine, number)?;
            checked.updates += step.updates.len();
            checked.addresses += step.addresses.len();
        }
        Ok(checked)
    }
}

/// Compares one engine with the oracle on about `count` addresses.
pub fn check<A: Family>(
    engine: &mut dyn Engine<A>,
    routes: &Routes<A>,
    count: usize,
) -> anyhow::Result<Checked> {
    Gate::new(routes, count).check(engine)
}

impl<A: Family> Step<A> {
    fn new(oracle: &Oracle<A>, updates: Vec<Update<A>>, addresses: Vec<A>) -> Step<A> {
        let right = addresses.iter().map(|&address| oracle.lookup(address)).collect();
        Step { updates, addresses, right }
    }

    fn compare(&self, engine: &mut dyn Engine<A>, number: usize) -> anyhow::Result<()> {
        let name = engine.name();
        let reader = engine.reader();
        for (burst, right) in self.addresses.chunks(BURST).zip(self.right.chunks(BURST)) {
            let (mut many, mut each) = ([0; BURST], [0; BURST]);
            reader.batch(burst, &mut many[..burst.len()]);
            reader.each(burst, &mut each[..burst.len()]);
            for (way, found) in [("batch", many), ("single lookup", each)] {
                let wrong = (0..burst.len()).find(|&at| found[at] != right[at]);
                let Some(at) = wrong else { continue };
                let (found, right, address) = (found[at], right[at], burst[at].to_ip());
                bail!(
                    "{name}, after {number} batches of updates: {way} says {found} for {address}, not {right}"
                );
            }
        }
        reader.rest();
        Ok(())
    }
}

/// Draws updates and remembers what there was before.
struct Churn<'a, A> {
    routes: &'a Routes<A>,
    random: Random,
    before: BTreeMap<Prefix<A>, Option<Group>>,
    touched: Vec<Prefix<A>>,
}

impl<A: Address> Churn<'_, A> {
    fn batch(&mut self, count: usize) -> Vec<Update<A>> {
        let count = if self.routes.is_empty() { 0 } else { count };
        (0..count).map(|_| self.update()).collect()
    }

    fn update(&mut self) -> Update<A> {
        let (prefix, is_new) = match self.random.below(4) {
            0 => (self.below_a_route(), true),
            1 if !self.touched.is_empty() => (*self.one_of(|churn| &churn.touched), false),
            _ => (self.one_of(|churn| churn.routes).0, false),
        };
        let was = self.routes.binary_search_by_key(&prefix, |route| route.0).ok().map(|at| self.routes[at].1);
        if self.before.insert(prefix, was).is_none() {
            self.touched.push(prefix);
        }
        let group = 1 + self.random.below(GROUPS) as Group;
        (prefix, (is_new || self.random.percent(50)).then_some(group))
    }

    fn one_of<T>(&mut self, list: impl Fn(&Self) -> &[T]) -> &T {
        let at = self.random.below(list(self).len() as u64) as usize;
        &list(self)[at]
    }

    /// A prefix a few bits longer than that of a route which covers it.
    fn below_a_route(&mut self) -> Prefix<A> {
        let above = self.one_of(|churn| churn.routes).0;
        let len = above.len() + 1 + self.random.below(8) as u8;
        Prefix::of(self.random.address_in(above), len.min(A::BITS))
    }

    fn undo(&mut self) -> Vec<Update<A>> {
        std::mem::take(&mut self.before).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::radix::Radix;
    use super::*;
    use crate::fib::catalog::Catalog;
    use crate::fib::engine::Reader;
    use artery_lpm::synthetic::{generate_prefixes, random_groups};

    fn all_agree<A: Catalog>() {
        let routes = random_groups(&generate_prefixes::<A>(3000, 1), 64, 1);
        let gate = Gate::new(&routes, 40_000);
        let mut all = Checked::default();
        for entry in A::engines() {
            let mut engine = (entry.load)(&routes).unwrap();
            assert_eq!(engine.name(), entry.name);
            all += gate.check(&mut *engine).unwrap();
        }
        assert_eq!((all.engines, all.batches), (A::engines().len(), BATCHES + 1));
        assert!(all.addresses >= all.engines * 38_000 && all.updates > all.engines * 500, "{all}");
        assert!(all.to_string().contains(&format!("{} in all", all.updates)), "{all}");
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
    fn a_table_of_five_routes_and_one_of_none_can_be_checked() {
        let routes = random_groups(&generate_prefixes::<u32>(5, 1), 64, 1);
        assert_eq!(check(&mut loaded(&routes), &routes, 1000).unwrap().batches, BATCHES + 1);
        assert_eq!(check(&mut loaded(&[]), &[], 1000).unwrap().updates, 0);
    }

    fn loaded(routes: &Routes<u32>) -> Radix<u32> {
        let mut engine = Radix::default();
        routes.iter().for_each(|&(prefix, group)| engine.insert(prefix, group));
        engine
    }

    #[test]
    fn an_engine_that_lacks_a_route_does_not_pass() {
        let routes = random_groups(&generate_prefixes::<u32>(1000, 1), 64, 1);
        let error = check(&mut loaded(&routes[1..]), &routes, 20_000).unwrap_err().to_string();
        assert!(error.contains("after 0 batches"), "{error}");
    }

    /// An engine that works until so many updates have been made, and then takes no more.
    struct Tired {
        engine: Radix<u32>,
        left: usize,
    }

    impl Tired {
        fn works(&mut self) -> bool {
            self.left = self.left.saturating_sub(1);
            self.left > 0
        }
    }

    impl Engine<u32> for Tired {
        fn name(&self) -> String {
            "tired".into()
        }
        fn reader(&mut self) -> &mut dyn Reader<u32> {
            self.engine.reader()
        }
        fn announce(&mut self, prefix: Prefix<u32>, group: Group) {
            if self.works() {
                self.engine.announce(prefix, group);
            }
        }
        fn withdraw(&mut self, prefix: Prefix<u32>) {
            if self.works() {
                self.engine.withdraw(prefix);
            }
        }
        fn bytes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn answers_are_compared_after_every_batch() {
        let routes = random_groups(&generate_prefixes::<u32>(1000, 1), 64, 1);
        let gate = Gate::new(&routes, 20_000);
        let batch = gate.steps[1].updates.len();
        for number in 1..=BATCHES {
            // It fails in the middle of this batch.
            let mut engine = Tired { engine: loaded(&routes), left: batch * number - batch / 2 };
            let error = gate.check(&mut engine).unwrap_err().to_string();
            assert!(error.contains(&format!("after {number} batches")), "{error}");
        }
    }

    #[test]
    fn an_engine_has_its_table_again_after_the_check() {
        let routes = random_groups(&generate_prefixes::<u32>(1000, 1), 64, 1);
        let mut engine = loaded(&routes);
        let gate = Gate::new(&routes, 20_000);
        gate.check(&mut engine).unwrap();
        let right = Oracle::new(&routes);
        let addresses = probes(&routes, 20_000, 99);
        Step::new(&right, Vec::new(), addresses).compare(&mut engine, 0).unwrap();
    }
}
