//! Ports that can't send, that go, or that are not adopted: what a running `artery adopt` logs about them.

use crate::support::adopting::{Net, forwarded, on_the_net};
use crate::support::{Running, SOON, artery_on, spawn, until};
use artery_rig::{Host, Result, Signal, Skip};
use std::time::Duration;

/// What `artery top` shows, and the state that it is made of.
fn shown(adopted: &Running) -> Result<(String, serde_json::Value)> {
    Ok((adopted.say(&["top", "--once"])?, adopted.state()?))
}

#[test]
fn what_would_leave_by_a_port_that_does_not_send_is_left_to_the_kernel_and_told_so() {
    on_the_net("adopt-deaf", |net| {
        net.b.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        let mut adopted = Running::adopt(net, "xdp", &[])?;
        adopted.wait_for("eth1: what leaves there stays with the kernel", SOON)?;
        assert!(!adopted.stderr_so_far().contains("nothing keeps"), "{}", adopted.stderr_so_far());
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        let (top, state) = shown(&adopted)?;
        let words = |port: usize| [&state["ports"][port]["ipv4"], &state["ports"][port]["is_deaf"]];
        assert_eq!(words(0), [&"fast".into(), &serde_json::Value::from(false)], "{state}");
        assert_eq!(words(1), [&"fast-in".into(), &serde_json::Value::from(true)], "{state}");
        assert!(top.contains("eth1: what leaves there stays with the kernel"), "{top}");
        assert!(!top.contains("Nothing keeps"), "{top}");
        assert!(state["ports"][0]["kernel"]["deaf"].as_u64() >= Some(15), "{state}");

        // A change elsewhere doesn't repeat the message; a link that is mended is reported.
        net.r.run(["nft", "add table ip f; add chain ip f c { type filter hook forward priority 0; }"])?;
        net.r.run(["nft", "add rule ip f c ip saddr 192.0.2.1 drop"])?;
        adopted.wait_for("nftables", SOON)?;
        let said = adopted.stderr_so_far();
        assert_eq!(said.matches("eth1: what leaves there stays").count(), 1, "{said}");
        net.r.run(["nft", "flush ruleset"])?;
        net.b.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        adopted.wait_for("eth1: its driver sends what XDP redirects", SOON)?;
        adopted.wait_for("nothing keeps traffic", SOON)?;
        // Where neither sends, all go by tc once frames arrive.
        net.a.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        net.b.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        until(SOON, || {
            net.a.ping("10.0.2.2", 1)?;
            Ok(adopted.state()?["ports"][0]["path"] == "tc")
        })?;
        adopted
            .wait_for("nothing can be forwarded by XDP between these ports; so all ports go by tc", SOON)?;
        until(SOON, || Ok(adopted.state()?["ports"][1]["ipv4"] == "fast"))?;
        adopted.wait_for("eth1: what leaves there is forwarded by tc", SOON)?;
        let said = adopted.stderr_so_far();
        assert_eq!(said.matches("its driver sends what XDP redirects").count(), 1, "{said}");
        let before = forwarded_past_kernel(&adopted)?;
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        assert!(forwarded_past_kernel(&adopted)? >= before + 40);
        adopted.stop(SOON).map(drop)
    });
}

fn forwarded_past_kernel(adopted: &Running) -> Result<u64> {
    let state = adopted.state()?;
    let of_port = |number: usize| state["ports"][number]["received"].as_u64().expect("a number");
    Ok(of_port(0) + of_port(1))
}

