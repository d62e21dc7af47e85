//! A routing table of the size and shape of the Internet's, with made-up prefixes.

use anyhow::Context as _;
use artery_table::Prefix;
use artery_table::synthetic::{Random, prefixes};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;

const SEED: u64 = 19990504;

/// Where no route of the table leads.
pub(super) const UNROUTED: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 0);

/// The prefixes of a table.
pub(super) struct Routes {
    prefixes: Vec<Prefix<u32>>,
    random: Random,
}

impl Routes {
    /// About `count` of them.
    pub(super) fn new(count: usize) -> Routes {
        Routes { prefixes: prefixes(count, SEED), random: Random::new(SEED) }
    }

    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Writes them as IPLookup reads them: each goes to one of 64 next hops on the two sides of the router.
    pub(super) fn write(&mut self, path: &Path) -> anyhow::Result<()> {
        let name = || format!("writing {}", path.display());
        let mut file = BufWriter::new(File::create(path).with_context(name)?);
        for prefix in &self.prefixes {
            let next_hop = self.random.below(64) as u8;
            writeln!(file, "{prefix} 10.{}.0.{}", 1 + next_hop % 2, 2 + next_hop).with_context(name)?;
        }
        file.flush().with_context(name)
    }

    /// An address that some route leads to.
    pub(super) fn destination(&mut self) -> Ipv4Addr {
        let prefix = self.prefixes[self.random.below(self.prefixes.len() as u64) as usize];
        self.random.address_in(prefix).into()
    }
}
