//! The router under test as text, and the packets that go round in it.
//!
//! Each worker has a cable from its port called out to its port called in, so that frames go round.

use super::case::{Case, Meets, NEXT_HOPS, Traffic};
use super::hosts;
use crate::fib;
use anyhow::ensure;
use artery_l3::PortId;
use artery_l3::neighbor::Kind;
use artery_l3::router::{RouteSpec, Tables};
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Group, Prefix};
use artery_wire::Random;
use artery_wire::build::{ether, ip4, ip6};
use artery_wire::{EtherAddr, Ethernet, Ipv4, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

/// Bytes of a frame: the least of Ethernet without its check sequence.
pub(super) const FRAME: usize = 60;
const IN: EtherAddr = EtherAddr([2, 0, 0, 0, 1, 1]);
const OUT: EtherAddr = EtherAddr([2, 0, 0, 0, 2, 1]);
const SEED: u64 = 1;
/// Hops that packets have before them.
const HOPS: u8 = 64;

/// Addresses of the network around the router (RFC 2544, RFC 5180), and neighbors of a big one.
fn gateway(family: u8, number: usize) -> IpAddr {
    match family {
        4 => Ipv4Addr::from_bits(0xc613_0002 + number as u32).into(),
        _ => Ipv6Addr::from_bits(0x2001_0002_0000_0001 << 64 | (2 + number as u128)).into(),
    }
}
fn neighbor(family: u8, number: u32) -> IpAddr {
    match family {
        4 => Ipv4Addr::from_bits(0x0a40_8000 + number).into(),
        _ => Ipv6Addr::from_bits(0x2001_0002_0000_0002 << 64 | (0x10_0000 + u128::from(number))).into(),
    }
}

/// The link address of a gateway or neighbor.
fn host_mac(number: u32) -> EtherAddr {
    let [a, b, c, d] = number.to_be_bytes();
    EtherAddr([2, 1, a, b, c, d])
}

/// Routes as lines of a file, in which every prefix has one of the next hops.
pub(super) fn table_text<A: artery_lpm::Address>(prefixes: &[Prefix<A>], family: u8) -> String {
    let mut random = Random::new(SEED);
    let line = |prefix: &Prefix<A>| {
        let hop = gateway(family, random.below(NEXT_HOPS as u64) as usize);
        format!("{prefix} {hop}\n")
    };
    prefixes.iter().map(line).collect()
}

/// The names of a worker's elements and ports begin so.
pub(super) fn name(what: &str, worker: usize) -> String {
    format!("{what}{worker}")
}

/// Servers that flows are shared out among.
const SERVERS: usize = 16;
/// What flows go to.
const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// What gives a server one new flow in a hundred more, where the case has exceptions.
pub(super) const MORE_FLOWS: &str = "server0 7";

/// The balancer of a service by direct return, so that packets keep their addresses.
fn balancer(case: &Case, flows: u32) -> String {
    let weight = if case.exceptions { " weight 6" } else { "" };
    let member = |n| format!(", MEMBER server{n} {}{weight}", gateway(4, n));
    let members: String = (0..SERVERS).map(member).collect();
    let (state, most) = (!case.stateless, flows.max(1 << 16));
    format!(
        "FlowBalancer(SERVICE {SERVICE} udp{members}, FRAMES true, ROUTER ip, STATE {state}, FLOWS {}, YOUNG \
         {most}, RESERVE {flows})",
        2 * most
    )
}

/// Rules that block nothing of what comes, and one that keeps a state for the rest.
pub(super) const RULES: usize = 100;

/// What loads the rules of a worker's filter.
fn rules(flows: u32, worker: usize) -> (String, String) {
    let blocks = (1..RULES).map(|n| format!("block in proto tcp from 10.9.{n}.0/24\n"));
    // Each flow has a state at either port.
    let text = format!("\nset limit states {}\n{}pass\n", 4 * flows.max(10_000), blocks.collect::<String>());
    (format!("{}.pf_load", name("pf", worker)), text)
}

/// What is between the elements of a worker.
#[derive(Default)]
struct Between {
    /// Statements between receiving and forwarding.
    before: String,
    /// Statements between forwarding and sending.
    behind: String,
    statements: String,
}

impl Between {
    fn new(case: &Case, n: usize) -> Between {
        match (case.flows, case.meets) {
            (Some(flows), Meets::Balancer) => Between {
                before: format!("-> balancer{n} :: {} ", balancer(case, flows)),
                statements: format!("balancer{n}[1] -> odd{n}; balancer{n}[2] -> send{n};\n"),
                ..Between::default()
            },
            (Some(_), Meets::Filter) => Between {
                before: format!(
                    "-> [0] pf{n} :: PacketFilter(PORT in{n} 198.18.0.1/24, PORT out{n} 198.19.0.1/24) [0] "
                ),
                behind: format!("-> [3] pf{n} [3] "),
                statements: format!("Idle -> [1] pf{n} [1] -> odd{n}; Idle -> [2] pf{n} [2] -> odd{n};\n"),
            },
            _ => Between::default(),
        }
    }
}

/// Each worker has a part of its own.
pub(super) fn placed(case: &Case) -> String {
    let places: Vec<String> = (0..case.workers).map(|n| format!("receive{n} {n}")).collect();
    if case.workers > 1 { format!("StaticThreadSched({});\n", places.join(", ")) } else { String::new() }
}

pub(super) fn text(case: &Case) -> String {
    if let Some(hosts) = case.hosts {
        return hosts::text(case, hosts);
    }
    let ports = match case.family {
        4 => ["198.18.0.1/24", "198.19.0.1/24 10.64.0.1/15"],
        _ => ["2001:2:0:0::1/64", "2001:2:0:1::1/64 2001:2:0:2::1/64"],
    };
    let known =
        (0..NEXT_HOPS).map(|n| format!(", NEIGHBOR out {} {}", gateway(case.family, n), host_mac(n as u32)));
    let known: String = known.collect();
    let table = case.table.as_ref().map(|table| format!(", TABLE {}", table.display())).unwrap_or_default();
    let is_led = case.flows.is_some() && case.meets != Meets::Balancer;
    let route = if is_led { format!(", ROUTE 192.0.2.0/24 {}", gateway(4, 0)) } else { String::new() };
    let mut text = format!(
        "ip :: IPRouter(PORT in {} ETHER {IN}, PORT out {} ETHER {OUT}{known}{table}{route});
Idle -> ip -> Discard; Idle -> [1] ip; ip[1] -> Discard; ip[2] -> Discard;\n",
        ports[0], ports[1]
    );
    let class = if case.family == 4 { "IPForward" } else { "IP6Forward" };
    let limit = case.limit.map(|limit| format!(", {limit}")).unwrap_or_default();
    for n in 0..case.workers {
        let Between { before, behind, statements } = Between::new(case, n);
        text += &format!(
            "receive{n} :: FromDevice(in{n}, SNIFFER false, ACTIVE false) -> play{n} :: Play({n}{limit})
    {before}-> forward{n} :: {class}(ip); Idle -> [1] forward{n};
forward{n} -> odd{n} :: Counter -> Discard; forward{n}[2] -> odd{n};
forward{n}[1] {behind}-> send{n} :: ToDevice(out{n});
{statements}"
        );
    }
    text + &placed(case)
}

/// Handlers to write in the run, with the values that announce the neighbors.
pub(super) fn neighbors(case: &Case) -> Vec<(String, String)> {
    if let Some(hosts) = case.hosts {
        return hosts::known(case, hosts);
    }
    let line = |number| {
        ("ip.add_neighbor".into(), format!("out {} {}", neighbor(case.family, number), host_mac(number)))
    };
    let filtered = case.flows.filter(|_| case.meets == Meets::Filter);
    let rules =
        filtered.into_iter().flat_map(|flows| (0..case.workers).map(move |worker| rules(flows, worker)));
    (0..case.neighbors.unwrap_or(0)).map(line).chain(rules).collect()
}

/// Changes that keep no packet from circulating: routes within the table change to another next hop and back,
/// and gateways get the address that they already have.
pub(super) struct Changes {
    family: u8,
    prefixes: Vec<AnyPrefix>,
    random: Random,
}

impl Changes {
    pub(super) fn new(case: &Case) -> anyhow::Result<Changes> {
        let loaded = fib::load(case.table.as_deref())?;
        let prefixes: Vec<AnyPrefix> = match case.family {
            4 => loaded.v4.iter().map(|route| AnyPrefix::V4(route.0)).collect(),
            _ => loaded.v6.iter().map(|route| AnyPrefix::V6(route.0)).collect(),
        };
        ensure!(!prefixes.is_empty(), "routes can change where there is a table");
        Ok(Changes { family: case.family, prefixes, random: Random::new(SEED) })
    }

    /// Changes the next hop of a route.
    pub(super) fn route(&mut self, tables: &mut Tables) -> anyhow::Result<()> {
        let prefix = self.prefixes[self.random.below(self.prefixes.len() as u64) as usize];
        let hop = gateway(self.family, self.random.below(NEXT_HOPS as u64) as usize);
        Ok(tables.replace_route(prefix, &RouteSpec::via(hop), Duration::ZERO)?)
    }

    /// Sets a gateway's link address, as if it had moved.
    pub(super) fn neighbor(&mut self, tables: &mut Tables, now: Duration) -> anyhow::Result<()> {
        let hop = gateway(self.family, self.random.below(NEXT_HOPS as u64) as usize);
        Ok(tables.set_neighbor(PortId(1), hop, host_mac(self.random.next() as u32), Kind::Static, now)?)
    }
}

#[derive(Clone)]
pub(super) struct Frame(pub(super) [u8; FRAME]);

/// The packets of a worker.
pub(super) fn frames(case: &Case, worker: usize) -> anyhow::Result<Vec<Frame>> {
    if let Some(hosts) = case.hosts {
        return Ok(match case.flows {
            Some(flows) => hosts::frames_of(case, hosts, flows, worker),
            None => hosts::frames(hosts, case.packets, worker),
        });
    }
    if let Some(flows) = case.flows {
        return Ok(frames_of(flows, case.packets, worker));
    }
    let mut destinations = destinations(case, SEED + 1 + worker as u64)?;
    if case.traffic == Traffic::One {
        destinations = vec![destinations[0]; case.packets];
    }
    Ok((0..).zip(destinations).map(|(number, destination)| frame(destination, number)).collect())
}

/// Writes packets so many times as a capture, for programs that read those.
pub(super) fn write_pcap(path: &Path, frames: &[Frame], times: usize) -> anyhow::Result<()> {
    use artery_device::{LinkType, PcapOptions, PcapWriter};
    let options = PcapOptions { link_type: LinkType::ETHER, ..PcapOptions::default() };
    let mut writer = PcapWriter::create(&path.display().to_string(), options)?;
    for frame in (0..times).flat_map(|_| frames) {
        writer.write(artery_packet::Time::new(1_700_000_000, 0), FRAME as u32, &frame.0)?;
    }
    Ok(writer.flush()?)
}

fn destinations(case: &Case, seed: u64) -> anyhow::Result<Vec<IpAddr>> {
    let mut random = Random::new(seed);
    if let Some(count) = case.neighbors {
        let any = |_| neighbor(case.family, random.below(count.into()) as u32);
        return Ok((0..case.packets).map(any).collect());
    }
    let loaded = fib::load(case.table.as_deref())?;
    ensure!(!loaded.v4.is_empty() || !loaded.v6.is_empty(), "there must be a table or neighbors");
    Ok(match case.family {
        4 => draw(&loaded.v4, case.packets, seed).map(|bits| Ipv4Addr::from_bits(bits).into()).collect(),
        _ => draw(&loaded.v6, case.packets, seed).map(|bits| Ipv6Addr::from_bits(bits).into()).collect(),
    })
}

/// Draws addresses of random prefixes that packets may go to.
fn draw<A: fib::Family>(routes: &[(Prefix<A>, Group)], count: usize, seed: u64) -> impl Iterator<Item = A> {
    let prefixes: Vec<Prefix<A>> = routes.iter().map(|route| route.0).collect();
    // A few go to the router's own networks, or nowhere: as many more are drawn.
    let drawn = fib::Traffic::Pfx.draw(&prefixes, count + count / 8 + 64, seed);
    drawn.into_iter().filter(|address| is_far(*address)).take(count)
}

/// Whether an address belongs neither to the router nor to its neighbors, and is an address that
/// a host may have.
pub(crate) fn is_far<A: artery_lpm::Address>(address: A) -> bool {
    let starts = |text: &str| text.parse::<Prefix<A>>().is_ok_and(|prefix| prefix.contains(address));
    const OURS: [&str; 8] = [
        "0.0.0.0/8",
        "127.0.0.0/8",
        "224.0.0.0/3",
        "198.18.0.0/15",
        "10.64.0.0/15",
        "2001:2::/48",
        "fe80::/10",
        "ff00::/8",
    ];
    !OURS.into_iter().any(starts)
}

/// Numbers of flows in random order: each is there, if there are packets enough.
pub(super) fn in_random_order(flows: u32, packets: usize, worker: usize) -> Vec<u32> {
    let mut random = Random::new(SEED + 1 + worker as u64);
    let mut numbers: Vec<u32> = (0..packets).map(|n| (n % flows.max(1) as usize) as u32).collect();
    (1..numbers.len()).for_each(|n| numbers.swap(n, random.below(n as u64 + 1) as usize));
    numbers
}

/// Packets of flows to a service.
fn frames_of(flows: u32, packets: usize, worker: usize) -> Vec<Frame> {
    let client = |flow: u32| (Ipv4Addr::from_bits(0x0a80_0000 + (flow >> 14)), 1024 + (flow & 0x3fff) as u16);
    let link = ether(IN, EtherAddr([2, 0, 0, 0, 1, 2]));
    let packet = |flow| {
        let (from, port) = client(flow);
        let ip = ip4().src(from).dst(SERVICE).ttl(HOPS).udp(port, 53).payload([0; 18]);
        filled(&link.clone().ip4(ip).bytes())
    };
    in_random_order(flows, packets, worker).into_iter().map(packet).collect()
}

pub(super) fn filled(bytes: &[u8]) -> Frame {
    Frame(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)))
}

