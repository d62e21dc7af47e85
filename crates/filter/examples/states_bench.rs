//! How long the filter takes for packets of states that it knows: `cargo run --release -p artery-filter --example
//! states_bench [FLOWS…]`. Each packet is tested where it comes in and where it leaves, in batches of 64.
use artery_filter::anchors::Anchors;
use artery_filter::dissect::At;
use artery_filter::engine::{Filter, Look, Random, Rules, Settings, Verdict};
use artery_filter::evaluate::{Routes, load};
use artery_filter::facts::{Direction, Interface};
use artery_filter::names::{InterfaceRecord, Interfaces};
use artery_filter::states::{Names, StateId};
use artery_filter::syntax::{self, Environment};
use artery_filter::tables::Tables;
use artery_rcu::Domain;
use artery_wire::build::ip4;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const BATCH: usize = 64;
const PACKETS: usize = 1 << 20;

struct NoRoutes;

impl Routes for NoRoutes {
    fn has_route(&self, _: IpAddr) -> bool {
        true
    }

    fn leads_to(&self, _: IpAddr, _: Interface) -> bool {
        true
    }

    fn has_label(&self, _: IpAddr, _: &str) -> bool {
        false
    }
}

struct Named;

impl Names for Named {
    fn interface(&self, _: Interface) -> &str {
        "em"
    }
}

/// What stays between batches.
struct Batches {
    came: Vec<Option<StateId>>,
    looks: Vec<Look>,
}

impl Batches {
    /// Tests a batch at an interface.
    fn test(&mut self, filter: &mut Filter, batch: &mut [Vec<u8>], at: At, rules: &Rules<'_, '_>) {
        self.looks.clear();
        self.came.resize(batch.len(), None);
        let came = self.came.iter().map(|came| came.filter(|_| at.direction == Direction::Out));
        self.looks.extend(batch.iter().zip(came).map(|(bytes, came)| filter.look(bytes, at, came)));
        self.looks.iter_mut().for_each(|look| filter.approach(look));
        for ((bytes, look), came) in batch.iter_mut().zip(&self.looks).zip(&mut self.came) {
            match filter.test(bytes, look, rules) {
                Verdict::Pass(passed) => *came = passed.state,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn main() {
    let flows: Vec<u32> = std::env::args().skip(1).filter_map(|flows| flows.parse().ok()).collect();
    for flows in if flows.is_empty() { vec![100, 10_000, 100_000] } else { flows } {
        println!("{flows} flows: {:.1} ns a packet at both interfaces", measure(flows));
    }
}

fn measure(flows: u32) -> f64 {
    let interfaces = ["em0", "em1"].map(|name| InterfaceRecord { name: name.into(), ..Default::default() });
    let interfaces = Interfaces(interfaces.to_vec());
    let rules: String = (0..99).map(|n| format!("block in proto tcp from 10.9.{n}.0/24\n")).collect();
    let text = format!("set limit states 1000000\n{rules}pass\n");
    let environment = Environment { interfaces: interfaces.clone(), ..Environment::fixture() };
    let parsed = syntax::parse("rules", text.as_bytes(), &environment, &syntax::Settings::default());
    let ruleset = parsed.expect("the rules are right").ruleset;
    let settings = Settings::of(&ruleset, |name| interfaces.number(name));
    let domain = Domain::new();
    let (mut anchors, mut tables) = (Anchors::default(), Tables::new(&domain));
    let compiled = load(("", ruleset), &mut anchors, &mut tables, &interfaces, Duration::ZERO);
    let compiled = compiled.unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut filter = Filter::new(settings, &compiled, 0, Random::of(1)).expect("there is memory");
    let mut reader = domain.reader();
    let turn = reader.turn();
    let rules = Rules { compiled: &compiled, turn: &turn, routes: &NoRoutes, names: &Named };
    let mut batches = Batches { came: Vec::new(), looks: Vec::new() };
    let places = [(0, Direction::In), (1, Direction::Out)];
    let places = places.map(|(interface, direction)| At::new(Interface(interface), direction));
    filter.begin(Duration::from_secs(1));
    let packet = |flow: u32| {
        ip4()
            .src((0x0a00_0000 + flow).to_be_bytes())
            .dst("7.7.7.7")
            .udp((flow % 60_000) as u16 + 1, 53)
            .bytes()
    };
    // As many packets as a pool has, so that their own memory is not what is waited for.
    let mut batch: Vec<Vec<u8>> = (0..BATCH as u32).map(packet).collect();
    let mut next = 0x1234_5678_u32;
    let write = |batch: &mut [Vec<u8>], flow_of: &mut dyn FnMut() -> u32| {
        for bytes in batch {
            let flow = flow_of();
            bytes[12..16].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
            bytes[20..22].copy_from_slice(&((flow % 60_000) as u16 + 1).to_be_bytes());
        }
    };
    let mut sequence = 0..;
    for _ in 0..(flows as usize).div_ceil(BATCH) {
        write(&mut batch, &mut || sequence.next().expect("it has no end") % flows);
        places.iter().for_each(|at| batches.test(&mut filter, &mut batch, *at, &rules));
    }
    let mut random = || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(next) * u64::from(flows)) >> 32) as u32
    };
    let mut spent = Vec::new();
    for _ in 0..PACKETS / BATCH {
        write(&mut batch, &mut random);
        let start = Instant::now();
        places.iter().for_each(|at| batches.test(&mut filter, &mut batch, *at, &rules));
        filter.maintain(4);
        spent.push(start.elapsed());
    }
    // The median: whoever else uses the processor holds up few batches.
    spent.sort();
    spent[spent.len() / 2].as_secs_f64() * 1e9 / BATCH as f64
}
