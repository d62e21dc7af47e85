//! When machines of a fleet are announced, and when they are not: by addresses of `lo`, and by a command. It
//! needs root, iproute2 and the program of the router: `$ARTERY`, or `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/lab.rs"]
mod lab;
mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use artery_rig::{Result, Rig, Signal};
use lab::{Lab, address, await_withdrawal, is_announced, time_until};
use support::{artery, peer, skip, wait_for};

const BY_ADDRESS: &str = "addresses = [\"192.0.2.1/32\", \"2001:db8::1/128\"]";

fn on_a_rig(label: &str, body: impl FnOnce(&Rig, &Path) -> Result<()>) {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    artery_rig::test(label, |rig| body(rig, &program));
}

#[test]
fn a_joiner_is_announced_once_it_has_all_and_withdrawn_while_its_router_is_dead_or_hung() {
    on_a_rig("fleet-announce", |rig, program| {
        let lab = Lab::new(rig, program, 2)?;
        let first = lab.machine(1, BY_ADDRESS)?;
        first.router.play();
        first.router.write("b.weight", "a 0");
        let exceptions = first.router.exceptions();
        assert!(!exceptions.is_empty());
        // The other peer is not there: it is waited for.
        let state = wait_for("status", || first.fleet.announcement(), |state| !state.is_empty());
        assert_eq!(state, "waiting", "{}", first.fleet.status_text());
        let mut second = lab.machine(2, BY_ADDRESS)?;
        time_until("the announcement of m2", || is_announced(&second.host))?;
        assert_eq!(second.router.flows(), exceptions);
        time_until("the announcement of m1", || is_announced(&first.host))?;
        wait_for("status", || second.fleet.announcement(), |state| state == "announced");
        assert!(second.fleet.status_text().contains("announcement: announced"));

        second.router.stop();
        await_withdrawal("router killed, address withdrawn", || Ok(!is_announced(&second.host)?))?;
        let text = wait_for("status", || second.fleet.status_text(), |text| text.contains("withdrawn"));
        assert!(text.contains("withdrawn: the router does not answer"), "{text}");
        second.router = lab.router(2);
        time_until("the return of m2", || is_announced(&second.host))?;
        assert_eq!(second.router.flows(), exceptions, "it had all before it was announced again");

        for _ in 0..3 {
            second.router.signal(Signal::STOP);
            await_withdrawal("router stopped (SIGSTOP), address withdrawn", || {
                Ok(!is_announced(&second.host)?)
            })?;
            second.router.signal(Signal::CONT);
            time_until("the return of m2", || is_announced(&second.host))?;
        }
        let status = wait_for("status", || second.fleet.status(), |status| !status.is_null());
        assert_eq!(status["announcement"]["withdrawals"], 4, "{status}");
        assert!(is_announced(&first.host)?, "m1 had no reason to be withdrawn");
        assert_eq!(first.fleet.status()["announcement"]["withdrawals"], 0);
        Ok(())
    });
}

#[test]
fn what_is_announced_stays_while_artery_fleet_is_killed_or_started_again_or_alone() {
    on_a_rig("fleet-announce-stays", |rig, program| {
        let lab = Lab::new(rig, program, 2)?;
        let settings = format!("{BY_ADDRESS}\npeer_wait_seconds = 1");
        let first = lab.machine(1, &settings)?;
        let mut second = lab.machine(2, &settings)?;
        time_until("the announcement of m2", || is_announced(&second.host))?;
        let monitor = second.host.spawn(["ip", "monitor", "address"])?;
        // Addresses that come and go, so that the monitor is known to listen.
        time_until("the monitor", || {
            second.host.run(["ip", "address", "add", "198.51.100.1/32", "dev", "lo"])?;
            second.host.run(["ip", "address", "del", "198.51.100.1/32", "dev", "lo"])?;
            Ok(monitor.stdout_so_far().contains("Deleted"))
        })?;
        let has_gap = || {
            monitor
                .stdout_so_far()
                .lines()
                .any(|line| line.contains("Deleted") && line.contains(lab::SERVICE))
        };
        second.fleet.stop();
        assert!(is_announced(&second.host)?);
        second.fleet = lab.fleet(2, &second.router, &settings);
        wait_for("the take-over", || second.fleet.announcement(), |state| state == "announced");
        second.fleet.terminate();
        assert!(is_announced(&second.host)?);
        second.fleet = lab.fleet(2, &second.router, &settings);
        wait_for("the take-over", || second.fleet.announcement(), |state| state == "announced");
        drop(first);
        let is_alone = |status: &serde_json::Value| peer(status, "m1")["is_present"] == false;
        let status = wait_for("the silence of m1", || second.fleet.status(), is_alone);
        assert_eq!(status["announcement"]["state"], "announced", "{status}");
        assert!(!has_gap(), "{}", monitor.stdout_so_far());
        // What others take away comes back.
        second.host.run(["ip", "address", "del", "192.0.2.1/32", "dev", "lo"])?;
        time_until("the address", || is_announced(&second.host))?;
        // Both dead: whoever starts first finds the other one missing.
        second.fleet.stop();
        second.router.stop();
        assert!(is_announced(&second.host)?);
        second.fleet = lab.fleet(2, &second.router, &settings);
        time_until("the withdrawal", || Ok(!is_announced(&second.host)?))?;
        Ok(())
    });
}

