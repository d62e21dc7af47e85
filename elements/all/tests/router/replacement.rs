//! A router that replaces another.
use super::rig::*;
use artery_elements::CLASSES;
use artery_engine::{Bench, DropReason};
use artery_wire::build::{arp_reply, arp_request, ether, ip4};

const CONFIG: &str = "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2, DAD false";

fn successor() -> Rig {
    let class = CLASSES.find_class("IPRouter").unwrap();
    Rig { bench: Bench::setup(class, CONFIG).inputs(3).outputs(3).as_replacement().build().unwrap() }
}

#[test]
fn neighbors_and_packets_that_wait_are_taken_over_and_addresses_not_claimed_again() {
    let mut old = rig_of(CONFIG);
    old.bench.push(B, arp_request("2:0:0:0:2:5", "10.0.2.5", "10.0.2.1").bytes());
    old.push4(through().dst("10.0.2.6"));
    old.take_all();
    let mut new = successor();
    new.silent();
    new.bench.take_state(&mut old.bench);
    new.bench.run();
    new.take_all();
    new.push4(through().dst("10.0.2.5"));
    assert_eq!(stations(&new.only(B)).0, station("2:0:0:0:2:5"));
    new.bench.push(B, arp_reply("2:0:0:0:2:6", "10.0.2.6", STATION_B, "10.0.2.1").bytes());
    let expected = ether("2:0:0:0:2:6", STATION_B).ip4(through().dst("10.0.2.6").ttl(8)).bytes();
    assert_eq!(new.sent(B), [expected]);
}

#[test]
fn fragments_are_put_together_across_a_replacement_whose_ports_are_the_same() {
    let part = |at, more| {
        let whole = ip4().src("10.0.1.9").dst("10.0.1.1").icmp_echo(1, 2).payload([1; 120]).bytes();
        let payload = if more { &whole[20..84] } else { &whole[84..] };
        ether(STATION_A, PEER)
            .ip4(ip4().src("10.0.1.9").dst("10.0.1.1").raw(1, payload).fragment(at, more))
            .bytes()
    };
    let renumbered = CONFIG.replace("PORT a", "PORT c 10.0.3.1/24 ETHER 2:0:0:0:0:3, PORT a");
    for (config, port, reassembled) in [(CONFIG, A, 1), (&renumbered, A + 1, 0)] {
        let mut old = rig_of(CONFIG);
        old.bench.push(A, part(0, true));
        let class = CLASSES.find_class("IPRouter").unwrap();
        let setup = Bench::setup(class, config).inputs(3).outputs(3).as_replacement();
        let mut new = Rig { bench: setup.build().unwrap() };
        new.bench.take_state(&mut old.bench);
        new.bench.push(port, part(64, false));
        assert_eq!(new.counter("reassembled"), reassembled, "{config}");
    }
}

#[test]
fn without_heir_what_waits_ends_as_replaced() {
    let mut rig = rig_of(CONFIG);
    rig.push4(through().dst("10.0.2.6"));
    rig.bench.stop_without_successor();
    assert_eq!(rig.drops(DropReason::Replaced), 1);
}
