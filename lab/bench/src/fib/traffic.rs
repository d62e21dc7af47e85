//! Destination addresses to look up: four models of traffic.
use super::family::Family;
use artery_lpm::synthetic::RandomAddress;
use artery_lpm::{Address, Prefix};
use artery_wire::Random;
use clap::ValueEnum;

/// A model of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Traffic {
    /// Every address of the family's unicast space as likely as any other: 0.0.0.0/0 or 2000::/3.
    Uni,
    /// Every address that a route covers as likely as any other.
    Cov,
    /// Every prefix as likely as any other, then every address in it.
    Pfx,
    /// 100,000 destinations drawn as those of pfx. The n-th destination has frequency 1/n.
    Zipf,
}

impl Traffic {
    /// Every model, in the order of results.
    pub const ALL: [Traffic; 4] = [Traffic::Uni, Traffic::Cov, Traffic::Pfx, Traffic::Zipf];

    /// The short name, as in results.
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Uni => "uni",
            Traffic::Cov => "cov",
            Traffic::Pfx => "pfx",
            Traffic::Zipf => "zipf",
        }
    }

    /// Draws `count` addresses for a table whose prefixes are in order.
    pub fn draw<A: Family>(self, prefixes: &[Prefix<A>], count: usize, seed: u64) -> Vec<A> {
        let mut random = Random::new(seed);
        if prefixes.is_empty() {
            return Traffic::uniform(count, &mut random);
        }
        match self {
            Traffic::Uni => Traffic::uniform(count, &mut random),
            Traffic::Cov => covered(prefixes, count, &mut random),
            Traffic::Pfx => (0..count).map(|_| in_any(prefixes, &mut random)).collect(),
            Traffic::Zipf => zipf(prefixes, count, &mut random),
        }
    }

    fn uniform<A: Family>(count: usize, random: &mut Random) -> Vec<A> {
        (0..count).map(|_| random.address_in(A::unicast())).collect()
    }
}

fn in_any<A: Address>(prefixes: &[Prefix<A>], random: &mut Random) -> A {
    let prefix = prefixes[random.below(prefixes.len() as u64) as usize];
    random.address_in(prefix)
}

/// Draws an outermost prefix by its size, then an address in it.
fn covered<A: Family>(prefixes: &[Prefix<A>], count: usize, random: &mut Random) -> Vec<A> {
    let mut outermost: Vec<Prefix<A>> = Vec::new();
    for prefix in prefixes {
        if outermost.last().is_none_or(|last| !last.covers(*prefix)) {
            outermost.push(*prefix);
        }
    }
    let sums: Vec<f64> = running_sums(outermost.iter().map(|prefix| (-f64::from(prefix.len())).exp2()));
    let in_one = |_| {
        let prefix = outermost[drawn(&sums, random)];
        random.address_in(prefix)
    };
    (0..count).map(in_one).collect()
}

/// How many destinations there are.
const DESTINATIONS: usize = 100_000;

fn zipf<A: Family>(prefixes: &[Prefix<A>], count: usize, random: &mut Random) -> Vec<A> {
    let destinations: Vec<A> = (0..DESTINATIONS).map(|_| in_any(prefixes, random)).collect();
    let sums = running_sums((1..=DESTINATIONS).map(|rank| 1.0 / rank as f64));
    (0..count).map(|_| destinations[drawn(&sums, random)]).collect()
}

/// Sums of the first one, the first two, and so on: what [`drawn`] draws by.
pub(crate) fn running_sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

/// Draws an index by weight.
pub(crate) fn drawn(sums: &[f64], random: &mut Random) -> usize {
    let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let at = unit * sums.last().copied().unwrap_or(0.0);
    sums.partition_point(|sum| *sum <= at).min(sums.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn prefixes() -> Vec<Prefix<u32>> {
        ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"].map(|text| text.parse().unwrap()).to_vec()
    }

    #[test]
    fn covered_traffic_goes_where_routes_are_in_proportion_to_their_size() {
        let addresses = Traffic::Cov.draw(&prefixes(), 10_000, 1);
        assert!(addresses.iter().all(|&address| prefixes().iter().any(|prefix| prefix.contains(address))));
        let in_the_8 = addresses.iter().filter(|address| **address >> 24 == 10).count();
        assert!(in_the_8 > 9990, "a /24 has 1/65536 of the addresses of a /8: {in_the_8}");
    }

    #[test]
    fn prefix_traffic_gives_each_prefix_its_share() {
        let addresses = Traffic::Pfx.draw(&prefixes(), 9000, 1);
        let in_the_24 = addresses.iter().filter(|address| **address >> 24 == 192).count();
        assert!((2700..3300).contains(&in_the_24), "{in_the_24}");
    }

    #[test]
    fn the_first_destination_of_zipf_comes_twice_as_often_as_the_second() {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        let full: Vec<_> = (0..5000u32).map(|n| Prefix::of(n << 16, 16)).collect();
        for address in Traffic::Zipf.draw(&full, 200_000, 1) {
            *counts.entry(address).or_default() += 1;
        }
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let ratio = counts[0] as f64 / counts[1] as f64;
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn uniform_traffic_stays_in_unicast_space() {
        assert!(Traffic::Uni.draw::<u128>(&[], 1000, 1).iter().all(|address| address >> 125 == 1));
    }
}
