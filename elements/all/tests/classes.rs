//! What holds for every class: its description is complete and true, and no bytes make it panic
//! or lose a packet.
//!
//! A new class that must be given arguments needs a line in [`CONFIGURATIONS`].

use crate::configurations::{CONFIGURATIONS, is_pull, ports};
use crate::random::Random;
use artery_elements::CLASSES;
use artery_engine::class::Position;
use artery_engine::{Bench, Class, Packet, Time};
use artery_lang::{Options, Sources, check, compile};
use artery_wire::build::{arp_request, ether, ip4, ip6};
use std::collections::HashSet;

/// Classes that hold packets back.
const KEEP: &[&str] = &[
    "AggregateLast",
    "ARPQuerier",
    "DRRSched",
    "DelayShaper",
    "DelayUnqueue",
    "FrontDropQueue",
    "IPReassembler",
    "IPRouter",
    "LinkUnqueue",
    "MixedQueue",
    "NotifierQueue",
    "Queue",
    "SimpleQueue",
    "TimeSortedSched",
];

/// Classes that send packets of their own: copies, answers, fragments.
const MAKE: &[&str] = &[
    "ARPQuerier",
    "ARPResponder",
    "EtherSwitch",
    "Hub",
    "ICMPError",
    "ICMPPingSource",
    "IPFragmenter",
    "IPOutputCombo",
    "IPReassembler",
    "IPRouter",
    "PacketFilter",
    "PaintSwitch",
    "PaintTee",
    "PullTee",
    "Tee",
    "Veb",
];

fn classes() -> impl Iterator<Item = &'static Class> {
    CLASSES.0.iter().copied()
}
fn on_bench() -> impl Iterator<Item = &'static Class> {
    classes().filter(|class| !crate::configurations::ELSEWHERE.contains(&class.name))
}
/// The first of a class's configurations.
fn configuration(class: &Class) -> &'static str {
    crate::configurations::of(class)[0]
}
/// An element on its bench, or why there is none.
fn bench(class: &'static Class, config: &str, pull: bool) -> Result<Bench, String> {
    let [inputs, outputs] = ports(class);
    let setup = Bench::setup(class, config).inputs(inputs).outputs(outputs);
    let setup = if pull { setup.pull() } else { setup };
    setup
        .build()
        .map_err(|errors| format!("{}({config}) does not build: {errors:?}; see CONFIGURATIONS", class.name))
}
/// Fails with all complaints at once.
#[track_caller]
fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn names_are_unique() {
    let mut seen = HashSet::new();
    for class in classes() {
        for name in std::iter::once(&class.name).chain(class.aliases) {
            assert!(seen.insert(*name), "two classes are called {name}");
        }
    }
}

#[test]
fn tables_of_this_test_name_classes_that_exist() {
    let configured = CONFIGURATIONS.iter().map(|(name, _)| name);
    for name in configured.chain(crate::configurations::ELSEWHERE).chain(KEEP).chain(MAKE) {
        assert!(classes().any(|class| class.name == *name), "no class {name}");
    }
}

#[test]
fn codes_are_legal() {
    for class in classes() {
        ports(class);
        let (inputs, outputs) =
            class.processing.split_once('/').unwrap_or((class.processing, class.processing));
        let legal = |codes: &str| !codes.is_empty() && codes.chars().all(|code| "hla".contains(code));
        assert!(legal(inputs) && legal(outputs), "{}: processing {}", class.name, class.processing);
        let (inputs, outputs) = class.flow.split_once('/').unwrap_or((class.flow, class.flow));
        assert!(is_flow_list(inputs) && is_flow_list(outputs), "{}: flow {}", class.name, class.flow);
    }
}

/// Whether this is a list of letters, `#`, and sets of them in brackets.
fn is_flow_list(list: &str) -> bool {
    let is_code = |c: char| c.is_ascii_alphabetic() || c == '#';
    let mut rest = list;
    while let Some(first) = rest.chars().next() {
        if first == '[' {
            let Some((set, after)) = rest[1..].split_once(']') else { return false };
            let set = set.strip_prefix('^').unwrap_or(set);
            if set.is_empty() || !set.chars().all(is_code) {
                return false;
            }
            rest = after;
        } else if is_code(first) {
            rest = &rest[1..];
        } else {
            return false;
        }
    }
    !list.is_empty()
}

