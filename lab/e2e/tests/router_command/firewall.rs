//! A packet filter around the router: `--pf`. `a` is a client in a local network, and `b` a server outside,
//! without a route to it.

use super::mirror::{Mirror, Said, ask_tcp, ask_udp};
use super::net::{FAR, NEAR, Net, OWN, PORTS, Running, on_the_net, start_on};
use crate::support::{SOON, end, until, until_answered};
use artery_rig::program::artery;
use artery_rig::{Result, Skip};
use artery_wire::TcpFlags;
use artery_wire::build::{ether, ip4};
use std::io::ErrorKind;
use std::path::PathBuf;

/// The router's addresses outside, by family.
const OUTSIDE: [&str; 2] = ["10.0.2.1", "fd00:2::1"];

/// What a small office has.
const OFFICE: &str = "
set skip on lo
block return log
match out on eth1 inet from eth0:network nat-to (eth1)
match out on eth1 inet6 from eth0:network nat-to (eth1)
pass in on eth0
pass out
pass in on eth1 inet proto tcp to (eth1) port 8080 rdr-to 10.0.1.2 port 80
pass in on eth1 inet6 proto tcp to (eth1) port 8080 rdr-to fd00:1::2 port 80
";

/// A router with rules.
struct Firewall {
    router: Running,
    rules: PathBuf,
    _folder: tempfile::TempDir,
}

impl Firewall {
    /// Starts one, and waits until `a` reaches `b` through it.
    fn start(net: &Net, rules: &str, options: &[&str]) -> Result<Firewall> {
        // Only who translates gets answers from outside.
        for family in ["-4", "-6"] {
            net.b.run(["ip", family, "route", "del", "default"])?;
        }
        Firewall::start_as_it_is(net, rules, options)
    }

    fn start_as_it_is(net: &Net, rules: &str, options: &[&str]) -> Result<Firewall> {
        let folder = tempfile::tempdir().unwrap();
        let (rules_file, log) = (folder.path().join("pf.conf"), folder.path().join("pflog"));
        std::fs::write(&rules_file, rules).unwrap();
        let files = ["--pf", rules_file.to_str().unwrap(), "--pflog", log.to_str().unwrap()];
        let router = Running::start(net, &[&files, options].concat())?;
        Ok(Firewall { router, rules: rules_file, _folder: folder })
    }

    fn pfctl(&self, words: &[&str]) -> Result<String> {
        self.router.say(&[&["pfctl"], words].concat())
    }

    /// Has the router read its files again, and waits until it says what became of that.
    fn reload(&mut self, rules: &str, expected: &str) -> Result<String> {
        std::fs::write(&self.rules, rules).unwrap();
        self.router.reload(expected)
    }
}

