//! SIGSTOP and SIGCONT: a process that stood still for a while goes on as if nothing had been.

use super::bed::{Bed, Product, on_the_bed, pause};
use crate::support::adopting::by_kernel;
use crate::support::{SOON, end, until};
use artery_rig::{Result, Signal};

/// How long it stands still: longer than the lease of adopted ports.
const STILL: u64 = 2500;

#[test]
fn a_router_that_stood_still_forwards_again_with_the_neighbors_that_it_knew() {
    on_the_bed("stops", Product::Router, stopped);
}

#[test]
fn a_switch_that_stood_still_forwards_again_with_its_mac_table() {
    on_the_bed("stops", Product::Switch, stopped);
}

#[test]
fn ports_whose_process_stands_still_are_the_kernels_until_it_goes_on() {
    on_the_bed("stops", Product::Adopt, stopped);
}

fn stopped(bed: &Bed) -> Result<()> {
    let mut process = bed.start()?;
    let mut line = bed.connect()?;
    line.echo();
    let before = known(bed)?;
    process.signal(Signal::STOP);
    pause(STILL);
    let forwarded = bed.a.ping(bed.far(), 5)?.received;
    // Adopted ports are the kernel's meanwhile.
    assert_eq!(forwarded, if bed.product == Product::Adopt { 5 } else { 0 }, "{:?}", bed.product);
    process.signal(Signal::CONT);
    until(SOON, || Ok(bed.a.ping(bed.far(), 5)?.received == 5))?;
    bed.assert_whole()?;
    line.echo();
    if bed.product == Product::Adopt {
        // Its programs forward again, past the kernel.
        until(SOON, || {
            let by_then = by_kernel(&bed.r)?;
            bed.a.ping(bed.far(), 10)?;
            Ok(by_kernel(&bed.r)? - by_then < 5)
        })?;
    }
    let after = known(bed)?;
    assert!(before.iter().all(|one| after.contains(one)), "{before:?}, and then {after:?}");
    drop(line);
    end(process).map(drop)
}

/// What is known: neighbors of a router, the MAC table of a switch.
fn known(bed: &Bed) -> Result<Vec<String>> {
    let (words, column): (&[&str], usize) = match bed.product {
        Product::Router => (&["show", "neighbors"], 0),
        Product::Switch => (&["ifconfig", "veb0", "addr"], 0),
        Product::Adopt => return Ok(Vec::new()),
    };
    let said = bed.ask(words)?.run()?.stdout;
    let mut known: Vec<String> =
        said.lines().filter_map(|line| line.split_whitespace().nth(column).map(str::to_string)).collect();
    known.sort();
    Ok(known)
}