#[test]
fn a_leaver_withdraws_and_ends_when_its_peers_have_all() {
    on_a_rig("fleet-leave", |rig, program| {
        let lab = Lab::new(rig, program, 2)?;
        let settings = format!("{BY_ADDRESS}\nsettle_seconds = 1\npeer_wait_seconds = 1");
        let mut first = lab.machine(1, &settings)?;
        first.router.play();
        time_until("the announcement of m1", || is_announced(&first.host))?;
        // Without a peer it does not leave.
        let output = first.fleet.leave(&[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("no peer is present"), "{said}");
        assert!(is_announced(&first.host)?);
        let mut second = lab.machine(2, &settings)?;
        first.fleet.await_peer("m2");
        second.fleet.await_peer("m1");
        // Cut off, m2 does not get the exceptions, and is reported as missing.
        let cut = |state: &str| {
            lab.switch.host().run(["bridge", "link", "set", "dev", "port1", "state", state]).map(drop)
        };
        cut("0")?;
        first.router.write("b.weight", "a 0");
        let exceptions = first.router.exceptions();
        assert!(!exceptions.is_empty() && second.router.flows().is_empty());
        let output = first.fleet.leave(&["--limit", "3"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("has not left after 3 s"), "{said}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("draining: m2 has not all yet"), "{said}");
        assert!(!is_announced(&first.host)?);
        assert!(is_announced(&second.host)?);
        // More of them give up than are answered at a time, and m2 becomes absent.
        for _ in 0..8 {
            let output = first.fleet.leave(&["--limit", "1"]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains("has not left after 1 s"), "{said}");
        }
        let status = first.fleet.status();
        assert_eq!(
            status["announcement"]["explanation"], "draining: no peer is present that stays",
            "{status}"
        );
        cut("3")?;
        let output = first.fleet.leave(&[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(second.router.flows(), exceptions);
        assert!(!is_announced(&first.host)? && is_announced(&second.host)?);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("left; all was handed over to m2"), "{said}");
        // m1 is still heard, but takes nothing over. The last one leaves if it must.
        let refused = second.fleet.leave(&[]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("no peer is present that stays"), "{said}");
        assert!(second.fleet.leave(&["--without-peers"]).status.success());
        assert!(!is_announced(&second.host)?);
        Ok(())
    });
}

#[test]
fn a_command_is_called_instead_and_called_again_when_it_fails() {
    on_a_rig("fleet-announce-command", |rig, program| {
        let lab = Lab::new(rig, program, 1)?;
        let command = lab.folder().join("announce");
        // The first call fails.
        let script = "#!/bin/sh\ncd \"${0%/*}\"\necho $1 >>said\ntest -e tried && exit 0\n>tried\nexit 3\n";
        std::fs::write(&command, script).unwrap();
        std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
        let said = || std::fs::read_to_string(lab.folder().join("said")).unwrap_or_default();
        let settings = format!("command = {command:?}");
        let mut machine = lab.machine(1, &settings)?;
        wait_for(
            "a call that failed",
            || machine.fleet.status_text(),
            |text| text.contains("exit status: 3"),
        );
        wait_for("calls", said, |said| said == "announce\nannounce\n");
        machine.router.stop();
        await_withdrawal("router killed, command called", || Ok(said() == "announce\nannounce\nwithdraw\n"))?;
        machine.router = lab.router(1);
        wait_for("calls", said, |said| said == "announce\nannounce\nwithdraw\nannounce\n");
        // Another process can't know, and says it again; it withdraws nothing before.
        machine.fleet.stop();
        machine.fleet = lab.fleet(1, &machine.router, &settings);
        wait_for("calls", said, |said| said == "announce\nannounce\nwithdraw\nannounce\nannounce\n");
        assert!(!is_announced(&machine.host)?);
        Ok(())
    });
}

#[test]
fn what_can_t_work_is_refused_with_its_reason() {
    on_a_rig("fleet-announce-refused", |rig, _| {
        let host = rig.host("m1")?;
        host.address("lo", &format!("{}/32", address(1)))?;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("fleet.toml");
        let refusal = |prefix: &[&str], announce: &str| -> Result<String> {
            let text = format!(
                "fleet = \"web\"\nid = \"1\"\nmachine = \"m1\"\nlisten = [\"{}:7447\"]\npeers = []\n\
                 control = \"/nowhere\"\nbalancer = \"b\"\nstatus = {:?}\ninsecure = true\n\
                 [announce]\n{announce}\n",
                address(1),
                folder.path().join("status")
            );
            std::fs::write(&config, text).unwrap();
            let program = env!("CARGO_BIN_EXE_artery-fleet");
            let words = [prefix, &[program, "run", "--config"]].concat();
            let output = host.command(words).arg(&config).limit(Duration::from_secs(10)).output()?;
            assert!(output.status.is_some_and(|status| !status.success()));
            Ok(output.stderr)
        };
        let without_rights = ["setpriv", "--bounding-set", "-net_admin"];
        for (prefix, announce, part) in [
            (&[][..], "addresses = [\"192.0.2.300/32\"]", "'192.0.2.300/32' is not ADDRESS/LENGTH"),
            (&[], "addresses = [\"192.0.2.1/32\"]\ndevice = \"lo7\"", "can't find the interface 'lo7'"),
            (&without_rights, BY_ADDRESS, "run as root or with CAP_NET_ADMIN"),
            (&[], "command = \"/nowhere/announce\"", "can't find '/nowhere/announce'"),
            (&[], &format!("command = {config:?}"), "not an executable file"),
        ] {
            let said = refusal(prefix, announce)?;
            assert!(said.contains(part), "{announce}: {said}");
        }
        Ok(())
    });
}
