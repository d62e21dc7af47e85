//! Packets that leave and arrive by tunnels.
use super::*;
use crate::kernel::TunnelProtocol;
use std::net::Ipv4Addr;

/// The outer sources of tunnels, by their last byte.
const SOURCE: [u8; 3] = [198, 51, 100];

/// Tunnels 1 to 4: one of IPIP with all from the packet, one of GRE with all of its own, another of GRE, and
/// one session of PPPoE.
pub(super) fn write_tunnels(memory: &Memory) {
    let [a, b, c] = SOURCE;
    let header = |number: u8, protocol, ttl, tos| {
        let source = Ipv4Addr::new(a, b, c, number);
        let destination = Ipv4Addr::new(203, 0, 113, number);
        TunnelHeader::Ipv4(OuterIpv4 { source, destination, protocol, ttl, tos })
    };
    memory.write_tunnel(1, &header(1, TunnelProtocol::Ipip, 0, 1));
    memory.write_tunnel(2, &header(2, TunnelProtocol::Gre, 64, 0x48));
    memory.write_tunnel(3, &header(3, TunnelProtocol::Gre, 0, 0));
    memory.write_tunnel(4, &TunnelHeader::Pppoe { session: 0x1234 });
}

/// Tunnels that packets arrive by, as ports 5 to 7: the outer source ends with the number of the port.
const INPUTS: [(u32, TunnelProtocol); 3] =
    [(5, TunnelProtocol::Ipip), (6, TunnelProtocol::Gre), (7, TunnelProtocol::Gre)];
/// Their outer destination.
const LOCAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

fn remote(port: u32) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, port as u8)
}

fn write_inputs(memory: &Memory, random: &mut Random) {
    for (port, protocol) in INPUTS {
        let flags = Flags {
            ipv4: port != 7 || random.one_in(2),
            ipv6: port != 7,
            reverse_path: [ReversePath::Off, ReversePath::Loose, ReversePath::Strict][port as usize - 5],
            // That of the last one is another where there are several.
            fib: u32::from(port == 7 && random.one_in(4)),
            ..Flags::default()
        };
        memory.set_port(port, &PortRecord { mac: mac(200 + port as u8), device: LOOPBACK, flags });
        let outer = OuterEnds::Ipv4 { source: remote(port), destination: LOCAL, protocol };
        let input = TunnelInput { outer, port };
        let bucket = input.buckets().next().expect("there are some");
        memory.set_tunnel_input(bucket, &input);
    }
}

