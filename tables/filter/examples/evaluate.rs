//! Nanoseconds for an evaluation without state, by number of rules, and for a lookup in
//! tables of 200,000 networks.
//!
//! `cargo run --release -p artery-filter --example evaluate`
use artery_filter::anchors::Anchors;
use artery_filter::evaluate::{
    CannotTranslate, Compiled, Counters, Routes, RuleId, Scratch, Surroundings, Translate, load_rulesets,
};
use artery_filter::facts::{Direction, Facts, Interface, Tag};
use artery_filter::names::{InterfaceRecord, Interfaces};
use artery_filter::rule::Rule;
use artery_filter::syntax::{Environment, ParseSettings, parse};
use artery_filter::tables::{TableEntry, Tables};
use artery_rcu::Domain;
use artery_wire::IpProtocol;
use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

struct Nowhere;

impl Routes for Nowhere {
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

impl Translate for Nowhere {
    fn apply_translation(&mut self, _: RuleId, _: &Rule, _: &mut Facts) -> Result<(), CannotTranslate> {
        Ok(())
    }
}

/// Numbers that are as good as random here.
fn mixed(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 32)
}

/// A rule set of so many rules: how each rule is written, by its number.
type Shape = (&'static str, fn(u64) -> String);

const SHAPES: [Shape; 5] = [
    ("networks and ports", |n| {
        let (network, port) = (mixed(n), 1 + mixed(n + 1_000_000) % 1000);
        format!(
            "pass in on em0 inet proto tcp from any to 10.{}.{}.0/24 port {port} no state",
            network % 64,
            network / 64 % 256
        )
    }),
    ("tables and ports", |n| {
        let (table, port) = (n % 20, 1 + mixed(n) % 200);
        format!("pass in on em0 inet proto tcp from <t{table}> to any port {port} no state")
    }),
    ("tables, quick", |n| {
        let (table, port) = (n % 20, 1 + mixed(n) % 200);
        format!("block in quick on em0 inet proto tcp from <t{table}> to any port {port}")
    }),
    ("tables only", |n| format!("block in on em0 inet proto tcp from <t{}> to any", n % 20)),
    ("match among networks", |n| {
        let network = mixed(n);
        let to = format!("to 10.{}.{}.0/24", network % 64, network / 64 % 256);
        match n % 10 {
            0 => format!("match in on em0 inet {to} set prio {}", n % 8),
            _ => format!("pass in on em0 inet proto tcp from any {to} no state"),
        }
    }),
];

fn text(rules: u64, shape: fn(u64) -> String) -> String {
    let mut text = "block in\n".to_string();
    for table in 0..20 {
        let _ = write!(text, "table <t{table}> {{");
        (0..50).for_each(|n| {
            let _ = write!(text, " 192.168.{}.{}", table, n * 5);
        });
        text.push_str(" }\n");
    }
    (0..rules).for_each(|n| text = std::mem::take(&mut text) + &shape(n) + "\n");
    text
}

fn facts(n: u64) -> Facts {
    let z = mixed(n ^ 0xabcd);
    Facts {
        interface: Interface(0),
        received_on: Some(Interface(0)),
        direction: Direction::In,
        protocol: IpProtocol::TCP,
        source: Ipv4Addr::new(192, 168, (z % 25) as u8, (z >> 8 & 255) as u8).into(),
        destination: Ipv4Addr::new(10, (z >> 16 & 63) as u8, (z >> 24 & 255) as u8, 7).into(),
        source_port: (z >> 32) as u16,
        destination_port: 1 + (z >> 48) as u16 % 200,
        tcp_flags: 2,
        icmp: (0, 0),
        tos: 0,
        is_fragment: false,
        has_options: false,
        priority: 3,
        tag: Tag(0),
        length: 60,
    }
}

fn interfaces() -> Interfaces {
    let record = |name: &str| InterfaceRecord { name: name.into(), ..InterfaceRecord::default() };
    Interfaces(vec![record("em0"), record("em1"), record("lo0")])
}

fn compiled(rules: u64, shape: fn(u64) -> String, tables: &mut Tables) -> Compiled {
    let text = text(rules, shape);
    let parsed = match parse("text", text.as_bytes(), &Environment::fixture(), &ParseSettings::default()) {
        Ok(parsed) => parsed,
        Err(faults) => panic!("{}", faults[0]),
    };
    load_rulesets(
        vec![(String::new(), parsed.ruleset)],
        &mut Anchors::default(),
        tables,
        &interfaces(),
        Duration::ZERO,
    )
    .expect("valid values")
}

/// How long one more address in a small table takes, whose rules follow.
fn change_of_a_small_table(rules: u64, shape: fn(u64) -> String) -> Duration {
    let mut tables = Tables::new(&Domain::new());
    let _compiled = compiled(rules, shape, &mut tables);
    let begin = Instant::now();
    let changes = 200;
    for n in 0..changes {
        let one = TableEntry::new(Ipv4Addr::from_bits(n * 77).into(), 32, false);
        tables.add_addresses("", "t7", &[one], Duration::ZERO).expect("room");
    }
    begin.elapsed() / changes
}

/// Nanoseconds an evaluation, compiled and rule by rule.
fn evaluations(rules: u64, shape: fn(u64) -> String) -> [f64; 2] {
    let domain = Domain::new();
    let compiled = compiled(rules, shape, &mut Tables::new(&domain));
    let counters = Counters::new(&compiled);
    let mut scratch = Scratch::new(&compiled, 0);
    let packets: Vec<Facts> = (0..4096).map(facts).collect();
    let mut reader = domain.reader();
    [false, true].map(|is_plain| {
        scratch.is_plain = is_plain;
        let rounds = if is_plain { (20_000 / rules).clamp(1, 50) } else { 50 };
        let packets = if is_plain { &packets[..512] } else { &packets[..] };
        let mut best = f64::MAX;
        for _ in 0..rounds {
            let turn = reader.turn();
            let begin = Instant::now();
            for packet in packets {
                let mut surroundings = Surroundings {
                    turn: &turn,
                    routes: &Nowhere,
                    now: Duration::ZERO,
                    random: &mut || 0,
                    translate: &mut Nowhere,
                    is_question: false,
                };
                let mut facts = *packet;
                black_box(compiled.evaluate(&mut facts, &mut surroundings, &mut scratch, &counters));
            }
            best = best.min(begin.elapsed().as_nanos() as f64 / packets.len() as f64);
        }
        best
    })
}

/// Nanoseconds a lookup of random addresses in a table of so many networks: of addresses in it, and of any.
fn lookups(networks: u64, is_v6: bool) -> [f64; 2] {
    let domain = Domain::new();
    let mut tables = Tables::new(&domain);
    let address = |n: u64| -> IpAddr {
        match is_v6 {
            false => Ipv4Addr::from_bits(mixed(n) as u32).into(),
            true => {
                Ipv6Addr::from_bits((0x2000 << 112) | (u128::from(mixed(n)) << 56) | u128::from(mixed(n + 7)))
                    .into()
            }
        }
    };
    let length = |n: u64| if is_v6 { 40 + (n % 25) as u8 } else { 16 + (n % 17) as u8 };
    let entries: Vec<TableEntry> =
        (0..networks).map(|n| TableEntry::new(address(n), length(n), n % 16 == 0)).collect();
    tables.most_entries = usize::MAX;
    let begin = Instant::now();
    let added = tables.add_addresses("", "t", &entries, Duration::ZERO).expect("room");
    let loaded = begin.elapsed();
    let begin = Instant::now();
    let changes = 200;
    for n in 0..changes {
        let one = TableEntry::new(address(networks + n), if is_v6 { 128 } else { 32 }, false);
        tables.add_addresses("", "t", &[one], Duration::ZERO).expect("room");
    }
    println!("  {added} networks: loaded in {loaded:?}, one more in {:?}", begin.elapsed() / changes as u32);
    let table = tables.reference_table("", "t");
    let mut reader = domain.reader();
    [networks, u64::MAX / 4].map(|of| {
        let addresses: Vec<IpAddr> = (0..1_000_000).map(|n| address(mixed(n + 99) % of)).collect();
        let turn = reader.turn();
        let begin = Instant::now();
        let found = addresses.iter().filter(|address| table.contains(&turn, **address)).count();
        black_box(found);
        begin.elapsed().as_nanos() as f64 / addresses.len() as f64
    })
}

fn main() {
    println!("ns an evaluation (and rule by rule)");
    for (name, shape) in SHAPES {
        print!("  {name:<22}");
        for rules in [10, 100, 1000, 10_000] {
            let [fast, plain] = evaluations(rules, shape);
            print!("  {rules}: {fast:.0} ({plain:.0})");
        }
        println!();
    }
    let [_, (_, tables), ..] = SHAPES;
    let change = change_of_a_small_table(1000, tables);
    println!("one more address in one of 20 tables of 1000 rules: {change:?}");
    println!("ns a lookup in a table: addresses in it, any address");
    for (is_v6, family) in [(false, "inet"), (true, "inet6")] {
        let [inside, any] = lookups(200_000, is_v6);
        println!("  {family}: {inside:.0}, {any:.0}");
    }
}
