//! What a table of flows costs, by the number of flows: `cargo run --release -p artery-table --example flows [-- huge]
//! [find4|find6|pauses|flood] [most flows]`.
//!
//! Keys are looked for in batches of 256, in random order. A pause is the time of one call of `insert` or
//! `maintain`, page faults among it; the three longest are shown.
use artery_table::flow::{
    Answer, Flow4, Flow6, FlowKey, FlowLimits, FlowSettings, FlowTable, Seed, Sight, Tick,
};
use artery_table::{HugePages, Pages, Storage};
use artery_wire::{IpProtocol, TcpFlags};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

const BATCH: usize = 256;
/// Batches of a round.
const BATCHES: usize = 2000;
const SYN: Sight = Sight { protocol: IpProtocol::TCP, flags: TcpFlags::SYN, bytes: 40 };
const ACK: Sight = Sight { protocol: IpProtocol::TCP, flags: TcpFlags::ACK, bytes: 1000 };

trait Numbered: FlowKey {
    fn numbered(n: u32) -> Self;
}

impl Numbered for Flow4 {
    fn numbered(n: u32) -> Flow4 {
        let addresses = [0x0a00_0000 + n, 0xc000_0201].map(Ipv4Addr::from_bits);
        Flow4::new(addresses, [1024 + (n % 60_000) as u16, 80], IpProtocol::TCP, 0)
    }
}

impl Numbered for Flow6 {
    fn numbered(n: u32) -> Flow6 {
        let address = |low: u32| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low));
        Flow6::new([address(n), address(1)], [1024 + (n % 60_000) as u16, 80], IpProtocol::TCP, 0)
    }
}

fn at(seconds: u64) -> Tick {
    Tick::at(Duration::from_secs(seconds))
}

/// Numbers in no order.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(most)) >> 32) as u32
    }
}

/// The times of calls that are made in the same order in each of several runs: of each the least. What the machine did to
/// one run, it does not do to the same call of all others; what the call itself does, it does each time.
#[derive(Default)]
struct Pauses {
    least: Vec<u32>,
    next: usize,
}

impl Pauses {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        let time = begin.elapsed().as_nanos() as u32;
        match self.least.get_mut(self.next) {
            Some(least) => *least = time.min(*least),
            None => self.least.push(time),
        }
        self.next += 1;
        result
    }
}

impl std::fmt::Display for Pauses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut least = self.least.clone();
        least.sort_unstable();
        let longest: Vec<String> =
            least.iter().rev().take(3).map(|ns| format!("{:.1}", f64::from(*ns) / 1000.0)).collect();
        write!(f, "{} us of {} calls", longest.join(", "), least.len())
    }
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn table<K: FlowKey>(flows: u32, young: u32, storage: &dyn Storage) -> FlowTable<K> {
    let limits = FlowLimits { flows, young };
    FlowTable::new(limits, FlowSettings::default(), Seed::random(), storage).expect("address space")
}

/// Adds and proves flows of the numbers from `from` to `to`; returns nanoseconds for each.
fn install<K: Numbered>(table: &mut FlowTable<K>, from: u32, to: u32) -> f64 {
    let (begin, mut found, mut keys) = (Instant::now(), Vec::new(), Vec::new());
    for first in (from..to).step_by(BATCH) {
        keys.clear();
        keys.extend((first..(first + BATCH as u32).min(to)).map(K::numbered));
        table.find_batch(&keys, &mut found);
        for (key, n) in keys.iter().zip(first..) {
            let id =
                table.insert(key, Answer { action: n, generation: 1 }, &SYN, at(1)).expect("there is room");
            table.touch(id, &ACK, at(1));
        }
        table.maintain(at(1), 64);
    }
    begin.elapsed().as_nanos() as f64 / f64::from(to - from)
}

/// The least nanoseconds a key of ten rounds: of finding alone, and of finding and touching. Keys are made before each batch,
/// as they are when packets have just been read.
fn lookups<K: Numbered>(table: &mut FlowTable<K>, flows: u32, random: &mut Random) -> [f64; 2] {
    let (mut found, mut sum, mut keys) = (Vec::new(), 0, Vec::new());
    [false, true].map(|touch| {
        let round = |_| {
            let mut time = Duration::ZERO;
            for _ in 0..BATCHES {
                keys.clear();
                keys.extend((0..BATCH).map(|_| K::numbered(random.below(flows))));
                let begin = Instant::now();
                table.find_batch(&keys, &mut found);
                if touch {
                    for id in found.iter().flatten() {
                        sum += table.touch(*id, &ACK, at(1)).map_or(0, |answer| u64::from(answer.action));
                    }
                }
                time += begin.elapsed();
                assert!(found.iter().all(Option::is_some));
            }
            std::hint::black_box(sum);
            time.as_nanos() as f64 / (BATCHES * BATCH) as f64
        };
        (0..10).map(round).fold(f64::MAX, f64::min)
    })
}

