//! Tables of flows, as all parts of the experiment make and fill them.

use crate::fib::timing::thread_time;
use anyhow::Context as _;
use artery_flow::{
    Answer, Flow4, Flow6, FlowKey, FlowLimits, FlowSettings, FlowTable, PacketInfo, Scope, Seed, Tick,
};
use artery_storage::Storage;
use artery_wire::{IpProtocol, TcpFlags};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Packets that a worker treats together.
pub(super) const BATCH: usize = artery_packet::BATCH;
/// How many flows a worker looks at after each batch, to forget those that are idle.
pub(super) const BUDGET: usize = 64;
/// The first packet of a flow, and those that prove it.
pub(super) const SYN: PacketInfo = PacketInfo { protocol: IpProtocol::TCP, flags: TcpFlags::SYN, bytes: 40 };
pub(super) const ACK: PacketInfo =
    PacketInfo { protocol: IpProtocol::TCP, flags: TcpFlags::ACK, bytes: 1000 };

/// A second, from any instant.
pub(super) fn at(seconds: u64) -> Tick {
    Tick::from_time(Duration::from_secs(seconds))
}

/// The key of a client's flow to a destination.
#[inline]
pub(super) fn key(scope: Scope, client: u32, destination: u32) -> Flow4 {
    let destination = Ipv4Addr::from_bits(destination);
    match scope {
        Scope::Connection => {
            let source = Ipv4Addr::from_bits(0x0a00_0000 + client);
            Flow4::new([source, destination], [port(client), 80], IpProtocol::TCP, 0)
        }
        Scope::Destination => Flow4::new([Ipv4Addr::UNSPECIFIED, destination], [0; 2], IpProtocol(0), 0),
    }
}

fn port(client: u32) -> u16 {
    1024 + (client % 60_000) as u16
}

/// Keys that differ by number alone: of clients of one server.
pub(super) trait Numbered: FlowKey {
    /// The version of IP: 4 or 6.
    const FAMILY: u8;

    /// The key of a number.
    fn numbered(n: u32) -> Self;
}

impl Numbered for Flow4 {
    const FAMILY: u8 = 4;

    #[inline]
    fn numbered(n: u32) -> Flow4 {
        key(Scope::Connection, n, 0xc000_0201)
    }
}

impl Numbered for Flow6 {
    const FAMILY: u8 = 6;

    #[inline]
    fn numbered(n: u32) -> Flow6 {
        let address = |low: u32| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low));
        Flow6::new([address(n), address(u32::MAX)], [port(n), 80], IpProtocol::TCP, 0)
    }
}

/// A table without flows.
pub(super) fn table<K: FlowKey>(
    limits: FlowLimits,
    settings: FlowSettings,
    storage: &dyn Storage,
) -> anyhow::Result<FlowTable<K>> {
    // No figure may depend on the luck of a seed.
    FlowTable::new(limits, settings, Seed::new([7, 9]), storage).context("no memory for a table of flows")
}

/// Adds flows as a worker does whose packets come in batches: looked up, added, proven by a second packet,
/// and some checked for idleness. Returns how long a processor took over it.
pub(super) fn install<K: FlowKey>(
    table: &mut FlowTable<K>,
    flows: u32,
    key: impl Fn(u32) -> K,
) -> anyhow::Result<Duration> {
    let (begin, mut found, mut keys) = (thread_time(), Vec::new(), Vec::new());
    for first in (0..flows).step_by(BATCH) {
        keys.clear();
        keys.extend((first..flows.min(first + BATCH as u32)).map(&key));
        table.find_batch(&keys, &mut found);
        for (key, n) in keys.iter().zip(first..) {
            let id = table.insert(key, Answer { action: n, generation: 0 }, &SYN, at(1))?;
            table.touch_flow(id, &ACK, at(1));
        }
        table.maintain_flows(at(1), BUDGET);
    }
    Ok(thread_time() - begin)
}
