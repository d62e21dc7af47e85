//! Programs of ports whose VLANs have other FIBs.
use super::*;

#[test]
fn a_frame_goes_by_the_fib_of_its_port_or_vlan() {
    if !may_load() {
        return;
    }
    // Programs look into the first FIB, and leave frames of the second port and of VLAN 7 to other programs;
    // of the third port there is none.
    let tables_tried = [(0, false), (1, false), (2, true)];
    for (seed, has_flows) in tables_tried.into_iter().take(trial_count(3) as usize) {
        let rig = Rig::make(seed, None, has_flows, None, 2);
        let mut random = Random(2000 + seed);
        let mut reader = rig.domain.reader();
        let tables = rig.tables();
        let (mut expected, mut otherwise) = (Expected::default(), [0; 2]);
        for _ in 0..20_000 {
            let port = random.below(3) as u32;
            let frame = rig.frame(&mut random, port);
            let first = frame.len().min(bpf::FIRST_BUFFER);
            let decision = decide_multi_buffer(&tables, &reader.turn(), port, &frame, first);
            // In how many cases the FIB matters.
            let main = [VrfTables { number: 1, ipv4: rig.ipv4.clone(), ipv6: rig.ipv6.clone() }];
            let main = ForwardingTables { vrfs: &main, ..rig.tables() };
            let of_main = decide_multi_buffer(&main, &reader.turn(), port, &frame, first);
            let outcome = bpf::run(&rig.programs[0][port as usize], &frame, None, 1).unwrap();
            let done = (outcome.action as i32, outcome.frame.as_slice());
            expected.check(&decision, &frame, done, [XDP_PASS as i32, XDP_REDIRECT as i32]);
            otherwise[0] += usize::from(decision != of_main);
            if is_for_tc(&frame) {
                let outcome = bpf::run(&rig.programs[1][port as usize], &frame, None, 1).unwrap();
                let done = (outcome.action as i32, outcome.frame.as_slice());
                expected.check(&decision, &frame, done, [TCX_NEXT, TC_REDIRECT]);
                otherwise[1] += usize::from(decision != of_main);
            }
        }
        expected.check_counters(&rig);
        let changing = expected.kernel[Reason::Changing as usize];
        let is_enough = otherwise.iter().all(|cases| *cases > 500) && changing > 1000;
        let is_enough = has_flows || expected.sent > 2000 && is_enough;
        assert!(is_enough, "{} {otherwise:?} {changing} {:?}", expected.sent, expected.by_reason);
    }
}

#[test]
fn a_program_that_leaves_no_frames_to_others_is_the_same_in_each_vrf() {
    if !may_load() {
        return;
    }
    let memory = Memory::new().unwrap();
    let tables = [1, 2].map(|seed| Table::new(&Domain::new(), &mut Random(seed), u32::MAX as usize, seed));
    let programs = bpf::ProgramArray::new(MOST_FIBS).unwrap();
    let codes = |table: &Table, others: Option<OtherFibs<'_>>| -> Vec<[u8; 4]> {
        let port = ProgramPort { others, ..ProgramPort::default() };
        let program = program::build_program(&memory, &table.fibs(), ProgramHook::Xdp, &port);
        // All but the operands, of which descriptors of maps differ.
        program.iter().map(|code| [code[0], code[1], code[2], code[3]]).collect()
    };
    let [main, vrf] = tables.each_ref().map(|table| codes(table, None));
    assert!(main == vrf);
    let with_others = codes(&tables[0], Some(OtherFibs { own: 0, programs: &programs }));
    assert_eq!(with_others.len() - main.len(), 9, "instructions for each packet of a port with several");
}
