//! Two routers on this machine, and an `artery-fleet` beside each. It needs the program of the router:
//! `$ARTERY`, or `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/certificates.rs"]
mod certificates;
mod support;

use std::path::Path;

use certificates::Authority;
use support::{Fleet, Router, Settings, artery, endpoints, peer, skip, wait_for};

fn settings<'a>(machine: &'a str, listen: &str, peer: &str, socket: &'a Path) -> Settings<'a> {
    Settings {
        fleet: "web",
        balancer: "b",
        machine,
        files: machine,
        listen: listen.to_string(),
        peers: vec![peer.to_string()],
        socket,
        more: String::new(),
        prefix: Vec::new(),
    }
}

/// Machines m1, which sees packets, and m2 of a fleet, their routers and `artery-fleet`s.
struct TwoMachines {
    folder: tempfile::TempDir,
    addresses: [String; 2],
    routers: [Router; 2],
    fleets: [Fleet; 2],
}

impl TwoMachines {
    fn start(program: &Path) -> TwoMachines {
        let (folder, addresses) = (tempfile::tempdir().unwrap(), endpoints());
        let routers = ["m1", "m2"].map(|name| Router::start(program, folder.path(), name));
        routers[0].play();
        let fleets = [0, 1].map(|n| start_fleet(folder.path(), &addresses, &routers, n));
        fleets[0].await_peer("m2");
        fleets[1].await_peer("m1");
        TwoMachines { folder, addresses, routers, fleets }
    }

    /// Drains a member at both, as a fleet does: its flows become exceptions. Waits until m2 has
    /// them, and gives their number.
    fn drain(&self) -> usize {
        self.routers.iter().for_each(|router| router.write("b.weight", "a 0"));
        let exceptions = self.routers[0].exceptions().len();
        wait_for("copies at m2", || self.routers[1].own_and_copies(), |flows| *flows == (0, exceptions));
        exceptions
    }

    fn restart_fleet(&mut self, n: usize) {
        self.fleets[n].stop();
        self.fleets[n] = start_fleet(self.folder.path(), &self.addresses, &self.routers, n);
    }
}

fn start_fleet(folder: &Path, addresses: &[String; 2], routers: &[Router; 2], n: usize) -> Fleet {
    let (own, other) = (&addresses[n], &addresses[1 - n]);
    Fleet::start(folder, &settings(["m1", "m2"][n], own, other, &routers[n].socket))
}

#[test]
fn exceptions_of_a_router_are_at_the_other_one_also_after_it_was_started_again() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let folder = tempfile::tempdir().unwrap();
    let [at_1, at_2] = endpoints();
    let first = Router::start(&program, folder.path(), "m1");
    first.play();
    let before = first.flows();
    let second = Router::start(&program, folder.path(), "m2");
    let fleet_1 = Fleet::start(folder.path(), &settings("m1", &at_1, &at_2, &first.socket));
    let fleet_2 = Fleet::start(folder.path(), &settings("m2", &at_2, &at_1, &second.socket));
    fleet_1.await_peer("m2");
    fleet_2.await_peer("m1");
    // A member is drained at both, as a fleet does: its flows become exceptions.
    [&second, &first].iter().for_each(|router| router.write("b.weight", "a 0"));
    let exceptions = first.exceptions();
    assert!(!exceptions.is_empty() && exceptions.values().any(|member| member == "a"));
    wait_for("flows of m2", || second.flows(), |flows| *flows == exceptions);
    // They came as changes, and none of them went back.
    let status = fleet_2.status();
    assert_eq!(peer(&status, "m1")["missed_batches"], 0, "{status}");
    assert_eq!((&status["sent_records"], &status["refused_imports"]), (&0.into(), &0.into()), "{status}");
    assert!(fleet_2.status_text().contains("router followed"), "{}", fleet_2.status_text());
    // A router that was started again has all of them by a fetch.
    drop(second);
    let second = Router::start(&program, folder.path(), "m2");
    second.write("b.weight", "a 0");
    wait_for("flows of m2", || second.flows(), |flows| *flows == exceptions);
    // Clients whose packets come to it from now on keep their members.
    second.play();
    assert_eq!(second.flows(), before);
}

