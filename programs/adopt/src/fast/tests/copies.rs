//! Copies of frames, beside the decision.
use super::*;

/// Whether programs of XDP may copy frames (`bpf_xdp_load_bytes`, Linux 5.18).
fn may_copy() -> bool {
    use bpf::{Assembler, Register::*};
    const XDP_LOAD_BYTES: i32 = 189;
    if !may_load() {
        return false;
    }
    let mut a = Assembler::default();
    a.set(R2, 0);
    a.set(R3, R10);
    a.compute(bpf::Operation::Add, R3, -8);
    a.set(R4, 8);
    a.call(XDP_LOAD_BYTES);
    a.exit();
    let loaded = bpf::load(Hook::XDP, &a.finish().unwrap());
    if let Err(error) = &loaded {
        eprintln!("skipped: copies of frames by XDP: {error}");
    }
    loaded.is_ok()
}

#[test]
fn the_verifier_is_far_from_its_limit_with_programs_that_copy_frames_of_connections() {
    if !may_copy() {
        return;
    }
    for copied in [Copied::All, Copied::Forwarded, Copied::Sampled(100)] {
        let rig = Rig::with(1, Some(CaptureRings::new(copied).unwrap()), true);
        for program in rig.programs.iter().flatten() {
            let Some(count) = bpf::verified_instructions(program).unwrap() else { return };
            assert!(count < MOST_VERIFIED, "{count}");
        }
    }
}

#[test]
fn copies_are_the_frames_as_they_came_with_what_was_decided() {
    if !may_copy() {
        return;
    }
    for has_all in [false, true] {
        let rings = CaptureRings::new(if has_all { Copied::All } else { Copied::Forwarded }).unwrap();
        let (slots, snap) = (rings.slots, rings.snap());
        let mut rig = Rig::with(5, Some(rings), false);
        let (mut random, mut reader) = (Random(77), rig.domain.reader());
        let mut expected = Vec::new();
        for number in 0..slots / 2 {
            let port = random.below(3) as u32;
            let frame = rig.frame(&mut random, port);
            let tables = rig.tables();
            let first = frame.len().min(bpf::FIRST_BUFFER);
            let verdict = match decide_multi_buffer(&tables, &reader.turn(), port, &frame, first) {
                ForwardDecision::Kernel(reason) => CaptureVerdict::Kernel(reason),
                ForwardDecision::Send { .. } => CaptureVerdict::Forwarded(0),
            };
            // Half by each hook, where the hook takes such frames.
            let hook = usize::from(number % 2 == 1 && is_for_tc(&frame));
            bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
            if has_all || matches!(verdict, CaptureVerdict::Forwarded(_)) {
                expected.push((verdict, port, frame.len() as u32, frame[..frame.len().min(snap)].to_vec()));
            }
        }
        let capture = rig.capture.as_mut().unwrap();
        let verdict = |verdict| match verdict {
            // The decision does not say by which port.
            CaptureVerdict::Forwarded(_) => CaptureVerdict::Forwarded(0),
            kernel => kernel,
        };
        let taken = capture.drain_frames().into_iter();
        let taken: Vec<_> = taken.map(|c| (verdict(c.verdict), c.port, c.length, c.bytes)).collect();
        assert!(expected.len() > slots / 16, "{}", expected.len());
        assert_eq!((taken.len(), capture.lost()), (expected.len(), 0));
        assert_eq!(taken, expected);
        assert!(capture.drain_frames().is_empty(), "each is taken once");
    }
}

#[test]
fn copies_that_were_overwritten_are_counted_as_lost() {
    if !may_copy() {
        return;
    }
    let rings = CaptureRings::new(Copied::All).unwrap();
    let runs = 3 * rings.slots;
    let mut rig = Rig::with(7, Some(rings), false);
    let frame = rig.frame(&mut Random(1), 1);
    (0..runs).for_each(|_| drop(bpf::run(&rig.programs[0][1], &frame, None, 1).unwrap()));
    let capture = rig.capture.as_mut().unwrap();
    let taken = capture.drain_frames().len() as u64;
    assert!(taken > 0 && capture.lost() > 0, "{taken} {}", capture.lost());
    assert_eq!(taken + capture.lost(), runs as u64);
}

#[test]
fn one_of_n_forwarded_frames_is_sampled_with_its_headers() {
    if !may_copy() {
        return;
    }
    const INTERVAL: usize = 8;
    let rings = CaptureRings::new(Copied::Sampled(INTERVAL as u32)).unwrap();
    let (snap, processors) = (rings.snap(), rings.rings);
    let mut rig = Rig::with(5, Some(rings), false);
    let (mut random, mut reader) = (Random(77), rig.domain.reader());
    let mut forwarded = Vec::new();
    for number in 0..2000 {
        let port = random.below(3) as u32;
        let frame = rig.frame(&mut random, port);
        let tables = rig.tables();
        let first = frame.len().min(bpf::FIRST_BUFFER);
        let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
        let hook = usize::from(number % 2 == 1 && is_for_tc(&frame));
        bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
        if matches!(decision, ForwardDecision::Send { .. }) {
            forwarded.push((port, frame.len() as u32, frame[..frame.len().min(snap)].to_vec()));
        }
    }
    let samples = rig.capture.as_mut().unwrap();
    let taken = samples.drain_frames();
    assert_eq!(samples.lost(), 0);
    assert!((taken.len() * INTERVAL).abs_diff(forwarded.len()) <= INTERVAL * processors, "{}", taken.len());
    for sample in taken {
        assert!(matches!(sample.verdict, CaptureVerdict::Forwarded(_)), "{sample:?}");
        assert!(forwarded.contains(&(sample.port, sample.length, sample.bytes)));
    }
}
