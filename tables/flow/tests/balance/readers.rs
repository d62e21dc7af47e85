//! Workers that ask while members change.
use super::rig::{NOW, Rig, flow};
use artery_flow::balance::{Local, Method};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[test]
fn workers_see_whole_choices_and_the_latest_when_a_turn_begins() {
    let mut rig = Rig::with(Method::MAGLEV, &[1, 1]);
    let (ends, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (balancer, mut reader) = (rig.members.balancer(), rig.domain.reader());
            let (ends, seen) = (&ends, &seen);
            scope.spawn(move || {
                let (mut local, mut latest, mut number) = (Local::new(worker), 0, 0);
                while !ends.load(Relaxed) {
                    let turn = reader.turn();
                    let choice = balancer.choice_at(&turn);
                    assert!(choice.generation() >= latest, "no worker sees an older choice again");
                    latest = choice.generation();
                    for _ in 0..64 {
                        number += 1;
                        let id =
                            choice.pick_member(&mut local, flow(number), NOW).expect("one is always there");
                        let member = choice.member(id.action()).expect("who takes a flow lives");
                        assert_eq!(choice.find_named(&member.name), Some(id));
                    }
                    seen.fetch_add(1, Relaxed);
                }
            });
        }
        for round in 0..300 {
            let before = seen.load(Relaxed);
            rig.members.remove("m1", NOW).unwrap();
            rig.add("m1 10.0.0.2 weight 3").unwrap();
            while round % 10 == 0 && seen.load(Relaxed) < before + 4 {
                std::thread::yield_now();
            }
        }
        ends.store(true, Relaxed);
    });
    assert_eq!(rig.members.generation(), 601);
}
