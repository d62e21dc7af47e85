//! What the router's host has of its routes, and how the host reaches link-local addresses.

use super::fpm::{SERVER, ip};
use super::net::{FAR, Net, Running, on_the_net, start_on};
use crate::support::{SOON, end, until};
use artery_l3::router::link_local;
use artery_netlink::build;
use artery_rig::{Host, Result, Signal};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

/// The router's routes that the host has, a line each.
fn own_routes(host: &Host, family: &str) -> Result<Vec<String>> {
    let shown = host.run(["ip", "-o", family, "route", "show", "proto", "77"])?.stdout;
    Ok(shown.lines().map(str::to_string).collect())
}

fn until_count(host: &Host, family: &str, count: usize) -> Result<()> {
    until(SOON, || Ok(own_routes(host, family)?.len() == count))
}

/// Waits until the host's route of a prefix is by this gateway, or is gone.
fn until_route(host: &Host, family: &str, to: &str, gateway: Option<&str>) -> Result<()> {
    until(SOON, || {
        let routes = own_routes(host, family)?;
        let mut of_prefix = routes.iter().filter(|route| route.starts_with(&format!("{to} ")));
        Ok(match gateway {
            Some(gateway) => of_prefix.any(|route| route.contains(&format!(" via {gateway} dev artery0 "))),
            None => of_prefix.next().is_none(),
        })
    })
}

#[test]
fn the_host_has_the_routers_routes_while_they_last() {
    on_the_net("host-routes", |net| {
        let options = ["--route", "10.7.0.0/16=10.0.2.2", "--route", "10.6.0.0/16=blackhole", "--fpm"];
        let router = Running::start(net, &options)?;
        until_route(&net.r, "-4", "10.7.0.0/16", Some(FAR[0]))?;
        until_route(&net.r, "-4", "10.6.0.0/16", Some("169.254.0.1"))?;
        until_route(&net.r, "-4", "default", Some("169.254.0.1"))?;
        until_route(&net.r, "-6", "default", Some("fe80::1"))?;
        // Added, replaced and deleted by hand, in both families.
        net.b.address("lo", "10.9.1.1/32")?.address("lo", "fd09:1::1/128")?;
        router.say(&["route", "add", "10.9.0.0/16", "via", "10.0.2.3"])?;
        until_route(&net.r, "-4", "10.9.0.0/16", Some("10.0.2.3"))?;
        router.say(&["route", "replace", "10.9.0.0/16", "via", FAR[0]])?;
        until_route(&net.r, "-4", "10.9.0.0/16", Some(FAR[0]))?;
        router.say(&["route", "add", "fd09:1::/48", "via", FAR[1]])?;
        until_route(&net.r, "-6", "fd09:1::/48", Some(FAR[1]))?;
        for address in ["10.9.1.1", "fd09:1::1"] {
            assert_eq!(net.r.ping(address, 2)?.received, 2, "{address}");
        }
        router.say(&["route", "add", "default", "via", FAR[0]])?;
        until_route(&net.r, "-4", "default", Some(FAR[0]))?;
        router.say(&["route", "del", "10.9.0.0/16"])?;
        router.say(&["route", "del", "fd09:1::/48"])?;
        until_route(&net.r, "-4", "10.9.0.0/16", None)?;
        until_route(&net.r, "-6", "fd09:1::/48", None)?;
        // By a routing daemon.
        let server: SocketAddr = SERVER.parse().unwrap();
        let mut daemon = net.r.enter(|| TcpStream::connect_timeout(&server, SOON).unwrap())?;
        for (kind, gateway) in [(build::NEW_ROUTE, Some(FAR[0])), (build::DEL_ROUTE, None)] {
            let message = build::route(kind, (ip("10.5.0.0"), 16), 186, &[build::gateway(ip(FAR[0]))]);
            let len = (message.len() + 4) as u16;
            daemon.write_all(&[&[1, 1], &len.to_be_bytes()[..], &message].concat()).unwrap();
            until_route(&net.r, "-4", "10.5.0.0/16", gateway)?;
        }
        // Without interface there are no routes; with it, they are back.
        net.r.down("artery0")?;
        until_count(&net.r, "-4", 0)?;
        net.r.up("artery0")?;
        until_route(&net.r, "-4", "10.7.0.0/16", Some(FAR[0]))?;
        end(router.process)?;
        assert!(own_routes(&net.r, "-4")?.is_empty() && own_routes(&net.r, "-6")?.is_empty());
        Ok(())
    });
}

#[test]
fn a_host_gets_routes_also_by_an_interface_too_small_for_ipv6() {
    on_the_net("host-routes-small", |net| {
        let ports = ["--port", "eth0=10.0.1.1/24,mtu=1000", "--port", "eth1=10.0.2.1/24"];
        let options = [&ports[..], &["--route", "10.7.0.0/16=10.0.2.2"]].concat();
        let mut router = start_on(&net.r, &options)?;
        router.until_answered(&net.a, FAR[0])?;
        until_route(&net.r, "-4", "10.7.0.0/16", Some(FAR[0]))?;
        until_route(&net.r, "-4", "default", Some("169.254.0.1"))?;
        let said = router.process.stderr_so_far();
        assert!(!said.contains("failed"), "{said}");
        Ok(())
    });
}

