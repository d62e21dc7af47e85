//! Descriptors that run out while a router or a switch is at work: packets go on, what needs a descriptor is
//! refused or tried again, and all is as before when there are some again. The same of adopted ports is in
//! `adopt_operations`.

use super::bed::{Bed, Product, on_the_bed};
use crate::support::{SOON, end};
use artery_rig::{Result, Signal};
use std::os::unix::net::UnixStream;

#[test]
fn a_router_without_descriptors_forwards_and_all_is_as_before_when_there_are_some_again() {
    on_the_bed("shortages", Product::Router, without_descriptors);
}

#[test]
fn a_switch_without_descriptors_forwards_and_all_is_as_before_when_there_are_some_again() {
    on_the_bed("shortages", Product::Switch, without_descriptors);
}

fn without_descriptors(bed: &Bed) -> Result<()> {
    let mut process = bed.start()?;
    let mut line = bed.connect()?;
    line.echo();
    let processes = processes(bed)?;
    assert_eq!(processes.len(), 2, "a router and its helper");
    for id in &processes {
        // Those that are open stay so, and there is none left.
        limit(bed, *id, first_free(*id))?;
    }
    // A descriptor that was about to be closed may have been counted: of some clients, one finds none.
    let connect = |_| UnixStream::connect(bed.path("control")).expect("a listener");
    let clients: Vec<UnixStream> = (0..8).map(connect).collect();
    process.wait_for("can't accept connections", SOON)?;
    // Neither can files be read again, nor can a port that returns be opened.
    process.signal(Signal::HUP);
    bed.r.run(["ip", "link", "del", "eth2"])?;
    bed.r.run(["ip", "link", "add", "eth2", "type", "veth", "peer", "name", "far2"])?;
    for link in ["far2", "eth2"] {
        bed.r.run(["ip", "link", "set", link, "up"])?;
    }
    process.wait_for("Too many open files", SOON)?;
    bed.assert_whole()?;
    line.echo();
    drop(clients);

    for id in processes {
        limit(bed, id, 1024)?;
    }
    process.signal(Signal::HUP);
    process.wait_for("there is an interface 'eth2' again", SOON)?;
    // Somebody must connect for that to be seen.
    assert_eq!(self::processes(bed)?.len(), 2);
    process.wait_for("are accepted again", SOON)?;
    bed.assert_whole()?;
    line.echo();
    let said = end(process)?.stderr;
    assert_eq!(said.matches("can't accept connections").count(), 1, "{said}");
    Ok(())
}

/// The numbers of the router's process and of its helper's.
fn processes(bed: &Bed) -> Result<Vec<u64>> {
    let said = bed.ask(&["show", "security", "--json"])?.run()?.stdout;
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let processes = said["processes"].as_array().expect("a list");
    Ok(processes.iter().filter_map(|process| process["pid"].as_u64()).collect())
}

fn first_free(id: u64) -> u32 {
    let is_free = |fd: &u32| std::fs::symlink_metadata(format!("/proc/{id}/fd/{fd}")).is_err();
    (0..).find(is_free).expect("a number")
}

/// Limits how many descriptors a process may have open.
fn limit(bed: &Bed, id: u64, descriptors: u32) -> Result<()> {
    let (id, most) = (id.to_string(), format!("--nofile={descriptors}:4096"));
    bed.r.run(["prlimit", "--pid", &id, &most]).map(drop)
}
