//! The fleet's configuration in etcd: who lives, files that all machines check and take, and what becomes of
//! them without etcd. It needs root, iproute2, `etcd`, and the program of the router: `$ARTERY`, or
//! `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/etcd.rs"]
mod etcd;
mod support;

use std::os::unix::fs::PermissionsExt as _;

use std::process::Command;
use std::time::Instant;

use artery_rig::{Result, Rig};
use certificates::Authority;
use etcd::{Machine, Machines, Servers, port_lines};
use support::{Fleet, Process, Router, Settings, artery, endpoints, skip, wait_for};

fn has_etcd() -> bool {
    let is_there = Command::new("etcd").arg("--version").output().is_ok();
    if !is_there {
        skip("no etcd (Debian: apt install etcd-server)");
    }
    is_there
}

fn on_machines(label: &str, body: impl FnOnce(&Rig, &Machines) -> Result<()>) {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    if !has_etcd() {
        return;
    }
    artery_rig::test(label, |rig| body(rig, &Machines::new(rig, &program)?));
}

fn file(servers: &str, machines: usize) -> String {
    let sections: String =
        (1..=machines).map(|number| format!("[machine.m{number}]\n{}", port_lines(number))).collect();
    format!("[router]\nmethod = \"maglev\"\nservice = [\"192.0.2.1:80/tcp={servers}\"]\n{sections}")
}

const TWO: &str = "web1=10.78.0.101,web2=10.78.0.102";
const THREE: &str = "web1=10.78.0.101,web2=10.78.0.102,web3=10.78.0.103";

fn start(machines: &Machines, servers: &Servers, count: usize) -> Result<Vec<Machine>> {
    let started: Result<Vec<Machine>> =
        (1..=count).map(|number| machines.machine(number, count, &servers.endpoints())).collect();
    let started = started?;
    for machine in &started {
        machine.await_revision(None, count);
    }
    Ok(started)
}

fn all_have(machines: &[Machine], part: &str) -> bool {
    machines.iter().all(|machine| machine.configuration().contains(part))
}

fn none_has(machines: &[Machine], part: &str) -> bool {
    machines.iter().all(|machine| !machine.configuration().contains(part))
}

#[test]
fn a_file_is_checked_by_all_taken_by_all_and_undone_unless_it_is_confirmed() {
    on_machines("fleet-apply", |rig, lab| {
        let servers = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let machines = start(lab, &servers, 3)?;
        let [first, second, third] = &machines[..] else { unreachable!("three were started") };
        let two = lab.write("two.toml", &file(TWO, 3));
        let (is_same, said) = first.say(&["diff", &two]);
        assert!(!is_same && said.contains("+ [machine.m3] port = [\"eth1=10.78.0.3/24\"]"), "{said}");

        let (is_done, said) = second.say(&["apply", &two]);
        assert!(is_done && said.contains("revision 1, taken by m1, m2, m3"), "{said}");
        assert!(all_have(&machines, "web2=10.78.0.102") && all_have(&machines, "seed = "));
        let seen = third.await_revision(Some(1), 3);
        let digests: Vec<_> = (0..3).map(|n| seen["machines"][n]["digest"].as_str()).collect();
        assert!(digests[0].is_some() && digests.iter().all(|digest| *digest == digests[0]), "{seen}");
        assert_eq!(first.say(&["diff", &two]), (true, String::new()));
        let written = std::fs::metadata(lab.router_file(1)).unwrap().permissions().mode();
        assert_eq!(written & 0o777, 0o600, "it has the seed");
        assert!(first.say(&["apply", &two]).1.contains("nothing to change"));

        // One machine can't take it: no machine is given it.
        let wrong = file(THREE, 3).replace("eth1=10.78.0.2/24", "eth9=10.78.0.2/24");
        let wrong = lab.write("wrong.toml", &wrong);
        let (is_done, said) = first.say(&["apply", &wrong]);
        assert!(!is_done && said.contains("nothing was changed"), "{said}");
        assert!(said.contains("m2: ") && said.contains("eth9: no such interface"), "{said}");
        let (is_done, said) = first.say(&["apply", &lab.write("few.toml", &file(THREE, 2))]);
        assert!(!is_done && said.contains("m3: the file has no [machine.m3]"), "{said}");
        assert!(none_has(&machines, "web3"));
        assert_eq!(first.seen()["revision"], 1);

        // No one confirms it.
        let three = lab.write("three.toml", &file(THREE, 3));
        let (is_done, said) = first.say(&["apply", &three, "--confirm", "5s"]);
        assert!(is_done && said.contains("undone in 5 s, unless 'artery-fleet confirm' is run"), "{said}");
        assert!(all_have(&machines, "web3"));
        assert!(first.fleet.status_text().contains("unless 'artery-fleet confirm' is run"));
        let (is_done, said) = second.say(&["apply", &two]);
        assert!(!is_done && said.contains("revision 2 is not confirmed yet"), "{said}");
        let seen = third.await_revision(Some(3), 3);
        assert_eq!(seen["undone"], "revision 2 was undone: no one confirmed it");
        assert!(none_has(&machines, "web3") && all_have(&machines, "web2"));

        let (is_done, said) = first.say(&["apply", &three, "--confirm", "600s"]);
        assert!(is_done, "{said}");
        assert_eq!(second.say(&["confirm"]), (true, "confirmed revision 4\n".to_string()));
        let (is_done, said) = second.say(&["confirm"]);
        assert!(!is_done && said.contains("nothing waits to be confirmed"), "{said}");
        let seen = wait_for("the confirmation", || third.seen(), |seen| seen["undone_in_seconds"].is_null());
        assert_eq!((&seen["revision"], &seen["undone"]), (&4.into(), &serde_json::Value::Null), "{seen}");
        assert!(all_have(&machines, "web3"));
        Ok(())
    });
}

