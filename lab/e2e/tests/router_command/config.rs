//! A router from a file, and what becomes of it by `artery apply`, while packets pass.

use super::net::{FAR, NEAR, Net, OWN, PORTS, Running, on_the_net, start_on};
use crate::support::{SOON, end, meanwhile, under_traffic, until, until_answered};
use artery_rig::{CommandOutput, Result, Signal, Traffic};
use std::path::{Path, PathBuf};

const PORT_LINES: &str =
    "port = [\n    \"eth0=10.0.1.1/24,fd00:1::1/64\",\n    \"eth1=10.0.2.1/24,fd00:2::1/64\",\n]\n";

/// A folder with a file.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file; gives its name.
    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }
}

/// Starts a router from a file, and waits until it forwards.
fn start_from(net: &Net, file: &str) -> Result<Running> {
    let mut router = start_on(&net.r, &[file])?;
    for address in FAR {
        until_answered(&net.a, address, &mut router.process)?;
    }
    Ok(router)
}

/// What a router that does not start says.
fn wait_for(mut router: Running) -> Result<CommandOutput> {
    router.process.wait(SOON)
}

/// Sends numbered datagrams for at least 1.5 s, and does something meanwhile; none may be lost.
fn during_traffic(net: &Net, what: impl Fn() -> Result<()>) -> Result<()> {
    let traffic = Traffic::between(&net.a, &net.b, FAR[0]).frames(6000).rate(4000).flows(4);
    let (report, ()) = meanwhile(traffic, |_| what())?;
    assert_eq!((report.received, report.refused, report.overrun), (report.sent, 0, 0), "{report}");
    Ok(())
}

#[test]
fn a_router_is_started_by_a_file_and_shows_the_file_that_makes_it() {
    on_the_net("config-file", |net| {
        let files = Files::new();
        let text = format!("# The router.\n{PORT_LINES}route = [\"10.9.0.0/16=10.0.2.2\"]\nworkers = 2\n");
        let file = files.write("r.toml", &text);
        let mut router = start_from(net, &file)?;
        let shown = router.say(&["show", "config"])?;
        assert_eq!(format!("# The router.\n{shown}"), text);
        assert_eq!(router.say(&["diff", &file])?, "");
        // SIGHUP reads it again.
        files.write("r.toml", &text.replace("10.9.0.0/16", "10.8.0.0/16"));
        router.process.signal(Signal::HUP);
        until(SOON, || Ok(router.say(&["show", "routes", "-4"])?.contains("10.8.0.0/16")))?;
        assert!(!router.say(&["show", "routes", "-4"])?.contains("10.9.0.0/16"));
        files.write("r.toml", "port = 7\n");
        router.process.signal(Signal::HUP);
        until(SOON, || Ok(router.process.stderr_so_far().contains("the running one stays")))?;
        let said = router.process.stderr_so_far();
        assert!(said.contains("r.toml:1: ") && said.contains("port 7: write port NAME=ADDRESS"), "{said}");
        end(router.process).map(drop)
    });
}

#[test]
fn a_file_with_mistakes_starts_nothing_and_says_all() {
    on_the_net("config-wrong", |net| {
        let files = Files::new();
        let file =
            files.write("r.toml", "prot = [\"eth0=10.0.1.1/24\"]\nnat = 1\nport = [\"eth1=10.0.2.1/33\"]\n");
        let output = wait_for(start_on(&net.r, &[&file])?)?;
        assert_eq!(output.code(), Some(1), "{}", output.stderr);
        for expected in [
            "r.toml:1: unknown key 'prot'; did you mean 'port'?",
            "r.toml:2: nat: write nat = true",
            "r.toml:3: port eth1=10.0.2.1/33: 10.0.2.1/33: the length of a prefix is",
            "3 mistakes; nothing was started",
        ] {
            assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
        }
        let file = files.write("r.toml", "port = [\n\"eth0=10.0.1.1/24\",\n\"eth9=10.0.2.1/24\"]\n");
        let output = wait_for(start_on(&net.r, &[&file])?)?;
        let stderr = &output.stderr;
        assert!(stderr.contains("r.toml:3: port eth9=10.0.2.1/24: eth9: no such interface"), "{stderr}");
        let output = wait_for(start_on(&net.r, &[&file, "--nat"])?)?;
        assert!(output.stderr.contains("--nat can't stand beside"), "{}", output.stderr);
        Ok(())
    });
}

