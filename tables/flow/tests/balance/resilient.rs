//! Buckets that move to other members only when they are idle.
use super::rig::{NOW, Rig, flow, flows, names};
use artery_flow::balance::{Flow, Method, Settings};
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(120);

fn with(force: Option<Duration>) -> Rig {
    Rig::with(Method::Resilient { buckets: 256, idle: IDLE, force }, &[1; 4])
}

fn slots(rig: &Rig) -> Vec<usize> {
    rig.members.view_members().map(|view| view.slots).collect()
}

/// A flow for each of the first `buckets` buckets.
fn use_first(rig: &mut Rig, buckets: u64, now: Duration) {
    let flow = |bucket| Flow { hash: bucket << 56, xor: 0 };
    assert!((0..buckets).all(|bucket| rig.pick(flow(bucket), now).is_some()));
}

#[test]
fn who_goes_leaves_its_buckets_and_nobody_else_does() {
    let (mut rig, flows) = (with(None), flows(5000));
    let before = names(&mut rig, &flows);
    rig.members.remove("m2", NOW).unwrap();
    let after = names(&mut rig, &flows);
    assert!(before.iter().zip(&after).all(|(old, new)| old == new || old.as_deref() == Some("m2")));
    assert_eq!(slots(&rig).iter().sum::<usize>(), 256);
    assert!(slots(&rig).iter().all(|slots| (85..=86).contains(slots)));
}

#[test]
fn who_comes_gets_idle_buckets_at_once_and_the_others_when_they_are() {
    let mut rig = with(None);
    use_first(&mut rig, 240, NOW);
    rig.add("m4 10.0.0.9").unwrap();
    let got = slots(&rig)[4];
    assert_eq!(got, 16, "all that are idle");
    let due = rig.members.poll(NOW).expect("it comes again");
    assert!(due > NOW && due <= NOW + IDLE);
    assert_eq!(slots(&rig)[4], got, "no bucket in use has moved");
    assert_eq!(rig.members.poll(NOW + 2 * IDLE), None);
    assert!(slots(&rig)[4] >= 51);
}

#[test]
fn buckets_in_use_stay_for_ever_unless_force_is_set() {
    for force in [None, Some(Duration::from_secs(600))] {
        let mut rig = with(force);
        use_first(&mut rig, 256, NOW);
        rig.add("m4 10.0.0.9").unwrap();
        let (mut now, end) = (NOW, NOW + Duration::from_secs(3600));
        while let Some(due) = rig.members.poll(now)
            && due < end
        {
            assert!(due > now, "no loop without time");
            assert_eq!(slots(&rig)[4], 0);
            now = due;
            use_first(&mut rig, 256, now);
        }
        match force {
            None => assert_eq!(slots(&rig)[4], 0),
            Some(force) => assert_eq!((now, slots(&rig)[4] >= 51), (NOW + force, true)),
        }
    }
}

#[test]
fn a_clock_that_goes_back_makes_no_bucket_idle() {
    let mut rig = with(Some(Duration::from_secs(600)));
    use_first(&mut rig, 256, NOW);
    rig.add("m4 10.0.0.9").unwrap();
    rig.members.poll(Duration::ZERO);
    assert_eq!(slots(&rig)[4], 0);
    assert!(rig.members.poll(Duration::MAX).is_none_or(|due| due == Duration::MAX));
}

#[test]
fn buckets_wait_for_members_while_there_are_none() {
    let (mut rig, flows) = (with(None), flows(1000));
    let before = names(&mut rig, &flows);
    for weight in [0, 1] {
        // The last one goes, and the first one comes back, at once.
        let list = (0..4).map(|n| super::rig::member(n, weight)).collect();
        rig.members.replace_members(list, NOW).unwrap();
        assert_eq!(rig.pick(flow(1), NOW).is_some(), weight > 0);
        rig.members.poll(NOW);
    }
    assert_eq!(names(&mut rig, &flows), before);
}

#[test]
fn times_can_be_changed_without_a_move() {
    let (mut rig, flows) = (with(None), flows(1000));
    rig.members.remove("m0", NOW).unwrap();
    let before = names(&mut rig, &flows);
    let method = Method::Resilient { buckets: 256, idle: 2 * IDLE, force: Some(IDLE) };
    rig.members.update_settings(Settings { method, ..Settings::default() }, NOW).unwrap();
    assert_eq!(names(&mut rig, &flows), before);
    let method = Method::Resilient { buckets: 512, idle: 2 * IDLE, force: Some(IDLE) };
    rig.members.update_settings(Settings { method, ..Settings::default() }, NOW).unwrap();
    assert_eq!(slots(&rig).iter().sum::<usize>(), 512);
}
