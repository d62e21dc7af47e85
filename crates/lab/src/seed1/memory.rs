//! From memory to memory: what the old bridge itself costs on one processor, beside the new switch.
//!
//! Frames go into the switch by one port and leave by the other, from where a cable brings them back to the first. They
//! are from and to stations that are known: those behind the other port say a word first.

use super::part::classes;
use crate::program::checked_with;
use crate::wire::processor::FORWARDER;
use anyhow::Context as _;
use artery_device::{MemoryTx, Ports, TxQueue as _, memory_pair};
use artery_engine::{Handle, Settings, Sink};
use artery_packet::{BATCH, Batch, Pool};
use artery_wire::EtherAddr;
use artery_wire::build::{ether, ip4};
use clap::ValueEnum;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Least frames that go round, however few stations there are.
const LEAST: u32 = 4 * BATCH as u32;

/// What frames go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// The old bridge
    Bridge,
    /// The new switch
    Veb,
}

impl Switch {
    fn text(self, stations: u32) -> String {
        match self {
            Switch::Bridge => format!("switch :: Bridge(MAXADDR {stations});"),
            Switch::Veb => format!("switch :: Veb(PORT p0, PORT p1, MAXADDR {stations});"),
        }
    }
}

/// Millions of frames a second between so many stations, half of them behind each port.
pub(super) fn rate(switch: Switch, stations: u32, time: Duration) -> anyhow::Result<f64> {
    let settings = Settings {
        affinity: Some(FORWARDER),
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        ..Settings::default()
    };
    let router = checked_with(classes(), "idle", "Idle -> Discard;", &[])?.build(settings)?;
    router.keep_open();
    let running = router.start();
    let handle = running.handle();
    let measured = measure(&handle, switch, stations, time);
    handle.write("stop", "true")?;
    running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
    measured
}

fn measure(handle: &Handle, switch: Switch, stations: u32, time: Duration) -> anyhow::Result<f64> {
    let of_side = (stations / 2).max(1);
    let frames = of_side.max(LEAST);
    let places = 2 * frames as usize;
    let ports = handle.resources().get::<Ports>();
    let [(mut a, b), (c, d), (mut e, f)] = [(); 3].map(|()| memory_pair(places));
    let pool = Pool::new(2 * places, 8)?;
    fill(&mut e.tx, pool, (0..of_side).map(|n| frame(station(0, n), station(1, n))))?;
    fill(&mut a.tx, pool, (0..frames).map(|n| frame(station(1, n % of_side), station(0, n % of_side))))?;
    for (name, port) in [("a", a), ("b", b), ("c", c), ("d", d), ("f", f)] {
        ports.insert(name, port);
    }
    let text = format!(
        "{} FromDevice(f) -> [1] switch; switch[0] -> Discard;
         FromDevice(b) -> switch; switch[1] -> through :: Counter -> ToDevice(c); FromDevice(d) -> ToDevice(a);",
        switch.text(2 * of_side)
    );
    checked_with(classes(), "memory", &text, &[])?.replace(handle)?;
    let through = || -> anyhow::Result<f64> { Ok(handle.read("through.count", "")?.trim().parse()?) };
    thread::sleep(time / 4);
    let (start, before) = (Instant::now(), through()?);
    thread::sleep(time);
    Ok((through()? - before) / start.elapsed().as_secs_f64() / 1e6)
}

fn fill(tx: &mut MemoryTx, pool: &'static Pool, frames: impl Iterator<Item = Vec<u8>>) -> anyhow::Result<()> {
    let mut batch = Batch::default();
    for frame in frames {
        batch.push(pool.packet_from(&frame).context("a pool of twice the frames")?);
        if batch.len() == BATCH {
            tx.transmit(&mut batch).context("a ring in memory takes packets")?;
        }
    }
    tx.transmit(&mut batch).context("a ring in memory takes packets")?;
    Ok(())
}

fn station(side: u8, number: u32) -> EtherAddr {
    let [a, b, c, d] = number.to_be_bytes();
    EtherAddr([2, side, a, b, c, d])
}

fn frame(to: EtherAddr, from: EtherAddr) -> Vec<u8> {
    let ip = ip4().src("10.0.0.1").dst("10.0.0.2").ttl(64).udp(1234, 4321).payload([0; 18]);
    ether(to, from).ip4(ip).bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_round_by_both() {
        for switch in [Switch::Bridge, Switch::Veb] {
            let rate = rate(switch, 100, Duration::from_millis(40)).unwrap();
            assert!(rate > 0.05, "{switch:?}: {rate}");
        }
    }
}