#[test]
fn routes_services_rules_and_ports_change_under_way_without_loss() {
    on_the_net("config-apply", |net| {
        let files = Files::new();
        let folder = files.path("").display().to_string();
        let router = Running::start(net, &["--allow-path", &folder])?;
        let allowed = format!("allow-path = [\"{folder}\"]\n");
        let pass = files.write("pf.conf", "pass\n");
        let shown = router.say(&["show", "config"])?;
        assert!(shown.starts_with(PORT_LINES), "{shown}");
        let service = "service = [\"192.0.2.1:80/tcp=web1=10.0.2.2\"]\n";
        let texts = [
            format!("{PORT_LINES}route = [\"10.9.0.0/16=10.0.2.2\"]\n"),
            format!("{PORT_LINES}{service}"),
            format!("{PORT_LINES}{}", service.replace("10.0.2.2\"", "10.0.2.2,web2=10.0.2.3\"")),
            format!("{PORT_LINES}route = [\"10.9.0.0/16=blackhole\"]\npf = \"{pass}\"\n"),
            PORT_LINES.replace("eth0=10.0.1.1/24", "eth0=10.0.1.1/24,10.0.7.1/24"),
            PORT_LINES.replace("eth1=", "eth1.10=10.0.10.1/24\",\n    \"eth1="),
            format!("{PORT_LINES}no-host = true\n"),
            PORT_LINES.to_string(),
        ];
        for text in &texts {
            let file = files.write("r.toml", &format!("{text}{allowed}"));
            during_traffic(net, || {
                let said = router.apply(&[&file])?;
                assert!(said.contains("r.toml: applied, "), "{said}");
                assert_eq!(router.say(&["diff", &file])?, "", "{text}");
                Ok(())
            })?;
            for address in FAR {
                assert_eq!(net.a.ping(address, 2)?.received, 2, "{address}: {text}");
            }
        }
        end(router.process).map(drop)
    });
}

#[test]
fn a_file_with_mistakes_changes_nothing() {
    on_the_net("config-refused", |net| {
        let router = Running::start(net, &["--route", "10.9.0.0/16=10.0.2.2"])?;
        let files = Files::new();
        let before = router.say(&["show", "config"])?;
        for (more, expected) in [
            ("rout = [\"10.8.0.0/16=10.0.2.2\"]\n", "r.toml:5: unknown key 'rout'; did you mean 'route'?"),
            (
                "route = [\"10.8.0.0/16=10.0.99.2\"]\n",
                "r.toml:5: route 10.8.0.0/16=10.0.99.2: gateway 10.0.99.2",
            ),
            ("pf = \"/nonexistent\"\n", "r.toml:5: pf /nonexistent: No such file or directory"),
            ("host = \"eth0\"\n", "r.toml:5: host eth0: eth0 is a port"),
        ] {
            let file = files.write("r.toml", &format!("{PORT_LINES}{more}"));
            let refusal = router.refused(&["apply", &file], 1)?;
            assert!(refusal.contains(expected), "{expected}: {refusal}");
            // The same without the attempt, as a fleet asks.
            let request = format!("0 r.toml\n{PORT_LINES}{more}");
            let refusal = router.refused(&["handler", "router_check", &request], 1)?;
            assert!(refusal.contains(expected), "{expected}: {refusal}");
            assert_eq!(router.say(&["show", "config"])?, before);
        }
        let service = "service = [\"192.0.2.1:80/tcp=web1=10.0.2.2\"]\nseed = 9223372036854775807\n";
        router.say(&["handler", "router_check", &format!("0 r.toml\n{PORT_LINES}{service}")])?;
        assert_eq!(router.say(&["show", "config"])?, before);
        assert!(router.say(&["show", "routes"])?.contains("10.9.0.0/16"));
        assert_eq!(net.a.ping(FAR[0], 2)?.received, 2);
        let file = files.write("r.toml", &format!("{before}workers = 2\n"));
        let output = router.call(&["apply", &file])?;
        let stderr = &output.stderr;
        assert!(output.succeeded(), "{stderr}");
        assert!(output.stdout.contains("+ workers = 2   # at the next start"), "{stderr}");
        assert_eq!(router.say(&["show", "config"])?, before);
        Ok(())
    });
}

