//! Tables and destinations of the experiment.
use artery_bench::fib::Traffic;
use artery_lpm::{Group, Prefix};

/// A table to forward by.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) routes: Vec<(Prefix<u32>, Group)>,
}

/// Names of the tables.
pub(super) const AS_RUN: &str = "R1, as run in 2016";
pub(super) const FULL: &str = "R3, full feed";

/// The prefix that all packets of 2016 went to.
const TARGET: u32 = 11 << 24;

impl Table {
    /// Connected networks, and 11.0/16 by a gateway.
    pub(super) fn as_run() -> Table {
        let connected = [10u32 << 24, (10 << 24) | (1 << 8)].map(|network| (Prefix::of(network, 24), 1));
        let hosts = [(10u32 << 24) | 1, (10 << 24) | (1 << 8) | 1].map(|host| (Prefix::host(host), 2));
        let mut routes = [&connected[..], &hosts[..], &[(Prefix::of(TARGET, 16), 3)]].concat();
        routes.sort();
        Table { name: AS_RUN, routes }
    }

    pub(super) fn full(routes: Vec<(Prefix<u32>, Group)>) -> Table {
        Table { name: FULL, routes }
    }

    pub(super) fn is_full(&self) -> bool {
        self.name == FULL
    }

    /// Where packets go with this table.
    pub(super) fn destinations(&self) -> Vec<Destinations> {
        let sweeps = [24, 20, 16].map(Destinations::Sweep).to_vec();
        match self.is_full() {
            true => [&sweeps[..], &[Destinations::Drawn(Traffic::Cov), Destinations::Drawn(Traffic::Zipf)]]
                .concat(),
            false => sweeps,
        }
    }

    /// Where the packets of the open loop go.
    pub(super) fn streamed(&self) -> Destinations {
        if self.is_full() { Destinations::Drawn(Traffic::Cov) } else { Destinations::Sweep(16) }
    }

    /// The network that is swept: that of 2016, or a /16 of the feed with many routes in it.
    fn target(&self) -> u32 {
        match self.is_full() {
            true => artery_bench::fib::busiest(&self.routes, 16).map_or(TARGET, |prefix| prefix.first()),
            false => TARGET,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destinations {
    /// Every address of a network of so many bits in turn.
    Sweep(u8),
    /// As traffic of this model.
    Drawn(Traffic),
}

impl Destinations {
    pub(super) fn name(self) -> String {
        match self {
            Destinations::Sweep(len) => format!("each of a /{len}"),
            Destinations::Drawn(traffic) => traffic.name().into(),
        }
    }

    /// The addresses, repeated until there are enough for a trial.
    pub(super) fn addresses(self, table: &Table) -> Vec<u32> {
        const LEAST: usize = 1 << 17;
        match self {
            Destinations::Sweep(len) => {
                let count = 1u32 << (32 - len);
                let first = table.target();
                let once = (0..count).map(|n| first + n);
                once.collect::<Vec<_>>().into_iter().cycle().take(LEAST.max(count as usize)).collect()
            }
            Destinations::Drawn(traffic) => {
                let prefixes: Vec<_> = table.routes.iter().map(|route| route.0).collect();
                traffic.draw(&prefixes, 1 << 20, 3)
            }
        }
    }
}

/// A table, and where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scenario {
    pub(super) table: &'static str,
    pub(super) destinations: Destinations,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_goes_to_every_address_in_turn() {
        let addresses = Destinations::Sweep(24).addresses(&Table::as_run());
        assert_eq!(addresses[..3], [TARGET, TARGET + 1, TARGET + 2]);
        assert_eq!((addresses[255], addresses[256]), (TARGET + 255, TARGET));
        assert_eq!(addresses.iter().max(), Some(&(TARGET + 255)));
    }
}
