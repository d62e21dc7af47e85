//! Tables that flows are compared with beside the present one.
use super::rig::{NOW, Rig, member};
use artery_flow::Seed;
use artery_flow::balance::{Member, Method, PlannedChange, Settings};
use std::time::Duration;

const LATER: Duration = Duration::from_secs(2000);

fn change(members: Vec<Member>, method: Method) -> PlannedChange {
    PlannedChange { members, settings: Settings { method, ..Settings::default() }, seed: None }
}

/// Members m0, m1 … of these weights.
fn list(weights: &[u32]) -> Vec<Member> {
    weights.iter().enumerate().map(|(n, weight)| member(n, *weight)).collect()
}

/// The digest of members' table, of which those with `false` are down.
fn digest(method: Method, weights: &[u32], down: &[&str]) -> Option<u64> {
    let mut rig = Rig::with(method, weights);
    down.iter().for_each(|name| rig.set_up(name, false));
    rig.digest()
}

#[test]
fn a_planned_table_is_the_one_that_the_change_makes_with_the_same_numbers_and_ends() {
    for method in [Method::MAGLEV, Method::Hash, Method::Xor] {
        let mut rig = Rig::with(method, &[1, 1, 1]);
        let before = rig.digest();
        rig.members.plan_change(change(list(&[1, 0, 1, 2]), method), LATER, NOW).unwrap();
        assert_eq!(rig.other_digests(), [digest(method, &[1, 0, 1, 2], &[])], "{method}");
        assert_eq!(rig.digest(), before, "the present table stays");
        assert_eq!(rig.id_elsewhere("m2"), rig.named("m2"));
        assert!(rig.id_elsewhere("m3").is_some() && rig.named("m3").is_none());
        // A change meanwhile is in it, too; what it names itself it decides.
        rig.set_up("m0", false);
        assert_eq!(rig.other_digests(), [digest(method, &[1, 0, 1, 2], &["m0"])]);
        rig.members.poll(LATER - Duration::from_nanos(1));
        assert!(rig.members.has_plan());
        rig.members.poll(LATER);
        assert!(!rig.members.has_plan() && rig.other_digests().is_empty());
    }
}

#[test]
fn a_plan_that_changes_no_table_or_has_none_is_compared_with_nothing() {
    let mut rig = Rig::with(Method::MAGLEV, &[1, 2]);
    rig.members.plan_change(change(list(&[1, 2]), Method::MAGLEV), LATER, NOW).unwrap();
    assert!(rig.members.has_plan() && rig.other_digests().is_empty());
    let seed = Some(Seed::new([7, 0]));
    let seeded = PlannedChange { seed, ..change(list(&[1, 2]), Method::MAGLEV) };
    rig.members.plan_change(seeded, LATER, NOW).unwrap();
    assert_eq!(rig.other_digests().len(), 1, "the same table by another hash");
    rig.members.plan_change(change(list(&[1, 2]), Method::LeastLoaded), LATER, NOW).unwrap();
    assert!(rig.other_digests().is_empty());
    let refused = vec![member(0, 1), member(0, 2)];
    assert!(rig.members.plan_change(change(refused, Method::MAGLEV), LATER, NOW).is_err());
    rig.members.abandon_plan(NOW);
    assert!(!rig.members.has_plan());
}

#[test]
fn members_that_a_plan_adds_are_checked_before_and_are_up_at_once_when_it_comes() {
    let settings = Settings { starts_up: false, ..Settings::default() };
    let mut rig = Rig::new(settings);
    rig.members.replace_members(list(&[1, 1]), NOW).unwrap();
    ["m0", "m1"].into_iter().for_each(|name| rig.set_up(name, true));
    let planned = PlannedChange { settings, ..change(list(&[1, 1, 1, 1]), Method::MAGLEV) };
    rig.members.plan_change(planned, LATER, NOW).unwrap();
    let names = |rig: &Rig| rig.members.planned_members().map(|member| member.name.to_string()).collect();
    let added: Vec<String> = names(&rig);
    assert_eq!(added, ["m2", "m3"]);
    assert!(rig.members.awaits_planned() && rig.other_digests().is_empty(), "they count as down");
    rig.set_up("m2", true);
    assert!(rig.members.awaits_planned());
    rig.set_up("m3", false);
    assert!(!rig.members.awaits_planned());
    assert_eq!(rig.other_digests(), [digest(Method::MAGLEV, &[1, 1, 1], &[])]);
    let mut new = Rig::new(settings);
    new.members.replace_members(list(&[1, 1, 1, 1]), NOW).unwrap();
    new.members.adopt_health(&rig.members, true, NOW);
    assert_eq!(new.digest(), digest(Method::MAGLEV, &[1, 1, 1], &[]));
}

#[test]
fn members_that_are_held_down_are_down_for_a_time_whatever_checks_find() {
    let mut rig = Rig::with(Method::MAGLEV, &[1, 1, 1]);
    rig.members.hold_down(["m1", "x"].into_iter(), LATER, NOW);
    assert_eq!(rig.digest(), digest(Method::MAGLEV, &[1, 1, 1], &["m1"]));
    assert!(rig.other_digests().is_empty());
    let view = rig.members.view_member("m1").unwrap();
    assert_eq!((view.is_up, view.checked), (false, None));
    rig.set_up("m1", true);
    assert!(!rig.members.view_member("m1").unwrap().is_up);
    // One that is added later by a name that was named is held, too.
    rig.add("x 10.9.0.1").unwrap();
    assert!(!rig.members.view_member("x").unwrap().is_up);
    rig.members.remove("x", NOW).unwrap();
    rig.members.poll(LATER);
    assert_eq!(rig.digest(), digest(Method::MAGLEV, &[1, 1, 1], &[]));
}

#[test]
fn what_this_machine_alone_does_not_reach_is_compared_with_the_table_of_those_that_do() {
    let mut rig = Rig::with(Method::MAGLEV, &[1, 1, 1]);
    rig.set_up("m2", false);
    assert!(rig.other_digests().is_empty(), "without a fleet there is one table");
    rig.members.hold_down(std::iter::empty(), LATER, NOW);
    assert_eq!(rig.other_digests(), [digest(Method::MAGLEV, &[1, 1, 1], &[])]);
    assert_eq!(rig.digest(), digest(Method::MAGLEV, &[1, 1, 1], &["m2"]));
    rig.members.hold_down(["m2"].into_iter(), LATER, NOW);
    assert!(rig.other_digests().is_empty());
    rig.members.poll(LATER);
    assert!(rig.other_digests().is_empty() && rig.digest() == digest(Method::MAGLEV, &[1, 1, 1], &["m2"]));
}