/// A packet behind its type, mostly one that is to be forwarded, with any type of service.
pub(super) fn packet_within(rig: &Rig, random: &mut Random, protocol: TunnelProtocol) -> ([u8; 2], Vec<u8>) {
    let (mut typed, payload) = (Vec::new(), random.below(100) as usize);
    let is_ipv6 = random.one_in(if protocol == TunnelProtocol::Gre { 2 } else { 30 });
    match is_ipv6 {
        true => rig.ipv6(random, payload, &mut typed),
        false => rig.ipv4(random, payload, &mut typed),
    }
    let mut packet = typed.split_off(2);
    let tos = random.next() as u8;
    match typed[0] {
        8 if random.one_in(2) => {
            packet[1] = tos;
            packet[10..12].fill(0);
            let sum = !checksum::sum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        0x86 if random.one_in(2) => {
            packet[0] |= tos >> 4;
            packet[1] |= tos << 4;
        }
        _ => {}
    }
    packet.extend((0..payload).map(|_| random.next() as u8));
    if random.one_in(30) {
        packet.truncate(random.below(packet.len() as u64) as usize);
    }
    if random.one_in(30) && !packet.is_empty() {
        let at = random.below(packet.len() as u64) as usize;
        packet[at] ^= 1 << random.below(8);
    }
    ([typed[0], typed[1]], packet)
}

/// A frame from the other end of a tunnel, with something within that is mostly to be forwarded.
fn arriving_frame(rig: &Rig, random: &mut Random, port: u32) -> Vec<u8> {
    let (tunnel, protocol) = random.of(&INPUTS);
    let (mut ether_type, packet) = packet_within(rig, random, protocol);
    if random.one_in(30) {
        ether_type = random.of(&[[8, 6], [0x65, 0x58], [0x88, 0x47], [8, 0], [0x86, 0xdd]]);
    }
    let gre = match protocol {
        TunnelProtocol::Ipip => Vec::new(),
        TunnelProtocol::Gre => {
            let flags = if random.one_in(20) { random.of(&[0x20, 0x80, 0x10, 0xff]) } else { 0 };
            let version = if random.one_in(40) { 1 } else { 0 };
            [[flags, version], ether_type].concat()
        }
    };
    let tos = if random.one_in(3) { random.next() as u8 } else { random.of(&[0, 0, 0xb8]) };
    let mut header = vec![0x45, tos];
    let length = 20 + gre.len() + packet.len() + usize::from(random.one_in(30));
    header.extend((length as u16 - u16::from(random.one_in(30))).to_be_bytes());
    let fragment = if random.one_in(20) { random.of(&[0x2000_u16, 0x0001, 0x8000]) } else { 0x4000 };
    let other = random.one_in(20);
    let is = if other { random.of(&[4, 47, 17]) } else { protocol_number(protocol) };
    header.extend([7, 7]);
    header.extend(fragment.to_be_bytes());
    header.extend([if random.one_in(30) { 1 } else { 64 }, is, 0, 0]);
    header.extend((if random.one_in(20) { remote(9) } else { remote(tunnel) }).octets());
    header.extend((if random.one_in(20) { remote(9) } else { LOCAL }).octets());
    let sum = !checksum::sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [mac(port as u8).octets(), mac(50).octets()].concat();
    if port == 0 && random.one_in(2) {
        frame.extend([0x81, 0, 0, random.of(&[7, 8])]);
    }
    frame.extend([8, 0]);
    frame.extend([header, gre, packet].concat());
    if frame.len() < 60 && random.one_in(2) {
        frame.resize(60, 0);
    }
    if random.one_in(30) {
        let length = 34 + random.below(frame.len() as u64 - 33) as usize;
        frame.truncate(length);
    }
    frame.truncate(bpf::FIRST_BUFFER);
    frame
}

/// The tunnel that an outer header is of.
fn tunnel_of(packet: &[u8]) -> Option<TunnelProtocol> {
    let ends = |port: u32| [remote(port).octets(), LOCAL.octets()].concat();
    let is_it = |(port, protocol): &&(u32, TunnelProtocol)| {
        packet.get(12..20) == Some(&ends(*port)[..]) && packet[9] == protocol_number(*protocol)
    };
    INPUTS.iter().find(is_it).map(|(_, protocol)| *protocol)
}

/// What the kernel does with a packet of a tunnel, from the outer header on, written down once more and
/// plainly: the packet within and its type, or none where the kernel must take the header off.
fn taken_off(packet: &[u8]) -> Option<(u16, Vec<u8>)> {
    let outer = Ipv4::validate(packet).ok()?;
    let is_whole = usize::from(outer.total_length()) == packet.len() && packet[0] == 0x45;
    if !is_whole || outer.is_fragment() || packet[8] <= 1 {
        return None;
    }
    let protocol = tunnel_of(packet)?;
    let (ether_type, inner) = match protocol {
        TunnelProtocol::Ipip => (0x0800, &packet[20..]),
        TunnelProtocol::Gre => match packet[20..] {
            [0, 0, 0x08, 0x00, ..] => (0x0800, &packet[24..]),
            [0, 0, 0x86, 0xdd, ..] => (0x86dd, &packet[24..]),
            _ => return None,
        },
    };
    // RFC 6040 section 4.2, figure 4, without what becomes another codepoint, or is an alarm.
    let inner_tos = match ether_type {
        0x0800 => Ipv4::validate(inner).ok().map(|_| inner[1])?,
        _ => (u16::from_be_bytes([*inner.first()?, *inner.get(1)?]) >> 4) as u8,
    };
    let keeps = [(0, 0), (0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3), (1, 1), (3, 3)];
    let is_kept = keeps.contains(&(packet[1] & 3, inner_tos & 3));
    is_kept.then(|| (ether_type, inner.to_vec()))
}

#[test]
fn out_of_tunnels_the_program_sends_what_is_within_as_the_decision_says() {
    if !may_load() {
        return;
    }
    let (mut sent, mut by_tunnel) = ([0; 2], 0);
    let mut reasons = std::collections::BTreeMap::new();
    for (seed, has_flows) in [(0, false), (1, false), (3, true)] {
        let rig = Rig::with_tunnels(seed, has_flows);
        let (mut random, mut reader) = (Random(900 + seed), rig.domain.reader());
        write_inputs(&rig.memory, &mut random);
        // All IPv4 that arrives at a port is forwarded there, or the kernel takes headers off.
        for port in 0..5 {
            let flags = Flags {
                ipv4: port != 4,
                ipv6: true,
                reverse_path: if port == 1 { ReversePath::Loose } else { ReversePath::Off },
                ..Flags::default()
            };
            rig.memory.set_port(port, &PortRecord { mac: mac(port as u8 % 3), device: LOOPBACK, flags });
        }
        let tables = rig.tables();
        let mut expected = Expected::default();
        for _ in 0..trial_count(20_000) {
            let port = random.below(3) as u32;
            let frame = arriving_frame(&rig, &mut random, port);
            let decision = decide_frame(&tables, &reader.turn(), port, &frame);
            let network = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
            let within = taken_off(&frame[network..]);
            check_within(&decision, within.as_ref(), &mut by_tunnel);
            if let (ForwardDecision::Send { .. }, Some((ether_type, packet))) = (&decision, &within) {
                let source = Ipv4Addr::from_octets(*frame[network + 12..].first_chunk().unwrap());
                let (tunnel, _) = INPUTS.into_iter().find(|(port, _)| remote(*port) == source).unwrap();
                let alone = [&[0; 12][..], &ether_type.to_be_bytes(), packet].concat();
                assert_eq!(decide_within(&tables, &reader.turn(), tunnel, &alone), decision);
            }
            if within.is_none()
                && frame[12 + network - 14..][..2] == [8, 0]
                && tunnel_of(&frame[network..]).is_some()
            {
                assert!(matches!(decision, ForwardDecision::Kernel(_)), "{frame:02x?}");
            }
            let hooks = [
                ([XDP_PASS as i32, XDP_REDIRECT as i32], true),
                ([TCX_NEXT, TC_REDIRECT], is_for_tc(&frame)),
            ];
            for (hook, (answers, is_tried)) in hooks.into_iter().enumerate() {
                if !is_tried {
                    continue;
                }
                let outcome = bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
                let is_sent = within.is_some() && matches!(decision, ForwardDecision::Send { .. });
                let is_ipv6 = within.as_ref().is_some_and(|(kind, _)| *kind == 0x86dd);
                if is_sent && is_ipv6 && hook == 1 && !takes_ipv6_out_by_tc() {
                    expected.compare(
                        &ForwardDecision::Kernel(Reason::Tunnel),
                        &frame,
                        (outcome.action as i32, &outcome.frame),
                        answers,
                    );
                    continue;
                }
                sent[hook] += u64::from(is_sent);
                // Outer packets of other tunnels may be sent into one.
                let left = without_identification(&outcome.frame);
                expected.compare(&decision, &frame, (outcome.action as i32, &left), answers);
            }
        }
        expected.check_counters(&rig);
        for (reason, count) in &expected.by_reason {
            *reasons.entry(reason.clone()).or_insert(0) += count;
        }
    }
    assert!(sent.iter().all(|count| *count > 500) && by_tunnel > 500, "{sent:?} {by_tunnel} {reasons:?}");
    for reason in ["Tunnel", "Malformed", "Expired", "NoRoute", "ReversePath", "TooBig", "Policy", "Source"] {
        assert!(reasons.contains_key(reason), "{reason} was not met: {reasons:?}");
    }
}

/// Whether programs of tc can leave IPv6 of a packet of IPv4: before Linux 6.3 the kernel has no word for it.
fn takes_ipv6_out_by_tc() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(3))
}

