//! Members that some machines do not reach: they are down for all if most don't, and a machine that alone
//! does not is drained. It needs root, iproute2, `etcd`, and the program of the router: `$ARTERY`, or
//! `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/connections.rs"]
mod connections;
#[path = "support/etcd.rs"]
mod etcd;
mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use artery_rig::{Result, Rig};
use connections::{Client, Server, server};
use etcd::{Machine, Machines, Servers};
use serde_json::{Value, json};
use support::{artery, skip, wait_for};

/// How many servers there are; the last one is not a member at first.
const SERVERS: u8 = 4;
const CHECK: &str = "tcp every 300ms timeout 300ms fall 2 rise 1";

/// Ports of a router whose host sends health checks.
fn port_lines(number: usize) -> String {
    format!("port = [\"eth1=10.78.0.{number}/24\"]\n")
}

struct Fleet {
    etcd: Servers,
    servers: Vec<Server>,
    machines: Vec<Machine>,
    client: Client,
    lab: Machines,
}

/// Three machines that are announced and check three servers.
fn on_fleet(label: &str, body: impl FnOnce(&mut Fleet) -> Result<()>) {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    if Command::new("etcd").arg("--version").output().is_err() {
        return skip("no etcd (Debian: apt install etcd-server)");
    }
    artery_rig::test(label, |rig: &Rig| {
        let lab = Machines::new(rig, &program)?;
        lab.lines.set(port_lines);
        lab.more.replace("[announce]\naddresses = [\"192.0.2.1/32\"]\n".to_string());
        let etcd = Servers::start(rig, &lab.switch, lab.folder.path(), 3)?;
        let servers: Result<Vec<Server>> =
            (1..=SERVERS).map(|n| Server::start(rig, &lab.switch, n)).collect();
        let machines: Result<Vec<Machine>> =
            (1..=3).map(|number| lab.machine(number, 3, &etcd.endpoints())).collect();
        let (servers, machines) = (servers?, machines?);
        machines[0].await_revision(None, 3);
        let (is_done, said) =
            machines[0].say(&["apply", &lab.write("fleet.toml", &file(SERVERS - 1, CHECK))]);
        assert!(is_done, "{said}");
        let client = Client::create(rig, &lab.switch)?;
        client.spread_over(&[1, 2, 3])?;
        let mut fleet = Fleet { lab, etcd, servers, machines, client };
        for machine in &fleet.machines {
            wait_for_state(machine, "announced");
        }
        fleet.machines[0].await_revision(Some(1), 3);
        body(&mut fleet)
    });
}

/// A file for three machines, with so many servers and their check.
fn file(servers: u8, check: &str) -> String {
    let members: Vec<String> = (1..=servers).map(|n| format!("web{n}={}", server(n))).collect();
    let sections: String =
        (1..=3).map(|number| format!("[machine.m{number}]\n{}", port_lines(number))).collect();
    format!(
        "[router]\nservice = [\"192.0.2.1:80/tcp={}\"]\ncheck = [\"{check}\"]\n{sections}",
        members.join(",")
    )
}

#[track_caller]
fn wait_for_state(machine: &Machine, state: &str) {
    wait_for(state, || machine.fleet.announcement(), |now| now == state);
}

/// What the status of m1 says of each machine.
fn seen(fleet: &Fleet, what: &str) -> Vec<Value> {
    let seen = fleet.machines[0].seen();
    let machines = seen["machines"].as_array().cloned().unwrap_or_default();
    machines.iter().map(|machine| machine[what].clone()).collect()
}

/// Whether a machine's router sends new flows to a server.
fn takes_new(machine: &Machine, server: u8) -> bool {
    let members = machine.router.read("service1.members");
    let line = members.lines().find(|line| line.starts_with(&format!("web{server} "))).unwrap_or_default();
    line.contains("takes new flows")
}

#[test]
fn a_machine_that_alone_does_not_reach_a_member_is_drained_and_the_others_keep_the_member() {
    on_fleet("fleet-drained", |fleet| {
        let mut connections = fleet.client.open(150)?;
        fleet.servers[1].ignore_checks_of(1, true)?;
        wait_for("m1's checks", || takes_new(&fleet.machines[0], 2), |takes| !takes);
        // Flows that it sends elsewhere now are published to the others, whose table has web2.
        connections.add(fleet.client.open(100)?);
        assert!(connections.at(2) > 0);
        wait_for_state(&fleet.machines[0], "drained");
        // The network takes its time.
        fleet.client.spread_over(&[2, 3])?;
        assert_eq!(connections.harmed(), 0);
        wait_for(
            "the status",
            || seen(fleet, "drained"),
            |drained| *drained == [json!(["web2"]), json!([]), json!([])],
        );
        let text = fleet.machines[1].fleet.status_text();
        assert!(text.contains("drained, it alone does not reach web2"), "{text}");
        let text = fleet.machines[0].fleet.status_text();
        assert!(text.contains("announcement: drained: this machine alone does not reach web2"), "{text}");
        for machine in &fleet.machines[1..] {
            assert!(takes_new(machine, 2));
            assert_eq!(machine.fleet.announcement(), "announced");
        }
        let new = fleet.client.open(60)?;
        assert!(new.at(2) > 0);
        connections.add(new);
        // It comes back with all that the others know.
        fleet.servers[1].ignore_checks_of(1, false)?;
        wait_for_state(&fleet.machines[0], "announced");
        fleet.client.spread_over(&[1, 2, 3])?;
        assert_eq!(connections.harmed(), 0);
        assert!(takes_new(&fleet.machines[0], 2));
        Ok(())
    });
}