#[test]
fn clients_reach_the_outside_by_an_address_of_the_router() {
    on_the_net("firewall-nat", |net| {
        let mirror = Mirror::start(&net.b, 80)?;
        let firewall = Firewall::start(net, OFFICE, &[])?;
        let said = firewall.router.process.stderr_so_far();
        assert!(!said.contains("warning"), "{said}");
        for (far, outside) in FAR.into_iter().zip(OUTSIDE) {
            assert_eq!(net.a.ping(far, 5)?.received, 5, "{far}");
            // The server sees the router as the client.
            assert_eq!(ask_tcp(&net.a, far, 80)?, Said::You(outside.parse().unwrap()), "{far}");
            assert_eq!(ask_udp(&net.a, far, 80)?, Said::You(outside.parse().unwrap()), "{far}");
            let tcp = net.a.iperf3(&net.b, far, &["-t", "1"])?;
            assert!(tcp.bits_per_second > 1e6, "{far}: {tcp:?}");
            let back = net.a.iperf3(&net.b, far, &["-t", "1", "-R"])?;
            assert!(back.bits_per_second > 1e6, "{far}: {back:?}");
        }
        let states = firewall.pfctl(&["-s", "states"])?;
        assert!(states.contains("10.0.2.1") && states.contains("(10.0.1.2:"), "{states}");
        let info = firewall.pfctl(&["-s", "info"])?;
        assert!(info.starts_with("Status: Enabled"), "{info}");
        let rules = firewall.pfctl(&["-s", "rules"])?;
        let expected = "match out on eth1 inet from 10.0.1.0/24 to any nat-to (eth1) round-robin";
        assert!(rules.contains(expected), "{rules}");
        drop(mirror);
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn it_is_explained_which_rule_decides_and_what_a_packet_becomes() {
    on_the_net("firewall-explain", |net| {
        let _mirror = Mirror::start(&net.b, 80)?;
        let firewall = Firewall::start(net, OFFICE, &[])?;
        let explain = |packet: &str, port: &str| firewall.router.say(&["explain", packet, "--in", port]);
        let counted = || firewall.pfctl(&["-v", "-s", "rules"]);
        let states = || firewall.pfctl(&["-s", "states"]);
        // Nothing else is to be counted: hosts go on asking for routers.
        for host in [&net.a, &net.b] {
            host.sysctl("net.ipv6.conf.eth0.accept_ra", "0")?;
        }
        let before = (counted()?, states()?);

        let out = explain("10.0.1.2:4000 > 10.0.2.2:80 tcp", "eth0")?;
        for expected in [
            "  filter in   pf: passes: rule 3, 'pass in on eth0 all flags S/SA'; it gets a state",
            "  filter out  pf: passes: rule 4, 'pass out all flags S/SA'; it gets a state",
            "it goes on as ",
            "IP 10.0.2.1.",
            "= verdict     leaves by eth1",
        ] {
            assert!(out.contains(expected), "{expected}\n{out}");
        }
        let stray = explain("10.0.2.2:4000 > 10.0.1.2:22 tcp", "eth1")?;
        assert!(stray.contains("x filter in  pf: blocked: rule 0, 'block return log all'"), "{stray}");
        assert!(stray.contains("= verdict    Dropped by the packet filter pf: filtered."), "{stray}");
        let redirected = explain("10.0.2.2:4000 > 10.0.2.1:8080 tcp", "eth1")?;
        assert!(redirected.contains("10.0.2.2.4000 > 10.0.1.2.80"), "{redirected}");
        assert!(redirected.contains("leaves by eth0"), "{redirected}");
        assert_eq!((counted()?, states()?), before, "questions are not counted");

        // What is there now is known by its state, and its answer comes back to the client.
        assert_eq!(ask_udp(&net.a, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        let state = states()?;
        let own =
            state.lines().find(|line| line.contains("udp 10.0.2.1:")).unwrap_or_else(|| panic!("{state}"));
        let port = own.split("10.0.2.1:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let back = explain(&format!("10.0.2.2:80 > 10.0.2.1:{port} udp"), "eth1")?;
        assert!(back.contains("filter in   pf: passes by its state, from rule 4"), "{back}");
        assert!(back.contains("10.0.2.2.80 > 10.0.1.2.") && back.contains("leaves by eth0"), "{back}");
        let json = firewall.router.json(&["explain", "10.0.2.2 > 10.0.1.2 icmp", "--in", "eth1"])?;
        assert_eq!(json["verdict"]["reason"], "filtered", "{json}");
        assert_eq!(json["stages"][1]["rule"], 0, "{json}");
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn what_nobody_asked_for_is_blocked_and_answered_where_the_rules_say_so() {
    on_the_net("firewall-blocked", |net| {
        let _inside = Mirror::start(&net.a, 80)?;
        // `b` knows the way in.
        let firewall = Firewall::start_as_it_is(net, OFFICE, &[])?;
        for (near, own) in NEAR.into_iter().zip(OUTSIDE) {
            assert_eq!(net.b.ping(near, 2)?.received, 0, "{near}");
            assert_eq!(net.b.ping(own, 2)?.received, 0, "{own}");
            // A reset, and an ICMP error that says that nothing is there.
            assert_eq!(ask_tcp(&net.b, near, 80)?, Said::Error(ErrorKind::ConnectionRefused), "{near}");
            assert_eq!(ask_udp(&net.b, near, 80)?, Said::Error(ErrorKind::ConnectionRefused), "{near}");
        }
        // From inside the router's own addresses answer.
        for own in OWN {
            assert_eq!(net.a.ping(own, 2)?.received, 2, "{own}");
        }
        let log = firewall._folder.path().join("pflog");
        until(SOON, || Ok(std::fs::metadata(&log).is_ok_and(|log| log.len() > 24)))?;
        let logged = net.r.run(["tcpdump", "-n", "-e", "-r", log.to_str().unwrap()])?.stdout;
        assert!(logged.contains("block in on eth1"), "{logged}");
        let drops = firewall.router.json(&["show", "drops"])?;
        assert!(
            drops["drops"].as_array().unwrap().iter().any(|one| one["reason"] == "filtered"),
            "{drops:#}"
        );
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn a_service_behind_the_router_is_reached_at_its_address() {
    on_the_net("firewall-rdr", |net| {
        let _inside = Mirror::start(&net.a, 80)?;
        let firewall = Firewall::start(net, OFFICE, &[])?;
        for (own, far) in OUTSIDE.into_iter().zip(FAR) {
            assert_eq!(ask_tcp(&net.b, own, 8080)?, Said::You(far.parse().unwrap()), "{own}");
            assert_eq!(ask_tcp(&net.b, own, 80)?, Said::Error(ErrorKind::ConnectionRefused), "{own}");
        }
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn the_host_behind_the_router_is_filtered_where_its_packets_arrive_and_leave() {
    on_the_net("firewall-host", |net| {
        let rules = "block return\npass in on eth0 proto tcp to (eth0) port 22\npass inet proto icmp\n\
                     pass inet6 proto icmp6\npass out on eth1 proto tcp to port 80\n";
        let (_own, _outside) = (Mirror::start(&net.r, 22)?, Mirror::start(&net.b, 80)?);
        let firewall = Firewall::start_as_it_is(net, rules, &[])?;
        for (((own, near), outside), far) in OWN.into_iter().zip(NEAR).zip(OUTSIDE).zip(FAR) {
            assert_eq!(ask_tcp(&net.a, own, 22)?, Said::You(near.parse().unwrap()), "{own}");
            assert_eq!(ask_tcp(&net.b, outside, 22)?, Said::Error(ErrorKind::ConnectionRefused), "{outside}");
            assert_eq!(ask_tcp(&net.a, own, 23)?, Said::Error(ErrorKind::ConnectionRefused), "{own}");
            assert!(matches!(ask_tcp(&net.r, far, 80)?, Said::You(_)), "{far}");
            // What may not leave is refused to the host itself.
            assert_eq!(ask_tcp(&net.r, far, 81)?, Said::Error(ErrorKind::ConnectionRefused), "{far}");
            assert_eq!(net.r.ping(far, 2)?.received, 2, "{far}");
        }
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn a_reload_keeps_states_and_changes_rules_and_a_mistake_keeps_the_old_ones() {
    on_the_net("firewall-reload", |net| {
        let _outside = Mirror::start(&net.b, 80)?;
        let mut firewall = Firewall::start(net, OFFICE, &[])?;
        let mut line = super::mirror::Line::open(&net.a, FAR[0], 80)?;
        line.echo()?;
        let wrong = "block return\npass in on eth9\npass\n";
        let said = firewall.reload(wrong, "pf.conf:2: on eth9: no interface here")?;
        assert!(said.contains("the running one stays"), "{said}");
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        let stricter = OFFICE.replace("pass in on eth0\n", "pass in on eth0 inet proto icmp\n");
        firewall.reload(&stricter, "the configuration was replaced")?;
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::Error(ErrorKind::ConnectionRefused));
        line.echo()?;
        // pfctl judges the file for the router. On the host eth0 has no address.
        std::fs::write(&firewall.rules, OFFICE).unwrap();
        let file = firewall.rules.to_str().unwrap();
        let checked = firewall.pfctl(&["-nvf", file])?;
        assert!(checked.contains("from 10.0.1.0/24 to any nat-to (eth1)"), "{checked}");
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::Error(ErrorKind::ConnectionRefused));
        firewall.pfctl(&["-f", file])?;
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        line.echo()?;
        std::fs::write(&firewall.rules, "block\npas in\n").unwrap();
        let refusal = firewall.router.call(&["pfctl", "-f", file])?;
        assert!(!refusal.succeeded() && refusal.stderr.contains(":2: syntax error"), "{}", refusal.stderr);
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        line.echo()?;
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn rules_that_never_apply_are_refused_or_warned_of() {
    on_the_net("firewall-refused", |net| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pf.conf");
        let path = file.to_str().unwrap().to_string();
        let call = |options: &[&str]| {
            net.r.command([artery()?]).arg("router").args(PORTS).args(["--pf", &path]).args(options).output()
        };
        for (rules, expected) in [
            ("pass\nblock in on em0\n", ":2: on em0: no interface here has this name"),
            ("block in on egress\n", ":1: on egress: no interface here has this name"),
            ("antispoof for em0\n", ":1: "),
            ("pass in proto tcp user root\n", ":1: not supported: user"),
            ("pas\n", ":1: syntax error"),
        ] {
            std::fs::write(&file, rules).unwrap();
            for options in [&[][..], &["--print"]] {
                let refused = call(options)?;
                assert_eq!((refused.code(), refused.stdout.as_str()), (Some(1), ""), "{rules}");
                assert!(refused.stderr.contains(&format!("{path}{expected}")), "{rules}: {}", refused.stderr);
                assert!(refused.stderr.contains("nothing was started"), "{rules}: {}", refused.stderr);
            }
        }
        std::fs::write(&file, "pass\nblock in on em0\n").unwrap();
        let refused = call(&[])?;
        assert!(
            refused.stderr.contains("--lenient starts without it; there are eth0, eth1")
                || refused.stderr.contains("there are eth0, eth1; --lenient starts without it"),
            "{}",
            refused.stderr
        );
        assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1"]);
        let firewall = Firewall::start_as_it_is(net, "pass\nblock in on em0\n", &["--lenient"])?;
        let said = firewall.router.process.stderr_so_far();
        assert!(said.contains("warning") && said.contains(":2: on em0: no interface here"), "{said}");
        for option in ["-nf", "-f"] {
            let output = firewall.router.call(&["pfctl", option, &path])?;
            let expected = format!("{path}:2: warning: on em0: no interface here has this name");
            assert_eq!(output.code(), Some(0));
            assert!(output.stderr.starts_with(&expected), "{option}: {}", output.stderr);
        }
        end(firewall.router.process)?;
        for (options, expected) in [
            (&["--workers", "2"][..], "leave out --workers 2"),
            (&["--pf", "/nonexistent"], "/nonexistent: No such file or directory"),
        ] {
            let options =
                if options[0] == "--pf" { options.to_vec() } else { [options, &["--pf", &path]].concat() };
            let refused = net.r.command([artery()?]).arg("router").args(PORTS).args(options).output()?;
            assert!(!refused.succeeded() && refused.stderr.contains(expected), "{}", refused.stderr);
        }
        Ok(())
    });
}

#[test]
fn the_group_egress_follows_default_routes() {
    on_the_net("firewall-egress", |net| {
        let rules = "match out on egress inet from 10.0.1.0/24 nat-to (egress)\npass\n";
        let options = ["--route", "default=10.0.2.2"];
        let firewall = Firewall::start_as_it_is(net, rules, &options)?;
        let _outside = Mirror::start(&net.b, 80)?;
        assert!(!firewall.router.process.stderr_so_far().contains("warning"));
        let asker = || ask_tcp(&net.a, FAR[0], 80);
        assert_eq!(asker()?, Said::You(OUTSIDE[0].parse().unwrap()));
        firewall.router.say(&["route", "del", "default"])?;
        until(SOON, || Ok(asker()? == Said::You(NEAR[0].parse().unwrap())))?;
        firewall.router.say(&["route", "add", "default", "via", "10.0.2.2"])?;
        until(SOON, || Ok(asker()? == Said::You(OUTSIDE[0].parse().unwrap())))?;
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn errors_about_translated_packets_are_translated_back() {
    on_the_net("firewall-errors", |net| {
        // Behind `b` is a link for shorter packets.
        net.b.forwarding(true)?;
        net.b.run(["ip", "link", "add", "short", "type", "veth", "peer", "name", "end"])?;
        for (address, short) in [("10.0.3.1/24", "short"), ("fd00:3::1/64", "short")] {
            net.b.address(short, address)?;
        }
        net.b.mtu("short", 1300)?.up("short")?.up("end")?;
        net.b.run(["ip", "neigh", "add", "10.0.3.2", "lladdr", "02:00:00:00:00:77", "dev", "short"])?;
        net.b.run(["ip", "neigh", "add", "fd00:3::2", "lladdr", "02:00:00:00:00:77", "dev", "short"])?;
        let routes = ["--route", "10.0.3.0/24=10.0.2.2", "--route", "fd00:3::/64=fd00:2::2"];
        let firewall = Firewall::start(net, OFFICE, &routes)?;
        let long = net.a.ping_with("10.0.3.2", 1, &["-M", "do", "-s", "1400"])?;
        assert!(long.text.contains("From 10.0.2.2") && long.text.contains("mtu = 1300"), "{}", long.text);
        let long = net.a.ping_with("fd00:3::2", 1, &["-M", "do", "-s", "1400"])?;
        assert!(long.text.contains("From fd00:2::2") && long.text.contains("mtu"), "{}", long.text);
        let known = net.a.run(["ip", "-6", "route", "get", "fd00:3::2"])?.stdout;
        assert!(known.contains("mtu 1300"), "{known}");
        // No program listens there: the host replies with an error to the address that it sees.
        for far in FAR {
            assert_eq!(ask_udp(&net.a, far, 81)?, Said::Error(ErrorKind::ConnectionRefused), "{far}");
            let trace = net.a.run(["traceroute", "-n", "-q", "1", "-w", "2", far])?.stdout;
            let hops: Vec<&str> =
                trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            let own = if far.contains(':') { OWN[1] } else { OWN[0] };
            assert_eq!(hops, [own, far], "{trace}");
        }
        // The router's own link is too short as well.
        net.r.mtu("eth1", 1280)?;
        until(SOON, || {
            let long = net.a.ping_with(FAR[0], 1, &["-M", "do", "-s", "1300"])?;
            Ok(long.text.contains("From 10.0.1.1") && long.text.contains("mtu = 1280"))
        })?;
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn frames_for_other_ethernet_addresses_are_not_answered() {
    on_the_net("firewall-strangers", |net| {
        let firewall = Firewall::start_as_it_is(net, "block return in on eth0 inet proto tcp\npass\n", &[])?;
        let capture = net.a.capture("eth0")?;
        let own: String = net.r.mac("eth0")?;
        for (to, port) in [("02:00:00:00:00:77", 7777), (own.as_str(), 7778)] {
            let syn = ip4().src(NEAR[0]).dst(FAR[0]).ttl(64).tcp(port, 80).flags(TcpFlags::SYN);
            net.a.transmit("eth0", &[ether(to, net.a.mac("eth0")?.as_str()).ip4(syn).bytes()])?;
        }
        let resets = || {
            let frames = capture.frames().into_iter().map(|frame| frame.bytes);
            let ports = frames.filter(|frame| frame.len() > 48 && frame[23] == 6 && frame[47] & 4 != 0);
            ports.map(|frame| u16::from_be_bytes([frame[36], frame[37]])).collect::<Vec<_>>()
        };
        until(SOON, || Ok(!resets().is_empty()))?;
        assert_eq!(resets(), [7778], "the router's address alone is answered");
        end(firewall.router.process).map(drop)
    });
}

#[test]
fn rules_see_a_service_where_its_packets_come_in_and_its_server_where_they_leave() {
    const SERVICE: &str = "192.0.2.1";
    on_the_net("firewall-service", |net| {
        let server = Mirror::start(&net.b, 80)?;
        let rules = |leaves: &str| {
            format!(
                "block return\npass inet proto icmp\npass inet6 proto icmp6\n\
                 pass in on eth0 inet proto tcp to {SERVICE} port 80\n\
                 pass in on eth0 inet proto tcp to (eth0) port 8080 rdr-to {SERVICE} port 80\n\
                 pass out on eth1 inet proto tcp to {leaves} port 80\n"
            )
        };
        let service = ["--service", "192.0.2.1:80/tcp=web=10.0.2.2", "--check", "tcp every 100ms"];
        for (option, leaves) in [("--nat", FAR[0]), ("--method=maglev", SERVICE)] {
            if option != "--nat" {
                net.b.address("lo", "192.0.2.1/32")?;
            }
            // The router's host asks the server whether it is well by the server's own address.
            let checked =
                format!("{}pass out on eth1 inet proto tcp from (eth1) to {}\n", rules(leaves), FAR[0]);
            let firewall = Firewall::start_as_it_is(net, &checked, &[&service[..], &[option]].concat())?;
            until(SOON, || Ok(firewall.router.say(&["handler", "service1.members"])?.contains(" up, ")))?;
            let client = Said::You(NEAR[0].parse().unwrap());
            for (to, port) in [(SERVICE, 80), (OWN[0], 8080)] {
                assert_eq!(ask_tcp(&net.a, to, port)?, client, "{option}: {to}");
            }
            // The server's own address is another matter.
            assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::Error(ErrorKind::ConnectionRefused), "{option}");
            let flows = firewall.router.say(&["flow", "show"])?;
            assert!(flows.contains(SERVICE) && flows.contains("web"), "{flows}");
            end(firewall.router.process)?;
        }
        drop(server);
        Ok(())
    });
}

#[test]
fn what_is_printed_is_a_configuration_that_filters() {
    on_the_net("firewall-print", |net| {
        let folder = tempfile::tempdir().unwrap();
        let (rules, printed) = (folder.path().join("pf.conf"), folder.path().join("firewall.click"));
        std::fs::write(&rules, OFFICE.replace("log", "")).unwrap();
        let options = ["--pf", rules.to_str().unwrap(), "--print"];
        let output = net.r.command([artery()?]).arg("router").args(PORTS).args(options).output()?;
        assert!(output.succeeded() && output.stderr.is_empty(), "{}", output.stderr);
        std::fs::write(&printed, &output.stdout).unwrap();
        let checked = net.r.run([artery()?.as_os_str(), "check".as_ref(), printed.as_os_str()])?;
        assert!(checked.stderr.is_empty(), "{}", checked.stderr);
        let mut router = net.r.command([artery()?]).arg("run").arg(&printed).spawn()?;
        until_answered(&net.a, FAR[0], &mut router)?;
        let _outside = Mirror::start(&net.b, 80)?;
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        assert_eq!(net.b.ping(OUTSIDE[0], 1)?.received, 0);
        end(router).map(drop)
    });
}

#[test]
fn the_example_of_the_documentation_does_what_it_says() {
    let page = include_str!("../../../../docs/router.md");
    let lines = page.lines().map(str::trim);
    let rules: Vec<&str> = lines
        .clone()
        .skip_while(|line| *line != "cat > pf.conf <<'END'")
        .skip(1)
        .take_while(|line| *line != "END")
        .collect();
    let command =
        lines.clone().find_map(|line| line.strip_prefix("sudo artery router --port eth0=")).unwrap();
    let options = format!("--port eth0={}", command.replace("--pf pf.conf ", ""));
    on_the_net("firewall-docs", |net| {
        net.b.run(["ip", "route", "del", "default"])?;
        let (_inside, _outside) = (Mirror::start(&net.a, 80)?, Mirror::start(&net.b, 80)?);
        net.a.address("eth0", "10.0.1.3/24")?;
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("pf.conf"), folder.path().join("pflog"));
        std::fs::write(&file, rules.join("\n") + "\n").unwrap();
        let files = ["--pf", file.to_str().unwrap(), "--pflog", log.to_str().unwrap()];
        let options: Vec<&str> = options.split(' ').chain(files).collect();
        let mut router = start_on(&net.r, &options)?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        let (client, outside) = (Said::You(FAR[0].parse().unwrap()), Said::You(OUTSIDE[0].parse().unwrap()));
        assert_eq!(ask_tcp(&net.a, FAR[0], 80)?, outside);
        assert_eq!(net.b.ping(OUTSIDE[0], 2)?.received, 2);
        assert_eq!(ask_tcp(&net.b, OUTSIDE[0], 8080)?, client);
        until(SOON, || Ok(ask_tcp(&net.b, "10.0.2.80", 80)? == client))?;
        for (to, port) in [(OUTSIDE[0], 22), ("10.0.2.80", 81)] {
            assert_eq!(ask_tcp(&net.b, to, port)?, Said::Error(ErrorKind::ConnectionRefused), "{to}");
        }
        let said = router.process.stderr_so_far();
        assert!(!said.contains("warning"), "{said}");
        end(router.process).map(drop)
    });
}

/// [`OFFICE`] in the words of nftables.
const OFFICE_NFT: &str = "
table inet office {
  chain forward { type filter hook forward priority 0; policy drop;
    ct state established,related accept
    iifname eth0 accept
    iifname eth1 ct status dnat accept
    meta l4proto tcp reject with tcp reset
    reject
  }
  chain input { type filter hook input priority 0; policy drop;
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    iifname eth0 accept
    meta l4proto tcp reject with tcp reset
    meta l4proto udp reject
  }
  chain post { type nat hook postrouting priority 100;
    iifname eth0 oifname eth1 ip saddr 10.0.1.0/24 masquerade
    iifname eth0 oifname eth1 ip6 saddr fd00:1::/64 masquerade
  }
  chain pre { type nat hook prerouting priority -100;
    iifname eth1 ip daddr 10.0.2.1 tcp dport 8080 dnat ip to 10.0.1.2:80
    iifname eth1 ip6 daddr fd00:2::1 tcp dport 8080 dnat ip6 to [fd00:1::2]:80
  }
}
";

/// What hosts at either side receive in reply, by what they send.
fn heard(net: &Net) -> Result<Vec<(String, String)>> {
    let _mirrors = [Mirror::start(&net.a, 80)?, Mirror::start(&net.b, 80)?];
    let mut heard = Vec::new();
    for (host, addresses) in [(&net.a, [FAR, OWN, OUTSIDE]), (&net.b, [NEAR, OUTSIDE, OWN])] {
        for address in addresses.concat() {
            for port in [80, 81, 8080] {
                let said = [ask_tcp(host, address, port)?, ask_udp(host, address, port)?];
                heard.push((format!("{} asks {address} at {port}", host.name()), format!("{said:?}")));
            }
            let pings = format!("{} of 2", host.ping(address, 2)?.received);
            heard.push((format!("{} pings {address}", host.name()), pings));
        }
    }
    Ok(heard)
}

#[test]
fn hosts_hear_what_they_hear_through_a_kernel_with_the_same_rules() {
    on_the_net("firewall-nft", |net| {
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("office.nft");
        std::fs::write(&rules, OFFICE_NFT).unwrap();
        let loaded = net.r.command(["nft", "-f", rules.to_str().unwrap()]).output()?;
        if loaded.stderr.contains("not supported") || loaded.stderr.contains("No such file") {
            // A kernel without parts of nftables.
            return Err(Skip::KernelLacks(format!("these rules of nftables: {}", loaded.stderr)).into());
        }
        assert!(loaded.succeeded(), "{}", loaded.stderr);
        net.r.run(["nft", "flush", "ruleset"])?;
        // By default Linux sends one error a second to each host.
        for host in [&net.a, &net.r, &net.b] {
            host.sysctl("net.ipv4.icmp_ratelimit", "0")?.sysctl("net.ipv6.icmp.ratelimit", "0")?;
        }
        let firewall = Firewall::start_as_it_is(net, OFFICE, &[])?;
        let ours = heard(net)?;
        end(firewall.router.process)?;
        net.r.run(["nft", "-f", rules.to_str().unwrap()])?;
        net.r.forwarding(true)?;
        for (interface, number) in [("eth0", 1), ("eth1", 2)] {
            net.r.address(interface, &format!("10.0.{number}.1/24"))?;
            net.r.address(interface, &format!("fd00:{number}::1/64"))?;
        }
        for host in [&net.a, &net.b] {
            host.run(["ip", "neigh", "flush", "all"])?;
        }
        for address in FAR {
            until(SOON, || Ok(net.a.ping(address, 1)?.received == 1))?;
        }
        let theirs = heard(net)?;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
        Ok(())
    });
}
