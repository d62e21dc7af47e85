//! The program and the decision, side by side.
use super::*;
use artery_device::bpf::{self, Hook};
use artery_l3::router::ReversePath;
use artery_lpm::{Art, Fib4Fast, Fib4FastReader, Fib4Options, Fib6, Fib6Reader, Prefix, Strides};
use artery_rcu::Domain;
use artery_storage::Pages;
use artery_wire::{EtherAddr, Ipv4, Ipv6, checksum};
use capture::{CaptureRings, Copied};
use layout::{MOST_FIBS, OuterEnds, TunnelInput, own_bit_v4, own_bit_v6, protocol_number};
use program::{Fibs, OtherFibs, ProgramHook, ProgramPort};
use rustix::fd::OwnedFd;
use shared_arrays::SharedArrays;
use std::sync::Arc;
use tables::Table;

mod bridges;
mod copies;
mod established;
mod pppoe;
mod shortages;
mod tables;
mod tunnels;
mod vrfs;

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TCX_NEXT: i32 = -1;
const TC_REDIRECT: i32 = 7;
const LOOPBACK: u32 = 1;
const LIST_LINES: usize = 1 << 17;
const FIB6_BYTES: usize = 1 << 22;

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Ports, routes and programs.
struct Rig {
    memory: Memory,
    capture: Option<CaptureRings>,
    domain: Arc<Domain>,
    ipv4: Fib4FastReader,
    ipv6: Fib6Reader,
    vrfs: Vec<VrfTables>,
    routes4: Vec<Prefix<u32>>,
    routes6: Vec<Prefix<u128>>,
    /// For XDP and for tc, by port.
    programs: [Vec<OwnedFd>; 2],
    /// The kernel forgets programs of an array that no process has any more.
    _others: Vec<bpf::ProgramArray>,
}

fn mac(last: u8) -> EtherAddr {
    EtherAddr([2, 0, 0, 0, 0, last])
}

fn may_load() -> bool {
    let Err(error) = Memory::new() else { return true };
    let required = std::env::var_os("ARTERY_RIG").is_some_and(|value| value == "required");
    assert!(!required, "{error}, and ARTERY_RIG=required");
    eprintln!("skipped: {error}");
    false
}

const GROUPS: u64 = 40;

/// Makes three ports. The first has VLANs 7 and 8, as ports 3 and 4.
fn ports(memory: &Memory, random: &mut Random, is_established: bool, fibs: u32) {
    for port in 0..5 {
        let flags = Flags {
            ipv4: port != 4 && !is_established,
            ipv6: port != 1 && !is_established,
            ipv4_established: port != 4 && is_established,
            ipv6_established: port != 1 && is_established,
            ipv4_ports: random.one_in(2),
            ipv6_ports: random.one_in(2),
            reverse_path: random.of(&[ReversePath::Off, ReversePath::Loose, ReversePath::Strict]),
            multi_buffer: random.one_in(2),
            // The third port's has none that programs know, where there are several.
            fib: if port == 2 && fibs > 1 { fibs } else { port % fibs },
        };
        memory.set_port(port, &PortRecord { mac: mac(port as u8 % 3), device: LOOPBACK, flags });
    }
    memory.set_vlan(0, 7, Some(3));
    memory.set_vlan(0, 8, Some(4));
    (0..3).for_each(|device| memory.devices.insert_interface(device, LOOPBACK).unwrap());
}

fn hops(memory: &Memory, random: &mut Random) {
    for hop in 0..30 {
        let port = random.below(5) as u32;
        let (device, vlan) = if port > 2 { (0, Some(port as u16 + 4)) } else { (port, None) };
        let mtu = random.of(&[1500, 9000, 9000, 60, 1280]);
        let (destination, source) = (mac(100 + hop), mac(port as u8 % 3));
        let tunnel = if memory.has_tunnels { random.of(&[0, 0, 1, 2, 3, 4, 4]) } else { 0 };
        let returns = hop % 3 == 0 || tunnel != 0;
        let hop_of = Hop { destination, source, vlan, mtu, device, port, returns, tunnel };
        memory.write_hop(hop.into(), &hop_of);
        if random.one_in(10) {
            memory.unset_hop(hop.into());
        } else if random.one_in(10) {
            // Each kind is met also where few tables are tried.
            let kind = random.next() as usize + usize::from(hop);
            memory.withhold_hop(hop.into(), Withheld::ALL[kind % Withheld::ALL.len()]);
        }
    }
    for member in 0..200 {
        memory.members[member].store(random.below(30) as u32, std::sync::atomic::Ordering::Relaxed);
    }
    for group in 1..GROUPS as u32 {
        match random.below(6) {
            0 => memory.set_group(group, 0, 0),
            1 | 2 => memory.set_group(group, random.below(150) as u32, 2 + random.below(40) as u32),
            _ => memory.set_group(group, random.below(30) as u32, 1),
        }
        // Routed, and by some of the five ports; by others, too, which are never read.
        let inputs = 1 << layout::ROUTED | random.next();
        memory.set_inputs(group, if random.one_in(4) { 0 } else { inputs });
    }
}

