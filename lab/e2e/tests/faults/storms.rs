//! Storms of interfaces: others come and go by the hundred, and one port's link goes down and up hundreds of
//! times, while packets pass between the others. A fifth as many without `ARTERY_LONG=1` in the environment.

use super::bed::{Bed, Product, on_the_bed};
use crate::support::{SOON, end, meanwhile, until};
use artery_rig::{Result, Traffic};

/// Interfaces that come and go.
const STRANGERS: u32 = 100;
/// Datagrams that pass meanwhile in a second.
const RATE: u64 = 500;

#[test]
fn a_router_forwards_while_interfaces_come_and_go_and_a_port_flaps() {
    on_the_bed("storms", Product::Router, |bed| stormed(bed, 1000));
}

#[test]
fn a_switch_forwards_while_interfaces_come_and_go_and_a_port_flaps() {
    on_the_bed("storms", Product::Switch, |bed| stormed(bed, 300));
}

#[test]
fn adopted_ports_forward_while_interfaces_come_and_go_and_a_port_flaps() {
    on_the_bed("storms", Product::Adopt, |bed| stormed(bed, 300));
}

fn stormed(bed: &Bed, flaps: u32) -> Result<()> {
    let share = if std::env::var_os("ARTERY_LONG").is_some() { 1 } else { 5 };
    let process = bed.start()?;
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", process.id())).expect("a process").count();
    let before = (descriptors(), bed.settled_state()?);
    let batch: String = (0..STRANGERS / share)
        .map(|n| {
            format!(
                "link add storm{n} type veth peer name other{n}\nlink set storm{n} up\nlink del storm{n}\n"
            )
        })
        .chain((0..flaps / share).map(|_| "link set eth2 down\nlink set eth2 up\n".to_string()))
        .collect();
    let traffic = Traffic::between(&bed.a, &bed.b, bed.far()).frames(5 * RATE).rate(RATE);
    let (report, ()) = meanwhile(traffic, |is_running| {
        while is_running() {
            bed.r.command(["ip", "-batch", "-"]).input(batch.clone()).limit(6 * SOON).run()?;
        }
        Ok(())
    })?;
    assert_eq!((report.received, report.duplicated), (report.sent, 0), "{:?}: {report}", bed.product);
    until(SOON, || Ok(bed.a.ping(bed.far(), 5)?.received == 5))?;
    bed.assert_whole()?;
    until(SOON, || Ok(descriptors() <= before.0 + 2))?;
    until(SOON, || Ok(bed.host_state()?.lines().count() == before.1.lines().count()))?;
    let said = end(process)?.stderr;
    assert!(said.len() < 200_000, "{} bytes of messages", said.len());
    Ok(())
}
