//! Methods that choose by what one worker has seen: weighted rotation, flowlets, number of flows.
use super::rig::{NOW, Rig, flow, flows};
use artery_flow::balance::{Flow, Local, MemberId, Method};
use proptest::prelude::*;
use std::time::Duration;

const US: Duration = Duration::from_micros(1);

#[test]
fn packets_go_round_by_weight() {
    let mut rig = Rig::with(Method::PerPacket, &[1, 3, 0]);
    let names: Vec<_> = (0..8).map(|_| rig.name(flow(1), NOW).unwrap().to_string()).collect();
    assert_eq!(names, ["m0", "m1", "m1", "m1", "m0", "m1", "m1", "m1"]);
}

#[test]
fn workers_begin_with_different_members() {
    for method in [Method::PerPacket, Method::FLOWLET, Method::LeastLoaded] {
        let mut rig = Rig::with(method, &[1; 4]);
        let mut first = |worker| {
            rig.local = Local::new(worker);
            rig.name(flow(1), NOW).unwrap().to_string()
        };
        assert_eq!([0, 1, 2, 3, 4].map(&mut first), ["m0", "m1", "m2", "m3", "m0"], "{method}");
    }
}

#[test]
fn a_rotation_survives_a_change_of_members() {
    let mut rig = Rig::with(Method::PerPacket, &[1; 9]);
    assert!((0..8).all(|_| rig.pick(flow(1), NOW).is_some()));
    rig.members.replace_members(vec![super::rig::member(0, 1)], NOW).unwrap();
    assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("m0"));
}

#[test]
fn a_flow_changes_its_member_after_a_silence_and_not_before() {
    let mut rig = Rig::with(Method::Flowlet { gap: 500 * US }, &[1; 3]);
    let mut now = NOW;
    let mut after = |silence: Duration| {
        now += silence;
        rig.name(flow(1), now).unwrap().to_string()
    };
    assert_eq!([0, 499, 1, 499].map(|us| after(us * US)), ["m0"; 4]);
    assert_eq!(after(500 * US), "m1");
    assert_eq!(after(499 * US), "m1");
    assert_eq!(after(Duration::from_secs(5000)), "m2");
}

#[test]
fn a_clock_that_goes_back_begins_a_flowlet() {
    let mut rig = Rig::with(Method::FLOWLET, &[1; 3]);
    assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("m0"));
    assert_eq!(rig.name(flow(1), NOW - US).as_deref(), Some("m1"));
    assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("m1"));
}

#[test]
fn a_flowlet_leaves_a_member_that_takes_no_new_flows() {
    let mut rig = Rig::with(Method::FLOWLET, &[1; 2]);
    assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("m0"));
    rig.members.set_weight("m0", 0, NOW).unwrap();
    assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("m1"));
}

#[test]
fn flowlets_of_different_flows_are_balanced() {
    let mut rig = Rig::with(Method::FLOWLET, &[1, 1, 2]);
    flows(20_000).into_iter().for_each(|flow| {
        let id = rig.pick(flow, NOW).unwrap();
        rig.local.flow_began(id);
    });
    let counts = [0, 1, 2].map(|n| rig.local.flow_count(rig.id(&format!("m{n}"))));
    let close = |count: u32, to: u32| count.abs_diff(to) < to / 20;
    assert!(close(counts[0], 5000) && close(counts[1], 5000) && close(counts[2], 10_000), "{counts:?}");
}

#[test]
fn who_has_fewest_flows_for_its_weight_takes_the_next() {
    let mut rig = Rig::with(Method::LeastLoaded, &[1, 2, 1]);
    let began = |rig: &mut Rig| {
        let id = rig.pick(flow(1), NOW).unwrap();
        rig.local.flow_began(id);
        id
    };
    assert_eq!((0..400).map(|_| began(&mut rig)).filter(|id| id.place() == 1).count(), 200);
    let counts = |rig: &Rig| [0, 1, 2].map(|n| rig.local.flow_count(rig.id(&format!("m{n}"))));
    assert_eq!(counts(&rig), [100, 200, 100]);
    let id = rig.id("m2");
    (0..30).for_each(|_| rig.local.flow_ended(id.action()));
    (0..30).for_each(|_| assert_eq!(began(&mut rig), id));
    assert_eq!(counts(&rig), [100, 200, 100]);
}

#[test]
fn flows_of_a_member_that_is_gone_do_not_count_for_who_has_its_place() {
    let mut rig = Rig::with(Method::LeastLoaded, &[1]);
    let old = rig.id("m0");
    (0..5).for_each(|_| rig.local.flow_began(old));
    rig.members.remove("m0", NOW).unwrap();
    let new = rig.add("m0 10.0.0.1").unwrap();
    assert_eq!((rig.local.flow_count(old), rig.local.flow_count(new)), (5, 0));
    rig.local.flow_began(new);
    rig.local.flow_ended(old.action());
    rig.local.flow_began(old);
    assert_eq!((rig.local.flow_count(old), rig.local.flow_count(new)), (0, 1));
    rig.local.flow_ended(0);
    rig.local.flow_ended(new.action());
    rig.local.flow_ended(new.action());
    assert_eq!(rig.local.flow_count(new), 0);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    End(prop::sample::Index),
    Weight(u8, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Begin),
        3 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => (0..7u8, 0..5u32).prop_map(|(member, weight)| Step::Weight(member, weight)),
    ]
}

proptest! {
    #[test]
    fn the_least_loaded_is_who_a_look_at_all_finds(
        steps in prop::collection::vec(step(), 1..400),
        worker in 0..9usize,
    ) {
        let mut weights = [1, 2, 3, 1, 1, 4, 2];
        let mut rig = Rig::with(Method::LeastLoaded, &weights);
        rig.local = Local::new(worker);
        let (mut flows, mut counts) = (Vec::<MemberId>::new(), [0u32; 7]);
        let load = |counts: &[u32; 7], weights: &[u32; 7], n: usize| {
            f64::from(counts[n] + 1) / f64::from(weights[n])
        };
        for step in steps {
            match step {
                Step::Begin => {
                    let Some(id) = rig.pick(Flow::default(), NOW) else {
                        prop_assert!(weights.iter().all(|weight| *weight == 0));
                        continue;
                    };
                    let best = (0..7).filter(|n| weights[*n] > 0).map(|n| load(&counts, &weights, n));
                    prop_assert_eq!(load(&counts, &weights, id.place()), best.fold(f64::MAX, f64::min));
                    rig.local.flow_began(id);
                    counts[id.place()] += 1;
                    flows.push(id);
                }
                Step::End(_) if flows.is_empty() => {}
                Step::End(which) => {
                    let id = flows.swap_remove(which.index(flows.len()));
                    rig.local.flow_ended(id.action());
                    counts[id.place()] -= 1;
                }
                Step::Weight(member, weight) => {
                    weights[usize::from(member)] = weight;
                    rig.members.set_weight(&format!("m{member}"), weight, NOW).unwrap();
                }
            }
        }
    }
}