/// What is sent of a packet that arrived by a tunnel is the packet within, which lives one hop shorter.
pub(super) fn check_within(decision: &ForwardDecision, within: Option<&(u16, Vec<u8>)>, by_tunnel: &mut u64) {
    let ForwardDecision::Send { frame, .. } = decision else { return };
    let at = if frame[12..14] == [0x81, 0] { 16 } else { 12 };
    let (ether_type, packet) = (&frame[at..at + 2], &frame[at + 2..]);
    let Some((kind, inner)) = within else { return };
    *by_tunnel += 1;
    assert_eq!(ether_type, kind.to_be_bytes());
    let mut inner = inner.clone();
    match kind {
        0x0800 => {
            inner[8] -= 1;
            inner[10..12].fill(0);
            let sum = !checksum::sum(&inner[..20]);
            inner[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut packet = packet.to_vec();
            // 0 and 0xffff are the same sum.
            packet[10..12].fill(0);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(packet, inner);
            assert_eq!(checksum::sum(&frame[at + 2..at + 22]), 0xffff);
        }
        _ => {
            inner[7] -= 1;
            assert_eq!(packet, inner);
        }
    }
}

/// Where the outer header of a frame begins, if it is of one of these tunnels.
fn outer(frame: &[u8]) -> Option<usize> {
    let at = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
    (frame.get(at + 12..at + 15) == Some(&SOURCE)).then_some(at)
}

/// A frame with the outer header as the decision has it: its identification is any number.
fn without_identification(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some(at) = outer(&frame) {
        assert_eq!(checksum::sum(&frame[at..at + 20]), 0xffff, "{frame:02x?}");
        frame[at + 4..at + 6].fill(0);
        frame[at + 10..at + 12].fill(0);
        let sum = !checksum::sum(&frame[at..at + 20]);
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// A frame that may be one that a link has filled up, with any type of service.
fn frame(rig: &Rig, random: &mut Random, port: u32) -> Vec<u8> {
    let mut frame = rig.frame(random, port);
    if frame.len() > 34 && frame[12..14] == [8, 0] && random.one_in(2) {
        frame[15] = random.next() as u8;
        frame[24..26].fill(0);
        let sum = !checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    if frame.len() < 60 && random.one_in(2) {
        frame.resize(60, 0);
    }
    frame
}

#[test]
fn into_tunnels_the_program_puts_the_header_that_the_decision_says() {
    if !may_load() {
        return;
    }
    let (mut tunnelled, mut in_sessions, mut plain) = ([0; 2], [0; 2], 0);
    for (seed, has_flows) in [(0, false), (1, false), (2, true)] {
        let rig = Rig::with_tunnels(seed, has_flows);
        let (mut random, mut reader) = (Random(700 + seed), rig.domain.reader());
        let tables = rig.tables();
        let mut expected = Expected::default();
        for _ in 0..trial_count(20_000) {
            let port = random.below(3) as u32;
            let frame = frame(&rig, &mut random, port);
            let first = frame.len().min(bpf::FIRST_BUFFER);
            let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
            let hooks = [
                ([XDP_PASS as i32, XDP_REDIRECT as i32], true),
                ([TCX_NEXT, TC_REDIRECT], is_for_tc(&frame)),
            ];
            for (hook, (answers, is_tried)) in hooks.into_iter().enumerate() {
                if !is_tried {
                    continue;
                }
                let outcome = bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
                let left = without_identification(&outcome.frame);
                match &decision {
                    ForwardDecision::Send { frame, .. } if outer(frame).is_some() => tunnelled[hook] += 1,
                    ForwardDecision::Send { frame, .. } if is_of_session(frame) => in_sessions[hook] += 1,
                    ForwardDecision::Send { .. } => plain += 1,
                    ForwardDecision::Kernel(_) => {}
                }
                expected.check(&decision, &frame, (outcome.action as i32, &left), answers);
            }
        }
        expected.check_counters(&rig);
    }
    let by_tunnels = tunnelled.iter().chain(&in_sessions);
    assert!(by_tunnels.chain([&plain]).all(|count| *count > 500), "{tunnelled:?} {in_sessions:?} {plain}");
}

/// Whether a frame is of the session, whose packet fills it.
fn is_of_session(frame: &[u8]) -> bool {
    let at = if frame[12..14] == [0x81, 0] { 16 } else { 12 };
    let length = ((frame.len() - at - 8) as u16).to_be_bytes();
    frame[at..at + 6] == [0x88, 0x64, 0x11, 0, 0x12, 0x34] && frame[at + 6..at + 8] == length
}

/// How long a packet takes by each hook, in front of which a header is put, beside one that is only
/// forwarded: `cargo test … -- --ignored --nocapture` prints it.
#[test]
#[ignore = "it measures, and means something on a quiet machine alone"]
fn what_a_tunnel_costs() {
    if !may_load() {
        return;
    }
    let rig = Rig::with_tunnels(0, false);
    let (mut random, mut reader) = (Random(3), rig.domain.reader());
    let tables = rig.tables();
    for hook in 0..2 {
        let mut found = [None, None];
        while found.iter().any(Option::is_none) {
            let frame = rig.frame(&mut random, 1);
            let decision = decide_frame(&tables, &reader.turn(), 1, &frame);
            if let ForwardDecision::Send { frame: sent, .. } = decision
                && is_for_tc(&frame)
                && frame[12..14] == [8, 0]
            {
                found[usize::from(outer(&sent).is_some())] = Some(frame);
            }
        }
        let nanoseconds = found.map(|frame| {
            let frame = frame.expect("both were found");
            // Each run begins with what the one before it left, so that each is one of its own.
            let run = || bpf::run(&rig.programs[hook][1], &frame, None, 1).expect("a run").nanoseconds;
            let mut times: Vec<u32> = (0..20_000).map(|_| run()).collect();
            times.sort_unstable();
            times[times.len() / 2]
        });
        println!("{}: plain {} ns, tunnel {} ns", ["XDP", "tc"][hook], nanoseconds[0], nanoseconds[1]);
    }
}