#[test]
fn what_is_not_confirmed_is_undone() {
    on_the_net("config-confirm", |net| {
        let router = Running::start(net, &[])?;
        let files = Files::new();
        let before = router.say(&["show", "config"])?;
        let file = files.write("r.toml", &format!("{PORT_LINES}route = [\"10.9.0.0/16=10.0.2.2\"]\n"));
        let has_route =
            || Ok::<_, artery_rig::RigError>(router.say(&["show", "routes"])?.contains("10.9.0.0/16"));
        under_traffic((&net.a, &net.b, FAR[0]), 6000, |n| {
            let said = router.apply(&[&file, "--confirm", "1s"])?;
            assert!(said.contains("undone in 1 s, unless 'artery confirm' is run"), "{said}");
            if n == 0 {
                assert!(has_route()?);
                assert!(router.say(&["show", "config"])?.starts_with("# Not confirmed: undone in "));
                let refusal = router.refused(&["apply", &file], 1)?;
                assert!(refusal.contains("run 'artery confirm' or wait"), "{refusal}");
            }
            until(SOON, || Ok(!has_route()?))?;
            assert_eq!(router.say(&["show", "config"])?, before);
            Ok(())
        })?;
        router.apply(&[&file, "--confirm", "2s"])?;
        assert_eq!(router.say(&["confirm"])?, "confirmed\n");
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert!(has_route()?, "{}", router.process.stderr_so_far());
        let refusal = router.refused(&["confirm"], 1)?;
        assert!(refusal.contains("nothing waits to be confirmed"), "{refusal}");
        assert!(router.process.stderr_so_far().contains("was not confirmed, and is undone"));
        Ok(())
    });
}

#[test]
fn routes_and_neighbors_that_were_added_by_hand_stay_unless_the_file_has_them() {
    on_the_net("config-by-hand", |net| {
        let router = Running::start(net, &[])?;
        let files = Files::new();
        router.say(&["route", "add", "10.9.0.0/16", "via", FAR[0]])?;
        router.say(&["route", "add", "10.8.0.0/16", "via", FAR[0]])?;
        router.say(&["route", "add", "10.7.0.0/16", "via", FAR[0]])?;
        router.say(&["route", "del", "10.7.0.0/16"])?;
        for (address, ether) in
            [("10.0.2.7", "2:0:0:0:0:7"), ("10.0.2.8", "2:0:0:0:0:8"), ("10.0.2.9", "2:0:0:0:0:9")]
        {
            router.say(&["neighbor", "add", address, "lladdr", ether])?;
        }
        router.say(&["neighbor", "del", "10.0.2.7", "dev", "eth1"])?;
        let more = "route = [\"10.8.0.0/16=blackhole\"]\nneighbor = [\"eth1=10.0.2.8=2:0:0:0:0:88\"]\n";
        // At the second change, what stayed is still known as set by hand.
        for also in ["no-host = true\n", ""] {
            router.apply(&[&files.write("r.toml", &format!("{PORT_LINES}{more}{also}"))])?;
        }
        let neighbors = router.say(&["show", "neighbors", "--dev", "eth1"])?;
        let of = |address: &str| neighbors.lines().find(|line| line.starts_with(address)).unwrap_or_default();
        assert!(of("10.0.2.9 ").contains("00:09") && of("10.0.2.9 ").ends_with("static"), "{neighbors}");
        assert!(of("10.0.2.8 ").contains("00:88") && of("10.0.2.7 ").is_empty(), "{neighbors}");
        let routes = router.say(&["show", "routes", "-4"])?;
        let line = |prefix: &str| routes.lines().find(|line| line.starts_with(prefix)).unwrap_or_default();
        assert!(line("10.9.0.0/16").contains("10.0.2.2"), "{routes}");
        assert!(line("10.9.0.0/16").ends_with("static by hand"), "{routes}");
        assert!(line("10.8.0.0/16").contains("blackhole"), "{routes}");
        assert!(line("10.8.0.0/16").ends_with("static"), "{routes}");
        assert!(line("10.7.0.0/16").is_empty(), "{routes}");
        assert_eq!(router.json(&["show", "routes", "10.9/16"])?["routes"][0]["by_hand"], true);
        Ok(())
    });
}

