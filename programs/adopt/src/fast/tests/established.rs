//! Packets of established connections.
use super::*;
use crate::fast::candidates::{ENOUGH, PATIENCE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;

fn address4(rig: &Rig, random: &mut Random) -> Ipv4Addr {
    let prefix = random.of(&rig.routes4);
    let host = random.next() as u32 & u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
    (prefix.first() | host).into()
}

fn address6(rig: &Rig, random: &mut Random) -> Ipv6Addr {
    let prefix = random.of(&rig.routes6);
    let host = u128::from(random.next()) & u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
    (prefix.first() | host).into()
}

pub(super) fn flow(rig: &Rig, random: &mut Random) -> (FlowKey, FlowAction) {
    let is_v6 = random.one_in(3);
    let protocol = random.of(&[TCP, TCP, UDP, if is_v6 { 58 } else { 1 }]);
    let address = |random: &mut Random| -> IpAddr {
        if is_v6 { address6(rig, random).into() } else { address4(rig, random).into() }
    };
    let (source, destination) = (address(random), address(random));
    let word = (random.next() as u32).to_ne_bytes();
    let of_echo = |types: [u8; 2], random: &mut Random| [word[0], word[1], random.of(&types), 0];
    let ports = match protocol {
        1 => of_echo([8, 0], random),
        58 => of_echo([128, 129], random),
        _ => word,
    };
    let new = (random.next() as u32).to_ne_bytes();
    let new_ports = if random.one_in(3) { ports } else { new };
    let new_address = |random: &mut Random, old| if random.one_in(2) { address(random) } else { old };
    let translation = random.one_in(2).then(|| Translation {
        source: new_address(random, source),
        destination: new_address(random, destination),
        ports: new_ports,
    });
    let exit = random.one_in(8).then(|| random.below(5) as u32);
    let entry = random.one_in(4).then(|| random.below(3) as u32);
    let kept_by = random.one_in(10).then(|| random.of(&[FlowKeeper::Rule, FlowKeeper::Window]));
    let action = FlowAction { translation, entry, exit, interval: 0, kept_by };
    (FlowKey { source, destination, ports, protocol }, action)
}

/// A frame of a flow: mostly to be forwarded.
pub(super) fn frame(flow: &FlowKey, random: &mut Random, port: u32) -> Vec<u8> {
    let payload = random.below(60) as usize;
    let header = if flow.protocol == TCP { 20 } else { 8 };
    let mut packet = vec![0; header + payload];
    packet.iter_mut().for_each(|byte| *byte = random.next() as u8);
    let length = packet.len() as u16;
    match flow.protocol {
        TCP => {
            packet[..4].copy_from_slice(&flow.ports);
            packet[12] = if random.one_in(10) { random.next() as u8 } else { 0x50 };
            packet[13] = random.of(&[0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 0x50, 0x18, 0x11, 0x12, 4, 0, 8]);
        }
        UDP => {
            packet[..4].copy_from_slice(&flow.ports);
            let wrong = random.below(20) as u16;
            let said = if random.one_in(10) { wrong } else { length };
            packet[4..6].copy_from_slice(&said.to_be_bytes());
            if random.one_in(4) {
                packet[6..8].fill(0);
            }
        }
        _ => {
            packet[0..2].copy_from_slice(&flow.ports[2..]);
            packet[4..6].copy_from_slice(&flow.ports[..2]);
        }
    }
    let mut frame = [mac(port as u8).octets(), mac(50).octets()].concat();
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0];
            header.extend((20 + length).to_be_bytes());
            let fragment: u16 = if random.one_in(20) { random.of(&[0x2000, 1, 0x6000]) } else { 0x4000 };
            header.extend([1, 2]);
            header.extend(fragment.to_be_bytes());
            header.extend([64, flow.protocol, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = !checksum::sum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            // Options for the destination come between now and then.
            frame.extend([if random.one_in(20) { 60 } else { flow.protocol }, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => unreachable!("both addresses of a flow are of a family"),
    }
    frame.extend(packet);
    if random.one_in(30) {
        let length = 14 + 20 + random.below(frame.len() as u64 - 34) as usize;
        frame.truncate(length);
    }
    frame
}

#[test]
fn the_program_does_what_the_decision_says_of_established_connections() {
    if !may_load() {
        return;
    }
    for seed in 0..trial_count(2) {
        let mut rig = Rig::with(seed, None, true);
        let mut random = Random(400 + seed);
        let mut reader = rig.domain.reader();
        let mut expected = Expected::default();
        let flows: Vec<_> = (0..3000).map(|_| flow(&rig, &mut random)).collect();
        for number in 0..20_000 {
            let (key, action) = random.of(&flows);
            let table = rig.memory.flows.as_mut().unwrap();
            match random.below(10) {
                0 => table.remove(&key),
                // Also one that was seen to close.
                1..9 => assert!(table.insert(key, &action), "{key:?}"),
                _ => {}
            }
            if number % 100 == 0 {
                table.reclaim_waiting();
            }
            let port = random.below(3) as u32;
            let frame = match random.one_in(10) {
                true => rig.frame(&mut random, port),
                false => frame(&key, &mut random, port),
            };
            let tables = rig.tables();
            let first = frame.len().min(bpf::FIRST_BUFFER);
            let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
            let outcome = bpf::run(&rig.programs[0][port as usize], &frame, None, 1).unwrap();
            let done = (outcome.action as i32, outcome.frame.as_slice());
            expected.check(&decision, &frame, done, [XDP_PASS as i32, XDP_REDIRECT as i32]);
            if is_for_tc(&frame) {
                let outcome = bpf::run(&rig.programs[1][port as usize], &frame, None, 1).unwrap();
                let done = (outcome.action as i32, outcome.frame.as_slice());
                expected.check(&decision, &frame, done, [TCX_NEXT, TC_REDIRECT]);
            }
        }
        expected.check_counters(&rig);
        let established: u64 = rig.memory.counters().ports.iter().map(|port| port.established).sum();
        assert_eq!(established, expected.sent);
        let kept = expected.kernel[Reason::NotEstablished as usize];
        assert!(expected.sent > 3000 && kept > 2000, "{} {:?}", expected.sent, expected.by_reason);
        for reason in [Reason::Closing, Reason::OtherPort, Reason::Rule, Reason::Window] {
            assert!(expected.kernel[reason as usize] > 50, "{reason:?} {:?}", expected.by_reason);
        }
    }
}

#[test]
fn a_packet_goes_to_the_kernel_from_time_to_time_and_all_do_once_one_closes_the_connection() {
    if !may_load() {
        return;
    }
    let mut rig = Rig::with(0, None, true);
    let (mut random, mut reader) = (Random(3), rig.domain.reader());
    let (key, action, sent) = loop {
        let (key, action) = flow(&rig, &mut random);
        let action = FlowAction { entry: None, exit: None, interval: 0, kept_by: None, ..action };
        assert!(rig.memory.flows.as_mut().unwrap().insert(key, &action));
        let frame = frame(&key, &mut random, 0);
        let tables = rig.tables();
        let decision = decide_frame(&tables, &reader.turn(), 0, &frame);
        if key.protocol == TCP && is_for_tc(&frame) && matches!(decision, ForwardDecision::Send { .. }) {
            break (key, action, frame);
        }
    };
    let actions = |rig: &Rig, frame: &[u8]| {
        [0, 1].map(|hook| bpf::run(&rig.programs[hook][0], frame, None, 1).unwrap().action as i32)
    };
    let (forwarded, kept) = ([XDP_REDIRECT as i32, TC_REDIRECT], [XDP_PASS as i32, TCX_NEXT]);
    assert_eq!(actions(&rig, &sent), forwarded);
    let renewed = FlowAction { interval: u32::MAX / 2, ..action };
    assert!(rig.memory.flows.as_mut().unwrap().insert(key, &renewed));
    assert_eq!(actions(&rig, &sent), [XDP_PASS as i32, TC_REDIRECT], "the first one renews");
    assert_eq!(actions(&rig, &sent), forwarded);
    assert_eq!(rig.memory.counters().kernel()[Reason::Renewal as usize], 1);
    // Of TCP each packet counts: one that comes in time does not renew, one that comes late does.
    let soon = rig.memory.lease.ticks_of_a_second().unwrap() as u32;
    assert!(rig.memory.flows.as_mut().unwrap().insert(key, &FlowAction { interval: soon, ..action }));
    assert_eq!(actions(&rig, &sent), [XDP_PASS as i32, TC_REDIRECT]);
    for _ in 0..8 {
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(actions(&rig, &sent), forwarded);
    }
    std::thread::sleep(std::time::Duration::from_millis(1300));
    assert_eq!(actions(&rig, &sent), [XDP_PASS as i32, TC_REDIRECT], "what comes late renews");
    let mut fin = sent.clone();
    let flags = if key.source.is_ipv6() { 14 + 40 + 13 } else { 14 + 20 + 13 };
    fin[flags] |= 1;
    assert!(rig.memory.flows.as_mut().unwrap().drain_candidates(9).is_empty());
    assert_eq!(actions(&rig, &fin), kept);
    assert_eq!(actions(&rig, &sent), kept);
    let table = rig.memory.flows.as_mut().unwrap();
    assert!(table.note(&key).unwrap().is_closing);
    assert_eq!(table.drain_candidates(9), [key], "the first one reports it");
}

/// A packet of a flow that would be forwarded if the flow were in the table, which it is not.
fn packet_of(rig: &Rig, flow: &FlowKey) -> Option<Vec<u8>> {
    let (mut random, mut reader) = (Random(9), rig.domain.reader());
    let unknown = ForwardDecision::Kernel(Reason::NotEstablished);
    let frames = std::iter::repeat_with(|| frame(flow, &mut random, 0)).take(50);
    let is_unknown = |frame: &Vec<u8>| decide_frame(&rig.tables(), &reader.turn(), 0, frame) == unknown;
    // Fragments, and packets with options.
    let has_no_ports = |frame: &[u8]| if frame[12] == 8 { frame[20] != 0x40 } else { frame[20] == 60 };
    frames.filter(|frame| frame.len() > 14 + 40 + 20 && !has_no_ports(frame)).find(is_unknown)
}

/// Has a program take the same packet several times; says how often its flow was reported.
fn send(rig: &mut Rig, flow: &FlowKey, packet: &[u8], times: usize) -> usize {
    for _ in 0..times {
        assert_eq!(bpf::run(&rig.programs[0][0], packet, None, 1).unwrap().action as i32, XDP_PASS as i32);
    }
    let given = rig.memory.flows.as_mut().unwrap().drain_candidates(99);
    assert!(given.iter().all(|key| key == flow), "{given:?}");
    given.len()
}

#[test]
fn a_flow_that_is_not_in_the_table_is_reported_once_several_packets_of_it_came() {
    if !may_load() {
        return;
    }
    let mut rig = Rig::with(0, None, true);
    let mut random = Random(5);
    let mut tried = 0;
    while tried < 20 {
        let (key, action) = flow(&rig, &mut random);
        let Some(packet) = packet_of(&rig, &key) else { continue };
        tried += 1;
        let given: Vec<usize> = (0..9).map(|_| send(&mut rig, &key, &packet, 1)).collect();
        assert_eq!(given, [0, 0, 0, 1, 0, 0, 0, 1, 0], "{key:?}");
        // At 16, 32, and so on to 2048, and at 3072.
        assert_eq!(send(&mut rig, &key, &packet, 3072 - 9), 8 + 1);
        let table = rig.memory.flows.as_mut().unwrap();
        assert!(table.insert(key, &FlowAction { kept_by: Some(FlowKeeper::Rule), ..action }));
        assert_eq!(send(&mut rig, &key, &packet, 2000), 0, "what is in the table is not reported");
        let table = rig.memory.flows.as_mut().unwrap();
        table.remove(&key);
        table.reclaim_waiting();
    }
}

#[test]
fn flows_of_a_bucket_take_their_turns() {
    if !may_load() {
        return;
    }
    let mut rig = Rig::with(0, None, true);
    let mut random = Random(6);
    let is_meant = |key: &FlowKey| key.protocol == UDP;
    let keys = std::iter::repeat_with(|| flow(&rig, &mut random).0).filter(is_meant);
    let (first, packet) = keys.filter_map(|key| Some((key, packet_of(&rig, &key)?))).next().unwrap();
    let bucket = |key: &FlowKey| rig.memory.flows.as_ref().unwrap().bucket_of(key);
    let others = (0..u32::MAX).map(|ports| FlowKey { ports: ports.to_ne_bytes(), ..first });
    let others = others.filter(|key| *key != first && bucket(key) == bucket(&first)).take(2);
    let others: Vec<_> = others.map(|key| (key, packet_of(&rig, &key).unwrap())).collect();
    let flows = [(first, packet), others[0].clone(), others[1].clone()];
    let (enough, patience) = (ENOUGH as usize, PATIENCE as usize);
    let mut given = [0; 3];
    // The second begins when the first is reported, and so on.
    for _ in 0..3 * enough - 2 {
        for (given, (key, packet)) in given.iter_mut().zip(&flows) {
            *given += send(&mut rig, key, packet, 1);
        }
    }
    assert_eq!(given, [1, 1, 1]);
    // One that began and does not go on is replaced.
    let mut send = |number: usize, times| send(&mut rig, &flows[number].0, &flows[number].1, times);
    assert_eq!(send(0, 1), 0);
    assert_eq!(send(1, patience + enough - 2), 0);
    assert_eq!(send(1, 1), 1);
}

#[test]
fn packets_of_a_flow_without_room_are_told_from_those_of_unknown_ones() {
    if !may_load() {
        return;
    }
    let mut rig = Rig::with(0, None, true);
    let mut random = Random(8);
    for is_v6 in [false, true] {
        let keys = std::iter::repeat_with(|| flow(&rig, &mut random).0);
        let is_meant = |key: &FlowKey| key.protocol == UDP && key.source.is_ipv6() == is_v6;
        let (left_out, packet) =
            keys.filter(is_meant).filter_map(|key| Some((key, packet_of(&rig, &key)?))).next().unwrap();
        let bucket = |key: &FlowKey| rig.memory.flows.as_ref().unwrap().bucket_of(key);
        let others = (0..u32::MAX).map(|ports| FlowKey { ports: ports.to_ne_bytes(), ..left_out });
        let is_other = |key: &FlowKey| *key != left_out && bucket(key) == bucket(&left_out);
        let others: Vec<FlowKey> = others.filter(is_other).take(crate::fast::flows::WAYS).collect();
        let table = rig.memory.flows.as_mut().unwrap();
        for (number, key) in others.iter().enumerate() {
            assert!(!table.is_full(is_v6, &left_out.to_words()), "{number} of the bucket are used");
            assert!(table.insert(*key, &FlowAction::default()));
        }
        assert!(!table.insert(left_out, &FlowAction::default()));
        let mut reader = rig.domain.reader();
        let mut reason = |rig: &Rig| {
            let before = rig.memory.counters().kernel();
            for programs in &rig.programs {
                bpf::run(&programs[0], &packet, None, 1).unwrap();
            }
            let after = rig.memory.counters().kernel();
            let ForwardDecision::Kernel(decided) = decide_frame(&rig.tables(), &reader.turn(), 0, &packet)
            else {
                panic!("its flow is not in the table")
            };
            assert_eq!(after[decided as usize], before[decided as usize] + 2, "{decided:?}");
            decided
        };
        assert_eq!(reason(&rig), Reason::NoRoom);
        rig.memory.flows.as_mut().unwrap().remove(&others[3]);
        assert_eq!(reason(&rig), Reason::NotEstablished);
    }
}

/// How many of so many connections of a family have room for both directions, with the addresses of a network
/// that follow each other.
fn with_room(table: &mut FlowTable, connections: u32, is_v6: bool) -> u32 {
    let address = |network: u32, host: u32| match is_v6 {
        false => IpAddr::V4((network << 24 | host).into()),
        true => IpAddr::V6((u128::from(0x2001_0db8 + network) << 96 | u128::from(host)).into()),
    };
    let has_room = |host: &u32| {
        let (source, destination) = (address(10, 2), address(20, *host));
        let ports = [4, 0, 0, 53];
        let there = FlowKey { source, destination, ports, protocol: UDP };
        let back = FlowKey { source: destination, destination: source, ports: [0, 53, 4, 0], protocol: UDP };
        let is_there = [there, back].map(|key| table.insert(key, &FlowAction::default()));
        is_there == [true; 2]
    };
    (0..connections).filter(has_room).count() as u32
}

#[test]
fn nearly_all_connections_have_room_until_a_quarter_of_the_records_is_used() {
    if !may_load() {
        return;
    }
    for (is_v6, quarter) in [(false, 1 << 16), (true, 1 << 14)] {
        for seed in [1, 2] {
            let mut memory = Memory::with_arrays(SharedArrays::with_maps_of(u32::MAX as usize)).unwrap();
            memory.enable_flows(seed).unwrap();
            let table = memory.flows.as_mut().unwrap();
            let left_out = quarter - with_room(table, quarter, is_v6);
            assert!(left_out <= quarter / 1000, "{left_out} of {quarter} connections, IPv6: {is_v6}");
        }
        let mut memory = Memory::with_arrays(SharedArrays::with_maps_of(u32::MAX as usize)).unwrap();
        memory.enable_flows(3).unwrap();
        let table = memory.flows.as_mut().unwrap();
        let left_out = 2 * quarter - with_room(table, 2 * quarter, is_v6);
        assert!(left_out <= quarter / 25, "{left_out} of {} connections, IPv6: {is_v6}", 2 * quarter);
    }
}

#[test]
fn a_flow_that_is_written_anew_often_has_room_once_runs_have_ended() {
    if !may_load() {
        return;
    }
    let mut memory = Memory::with_arrays(SharedArrays::with_maps_of(u32::MAX as usize)).unwrap();
    memory.enable_flows(1).unwrap();
    let table = memory.flows.as_mut().unwrap();
    let [source, destination] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let key = FlowKey { source, destination, ports: [0, 1, 0, 2], protocol: UDP };
    let action = FlowAction::default();
    for _ in 0..crate::fast::flows::WAYS {
        assert!(table.insert(key, &action) && !table.is_waiting());
    }
    assert!(!table.insert(key, &action) && table.is_waiting());
    table.reclaim_waiting();
    assert!(table.insert(key, &action) && !table.is_waiting());
}