#[test]
fn what_one_machine_fails_to_take_is_undone_by_all_and_a_change_by_hand_is_shown() {
    on_machines("fleet-apply-fails", |rig, lab| {
        let servers = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let mut machines = start(lab, &servers, 2)?;
        let (two, three) = (lab.write("two.toml", &file(TWO, 2)), lab.write("three.toml", &file(THREE, 2)));
        // The first revision is undone to what routers had before.
        let folder = lab.router_file(2).parent().unwrap().to_path_buf();
        let moved = folder.with_file_name("moved");
        std::fs::rename(&folder, &moved).unwrap();
        let (is_done, said) = machines[0].say(&["apply", &two]);
        assert!(!is_done && said.contains("revision 1 was undone: m2: can't write"), "{said}");
        std::fs::rename(&moved, &folder).unwrap();
        machines[0].await_revision(Some(2), 2);
        assert!(none_has(&machines, "service"));
        assert!(machines[0].say(&["apply", &two]).0);
        machines[1].await_revision(Some(3), 2);
        std::fs::rename(&folder, &moved).unwrap();
        let (is_done, said) = machines[0].say(&["apply", &three]);
        assert!(!is_done && said.contains("revision 4 was undone: m2: can't write"), "{said}");
        std::fs::rename(&moved, &folder).unwrap();
        machines[0].await_revision(Some(5), 2);
        assert!(none_has(&machines, "web3") && all_have(&machines, "web2"));

        // By hand, at one machine alone.
        let other = machines[1].configuration().replace("10.78.0.102", "10.78.0.109");
        machines[1].router.call(&["apply", &lab.write("hand.toml", &other)]);
        let is_shown = |seen: &Vec<(String, String)>| {
            seen.iter().any(|(name, how)| name == "m2" && how == "its router was changed by hand")
        };
        wait_for("the difference", || machines[0].differences(), is_shown);
        let text = machines[0].fleet.status_text();
        assert!(text.contains("differs: its router was changed by hand"), "{text}");
        // A router that is started again has the revision, and so has one that was started by another file.
        machines[1].router.stop();
        std::fs::write(lab.router_file(2), port_lines(2)).unwrap();
        machines[1].router = lab.router(2);
        machines[0].await_revision(Some(5), 2);
        assert!(all_have(&machines, "web2"));
        Ok(())
    });
}

