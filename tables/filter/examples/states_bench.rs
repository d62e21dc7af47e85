//! How long the filter takes for packets of states that it knows: `cargo run --release -p artery-filter
//! --example states_bench [FLOWS…]`. Each packet is tested where it comes in and where it leaves, in batches
//! of 64: one after the other, as around a router, or at once, as through a switch. `PACKETS` in the
//! environment says how many; cachegrind wants fewer.
use artery_filter::anchors::Anchors;
use artery_filter::dissect::HookContext;
use artery_filter::engine::{
    Filter, FilterSettings, FilterVerdict, ParsedKey, Random, Rules, ThroughVerdict,
};
use artery_filter::evaluate::{Routes, load_rulesets};
use artery_filter::facts::{Direction, Interface};
use artery_filter::names::{InterfaceRecord, Interfaces};
use artery_filter::states::{InterfaceLookup, StateId};
use artery_filter::syntax::{self, Environment};
use artery_filter::tables::Tables;
use artery_rcu::Domain;
use artery_wire::build::ip4;
use artery_wire::{IpProtocol, TcpFlags};
use std::net::IpAddr;
use std::time::{Duration, Instant};

const BATCH: usize = 64;

struct NoRoutes;

impl Routes for NoRoutes {
    fn has_route(&self, _: IpAddr) -> bool {
        true
    }

    fn has_route_via(&self, _: IpAddr, _: Interface) -> bool {
        true
    }

    fn has_label(&self, _: IpAddr, _: &str) -> bool {
        false
    }
}

struct Named;

impl InterfaceLookup for Named {
    fn interface(&self, _: Interface) -> &str {
        "em"
    }
}

/// How packets are passed to the filter.
#[derive(Clone, Copy)]
enum Way {
    /// At one port, and later at the other.
    Routed,
    /// At both at once.
    Switched,
}

const PLACES: [HookContext; 2] =
    [HookContext::new(Interface(0), Direction::In), HookContext::new(Interface(1), Direction::Out)];

/// What stays between batches.
#[derive(Default)]
struct Batches {
    came: Vec<StateId>,
    keys: Vec<ParsedKey>,
}

impl Batches {
    #[inline(never)]
    fn pass(&mut self, way: Way, filter: &mut Filter, batch: &[Vec<u8>]) {
        match way {
            Way::Routed => {
                self.enter(filter, batch);
                self.leave(filter, batch);
            }
            Way::Switched => self.go_through(filter, batch),
        }
    }

    #[inline(never)]
    fn enter(&mut self, filter: &mut Filter, batch: &[Vec<u8>]) {
        self.keys.clear();
        self.keys.extend(batch.iter().map(|bytes| filter.parse_key(bytes, Direction::In)));
        let ahead = filter.prefetch_states(&mut self.keys);
        self.came.clear();
        let passed = batch.iter().zip(&self.keys).enumerate().map(|(n, (bytes, key))| {
            filter.prefetch_again(self.keys.get(n + ahead));
            filter.pass_fast(|| bytes, key, PLACES[0]).expect("the state is known")
        });
        self.came.extend(passed);
        filter.end_batch();
    }

    #[inline(never)]
    fn leave(&mut self, filter: &mut Filter, batch: &[Vec<u8>]) {
        for (bytes, came) in batch.iter().zip(&self.came) {
            filter.pass_linked(bytes, *came, PLACES[1]).expect("the state is known");
        }
        filter.end_batch();
    }

    #[inline(never)]
    fn go_through(&mut self, filter: &mut Filter, batch: &[Vec<u8>]) {
        self.keys.clear();
        self.keys.extend(batch.iter().map(|bytes| filter.parse_key(bytes, Direction::In)));
        let ahead = filter.prefetch_states(&mut self.keys);
        for (n, (bytes, key)) in batch.iter().zip(&self.keys).enumerate() {
            filter.prefetch_again(self.keys.get(n + ahead));
            assert_eq!(filter.pass_through(|| bytes, key, (PLACES[0], PLACES[1])), ThroughVerdict::Passed);
        }
        filter.end_batch();
    }
}

/// Has a state made at both ports for a packet.
fn open(filter: &mut Filter, bytes: &mut [u8], rules: &Rules<'_, '_>) {
    let mut came = None;
    for at in PLACES {
        let mut look = filter.prepare_lookup(bytes, at, came);
        filter.prefetch_state(&mut look);
        match filter.test_packet(bytes, &mut look, rules) {
            FilterVerdict::Pass(passed) => came = passed.state,
            other => panic!("{other:?}"),
        }
    }
}

