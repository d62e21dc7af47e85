//! `artery router` between Linux hosts, and the commands that look into it and change it while it runs.

mod bfd;
mod config;
mod firewall;
mod folders;
mod fpm;
mod fpm_frr;
mod gateways;
mod host_port_daemons;
mod host_ports;
mod host_routes;
mod interfaces;
pub(crate) mod ipfix;
mod log;
mod mirror;
mod net;
mod planned;
mod port_settings;
mod sandbox;
mod services;
mod vlans;

use self::net::{FAR, NEAR, OWN, PORTS, Running, on_the_net};
use crate::support::{SOON, end};
use artery_rig::program::artery;
use serde_json::Value;

#[test]
fn hosts_reach_the_router_and_each_other_by_both_families() {
    on_the_net("command-reach", |net| {
        let router = Running::start(net, &[])?;
        assert!(!router.process.stderr_so_far().contains("warning"), "{}", router.process.stderr_so_far());
        for address in [FAR, OWN].concat() {
            let report = net.a.ping(address, 5)?;
            assert_eq!((report.received, report.duplicates), (5, 0), "{address}: {}", report.text);
        }
        for address in NEAR {
            assert_eq!(net.b.ping(address, 3)?.received, 3, "{address}");
        }
        for (own, far) in OWN.iter().zip(FAR) {
            let trace = net.a.run(["traceroute", "-n", "-q", "1", "-w", "2", far])?.stdout;
            let hops = trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
            assert!(hops.eq([*own, far]), "{trace}");
        }
        let tcp = net.a.iperf3(&net.b, FAR[0], &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        end(router.process).map(drop)
    });
}

#[test]
fn programs_of_the_routers_host_are_reached_by_its_addresses() {
    on_the_net("command-host", |net| {
        let _router = Running::start(net, &["--route", "10.9.0.0/16=10.0.2.2", "--workers", "2"])?;
        // At the near and at the far address of the router, from either side.
        for address in ["10.0.1.1", "10.0.2.1", "fd00:1::1", "fd00:2::1"] {
            for from in [&net.a, &net.b] {
                let tcp = from.iperf3(&net.r, address, &["-n", "1M"])?;
                assert!(tcp.bits_per_second > 1e5, "{address}: {tcp:?}");
            }
        }
        // What the host sends itself goes by the router, too.
        for address in [NEAR, FAR].concat() {
            assert_eq!(net.r.ping(address, 2)?.received, 2, "{address}");
        }
        let routes = net.r.run(["ip", "route"])?.stdout;
        assert!(routes.contains("10.9.0.0/16 via 10.0.2.2 dev artery0"), "{routes}");
        Ok(())
    });
}

#[test]
fn without_a_host_the_router_answers_pings_and_nothing_else_is_there() {
    on_the_net("command-no-host", |net| {
        let router = Running::start(net, &["--no-host"])?;
        assert_eq!(net.a.ping(OWN[0], 2)?.received, 2);
        assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1"]);
        let refusal =
            net.a.enter(|| std::net::TcpStream::connect_timeout(&"10.0.1.1:22".parse().unwrap(), SOON))?;
        assert!(refusal.is_err());
        end(router.process).map(drop)
    });
}

#[test]
fn routes_and_neighbors_are_shown_and_changed_while_packets_flow() {
    on_the_net("command-change", |net| {
        let router = Running::start(net, &[])?;
        net.b.address("lo", "10.9.1.1/32")?;
        assert_eq!(net.a.ping("10.9.1.1", 1)?.received, 0, "no route");
        router.say(&["route", "add", "10.9/16", "via", FAR[0]])?;
        assert_eq!(net.a.ping("10.9.1.1", 3)?.received, 3);
        let refusal = router.refused(&["route", "add", "10.9.0.0/16", "10.0.2.7"], 1)?;
        assert!(refusal.starts_with("artery: 10.9.0.0/16: File exists"), "{refusal}");
        let routes = router.json(&["show", "routes", "10.9/16"])?;
        let route = &routes["routes"][0];
        assert_eq!((&route["dst"], &route["source"]), (&"10.9.0.0/16".into(), &"static".into()), "{routes}");
        assert_eq!(route["next_hops"][0]["gateway"], FAR[0]);
        let table = router.say(&["show", "routes", "-4"])?;
        assert!(table.starts_with("PREFIX ") && table.contains("\n10.9.0.0/16  10.0.2.2 "), "{table}");
        assert!(!table.contains("fd00:"), "{table}");
        let found = router.say(&["route", "get", "10.9.1.1"])?;
        let expected = "10.9.1.1 matches 10.9.0.0/16 (static)\n  to 10.0.2.2 on eth1, ";
        assert!(found.starts_with(expected), "{found}");

        let neighbors = router.json(&["show", "neighbors"])?;
        for (host, address, port) in [(&net.a, NEAR[0], "eth0"), (&net.b, FAR[0], "eth1")] {
            let all = neighbors["neighbors"].as_array().unwrap();
            let one = all.iter().find(|one| one["dst"] == address).unwrap_or_else(|| panic!("{neighbors}"));
            assert_eq!((&one["dev"], &one["lladdr"]), (&port.into(), &host.mac("eth0")?.into()), "{one}");
            assert_eq!(one["state"], "REACHABLE", "{one}");
        }

        router.say(&["route", "replace", "blackhole", "10.9.0.0/16"])?;
        assert_eq!(net.a.ping("10.9.1.1", 1)?.received, 0);
        router.say(&["route", "del", "10.9.0.0/16"])?;
        let refusal = router.refused(&["route", "del", "10.9.0.0/16"], 1)?;
        assert!(refusal.starts_with("artery: 10.9.0.0/16: not in table"), "{refusal}");

        router.say(&["neighbor", "add", "10.0.2.9", "lladdr", "02:00:00:00:00:09"])?;
        let table = router.say(&["show", "neighbors", "--dev", "eth1"])?;
        assert!(
            table.lines().any(|line| line.starts_with("10.0.2.9 ") && line.ends_with("static")),
            "{table}"
        );
        router.say(&["neighbor", "flush"])?;
        assert!(router.say(&["show", "neighbors"])?.contains("\n10.0.2.9 "), "it was set by hand");
        router.say(&["neighbor", "del", "10.0.2.9", "dev", "eth1"])?;
        assert_eq!(net.a.ping(FAR[0], 3)?.received, 3, "who was flushed is found again");
        Ok(())
    });
}

#[test]
fn events_are_a_line_each_and_whoever_resumes_misses_none() {
    on_the_net("command-watch", |net| {
        let router = Running::start(net, &[])?;
        let said = router.say(&["watch", "--since", "0", "--count", "4", "--json"])?;
        let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert!(events.iter().any(|event| event["what"] == "claimed"), "{said}");
        let mut all = router.command(&["watch"])?.spawn()?;
        // It begins with what happens once it is there.
        while !all.stdout_so_far().contains("10.8.0.0/16") {
            router.say(&["route", "replace", "10.8.0.0/16", "via", FAR[0]])?;
        }
        // The ports' addresses may be claimed only now, so that the route's line need not be the first.
        let lines = all.stdout_so_far();
        let line = lines.lines().find(|line| line.contains(" route 10.8.0.0/16: ")).unwrap_or_default();
        let time = line.split(' ').next().unwrap_or_default();
        assert!(time.len() == 27 && time.ends_with('Z'), "{lines}");
        let later = router.call(&["watch", "--since", "1000000", "--count", "1"])?;
        assert!(later.succeeded() && later.stdout.contains(" 0 "), "{}", later.stdout);
        let stderr = &later.stderr;
        assert!(stderr.contains("has not come to event 1000000: it was started since"), "{stderr}");
        end(router.process)?;
        let orphan = all.wait(SOON)?;
        assert!(
            orphan.code() == Some(1) && orphan.stderr.contains("the router is gone"),
            "{}",
            orphan.stderr
        );
        Ok(())
    });
}

#[test]
fn who_watches_for_nobody_ends() {
    on_the_net("command-unread", |net| {
        let router = Running::start(net, &[])?;
        let program = artery()?;
        for words in ["watch --since 0", "netstat -w 0.05", "trace 1000"] {
            let piped = format!("{} {words} | head -n 1", program.display());
            let command = router.host.command(["sh", "-c", &piped]).env("ARTERY_SOCKET", &router.socket);
            let mut process = command.spawn()?;
            let deadline = std::time::Instant::now() + SOON;
            while process.is_running() {
                assert!(std::time::Instant::now() < deadline, "{words} goes on");
                router.say(&["route", "replace", "10.8.0.0/16", "via", FAR[0]])?;
                net.a.ping(FAR[0], 1)?;
            }
            let output = process.wait(SOON)?;
            assert_eq!((output.stdout.lines().count(), output.stderr.as_str()), (1, ""), "{words}");
        }
        Ok(())
    });
}

#[test]
fn what_a_running_router_has_not_is_named_with_a_remedy() {
    on_the_net("command-refusals", |net| {
        let router = Running::start(net, &["--no-host"])?;
        for (words, status, expected) in [
            (&["show", "routes", "--dev", "eth7"][..], 1, "no port is called 'eth7'; there are: eth0, eth1"),
            (&["show", "routes", "-6", "10/8"], 2, "10/8 is of IPv4, and -6 leaves that out"),
            (&["trace", "--from", "nonsuch"], 1, "no element named 'nonsuch'; 'artery show elements' lists"),
            (&["explain", "10.0.1.2 > 10.0.2.2", "--in", ""], 2, "write the name of a port, or 'host'"),
            (&["neighbor", "add", "10.0.2.9", "0:0:0:0:0:0"], 2, "0:0:0:0:0:0 is not a MAC address"),
            (&["route", "get", "10/8"], 2, "write an address, such as 10.9.1.2"),
            (&["route", "add", "10/8"], 2, "Usage: artery route add [OPTIONS] PREFIX [via GATEWAY]"),
        ] {
            let refusal = router.refused(words, status)?;
            assert!(refusal.contains(expected), "{words:?}: {refusal}");
        }
        let second = net.r.command([artery()?]).args(["router", "--no-host"]).args(PORTS);
        let second = second.env("ARTERY_SOCKET", router.socket.with_extension("second")).output()?;
        assert_eq!(second.code(), Some(1), "{}", second.stderr);
        for port in ["eth0", "eth1"] {
            let expected = format!("another router has {port} as its port: 'artery router ");
            assert!(second.stderr.contains(&expected), "{expected}: {}", second.stderr);
        }
        assert_eq!(net.a.ping(FAR[0], 2)?.received, 2, "the first goes on");
        end(router.process).map(drop)
    });
}

#[test]
fn an_explanation_agrees_with_what_a_ping_meets() {
    on_the_net("command-explain", |net| {
        let router = Running::start(net, &["--route", "10.7.0.0/16=unreachable"])?;
        for (to, received, kind) in [(FAR[0], 1, "forward"), (FAR[1], 1, "forward"), (OWN[0], 1, "answer")] {
            assert_eq!(net.a.ping(to, 1)?.received, received, "{to}");
            let from = if to.contains(':') { NEAR[1] } else { NEAR[0] };
            let explained = router.json(&["explain", &format!("{from} > {to} icmp"), "--in", "eth0"])?;
            assert_eq!(explained["verdict"]["kind"], kind, "{to}: {explained:#}");
        }
        let report = net.a.ping("10.7.0.1", 1)?;
        let text = router.say(&["explain", &format!("{} > 10.7.0.1 icmp", NEAR[0]), "--in", "eth0"])?;
        assert!(report.errors > 0 && text.contains("ICMP type 3, code 1"), "{}{text}", report.text);
        let drops = router.json(&["show", "drops"])?;
        let reasons = drops["drops"].as_array().unwrap();
        let has = |reason: &str| reasons.iter().any(|drop| drop["reason"] == reason);
        let verdict = router.json(&["explain", &format!("{} > 10.7.0.1 icmp", NEAR[0]), "--in", "eth0"])?;
        let reason = verdict["verdict"]["reason"].as_str().unwrap();
        assert!(has(reason), "{reason}: {drops:#}");
        let refusal = router.refused(&["explain", "10.0.1.2 > 10.0.2.2", "--in", "eth7"], 1)?;
        assert!(refusal.contains("no port is called 'eth7'"), "{refusal}");
        Ok(())
    });
}

#[test]
fn every_mistake_is_named_and_nothing_is_touched() {
    on_the_net("command-wrong", |net| {
        let call = |words: &[&str]| net.r.command([artery()?]).arg("router").args(words).output();
        let wrong = "--port eth0=10.0.1.1 --port eth1=10.0.2.1/33 --route 0/0=nobody% --neighbor eth0";
        let wrong = call(&wrong.split(' ').collect::<Vec<_>>())?;
        assert_eq!(wrong.code(), Some(2), "{}", wrong.stderr);
        for expected in [
            "4 mistakes",
            "10.0.1.1 has no length",
            "a number from 0 to 32",
            "'nobody%' is not a valid gateway",
            "--neighbor eth0: write",
        ] {
            assert!(wrong.stderr.contains(expected), "{expected}: {}", wrong.stderr);
        }
        let off_link = call(&[PORTS.as_slice(), &["--route", "0/0=10.0.3.1"]].concat())?;
        assert_eq!(off_link.code(), Some(2));
        let stderr = &off_link.stderr;
        assert!(stderr.contains("gateway 10.0.3.1: no port has an address in a prefix"), "{stderr}");
        let missing = call(&["--port", "eth0=10.0.1.1/24", "--port", "eth9=10.0.2.1/24", "--host", "lo"])?;
        assert_eq!(missing.code(), Some(1), "{}", missing.stderr);
        for expected in [
            "eth9: no such interface",
            "eth0, eth1",
            "--host lo: there is an interface",
            "nothing was started",
        ] {
            assert!(missing.stderr.contains(expected), "{expected}: {}", missing.stderr);
        }
        net.r.mtu("eth1", 1000)?;
        let short = call(&PORTS)?;
        let remedy =
            "eth1 carries 1000 bytes, and IPv6 needs 1280; give it that by 'ip link set eth1 mtu 1280'";
        assert!(short.code() == Some(1) && short.stderr.contains(remedy), "{}", short.stderr);
        net.r.mtu("eth1", 1500)?.down("eth1")?;
        let down = call(&PORTS)?;
        assert!(down.code() == Some(1) && down.stderr.contains("'ip link set eth1 up'"), "{}", down.stderr);
        assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1"]);
        Ok(())
    });
}

#[test]
fn an_address_that_the_host_has_already_is_warned_of() {
    on_the_net("command-borne", |net| {
        net.r.address("eth0", "10.0.1.1/24")?;
        let router = Running::start(net, &[])?;
        let said = router.process.stderr_so_far();
        assert!(
            said.contains("the host has 10.0.1.1 already")
                && said.contains("ip address del 10.0.1.1/24 dev eth0"),
            "{said}"
        );
        assert!(!said.contains("has 10.0.2.1"), "{said}");
        Ok(())
    });
}

#[test]
fn a_router_without_such_an_element_says_so() {
    on_the_net("command-none", |net| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control").display().to_string();
        let router = crate::support::start(&net.r, "Idle -> d :: Discard;", &["-u", &socket])?;
        let ask = |words: &[&str]| net.r.command([artery()?]).args(words).args(["-u", &socket]).output();
        let none = ask(&["show", "routes"])?;
        assert_eq!(none.code(), Some(1));
        assert!(none.stderr.contains("has no IPRouter; 'artery show elements' lists"), "{}", none.stderr);
        let elements = ask(&["show", "elements"])?;
        assert!(elements.succeeded() && elements.stdout.contains("\nd "), "{}", elements.stdout);
        end(router)?;
        let gone = ask(&["route", "get", "10.0.0.1"])?;
        let stderr = &gone.stderr;
        assert!(gone.code() == Some(1) && stderr.contains("is a router running with -u"), "{stderr}");
        let misused = ask(&["route", "add", "10/8"])?;
        assert!(
            misused.code() == Some(2) && misused.stderr.contains("where does 10/8 lead?"),
            "{}",
            misused.stderr
        );
        Ok(())
    });
}