/// Loads the program of a port that looks into the first FIB, and those that look into the others, which it
/// leaves frames to; those of the third port are missing.
fn load_programs(
    memory: &Memory,
    tables: &[Table],
    (at, hook): (ProgramHook, Hook),
    port: &ProgramPort<'_>,
    others: &mut Vec<bpf::ProgramArray>,
) -> OwnedFd {
    let load = |table: &Table, port: &ProgramPort<'_>| {
        let instructions = program::build_program(memory, &table.fibs(), at, port);
        let refusal = || bpf::verdict(hook, &instructions);
        bpf::load(hook, &instructions).unwrap_or_else(|error| panic!("{error}: {}", refusal()))
    };
    let [first, more @ ..] = tables else { panic!("no FIB") };
    if more.is_empty() {
        return load(first, port);
    }
    let more = if port.number < 2 { more } else { &[] };
    let programs = bpf::ProgramArray::new(MOST_FIBS).unwrap();
    for (table, number) in more.iter().zip(1..) {
        programs.insert_program(number, &load(table, port)).unwrap();
    }
    let program =
        load(first, &ProgramPort { others: Some(OtherFibs { own: 0, programs: &programs }), ..*port });
    others.push(programs);
    program
}

impl Rig {
    fn new(seed: u64) -> Rig {
        Rig::with(seed, None, false)
    }

    /// One whose programs copy frames, if there is room for them.
    ///
    /// With `has_flows` they forward only packets of established connections.
    fn with(seed: u64, capture: Option<CaptureRings>, has_flows: bool) -> Rig {
        Rig::make(seed, capture, has_flows, None, 1)
    }

    /// One in which all ports but the first are members of a bridge of this number, or in which each port has
    /// one of so many FIBs.
    fn make(
        seed: u64,
        capture: Option<CaptureRings>,
        has_flows: bool,
        bridge: Option<u32>,
        fibs: u32,
    ) -> Rig {
        Rig::make_with(seed, capture, has_flows, (bridge, fibs), false)
    }

    /// One some of whose hops lead into tunnels.
    fn with_tunnels(seed: u64, has_flows: bool) -> Rig {
        Rig::make_with(seed, None, has_flows, (None, 1), true)
    }

    fn make_with(
        seed: u64,
        capture: Option<CaptureRings>,
        has_flows: bool,
        (bridge, fibs): (Option<u32>, u32),
        has_tunnels: bool,
    ) -> Rig {
        let mut random = Random(seed);
        // Every second seed runs as on kernels before 5.16, whose maps are small.
        let most = if seed.is_multiple_of(2) { u32::MAX as usize } else { 4 << 20 };
        let mut memory = Memory::with_arrays(SharedArrays::with_maps_of(most)).unwrap();
        if has_flows {
            memory.enable_flows(random.next() as u32).unwrap();
        }
        if bridge.is_some() {
            memory.enable_fdb(seed as u32).unwrap();
            let fdb = memory.fdb.as_mut().unwrap();
            (1..3).for_each(|member| fdb.set_bridge(member, bridge));
        }
        memory.has_tunnels = has_tunnels;
        tunnels::write_tunnels(&memory);
        memory.lease.renew_for_good().unwrap();
        ports(&memory, &mut random, has_flows, fibs);
        hops(&memory, &mut random);
        for _ in 0..500 {
            memory.set_own(own_bit_v4(random.next() as u32), true);
            memory.set_own(own_bit_v6(u128::from(random.next())), true);
        }
        let domain = Domain::new();
        let tables: Vec<Table> = (0..fibs).map(|_| Table::new(&domain, &mut random, most, seed)).collect();
        let mut others = Vec::new();
        let mut load = |at, hook| {
            let mut load = |number| {
                let bridge = bridge.filter(|_| number > 0);
                let of_samples = |rings: &&CaptureRings| matches!(rings.copied, Copied::Sampled(_));
                let samples = capture.as_ref().filter(of_samples);
                let capture = capture.as_ref().filter(|rings| !of_samples(rings));
                let port = ProgramPort { number, capture, samples, bridge, ..ProgramPort::default() };
                load_programs(&memory, &tables, (at, hook), &port, &mut others)
            };
            (0..3).map(&mut load).collect()
        };
        let xdp = Hook::Xdp { flags: 0, multi_buffer: memory.takes_buffers };
        let programs = [load(ProgramHook::Xdp, xdp), load(ProgramHook::Tc, Hook::TcIngress)];
        let routes4 = tables.iter().flat_map(|table| table.routes4.clone()).collect();
        let routes6 = tables.iter().flat_map(|table| table.routes6.clone()).collect();
        let readers = |number: u32| {
            let Table { ipv4, ipv6, .. } = &tables[number as usize];
            VrfTables { number, ipv4: ipv4.reader(), ipv6: ipv6.reader() }
        };
        let VrfTables { ipv4, ipv6, .. } = readers(0);
        let vrfs = (1..fibs).map(readers).collect();
        Rig { programs, _others: others, ipv4, ipv6, vrfs, memory, capture, domain, routes4, routes6 }
    }

