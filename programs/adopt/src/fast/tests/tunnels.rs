//! Packets that leave by tunnels.
use super::*;
use crate::kernel::TunnelProtocol;
use std::net::Ipv4Addr;

/// The outer sources of tunnels, by their last byte.
const SOURCE: [u8; 3] = [198, 51, 100];

/// Tunnels 1 to 3: one of IPIP with all from the packet, one of GRE with all of its own, and one of GRE.
pub(super) fn write_tunnels(memory: &Memory) {
    let [a, b, c] = SOURCE;
    let header = |number: u8, protocol, ttl, tos| TunnelHeader {
        source: Ipv4Addr::new(a, b, c, number),
        destination: Ipv4Addr::new(203, 0, 113, number),
        protocol,
        ttl,
        tos,
    };
    memory.write_tunnel(1, &header(1, TunnelProtocol::Ipip, 0, 1));
    memory.write_tunnel(2, &header(2, TunnelProtocol::Gre, 64, 0x48));
    memory.write_tunnel(3, &header(3, TunnelProtocol::Gre, 0, 0));
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
    let (mut tunnelled, mut plain) = ([0; 2], 0);
    for (seed, has_flows) in [(0, false), (1, false), (2, true)] {
        let rig = Rig::with_tunnels(seed, has_flows);
        let (mut random, mut reader) = (Random(700 + seed), rig.domain.reader());
        let tables = rig.tables();
        let mut expected = Expected::default();
        for _ in 0..20_000 {
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
                    ForwardDecision::Send { .. } => plain += 1,
                    ForwardDecision::Kernel(_) => {}
                }
                expected.check(&decision, &frame, (outcome.action as i32, &left), answers);
            }
        }
        expected.check_counters(&rig);
    }
    let [xdp, tc] = tunnelled;
    assert!(xdp > 1000 && tc > 1000 && plain > 1000, "{tunnelled:?} {plain}");
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