fn frame(destination: IpAddr, number: u32) -> Frame {
    let link = ether(IN, EtherAddr([2, 0, 0, 0, 1, 2]));
    let port = number as u16;
    let from = Ipv4Addr::from_bits(0xc633_6400 + (number >> 16));
    let bytes = match destination {
        IpAddr::V4(to) => {
            link.ip4(ip4().src(from).dst(to).id(port).ttl(HOPS).udp(port, 53).payload([0; 18])).bytes()
        }
        IpAddr::V6(to) => {
            let ip = ip6().src("2001:db8::7").dst(to).flow_label(number & 0xf_ffff).hop_limit(HOPS);
            link.ip6(ip.raw(59, [0; 6])).bytes()
        }
    };
    filled(&bytes)
}

/// Whether a frame is as the router must have left it.
pub(super) fn was_forwarded(frame: &[u8; FRAME]) -> bool {
    let Ok(ethernet) = Ethernet::new(&frame[..]) else { return false };
    let is_from_out = ethernet.src() == OUT && ethernet.dst().0[..2] == [2, 1];
    let is_sound = match Ipv4::new(ethernet.payload()) {
        Ok(ip) => ip.ttl() == HOPS - 1 && ip.checksum_is_valid(),
        Err(_) => Ipv6::new(ethernet.payload()).is_ok_and(|ip| ip.hop_limit() == HOPS - 1),
    };
    is_from_out && is_sound
}

