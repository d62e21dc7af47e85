//! SIGKILL in each phase: while a product starts, runs, reads its files again, and ends. The host then has
//! what it had before, and the product starts again, whatever the other one left behind.

use super::bed::{Bed, Product, on_the_bed, pause};
use crate::support::{SOON, end, until};
use artery_rig::{Process, Result, Signal};
use std::time::Instant;

#[test]
fn a_router_that_is_killed_in_any_phase_leaves_nothing_and_starts_again() {
    on_the_bed("kills", Product::Router, killed_in_each_phase);
}

#[test]
fn a_switch_that_is_killed_in_any_phase_leaves_nothing_and_starts_again() {
    on_the_bed("kills", Product::Switch, killed_in_each_phase);
}

#[test]
fn ports_whose_process_is_killed_in_any_phase_are_the_kernels_and_adopted_again() {
    on_the_bed("kills", Product::Adopt, killed_in_each_phase);
}

fn killed_in_each_phase(bed: &Bed) -> Result<()> {
    // What a first one leaves for good, such as the MTU of a port, has nothing to do with how
    // the next ones end.
    let began = Instant::now();
    end_of(bed, bed.start()?)?;
    let start = began.elapsed().as_millis() as u64;
    let before = bed.settled_state()?;
    // The kernel takes its time for the programs of adopted ports.
    let is_long = std::env::var_os("ARTERY_LONG").is_some();
    let (parts, reloads, ends): (u64, &[u64], &[u64]) = match bed.product {
        Product::Adopt => (2, &[10], &[3]),
        _ if is_long => (8, &[0, 10], &[0, 3]),
        _ => (2, &[10], &[3]),
    };
    for part in 0..parts {
        let process = bed.command()?.spawn()?;
        pause(start * part / parts);
        kill(bed, process, &before, &format!("{part}/{parts} of its start"))?;
    }
    let process = bed.start()?;
    kill(bed, process, &before, "running")?;
    for &after in reloads {
        let mut process = bed.start()?;
        process.signal(Signal::HUP);
        pause(after);
        kill(bed, process, &before, &format!("{after} ms after SIGHUP"))?;
    }
    for &after in ends {
        let mut process = bed.start()?;
        process.signal(Signal::TERM);
        pause(after);
        kill(bed, process, &before, &format!("{after} ms after SIGTERM"))?;
    }
    let process = bed.start()?;
    bed.assert_whole()?;
    end_of(bed, process)?;
    until(SOON, || Ok(bed.host_state()? == before))
}

/// Kills it; then the host has what it had, and adopted ports go on by the kernel.
fn kill(bed: &Bed, mut process: Process, before: &str, when: &str) -> Result<()> {
    process.signal(Signal::KILL);
    process.wait(SOON)?;
    let deadline = Instant::now() + SOON;
    let mut after = bed.host_state()?;
    while after != before {
        assert!(Instant::now() < deadline, "{:?} {when}: {}", bed.product, difference(before, &after));
        pause(20);
        after = bed.host_state()?;
    }
    if bed.product == Product::Adopt {
        bed.assert_whole()?;
    }
    Ok(())
}

/// Lines that only one of two texts has.
fn difference(before: &str, after: &str) -> String {
    let only = |of: &str, other: &str, mark: &str| -> String {
        let lines = of.lines().filter(|line| !other.lines().any(|one| one == *line));
        lines.map(|line| format!("\n{mark} {line}")).collect()
    };
    only(before, after, "-") + &only(after, before, "+")
}

fn end_of(bed: &Bed, process: Process) -> Result<()> {
    let said = end(process)?;
    let words = if bed.product == Product::Adopt {
        "the kernel forwards alone again"
    } else {
        "SIGTERM was received"
    };
    assert!(said.stderr.contains(words), "{}", said.stderr);
    Ok(())
}