    fn tables(&self) -> ForwardingTables<'_> {
        ForwardingTables { memory: &self.memory, ipv4: &self.ipv4, ipv6: &self.ipv6, vrfs: &self.vrfs }
    }

    /// A frame that a port may get: mostly to be forwarded.
    fn frame(&self, random: &mut Random, port: u32) -> Vec<u8> {
        let mut frame = mac(if random.one_in(20) { 99 } else { port as u8 }).octets().to_vec();
        frame.extend(mac(50).octets());
        if random.one_in(if port == 0 { 2 } else { 20 }) {
            let vlan = random.of(&[7, 8, 8, 9]) as u16 | (random.below(16) as u16) << 12;
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        let payload = match random.one_in(8) {
            true => random.below(9000 - 20) as usize,
            false => random.below(100) as usize,
        };
        match random.below(20) {
            0 => frame.extend([8, 6]),
            1..=9 => self.ipv6(random, payload, &mut frame),
            _ => self.ipv4(random, payload, &mut frame),
        }
        let start = frame.len();
        while frame.len() < start + payload {
            frame.extend(random.next().to_ne_bytes());
        }
        frame.truncate(start + payload);
        if !self.memory.takes_buffers {
            frame.truncate(bpf::FIRST_BUFFER);
        }
        if random.one_in(20) {
            let length = 14 + random.below(frame.len() as u64 - 13) as usize;
            frame.truncate(length);
        }
        if random.one_in(20) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        frame
    }

    fn ipv4(&self, random: &mut Random, payload: usize, frame: &mut Vec<u8>) {
        let prefix = random.of(&self.routes4);
        let host = random.next() as u32 & u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
        let destination = if random.one_in(9) { random.next() as u32 } else { prefix.first() | host };
        let prefix = random.of(&self.routes4);
        let host = random.next() as u32 & u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
        let source = if random.one_in(4) { random.next() as u32 } else { prefix.first() | host };
        let length = (20 + payload) as u16 - u16::from(random.one_in(30)) + u16::from(random.one_in(30));
        let mut header = vec![if random.one_in(20) { random.of(&[0x46, 0x44, 0x65]) } else { 0x45 }, 0];
        header.extend(length.to_be_bytes());
        let fragment = if random.one_in(10) { random.next() as u16 } else { 0x4000 };
        header.extend([1, 2]);
        header.extend(fragment.to_be_bytes());
        header.extend([
            if random.one_in(20) { random.below(3) as u8 } else { 64 },
            random.of(&[1, 6, 17, 17, 47]),
            0,
            0,
        ]);
        header.extend(source.to_be_bytes());
        header.extend(destination.to_be_bytes());
        let sum = !checksum::sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([8, 0]);
        frame.extend(header);
    }

    fn ipv6(&self, random: &mut Random, payload: usize, frame: &mut Vec<u8>) {
        let prefix = random.of(&self.routes6);
        let wild = u128::from(random.next()) << 64 | u128::from(random.next());
        let host = wild & u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
        let destination = if random.one_in(9) { wild } else { prefix.first() | host };
        let length = payload as u16 + u16::from(random.one_in(30));
        frame.extend([0x86, 0xdd, random.of(&[0x60, 0x60, 0x60, 0x60, 0x60, 0x60, 0x6f, 0x50]), 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([random.of(&[6, 6, 6, 17, 17, 17, 58, 0]), random.of(&[0, 1, 2, 64, 64, 64, 64, 255])]);
        let start =
            if random.one_in(10) { random.of(&[0xfe80_0000_u32, 0xff02_0000, 0]) } else { 0x2001_0db8 };
        let source = u128::from(start) << 96 | wild >> 32;
        frame.extend(source.to_be_bytes());
        frame.extend(destination.to_be_bytes());
    }
}

/// Whether the kernel runs a program of tc on a frame that no interface got.
fn is_for_tc(frame: &[u8]) -> bool {
    // Tags of frames that are given to a tc program are not taken out of them, as they are on a real path.
    let is_tagged = frame.get(12..14) == Some(&[0x81, 0]);
    !is_tagged && (14 + 40..3000).contains(&frame.len())
}

/// Compares with the validation of headers that elements share: only packets that pass it are sent, and those
/// that are malformed don't pass it, or don't fill their frame.
fn assert_validated(decision: &ForwardDecision, frame: &[u8]) {
    let at = if frame.get(12..14) == Some(&[0x81, 0]) { 16 } else { 12 };
    let Some((ether_type, packet)) = frame.get(at..).and_then(|rest| rest.split_first_chunk()) else {
        return;
    };
    let valid = match ether_type {
        [0x08, 0x00] => Ipv4::validate(packet).map(|ip| usize::from(ip.total_length())),
        [0x86, 0xdd] => Ipv6::validate(packet).map(|ip| 40 + usize::from(ip.payload_length())),
        _ => return,
    };
    match decision {
        ForwardDecision::Send { .. } => assert!(valid.is_ok(), "{frame:02x?}"),
        ForwardDecision::Kernel(Reason::Malformed) => assert_ne!(valid, Ok(packet.len()), "{frame:02x?}"),
        ForwardDecision::Kernel(_) => {}
    }
}

/// Whether a frame that was sent has a header of a tunnel more or less than the one that came.
fn is_by_tunnel(frame: &[u8], sent: &[u8]) -> bool {
    let [came, left] = [frame, sent].map(|frame| {
        let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
        frame[12 + tag..].split_at(2)
    });
    let is_outer = |packet: &[u8]| packet.get(9).is_some_and(|protocol| [4, 47].contains(protocol));
    let addresses = |packet: &[u8]| packet.get(12..20).map(<[u8]>::to_vec);
    let is_over_ipv4 = is_outer(came.1) || is_outer(left.1);
    came.0 != left.0 || came.0 == [8, 0] && is_over_ipv4 && addresses(came.1) != addresses(left.1)
}

/// What programs should have counted.
#[derive(Default)]
struct Expected {
    kernel: [u64; Reason::ALL.len()],
    sent: u64,
    sent_bytes: u64,
    by_reason: std::collections::BTreeMap<String, u64>,
}

impl Expected {
    /// Compares what a program did with a frame with the decision, and counts it. `answers` are those for
    /// frames of the kernel's and for those that leave.
    fn check(
        &mut self,
        decision: &ForwardDecision,
        frame: &[u8],
        (action, left): (i32, &[u8]),
        answers: [i32; 2],
    ) {
        assert_validated(decision, frame);
        self.compare(decision, frame, (action, left), answers);
    }

    /// The same for a frame that may be malformed within what arrived by a tunnel.
    fn compare(
        &mut self,
        decision: &ForwardDecision,
        frame: &[u8],
        (action, left): (i32, &[u8]),
        answers: [i32; 2],
    ) {
        match decision {
            ForwardDecision::Kernel(reason) => {
                self.kernel[*reason as usize] += 1;
                *self.by_reason.entry(format!("{reason:?}")).or_insert(0) += 1;
                assert_eq!(action, answers[0], "{reason:?} {frame:02x?}");
                assert_eq!(left, frame, "{reason:?}");
            }
            ForwardDecision::Send { frame: expected, .. } => {
                self.sent += 1;
                self.sent_bytes += frame.len() as u64;
                assert_eq!(action, answers[1], "{frame:02x?}");
                let mut expected = expected.clone();
                // Tags that a tc program puts on are not put into frames.
                if answers[1] == TC_REDIRECT && expected[12..14] == [0x81, 0] {
                    expected.drain(12..16);
                }
                if answers[1] == XDP_REDIRECT as i32 && is_by_tunnel(frame, &expected) {
                    expected.resize(expected.len().max(60), 0);
                }
                assert_eq!(left, expected, "{frame:02x?}");
            }
        }
    }

    /// Returns the bytes that were forwarded.
    fn check_counters(&self, rig: &Rig) -> u64 {
        let counters = rig.memory.counters();
        assert_eq!(counters.kernel(), self.kernel);
        let sum = |of: fn(&PortCounters) -> u64| counters.ports.iter().map(of).sum::<u64>();
        assert_eq!([sum(|port| port.received), sum(|port| port.sent)], [self.sent; 2]);
        // What is in other buffers behind a short packet is not counted.
        let bytes = [sum(|port| port.received_bytes), sum(|port| port.sent_bytes)];
        assert!(bytes[0] == bytes[1] && bytes[0] <= self.sent_bytes, "{bytes:?} {}", self.sent_bytes);
        bytes[0]
    }
}

/// Half of what the verifier follows at most: other kernels may follow more of a program.
const MOST_VERIFIED: u32 = 500_000;

#[test]
fn the_verifier_is_far_from_its_limit_with_each_program() {
    if !may_load() {
        return;
    }
    let plain = [(0, false), (1, false), (0, true), (1, true)].map(|(seed, has)| (seed, has, None, 1));
    let others = [(0, true, Some(3), 1), (1, true, None, 2)];
    let check = |rig: Rig, what: &str| {
        for program in rig.programs.iter().flatten() {
            let Some(count) = bpf::verified_instructions(program).unwrap() else { return };
            assert!(count < MOST_VERIFIED, "{count}: {what}");
        }
    };
    for (seed, has_flows, bridge, fibs) in plain.into_iter().chain(others) {
        let what = format!("arrays as of table {seed}, flows: {has_flows}, {bridge:?}, {fibs} FIBs");
        check(Rig::make(seed, None, has_flows, bridge, fibs), &what);
    }
    for has_flows in [false, true] {
        check(Rig::with_tunnels(0, has_flows), &format!("tunnels, flows: {has_flows}"));
    }
}

/// How many of so many tables or frames are tried: half where `ARTERY_QUICK` is set, as in machines that are
/// emulated, whose verifier takes seconds for a program.
fn trial_count(all: u64) -> u64 {
    if std::env::var_os("ARTERY_QUICK").is_some() { all / 2 } else { all }
}

#[test]
fn the_program_does_what_the_decision_says_of_100_000_random_frames() {
    if !may_load() {
        return;
    }
    let tables_tried = trial_count(4);
    let (mut seen, mut sent, mut sent_in_buffers) = (std::collections::BTreeMap::new(), 0, 0);
    for seed in 0..tables_tried {
        let rig = Rig::new(seed);
        let mut random = Random(1000 + seed);
        let mut reader = rig.domain.reader();
        let tables = rig.tables();
        let mut expected = Expected::default();
        for _ in 0..25_000 {
            let port = random.below(3) as u32;
            let frame = rig.frame(&mut random, port);
            let first = frame.len().min(bpf::FIRST_BUFFER);
            let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
            let is_sent = matches!(decision, ForwardDecision::Send { .. });
            sent_in_buffers += u64::from(is_sent && first < frame.len());
            let outcome = bpf::run(&rig.programs[0][port as usize], &frame, None, 1).unwrap();
            let done = (outcome.action as i32, outcome.frame.as_slice());
            expected.check(&decision, &frame, done, [XDP_PASS as i32, XDP_REDIRECT as i32]);
            if is_for_tc(&frame) {
                let outcome = bpf::run(&rig.programs[1][port as usize], &frame, None, 1).unwrap();
                let done = (outcome.action as i32, outcome.frame.as_slice());
                expected.check(&decision, &frame, done, [TCX_NEXT, TC_REDIRECT]);
            }
        }
        assert_eq!(expected.check_counters(&rig), expected.sent_bytes);
        sent += expected.sent;
        expected.by_reason.into_iter().for_each(|(reason, count)| *seen.entry(reason).or_insert(0) += count);
    }
    // Every reason occurs, except those that need a change at the same moment, and those that have
    // tests of their own.
    let takes_buffers = bpf::takes_multi_buffer();
    let is_met = |reason: &&Reason| match reason {
        Reason::Changing | Reason::Stale => false,
        Reason::MultiBuffer => takes_buffers,
        Reason::NotEstablished | Reason::Renewal | Reason::Closing | Reason::NotLearned => false,
        Reason::OtherPort | Reason::Rule | Reason::Window | Reason::Tunnel | Reason::NoRoom => false,
        _ => true,
    };
    for reason in Reason::ALL.iter().filter(is_met) {
        assert!(seen.contains_key(&format!("{reason:?}")), "{reason:?} was not met: {seen:?}");
    }
    let is_enough = sent > 7500 * tables_tried && (sent_in_buffers > 25 * tables_tried || !takes_buffers);
    assert!(is_enough, "{sent} {sent_in_buffers} {seen:?}");
}

#[test]
fn the_program_does_what_the_decision_says_wherever_the_first_buffer_ends() {
    if !may_load() {
        return;
    }
    let rig = Rig::new(2);
    let (mut random, mut reader) = (Random(9), rig.domain.reader());
    let tables = rig.tables();
    let (mut expected, mut sent_in_buffers) = (Expected::default(), 0);
    for _ in 0..20_000 {
        let port = random.below(3) as u32;
        let frame = rig.frame(&mut random, port);
        // Before 60 bytes are there it often ends within the headers.
        let room = frame.len().min(if random.one_in(2) { 100 } else { bpf::FIRST_BUFFER });
        let first = 14 + random.below(room as u64 - 13) as usize;
        let outcome = match bpf::run_multi_buffer(&rig.programs[0][port as usize], &frame, first) {
            Ok(outcome) => outcome,
            Err(error) if first < frame.len() => {
                return eprintln!(
                    "skipped: this kernel has no frames with first buffers of any size: {error}"
                );
            }
            Err(error) => panic!("{error}"),
        };
        let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
        let is_sent = matches!(decision, ForwardDecision::Send { .. });
        sent_in_buffers += u64::from(is_sent && first < frame.len());
        let done = (outcome.action as i32, outcome.frame.as_slice());
        expected.check(&decision, &frame, done, [XDP_PASS as i32, XDP_REDIRECT as i32]);
    }
    expected.check_counters(&rig);
    let kept = expected.kernel[Reason::MultiBuffer as usize];
    assert!(sent_in_buffers > 100 && kept > 100, "{sent_in_buffers} {kept}");
}

#[test]
fn programs_leave_everything_to_the_kernel_once_the_lease_has_ended() {
    if !may_load() {
        return;
    }
    let rig = Rig::new(0);
    let (mut random, mut reader) = (Random(5), rig.domain.reader());
    let tables = rig.tables();
    let is_sent = |frame: &Vec<u8>, reader: &mut artery_rcu::Reader| {
        matches!(decide_frame(&tables, &reader.turn(), 1, frame), ForwardDecision::Send { .. })
            && frame.len() >= 14 + 40
    };
    let frame = std::iter::repeat_with(|| rig.frame(&mut random, 1))
        .find(|frame| is_sent(frame, &mut reader))
        .unwrap();
    let actions =
        || [0, 1].map(|hook| bpf::run(&rig.programs[hook][1], &frame, None, 1).unwrap().action as i32);
    assert_eq!(actions(), [XDP_REDIRECT as i32, TC_REDIRECT]);
    rig.memory.lease.renew().unwrap();
    std::thread::sleep(bpf::Lease::TERM + std::time::Duration::from_millis(100));
    assert_eq!(actions(), [XDP_PASS as i32, TCX_NEXT]);
    assert_eq!(decide_frame(&tables, &reader.turn(), 1, &frame), ForwardDecision::Kernel(Reason::Stale));
    assert_eq!(rig.memory.counters().kernel()[Reason::Stale as usize], 2);
    rig.memory.lease.renew().unwrap();
    assert_eq!(actions(), [XDP_REDIRECT as i32, TC_REDIRECT]);
}

#[test]
fn hosts_and_networks_that_are_numbered_alike_do_not_share_a_bit_of_own_addresses() {
    let address = |network: u128, host: u128| (0xfd00_u128 << 112) | network << 96 | host;
    let bits: std::collections::BTreeSet<_> =
        (0..32).flat_map(|network| (0..32).map(move |host| own_bit_v6(address(network, host)))).collect();
    assert!(bits.len() > 1000, "1,024 addresses have {} bits", bits.len());
}