#[test]
fn machines_keep_what_they_have_without_etcd_and_agree_once_it_is_back() {
    on_machines("fleet-without-etcd", |rig, lab| {
        let mut servers = Servers::start(rig, &lab.switch, lab.folder.path(), 3)?;
        let machines = start(lab, &servers, 3)?;
        let (two, three) = (lab.write("two.toml", &file(TWO, 3)), lab.write("three.toml", &file(THREE, 3)));
        assert!(machines[0].say(&["apply", &two]).0);
        // Each server once, so that the leader is among them.
        for place in 0..3 {
            servers.kill(place);
            let wanted = if place % 2 == 0 { &three } else { &two };
            let (is_done, said) = machines[0].say(&["apply", wanted]);
            assert!(is_done, "server {place}: {said}");
            servers.start_one(place)?;
            machines[2].await_revision(Some(2 + place as u64), 3);
        }
        // All of them: packets go on, and no one's configuration changes.
        let before: Vec<String> = machines.iter().map(Machine::configuration).collect();
        (0..3).for_each(|place| servers.kill(place));
        for machine in &machines {
            let seen = wait_for("the loss", || machine.seen(), |seen| seen["is_connected"] == false);
            assert_eq!(seen["revision"], 4, "{seen}");
            assert!(machine.fleet.status_text().contains("the router keeps what it has"));
        }
        let (is_done, said) = machines[0].say(&["apply", &two]);
        assert!(!is_done && said.contains("etcd at http://10.77.2."), "{said}");
        assert!(said.contains("Connection refused") && !said.contains("ConnectError"), "{said}");
        assert_eq!(machines.iter().map(Machine::configuration).collect::<Vec<_>>(), before);
        (0..3).try_for_each(|place| servers.start_one(place))?;
        let begun = Instant::now();
        for machine in &machines {
            machine.await_revision(Some(4), 3);
        }
        println!("measured: etcd back, all agree: {} ms", begun.elapsed().as_millis());
        // One that is cut off keeps what it has, and is shown.
        lab.cut_off(3, true)?;
        let is_absent = |seen: &Vec<(String, String)>| {
            seen.iter().any(|(name, how)| name == "m3" && how.starts_with("absent for "))
        };
        wait_for("the absence", || machines[0].differences(), is_absent);
        let (is_done, said) = machines[0].say(&["apply", &two]);
        assert!(is_done && said.contains("taken by m1, m2"), "{said}");
        assert!(machines[2].configuration().contains("web3") && none_has(&machines[..2], "web3"));
        lab.cut_off(3, false)?;
        let begun = Instant::now();
        machines[0].await_revision(Some(5), 3);
        println!("measured: cut off no more, all agree: {} ms", begun.elapsed().as_millis());
        assert!(none_has(&machines, "web3"));
        Ok(())
    });
}

#[test]
fn flows_of_a_member_that_a_revision_drains_keep_it_on_all_machines() {
    on_machines("fleet-drain", |rig, lab| {
        const FLOWS: u16 = 200;
        let servers = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let machines = start(lab, &servers, 2)?;
        let udp = |servers: &str| file(servers, 2).replace("/tcp=", "/udp=");
        assert!(machines[0].say(&["apply", &lab.write("two.toml", &udp(TWO))]).0);
        // A client, which has the members' addresses, too; the network sends all to m1.
        let client = rig.host("client")?;
        rig.plug(&client, "eth0", &lab.switch)?;
        for number in [100, 101, 102] {
            client.address("eth0", &format!("10.78.0.{number}/24"))?;
        }
        client.route("192.0.2.1/32", "10.78.0.1")?;
        let send = || {
            for port in 0..FLOWS {
                let socket = std::net::UdpSocket::bind(("10.78.0.100", 20_000 + port)).unwrap();
                // What finds no room is sent again.
                (0..3).for_each(|_| drop(socket.send_to(b"x", "192.0.2.1:80")));
            }
        };
        let flows = || {
            client.enter(send).unwrap();
            machines[0].router.flows().len()
        };
        wait_for("flows", flows, |flows| *flows == usize::from(FLOWS));
        machines[0].fleet.await_peer("m2");
        machines[1].fleet.await_peer("m1");
        let before = machines[0].router.flows();
        let drained = lab.write("drained.toml", &udp(&TWO.replace("10.78.0.101", "10.78.0.101@0")));
        assert!(machines[1].say(&["apply", &drained, "--confirm", "5s"]).0);
        let exceptions = wait_for("exceptions", || machines[0].router.exceptions(), |all| !all.is_empty());
        assert!(exceptions.values().all(|member| member == "web1"), "{exceptions:?}");
        assert_eq!(machines[0].router.flows(), before);
        wait_for("copies", || machines[1].router.flows(), |flows| *flows == exceptions);
        // It is undone: none of them is an exception any more.
        machines[1].await_revision(Some(3), 2);
        wait_for("no exceptions", || machines[0].router.exceptions().len(), |count| *count == 0);
        wait_for("no copies", || machines[1].router.exceptions().len(), |count| *count == 0);
        assert_eq!(machines[0].router.flows(), before);
        Ok(())
    });
}

