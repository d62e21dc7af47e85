//! What a router between hosts gives up, and what works all the same.

use super::net::{FAR, Net, PORTS, Running, on_the_net, start_as, start_on};
use crate::support::{SOON, assert_confined, end, until, until_answered};
use artery_rig::{Result, Signal};

#[test]
fn a_router_forwards_and_takes_a_new_port_without_any_rights() {
    on_the_net("sandbox-router", |net| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.toml");
        let port = |name: &str, n: u8| format!("port = [\"{name}=10.0.{n}.1/24\"]\n");
        std::fs::write(&file, port("eth0", 1)).unwrap();
        let file = file.display().to_string();
        let mut router = start_on(&net.r, &[&file])?;
        until_answered(&net.a, "10.0.1.1", &mut router.process)?;
        assert_confined(&router.process);
        std::fs::write(&file, "port = [\"eth0=10.0.1.1/24\", \"eth1=10.0.2.1/24\"]\n").unwrap();
        router.apply(&[&file])?;
        assert_eq!(net.a.ping(FAR[0], 3)?.received, 3);
        assert_confined(&router.process);
        let document = router.json(&["show", "security"])?;
        assert_eq!(document["sandbox"], true);
        assert_eq!(document["processes"][1]["role"], "helper");
        end(router.process).map(drop)
    });
}

/// As `User=` and `AmbientCapabilities=` of a unit have it.
#[test]
fn a_router_of_a_user_of_its_own_forwards_and_takes_back_a_port() {
    const USER: u32 = 65_534;
    on_the_net("sandbox-user", |net| {
        let mut router = start_as(USER, &net.r, &[&PORTS[..], &["--no-host"]].concat())?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        net.r.run(["ip", "link", "set", "eth1", "netns", net.a.namespace()])?;
        router.process.wait_for("eth1: interface vanished", SOON)?;
        net.a.run(["ip", "link", "set", "eth1", "netns", net.r.namespace()])?;
        net.r.up("eth1")?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        assert_confined(&router.process);
        let document = router.json(&["show", "security"])?;
        let processes = document["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 2, "{document:#}");
        for process in processes {
            let pid = process["pid"].as_u64().expect("a number");
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
            let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a line");
            assert!(uid.split_whitespace().all(|id| id == USER.to_string()), "{uid}");
        }
        end(router.process).map(drop)
    });
}

/// Starts a router with ports of a method.
fn start(net: &Net, options: &[&str]) -> Result<Running> {
    let mut router = start_on(&net.r, &[&PORTS[..], options].concat())?;
    until_answered(&net.a, FAR[0], &mut router.process)?;
    Ok(router)
}

#[test]
fn a_file_that_a_router_did_not_start_with_needs_an_allowed_folder() {
    on_the_net("sandbox-files", |net| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("routes"), "10.9.0.0/16 10.0.2.2\n").unwrap();
        let ports = format!("port = [\"{}\", \"{}\"]\n", PORTS[1], PORTS[3]);
        let table = format!("table = [\"{}=10.0.2.2\"]\n", path("routes"));
        std::fs::write(path("r.toml"), format!("{ports}{table}")).unwrap();
        let router = start(net, &[])?;
        let refusal = router.refused(&["apply", &path("r.toml")], 1)?;
        let remedy = format!("start it with allow-path {}", folder.path().display());
        assert!(refusal.contains(&remedy), "{refusal}");
        // What needs no other file is taken, since `apply` reads it, but SIGHUP could not.
        std::fs::write(path("ports.toml"), &ports).unwrap();
        let warning = router.call(&["apply", &path("ports.toml")])?.stderr;
        assert!(
            warning.contains("SIGHUP can't") && warning.contains("start it with --allow-path"),
            "{warning}"
        );
        end(router.process)?;
        let router = start(net, &["--allow-path", &folder.path().display().to_string()])?;
        let warning = router.call(&["apply", &path("r.toml")])?.stderr;
        assert!(!warning.contains("SIGHUP"), "{warning}");
        end(router.process).map(drop)
    });
}

#[test]
fn a_reload_reads_rules_that_took_the_place_of_others_and_begins_logs() {
    on_the_net("sandbox-reload", |net| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("pf.conf"), "pass\n").unwrap();
        let mut router = start(net, &["--pf", &path("pf.conf"), "--pflog", &path("log")])?;
        let is_written = || {
            net.a.ping(FAR[0], 1)?;
            Ok(std::fs::metadata(path("log")).is_ok_and(|log| log.len() > 24))
        };
        // As editors do it: another file of the same name, with the first packets to log.
        std::fs::write(path("new"), "pass log (all)\n").unwrap();
        std::fs::rename(path("new"), path("pf.conf")).unwrap();
        router.process.signal(Signal::HUP);
        until(SOON, is_written)?;
        // As logrotate does it.
        std::fs::rename(path("log"), path("log.1")).unwrap();
        router.process.signal(Signal::HUP);
        until(SOON, is_written)?;
        assert_confined(&router.process);
        end(router.process).map(drop)
    });
}