/// Gives the host a management interface with routes of its own.
fn with_management(net: &Net) -> Result<Vec<String>> {
    net.r.run(["ip", "link", "add", "mgmt0", "type", "veth", "peer", "name", "mgmt1"])?;
    net.r.address("mgmt0", "192.0.2.2/24")?.up("mgmt0")?.up("mgmt1")?;
    for route in ["default", "10.9.0.0/16", "10.8.0.0/16"] {
        let metric = if route == "10.8.0.0/16" { "4261412864" } else { "100" };
        net.r.run(["ip", "route", "add", route, "via", "192.0.2.1", "metric", metric])?;
    }
    foreign(net)
}

fn foreign(net: &Net) -> Result<Vec<String>> {
    let shown = net.r.run(["ip", "-o", "route", "show", "dev", "mgmt0"])?.stdout;
    Ok(shown.lines().map(|line| line.trim().to_string()).collect())
}

#[test]
fn routes_of_others_stay_and_go_first_and_nothing_is_left_after_kill_9() {
    on_the_net("host-routes-foreign", |net| {
        let before = with_management(net)?;
        let options = [
            &["--route", "10.9.0.0/16=10.0.2.2", "--route", "10.8.0.0/16=10.0.2.2"][..],
            &["--route", "10.7.0.0/16=10.0.2.2", "--route", "default=10.0.2.2"],
        ];
        let mut router = Running::start(net, &options.concat())?;
        for _ in 0..2 {
            // The default and two prefixes: one has a route with the same metric.
            until_count(&net.r, "-4", 3)?;
            assert_eq!(foreign(net)?, before);
            for (to, device) in [
                ("203.0.113.1", "mgmt0"),
                ("10.9.0.1", "mgmt0"),
                ("10.8.0.1", "mgmt0"),
                ("10.7.0.1", "artery0"),
            ] {
                let found = net.r.run(["ip", "route", "get", to])?.stdout;
                assert!(found.contains(&format!(" dev {device} ")), "{found}");
            }
            until(SOON, || {
                let said = router.process.stderr_so_far();
                Ok(said.contains("the host does not take the route 10.8.0.0/16 by artery0: File exists"))
            })?;
            router.process.signal(Signal::KILL);
            router.process.wait(SOON)?;
            until_count(&net.r, "-4", 0)?;
            until_count(&net.r, "-6", 0)?;
            assert_eq!(foreign(net)?, before);
            router = Running::start(net, &options.concat())?;
        }
        end(router.process).map(drop)
    });
}

#[test]
fn a_host_gets_the_defaults_alone_where_there_are_more_than_10000_prefixes() {
    on_the_net("host-routes-many", |net| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.txt");
        let write = |count: u32| {
            let line = |n: u32| format!("11.{}.{}.0/24\n", n >> 8, n & 255);
            std::fs::write(&file, (0..count).map(line).collect::<String>()).unwrap();
        };
        write(10_000);
        let table = format!("{}=10.0.2.2", file.display());
        let mut router = Running::start(net, &["--table", &table])?;
        until_count(&net.r, "-4", 10_001)?;
        assert_eq!(own_routes(&net.r, "-6")?.len(), 1);
        router.say(&["route", "add", "12.0.0.0/8", "via", FAR[0]])?;
        until_count(&net.r, "-4", 1)?;
        until_route(&net.r, "-4", "default", Some("169.254.0.1"))?;
        let says = |router: &Running, what: &str| router.process.stderr_so_far().contains(what);
        until(SOON, || {
            Ok(says(&router, "more than 10000 routes: the host gets the default routes by artery0 only"))
        })?;
        write(500);
        router.process.signal(Signal::HUP);
        // With the route that was added by hand.
        until_count(&net.r, "-4", 502)?;
        until(SOON, || Ok(says(&router, "the host has each of the router's routes by artery0 again")))?;
        end(router.process).map(drop)
    });
}

#[test]
fn a_host_without_the_routers_routes_reaches_the_ports_networks() {
    on_the_net("host-routes-none", |net| {
        let router = Running::start(net, &["--no-host-routes", "--route", "10.9.0.0/16=10.0.2.2"])?;
        assert_eq!(net.r.ping(FAR[0], 2)?.received, 2);
        assert!(own_routes(&net.r, "-4")?.is_empty() && own_routes(&net.r, "-6")?.is_empty());
        end(router.process).map(drop)
    });
}

#[test]
fn tcp_reaches_link_local_addresses_both_ways_at_each_port() {
    on_the_net("host-link-local", |net| {
        let router = Running::start(net, &[])?;
        let of = |host: &Host, interface: &str| {
            Ok::<_, artery_rig::RigError>(link_local(host.mac(interface)?.parse().unwrap()))
        };
        for (host, port) in [(&net.a, "eth0"), (&net.b, "eth1")] {
            let (own, neighbor) = (of(&net.r, port)?, of(host, "eth0")?);
            until(SOON, || {
                let shown = net.r.run(["ip", "-6", "-o", "address", "show", "dev", "artery0"])?.stdout;
                Ok(shown.contains(&format!(" {own}/64 ")))
            })?;
            let tcp = host.iperf3(&net.r, &format!("{own}%eth0"), &["-n", "1M"])?;
            assert!(tcp.bits_per_second > 1e5, "{port} from its neighbor: {tcp:?}");
            let from = format!("{own}%artery0");
            let tcp = net.r.iperf3(host, &format!("{neighbor}%artery0"), &["-n", "1M", "-B", &from])?;
            assert!(tcp.bits_per_second > 1e5, "{port} from the host: {tcp:?}");
        }
        end(router.process).map(drop)
    });
}
