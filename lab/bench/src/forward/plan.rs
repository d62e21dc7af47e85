//! How much is run, and on which tables.

use super::case::{Case, Traffic};
use super::{Options, network};
use crate::fib;
use anyhow::Context as _;
use artery_lpm::Prefix;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

pub(super) struct Plan {
    pub(super) options: Options,
    /// Runs of every row; the median counts.
    pub(super) rounds: usize,
    /// Duration of one run.
    pub(super) time: Duration,
    /// Runs under changes, and as many quiet ones between them.
    pub(super) pairs: usize,
    /// Packets that cachegrind counts with.
    pub(super) counted: u64,
    folder: TempDir,
    /// By family, 4 and 6: a file of routes, and their number.
    tables: [Option<(PathBuf, usize)>; 2],
}

impl Plan {
    pub(super) fn new(options: &Options) -> anyhow::Result<Plan> {
        let folder = tempfile::tempdir().context("a folder for tables")?;
        let loaded = fib::load(options.table.as_deref())?;
        let fib_options = fib::Options { table: options.table.clone(), ..fib::Options::default() };
        let families = options.families();
        let mut tables = [None, None];
        if families.contains(&4) {
            tables[0] = write(&prefixes(fib::routes::<u32>(&fib_options, &loaded)), 4, folder.path())?;
        }
        if families.contains(&6) {
            tables[1] = write(&prefixes(fib::routes::<u128>(&fib_options, &loaded)), 6, folder.path())?;
        }
        let (rounds, millis, pairs, counted) =
            if options.quick { (3, 300, 5, 1 << 16) } else { (7, 1000, 15, 1 << 19) };
        let (options, time) = (options.clone(), Duration::from_millis(millis));
        Ok(Plan { options, rounds, time, pairs, counted, folder, tables })
    }

    /// A router of a family with its table, and the number of its routes; none if the file
    /// has no such routes.
    pub(super) fn full(&self, family: u8, traffic: Traffic) -> Option<(Case, usize)> {
        let (table, routes) = self.tables[usize::from(family != 4)].clone()?;
        Some((Case { table: Some(table), traffic, ..self.bare(family) }, routes))
    }

    /// A router of a family without routes.
    pub(super) fn bare(&self, family: u8) -> Case {
        Case { workers: self.options.workers.into(), ..Case::bare(family) }
    }

    /// A folder that lives as long as this.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn prefixes<A>(routes: Vec<(Prefix<A>, artery_lpm::Group)>) -> Vec<Prefix<A>> {
    routes.into_iter().map(|route| route.0).collect()
}

fn write<A: artery_lpm::Address>(
    prefixes: &[Prefix<A>],
    family: u8,
    folder: &Path,
) -> anyhow::Result<Option<(PathBuf, usize)>> {
    if prefixes.is_empty() {
        return Ok(None);
    }
    let file = folder.join(format!("table{family}"));
    std::fs::write(&file, network::table_text(prefixes, family)).context("writing a table")?;
    Ok(Some((file, prefixes.len())))
}
