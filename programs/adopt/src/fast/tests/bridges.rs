//! Frames that arrive at members of a bridge, and those that leave by one.
use super::*;
use fdb::NEVER_AGES;

/// The number of the bridge.
const BRIDGE: u32 = 3;
/// More ticks than pass in a test, and fewer than have passed since the machine's clock began.
const INTERVAL: u64 = 1 << 31;

/// The source addresses of frames: those below the first bound are known at member 1 and age, those below
/// the second don't age, those below the third are known at member 2, and others nowhere.
const BOUNDS: [u8; 3] = [80, 90, 100];

fn learn(memory: &mut Memory) {
    let fdb = memory.fdb.as_mut().unwrap();
    for source in 70..BOUNDS[2] {
        let member = if source < BOUNDS[1] { 1 } else { 2 };
        let ages = !(BOUNDS[0]..BOUNDS[1]).contains(&source);
        assert!(fdb.insert(member, mac(source), ages));
    }
    fdb.set_interval(1, INTERVAL);
    fdb.set_interval(2, INTERVAL);
}

/// A frame for the address of the bridge, mostly, from one of the sources.
fn frame(rig: &Rig, random: &mut Random, port: u32) -> Vec<u8> {
    let mut frame = rig.frame(random, port);
    if frame.len() >= 12 && !random.one_in(20) {
        frame[..6].copy_from_slice(&mac(BRIDGE as u8 % 3).octets());
    }
    if frame.len() >= 12 {
        frame[6..12].copy_from_slice(&mac(70 + random.below(40) as u8).octets());
    }
    frame
}

#[test]
fn at_members_of_a_bridge_the_program_does_what_the_decision_says() {
    if !may_load() {
        return;
    }
    let (mut sent, mut seen) = (0, std::collections::BTreeMap::new());
    for seed in 0..2 {
        let mut rig = Rig::make(seed, None, false, Some(BRIDGE), 1);
        learn(&mut rig.memory);
        let (mut random, mut reader) = (Random(300 + seed), rig.domain.reader());
        let tables = rig.tables();
        let mut expected = Expected::default();
        for _ in 0..20_000 {
            let port = random.below(3) as u32;
            let frame = frame(&rig, &mut random, port);
            let first = frame.len().min(bpf::FIRST_BUFFER);
            let hooks = [
                ([XDP_PASS as i32, XDP_REDIRECT as i32], true),
                ([TCX_NEXT, TC_REDIRECT], is_for_tc(&frame)),
            ];
            for (hook, (answers, is_tried)) in hooks.into_iter().enumerate() {
                if is_tried {
                    // The program notes when a source was renewed, so that it is asked for before each run.
                    let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
                    let outcome = bpf::run(&rig.programs[hook][port as usize], &frame, None, 1).unwrap();
                    expected.check(
                        &decision,
                        &frame,
                        (outcome.action as i32, outcome.frame.as_slice()),
                        answers,
                    );
                }
            }
        }
        expected.check_counters(&rig);
        sent += expected.sent;
        expected.by_reason.into_iter().for_each(|(reason, count)| *seen.entry(reason).or_insert(0) += count);
        let stamps = |member, sources: std::ops::Range<u8>| {
            let fdb = rig.memory.fdb.as_ref().unwrap();
            let stamp = |source| fdb.find(member, mac(source).octets()).unwrap().0;
            sources.map(stamp).collect::<Vec<u64>>()
        };
        assert!(stamps(1, 70..BOUNDS[0]).into_iter().all(|stamp| stamp > 0 && stamp < NEVER_AGES));
        assert!(stamps(1, BOUNDS[0]..BOUNDS[1]).into_iter().all(|stamp| stamp == NEVER_AGES));
    }
    let count = |reason: Reason| seen.get(&format!("{reason:?}")).copied().unwrap_or(0);
    // One of each source that ages, and of both rigs.
    assert_eq!(count(Reason::Renewal), 2 * 20, "{seen:?}");
    assert!(count(Reason::NotLearned) > 5000, "{sent} {seen:?}");
    assert!(count(Reason::OtherVlan) > 100, "{sent} {seen:?}");
    assert!(sent > 2000, "{sent} {seen:?}");
}