#[test]
fn a_member_that_most_machines_do_not_reach_is_down_for_all_and_without_etcd_each_goes_by_itself() {
    on_fleet("fleet-held-down", |fleet| {
        for machine in [1, 2] {
            fleet.servers[1].ignore_checks_of(machine, true)?;
        }
        for machine in &fleet.machines {
            wait_for("web2 down for all", || takes_new(machine, 2), |takes| !takes);
        }
        let digests = || seen(fleet, "digest");
        wait_for("one table", digests, |all| all.len() == 3 && all.iter().all(|one| *one == all[0]));
        assert_eq!(seen(fleet, "down"), [json!(["web2"]), json!(["web2"]), json!([])]);
        let new = {
            fleet.client.spread_over(&[3])?;
            fleet.client.open(60)?
        };
        assert_eq!(new.at(2), 0);
        // No one is drained, also not after the time for it.
        std::thread::sleep(Duration::from_secs(4));
        assert!(fleet.machines.iter().all(|machine| machine.fleet.announcement() == "announced"));

        (0..3).for_each(|place| fleet.etcd.kill(place));
        wait_for("m3's own checks", || takes_new(&fleet.machines[2], 2), |takes| *takes);
        assert!(!takes_new(&fleet.machines[0], 2));
        // What m1 sends elsewhere than m3 would is at m3.
        fleet.client.spread_over(&[1])?;
        let mut connections = fleet.client.open(90)?;
        assert_eq!(connections.at(2), 0);
        let exceptions = || fleet.machines[0].router.exceptions();
        let exceptions = wait_for("exceptions", exceptions, |all| all.len() > 10);
        let missing = || {
            let flows = fleet.machines[2].router.flows();
            exceptions.iter().filter(|(client, member)| flows.get(client) != Some(member)).count()
        };
        wait_for("copies at m3", missing, |count| *count == 0);
        fleet.client.spread_over(&[3])?;
        assert_eq!(connections.harmed(), 0);
        (0..3).try_for_each(|place| fleet.etcd.start_one(place))?;
        wait_for("the majority again", || takes_new(&fleet.machines[2], 2), |takes| !takes);
        for machine in [1, 2] {
            fleet.servers[1].ignore_checks_of(machine, false)?;
        }
        for machine in &fleet.machines {
            wait_for("web2 for all", || takes_new(machine, 2), |takes| *takes);
        }
        Ok(())
    });
}

#[test]
fn of_two_machines_that_should_be_drained_one_is_and_strange_keys_change_nothing() {
    on_fleet("fleet-drained-one", |fleet| {
        fleet.servers[0].ignore_checks_of(1, true)?;
        fleet.servers[1].ignore_checks_of(2, true)?;
        let drained = |fleet: &Fleet| -> usize {
            let states = fleet.machines.iter().map(|machine| machine.fleet.announcement());
            states.filter(|state| state == "drained").count()
        };
        wait_for("one drained", || drained(fleet), |count| *count == 1);
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            assert_eq!(drained(fleet), 1);
        }
        // The other one goes by its own checks.
        let other = usize::from(fleet.machines[0].fleet.announcement() == "drained");
        assert!(!takes_new(&fleet.machines[other], other as u8 + 1));
        assert!(takes_new(&fleet.machines[2], 1) && takes_new(&fleet.machines[2], 2));
        let before = seen(fleet, "drained");
        fleet.etcd.put("drained", "{\"format\":7}");
        fleet.etcd.put("drained", "{\"format\":1,\"id\":1,\"machines\":{\"m3\":[\"a b\"]}}");
        fleet.etcd.put("machine/m7", "{\"format\":1,\"run\":1,\"down\":[\"\\n\"]}");
        let is_refused = |seen: &Value| {
            seen["refused"]["malformed"].as_u64() >= Some(2)
                && seen["refused"]["other_version"].as_u64() >= Some(1)
        };
        for machine in &fleet.machines {
            wait_for("refusals", || machine.seen(), is_refused);
        }
        assert_eq!((seen(fleet, "drained"), drained(fleet)), (before, 1));
        // A key that can't be read is replaced.
        fleet.servers[0].ignore_checks_of(1, false)?;
        fleet.servers[1].ignore_checks_of(2, false)?;
        for machine in &fleet.machines {
            wait_for_state(machine, "announced");
        }
        Ok(())
    });
}

#[test]
fn a_member_that_a_change_adds_has_been_checked_when_the_change_counts() {
    on_fleet("fleet-planned-checks", |fleet| {
        let mut connections = fleet.client.open(90)?;
        // By this check alone it would be known after 15 s.
        let four = fleet.lab.write("four.toml", &file(SERVERS, &CHECK.replace("every 300ms", "every 20s")));
        let (is_done, said) = fleet.machines[2].say(&["apply", &four]);
        assert!(is_done && !said.contains("the change counts though"), "{said}");
        assert!(fleet.machines.iter().all(|machine| takes_new(machine, 4)));
        let new = fleet.client.open(90)?;
        assert!(new.at(4) > 0);
        connections.add(new);
        fleet.machines[0].router.stop();
        fleet.client.spread_over(&[2, 3])?;
        assert_eq!(connections.harmed(), 0);
        Ok(())
    });
}
