//! The first part: a capture through a router in this process. Needs no rights.

use super::heading;
use super::routes::Routes;
use super::traffic::{self, Tally};
use crate::conf::PCAP_ROUTER;
use crate::program::checked;
use crate::results::{Align, Table};
use anyhow::ensure;
use artery_engine::graph::Counts;
use artery_engine::{DropReason, Finished, Plan, Settings, Sink};
use std::path::Path;
use std::time::Instant;

/// Packets of the capture.
const PACKETS: u64 = 500_000;
/// Routes of the table, as many as the Internet's had in 2026.
const ROUTES: usize = 901_899;

pub(super) fn show() -> anyhow::Result<()> {
    heading("1. A capture through a router, in this process");
    let folder = tempfile::tempdir()?;
    let (file, table) = (folder.path().join("traffic.pcap"), folder.path().join("routes.txt"));
    let mut routes = Routes::new(ROUTES);
    routes.write(&table)?;
    say!("Made a routing table of the Internet's size and shape: {} routes.", thousands(routes.len() as u64));
    let wanted = traffic::write(&file, PACKETS, &mut routes)?;
    say!(
        "Wrote a capture of {} packets to {} destinations, 64 to 1514 bytes, some not to be forwarded.",
        thousands(PACKETS),
        thousands(traffic::DESTINATIONS as u64)
    );
    say!("conf/pcap-router.click reads it, checks, looks up, takes a hop, puts on a new Ethernet header:\n");
    let start = Instant::now();
    let finished = run(&file, &table, false)?;
    say!("Table read and compiled in {:.2} s.", (start.elapsed() - finished.ran).as_secs_f64());
    let rate = PACKETS as f64 / finished.ran.as_secs_f64();
    say!(
        "{} packets in {:.3} s: {:.2} million packets a second\n",
        thousands(PACKETS),
        finished.ran.as_secs_f64(),
        rate / 1e6
    );
    say!("Once more, with the time of each element taken:\n");
    let finished = run(&file, &table, true)?;
    say!("{}", by_element(&finished.plan(), &finished.counts()));
    say!("What became of them:\n");
    say!("{}", by_fate(&finished));
    check(&finished, &wanted)?;
    say!("Every packet is accounted for, as the capture was made.");
    Ok(())
}

fn run(file: &Path, table: &Path, profile: bool) -> anyhow::Result<Finished> {
    let (path, table) = (file.to_string_lossy(), table.to_string_lossy());
    let settings =
        Settings { profile, chatter: Sink::buffer(), output: Sink::buffer(), ..Settings::default() };
    let router = checked("conf/pcap-router.click", PCAP_ROUTER, &[("IN", &path), ("TABLE", &table)])?
        .build(settings)?;
    router.start().wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))
}

fn by_element(plan: &Plan, counts: &[Counts]) -> Table {
    let columns = [
        ("element", Align::Left),
        ("packets", Align::Right),
        ("ns/packet", Align::Right),
        ("dropped", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (node, count) in counts.iter().enumerate() {
        // Packets are counted where they arrive, which at a source they never do.
        let is_source = plan.inputs(node).is_empty() && !plan.outputs(node).is_empty();
        let packets = if is_source { PACKETS } else { count.packets };
        if packets == 0 {
            continue;
        }
        let drops = count.drops.iter().filter(|(why, _)| is_loss(*why));
        let drops: Vec<String> = drops.map(|(why, n)| format!("{} {}", thousands(n), why.name())).collect();
        let nanos = count.nanos as f64 / packets as f64;
        let name = format!("{} :: {}", plan.name(node), plan.class(node).name);
        table.row([name, thousands(packets), format!("{nanos:.1}"), drops.join(", ")]);
    }
    table
}

/// Whether it is a loss to end for this reason. Packets also end where they have been written to a file.
fn is_loss(reason: DropReason) -> bool {
    reason != DropReason::Discarded
}

fn by_fate(finished: &Finished) -> Table {
    let mut table = Table::new(&[("fate", Align::Left), ("packets", Align::Right), ("why", Align::Left)]);
    table.row(["forwarded", &thousands(forwarded(finished)), "Written to the other capture."]);
    for reason in DropReason::ALL.iter().filter(|reason| is_loss(**reason)) {
        let count = dropped(finished, *reason);
        if count > 0 {
            table.row([reason.name(), &thousands(count), reason.sentence().trim()]);
        }
    }
    table
}

fn forwarded(finished: &Finished) -> u64 {
    finished.plan().resolve_exact("sent").map_or(0, |sent| finished.counts()[sent].packets)
}

fn dropped(finished: &Finished, reason: DropReason) -> u64 {
    finished.counts().iter().map(|count| count.drops.count(reason)).sum()
}

fn check(finished: &Finished, wanted: &Tally) -> anyhow::Result<()> {
    let found = Tally {
        ordinary: forwarded(finished),
        expired: dropped(finished, DropReason::TtlExpired),
        bad_checksum: dropped(finished, DropReason::BadChecksum),
        no_route: dropped(finished, DropReason::NoRoute),
        not_ip: dropped(finished, DropReason::NoMatch),
    };
    ensure!(found == *wanted, "the router counted {found:?}, but the capture has {wanted:?}");
    Ok(())
}

fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_does_with_each_packet_what_the_capture_was_made_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, table) = (folder.path().join("small.pcap"), folder.path().join("routes.txt"));
        let mut routes = Routes::new(1000);
        routes.write(&table).unwrap();
        let wanted = traffic::write(&file, 3000, &mut routes).unwrap();
        assert_eq!((wanted.expired, wanted.not_ip), (30, 6));
        let finished = run(&file, &table, true).unwrap();
        check(&finished, &wanted).unwrap();
        assert!(by_fate(&finished).to_string().contains("ttl-expired"));
        assert!(check(&finished, &Tally::default()).is_err());
    }
}
