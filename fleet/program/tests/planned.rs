//! Changes that are prepared before they count: flows which will be exceptions are at all machines by then.
//! It needs root, iproute2, `etcd`, and the program of the router: `$ARTERY`, or `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/connections.rs"]
mod connections;
#[path = "support/etcd.rs"]
mod etcd;
mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use artery_rig::{Result, Rig};
use connections::{Client, Server, server};
use etcd::{Machine, Machines, Servers, port_lines};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{artery, skip, wait_for};

fn on_machines(label: &str, body: impl FnOnce(&Rig, &Machines) -> Result<()>) {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    if Command::new("etcd").arg("--version").output().is_err() {
        return skip("no etcd (Debian: apt install etcd-server)");
    }
    artery_rig::test(label, |rig| body(rig, &Machines::new(rig, &program)?));
}

/// A file for three machines, with servers of these numbers and weights.
fn file(servers: &[(u8, u32)]) -> String {
    let members: Vec<String> =
        servers.iter().map(|(number, weight)| format!("web{number}={}@{weight}", server(*number))).collect();
    let sections: String =
        (1..=3).map(|number| format!("[machine.m{number}]\n{}", port_lines(number))).collect();
    format!("[router]\nservice = [\"192.0.2.1:80/tcp={}\"]\n{sections}", members.join(","))
}

/// Three machines that agree.
fn start(lab: &Machines, servers: &Servers) -> Result<Vec<Machine>> {
    let machines: Result<Vec<Machine>> =
        (1..=3).map(|number| lab.machine(number, 3, &servers.endpoints())).collect();
    let machines = machines?;
    machines[0].await_revision(None, 3);
    Ok(machines)
}

fn wait_for_peers(machines: &[Machine]) {
    for (at, machine) in machines.iter().enumerate() {
        for other in (0..machines.len()).filter(|other| *other != at) {
            machine.fleet.await_peer(&format!("m{}", other + 1));
        }
    }
}

/// Clients whose flows a router does not have, or not with the member that is wanted.
fn lacking<'a>(wanted: &'a BTreeMap<u64, String>, has: &BTreeMap<u64, String>) -> Vec<&'a u64> {
    wanted
        .iter()
        .filter(|(client, member)| has.get(client) != Some(member))
        .map(|(client, _)| client)
        .collect()
}

fn prepared(machine: &Machine) -> Value {
    machine.seen()["planned"].clone()
}

#[test]
fn flows_that_a_planned_change_moves_are_at_all_machines_before_it_counts_and_none_breaks() {
    on_machines("fleet-planned", |rig, lab| {
        let etcd = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let servers: Result<Vec<Server>> = (1..=4).map(|n| Server::start(rig, &lab.switch, n)).collect();
        let _servers = servers?;
        let mut machines = start(lab, &etcd)?;
        let three = lab.write("three.toml", &file(&[(1, 1), (2, 1), (3, 1)]));
        let (is_done, said) = machines[0].say(&["apply", &three]);
        assert!(is_done, "{said}");
        wait_for_peers(&machines);
        let client = Client::create(rig, &lab.switch)?;
        client.spread_over(&[1, 2, 3])?;
        let mut connections = client.open(300)?;
        assert!((1..=3).all(|number| connections.at(number) > 0));
        let opening = client.open_on();
        // Web1 is drained and web4 added: flows of the one, and some of the others, will be exceptions.
        let four = lab.write("four.toml", &file(&[(1, 0), (2, 1), (3, 1), (4, 2)]));
        let (is_done, said) = machines[1].say(&["apply", &four]);
        assert!(is_done, "{said}");
        assert!(!said.contains("the change counts though"), "{said}");
        // The machine with most to lose is gone at once.
        machines[0].fleet.stop();
        machines[0].router.stop();
        client.spread_over(&[2, 3])?;
        let more = opening.stop();
        println!("measured: {} connections opened during the change, {} on web4", more.len(), more.at(4));
        connections.add(more);
        assert!(connections.at(1) > 20 && connections.at(4) > 0);
        let all = connections.len();
        assert_eq!(connections.harmed(), 0, "of {all}");
        assert_eq!(connections.harmed(), 0, "of {all}");
        Ok(())
    });
}