#[test]
fn a_flow_is_the_machines_that_sees_its_packets_and_ends_everywhere_when_it_ends_there() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let machines = TwoMachines::start(&program);
    let [first, second] = &machines.routers;
    let (exceptions, all) = (machines.drain(), first.flows().len());
    // The network sends all to m2: m1 has copies of what was sent as exceptions.
    second.play();
    wait_for("copies at m1", || first.own_and_copies(), |flows| *flows == (all - exceptions, exceptions));
    assert_eq!(second.own_and_copies(), (all, 0));
    // A flow that ends at one is no longer at the other, unless packets of it were seen there.
    first.write("b.flush_flows", "all");
    second.write("b.flush_flows", "all");
    wait_for("flows of m1", || first.own_and_copies(), |flows| *flows == (0, 0));
    wait_for("flows of m2", || second.own_and_copies(), |flows| *flows == (0, 0));
}

#[test]
fn a_flow_that_ended_at_its_owner_alone_goes_at_the_peers() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let mut machines = TwoMachines::start(&program);
    machines.drain();
    let copies = |machines: &TwoMachines| machines.routers[1].own_and_copies();
    machines.routers[0].write("b.flush_flows", "a");
    wait_for("copies at m2", || copies(&machines), |flows| *flows == (0, 0));
    // Nothing comes back by a fetch.
    machines.restart_fleet(1);
    let fetches = || peer(&machines.fleets[1].status(), "m1")["fetches"].as_u64().unwrap_or(0);
    wait_for("a fetch", fetches, |count| *count > 0);
    assert_eq!(copies(&machines), (0, 0));
}

#[test]
fn a_router_that_starts_again_has_back_what_peers_have_of_it_without_a_packet() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let mut machines = TwoMachines::start(&program);
    let exceptions = machines.drain();
    for restarts_fleet in [false, true] {
        machines.routers[0].stop();
        machines.routers[0] = Router::start(&program, machines.folder.path(), "m1");
        machines.routers[0].write("b.weight", "a 0");
        if restarts_fleet {
            machines.restart_fleet(0);
        }
        let first = &machines.routers[0];
        wait_for("copies at m1", || first.own_and_copies(), |flows| *flows == (0, exceptions));
        assert_eq!(machines.routers[1].own_and_copies(), (0, exceptions));
    }
    // They are its own again once the network sends them there.
    let copies = machines.routers[0].flows();
    machines.routers[0].play();
    let flows = machines.routers[0].flows();
    assert!(copies.iter().all(|(client, member)| flows.get(client) == Some(member)));
}

#[test]
fn what_a_machine_had_is_at_all_after_they_were_replaced_one_after_the_other_without_a_packet() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let folder = tempfile::tempdir().unwrap();
    let (names, addresses) = (["m1", "m2", "m3"], endpoints::<3>());
    let router = |n: usize| Router::start(&program, folder.path(), names[n]);
    let fleet = |n: usize, router: &Router| {
        let others = (0..3).filter(|other| *other != n).map(|other| addresses[other].clone());
        let own = settings(names[n], &addresses[n], "", &router.socket);
        Fleet::start(folder.path(), &Settings { peers: others.collect(), ..own })
    };
    let mut routers = [0, 1, 2].map(router);
    routers[0].play();
    let mut fleets = [0, 1, 2].map(|n| fleet(n, &routers[n]));
    fleets[1..].iter().for_each(|fleet| fleet.await_peer("m1"));
    routers.iter().for_each(|router| router.write("b.weight", "a 0"));
    let exceptions = routers[0].exceptions();
    for n in [1, 2, 0, 1, 2, 0] {
        let has_all = |flows: &_| *flows == exceptions;
        wait_for("copies", || routers.each_ref().map(Router::exceptions), |all| all.iter().all(has_all));
        fleets[n].stop();
        routers[n].stop();
        routers[n] = router(n);
        routers[n].write("b.weight", "a 0");
        fleets[n] = fleet(n, &routers[n]);
        wait_for("copies", || routers[n].own_and_copies(), |flows| *flows == (0, exceptions.len()));
    }
    // Whoever sees their packets has them from then on, and the others have copies of that.
    routers[1].play();
    let mut flows = routers[1].flows();
    flows.retain(|client, _| exceptions.contains_key(client));
    assert_eq!((routers[1].own_and_copies().1, &flows), (0, &exceptions));
    routers[1].write("b.flush_flows", "all");
    wait_for("the end of copies", || routers[0].exceptions().len(), |count| *count == 0);
    wait_for("the end of copies", || routers[2].exceptions().len(), |count| *count == 0);
}

