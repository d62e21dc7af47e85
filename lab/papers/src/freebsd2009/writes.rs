//! What threads write that others look at: a trace of all loads and stores, by valgrind's lackey.
//!
//! Two threads send through the same tables, one after the other, with stores to a mark around. A line
//! that one of them writes while it sends and that the other one touches while it does would go to and
//! fro between two processors. That they do not run at once matters as little as how fast they are: the
//! lines are the same.

use super::case::BATCH;
use super::driver::Driver;
use super::engine::{
    Engine, EngineName, OfBlocks, OfCopies, OfFlows, OfLegacy, OfOurFlows, OfOurs, OfOursInArt, OfSplit,
};
use super::lock::Plain;
use super::network::{Control, Mac, Packet, Sender as _};
use super::workload::{LINK, Workload, link, router};
use anyhow::{Context as _, anyhow, bail, ensure};
use artery_lpm::Prefix;
use artery_rig::console::progress;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc;

/// The subcommand that sends between marks.
pub const SUBCOMMAND: &str = "freebsd2009-writes";

/// It is stored to before and after each thread's part.
#[repr(align(64))]
struct Mark(AtomicU64);
static MARK: Mark = Mark(AtomicU64::new(0));
/// What the address of the mark is printed behind.
const MARK_IS: &str = "mark at ";
/// Stores to the mark in a run.
const MARKS: usize = 4;

/// Packets of each thread.
const PACKETS: usize = 8 * BATCH;

/// What two threads that send have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Writes {
    /// Cache lines that one writes and the other touches.
    pub lines: usize,
    /// Stores to them for a packet.
    pub stores: f64,
    /// All stores for a packet.
    pub all: f64,
    /// Those of them by an instruction that loads from the same place, as
    /// every atomic read-modify-write does.
    pub modifying: f64,
}

/// Sends between marks, in this process. Our own tables forward by ART unless they are to be `whole`: the
/// array of a FIB takes a hundred million stores and loads to lay out.
pub fn run_marked(engine: EngineName, whole: bool) -> anyhow::Result<()> {
    match engine {
        EngineName::L => marked::<OfLegacy<Plain>>(),
        EngineName::S => marked::<OfSplit<Plain>>(),
        EngineName::P => marked::<OfBlocks<Plain>>(),
        EngineName::F => marked::<OfFlows<Plain>>(),
        EngineName::C => marked::<OfCopies>(),
        EngineName::E if whole => marked::<OfOurs>(),
        EngineName::E => marked::<OfOursInArt>(),
        EngineName::G if whole => marked::<OfOurFlows<OfOurs>>(),
        EngineName::G => marked::<OfOurFlows<OfOursInArt>>(),
        EngineName::D => bail!("D needs two threads for a packet"),
    }
}

fn marked<E: Engine>() -> anyhow::Result<()>
where
    E::Tables: Sync,
{
    // At once, so that nothing of the trace comes between.
    progress(&format!("{MARK_IS}{:x}", std::ptr::from_ref(&MARK.0) as usize));
    let tables = E::tables(1024)?;
    furnish(&tables)?;
    // Their destinations are behind that route.
    let packets = &Workload::W4.trace(0).packets[..PACKETS];
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let (end, may_end) = mpsc::channel::<()>();
        let tables = &tables;
        let first = scope.spawn(move || {
            let own = send_between_marks::<E>(tables, packets);
            drop(done);
            // Its memory stays its own until the other one is done.
            let _ = may_end.recv();
            own.map(drop)
        });
        let _ = is_done.recv();
        let second = scope.spawn(|| send_between_marks::<E>(tables, packets).map(drop));
        let second = second.join();
        drop(end);
        [first.join(), second]
            .into_iter()
            .try_for_each(|done| done.unwrap_or_else(|_| bail!("a thread panicked")))
    })
}

/// What a thread does. The first time, before it counts, is long enough for the other threads to fall asleep,
/// and makes known what is kept.
fn send_between_marks<'t, E: Engine>(
    tables: &'t E::Tables,
    packets: &[Packet],
) -> anyhow::Result<(E::Sender<'t>, Driver)> {
    let packets = packets.to_vec();
    let (mut sender, mut driver) = (E::sender(tables, packets.len())?, Driver::new(0));
    let mut sent = Vec::with_capacity(BATCH);
    let mut send = || {
        for batch in packets.chunks(BATCH) {
            sender.send(batch, &mut sent);
            driver.transmit(batch, &sent);
        }
    };
    send();
    MARK.0.store(1, SeqCst);
    send();
    MARK.0.store(2, SeqCst);
    Ok((sender, driver))
}

/// One route by a router, and not the default one: to lay that out would be most of the trace.
fn furnish(control: &impl Control) -> anyhow::Result<()> {
    let full = |_| anyhow!("no room for the routes");
    control.connect(link(LINK), 0).map_err(full)?;
    control.learn(router(1), Mac::new(1, 1));
    control.add_route(Prefix::of(20 << 24, 10), router(1)).map_err(full)
}