#[cfg(test)]
mod tests {
    use super::super::case::testing::small;
    use super::*;

    #[test]
    fn frames_are_whole_and_not_forwarded_yet() {
        for family in [4, 6] {
            for frame in frames(&small(family), 0).unwrap() {
                let mut bytes = frame.0;
                assert!(!was_forwarded(&bytes));
                bytes[..6].copy_from_slice(&host_mac(3).0);
                bytes[6..12].copy_from_slice(&OUT.0);
                assert!(!was_forwarded(&bytes), "all hops are left");
                if let Ok(mut ip) = Ipv4::new(&mut bytes[14..]) {
                    ip.decrement_ttl();
                } else {
                    bytes[21] -= 1;
                }
                assert!(was_forwarded(&bytes));
            }
        }
    }

    #[test]
    fn random_packets_have_destinations_of_their_own_and_others_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("table");
        let prefixes: Vec<Prefix<u32>> = ["1.0.0.0/8", "198.18.0.0/15"].map(|p| p.parse().unwrap()).to_vec();
        let text = table_text(&prefixes, 4);
        assert!(text.starts_with("1.0.0.0/8 198.19.0."), "{text}");
        std::fs::write(&table, text).unwrap();
        let case = Case { neighbors: None, table: Some(table), packets: 5, ..small(4) };
        let distinct = |case: &Case| {
            let to: Vec<_> = frames(case, 0).unwrap().iter().map(|frame| frame.0[30..34].to_vec()).collect();
            assert!(to.iter().all(|to| to[0] == 1), "of what is ours nothing is drawn");
            to.into_iter().collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!(distinct(&case), 5);
        assert_eq!(distinct(&Case { traffic: Traffic::One, ..case }), 1);
    }
}
