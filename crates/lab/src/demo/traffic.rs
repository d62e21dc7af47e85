//! A capture of ordinary traffic with some packets that a router must not forward.

use super::routes::{Routes, UNROUTED};
use anyhow::Context as _;
use artery_device::{PcapOptions, PcapWriter};
use artery_packet::Time;
use artery_wire::EtherAddr;
use artery_wire::build::{arp_request, ether, ip4};
use std::net::Ipv4Addr;
use std::path::Path;

const HOST: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 9]);
const ROUTER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 1]);
/// Destinations of ordinary packets.
pub(super) const DESTINATIONS: usize = 100_000;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordinary,
    Expired,
    BadChecksum,
    NoRoute,
    NotIp,
}

/// How many packets of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) ordinary: u64,
    pub(super) expired: u64,
    pub(super) bad_checksum: u64,
    pub(super) no_route: u64,
    pub(super) not_ip: u64,
}

impl Tally {
    fn add(&mut self, kind: Kind) {
        *match kind {
            Kind::Ordinary => &mut self.ordinary,
            Kind::Expired => &mut self.expired,
            Kind::BadChecksum => &mut self.bad_checksum,
            Kind::NoRoute => &mut self.no_route,
            Kind::NotIp => &mut self.not_ip,
        } += 1;
    }
}

/// Writes `packets` packets, always the same ones, a microsecond apart, to destinations that `routes` lead to.
pub(super) fn write(path: &Path, packets: u64, routes: &mut Routes) -> anyhow::Result<Tally> {
    let path = path.to_str().context("the name of the capture is no text")?;
    let mut writer = PcapWriter::create(path, PcapOptions::default())?;
    let mut tally = Tally::default();
    let destinations: Vec<Ipv4Addr> = (0..DESTINATIONS).map(|_| routes.destination()).collect();
    for number in 0..packets {
        let kind = kind(number);
        tally.add(kind);
        let destination = destinations[number as usize % DESTINATIONS];
        let frame = frame(number, kind, destination);
        let time = Time(1_000_000_000_000_000_000 + number * 1000);
        writer.write(time, frame.len() as u32, &frame)?;
    }
    writer.flush()?;
    Ok(tally)
}

fn kind(number: u64) -> Kind {
    match number % 1000 {
        n if n % 100 == 0 => Kind::Expired,
        n if n % 200 == 50 => Kind::BadChecksum,
        n if n % 50 == 7 => Kind::NoRoute,
        499 | 999 => Kind::NotIp,
        _ => Kind::Ordinary,
    }
}

fn frame(number: u64, kind: Kind, destination: Ipv4Addr) -> Vec<u8> {
    if kind == Kind::NotIp {
        return arp_request(HOST, Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 254)).bytes();
    }
    let low = number as u8;
    let destination = if kind == Kind::NoRoute { UNROUTED } else { destination };
    let ttl = if kind == Kind::Expired { 1 } else { 64 };
    // Most packets of the Internet are small, most bytes in big ones.
    let length = [64, 64, 64, 64, 64, 64, 64, 576, 576, 576, 576, 1514][(number % 12) as usize];
    let payload = vec![low; length - 14 - 20 - 8];
    let packet =
        ip4().src("10.9.0.1").dst(destination).ttl(ttl).udp(1024 + u16::from(low), 53).payload(payload);
    let mut bytes = ether(ROUTER, HOST).ip4(packet).bytes();
    if kind == Kind::BadChecksum {
        bytes[14 + 10] ^= 0x55;
    }
    bytes
}
