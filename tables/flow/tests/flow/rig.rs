//! Tables and packets for tests.
use artery_flow::{
    Answer, Flow4, Flow6, FlowId, FlowKey, FlowLimits, FlowSettings, FlowTable, Full, PacketInfo, Seed, Tick,
};
use artery_storage::Pages;
use artery_wire::{IpProtocol, TcpFlags};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A key of either family for each number.
pub(crate) trait Numbered: FlowKey {
    fn numbered(n: u32, protocol: IpProtocol) -> Self;
}

impl Numbered for Flow4 {
    fn numbered(n: u32, protocol: IpProtocol) -> Flow4 {
        let addresses = [0x0a00_0000 + n, 0xc000_0201].map(Ipv4Addr::from_bits);
        Flow4::new(addresses, [1024 + (n % 7) as u16, 80], protocol, 3)
    }
}

impl Numbered for Flow6 {
    fn numbered(n: u32, protocol: IpProtocol) -> Flow6 {
        let address = |low: u128| Ipv6Addr::from_bits(0x2001_0db8 << 96 | low);
        Flow6::new([address(n.into()), address(1 << 64)], [1024 + (n % 7) as u16, 80], protocol, 3)
    }
}

pub(crate) fn udp(n: u32) -> Flow4 {
    Flow4::numbered(n, IpProtocol::UDP)
}

pub(crate) fn tcp(n: u32) -> Flow4 {
    Flow4::numbered(n, IpProtocol::TCP)
}

pub(crate) const DATAGRAM: PacketInfo =
    PacketInfo { protocol: IpProtocol::UDP, flags: TcpFlags(0), bytes: 100 };

pub(crate) const fn segment(flags: TcpFlags) -> PacketInfo {
    PacketInfo { protocol: IpProtocol::TCP, flags, bytes: 40 }
}

pub(crate) const SYN: PacketInfo = segment(TcpFlags::SYN);
pub(crate) const ACK: PacketInfo = segment(TcpFlags::ACK);
pub(crate) const FIN: PacketInfo = segment(TcpFlags::FIN);
pub(crate) const RST: PacketInfo = segment(TcpFlags::RST);

pub(crate) fn at(seconds: u64) -> Tick {
    Tick::from_time(Duration::from_secs(seconds))
}

pub(crate) fn answer(action: u32) -> Answer {
    Answer { action, generation: 1 }
}

pub(crate) fn table<K: FlowKey>(flows: u32, young: u32) -> FlowTable<K> {
    let seed = Seed::new([0x1234_5678, 42]);
    FlowTable::new(FlowLimits { flows, young }, FlowSettings::default(), seed, &Pages).unwrap()
}

/// Adds a connection of which only the SYN was seen, if there is room for it.
pub(crate) fn attempt(table: &mut FlowTable<Flow4>, n: u32, now: Tick) {
    let _ = table.insert(&tcp(n), answer(n), &SYN, now);
}

/// Adds a connection and proves it, if there is room for it.
pub(crate) fn attempt_and_use(table: &mut FlowTable<Flow4>, n: u32, now: Tick) {
    let _ = establish(table, n, now);
}

/// Adds a connection and proves it.
pub(crate) fn establish(table: &mut FlowTable<Flow4>, n: u32, now: Tick) -> Result<FlowId, Full> {
    let id = table.insert(&tcp(n), answer(n), &SYN, now)?;
    assert_eq!(table.touch_flow(id, &ACK, now), Some(answer(n)));
    Ok(id)
}

/// Maintains until the search has come round, and says how many flows were forgotten.
pub(crate) fn go_round<K: FlowKey>(table: &mut FlowTable<K>, now: Tick) -> usize {
    (0..table.len() / 64 * 2 + 1000).map(|_| table.maintain_flows(now, 64)).sum()
}
