//! From memory to memory: what the router itself costs, beside testpmd between two null ports.
//!
//! Two pairs of ports in memory are joined to a ring by two wires of the graph; the packets in it go round.
//! So each is received, queued and transmitted again and again, on one processor.

use super::processor::FORWARDER;
use crate::engine_bench::macswap_rate;
use anyhow::Context as _;
use artery_device::{Ports, TxQueue as _, memory_pair};
use artery_engine::{Handle, RouterSettings, Sink};
use artery_packet::{BATCH, Batch, Pool};
use artery_rig::program::checked;
use std::thread;
use std::time::{Duration, Instant};

/// Packets that go round, and places in each direction of a pair.
const PACKETS: usize = 4 * BATCH;
const PLACES: usize = 512;

/// What goes between the ports.
pub(super) const WIRES: [(&str, &str); 2] = [("memory", ""), ("memory-macswap", "EtherMirror -> ")];

/// Millions of packets a second from port to port in a graph on one processor.
pub(super) fn rate(between: &str, time: Duration) -> anyhow::Result<f64> {
    let settings = RouterSettings {
        affinity: Some(FORWARDER),
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        ..RouterSettings::default()
    };
    let router = checked("idle", "Idle -> Discard;")?.build(settings)?;
    router.accept_calls();
    let running = router.start();
    let handle = running.handle();
    let measured = measure(&handle, between, time);
    handle.write_handler("stop", "true")?;
    running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
    measured
}

fn measure(handle: &Handle, between: &str, time: Duration) -> anyhow::Result<f64> {
    let ports = handle.resources().get::<Ports>();
    let ((mut a, b), (c, d)) = (memory_pair(PLACES), memory_pair(PLACES));
    fill(&mut a.tx)?;
    for (name, port) in [("a", a), ("b", b), ("c", c), ("d", d)] {
        ports.insert(name, port);
    }
    let text = format!(
        "there :: FromDevice(b) -> {between}Queue({PLACES}) -> ToDevice(c);
         back :: FromDevice(d) -> {between}Queue({PLACES}) -> ToDevice(a);"
    );
    checked("memory", &text)?.replace(handle)?;
    let count = |name: &str| -> anyhow::Result<f64> { Ok(handle.read_handler(name, "")?.trim().parse()?) };
    let both = || Ok::<_, anyhow::Error>(count("there.count")? + count("back.count")?);
    thread::sleep(time / 4);
    let (start, before) = (Instant::now(), both()?);
    thread::sleep(time);
    Ok((both()? - before) / start.elapsed().as_secs_f64() / 1e6)
}

fn fill(tx: &mut artery_device::MemoryTx) -> anyhow::Result<()> {
    let pool = Pool::new(2 * PACKETS, 8)?;
    let mut batch = Batch::default();
    batch.extend((0..PACKETS).filter_map(|_| pool.packet_from(&[2; 60])));
    tx.transmit(&mut batch).context("a ring in memory takes packets")?;
    Ok(())
}

/// The yardstick: millions of packets a second of testpmd in macswap mode on two null ports.
pub(super) fn yardstick() -> Option<f64> {
    macswap_rate()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_round_by_every_wire() {
        for (name, between) in WIRES {
            let rate = rate(between, Duration::from_millis(40)).unwrap();
            assert!(rate > 0.0, "{name}");
        }
    }
}