fn sizes<K: Numbered>(name: &str, most: u32, storage: &dyn Storage) {
    println!(
        "{name}: flows, install (find, insert, prove, maintain), find, find + touch, + touch uncounted, bytes a flow"
    );
    let sizes = [1000, 10_000, 100_000, 1_000_000, 4_000_000, 16_000_000];
    for flows in sizes.into_iter().filter(|flows| *flows <= most) {
        let before = resident();
        let mut table = table::<K>(flows, 1 << 16, storage);
        let install = install(&mut table, 0, flows);
        let taken = resident().saturating_sub(before);
        let random = &mut Random(7);
        let [find, touch] = lookups(&mut table, flows, random);
        table.set_settings(FlowSettings { counts: false, ..table.settings() });
        let [_, uncounted] = lookups(&mut table, flows, random);
        println!(
            "{flows:10} {install:6.0} ns = {:4.1} M/s {find:6.1} {touch:6.1} {uncounted:6.1} ns {:6.1} = {:4} MB; {:.1} % moved",
            1000.0 / install,
            taken as f64 / f64::from(flows),
            taken / 1_000_000,
            table.stats().moved as f64 * 100.0 / f64::from(flows),
        );
    }
}

/// The longest pauses while a table grows to four million flows and all of them are forgotten.
fn pauses(name: &str, storage: &dyn Storage, populate: bool) {
    const FLOWS: u32 = 4_000_000;
    const RUNS: usize = 6;
    let (mut insert, mut maintain, mut expire) = (Pauses::default(), Pauses::default(), Pauses::default());
    let mut given_back = 0;
    for _ in 0..RUNS {
        let limits = FlowLimits { flows: FLOWS, young: FLOWS };
        let seed = Seed::new([7, 9]);
        let mut table =
            FlowTable::new(limits, FlowSettings::default(), seed, storage).expect("address space");
        if populate {
            table.populate(FLOWS);
        }
        for pauses in [&mut insert, &mut maintain, &mut expire] {
            pauses.next = 0;
        }
        for n in 0..FLOWS {
            let key = Flow4::numbered(n);
            insert.time(|| table.insert(&key, Answer::default(), &SYN, at(1))).expect("there is room");
            if n % 64 == 0 {
                maintain.time(|| table.maintain(at(1), 64));
            }
        }
        let grown = resident();
        while table.stats().bytes > 4096 {
            expire.time(|| table.maintain(at(100), 64));
        }
        given_back = grown.saturating_sub(resident()) / 1_000_000;
    }
    println!("{name}, longest pauses, each the least of {RUNS} runs; {given_back} MB given back");
    println!("  insert                     {insert}\n  maintain                   {maintain}");
    println!("  maintain, 64 are forgotten {expire}");
}

/// What known flows' batches cost while between them come floods of ten million others: the least of 40 parts of a flood.
fn flood(young: u32, storage: &dyn Storage) {
    const KNOWN: u32 = 100_000;
    println!("flood of 13 M strangers, {young} of whom may be young at a time");
    let mut table = table::<Flow4>(1 << 20, young, storage);
    install(&mut table, 0, KNOWN);
    let (mut random, mut stranger) = (Random(9), KNOWN);
    for strangers in [0, 1, 3] {
        let (mut known_ns, mut stranger_ns) = (f64::MAX, f64::MAX);
        for _ in 0..40 {
            let (known, unknown) = flood_part(&mut table, KNOWN, &mut random, strangers, &mut stranger);
            (known_ns, stranger_ns) = (known_ns.min(known), stranger_ns.min(unknown));
        }
        println!(
            "  {strangers} for each known packet: {known_ns:.1} ns a known packet, {stranger_ns:.1} ns a stranger; \
             {} strangers so far, {} flows",
            stranger - KNOWN,
            table.len(),
        );
    }
}

/// Batches of known flows, each followed by batches of strangers; returns nanoseconds for one of each.
fn flood_part(
    table: &mut FlowTable<Flow4>,
    known: u32,
    random: &mut Random,
    strangers: usize,
    stranger: &mut u32,
) -> (f64, f64) {
    const ROUNDS: usize = 330;
    let (mut found, mut keys) = (Vec::new(), Vec::new());
    let (mut known_time, mut stranger_time) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        keys.clear();
        keys.extend((0..BATCH).map(|_| Flow4::numbered(random.below(known))));
        let begin = Instant::now();
        table.find_batch(&keys, &mut found);
        for id in &found {
            table.touch(id.expect("known flows keep their places"), &ACK, at(1));
        }
        known_time += begin.elapsed();
        for _ in 0..strangers {
            keys.clear();
            keys.extend((*stranger..).take(BATCH).map(Flow4::numbered));
            *stranger += BATCH as u32;
            let begin = Instant::now();
            table.find_batch(&keys, &mut found);
            for key in &keys {
                table.insert(key, Answer::default(), &SYN, at(1)).expect("the oldest makes room");
            }
            table.maintain(at(1), 64);
            stranger_time += begin.elapsed();
        }
    }
    let each = |time: Duration, batches: usize| time.as_nanos() as f64 / (batches.max(1) * BATCH) as f64;
    (each(known_time, ROUNDS), each(stranger_time, ROUNDS * strangers))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let storage: &dyn Storage = if arguments.iter().any(|word| word == "huge") { &HugePages } else { &Pages };
    let most = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(u32::MAX);
    let is_part = |word: &&str| *word != "huge" && word.parse::<u32>().is_err();
    let parts: Vec<&str> = arguments.iter().map(String::as_str).filter(is_part).collect();
    let is_wanted = |part| parts.is_empty() || parts.contains(&part);
    if is_wanted("find4") {
        sizes::<Flow4>("IPv4", most, storage);
    }
    if is_wanted("find6") {
        sizes::<Flow6>("IPv6", most, storage);
    }
    if is_wanted("pauses") {
        pauses("4 M flows", storage, false);
        pauses("4 M flows, populated", storage, true);
    }
    if is_wanted("flood") {
        [1 << 16, 1 << 12].into_iter().for_each(|young| flood(young, storage));
    }
}