#[test]
fn a_change_that_is_prepared_is_shown_and_forgotten_when_its_command_dies() {
    on_machines("fleet-planned-abandoned", |rig, lab| {
        let etcd = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let servers: Result<Vec<Server>> = (1..=3).map(|n| Server::start(rig, &lab.switch, n)).collect();
        let _servers = servers?;
        let machines = start(lab, &etcd)?;
        let three = lab.write("three.toml", &file(&[(1, 1), (2, 1), (3, 1)]));
        assert!(machines[0].say(&["apply", &three]).0);
        wait_for_peers(&machines);
        let client = Client::create(rig, &lab.switch)?;
        client.spread_over(&[1])?;
        let mut connections = client.open(200)?;
        let before: Vec<String> = machines.iter().map(Machine::configuration).collect();
        // While a router stands still, its machine is not prepared, nor is one whose flows it can't take.
        machines[2].router.signal(Signal::STOP);
        let drained = lab.write("drained.toml", &file(&[(1, 0), (2, 1), (3, 1)]));
        let candidate = |is_planned: bool| {
            let text = std::fs::read_to_string(&drained).unwrap();
            let content = json!({ "text": text, "seed": 7 });
            json!({ "format": 1, "id": 5, "content": content, "is_planned": is_planned }).to_string()
        };
        etcd.put("candidate", &candidate(true));
        wait_for("the plan", || prepared(&machines[0]), |planned| !planned.is_null());
        std::thread::sleep(Duration::from_secs(2));
        let planned = prepared(&machines[0]);
        let lacks = |name: &str| planned["unprepared"].as_array().unwrap().contains(&json!([name, ""]));
        assert!(lacks("m1") && lacks("m3"), "{planned}");
        let text = machines[0].fleet.status_text();
        assert!(text.contains("planned change: prepared by"), "{text}");
        machines[2].router.signal(Signal::CONT);
        wait_for(
            "all",
            || prepared(&machines[1]),
            |planned| planned["unprepared"].as_array().is_some_and(Vec::is_empty),
        );
        // The flows that differ are at the peers, and the present table is as before.
        let exceptions = machines[0].router.exceptions();
        assert!(exceptions.values().any(|member| member == "web1"), "{exceptions:?}");
        for machine in &machines[1..] {
            assert!(lacking(&exceptions, &machine.router.flows()).is_empty());
        }
        // So are those that are opened now, also on web1, which takes new ones until the change counts.
        let more = client.open(100)?;
        assert!(more.at(1) > 0);
        connections.add(more);
        let exceptions = machines[0].router.exceptions();
        for machine in &machines[1..] {
            wait_for(
                "new flows",
                || lacking(&exceptions, &machine.router.flows()).len(),
                |count| *count == 0,
            );
        }
        assert_eq!(machines.iter().map(Machine::configuration).collect::<Vec<_>>(), before);
        // Its command is dead: etcd has no candidate any more. Nor has it one that can't be read.
        let foreign = json!({ "text": "port = 1", "seed": 7 });
        let foreign = json!({ "format": 1, "id": 6, "content": foreign, "is_planned": true });
        etcd.put("candidate", &foreign.to_string());
        let is_refused = |seen: &Value| seen["refused"]["malformed"].as_u64() >= Some(1);
        for machine in &machines {
            wait_for("the refusal", || machine.seen(), is_refused);
        }
        wait_for("no plan", || prepared(&machines[0]), Value::is_null);
        for machine in &machines {
            wait_for("no exceptions", || machine.router.exceptions().len(), |count| *count == 0);
        }
        for machine in &machines[1..] {
            wait_for("no copies", || machine.router.own_and_copies(), |flows| *flows == (0, 0));
        }
        assert_eq!(connections.harmed(), 0);
        Ok(())
    });
}
