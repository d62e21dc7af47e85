//! Rows without connections: how soon a peer has exceptions that packets or changes of members make, and a
//! joiner all there are.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use artery_flow::stream::{
    AnyKey, EventItem, EventReader, ExceptionKind, StreamItem, StreamReader, write_header, write_item,
};
use artery_rig::{Injector, Rig};
use artery_wire::build::ether;
use artery_wire::{EtherType, TcpFlags};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::machines::{Machine, Machines, address, packet, wait_until};
use super::usage::{Processors, memory_mib};
use super::{Figure, figure, least, most};
use crate::balancers::Programs;

/// Member d has one flow in 25, and is drained.
const UNEQUAL: &str = "MEMBER a 10.0.0.1 weight 8, MEMBER b 10.0.0.2 weight 8, MEMBER c 10.0.0.3 weight 8, \
                       MEMBER d 10.0.0.4 weight 1";
const FOUR: &str = "MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3, MEMBER d 10.0.0.4";
const ALL_DRAINED: &str = "MEMBER a 10.0.0.1 weight 0, MEMBER b 10.0.0.2 weight 0, \
                           MEMBER c 10.0.0.3 weight 0, MEMBER d 10.0.0.4 weight 0, MEMBER e 10.0.0.5";
/// Exceptions a second, and those that become due at a time.
const RATE: u32 = 2000;
const AT_ONCE: usize = 2;
/// What is not at the peer so long after the last one was sent is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Imported flows whose first packets come: each is an exception of its machine from then on.
pub(super) fn lag(programs: &Programs, flows: u32, runs: usize) -> Result<Vec<Vec<Figure>>> {
    let rig = Rig::new("fleet-lag")?;
    let machines = Machines::new(&rig, programs, 2, flows)?;
    let (mut first, mut second) = (machines.machine(1)?, machines.machine(2)?);
    let source = rig.host("source")?;
    rig.link(&source, "eth0", &first.host, "eth1")?;
    let file = machines.folder.path().join("all.bin");
    machines.start_router(&mut first, UNEQUAL, None)?;
    first.play(flows)?;
    first.flow(&["export", "--binary"], &file)?;
    machines.start_router(&mut first, UNEQUAL, Some("eth1"))?;
    machines.start_router(&mut second, UNEQUAL, None)?;
    let drained = split(&file, &machines.folder.path().join("others.bin"))?;
    first.flow(&["import"], &file)?;
    second.flow(&["import"], &machines.folder.path().join("others.bin"))?;
    for machine in [&mut first, &mut second] {
        machine.write("b.weight", "d 0")?;
        machines.start_fleet(machine)?;
    }
    machines.wait_for_peers(&first, 1)?;
    machines.wait_for_peers(&second, 1)?;
    let mac = first.host.mac("eth1")?;
    let mut source = source.injector("eth0")?;
    let each = drained.len() / runs;
    drained.chunks(each).take(runs).map(|clients| lag_run(&mut source, &mac, &mut second, clients)).collect()
}

/// Clients of flows on member d; the others' flows are written to another file.
fn split(file: &Path, others: &Path) -> Result<Vec<u32>> {
    let bytes = std::fs::read(file)?;
    let (mut reader, mut rest) = (StreamReader::new(&bytes)?, Vec::new());
    let (mut clients, mut drained, mut kept) = (Vec::new(), None, 0);
    write_header(&mut rest);
    while let Some(item) = reader.next_item()? {
        match &item {
            StreamItem::Member(number, name) => {
                drained = if *name == "d" { Some(u32::from(*number)) } else { drained };
                write_item(&item, &mut rest);
            }
            StreamItem::Flow(flow) if Some(flow.answer.action) == drained => clients.push(client(&flow.key)?),
            StreamItem::Flow(_) => {
                kept += 1;
                write_item(&item, &mut rest);
            }
            _ => {}
        }
    }
    write_item(&StreamItem::End(kept), &mut rest);
    std::fs::write(others, rest)?;
    Ok(clients)
}

fn client(key: &AnyKey) -> Result<u32> {
    let [(source, _), _] = key.endpoints();
    match source {
        std::net::IpAddr::V4(source) => Ok(u32::from(source) - u32::from(address(0))),
        std::net::IpAddr::V6(_) => Err(anyhow!("{source} is not one of ours")),
    }
}