fn main() {
    let flows: Vec<u32> = std::env::args().skip(1).filter_map(|flows| flows.parse().ok()).collect();
    let packets = std::env::var("PACKETS").ok().and_then(|packets| packets.parse().ok()).unwrap_or(1 << 20);
    for flows in if flows.is_empty() { vec![1000, 10_000, 100_000] } else { flows } {
        for (way, name) in [(Way::Routed, "routed"), (Way::Switched, "switched")] {
            for (protocol, of) in [(IpProtocol::UDP, "UDP"), (IpProtocol::TCP, "TCP")] {
                let nanos = measure(flows, packets, way, protocol);
                println!("{flows} flows of {of}, {name}: {nanos:.1} ns a packet at both interfaces");
            }
        }
    }
}

/// A packet of a flow: there is always the same to be said.
fn packet(flow: u32, protocol: IpProtocol, is_first: bool) -> Vec<u8> {
    let packet = ip4().src((0x0a00_0000 + flow).to_be_bytes()).dst("7.7.7.7");
    let port = (flow % 60_000) as u16 + 1;
    match protocol {
        IpProtocol::UDP => packet.udp(port, 53).bytes(),
        _ => {
            let flags = if is_first { TcpFlags::SYN } else { TcpFlags::ACK };
            packet.tcp(port, 80).flags(flags).seq(1000 + u32::from(!is_first)).ack(2001).window(2000).bytes()
        }
    }
}

/// The answer to a SYN.
fn answer(flow: u32) -> Vec<u8> {
    let packet = ip4().src("7.7.7.7").dst((0x0a00_0000 + flow).to_be_bytes());
    let port = (flow % 60_000) as u16 + 1;
    packet.tcp(80, port).flags(TcpFlags(0x12)).seq(2000).ack(1001).window(2000).bytes()
}

#[inline(never)]
fn measure(flows: u32, packets: usize, way: Way, protocol: IpProtocol) -> f64 {
    let interfaces = ["em0", "em1"].map(|name| InterfaceRecord { name: name.into(), ..Default::default() });
    let interfaces = Interfaces(interfaces.to_vec());
    let rules: String = (0..99).map(|n| format!("block in proto tcp from 10.9.{n}.0/24\n")).collect();
    let text = format!("set limit states 1000000\n{rules}pass\n");
    let environment = Environment { interfaces: interfaces.clone(), ..Environment::fixture() };
    let parsed = syntax::parse("rules", text.as_bytes(), &environment, &syntax::ParseSettings::default());
    let ruleset = parsed.expect("the rules are right").ruleset;
    let settings = FilterSettings::from_ruleset(&ruleset);
    let domain = Domain::new();
    let (mut anchors, mut tables) = (Anchors::default(), Tables::new(&domain));
    let compiled =
        load_rulesets(vec![(String::new(), ruleset)], &mut anchors, &mut tables, &interfaces, Duration::ZERO);
    let compiled = compiled.unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut filter = Filter::new(settings, &compiled, 0, Random::from_seed(1)).expect("there is memory");
    let mut reader = domain.reader();
    let turn = reader.turn();
    let rules = Rules { compiled: &compiled, turn: &turn, routes: &NoRoutes, names: &Named };
    filter.begin_batch(Duration::from_secs(1));
    for flow in 0..flows {
        open(&mut filter, &mut packet(flow, protocol, true), &rules);
        if protocol == IpProtocol::TCP {
            // The answer goes the other way, at the other ports.
            for (interface, direction) in [(1, Direction::In), (0, Direction::Out)] {
                let mut bytes = answer(flow);
                let mut look =
                    filter.prepare_lookup(&bytes, HookContext::new(Interface(interface), direction), None);
                filter.prefetch_state(&mut look);
                assert!(matches!(filter.test_packet(&mut bytes, &mut look, &rules), FilterVerdict::Pass(_)));
            }
        }
        // From here on no packet is news.
        open(&mut filter, &mut packet(flow, protocol, false), &rules);
    }
    // As many packets as a pool has, so that their own memory is not what is waited for.
    let mut batch: Vec<Vec<u8>> = (0..BATCH as u32).map(|flow| packet(flow, protocol, false)).collect();
    let mut next = 0x1234_5678_u32;
    let write = |batch: &mut [Vec<u8>], flow_of: &mut dyn FnMut() -> u32| {
        for bytes in batch {
            let flow = flow_of();
            bytes[12..16].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
            bytes[20..22].copy_from_slice(&((flow % 60_000) as u16 + 1).to_be_bytes());
        }
    };
    let mut batches = Batches::default();
    let mut random = || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(next) * u64::from(flows)) >> 32) as u32
    };
    let mut spent = Vec::new();
    for _ in 0..packets.div_ceil(BATCH) {
        write(&mut batch, &mut random);
        let start = Instant::now();
        batches.pass(way, &mut filter, &batch);
        spent.push(start.elapsed());
    }
    // The median: whoever else uses the processor holds up few batches.
    spent.sort();
    spent[spent.len() / 2].as_secs_f64() * 1e9 / BATCH as f64
}