#[test]
fn what_is_lost_after_a_redirect_is_counted() {
    on_the_net("adopt-losses", |net| {
        let mut adopted = Running::adopt(net, "xdp", &[])?;
        net.a.ping("10.0.2.2", 1)?;
        let state = adopted.state()?;
        if let Some(why) = state["uncounted_losses"].as_str() {
            return Err(Skip::KernelLacks(format!("what counting losses takes: {why}")).into());
        }
        let before = net.b.kernel_counter("IcmpInEchos")?;
        let mut flow =
            net.a.command(["ping", "-q", "-i", "0.002", "-c", "1500", "-W", "1", "10.0.2.2"]).spawn()?;
        std::thread::sleep(Duration::from_millis(700));
        // For up to a second it is not noticed that the link does not transmit redirected frames any more.
        net.b.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        adopted.wait_for("eth1: what leaves there stays with the kernel", SOON)?;
        flow.wait(2 * SOON)?;
        let arrived = net.b.kernel_counter("IcmpInEchos")? - before;
        let (top, state) = shown(&adopted)?;
        let counts = |port: usize| {
            ["lost", "dropped"].map(|count| state["ports"][port][count].as_u64().expect("a number"))
        };
        let lost: u64 = [counts(0), counts(1)].concat().iter().sum();
        assert!(lost > 0, "{state}");
        assert_eq!(arrived + lost, 1500, "{top}");
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn before_it_forwards_xdp_sends_a_probe_between_each_two_ports() {
    on_the_net("adopt-probe", |net| {
        let probes = ["-Q", "in", "ether proto 0x88b5"];
        let captures = [net.a.capture_with("eth0", &probes)?, net.b.capture_with("eth0", &probes)?];
        let mut adopted = Running::adopt(net, "xdp", &[])?;
        for (capture, port) in captures.iter().zip(["eth0", "eth1"]) {
            let frames = capture.wait_for(1, SOON)?;
            let mac: artery_wire::EtherAddr = net.r.mac(port)?.parse().expect("an Ethernet address");
            assert_eq!(frames[0].bytes[6..12], mac.octets(), "{}", capture.text()?);
        }
        let (top, state) = shown(&adopted)?;
        assert_eq!([&state["ports"][0]["sent"], &state["ports"][1]["dropped"]], [0, 0], "{top}");
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn ports_between_which_xdp_loses_the_probe_are_not_adopted() {
    on_the_net("adopt-probe-lost", |net| {
        let mut reader = spawn(&net.r, "FromHost(tap0, 10.0.9.1/24) -> Discard;", &[])?;
        until(SOON, || Ok(net.r.interfaces()?.contains(&"tap0".to_owned())))?;
        // A queue of one frame whose reader is stopped.
        net.r.run(["ip", "link", "set", "tap0", "txqueuelen", "1", "up"])?;
        reader.signal(Signal::STOP);
        let words = ["adopt", "--path", "xdp", "eth0", "eth1", "tap0"];
        let output = Running::spawn(&net.r, words)?.wait(2 * SOON)?;
        // The queue may have had room for the one from eth0.
        let lost = |from: &str| {
            format!(
                "tap0: its driver took none of the frames from {from} that XDP redirected to it as a probe"
            )
        };
        let is_told = ["eth0", "eth1"].iter().any(|from| output.stderr.contains(&lost(from)));
        assert!(output.code() == Some(1) && is_told, "{output:?}");
        assert!(output.stderr.contains("--path tc") && !output.stderr.contains("forwarding"), "{output:?}");
        reader.signal(Signal::CONT);
        reader.stop(SOON)?;
        assert_eq!(net.a.ping("10.0.2.2", 3)?.received, 3);
        Ok(())
    });
}

#[test]
fn ipv4_leaves_where_it_came_in_if_the_kernel_would_send_no_redirect() {
    for path in ["xdp", "tc"] {
        on_the_net(&format!("adopt-returns-{path}"), |net| {
            let redirects = |value: &str| {
                let settings =
                    ["all", "eth0"].map(|name| format!("net.ipv4.conf.{name}.send_redirects={value}"));
                net.r.run(["sysctl", "-q", "-w", &settings[0], &settings[1]])
            };
            let mac = net.a.mac("eth0")?;
            net.r.run(format!("ip neigh replace 10.0.1.2 lladdr {mac} dev eth0").split(' '))?;
            net.r.route("198.51.100.0/24", "10.0.1.2")?;
            // As the kernel sends them back when it sends no redirects either.
            redirects("0")?;
            let sent = ["-Q", "in", "icmp"];
            let of_kernel = net.a.capture_with("eth0", &sent)?;
            let ping = |count: u32| {
                let pattern = ["-p", "5a", "-s", "64", "-W", "1", "-i", "0.05"];
                net.a
                    .command(["ping", "-q", "-c", &count.to_string()])
                    .args(pattern)
                    .arg("198.51.100.9")
                    .output()
            };
            ping(3)?;
            let expected = of_kernel.wait_for(3, SOON)?;
            let mut adopted = Running::adopt(net, path, &[])?;
            let of_adopt = net.a.capture_with("eth0", &sent)?;
            ping(3)?;
            let seen = of_adopt.wait_for(3, SOON)?;
            // Except fields that differ between any two runs of ping: identification, checksums, time.
            let fixed = |frame: &[u8]| [&frame[..18], &frame[20..24], &frame[26..36], &frame[58..]].concat();
            for (one, other) in expected.iter().zip(&seen) {
                assert_eq!(fixed(&one.bytes), fixed(&other.bytes), "{}", of_adopt.text()?);
            }
            let state = adopted.state()?;
            assert_eq!(state["ports"][0]["sent"], 3, "{state}");
            assert_eq!(state["ports"][0]["received"], 3, "{state}");

            // Where it sends redirects, packets are its own, within the second in which settings are read.
            redirects("1")?;
            until(SOON, || {
                ping(1)?;
                Ok(adopted.state()?["ports"][0]["kernel"]["same-port"].as_u64() > Some(0))
            })?;
            ping(3)?;
            assert!(of_adopt.text()?.contains("ICMP redirect"), "{}", of_adopt.text()?);
            adopted.stop(SOON).map(drop)
        });
    }
}

#[test]
fn ports_without_ethernet_headers_are_left_to_the_kernel_and_told_so() {
    on_the_net("adopt-tun", |net| {
        net.r.run(["ip", "tuntap", "add", "tun0", "mode", "tun"])?;
        net.r.run(["ip", "link", "set", "tun0", "up"])?;
        let said = "frames of tun0 have no Ethernet header: IPv4 and IPv6 stay with the kernel";
        let dry = artery_on(&net.r, ["adopt", "--dry-run", "eth0", "tun0"])?.run()?;
        assert!(dry.stdout.contains(said), "{}", dry.stdout);
        let mut adopted = Running::spawn(&net.r, ["adopt", "eth0", "eth1", "tun0"])?;
        adopted.wait_for(said, 2 * SOON)?;
        let state = adopted.state()?;
        assert_eq!(state["guards"][0]["port"], "tun0", "{state}");
        assert_eq!(state["ports"][0]["ipv4"], "fast", "{state}");
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn a_port_that_comes_back_is_adopted_again() {
    artery_rig::test("adopt-returns", |rig| {
        let net = Net::make(rig)?;
        let mut adopted = Running::adopt(&net, "tc", &[])?;
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        net.r.run(["ip", "link", "del", "eth1"])?;
        adopted.wait_for("eth1: the interface is gone", SOON)?;
        net.connect(rig, 2)?;
        adopted.wait_for("eth1: the interface has come back, and is adopted again", SOON)?;
        until(SOON, || Ok(net.a.ping_with("10.0.2.2", 3, &["-i", "0.01"])?.received == 3))?;
        let before = forwarded_past_kernel(&adopted)?;
        assert_eq!(net.a.ping_with("10.0.2.2", 50, &["-i", "0.01"])?.received, 50);
        let past = forwarded_past_kernel(&adopted)? - before;
        assert!(past >= 95, "{past} of 100 packets went past the kernel");
        let (top, state) = shown(&adopted)?;
        assert!(state["gone"].as_array().is_some_and(Vec::is_empty) && !top.contains("is gone"), "{top}");

        // One that was in another namespace comes back with its number.
        net.r.run(["ip", "link", "set", "eth1", "netns", net.a.namespace()])?;
        until(SOON, || Ok(adopted.stderr_so_far().matches("eth1: the interface is gone").count() == 2))?;
        net.a.run(["ip", "link", "set", "eth1", "netns", net.r.namespace()])?;
        net.r.up("eth1")?;
        net.r.address("eth1", "10.0.2.1/24")?;
        until(
            SOON,
            || Ok(adopted.stderr_so_far().matches("eth1: the interface has come back").count() == 2),
        )?;
        until(SOON, || Ok(net.a.ping_with("10.0.2.2", 3, &["-i", "0.01"])?.received == 3))?;
        let before = forwarded_past_kernel(&adopted)?;
        assert_eq!(net.a.ping_with("10.0.2.2", 50, &["-i", "0.01"])?.received, 50);
        let past = forwarded_past_kernel(&adopted)? - before;
        assert!(past >= 95, "{past} of 100 packets went past the kernel");
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn a_port_of_tc_that_goes_is_told_of_once_and_its_counts_stay() {
    on_the_net("adopt-gone-tc", |net| port_goes(net, "tc"));
}

#[test]
fn a_port_of_the_graph_that_goes_is_told_of_once_and_its_counts_stay() {
    on_the_net("adopt-gone-graph", |net| port_goes(net, "graph"));
}

fn port_goes(net: &Net, path: &str) -> Result<()> {
    let mut adopted = Running::adopt(net, path, &[])?;
    until(SOON, || {
        net.a.ping_with("10.0.2.2", 10, &["-i", "0.01"])?;
        Ok(forwarded(&adopted.handler(&["report"])?, "eth1") >= 10)
    })?;
    net.r.run(["ip", "link", "del", "eth1"])?;
    adopted.wait_for("eth1: the interface is gone", SOON)?;
    let (top, state) = shown(&adopted)?;
    assert!(top.contains("eth1: the interface is gone"), "{top}");
    let guards = state["guards"].as_array().map(Vec::len);
    assert_eq!((&state["gone"][0], guards), (&"eth1".into(), Some(0)), "{state}");
    let ended = adopted.stop(SOON)?;
    assert!(!ended.stderr.contains("No such device"), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("is gone").count(), 1, "{}", ended.stderr);
    assert!(forwarded(&ended.stdout, "eth1") >= 10, "{}", ended.stdout);
    Ok(())
}

#[test]
fn captures_of_ports_that_are_not_adopted_are_refused_and_all_is_told_as_json() {
    on_the_net("adopt-json", |net| {
        let words = ["adopt", "--path", "graph", "--log", "json", "eth0", "eth1"];
        let mut adopted = Running::spawn(&net.r, words)?;
        adopted.wait_for("\"forwarding\"", 2 * SOON)?;
        let refused = adopted.call(&["capture", "--ports", "eth0,eth9"])?;
        let why = "eth9 is not an adopted port; those are eth0, eth1";
        assert!(refused.code() == Some(1) && refused.stderr.contains(why), "{refused:?}");
        net.r.run(["ip", "link", "set", "eth1", "mtu", "1400"])?;
        until(SOON, || {
            net.a.ping("10.0.2.2", 1)?;
            Ok(adopted.stderr_so_far().contains("its MTU is 1400 now"))
        })?;
        let ended = adopted.stop(SOON)?;
        for line in ended.stderr.lines() {
            assert!(
                serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object()),
                "{line}"
            );
        }
        assert!(ended.stderr.contains("\"event\":\"report\"") && ended.stdout.is_empty(), "{ended:?}");
        Ok(())
    });
}

/// Kinds of ports: the interface with addresses, and the interfaces to adopt. One is never adopted.
const KINDS: [(&str, &[&str]); 7] = [
    ("veth0", &["veth0"]),
    ("veth1", &["veth1"]),
    ("trunk.10", &["trunk", "trunk.10"]),
    ("bridge0", &["bridge0"]),
    ("macvlan0", &["macvlan0"]),
    ("vxlan0", &["under", "vxlan0"]),
    ("other", &[]),
];

/// The port of a kind, what of it is adopted, and the number and name of the host behind it.
struct Behind {
    port: &'static str,
    adopted: &'static [&'static str],
    number: usize,
    host: Host,
}

/// A router with a port of each kind that this kernel has, and a host behind each.
fn with_all_kinds(label: &str, body: impl FnOnce(&Host, &[Behind]) -> Result<()>) {
    artery_rig::test(label, |rig| {
        let r = rig.host("r")?;
        r.forwarding(true)?;
        let vlan = r.command(["ip", "link", "add", "link", "lo", "name", "try", "type", "vlan", "id", "9"]);
        let has_vlans = vlan.output()?.succeeded();
        if !has_vlans {
            println!("skipped: this kernel has no VLANs (8021q)");
        }
        let tunnel =
            r.command(["ip", "link", "add", "try-vxlan", "type", "vxlan", "id", "9", "dstport", "4790"]);
        let has_vxlan = tunnel.output()?.succeeded();
        if !has_vxlan {
            println!("skipped: this kernel has no VXLAN");
        }
        let mut behind = Vec::new();
        for (number, (port, adopted)) in (1..).zip(KINDS) {
            if port == "trunk.10" && !has_vlans || port == "vxlan0" && !has_vxlan {
                continue;
            }
            let host = rig.host(&format!("h{number}"))?;
            behind.push(Behind { port, adopted, number, host });
        }
        for Behind { port, number, host, .. } in &behind {
            let (wire, at_host) = match *port {
                "trunk.10" => ("trunk", "eth0.10"),
                "bridge0" => ("member", "eth0"),
                "macvlan0" => ("below", "eth0"),
                "vxlan0" => ("under", "vxlan0"),
                port => (port, "eth0"),
            };
            rig.link(host, "eth0", &r, wire)?;
            host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
            match *port {
                "trunk.10" => {
                    r.run(["ip", "link", "add", "link", wire, "name", port, "type", "vlan", "id", "10"])?;
                    host.run([
                        "ip", "link", "add", "link", "eth0", "name", at_host, "type", "vlan", "id", "10",
                    ])?;
                    host.up(at_host)?;
                }
                "bridge0" => {
                    r.run(["ip", "link", "add", port, "type", "bridge"])?;
                    r.run(["ip", "link", "set", wire, "master", port])?;
                }
                "macvlan0" => {
                    r.run([
                        "ip", "link", "add", "link", wire, "name", port, "type", "macvlan", "mode", "bridge",
                    ])?;
                }
                "vxlan0" => {
                    r.address(wire, "192.0.2.1/24")?;
                    host.address("eth0", "192.0.2.2/24")?;
                    for (end, below, remote) in [(&r, wire, "192.0.2.2"), (host, "eth0", "192.0.2.1")] {
                        end.run([
                            "ip", "link", "add", port, "type", "vxlan", "id", "5", "remote", remote,
                            "dstport", "4789", "dev", below,
                        ])?;
                    }
                    host.up(at_host)?;
                }
                _ => {}
            }
            r.up(port)?;
            r.address(port, &format!("10.0.{number}.1/24"))?
                .address(port, &format!("2001:db8:{number}::1/64"))?;
            host.address(at_host, &format!("10.0.{number}.2/24"))?
                .route("default", &format!("10.0.{number}.1"))?;
            host.address(at_host, &format!("2001:db8:{number}::2/64"))?
                .route("default", &format!("2001:db8:{number}::1"))?;
        }
        body(&r, &behind)
    });
}

#[test]
fn no_frame_is_lost_between_ports_of_any_two_kinds_whatever_the_path() {
    with_all_kinds("adopt-kinds", |r, behind| {
        for path in [None, Some("tc"), Some("xdp"), Some("xdp-generic")] {
            let options = path.map_or_else(Vec::new, |path| vec!["--path", path]);
            // None of them runs programs of XDP itself.
            let is_virtual = |port: &&str| ["bridge0", "macvlan0", "vxlan0"].contains(port);
            let ports = behind.iter().flat_map(|behind| behind.adopted.iter().copied());
            let ports = ports.filter(|port| path != Some("xdp") || !is_virtual(port));
            let mut adopted = Running::adopt_ports(r, &options.into_iter().chain(ports).collect::<Vec<_>>())?;
            for (from, to) in behind.iter().flat_map(|from| behind.iter().map(move |to| (from, to))) {
                if from.number == to.number {
                    continue;
                }
                for address in [format!("10.0.{}.2", to.number), format!("2001:db8:{}::2", to.number)] {
                    // The first one asks for the neighbor.
                    from.host.ping(&address, 1)?;
                    let report = from.host.ping_with(&address, 10, &["-i", "0.005"])?;
                    assert_eq!(
                        report.received, 10,
                        "{path:?}: from {} to {} ({address})",
                        from.port, to.port
                    );
                }
            }
            adopted.stop(SOON)?;
        }
        Ok(())
    });
}
