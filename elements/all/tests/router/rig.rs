//! A router on a bench, whose frames are all verified by another implementation.
use artery_elements::CLASSES;
use artery_engine::{Bench, DropReason};
use artery_wire::EtherAddr;
use artery_wire::build::{Ip4, Ip6, ether, ip4, ip6};
use etherparse::{IpNumber, NetSlice, SlicedPacket, TransportSlice};
use std::time::Duration;

/// Ports, and the output for the host.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const HOST: usize = 2;

/// MAC addresses: the router's own, those of a host and a router on `a`, of the gateway on `b`, and of
/// the router's own host.
pub(crate) const STATION_A: &str = "2:0:0:0:0:1";
pub(crate) const STATION_B: &str = "2:0:0:0:0:2";
pub(crate) const PEER: &str = "2:0:0:0:1:9";
pub(crate) const GATEWAY: &str = "2:0:0:0:2:fe";
pub(crate) const OWN_HOST: &str = "2:0:0:0:9:9";

/// The configuration that most tests use. The host and the gateways are known, so no packet waits for them.
pub(crate) const CONFIG: &str = "PORT a 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:1,
    PORT b 10.0.2.1/24 2001:db8:2::1/64 ETHER 2:0:0:0:0:2,
    NEIGHBOR a 10.0.1.9 2:0:0:0:1:9, NEIGHBOR a 2001:db8:1::9 2:0:0:0:1:9,
    NEIGHBOR a 10.0.1.8 2:0:0:0:1:8, NEIGHBOR a fe80::9 2:0:0:0:1:9,
    NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, NEIGHBOR b 2001:db8:2::fe 2:0:0:0:2:fe,
    ROUTE 20.0.0.0/8 10.0.2.254, ROUTE 21.0.0.0/8 blackhole, ROUTE 22.0.0.0/8 unreachable,
    ROUTE 23.0.0.0/8 prohibited, ROUTE 24.0.0.0/8 10.0.1.8, ROUTE 26.0.0.0/8 10.0.2.77,
    ROUTE 2001:db8:20::/48 2001:db8:2::fe, ROUTE 2001:db8:22::/48 unreachable, DAD false";

pub(crate) struct Rig {
    pub(crate) bench: Bench,
}

/// The router with a host behind it, after it has announced its addresses.
pub(crate) fn rig() -> Rig {
    rig_with(&format!("HOST {OWN_HOST}"))
}
/// The router with further arguments.
pub(crate) fn rig_with(more: &str) -> Rig {
    rig_of(&format!("{CONFIG}, {more}"))
}
/// A router with these arguments.
pub(crate) fn rig_of(config: &str) -> Rig {
    let mut rig = Rig { bench: bench(config) };
    rig.bench.advance_time(Duration::from_secs(60));
    rig.take_all();
    rig
}
/// A router that has done nothing yet.
pub(crate) fn bench(config: &str) -> Bench {
    let class = CLASSES.find_class("IPRouter").expect("the class of routers");
    let mut bench = Bench::setup(class, config)
        .inputs(3)
        .outputs(3)
        .build()
        .unwrap_or_else(|errors| panic!("{errors:?}"));
    bench.run();
    bench
}

impl Rig {
    /// A frame with an IPv4 packet, from the host on `a`.
    #[track_caller]
    pub(crate) fn push4(&mut self, packet: Ip4) {
        self.bench.push(A, ether(STATION_A, PEER).ip4(packet).bytes());
    }
    /// A frame with an IPv6 packet, from the host on `a`.
    #[track_caller]
    pub(crate) fn push6(&mut self, packet: Ip6) {
        self.bench.push(A, ether(STATION_A, PEER).ip6(packet).bytes());
    }
    /// The frames that the router has sent by an output, each of them sound.
    #[track_caller]
    pub(crate) fn sent(&mut self, output: usize) -> Vec<Vec<u8>> {
        let sent = self.bench.drain_sent(output);
        sent.iter().map(|packet| packet.data().to_vec()).inspect(|frame| check(frame)).collect()
    }
    /// All of them, unread but checked.
    pub(crate) fn take_all(&mut self) {
        (0..3).for_each(|output| drop(self.sent(output)));
    }
    /// The only frame that was sent, by this output.
    #[track_caller]
    pub(crate) fn only(&mut self, output: usize) -> Vec<u8> {
        let mut sent = self.sent(output);
        assert_eq!(sent.len(), 1, "{sent:x?}");
        self.bench.expect_nothing_more();
        sent.remove(0)
    }
    #[track_caller]
    pub(crate) fn silent(&mut self) {
        self.bench.expect_nothing_more();
    }
    pub(crate) fn pass_ms(&mut self, time: u64) {
        self.bench.advance_time(Duration::from_millis(time));
    }
    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.bench.drops().count(reason)
    }
    /// One of the counters of the slow path.
    #[track_caller]
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        self.bench.read("counts", name).unwrap().trim().parse().unwrap()
    }
}

/// A packet through the router, with a hop left to spare.
pub(crate) fn through() -> Ip4 {
    ip4().src("10.0.1.9").dst("20.0.0.1").ttl(9).udp(1, 2).payload([7; 100])
}
/// The same in IPv6.
pub(crate) fn through6() -> Ip6 {
    ip6().src("2001:db8:1::9").dst("2001:db8:20::1").hop_limit(9).udp(1, 2).payload([7; 100])
}

pub(crate) fn station(text: &str) -> EtherAddr {
    text.parse().unwrap()
}
/// Destination and source MAC address of a frame.
pub(crate) fn stations(frame: &[u8]) -> (EtherAddr, EtherAddr) {
    let at = |n: usize| EtherAddr(frame[n..n + 6].try_into().unwrap());
    (at(0), at(6))
}

/// Verifies a frame with another implementation: lengths, header checksum, checksums of its payload.
#[track_caller]
fn check(frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap_or_else(|why| panic!("{why}: {frame:x?}"));
    let whole = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "{frame:x?}");
            assert_eq!(frame.len(), 14 + usize::from(header.total_len), "padding: {frame:x?}");
            !ip.is_payload_fragmented()
        }
        Some(NetSlice::Ipv6(ip)) => {
            assert_eq!(frame.len(), 54 + usize::from(ip.header().payload_length()), "padding: {frame:x?}");
            !ip.is_payload_fragmented()
        }
        Some(NetSlice::Arp(_)) => return,
        None => panic!("neither IP nor ARP: {frame:x?}"),
    };
    if whole {
        check_transport(&packet, frame);
    }
}

fn check_transport(packet: &SlicedPacket<'_>, frame: &[u8]) {
    match (&packet.transport, &packet.net) {
        (Some(TransportSlice::Icmpv4(icmp)), _) => {
            let made = icmp.header().icmp_type.calc_checksum(icmp.payload());
            assert_eq!(icmp.checksum(), made, "{frame:x?}");
        }
        (Some(TransportSlice::Icmpv6(icmp)), Some(NetSlice::Ipv6(ip))) => {
            let header = ip.header();
            assert!(icmp.is_checksum_valid(header.source(), header.destination()), "{frame:x?}");
        }
        (Some(TransportSlice::Udp(_) | TransportSlice::Tcp(_)), _) => {}
        (None, Some(NetSlice::Ipv4(ip))) => assert_ne!(ip.payload_ip_number(), IpNumber::ICMP, "{frame:x?}"),
        _ => {}
    }
}