#[test]
fn a_machine_whose_router_ended_is_absent_at_its_peers_until_there_is_one_again() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let mut machines = TwoMachines::start(&program);
    machines.routers[0].stop();
    let is_present =
        |machines: &TwoMachines| peer(&machines.fleets[1].status(), "m1")["is_present"].as_bool().unwrap();
    wait_for("the absence of m1", || is_present(&machines), |is_present| !is_present);
    machines.routers[0] = Router::start(&program, machines.folder.path(), "m1");
    wait_for("m1", || is_present(&machines), |is_present| *is_present);
}

#[test]
fn a_machine_that_announces_nothing_hands_over_and_ends_when_it_leaves() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let mut machines = TwoMachines::start(&program);
    assert!(machines.fleets[0].status()["announcement"].is_null());
    machines.routers[0].write("b.weight", "a 0");
    let exceptions = machines.routers[0].exceptions();
    let output = machines.fleets[0].leave(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(machines.routers[1].flows(), exceptions);
}

#[test]
fn machines_of_another_fleet_and_of_the_same_name_are_refused_and_counted() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let folder = tempfile::tempdir().unwrap();
    let [at_1, at_2, at_3] = endpoints();
    let first = Router::start(&program, folder.path(), "m1");
    let other = Router::start(&program, folder.path(), "m2");
    other.play();
    let fleet_1 = Fleet::start(folder.path(), &settings("m1", &at_1, &at_2, &first.socket));
    let stranger = Settings { fleet: "mail", ..settings("m2", &at_2, &at_1, &other.socket) };
    let namesake = Settings { files: "m1-too", ..settings("m1", &at_3, &at_1, &other.socket) };
    let _others = [Fleet::start(folder.path(), &stranger), Fleet::start(folder.path(), &namesake)];
    other.write("b.weight", "a 0");
    let is_refused = |status: &serde_json::Value| {
        ["other_fleet", "own_name"].iter().all(|reason| status["refused"][reason].as_u64() > Some(0))
    };
    let status = wait_for("refused messages", || fleet_1.status(), is_refused);
    assert_eq!(status["received_records"], 0, "{status}");
    assert_eq!(status["peers"], serde_json::json!([]), "{status}");
    assert!(first.flows().is_empty());
}

#[test]
fn with_tls_a_machine_of_another_authority_gets_nothing_and_gives_nothing() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    let folder = tempfile::tempdir().unwrap();
    let [at_1, at_2, at_3] = endpoints();
    let (ours, theirs) = (Authority::new("fleet"), Authority::new("stranger"));
    let routers = ["m1", "m2", "m3"].map(|name| Router::start(&program, folder.path(), name));
    routers[0].play();
    routers[2].play();
    let start = |at: usize, listen: &str, peer: &str, authority: &Authority| {
        let machine = ["m1", "m2", "m3"][at];
        let more = authority.settings(machine, &ours, folder.path());
        let settings = Settings { more, ..settings(machine, listen, peer, &routers[at].socket) };
        Fleet::start(folder.path(), &settings)
    };
    // The stranger is there before the others meet.
    let fleet_1 = start(0, &at_1, &at_2, &ours);
    let stranger = start(2, &at_3, &at_1, &theirs);
    let is_router_connected = |status: &serde_json::Value| status["is_router_connected"] == true;
    wait_for("status of m3", || stranger.status(), is_router_connected);
    routers.iter().for_each(|router| router.write("b.weight", "a 0"));
    let fleet_2 = start(1, &at_2, &at_1, &ours);
    fleet_2.await_peer("m1");
    let exceptions = routers[0].exceptions();
    wait_for("flows of m2", || routers[1].flows(), |flows| *flows == exceptions);
    fleet_1.await_peer("m2");
    for (fleet, missing) in [(&fleet_1, "m3"), (&fleet_2, "m3"), (&stranger, "m1")] {
        let status = fleet.status();
        assert!(peer(&status, missing).is_null(), "{status}");
    }
}