fn lag_run(source: &mut Injector, mac: &str, peer: &mut Machine, clients: &[u32]) -> Result<Vec<Figure>> {
    let frame = |client: &u32| {
        let packet = packet(*client, TcpFlags::ACK);
        ether(mac, "02:00:00:00:00:01").raw(EtherType(0x0800), packet).bytes()
    };
    let (mut events, processors) = (Events::begin(peer)?, Processors::begin()?);
    let (mut sent, mut lags) = (HashMap::new(), Vec::new());
    let (begun, mut at) = (Instant::now(), 0);
    let mut last = begun;
    while lags.len() < clients.len() && last.elapsed() < PATIENCE {
        let due = (begun.elapsed().as_secs_f64() * f64::from(RATE)) as usize;
        while at < clients.len() && at + AT_ONCE <= due {
            let some = &clients[at..(at + AT_ONCE).min(clients.len())];
            last = Instant::now();
            sent.extend(some.iter().map(|client| (*client, last)));
            source.send(&some.iter().map(frame).collect::<Vec<_>>());
            at += some.len();
        }
        let taken = events.read(peer)?;
        let now = Instant::now();
        lags.extend(taken.iter().filter_map(|client| sent.remove(client)).map(|sent| now - sent));
        std::thread::sleep(Duration::from_millis(1));
    }
    let sending = (last - begun).as_secs_f64();
    lags.sort();
    let ms = |part: f64| -> Result<f64> {
        let at = ((lags.len() as f64 * part) as usize).min(lags.len().saturating_sub(1));
        Ok(lags.get(at).context("no exception came to the peer")?.as_secs_f64() * 1e3)
    };
    Ok(vec![
        most("lag at the peer, p99, ms", ms(0.99)?, 100.0),
        figure("lag at the peer, p50, ms", ms(0.5)?),
        figure("lag at the peer, longest, ms", ms(1.0)?),
        most("exceptions lost", sent.len() as f64, 0.0),
        least("exceptions a second", clients.len() as f64 / sending, f64::from(RATE) * 0.99),
        figure("processors busy", processors.busy()?),
    ])
}

/// Follows a router's exceptions that were imported.
struct Events(String);

impl Events {
    fn begin(machine: &mut Machine) -> Result<Events> {
        let mut events = Events("now".to_string());
        events.read(machine)?;
        Ok(events)
    }

    /// Clients of new ones.
    fn read(&mut self, machine: &mut Machine) -> Result<Vec<u32>> {
        let text = machine.read(&format!("exception_items {}", self.0))?;
        let (mut positions, mut clients) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().context("a line is WORKER NEXT ITEMS");
            positions.push(format!("{}:{}", word()?, word()?));
            let items = BASE64_STANDARD.decode(word()?)?;
            let mut reader = EventReader::of_items(&items);
            while let Some(item) = reader.next_event()? {
                match item {
                    EventItem::Exists(ExceptionKind::Import, flow) => clients.push(client(&flow.key)?),
                    EventItem::Position { has_lost, .. } => {
                        ensure!(!has_lost || self.0 == "now", "events are lost")
                    }
                    _ => {}
                }
            }
        }
        self.0 = positions.join(" ");
        Ok(clients)
    }
}

/// A fifth member, whose flows become exceptions of the machine that has all.
pub(super) fn change(programs: &Programs, flows: u32, runs: usize) -> Result<Vec<Vec<Figure>>> {
    let rig = Rig::new("fleet-change")?;
    let machines = Machines::new(&rig, programs, 2, flows)?;
    let (mut first, mut second) = (machines.machine(1)?, machines.machine(2)?);
    for machine in [&mut first, &mut second] {
        machines.start_router(machine, FOUR, None)?;
        machines.start_fleet(machine)?;
    }
    first.play(flows)?;
    machines.wait_for_peers(&first, 1)?;
    machines.wait_for_peers(&second, 1)?;
    let mut all = Vec::new();
    for _ in 0..runs {
        ensure!(second.flows()? == 0, "the peer has flows before the change");
        let processors = Processors::begin()?;
        let begun = Instant::now();
        for machine in [&mut second, &mut first] {
            machine.write("b.add_member", "e 10.0.0.5")?;
        }
        let series = watch_flows(&mut second, begun)?;
        let (busy, exceptions) = (processors.busy()?, first.exceptions()?);
        let took = series.iter().find(|(_, flows)| *flows == exceptions).map(|(at, _)| at.as_secs_f64());
        all.push(vec![
            most("from the change to the last record at the peer, s", took.unwrap_or(f64::INFINITY), 2.0),
            figure("exceptions", exceptions as f64),
            figure("of all flows, %", 100.0 * exceptions as f64 / f64::from(flows)),
            figure("processors busy, with the second that nothing came any more", busy),
            figure("memory of artery-fleet, who has them, MiB", memory(&first)?[1]),
            figure("memory of artery-fleet, who gets them, MiB", memory(&second)?[1]),
        ]);
        for machine in [&mut second, &mut first] {
            machine.write("b.remove_member", "e")?;
        }
        wait_until("the end of all exceptions", || Ok(second.flows()? == 0))?;
    }
    Ok(all)
}