#[test]
fn a_restart_loses_what_was_added_by_hand() {
    on_the_net("config-restart", |net| {
        let files = Files::new();
        let file = files.write("r.toml", &format!("{PORT_LINES}route = [\"10.8.0.0/16={}\"]\n", FAR[0]));
        let router = start_from(net, &file)?;
        router.say(&["route", "add", "10.9.0.0/16", "via", FAR[0]])?;
        assert!(router.say(&["show", "routes", "-4"])?.contains("10.9.0.0/16"));
        end(router.process)?;
        let router = start_from(net, &file)?;
        let routes = router.say(&["show", "routes", "-4"])?;
        assert!(routes.contains("10.8.0.0/16") && !routes.contains("10.9.0.0/16"), "{routes}");
        end(router.process).map(drop)
    });
}

#[test]
fn routes_and_neighbors_by_hand_that_a_change_removed_are_back_when_it_is_undone() {
    on_the_net("config-undone-by-hand", |net| {
        let router = Running::start(net, &[])?;
        let files = Files::new();
        router.say(&["route", "add", "10.9.0.0/16", "via", FAR[0]])?;
        router.say(&["route", "add", "10.8.0.0/16", "via", FAR[0]])?;
        router.say(&["route", "add", "10.7.0.0/16", "via", NEAR[0]])?;
        router.say(&["neighbor", "add", "10.0.2.9", "lladdr", "2:0:0:0:0:9"])?;
        let before = router.say(&["show", "routes"])?;
        let text = "port = [\"eth0=10.0.1.1/24,fd00:1::1/64\"]\nroute = [\"10.8.0.0/16=blackhole\"]\n";
        router.apply(&[&files.write("r.toml", text), "--confirm", "2s"])?;
        let routes = router.say(&["show", "routes"])?;
        assert!(routes.contains("blackhole") && routes.contains("10.7.0.0/16"), "{routes}");
        assert!(!routes.contains("10.9.0.0/16"), "{routes}");
        // What is done meanwhile stays.
        router.say(&["route", "del", "10.7.0.0/16"])?;
        until(SOON, || Ok(router.process.stderr_so_far().contains("was not confirmed, and is undone")))?;
        let expected: String = before.split_inclusive('\n').filter(|line| !line.contains("10.7.")).collect();
        until(SOON, || Ok(router.say(&["show", "routes"])? == expected))?;
        let neighbors = router.say(&["show", "neighbors", "--dev", "eth1"])?;
        assert!(neighbors.contains("10.0.2.9 ") && neighbors.contains("static"), "{neighbors}");
        Ok(())
    });
}