/// Counts what two threads of `artery-bench` have in common.
pub fn shared_writes(
    valgrind: &Path,
    program: &Path,
    engine: EngineName,
    whole: bool,
) -> anyhow::Result<Writes> {
    let mut command = Command::new(valgrind);
    command.args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "--fair-sched=yes"]).arg(program);
    command.args([SUBCOMMAND, &engine.letter().to_lowercase()]).args(whole.then_some("--whole"));
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().context("can't run valgrind")?;
    let stderr = child.stderr.take().context("valgrind has no standard error")?;
    let trace = Trace::read(BufReader::with_capacity(1 << 20, stderr));
    let status = child.wait()?;
    let trace = trace?;
    ensure!(status.success(), "the run between marks ended with {status}");
    ensure!(trace.marks == MARKS, "{} stores to the mark were seen, not {MARKS}", trace.marks);
    Ok(trace.sum_up(2 * PACKETS as u64))
}

/// What was touched in the two parts.
#[derive(Default)]
struct Trace {
    mark: Option<u64>,
    marks: usize,
    /// Lines that were touched, by part.
    touched: [HashSet<u64>; 2],
    /// Lines that were written, and how often.
    written: [HashMap<u64, u64>; 2],
    /// Stores that went with a load.
    modifying: u64,
}

impl Trace {
    fn read(mut from: impl BufRead) -> anyhow::Result<Trace> {
        let (mut trace, mut line) = (Trace::default(), Vec::new());
        while from.read_until(b'\n', &mut line)? > 0 {
            trace.line(&line);
            line.clear();
        }
        Ok(trace)
    }

    /// A line such as ` S 1ffeffe7e0,8`; L is a load, S a store, M both.
    fn line(&mut self, line: &[u8]) {
        let [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] = line else {
            if self.mark.is_none() {
                self.find_mark(line);
            }
            return;
        };
        // Most of a trace is not between marks; those are the lines to be quick with.
        let part = match self.marks {
            1 => 0,
            3 => 1,
            _ if *kind == b'L' => return,
            _ => 2,
        };
        let Some((address, size)) = address(rest) else { return };
        if Some(address) == self.mark && *kind != b'L' {
            self.marks += 1;
        } else if part < 2 {
            self.modifying += u64::from(*kind == b'M');
            for line in address / 64..=(address + size.max(1) - 1) / 64 {
                self.touched[part].insert(line);
                if *kind != b'L' {
                    *self.written[part].entry(line).or_default() += 1;
                }
            }
        }
    }

    fn find_mark(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let address = text.split(MARK_IS).nth(1).and_then(|rest| u64::from_str_radix(rest.trim(), 16).ok());
        self.mark = address;
    }

    fn sum_up(&self, packets: u64) -> Writes {
        let mark = self.mark.map(|mark| mark / 64);
        let mut lines = HashSet::new();
        let mut stores = 0;
        for part in 0..2 {
            for (line, count) in &self.written[part] {
                if self.touched[1 - part].contains(line) && Some(*line) != mark {
                    lines.insert(*line);
                    stores += count;
                }
            }
        }
        let all: u64 = self.written.iter().flat_map(HashMap::values).sum();
        let each = |count: u64| count as f64 / packets as f64;
        Writes { lines: lines.len(), stores: each(stores), all: each(all), modifying: each(self.modifying) }
    }
}

/// The address and the size in `04025310,8`.
fn address(text: &[u8]) -> Option<(u64, u64)> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let digits = |text: &[u8], radix| u64::from_str_radix(str::from_utf8(text).ok()?.trim(), radix).ok();
    Some((digits(&text[..comma], 16)?, digits(&text[comma + 1..], 10)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(parts: [&str; 2]) -> Writes {
        let mark = " S 1000,8\n";
        let text = format!(
            "==7== Lackey\nmark at 1000\nI  400,3\n S 2000,8\n{mark}{}{mark} S 2000,8\n{mark}{}{mark}",
            parts[0], parts[1]
        );
        let trace = Trace::read(text.as_bytes()).unwrap();
        assert_eq!(trace.marks, MARKS);
        trace.sum_up(2)
    }

    #[test]
    fn a_line_that_one_writes_and_the_other_touches_is_shared() {
        let none = Writes { lines: 0, stores: 0.0, all: 0.5, modifying: 0.0 };
        assert_eq!(writes([" S 3000,8\n", " L 3040,8\n"]), none, "it is the next line");
        assert_eq!(writes([" S 3000,8\n", " L 3038,8\n"]), Writes { lines: 1, stores: 0.5, ..none });
        let modified = Writes { lines: 1, stores: 0.5, all: 1.0, modifying: 0.5 };
        assert_eq!(writes([" L 3000,8\n", " M 303c,8\n"]), modified);
        assert_eq!(writes([" L 3000,8\n", " L 3000,8\n"]), Writes { all: 0.0, ..none });
        let both = [" S 3000,8\n", " S 3000,8\n"];
        assert_eq!(writes(both), Writes { lines: 1, stores: 1.0, all: 1.0, modifying: 0.0 });
        // Writes outside the marks are not counted.
        assert_eq!(writes([" S 3000,8\n", " L 2000,8\n"]), none);
    }
}
