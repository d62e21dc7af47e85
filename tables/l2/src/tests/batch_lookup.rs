//! Batches are looked up as single frames are.
use super::*;

/// Lines of commands for ports and the switch.
fn line(random: &mut Random) -> String {
    let port = random.below(6);
    let n = random.below(3) + 1;
    let lines = [
        format!("learn p{port}"),
        format!("-learn p{port}"),
        format!("-discover p{port}"),
        format!("locked p{port}"),
        format!("blocknonip p{port}"),
        format!("hairpin p{port}"),
        format!("nobroadcast p{port}"),
        format!("nomulticast p{port}"),
        format!("protected p{port} {n},7"),
        format!("-protected p{port}"),
        format!("untagged p{port} {n}"),
        format!("untagged p{port} passthrough"),
        format!("tagged p{port} +{n}"),
        format!("rule block in on p{port} src 02:00:00:00:00:0{n}"),
        format!("rule block out on p{port} dst 02:00:00:00:00:0{n}"),
        format!("flushrule p{port}"),
        "link0".into(),
        "-link0".into(),
        "link1".into(),
        "down".into(),
        "up".into(),
        "up".into(),
    ];
    lines[random.below(lines.len() as u64) as usize].clone()
}

#[test]
fn what_is_decided_quickly_is_what_is_decided() {
    let mut quickly = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut lab = Lab::of(6, &[]);
        if random.percent(10) {
            lab.tell("del p5 addspan p5").unwrap();
        }
        for _ in 0..random.below(12) {
            let _ = lab.tell(&line(&mut random));
        }
        for address in 1..9 {
            let key = MacKey::new(0x0200_0000_0000 + address, if random.percent(80) { 1 } else { 2 });
            lab.switch.learn_address(key, random.below(6) as u16, random.percent(20), at(random.below(400)));
        }
        let now = at(400);
        let turn = lab.reader.turn();
        let (view, table) = (lab.switch.view(&turn), lab.switch.table(&turn));
        let find = |key| {
            table
                .find_entry(table.probe_key(key))
                .filter(|entry| !entry.is_old(super::seconds(now), view.timeout()))
        };
        for _ in 0..1000 {
            let mut station =
                || EtherAddr([if random.percent(5) { 3 } else { 2 }, 0, 0, 0, 0, random.below(10) as u8]);
            let (target, origin) = (station(), station());
            let frame = ether(target, origin);
            let kind = EtherType([0x0800, 0x0806, 0x88b5][random.below(3) as usize]);
            let is_tagged = random.percent(20);
            let frame = if is_tagged { frame.vlan(random.below(4) as u16) } else { frame };
            let bytes = frame.raw(kind, [0; 46]).bytes();
            let port = random.below(6) as u16;
            if !view.is_fast_path(port) {
                continue;
            }
            let mut found = BatchLookup::default();
            found.lookup_batch((view, table), port, super::seconds(now), [&bytes[..]].into_iter());
            let target = found.targets_mut()[0];
            assert_eq!(target.is_ip(), kind == EtherType::IPV4 && !is_tagged);
            let Some(to) = target.port() else { continue };
            quickly += 1;
            let views = (view, lab.switch.groups(&turn));
            let decision = trace_frame(views, port, &FrameView::new(&bytes).unwrap(), find);
            let said = format!("seed {seed}: {to} and {decision:?}");
            assert_eq!(
                decision.targets,
                [(to, Ok(EgressRewrite { change: TagRewrite::Keep, mark: None }))],
                "{said}"
            );
            let key = MacKey::from_address(origin, view.vlan(port).unwrap());
            let source = table.find_entry(table.probe_key(key)).unwrap();
            assert_eq!((source.port(), decision.copies.len()), (port, 0), "{said}");
            assert!(decision.learns.is_some() && decision.egress == Some(Ok(Egress::Unicast(to))), "{said}");
        }
    }
    assert!(quickly > 1000, "{quickly}");
}
