//! Packets in frames of sessions of PPPoE.
use super::tunnels::{check_within, packet_within};
use super::*;
use crate::kernel::TunnelProtocol;
use layout::{HOP_PORTS, HOP_TUNNEL, HOP_WORDS, MOST_TUNNELS};
use std::sync::atomic::Ordering::Relaxed;

/// Sessions by the ports that their frames arrive at, and the ports that they are. The last one arrives at a
/// VLAN of the first port.
const SESSIONS: [(u32, u32); 4] = [(0, 5), (1, 6), (2, 7), (3, 8)];
/// The link address of the other end, and the number that it has given to all of them.
const PEER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 50]);
const NUMBER: u16 = 0x1234;

fn write_sessions(memory: &Memory, random: &mut Random, is_established: bool) {
    for (carrier, port) in SESSIONS {
        let flags = flags_of(port, random, is_established);
        memory.set_port(port, &PortRecord { mac: mac(200 + port as u8), device: LOOPBACK, flags });
        let outer = OuterEnds::Pppoe { peer: PEER, session: NUMBER, carrier };
        let input = TunnelInput { outer, port };
        // They differ by the carrier alone, so that they lie in a row.
        let bucket = input.buckets().nth(carrier as usize).expect("there are four");
        memory.set_tunnel_input(bucket, &input);
    }
}

fn flags_of(port: u32, random: &mut Random, is_established: bool) -> Flags {
    let (ipv4, ipv6) = (port != 7 || random.one_in(2), port != 6);
    Flags {
        ipv4: ipv4 && !is_established,
        ipv6: ipv6 && !is_established,
        ipv4_established: ipv4 && is_established,
        ipv6_established: ipv6 && is_established,
        reverse_path: random.of(&[ReversePath::Off, ReversePath::Off, ReversePath::Loose]),
        // That of the last one is another where there are several.
        fib: u32::from(port == 7 && random.one_in(4)),
        ..Flags::default()
    }
}

/// A frame that carries what is in another, behind its type, as a session does.
fn in_session(random: &mut Random, port: u32, ether_type: [u8; 2], packet: &[u8]) -> Vec<u8> {
    let mut frame = [mac(port as u8), if random.one_in(30) { mac(51) } else { PEER }].map(|mac| mac.octets());
    if random.one_in(40) {
        frame[0] = mac(99).octets();
    }
    let mut frame = frame.concat();
    if port == 0 && random.one_in(2) {
        frame.extend([0x81, 0, 0, random.of(&[7, 7, 8])]);
    }
    frame.extend(if random.one_in(40) { [0x88, 0x63] } else { [0x88, 0x64] });
    frame.extend(if random.one_in(30) {
        random.of(&[[0x11, 7], [0x21, 0], [0x11, 0xa7]])
    } else {
        [0x11, 0]
    });
    let number = NUMBER + u16::from(random.one_in(30));
    frame.extend(number.to_be_bytes());
    let length = 2 + packet.len() as u16 + u16::from(random.one_in(30)) - u16::from(random.one_in(30));
    frame.extend(length.to_be_bytes());
    let protocol = match ether_type {
        [8, 0] => [0, 0x21],
        _ => [0, 0x57],
    };
    let others = [[0xc0, 0x21], [0, 0xfd], [0x21, 0x45]];
    frame.extend(if random.one_in(30) { random.of(&others) } else { protocol });
    frame.extend(packet);
    if frame.len() < 60 && random.one_in(2) {
        frame.resize(60, 0);
    }
    if random.one_in(30) && frame.len() > 34 {
        let length = 34 + random.below(frame.len() as u64 - 33) as usize;
        frame.truncate(length);
    }
    frame.truncate(bpf::FIRST_BUFFER);
    frame
}

/// The packet in a frame of a session and its type, written down once more and plainly; none where the kernel
/// must take the header off.
fn taken_off(port: u32, frame: &[u8]) -> Option<(u16, Vec<u8>)> {
    let (header, rest) = frame.split_at_checked(12)?;
    let rest = match rest {
        [0x81, 0, 0, 7, rest @ ..] => rest,
        [0x81, 0, ..] => return None,
        rest => rest,
    };
    let [0x88, 0x64, 0x11, 0, 0x12, 0x34, high, low, 0, protocol, inner @ ..] = rest else { return None };
    let length = usize::from(u16::from_be_bytes([*high, *low])).checked_sub(2)?;
    let ether_type = match protocol {
        0x21 => 0x0800,
        0x57 => 0x86dd,
        _ => return None,
    };
    let is_ours = header == [mac(port as u8).octets(), PEER.octets()].concat();
    let is_whole = inner.len() == length || inner.len() > length && inner.len() + 8 <= 46;
    (is_ours && is_whole).then(|| (ether_type, inner[..length].to_vec()))
}

/// The same decision without what the frame is filled up with.
fn unfilled(decision: &ForwardDecision, within: Option<&(u16, Vec<u8>)>) -> ForwardDecision {
    let mut decision = decision.clone();
    if let (ForwardDecision::Send { frame, .. }, Some((_, inner))) = (&mut decision, within) {
        let header = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
        frame.truncate(header + inner.len());
    }
    decision
}

