//! How evenly each method shares flows out, and how many of them move when a member goes and comes back.
use super::rig::{NOW, Rig, flows, member, names};
use artery_flow::balance::{Flow, Method, Slots};
use std::sync::Arc;

/// In percent of all flows: those that have another member than before.
fn moved(before: &[Option<Arc<str>>], after: &[Option<Arc<str>>]) -> f64 {
    let moved = before.iter().zip(after).filter(|(before, after)| before != after).count();
    100.0 * moved as f64 / before.len() as f64
}

/// In percent of all flows: those that moved when the middle one of so many members went, those of other
/// members among them, and those that moved when it came back.
fn measure(method: Method, count: usize, flows: &[Flow]) -> [f64; 3] {
    let mut rig = Rig::with(method, &vec![1; count]);
    let gone = count / 2;
    let before = names(&mut rig, flows);
    rig.members.remove(&format!("m{gone}"), NOW).unwrap();
    let after = names(&mut rig, flows);
    rig.members.add_member(member(gone, 1), NOW).unwrap();
    let again = names(&mut rig, flows);
    let own = before.iter().filter(|name| name.as_deref() == Some(&format!("m{gone}"))).count();
    let all = moved(&before, &after);
    [all, all - 100.0 * own as f64 / flows.len() as f64, moved(&after, &again)]
}

#[test]
fn the_share_of_flows_that_move_is_what_each_method_promises() {
    let flows = flows(50_000);
    println!("moved, in percent of all flows   gone   of others   back");
    for count in [4, 10, 50, 650] {
        let fair = 100.0 / count as f64;
        for method in [Method::MAGLEV, Method::RESILIENT, Method::Hash, Method::Xor] {
            let [gone, others, back] = measure(method, count, &flows);
            println!("{:>12} {count:>4} members       {gone:>7.2} {others:>8.2} {back:>9.2}", method.name());
            match method {
                Method::Maglev(_) => assert!(others < 1.0, "1/N and 1 %: {others} with {count}"),
                Method::Resilient { .. } => assert_eq!(others, 0.0, "1/N"),
                Method::Hash => assert!((25.0..50.0).contains(&gone), "1/4 to 1/2: {gone} with {count}"),
                _ => assert!((gone - (100.0 - fair)).abs() < 1.0, "(N-1)/N: {gone} with {count}"),
            }
            if !matches!(method, Method::Resilient { .. }) {
                assert!((back - gone).abs() < 1e-9, "{method} has no past");
            }
        }
    }
}

#[test]
fn one_of_buckets_that_are_used_comes_back_without_a_move() {
    // Enough flows that no bucket is idle.
    let [_, others, back] = measure(Method::RESILIENT, 10, &flows(100_000));
    assert_eq!((others, back), (0.0, 0.0));
}

#[test]
fn flows_that_keep_their_numbers_move_only_with_their_member() {
    for method in Method::ALL {
        let mut rig = Rig::with(method, &[1; 10]);
        let mut kept = Vec::new();
        for flow in flows(5000) {
            let id = rig.pick(flow, NOW).unwrap();
            rig.local.flow_began(id);
            kept.push(id);
        }
        let gone = rig.id("m3");
        rig.members.remove("m3", NOW).unwrap();
        assert!(kept.iter().all(|id| rig.member(*id).is_none() == (*id == gone)), "{method}");
        rig.members.add_member(member(3, 1), NOW).unwrap();
        assert!(kept.iter().all(|id| rig.member(*id).is_none() == (*id == gone)), "{method}");
    }
}

/// By how many percent the members with least and most slots are off their share.
fn imbalance(rig: &Rig) -> (f64, f64) {
    let views: Vec<_> = rig.members.view_members().collect();
    let slots: usize = views.iter().map(|view| view.slots).sum();
    let weights: f64 = views.iter().map(|view| f64::from(view.member.weight)).sum();
    let off = views.iter().map(|view| {
        let fair = slots as f64 * f64::from(view.member.weight) / weights;
        100.0 * (view.slots as f64 / fair - 1.0)
    });
    off.fold((0.0, 0.0), |(least, most), off| (off.min(least), off.max(most)))
}

#[test]
fn maglev_shares_out_slots_within_1_percent_up_to_650_members() {
    for count in [2, 3, 10, 100, 650] {
        let (least, most) = imbalance(&Rig::with(Method::MAGLEV, &vec![1; count]));
        println!("maglev, {count:>4} members: slots {least:+.3} % to {most:+.3} %");
        assert!(least > -1.0 && most < 1.0, "{count} members: {least} to {most}");
    }
}

#[test]
fn maglev_shares_out_slots_by_weight_to_the_slot() {
    let weights: Vec<u32> = (1..=100).collect();
    let rig = Rig::with(Method::MAGLEV, &weights);
    let sum: u32 = weights.iter().sum();
    for view in rig.members.view_members() {
        let fair = f64::from(view.member.weight) * 65_537.0 / f64::from(sum);
        assert!((view.slots as f64 - fair).abs() < 2.0, "{view:?}: {fair}");
    }
}

#[test]
fn a_member_of_next_to_no_weight_has_a_slot() {
    for method in [Method::MAGLEV, Method::RESILIENT, Method::Hash, Method::Xor, Method::PerPacket] {
        let rig = Rig::with(method, &[1, u32::MAX, u32::MAX]);
        assert_eq!(rig.members.view_member("m0").unwrap().slots, 1, "{method}");
    }
}

#[test]
fn flows_are_shared_out_by_weight() {
    let flows = flows(100_000);
    for method in Method::ALL {
        let mut rig = Rig::with(method, &[1, 2, 0, 5]);
        let mut counts = [0u32; 4];
        for flow in &flows {
            let id = rig.pick(*flow, NOW).unwrap();
            rig.local.flow_began(id);
            counts[id.place()] += 1;
        }
        // Chi-square of 2 degrees of freedom: 18 is passed by chance once in eight thousand runs, and this is
        // one run.
        let expected = [12_500.0, 25_000.0, 0.0, 62_500.0];
        let chi: f64 =
            [0, 1, 3].map(|n| (f64::from(counts[n]) - expected[n]).powi(2) / expected[n]).iter().sum();
        assert!(counts[2] == 0 && chi < 18.0, "{method}: {counts:?}, chi-square {chi}");
    }
}

#[test]
fn less_slots_move_more() {
    let flows = flows(50_000);
    let others = |slots| measure(Method::Maglev(Slots::new(slots).unwrap()), 50, &flows)[1];
    let (small, usual) = (others(1009), others(65_537));
    println!("maglev, 50 members, moved of others: {small:.2} % of 1,009 slots, {usual:.2} % of 65,537");
    assert!(small > usual);
}

#[test]
fn a_weight_that_changes_moves_little_more_than_its_share() {
    let (flows, weights) = (flows(50_000), [1; 10]);
    let mut rig = Rig::with(Method::MAGLEV, &weights);
    let before = names(&mut rig, &flows);
    rig.members.set_weight("m4", 2, NOW).unwrap();
    let moved = moved(&before, &names(&mut rig, &flows));
    // From 1/10 to 2/11.
    println!(
        "maglev, weight of one of 10 doubled: {moved:.2} % moved, {:.2} % must",
        100.0 * (2.0 / 11.0 - 0.1)
    );
    assert!(moved < 8.2 + 1.0, "{moved}");
}