#[test]
fn positional_arguments_come_before_keywords_and_names_are_unique() {
    for class in classes() {
        let places: Vec<u8> = class
            .args
            .iter()
            .map(|arg| match arg.position {
                Position::Positional => 0,
                Position::Rest => 1,
                Position::Keyword => 2,
            })
            .collect();
        assert!(places.is_sorted(), "{}: {places:?}", class.name);
        let names: HashSet<_> = class.args.iter().map(|arg| arg.name).collect();
        assert_eq!(names.len(), class.args.len(), "{} has an argument twice", class.name);
        let handlers: HashSet<_> = class.handlers.iter().map(|handler| handler.name).collect();
        assert_eq!(handlers.len(), class.handlers.len(), "{} has a handler twice", class.name);
    }
}

#[test]
fn every_class_is_documented() {
    for class in classes() {
        let name = class.name;
        assert!(!class.group.is_empty(), "{name}");
        assert!(!class.summary.is_empty(), "{name}");
        assert!(!class.manual.trim().is_empty(), "{name}");
        assert!(!class.summary.ends_with('.') && !class.summary.contains('\n'), "{name}: {}", class.summary);
        for arg in class.args {
            assert!(!arg.doc.is_empty() && !arg.kind.is_empty(), "{name}: {}", arg.name);
        }
        assert!(
            class.handlers.iter().all(|handler| !handler.doc.is_empty()),
            "{name}: a handler says nothing"
        );
        assert!(class.example.contains(name), "{name}: {}", class.example);
    }
}

#[test]
fn every_example_is_a_configuration_without_mistakes() {
    for class in classes() {
        let mut sources = Sources::default();
        let file = sources.add_file(class.name, class.example);
        let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &CLASSES);
        diagnostics.extend(check(&ir, &CLASSES).1);
        let text: String = diagnostics.iter().map(|diagnostic| diagnostic.render(&sources)).collect();
        assert!(text.is_empty(), "{}:\n{text}", class.name);
    }
}