#[test]
fn out_of_sessions_the_program_sends_what_is_within_as_the_decision_says() {
    if !may_load() {
        return;
    }
    let (mut sent, mut by_session) = ([0; 2], 0);
    let mut reasons = std::collections::BTreeMap::new();
    for (seed, has_flows) in [(0, false), (1, false), (3, true)] {
        let rig = Rig::with_tunnels(seed, has_flows);
        let (mut random, mut reader) = (Random(1900 + seed), rig.domain.reader());
        write_sessions(&rig.memory, &mut random, false);
        let tables = rig.tables();
        let mut expected = Expected::default();
        for _ in 0..trial_count(20_000) {
            let port = random.below(3) as u32;
            let (ether_type, packet) = packet_within(&rig, &mut random, TunnelProtocol::Gre);
            let frame = in_session(&mut random, port, ether_type, &packet);
            let decision = decide_frame(&tables, &reader.turn(), port, &frame);
            let within = taken_off(port, &frame);
            check_within(&unfilled(&decision, within.as_ref()), within.as_ref(), &mut by_session);
            let is_sent = matches!(decision, ForwardDecision::Send { .. });
            assert!(within.is_some() || !is_sent, "{frame:02x?}");
            let hooks = [
                ([XDP_PASS as i32, XDP_REDIRECT as i32], true),
                ([TCX_NEXT, TC_REDIRECT], is_for_tc(&frame)),
            ];
            for (hook, (answers, is_tried)) in hooks.into_iter().enumerate() {
                if is_tried {
                    let outcome = bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
                    sent[hook] += u64::from(is_sent);
                    expected.compare(&decision, &frame, (outcome.action as i32, &outcome.frame), answers);
                }
            }
        }
        expected.check_counters(&rig);
        for (reason, count) in &expected.by_reason {
            *reasons.entry(reason.clone()).or_insert(0) += count;
        }
    }
    assert!(sent.iter().all(|count| *count > 500) && by_session > 500, "{sent:?} {by_session} {reasons:?}");
    for reason in ["Tunnel", "Malformed", "Expired", "NoRoute", "ReversePath", "TooBig", "OtherProtocol"] {
        assert!(reasons.contains_key(reason), "{reason} was not met: {reasons:?}");
    }
}

/// Has all hops into tunnels lead into the session.
fn lead_into_sessions(memory: &Memory) {
    for hop in 0..30 {
        let word = &memory.hops[hop * HOP_WORDS + HOP_PORTS];
        let (ports, numbers) = (word.load(Relaxed), (MOST_TUNNELS as u32 - 1) << HOP_TUNNEL);
        if ports & numbers != 0 {
            word.store(ports & !numbers | 4 << HOP_TUNNEL, Relaxed);
        }
    }
}

#[test]
fn established_connections_go_by_sessions_as_by_other_ports() {
    if !may_load() {
        return;
    }
    let (mut arrived, mut left) = ([0; 2], [0; 2]);
    for seed in 0..trial_count(2) {
        let mut rig = Rig::with_tunnels(seed, true);
        let (mut random, mut reader) = (Random(2400 + seed), rig.domain.reader());
        write_sessions(&rig.memory, &mut random, true);
        lead_into_sessions(&rig.memory);
        let mut expected = Expected::default();
        let flows: Vec<_> = (0..2000).map(|_| established::flow(&rig, &mut random)).collect();
        for (key, action) in &flows {
            assert!(rig.memory.flows.as_mut().unwrap().insert(*key, action));
        }
        let tables = rig.tables();
        for _ in 0..20_000 {
            let (key, _) = random.of(&flows);
            let port = random.below(3) as u32;
            let mut frame = established::frame(&key, &mut random, port);
            let is_within = frame.len() > 34 && random.one_in(2);
            if is_within {
                frame = in_session(&mut random, port, [frame[12], frame[13]], &frame[14..]);
            }
            let decision = decide_frame(&tables, &reader.turn(), port, &frame);
            let is_into = |frame: &[u8]| frame[12..14] == [0x88, 0x64] || frame[16..18] == [0x88, 0x64];
            let hooks = [
                ([XDP_PASS as i32, XDP_REDIRECT as i32], true),
                ([TCX_NEXT, TC_REDIRECT], is_for_tc(&frame)),
            ];
            for (hook, (answers, is_tried)) in hooks.into_iter().enumerate() {
                if !is_tried {
                    continue;
                }
                if let ForwardDecision::Send { frame: sent, .. } = &decision {
                    arrived[hook] += u64::from(is_within);
                    left[hook] += u64::from(is_into(sent));
                }
                let outcome = bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
                expected.compare(&decision, &frame, (outcome.action as i32, &outcome.frame), answers);
            }
        }
        let established: u64 = rig.memory.counters().ports.iter().map(|port| port.established).sum();
        assert_eq!(established, expected.sent);
    }
    assert!(arrived.iter().chain(&left).all(|count| *count > 300), "{arrived:?} {left:?}");
}
