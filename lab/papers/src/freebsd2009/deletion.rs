//! How long it takes to delete the network of an interface, with all neighbors that are on it.

use super::engine::{Engine, EngineName, OfCopies, OfLegacy, OfOurs, OfSplit};
use super::lock::Plain;
use super::network::{Control as _, Mac};
use super::workload::{BESIDE, Workload, link, near};
use anyhow::ensure;
use std::time::Instant;

/// Neighbors that go with the network, and those on the other interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Population {
    pub(super) gone: u32,
    pub(super) others: u32,
}

/// Nearly as many as a /16 has.
const MANY: u32 = 65_000;
const FEW: u32 = 1000;

/// What is measured: many neighbors that go, few, and few beside many others.
pub(super) const POPULATIONS: [Population; 3] = [
    Population { gone: MANY, others: 0 },
    Population { gone: FEW, others: 0 },
    Population { gone: FEW, others: MANY },
];

/// Engines that are measured: what is put in front of the split tables changes nothing of it.
pub(super) const ENGINES: [EngineName; 4] = [EngineName::L, EngineName::S, EngineName::C, EngineName::E];

/// Returns milliseconds of one deletion.
pub(super) fn millis(engine: EngineName, population: Population) -> anyhow::Result<f64> {
    match engine {
        EngineName::L => of::<OfLegacy<Plain>>(population),
        EngineName::C => of::<OfCopies>(population),
        EngineName::E | EngineName::G => of::<OfOurs>(population),
        EngineName::S | EngineName::P | EngineName::D | EngineName::F => of::<OfSplit<Plain>>(population),
    }
}

fn of<E: Engine>(population: Population) -> anyhow::Result<f64> {
    let Population { gone, others } = population;
    let tables = E::tables((gone + others + 8) as usize)?;
    Workload::W3.furnish(&tables, gone)?;
    (0..others).for_each(|n| _ = tables.learn(near(n), Mac::new(7, n)));
    let start = Instant::now();
    let went = tables.disconnect(link(BESIDE));
    let took = start.elapsed();
    ensure!(went == gone as usize, "{went} of {gone} neighbors went with their network");
    Ok(took.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_neighbors_of_the_network_go() {
        for engine in ENGINES {
            let millis = millis(engine, Population { gone: 300, others: 200 }).unwrap();
            assert!(millis > 0.0, "{engine:?}");
        }
    }
}