#[test]
fn defaults_are_what_could_be_written() {
    let mut complaints = Vec::new();
    for class in on_bench() {
        let given = configuration(class);
        complaints.extend(bench(class, given, false).err());
        for arg in class.args.iter().filter(|arg| arg.position != Position::Rest) {
            if let Some(default) = arg.default.filter(|default| !default.is_empty()) {
                let comma = if given.is_empty() { "" } else { ", " };
                let config = format!("{given}{comma}{} {default}", arg.name);
                complaints.extend(bench(class, &config, false).err());
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn every_handler_of_a_fresh_element_can_be_read() {
    let mut complaints = Vec::new();
    for class in on_bench() {
        let mut bench = match bench(class, configuration(class), false) {
            Ok(bench) => bench,
            Err(complaint) => {
                complaints.push(complaint);
                continue;
            }
        };
        for handler in
            class.handlers.iter().filter(|handler| handler.read.is_some() && !handler.takes_parameters)
        {
            if let Err(error) = bench.read(handler.name, "") {
                complaints.push(format!("{}.{}: {error}", class.name, handler.name));
            }
        }
    }
    assert_none(complaints);
}

/// Packets as they should be, with and without a link header.
fn real_packets() -> Vec<Vec<u8>> {
    let udp = || ip4().src("10.0.0.1").dst("10.0.0.2").udp(1234, 53).payload("hello, world");
    let tcp = || ip4().tcp(80, 4000).payload([7; 100]);
    let frame = || ether("02:00:00:00:00:02", "02:00:00:00:00:01");
    vec![
        udp().bytes(),
        tcp().options([1, 1, 1, 0]).bytes(),
        ip4().icmp_echo(1, 2).payload("ping").bytes(),
        ip4().fragment(64, true).udp(1, 2).payload([1; 64]).bytes(),
        ip6().udp(5, 6).payload("six").bytes(),
        frame().ip4(udp()).bytes(),
        frame().vlan(7).ip4(tcp()).bytes(),
        frame().ip6(ip6().tcp(1, 2)).bytes(),
        arp_request("02:00:00:00:00:01", "10.0.0.1", "10.0.0.2").bytes(),
    ]
}

/// Random bytes, or a real packet that was cut or had bits flipped.
fn random_bytes(random: &mut Random, real: &[Vec<u8>]) -> Vec<u8> {
    if random.below(3) == 0 {
        return (0..random.below(200)).map(|_| random.next() as u8).collect();
    }
    let mut bytes = real[random.below(real.len())].clone();
    if random.below(2) == 0 {
        bytes.truncate(random.below(bytes.len() + 1));
    }
    for _ in 0..random.below(4) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
    }
    bytes
}

/// A packet with such bytes, and metadata that may have nothing to do with them.
fn random_packet(random: &mut Random, real: &[Vec<u8>], bench: &Bench) -> Packet {
    let mut packet = bench.packet(random_bytes(random, real));
    if random.below(2) == 0 {
        packet.set_mac_header(random.below(20));
        packet.set_network_header(random.below(40));
        packet.set_transport_header(random.below(80));
    }
    if random.below(4) == 0 {
        let annotations: [u8; 48] = std::array::from_fn(|_| random.next() as u8);
        packet.set_annotation(0, annotations);
        packet.set_timestamp(Time(random.next() >> random.below(60)));
    }
    packet
}

/// What went in and what came out.
#[derive(Debug, Default)]
struct Account {
    taken: u64,
    sent: u64,
    dropped: u64,
}

/// Sends 200 packets through an element, in small batches, letting time pass and tasks run between.
fn exercise(class: &'static Class, config: &str, pull: bool, random: &mut Random) -> Result<Account, String> {
    let mut bench = bench(class, config, pull)?;
    let [inputs, outputs] = ports(class);
    let (before, after) = class.processing.split_once('/').unwrap_or((class.processing, class.processing));
    let (mut account, real) = (Account::default(), real_packets());
    let mut offered = 0;
    for _ in 0..200 / 8 {
        for input in 0..inputs {
            let packets: Vec<_> = (0..8 / inputs).map(|_| random_packet(random, &real, &bench)).collect();
            if is_pull(before, input, pull) {
                offered += packets.len() as u64;
                packets.into_iter().for_each(|packet| bench.offer_packet(input, packet));
            } else {
                account.taken += packets.len() as u64;
                bench.push_packets(input, packets);
            }
        }
        for _ in 0..3 {
            bench.run_once();
        }
        bench.advance_time(std::time::Duration::from_millis(2));
        for output in 0..outputs {
            if is_pull(after, output, pull) {
                account.sent += bench.pull(output, 1 + random.below(64)).len() as u64;
            }
            account.sent += bench.drain_sent(output).len() as u64;
        }
    }
    account.taken += offered - (0..inputs).map(|input| bench.offered_count(input) as u64).sum::<u64>();
    account.dropped = bench.drops().total();
    Ok(account)
}

/// The errors in an element's packet account.
fn audit(class: &Class, account: &Account) -> Option<String> {
    let ended = account.sent + account.dropped;
    let is_source = ports(class)[0] == 0;
    if ended > account.taken && !MAKE.contains(&class.name) && !is_source {
        return Some(format!("{} makes packets: {account:?}; see MAKE", class.name));
    }
    let keeps = ended < account.taken && !KEEP.contains(&class.name);
    keeps.then(|| format!("{} keeps packets: {account:?}; see KEEP", class.name))
}

#[test]
fn no_packet_makes_an_element_panic_and_every_packet_is_accounted_for() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_220_704);
    let mut complaints = Vec::new();
    for class in on_bench() {
        let both = |config: &'static &str| [(*config, false), (*config, true)];
        for (config, pull) in crate::configurations::of(class).iter().flat_map(both) {
            println!("SEED={seed} {}({config}) pull: {pull}", class.name);
            match exercise(class, config, pull, &mut Random(seed)) {
                Ok(account) => complaints.extend(audit(class, &account)),
                Err(complaint) => complaints.push(complaint),
            }
        }
    }
    assert_none(complaints);
}
