//! Three machines in network namespaces, one of which is cut off. It needs root, iproute2 and the program of
//! the router: `$ARTERY`, or `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/network.rs"]
mod network;
mod support;

use network::{Network, address};
use support::{Fleet, Router, Settings, artery, peer, skip, wait_for};

const MACHINES: [&str; 3] = ["m1", "m2", "m3"];
/// The machine that is cut off.
const CUT: u8 = 3;

fn records_of_m1(fleet: &Fleet) -> u64 {
    peer(&fleet.status(), "m1")["records"].as_u64().unwrap_or(0)
}

/// Makes exceptions come at m1, and waits until m2 has them.
fn make_wave(first: &Router, at_m2: &Fleet) {
    let before = records_of_m1(at_m2);
    let count = {
        first.write("b.weight", "a 0");
        first.exceptions().len() as u64
    };
    assert!(count > 0);
    wait_for("records at m2", || records_of_m1(at_m2), |records| *records >= before + count);
    first.write("b.weight", "a 1");
    wait_for("exceptions of m1", || first.exceptions().len(), |count| *count == 0);
}

#[test]
fn a_machine_that_is_cut_off_stops_no_other_and_has_all_once_it_is_back() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let Some(network) = Network::create(3) else { return skip("no network namespaces; are you root?") };
    let folder = tempfile::tempdir().unwrap();
    let routers = MACHINES.map(|name| Router::start(&program, folder.path(), name));
    routers[0].play();
    let fleets: Vec<Fleet> = (1..=3_u8)
        .map(|number| {
            let others = (1..=3).filter(|other| *other != number);
            let at = usize::from(number) - 1;
            let settings = Settings {
                fleet: "web",
                balancer: "b",
                machine: MACHINES[at],
                files: MACHINES[at],
                listen: format!("{}:7447", address(number)),
                peers: others.map(|other| format!("{}:7447", address(other))).collect(),
                socket: &routers[at].socket,
                // So that what m3 has at the end, it has by the repair.
                more: "insecure = true\nrefresh_seconds = 3600\n".to_string(),
                prefix: network.prefix(number),
            };
            Fleet::start(folder.path(), &settings)
        })
        .collect();
    fleets[0].await_peer("m2");
    fleets[0].await_peer("m3");
    fleets[1].await_peer("m1");
    fleets[2].await_peer("m1");
    network.cut(CUT, true);
    let is_m3_there = || peer(&fleets[0].status(), "m3")["is_present"] == true;
    // zenoh closes the connection after 3 s, and m3 is absent after 5 s.
    while is_m3_there() {
        make_wave(&routers[0], &fleets[1]);
    }
    make_wave(&routers[0], &fleets[1]);
    assert_eq!(peer(&fleets[1].status(), "m1")["missed_batches"], 0);
    routers[0].write("b.weight", "a 0");
    let exceptions = routers[0].exceptions();
    network.cut(CUT, false);
    let has_all = |flows: &std::collections::BTreeMap<u64, String>| {
        exceptions.iter().all(|(client, member)| flows.get(client) == Some(member))
    };
    wait_for("flows of m3", || routers[2].flows(), has_all);
}
