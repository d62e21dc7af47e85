//! DPDK's tables as contenders: the program of `c/rte_fib.c`, with the same routes and addresses
//! by way of files.
//!
//! No default build needs DPDK; `make bench-dpdk` builds that program where libdpdk is installed.
use super::engine::Mode;
use super::family::Family;
use super::oracle::{Oracle, probes};
use super::traffic::Traffic;
use super::updates::Routes;
use crate::engine_bench::HugePages;
use anyhow::{Context as _, bail, ensure};
use artery_rig::console::progress;
use serde_json::Value;
use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;

/// Huge pages of 2 MB that rte_fib6 and its RIB need.
const HUGE_PAGES: u64 = 1024;

/// One of the program's tables, with one of its lookup functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// What the program calls it.
    engine: &'static str,
    /// What results call it.
    pub(super) name: &'static str,
}

/// What there is for a family.
pub(super) fn engines(family: u8) -> impl Iterator<Item = Table> {
    let names = match family {
        4 => [("fib-vector", "rte_fib avx512"), ("fib-scalar", "rte_fib scalar")],
        _ => [("fib-vector", "rte_fib6 avx512"), ("fib-scalar", "rte_fib6 scalar")],
    };
    names.into_iter().map(|(engine, name)| Table { engine, name })
}

struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: TempDir,
    _pages: Option<HugePages>,
}

/// One of DPDK's tables, with one of its lookup functions.
pub(super) struct Contender {
    process: Rc<RefCell<Process>>,
    table: Table,
    bytes: Option<u64>,
    /// Whether no contender before has this table, which all lookup functions share.
    is_first: bool,
}

/// Starts the program with routes, and takes those of its tables that are wanted and whose answers are right.
pub(super) fn contenders<A: Family>(
    program: &Path,
    wanted: &[Table],
    routes: &Routes<A>,
    traffic: &[(Traffic, Vec<A>)],
    oracle: &Oracle<A>,
    count: usize,
) -> anyhow::Result<Vec<super::Contender<A>>> {
    progress(&format!("IPv{}: loading {} routes into DPDK's tables", A::NUMBER, routes.len()));
    let process = Process::start(program, routes)?;
    for (model, addresses) in traffic {
        std::fs::write(process.addresses(*model), raw(addresses)).context("writing addresses for DPDK")?;
    }
    let probes = probes(routes, count, 21);
    std::fs::write(process.folder.path().join("probes"), raw(&probes))
        .context("writing addresses for DPDK")?;
    let process = Rc::new(RefCell::new(process));
    let mut contenders = Vec::new();
    for (n, &table) in wanted.iter().enumerate() {
        let Table { engine, name } = table;
        let answers = process.borrow_mut().answers(engine)?;
        ensure!(answers.len() == probes.len(), "{name} gave {} answers for {}", answers.len(), probes.len());
        for (answer, &address) in answers.iter().zip(&probes) {
            let right = oracle.lookup(address);
            ensure!(*answer == right, "{name} says {answer} for {}, not {right}", address.to_ip());
        }
        let bytes = process.borrow_mut().send_command(&format!("bytes {engine}"))?["bytes"].as_u64();
        let process = process.clone();
        contenders.push(super::Contender::Dpdk(Contender { process, table, bytes, is_first: n == 0 }));
    }
    Ok(contenders)
}

fn raw<A: Family>(addresses: &[A]) -> Vec<u8> {
    addresses.iter().flat_map(|address| address.raw()).collect()
}

impl Contender {
    pub(super) fn name(&self) -> String {
        self.table.name.into()
    }
    pub(super) fn bytes(&self) -> Option<u64> {
        self.bytes
    }
    /// Nanoseconds of a lookup.
    pub(super) fn trial(&mut self, mode: Mode, traffic: Traffic, budget: Duration) -> anyhow::Result<f64> {
        let mut process = self.process.borrow_mut();
        let file = process.addresses(traffic);
        let command =
            format!("trial {} {} {} {}", self.table.engine, mode.name(), file.display(), budget.as_nanos());
        process.send_command(&command)?["ns"].as_f64().context("DPDK's program gave no time")
    }
    /// Updates a second; none where the same table has been measured already.
    pub(super) fn updates(&mut self, budget: Duration) -> anyhow::Result<Option<f64>> {
        if !self.is_first {
            return Ok(None);
        }
        let command = format!("updates {} {}", self.table.engine, budget.as_nanos());
        Ok(self.process.borrow_mut().send_command(&command)?["updates_per_s"].as_f64())
    }
}

impl Process {
    fn start<A: Family>(program: &Path, routes: &Routes<A>) -> anyhow::Result<Process> {
        let pages = HugePages::at_least(HUGE_PAGES);
        let folder = tempfile::tempdir().context("a folder for DPDK's files")?;
        let table = folder.path().join("table");
        let mut records = Vec::with_capacity(routes.len() * 24);
        for (prefix, group) in routes {
            records.extend([prefix.len(), 0, 0, 0]);
            records.extend(group.to_ne_bytes());
            records.extend(prefix.first().raw());
        }
        std::fs::write(&table, records).context("writing the table for DPDK")?;
        let mut child = Command::new(program)
            .arg(A::NUMBER.to_string())
            .arg(&table)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {} (build it by: make bench-dpdk)", program.display()))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(commands), Some(answers)) = (commands, answers) else {
            bail!("no pipes to DPDK's program")
        };
        Ok(Process { child, commands, answers: BufReader::new(answers), folder, _pages: pages })
    }

    fn addresses(&self, traffic: Traffic) -> PathBuf {
        self.folder.path().join(traffic.name())
    }

    /// What an engine says for the probes.
    fn answers(&mut self, engine: &str) -> anyhow::Result<Vec<u32>> {
        let (from, to) = (self.folder.path().join("probes"), self.folder.path().join("answers"));
        self.send_command(&format!("answers {engine} {} {}", from.display(), to.display()))?;
        let bytes = std::fs::read(&to).context("reading DPDK's answers")?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| u32::from_ne_bytes(*word)).collect())
    }

    fn send_command(&mut self, command: &str) -> anyhow::Result<Value> {
        let gone = || format!("DPDK's program ended at: {command}");
        writeln!(self.commands, "{command}").with_context(gone)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).with_context(gone)?;
        ensure!(!line.is_empty(), gone());
        serde_json::from_str(&line).with_context(|| format!("DPDK's program said {line:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It waits for commands and holds nothing that outlives it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
