//! What calls of a neighbor table cost, by the number of neighbors: `cargo run --release -p artery-l3
//! --example neighbors`.
use artery_l3::neighbor::nd::NdProtocol;
use artery_l3::neighbor::{
    Action, L2Engine, Links, NeighborIds, NeighborLimits, NeighborTable, NeighborUpdate, NeighborUpdateKind,
    PortChange,
};
use artery_rcu::Domain;
use artery_storage::Pages;
use artery_wire::EtherAddr;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Table = NeighborTable<u128, NdProtocol>;

fn heard(n: u128, version: u8, kind: NeighborUpdateKind) -> NeighborUpdate {
    let [a, b, c, ..] = n.to_le_bytes();
    NeighborUpdate { link: Some(EtherAddr([2, version, 0, a, b, c])), kind, router: None }
}

/// Calls something for each neighbor, and says how many nanoseconds a call takes.
fn each(name: &str, count: u128, table: &mut Table, mut call: impl FnMut(&mut Table, u128)) {
    let mut actions: Vec<Action<u128>> = Vec::new();
    let begin = Instant::now();
    for n in 0..count {
        // Not in order, as on a link.
        call(table, n * 7919 % count);
        table.drain_actions(&mut actions);
        actions.clear();
    }
    println!("  {name:28} {:7.0} ns", begin.elapsed().as_nanos() as f64 / count as f64);
}

/// Polls until nothing is due, and says how long that and the longest poll took.
fn poll(name: &str, table: &mut Table, now: Duration) {
    let (begin, mut longest, mut polls) = (Instant::now(), Duration::ZERO, 0);
    loop {
        let poll = Instant::now();
        let next = table.poll(now);
        longest = longest.max(poll.elapsed());
        polls += 1;
        table.drain_actions(&mut Vec::new());
        if next != Some(now) {
            break;
        }
    }
    println!("  {name:28} {:7.0} us in {polls} polls, the longest {} us", us(begin), longest.as_micros());
}

fn us(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64 / 1000.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::new();
    for count in [16_u128, 1 << 16] {
        let links = Arc::new(Links::new(&Pages, 1 << 18)?);
        let places = NeighborIds::new(&domain, &links, 1 << 17);
        let limits = NeighborLimits { per_second: 1 << 30, burst: 1 << 30, ..NeighborLimits::default() };
        let mut table = NeighborTable::new(&places, NdProtocol::default(), limits, 1);
        let reply = NeighborUpdateKind::Advertisement { solicited: true, overrides: true };
        let at = Duration::from_secs;
        println!("{count} neighbors");
        each("resolve a new one", count, &mut table, |table, n| {
            table.resolve(n, at(0));
        });
        each("hear its answer", count, &mut table, |table, n| {
            table.learn_neighbor(n, heard(n, 1, reply), true, at(0))
        });
        each("hear of a new address", count, &mut table, |table, n| {
            table.learn_neighbor(n, heard(n, 2, reply), true, at(1));
        });
        each("pin and unpin", count, &mut table, |table, n| {
            table.pin_neighbor(n, at(1)).expect("there is room");
            table.unpin_neighbor(n, at(1));
        });
        poll("nothing due", &mut table, at(2));
        poll("all become stale", &mut table, at(100));
        poll("a look at all stale ones", &mut table, at(102));
        (0..count).filter_map(|n| table.find_neighbor(n, at(102))).for_each(|view| links.report_use(view.id));
        poll("all were used", &mut table, at(104));
        poll("nothing due", &mut table, at(105));
        each("delete and learn", count, &mut table, |table, n| {
            table.delete_neighbor(n, at(106));
            table.learn_neighbor(n, heard(n, 3, reply), true, at(106));
        });
        let begin = Instant::now();
        table.port_changed(PortChange::Down, at(107));
        println!("  {:28} {:7.0} us", "port down", us(begin));
        poll("the rest of it", &mut table, at(107));
    }
    Ok(())
}