#[test]
fn a_machine_is_announced_when_its_router_has_the_configuration() {
    on_machines("fleet-announce-configured", |rig, lab| {
        let servers = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let announce = "[announce]\naddresses = [\"192.0.2.1/32\"]\npeer_wait_seconds = 60\n";
        lab.more.replace(announce.to_string());
        let mut machines = start(lab, &servers, 2)?;
        let is = |wanted: &'static str| move |state: &String| state == wanted;
        wait_for("no balancer yet", || machines[0].fleet.announcement(), is("withdrawn"));
        assert!(machines[0].say(&["apply", &lab.write("two.toml", &file(TWO, 2))]).0);
        for machine in &machines {
            wait_for("the announcement", || machine.fleet.announcement(), is("announced"));
        }
        // One that joins, and can't take it.
        let folder = lab.router_file(2).parent().unwrap().to_path_buf();
        let moved = folder.with_file_name("moved");
        machines[1].fleet.stop();
        std::fs::rename(&folder, &moved).unwrap();
        machines[1].fleet = lab.fleet(("web", "m2"), 2, 2, &servers.endpoints(), &machines[1].router);
        let explanation = || machines[1].fleet.status()["announcement"]["explanation"].clone();
        let wanted = "waiting for the router to take the fleet's configuration";
        wait_for("the lack", explanation, |said| *said == wanted);
        std::fs::rename(&moved, &folder).unwrap();
        wait_for("the announcement", || machines[1].fleet.announcement(), is("announced"));
        Ok(())
    });
}

#[test]
fn a_second_machine_of_a_name_another_fleet_and_strange_keys_change_nothing() {
    on_machines("fleet-strange", |rig, lab| {
        let servers = Servers::start(rig, &lab.switch, lab.folder.path(), 1)?;
        let machines = start(lab, &servers, 2)?;
        let (two, three) = (lab.write("two.toml", &file(TWO, 2)), lab.write("three.toml", &file(THREE, 2)));
        assert!(machines[0].say(&["apply", &two]).0);
        let endpoints = servers.endpoints();

        // Machine 3 says that it is m1.
        let stranger = lab.machine_named("web", "m1", 3, &endpoints)?;
        let is_refused = |seen: &serde_json::Value| seen["refused"]["same_name"].as_u64() > Some(0);
        let seen = wait_for("the refusal", || stranger.seen(), is_refused);
        assert_eq!(seen["is_connected"], false);
        assert!(stranger.fleet.status_text().contains("another machine is called m1"));
        assert_eq!(stranger.configuration(), port_lines(3).trim_end());
        machines[1].await_revision(Some(1), 2);
        // Machine 4 is of another fleet, and sees none of this one.
        let other = lab.machine_named("mail", "m1", 4, &endpoints)?;
        let seen = other.await_revision(None, 1);
        assert_eq!(seen["machines"].as_array().map(Vec::len), Some(1), "{seen}");

        let before: Vec<String> = machines.iter().map(Machine::configuration).collect();
        servers.put("config", "{\"format\":7}");
        servers.put("candidate", "\u{0}");
        servers.put("machine/m9", "[]");
        servers.put("nonsense", "");
        let counts = |seen: &serde_json::Value| {
            let count = |reason: &str| seen["refused"][reason].as_u64().unwrap_or(0);
            count("malformed") >= 3 && count("other_version") >= 1
        };
        for machine in &machines {
            let seen = wait_for("refusals", || machine.seen(), counts);
            assert_eq!(seen["revision"], 1, "{seen}");
        }
        assert_eq!(machines.iter().map(Machine::configuration).collect::<Vec<_>>(), before);
        let (_, said) = machines[0].say(&["diff", &three]);
        assert!(said.contains("the key config in etcd is refused: it is of another version"), "{said}");
        // A machine of another version lives: it can't check anything.
        servers.put_for("machine/m8", "{\"format\":7}", 60);
        let (is_done, said) = machines[0].say(&["apply", &three]);
        assert!(!is_done && said.contains("m8 is of another version of artery-fleet"), "{said}");
        servers.delete("machine/m8");
        // What no process has written that lives stops nothing: it is replaced, or not counted as a machine.
        servers.put("candidate", "{\"format\":7}");
        servers.put("machine/m8", "{\"format\":7}");
        servers.put("machine/m7", "{\"format\":1}");
        // A revision that can't be read is replaced, by a number that no machine has.
        let (is_done, said) = machines[0].say(&["apply", &three]);
        assert!(is_done && said.contains("revision 2, taken by m1, m2"), "{said}");
        assert!(all_have(&machines, "web3"));
        // Another version's command is waited for, and goes with its lease.
        servers.put_for("candidate", "{\"format\":7}", 60);
        let (is_done, said) = machines[0].say(&["apply", &two]);
        assert!(!is_done && said.contains("another configuration is being checked"), "{said}");
        servers.put_for("candidate", "x", 60);
        let (is_done, said) = machines[0].say(&["apply", &two]);
        assert!(is_done && said.contains("revision 3, taken by m1, m2"), "{said}");
        Ok(())
    });
}

