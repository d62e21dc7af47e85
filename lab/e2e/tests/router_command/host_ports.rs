//! Interfaces of the router's host that stand for its ports: they are like the ports, what is for the
//! router crosses them, and the router forwards by the host's routes that lead by them.

use super::net::{FAR, NEAR, Net, OWN, PORTS, Running, on_the_net, start_on};
use crate::support::{SOON, assert_confined, end, until, until_answered};
use artery_l3::router::link_local;
use artery_rig::program::artery;
use artery_rig::{Host, Result};
use serde_json::Value;

/// The host's interfaces of the ports.
const INTERFACES: [&str; 2] = ["hp-eth0", "hp-eth1"];

fn shown(host: &Host, words: &str) -> Result<String> {
    Ok(host.run(words.split(' '))?.stdout)
}

/// Waits until a command says something.
fn until_shown(host: &Host, words: &str, wanted: &str) -> Result<()> {
    let said = until(SOON, || Ok(shown(host, words)?.contains(wanted)));
    assert!(said.is_ok(), "{words}: no '{wanted}'");
    said
}

/// The route of the router for a prefix.
pub(crate) fn route(router: &Running, to: &str) -> Result<Option<Value>> {
    let document = router.json(&["show", "routes", to])?;
    let routes = document["routes"].as_array().cloned().unwrap_or_default();
    Ok(routes.into_iter().find(|route| route["dst"] == to))
}