#[test]
fn rules_whose_file_was_edited_are_those_from_before_when_a_change_is_undone() {
    on_the_net("config-undone-rules", |net| {
        let files = Files::new();
        let rules = files.write("pf.conf", "table <far> { 10.0.2.2 }\npass\nblock from <far> to 10.0.1.99\n");
        let router = Running::start(net, &["--pf", &rules])?;
        let before = router.say(&["pfctl", "-s", "rules"])?;
        files.write("pf.conf", "block\n");
        let file = files.write("r.toml", &router.say(&["show", "config"])?);
        router.apply(&[&file, "--confirm", "2s"])?;
        assert_eq!(net.a.ping(FAR[0], 1)?.received, 0);
        until(SOON, || Ok(router.process.stderr_so_far().contains("was not confirmed, and is undone")))?;
        assert_eq!(router.say(&["pfctl", "-s", "rules"])?, before);
        assert!(router.say(&["pfctl", "-t", "far", "-T", "show"])?.contains("10.0.2.2"));
        assert_eq!(net.a.ping(FAR[0], 2)?.received, 2);
        // They are the ones from before for the next change, too.
        router.apply(&[&file, "--confirm", "2s"])?;
        assert_eq!(net.a.ping(FAR[0], 1)?.received, 0);
        until(SOON, || Ok(router.process.stderr_so_far().matches("and is undone").count() == 2))?;
        assert_eq!(router.say(&["pfctl", "-s", "rules"])?, before);
        Ok(())
    });
}

#[test]
fn ports_get_their_first_ipv6_and_lose_it_under_way() {
    on_the_net("config-first-ipv6", |net| {
        let files = Files::new();
        let narrow = "port = [\n    \"eth0=10.0.1.1/24\",\n    \"eth1=10.0.2.1/24\",\n]\n";
        let (wide, narrow) = (files.write("wide.toml", PORT_LINES), files.write("narrow.toml", narrow));
        let mut router = start_on(&net.r, &[&narrow])?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        for _ in 0..2 {
            router.apply(&[&wide])?;
            FAR.iter().try_for_each(|far| until(SOON, || Ok(net.a.ping(far, 1)?.received == 1)))?;
            router.apply(&[&narrow])?;
            assert_eq!(net.a.ping(FAR[0], 2)?.received, 2);
            assert_eq!(net.a.ping(FAR[1], 1)?.received, 0);
        }
        Ok(())
    });
}

#[test]
fn the_hosts_interface_changes_with_the_ports() {
    on_the_net("config-host", |net| {
        let router = Running::start(net, &[])?;
        let files = Files::new();
        let apply = |text: &str| router.apply(&[&files.write("r.toml", text)]);
        apply(&PORT_LINES.replace("10.0.1.1/24", "10.0.1.1/24,10.0.7.1/24,mtu=1400"))?;
        let shown = net.r.run(["ip", "address", "show", "artery0"])?.stdout;
        assert!(shown.contains("10.0.7.1/24") && shown.contains("mtu 1400"), "{shown}");
        net.a.address("eth0", "10.0.7.2/24")?;
        assert_eq!(net.r.ping("10.0.7.2", 2)?.received, 2);
        apply(&format!("{PORT_LINES}host = \"art1\"\n"))?;
        until(SOON, || Ok(!net.r.interfaces()?.contains(&"artery0".to_string())))?;
        assert_eq!(net.r.ping(NEAR[0], 2)?.received, 2);
        assert!(net.r.run(["ip", "address", "show", "art1"])?.stdout.contains("10.0.1.1/24"));
        apply(&format!("{PORT_LINES}no-host = true\n"))?;
        until(SOON, || Ok(net.r.interfaces()? == ["lo", "eth0", "eth1"]))?;
        assert_eq!(net.a.ping(OWN[0], 2)?.received, 2);
        apply(PORT_LINES)?;
        assert_eq!(net.r.ping(NEAR[1], 2)?.received, 2);
        assert!(router.say(&["show", "ports"])?.contains("eth1"));
        Ok(())
    });
}

#[test]
fn the_units_file_is_an_example_that_the_router_takes() {
    on_the_net("config-example", |net| {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples/lan.toml");
        let text = std::fs::read_to_string(example).unwrap();
        let files = Files::new();
        let file = files.write("lan.toml", &text.replace("eth2", "eth0"));
        let mut router = start_on(&net.r, &[&file])?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        assert!(PORTS[1].starts_with("eth0=10.0.1.1/24"));
        assert_eq!(router.say(&["diff", &file])?, "");
        end(router.process).map(drop)
    });
}