/// How many flows a router has at each moment, until their number has stayed for a second.
fn watch_flows(machine: &mut Machine, begun: Instant) -> Result<Vec<(Duration, u64)>> {
    let mut series = vec![(Duration::ZERO, machine.flows()?)];
    let mut changed = Instant::now();
    while series.len() == 1 || changed.elapsed() < Duration::from_secs(1) {
        ensure!(changed.elapsed() < Duration::from_secs(60), "no record came");
        std::thread::sleep(Duration::from_millis(5));
        let flows = machine.flows()?;
        if series.last().is_none_or(|(_, before)| *before != flows) {
            series.push((begun.elapsed(), flows));
            changed = Instant::now();
        }
    }
    Ok(series)
}

/// Resident memory of a machine's router and of its `artery-fleet`, in MiB.
fn memory(machine: &Machine) -> Result<[f64; 2]> {
    let of =
        |process: &Option<artery_rig::Process>| memory_mib(process.as_ref().context("not running")?.id());
    Ok([of(&machine.router)?, of(&machine.fleet)?])
}

/// A machine that starts beside one whose flows are all exceptions: from the start of its `artery-fleet`.
pub(super) fn joiner(programs: &Programs, flows: u32, runs: usize) -> Result<Vec<Vec<Figure>>> {
    let rig = Rig::new("fleet-joiner")?;
    let mut machines = Machines::new(&rig, programs, 2, flows)?;
    let (mut first, mut second) = (machines.machine(1)?, machines.machine(2)?);
    machines.start_router(&mut first, FOUR, None)?;
    first.play(flows)?;
    first.write("b.add_member", "e 10.0.0.5")?;
    for member in ["a", "b", "c", "d"] {
        first.write("b.weight", &format!("{member} 0"))?;
    }
    machines.start_fleet(&mut first)?;
    ensure!(first.exceptions()? == u64::from(flows), "not all flows are exceptions");
    machines.more = "[announce]\naddresses = [\"192.0.2.1/32\"]\n".to_string();
    let mut all = Vec::new();
    for _ in 0..runs {
        machines.start_router(&mut second, ALL_DRAINED, None)?;
        let processors = Processors::begin()?;
        let begun = Instant::now();
        machines.start_fleet(&mut second)?;
        wait_until("all exceptions", || Ok(second.flows()? == u64::from(flows)))?;
        let complete = begun.elapsed();
        wait_until("the announcement", || {
            Ok(second.host.run(["ip", "-4", "address", "show", "dev", "lo"])?.stdout.contains("192.0.2.1/32"))
        })?;
        let announced = begun.elapsed();
        let [router, fleet] = memory(&second)?;
        all.push(vec![
            most("from its start until it has all, s", complete.as_secs_f64(), 2.0),
            figure("until it is announced, s", announced.as_secs_f64()),
            figure("records a second", f64::from(flows) / complete.as_secs_f64()),
            figure("processors busy", processors.busy()?),
            figure("memory of the joiner's router, MiB", router),
            figure("memory of the joiner's artery-fleet, MiB", fleet),
            figure("memory of the other artery-fleet, MiB", memory(&first)?[1]),
        ]);
        second.fleet = None;
        second.host.run(["ip", "address", "flush", "dev", "lo"])?;
        wait_until("the absence of the joiner", || {
            let status = machines.status(&first)?;
            let peers = status["peers"].as_array().map_or(&[][..], Vec::as_slice);
            Ok(peers.iter().all(|peer| peer["is_present"] == false))
        })?;
    }
    Ok(all)
}