/// Waits until the router has a route with a protocol, by a gateway, or none.
pub(crate) fn until_route(
    router: &Running,
    to: &str,
    wanted: Option<(&str, &str)>,
    patience: std::time::Duration,
) -> Result<()> {
    let is_wanted = |route: &Option<Value>| match (route, wanted) {
        (Some(route), Some((protocol, gateway))) => {
            let text = route.to_string();
            text.contains(&format!("\"{protocol}\"")) && text.contains(&format!("\"{gateway}\""))
        }
        (None, None) => true,
        _ => false,
    };
    let deadline = std::time::Instant::now() + patience;
    loop {
        let found = route(router, to)?;
        if is_wanted(&found) {
            return Ok(());
        }
        assert!(std::time::Instant::now() < deadline, "{to}: {found:?}, not {wanted:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn start(net: &Net, options: &[&str]) -> Result<Running> {
    let router = Running::start(net, &[&["--host-ports"], options].concat())?;
    for interface in INTERFACES {
        until_shown(&net.r, &format!("ip -6 -o address show dev {interface}"), " fe80::")?;
    }
    assert_confined(&router.process);
    Ok(router)
}

#[test]
fn an_interface_of_a_port_has_its_addresses_and_follows_mac_mtu_and_link() {
    on_the_net("host-ports-follow", |net| {
        let router = start(net, &[])?;
        assert!(!router.process.stderr_so_far().contains("warning"), "{}", router.process.stderr_so_far());
        assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1", "hp-eth0", "hp-eth1"]);
        for (n, interface) in INTERFACES.into_iter().enumerate() {
            let mac = net.r.mac(&format!("eth{n}"))?;
            assert_eq!(net.r.mac(interface)?, mac);
            let addresses = shown(&net.r, &format!("ip -o address show dev {interface}"))?;
            let own = link_local(mac.parse().unwrap());
            for address in
                [format!("10.0.{}.1/24", n + 1), format!("fd00:{}::1/64", n + 1), format!("{own}/64")]
            {
                assert!(addresses.contains(&format!(" {address} ")), "{address}: {addresses}");
            }
            assert_eq!(addresses.lines().count(), 3, "{addresses}");
        }
        let link = "ip link show dev hp-eth1";
        net.r.mtu("eth1", 1400)?;
        until_shown(&net.r, link, "mtu 1400")?;
        net.r.set_mac("eth1", "02:00:00:00:01:77")?;
        until_shown(&net.r, link, "02:00:00:00:01:77")?;
        until_shown(&net.r, "ip -6 -o address show dev hp-eth1", " fe80::ff:fe00:177/64 ")?;
        assert!(!shown(&net.r, link)?.contains("NO-CARRIER"));
        net.b.down("eth0")?;
        until_shown(&net.r, link, "NO-CARRIER")?;
        let document = router.json(&["show", "host-ports"])?;
        assert_eq!(document["interfaces"][1]["carrier"], false, "{document:#}");
        net.b.up("eth0")?;
        until_shown(&net.r, link, "LOWER_UP")?;
        // Brought down by the host, the interface loses addresses of IPv6, and has them again later.
        net.r.down("hp-eth1")?.up("hp-eth1")?;
        until_shown(&net.r, "ip -6 -o address show dev hp-eth1", " fd00:2::1/64 ")?;
        let table = router.say(&["show", "host-ports"])?;
        assert!(table.contains("hp-eth1") && table.contains("10.0.2.1/24"), "{table}");
        end(router.process)?;
        assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1"]);
        Ok(())
    });
}

#[test]
fn what_is_for_the_router_crosses_the_interface_of_its_port_and_pings_are_answered_once() {
    on_the_net("host-ports-cross", |net| {
        let router = start(net, &["--workers", "2"])?;
        for address in OWN {
            let report = net.a.ping(address, 5)?;
            assert_eq!((report.received, report.duplicates), (5, 0), "{address}: {}", report.text);
        }
        for address in ["10.0.1.1", "10.0.2.1", "fd00:1::1", "fd00:2::1"] {
            for from in [&net.a, &net.b] {
                let tcp = from.iperf3(&net.r, address, &["-n", "1M"])?;
                assert!(tcp.bits_per_second > 1e5, "{address}: {tcp:?}");
            }
        }
        // The host finds its neighbors by itself, and their own Ethernet addresses.
        let near = link_local(net.a.mac("eth0")?.parse().unwrap()).to_string();
        let global = [NEAR, FAR].concat().into_iter().map(|address| (address, &[][..]));
        for (address, options) in global.chain([(near.as_str(), &["-I", "hp-eth0"][..])]) {
            let report = net.r.ping_with(address, 3, options)?;
            assert_eq!((report.received, report.duplicates), (3, 0), "{address}: {}", report.text);
        }
        let neighbors = shown(&net.r, "ip neighbor show dev hp-eth1")?;
        let mac = net.b.mac("eth0")?;
        assert!(neighbors.matches(&mac).count() >= 2, "{neighbors}");
        let tcp = net.r.iperf3(&net.b, FAR[0], &["-n", "1M"])?;
        assert!(tcp.bits_per_second > 1e5, "{tcp:?}");
        // Packets on their way through the router do not cross.
        let before = net.r.counters("hp-eth0")?.rx_packets;
        assert_eq!(net.a.ping(FAR[0], 50)?.received, 50);
        let crossed = net.r.counters("hp-eth0")?.rx_packets - before;
        assert!(crossed < 25, "{crossed}");
        end(router.process).map(drop)
    });
}

#[test]
fn the_router_forwards_by_the_hosts_routes_that_lead_by_its_ports() {
    on_the_net("host-ports-routes", |net| {
        net.b.address("lo", "10.9.1.1/32")?.address("lo", "fd09:1::1/128")?;
        let router = start(net, &["--route", "10.7.0.0/16=10.0.2.2", "--route", "10.6.0.0/16=10.0.2.2"])?;
        let ip = |words: &str| net.r.run(words.split(' ')).map(drop);
        // The router's routes are the host's, by the interface of their port, and no others.
        until_shown(
            &net.r,
            "ip route show proto 77",
            "10.7.0.0/16 via 10.0.2.2 dev hp-eth1 metric 4261412864 onlink",
        )?;
        assert!(!shown(&net.r, "ip route")?.contains("default"));
        ip("ip route add 10.9.1.0/24 via 10.0.2.2 dev hp-eth1")?;
        until_route(&router, "10.9.1.0/24", Some(("boot", FAR[0])), SOON)?;
        assert_eq!(net.a.ping("10.9.1.1", 2)?.received, 2);
        // Of several metrics the lowest; another interface does not count.
        ip("ip route add 10.9.1.0/24 via 10.0.1.2 dev hp-eth0 metric 5")?;
        ip("ip route del 10.9.1.0/24 via 10.0.2.2 dev hp-eth1")?;
        until_route(&router, "10.9.1.0/24", Some(("boot", NEAR[0])), SOON)?;
        ip("ip link add mgmt0 type veth peer name mgmt1")?;
        net.r.address("mgmt0", "192.0.2.2/24")?.up("mgmt0")?.up("mgmt1")?;
        ip("ip route add 10.9.1.0/24 via 192.0.2.1 dev mgmt0 metric 1")?;
        ip("ip route add 10.9.1.0/24 via 10.0.2.2 dev hp-eth1 metric 2 proto static")?;
        until_route(&router, "10.9.1.0/24", Some(("static", FAR[0])), SOON)?;
        // Next-hop objects, and a group that changes.
        ip("ip nexthop add id 1 via 10.0.2.2 dev hp-eth1")?;
        ip("ip nexthop add id 2 via 10.0.1.2 dev hp-eth0")?;
        ip("ip nexthop add id 3 group 1")?;
        ip("ip route add 10.9.2.0/24 nhid 3 proto bgp")?;
        until_route(&router, "10.9.2.0/24", Some(("bgp", FAR[0])), SOON)?;
        ip("ip nexthop replace id 3 group 2")?;
        until_route(&router, "10.9.2.0/24", Some(("bgp", NEAR[0])), SOON)?;
        // IPv6 by a link-local gateway, and by two.
        let [near, far] = [&net.a, &net.b].map(|host| link_local(host.mac("eth0").unwrap().parse().unwrap()));
        ip(&format!("ip route add fd09:1::/48 via {far} dev hp-eth1"))?;
        until_route(&router, "fd09:1::/48", Some(("boot", &far.to_string())), SOON)?;
        assert_eq!(net.a.ping("fd09:1::1", 2)?.received, 2);
        ip(&format!("ip route append fd09:1::/48 via {near} dev hp-eth0"))?;
        until_route(&router, "fd09:1::/48", Some(("boot", &near.to_string())), SOON)?;
        ip(&format!("ip route del fd09:1::/48 via {far} dev hp-eth1"))?;
        until(SOON, || {
            let route = route(&router, "fd09:1::/48")?;
            Ok(route.is_some_and(|route| !route.to_string().contains(&far.to_string())))
        })?;
        ip("ip route add blackhole 10.9.3.0/24")?;
        until(SOON, || Ok(route(&router, "10.9.3.0/24")?.is_some_and(|route| route["type"] == "blackhole")))?;
        // A static route of the router comes first.
        ip("ip route add 10.6.0.0/16 via 10.0.1.2 dev hp-eth0")?;
        until(SOON, || Ok(router.json(&["show", "host-ports"])?["routes"]["shadowed"] == 1))?;
        until_route(&router, "10.6.0.0/16", Some(("static", FAR[0])), SOON)?;
        // What the kernel removes without a word.
        net.r.down("hp-eth0")?;
        until_route(&router, "10.9.2.0/24", None, SOON)?;
        until_route(&router, "10.9.1.0/24", Some(("static", FAR[0])), SOON)?;
        ip("ip route flush proto static")?;
        until_route(&router, "10.9.1.0/24", None, SOON)?;
        end(router.process).map(drop)
    });
}

#[test]
fn a_change_of_the_configuration_follows_to_the_hosts_interfaces() {
    on_the_net("host-ports-apply", |net| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.toml").display().to_string();
        let write = |ports: &str, host: &str| {
            std::fs::write(&file, format!("port = [{ports}]\n{host}\n")).unwrap();
        };
        let both = "\"eth0=10.0.1.1/24,fd00:1::1/64\", \"eth1=10.0.2.1/24,fd00:2::1/64\"";
        write(&both.replace(", \"eth1=10.0.2.1/24,fd00:2::1/64\"", ""), "host-ports = true");
        let mut router = start_on(&net.r, &[&file])?;
        until_answered(&net.a, OWN[0], &mut router.process)?;
        assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1", "hp-eth0"]);
        net.r.run(["ip", "route", "add", "10.8.0.0/16", "via", NEAR[0], "dev", "hp-eth0"])?;
        until_route(&router, "10.8.0.0/16", Some(("boot", NEAR[0])), SOON)?;
        write(&both.replace("fd00:1::1/64", "10.0.5.1/24,fd00:1::1/64"), "host-ports = true");
        router.apply(&[&file])?;
        until_shown(&net.r, "ip -o address show dev hp-eth0", " 10.0.5.1/24 ")?;
        until_shown(&net.r, "ip -o address show dev hp-eth1", " 10.0.2.1/24 ")?;
        // The host's routes are there at once.
        until_route(&router, "10.8.0.0/16", Some(("boot", NEAR[0])), SOON)?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        net.r.run(["ip", "route", "add", "10.9.0.0/16", "via", FAR[0], "dev", "hp-eth1"])?;
        until_route(&router, "10.9.0.0/16", Some(("boot", FAR[0])), SOON)?;
        write(both, "host-ports = true");
        router.apply(&[&file])?;
        until(SOON, || Ok(!shown(&net.r, "ip -o address show dev hp-eth0")?.contains("10.0.5.1")))?;
        let tcp = net.b.iperf3(&net.r, "10.0.2.1", &["-n", "1M"])?;
        assert!(tcp.bits_per_second > 1e5, "{tcp:?}");
        // And back to one interface for all ports.
        write(both, "");
        router.apply(&[&file])?;
        until(SOON, || Ok(net.r.interfaces()? == ["lo", "eth0", "eth1", "artery0"]))?;
        until_route(&router, "10.9.0.0/16", None, SOON)?;
        let tcp = net.b.iperf3(&net.r, "10.0.2.1", &["-n", "1M"])?;
        assert!(tcp.bits_per_second > 1e5, "{tcp:?}");
        end(router.process).map(drop)
    });
}

#[test]
fn names_of_interfaces_are_chosen_and_wrong_ones_refused() {
    on_the_net("host-ports-names", |net| {
        let print = |options: &[&str]| {
            net.r.command([artery()?]).arg("router").args(PORTS).args(options).arg("--print").output()
        };
        let plain = print(&[])?;
        let stdout = &plain.stdout;
        assert!(!stdout.contains("HOST_PORT") && !stdout.contains("HostPorts"), "{stdout}");
        let text = print(&["--host-ports", "lan-", "--port", "eth2=10.0.3.1/24,host-if=e2"])?;
        for expected in ["FromHost(lan-eth0,", "FromHost(e2,", "HostPorts(ip, PORT eth0 lan-eth0,"] {
            assert!(text.stdout.contains(expected), "{expected}: {}{}", text.stdout, text.stderr);
        }
        for (options, expected) in [
            (&["--host-ports", "a-much-too-long-"][..], "can't be called 'a-much-too-long-eth0'"),
            (&["--host-ports", "--port", "eth2=10.0.3.1/24,host-if=eth1"][..], "eth1 has the name of a port"),
            (&["--port", "eth2=10.0.3.1/24,host-if=e2"][..], "host-if=e2 needs --host-ports; add it"),
            (&["--host-ports", "--no-host"][..], "cannot be used with"),
        ] {
            let output = print(options)?;
            assert!(!output.succeeded() && output.stderr.contains(expected), "{expected}: {}", output.stderr);
        }
        net.r.run(["ip", "link", "add", "hp-eth1", "type", "veth", "peer", "name", "other"])?;
        let output = start_on(&net.r, &[&PORTS[..], &["--host-ports"]].concat())?.process.wait(SOON)?;
        assert!(output.stderr.contains("there is an interface hp-eth1"), "{}", output.stderr);
        Ok(())
    });
}