/// The lines of a text that begin with a word.
fn lines_of<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.split_whitespace().next() == Some(first)).collect()
}

#[test]
fn routes_and_neighbors_are_shown_and_changed_as_on_bsd() {
    on_the_net("command-bsd", |net| {
        let router = Running::start(net, &[])?;
        let route =
            |words: &str| router.call(&[&["route"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
        let says = |words: &str, expected: &str| {
            let output = route(words)?;
            assert_eq!((output.stdout.as_str(), output.stderr.as_str()), (expected, ""), "{words}");
            assert_eq!(
                output.code(),
                Some(i32::from(expected.ends_with("exists\n") || expected.ends_with("table\n")))
            );
            Ok::<_, artery_rig::RigError>(())
        };
        says("add -net 10.9.0.0 -netmask 255.255.0.0 10.0.2.2", "add net 10.9.0.0: gateway 10.0.2.2\n")?;
        says("add -net 10.9/16 10.0.2.2", "add net 10.9/16: gateway 10.0.2.2: File exists\n")?;
        says("add -inet -net 10.9/16 10.0.1.2 -mpath", "add net 10.9/16: gateway 10.0.1.2\n")?;
        says(
            "add -inet6 2001:db8:9:: -prefixlen 48 fd00:2::2 -mtu 1400",
            "add net 2001:db8:9::: gateway fd00:2::2\n",
        )?;
        says("add -host 10.7.7.7 -reject 127.0.0.1", "add host 10.7.7.7: gateway 127.0.0.1\n")?;
        says("-q add -net 10.6/16 -iface eth1", "")?;
        says("change -net 10.5/16 10.0.2.2", "change net 10.5/16: gateway 10.0.2.2: not in table\n")?;
        says("delete -net 10.5/16", "delete net 10.5/16: not in table\n")?;

        let shown = router.say(&["route", "-n", "show"])?;
        assert_eq!(router.say(&["netstat", "-rn"])?, shown);
        assert!(shown.starts_with("Routing tables\n\nInternet:\nDestination "), "{shown}");
        let rows = lines_of(&shown, "10.9/16");
        assert!(rows.len() == 2 && rows.iter().all(|row| row.contains(" UGSP ")), "{shown}");
        assert!(lines_of(&shown, "10.0.1/24")[0].contains(" 10.0.1.1 "), "{shown}");
        assert!(shown.contains(" UCn "), "{shown}");
        assert!(lines_of(&shown, "10.7.7.7")[0].contains(" UGHRS "), "{shown}");
        let wide = lines_of(&shown, "2001:db8:9::/48")[0];
        assert!(wide.contains("fd00:2::2") && wide.contains(" 1400 "), "{shown}");
        let inet6 = router.say(&["route", "show", "-inet6"])?;
        assert!(!inet6.contains("Internet:\n") && inet6.contains("\nInternet6:\n"), "{inet6}");
        assert_eq!(router.say(&["netstat", "-rn", "-f", "inet6"])?, inet6);
        let own = |eth: &str| inet6.lines().any(|line| line.starts_with("fe80::") && line.contains(eth));
        assert!(own("%eth0 ") && own("%eth1 "), "{inet6}");
        assert_eq!(router.say(&["route", "list"])?, router.say(&["show", "routes"])?);
        let got = router.say(&["route", "-n", "get", "10.6.1.2"])?;
        assert!(
            got.starts_with("   route to: 10.6.1.2\ndestination: 10.6.0.0\n       mask: 255.255.0.0\n"),
            "{got}"
        );
        assert!(got.contains("  interface: eth1\n if address: 10.0.2.1\n   priority: 8 (static)\n"), "{got}");
        assert!(router.say(&["route", "get", "-inet", "10.9.1.2"])?.contains("MPATH"));

        let arp = router.say(&["arp", "-an"])?;
        assert!(
            arp.starts_with(
                "Host                                 Ethernet Address    Netif Expire    Flags\n"
            ),
            "{arp}"
        );
        let own = lines_of(&arp, "10.0.1.1")[0];
        assert!(own.contains(&net.r.mac("eth0")?) && own.ends_with(" eth0 permanent l"), "{arp}");
        assert!(lines_of(&arp, "10.0.2.2")[0].contains(&net.b.mac("eth0")?), "{arp}");
        router.say(&["arp", "-s", "10.0.1.77", "02:00:00:00:00:77", "pub"])?;
        assert!(router.say(&["arp", "10.0.1.77"])?.contains("02:00:00:00:00:77    eth0 static    p\n"));
        assert_eq!(router.say(&["arp", "-d", "10.0.1.77"])?, "10.0.1.77 deleted\n");
        assert!(router.refused(&["arp", "-n", "10.0.1.77"], 1)?.contains("10.0.1.77 -- no entry"));
        let elsewhere = router.refused(&["arp", "-s", "10.9.9.9", "02:00:00:00:00:09"], 1)?;
        assert!(elsewhere.contains("say by which port, as in '-i eth1'"), "{elsewhere}");
        router.say(&["arp", "-i", "eth1", "-s", "10.9.9.9", "02:00:00:00:00:09"])?;
        let ndp = router.say(&["ndp", "-an"])?;
        assert!(ndp.starts_with("Neighbor ") && !lines_of(&ndp, "fd00:2::2").is_empty(), "{ndp}");
        assert!(ndp.lines().any(|line| line.starts_with("fe80::") && line.contains("%eth0 ")), "{ndp}");

        says("add -inet6 fd08::/16 fe80::9 -ifp eth1", "add net fd08::/16: gateway fe80::9\n")?;
        assert!(router.say(&["route", "-n", "get", "fd08::1"])?.contains("    gateway: fe80::9%eth1\n"));

        let flushed = router.say(&["route", "flush", "-inet6"])?;
        assert!(flushed.contains("2001:db8:9::/48 ") && flushed.ends_with(" done\n"), "{flushed}");
        assert!(lines_of(&router.say(&["route", "show"])?, "10.9/16").len() == 2);
        let flushed = router.say(&["route", "flush"])?;
        assert_eq!(lines_of(&flushed, "10.9/16").len(), 2, "a line for each next hop: {flushed}");
        assert!(lines_of(&flushed, "10.7.7.7")[0].contains(" unreachable "), "{flushed}");
        assert!(lines_of(&router.say(&["route", "show"])?, "10.9/16").is_empty());
        assert_eq!(net.a.ping(FAR[0], 2)?.received, 2, "what is connected stays");
        end(router.process).map(drop)
    });
}

#[test]
fn each_document_names_the_version_of_the_router() {
    on_the_net("command-versions", |net| {
        let options = ["--fpm", "--bfd", FAR[0], "--service", "192.0.2.1:80/tcp=a=10.0.2.2", "--host-ports"];
        let router = Running::start(net, &options)?;
        for what in [
            "routes",
            "neighbors",
            "nexthops",
            "ports",
            "host-ports",
            "fpm",
            "bfd",
            "services",
            "drops",
            "elements",
            "security",
        ] {
            let document = router.json(&["show", what])?;
            assert_eq!(document["schema_version"], 1, "{what}");
            assert_eq!(document["version"], env!("CARGO_PKG_VERSION"), "{what}");
        }
        end(router.process).map(drop)
    });
}

#[test]
fn a_router_from_a_file_knows_the_mtu_of_its_ports() {
    on_the_net("command-mtu", |net| {
        net.r.run(["ip", "link", "set", "eth1", "mtu", "1400"])?;
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (folder.path().join("router.click"), folder.path().join("control"));
        let config = "ip :: IPRouter(PORT eth0 10.0.1.1/24, PORT eth1 10.0.2.1/24 MTU 1300);
            FromDevice(eth0, SNIFFER false) -> [0] ip; FromDevice(eth1, SNIFFER false) -> [1] ip;
            ip[0] -> ToDevice(eth0); ip[1] -> ToDevice(eth1); ip[2] -> Discard;";
        for (config, expected) in [(config.to_string(), 1300), (config.replace(" MTU 1300", ""), 1400)] {
            std::fs::write(&file, config).unwrap();
            let mut router =
                net.r.command([artery()?]).arg("run").arg(&file).arg("-u").arg(&socket).spawn()?;
            crate::support::until_answered(&net.a, FAR[0], &mut router)?;
            let ports =
                net.r.command([artery()?]).args(["show", "ports", "--json"]).env("ARTERY_SOCKET", &socket);
            let ports: Value = serde_json::from_str(&ports.run()?.stdout).unwrap();
            assert_eq!(ports["ports"][0]["mtu"], 1500);
            assert_eq!(ports["ports"][1]["mtu"], expected);
            end(router)?;
        }
        Ok(())
    });
}
