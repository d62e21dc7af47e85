//! What a table of flows costs, by the number of flows: `cargo run --release -p artery-table --example flows [-- huge]
//! [find4|find6|pauses|flood] [most flows]`.
//!
//! Keys are looked for in batches of 256, in random order. A pause is the longest processor time of one call of `insert`
//! or `maintain`, page faults among it. What the machine itself does meanwhile, such as interrupts, is among it too: the
//! three longest ones are shown, and beside them those of calls that do nothing.
use artery_table::flow::{
    Answer, Flow4, Flow6, FlowKey, FlowLimits, FlowSettings, FlowTable, Seed, Sight, Tick,
};
use artery_table::{HugePages, Pages, Storage};
use artery_wire::{IpProtocol, TcpFlags};
use rustix::time::{ClockId, clock_gettime};
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

/// The longest times.
#[derive(Default)]
struct Longest([Duration; 3]);

impl Longest {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = processor_time();
        let result = call();
        let time = processor_time().saturating_sub(begin);
        if let Some(place) = self.0.iter().position(|longest| time > *longest) {
            self.0[place..].rotate_right(1);
            self.0[place] = time;
        }
        result
    }
}

impl std::fmt::Display for Longest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c] = self.0.map(|time| time.as_nanos() as f64 / 1000.0);
        write!(f, "{a:.0}, {b:.0}, {c:.0} us")
    }
}

/// The time that this thread was run for.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
    let mut table = table::<Flow4>(FLOWS, FLOWS, storage);
    if populate {
        table.populate(FLOWS);
    }
    let (mut insert, mut maintain, mut expire) = (Longest::default(), Longest::default(), Longest::default());
    let mut nothing = Longest::default();
    (0..FLOWS).for_each(|n| drop(nothing.time(|| std::hint::black_box(Box::new(n)))));
    for n in 0..FLOWS {
        let key = Flow4::numbered(n);
        insert.time(|| table.insert(&key, Answer::default(), &SYN, at(1))).expect("there is room");
        if n % 64 == 0 {
            maintain.time(|| table.maintain(at(1), 64));
        }
    }
    let (mut calls, grown) = (0, resident());
    while table.stats().bytes > 4096 {
        expire.time(|| table.maintain(at(100), 64));
        calls += 1;
    }
    println!(
        "{name}: nothing {nothing}; insert {insert}; maintain {maintain}; {calls} of 64 that forget all {expire}; {} MB given back",
        (grown.saturating_sub(resident())) / 1_000_000
    );
}

/// What known flows' batches cost while between them come floods of ten million others.
fn flood(storage: &dyn Storage) {
    const KNOWN: u32 = 100_000;
    let mut table = table::<Flow4>(1 << 20, 1 << 16, storage);
    install(&mut table, 0, KNOWN);
    let (mut found, mut random, mut flooded) = (Vec::new(), Random(9), KNOWN);
    for strangers in [0, 1, 3] {
        let (mut known_time, mut flood_time, rounds) =
            (Duration::ZERO, Duration::ZERO, 10_000_000 / (BATCH * 3));
        for _ in 0..rounds {
            let keys: Vec<Flow4> = (0..BATCH).map(|_| Flow4::numbered(random.below(KNOWN))).collect();
            let begin = Instant::now();
            table.find_batch(&keys, &mut found);
            for id in &found {
                table.touch(id.expect("known flows keep their places"), &ACK, at(1));
            }
            known_time += begin.elapsed();
            for _ in 0..strangers {
                let keys: Vec<Flow4> = (flooded..).take(BATCH).map(Flow4::numbered).collect();
                flooded += BATCH as u32;
                let begin = Instant::now();
                table.find_batch(&keys, &mut found);
                for key in &keys {
                    table.insert(key, Answer::default(), &SYN, at(1)).expect("the oldest makes room");
                }
                table.maintain(at(1), 64);
                flood_time += begin.elapsed();
            }
        }
        println!(
            "flood of {strangers} for each known: {:.1} ns a known packet, {:.1} ns a stranger; {} strangers so far, {} flows",
            known_time.as_nanos() as f64 / (rounds * BATCH) as f64,
            flood_time.as_nanos() as f64 / (rounds * BATCH * strangers.max(1)) as f64,
            flooded - KNOWN,
            table.len(),
        );
    }
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
        flood(storage);
    }
}