#[test]
fn with_tls_a_machine_of_another_authority_is_no_part_of_the_fleet() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    if !has_etcd() {
        return;
    }
    let (folder, [client, peer, at_1, at_2]) = (tempfile::tempdir().unwrap(), endpoints());
    let path = |name: &str| folder.path().join(name);
    let (own, other) = (Authority::new("fleet"), Authority::new("stranger"));
    own.settings("etcd", &own, folder.path());
    let (client, peer) = (format!("https://{client}"), format!("http://{peer}"));
    let mut command = Command::new("etcd");
    command
        .args(["--logger", "zap", "--log-level", "panic", "--client-cert-auth", "--data-dir"])
        .arg(path("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")]);
    for (option, file) in [("trusted-ca", "ca"), ("cert", "certificate"), ("key", "key")] {
        command.arg(format!("--{option}-file")).arg(path(&format!("etcd-{file}.pem")));
    }
    let _server = Process::start(&mut command);
    let machines = [("m1", &own, &at_1, &at_2), ("m2", &other, &at_2, &at_1)];
    let machines = machines.map(|(name, authority, at, peer)| {
        let router = Router::start(&program, folder.path(), name);
        let tls = authority.settings(name, &own, folder.path());
        let file = path(&format!("{name}-router.toml"));
        let settings = Settings {
            fleet: "web",
            balancer: "b",
            machine: name,
            files: name,
            listen: at.clone(),
            peers: vec![peer.clone()],
            socket: &router.socket,
            more: format!("{tls}[etcd]\nendpoints = [{client:?}]\nrouter_file = {file:?}\n"),
            prefix: Vec::new(),
        };
        let fleet = Fleet::start(folder.path(), &settings);
        (router, fleet)
    });
    let seen = |n: usize| machines[n].1.status()["configuration"].clone();
    let seen_1 = wait_for("etcd", || seen(0), |seen| seen["is_connected"] == true);
    let is_refused =
        |seen: &serde_json::Value| seen["error"].as_str().is_some_and(|why| why.contains("etcd at"));
    let seen_2 = wait_for("the refusal", || seen(1), is_refused);
    assert_eq!(
        (seen_1["machines"].as_array().map(Vec::len), &seen_2["is_connected"]),
        (Some(1), &false.into())
    );
    // A router that 'artery run' started has a table, and no file that could be replaced.
    let seen_1 = wait_for("a digest", || seen(0), |seen| !seen["machines"][0]["digest"].is_null());
    assert_eq!(seen_1["machines"][0]["differs"], false, "{seen_1}");
    let words = ["apply", &path("m1-fleet.toml").display().to_string()].map(String::from);
    std::fs::write(&words[1], "[machine.m1]\nno-host = true\n").unwrap();
    let output = machines[0].1.call(&[], &[&words[0], &words[1]]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("m1: the router was not started by 'artery router'"), "{said}");
}
