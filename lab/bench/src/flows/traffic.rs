//! Packets to look up: of so many flows, each to a random address in a random routed prefix.

use super::tables::key;
use super::timing::SLICE;
use crate::fib::{Traffic, drawn, running_sums};
use artery_flow::{Flow4, Scope};
use artery_lpm::Prefix;
use artery_wire::Random;

/// Packets that come again and again, at least and at most.
const LEAST: usize = 1 << 20;
const MOST: usize = 1 << 24;
const SEED: u64 = 11;

/// How often packets are of which flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distribution {
    /// Of each as often as of any other.
    Uniform,
    /// Of the n-th with a frequency of 1/n.
    Zipf,
}

impl Distribution {
    pub(super) const ALL: [Distribution; 2] = [Distribution::Uniform, Distribution::Zipf];

    /// What it is called in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipf => "Zipf",
        }
    }

    fn draw(self, flows: u32, count: usize, random: &mut Random) -> Vec<u32> {
        match self {
            Distribution::Uniform => (0..count).map(|_| random.below(flows.into()) as u32).collect(),
            Distribution::Zipf => {
                let sums = running_sums((1..=flows).map(|rank| 1.0 / f64::from(rank)));
                (0..count).map(|_| scattered(drawn(&sums, random) as u32, flows)).collect()
            }
        }
    }
}

/// The flow of a rank: those that have many packets are not side by side in memory because they came first.
fn scattered(rank: u32, flows: u32) -> u32 {
    // A prime that divides none of the numbers of flows.
    const PRIME: u64 = 2_654_435_761;
    (u64::from(rank) * PRIME % u64::from(flows)) as u32
}

pub(super) struct Packets {
    /// Destination addresses, by flow number.
    destinations: Vec<u32>,
    /// By packet: flow and destination, side by side, so that caches are left to what is measured.
    packets: Vec<(u32, u32)>,
}

impl Packets {
    pub(super) fn new(prefixes: &[Prefix<u32>], flows: u32, distribution: Distribution) -> Packets {
        let destinations = Traffic::Pfx.draw(prefixes, flows as usize, SEED);
        let count = (flows as usize).next_power_of_two().clamp(LEAST, MOST);
        let order = distribution.draw(flows, count, &mut Random::new(SEED + 1));
        let packets = order.into_iter().map(|flow| (flow, destinations[flow as usize])).collect();
        Packets { destinations, packets }
    }

    /// How many flows there are.
    pub(super) fn flows(&self) -> u32 {
        self.destinations.len() as u32
    }
    /// The key of a flow.
    pub(super) fn key(&self, scope: Scope, flow: u32) -> Flow4 {
        key(scope, flow, self.destinations[flow as usize])
    }
    /// How many slices of packets there are.
    pub(super) fn slices(&self) -> usize {
        self.packets.len() / SLICE
    }
}

/// The slice of packets that is looked up next.
#[derive(Default)]
pub(super) struct Slice {
    next: usize,
    pub(super) keys: Vec<Flow4>,
    pub(super) addresses: Vec<u32>,
}

impl Slice {
    /// Goes on to the next slice.
    pub(super) fn advance(&mut self, packets: &Packets, scope: Scope) {
        let from = self.next % packets.slices() * SLICE;
        let part = &packets.packets[from..from + SLICE];
        self.next += 1;
        self.keys.clear();
        self.keys.extend(part.iter().map(|(flow, destination)| key(scope, *flow, *destination)));
        self.addresses.clear();
        self.addresses.extend(part.iter().map(|(_, destination)| *destination));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_flow_has_a_rank_of_its_own_and_the_first_comes_most_often() {
        let mut flows: Vec<u32> = (0..1000).map(|rank| scattered(rank, 1000)).collect();
        flows.sort_unstable();
        assert!(flows.into_iter().eq(0..1000));
        let mut counts = HashMap::<u32, u32>::new();
        for flow in Distribution::Zipf.draw(1000, 50_000, &mut Random::new(1)) {
            *counts.entry(flow).or_default() += 1;
        }
        let ratio = f64::from(counts[&scattered(0, 1000)]) / f64::from(counts[&scattered(1, 1000)]);
        assert!((1.7..2.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn packets_go_to_the_addresses_of_their_flows() {
        let prefixes = ["192.0.2.0/24".parse().unwrap()];
        let packets = Packets::new(&prefixes, 10, Distribution::Uniform);
        let mut slice = Slice::default();
        slice.advance(&packets, Scope::Connection);
        assert!(slice.addresses.iter().all(|address| address >> 8 == 0xc0_0002));
        let keys: Vec<Flow4> = (0..10).map(|flow| packets.key(Scope::Connection, flow)).collect();
        assert!(slice.keys.iter().all(|key| keys.contains(key)));
        assert!(keys.iter().all(|key| slice.keys.contains(key)), "1024 packets of ten flows");
    }
}
