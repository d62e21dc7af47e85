//! Frames that go to many, and back to where they came from.
use super::*;

#[test]
fn ports_that_do_not_discover_get_what_is_for_them_alone() {
    let mut lab = Lab::of(3, &["-discover p1"]);
    assert_eq!(lab.ports(0, &plain(B, A)), [2]);
    assert_eq!(lab.ports(0, &plain("ff:ff:ff:ff:ff:ff", A)), [1, 2]);
    lab.learn(B, 1, 1, 0);
    assert_eq!(lab.ports(0, &plain(B, A)), [1]);
    lab.tell("-learn p0").unwrap();
    assert_eq!(lab.ask(0, &plain(B, A), 0).learns, None);
    assert!(lab.ask(1, &plain(B, C), 0).learns.is_some());
}

#[test]
fn what_goes_to_many_leaves_ports_out_that_say_so() {
    const GROUP: &str = "01:00:5e:01:01:01";
    let mut lab = Lab::of(3, &["nobroadcast p1", "nomulticast p2"]);
    assert_eq!(lab.ports(0, &plain("ff:ff:ff:ff:ff:ff", A)), [2]);
    assert_eq!(lab.ports(0, &plain(GROUP, A)), [1]);
    assert_eq!(lab.ports(0, &plain(B, A)), [1, 2]);
    assert_eq!(lab.ask(0, &plain(GROUP, A), 0).targets[2], (2, Err(Cause::NotFlooded)));
    lab.tell("-nobroadcast p1 -nomulticast p2").unwrap();
    assert_eq!(lab.ports(0, &plain(GROUP, A)), [1, 2]);
}

#[test]
fn frames_go_back_where_they_came_from_at_a_hairpin_only() {
    let mut lab = Lab::of(2, &["hairpin p0"]);
    assert_eq!(lab.ports(0, &plain("ff:ff:ff:ff:ff:ff", A)), [0, 1]);
    lab.learn(A, 1, 0, 0);
    lab.learn(B, 1, 0, 0);
    lab.learn(C, 1, 1, 0);
    assert_eq!(lab.ports(0, &plain(B, A)), [0]);
    assert_eq!(lab.ask(1, &plain(C, B), 0).targets, [(1, Err(Cause::SamePort))]);
    lab.tell("protected p0 1").unwrap();
    assert_eq!(lab.ask(0, &plain(B, A), 0).targets, [(0, Err(Cause::Protected))]);
}
