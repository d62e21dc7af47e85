//! FRR and BIRD on the interfaces of a router's ports, and at its neighbor: OSPF, BGP and BFD as they
//! are configured anywhere, and the routes that they find are what the router forwards by.

use super::host_ports::until_route;
use super::net::{FAR, Net, Running, on_the_net};
use crate::support::{end, until};
use artery_l3::router::link_local;
use artery_rig::{Daemons, Result};
use std::time::Duration;

/// How long protocols may take to converge on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(40);
/// Addresses behind the neighbor.
const BEHIND: [&str; 2] = ["10.9.1.1", "fd09:1::1"];

/// Gives the neighbor addresses behind it.
fn start(net: &Net) -> Result<Running> {
    net.b.address("lo", &format!("{}/32", BEHIND[0]))?.address("lo", &format!("{}/128", BEHIND[1]))?;
    let router = Running::start(net, &["--host-ports"])?;
    until(PATIENCE, || {
        let shown = net.r.run(["ip", "-6", "-o", "address", "show", "dev", "hp-eth1"])?.stdout;
        Ok(shown.contains(" fe80::"))
    })?;
    Ok(router)
}

/// Packets reach networks behind the neighbor, and do not cross the host.
fn assert_forwards(net: &Net, families: &[usize]) -> Result<()> {
    for address in families.iter().map(|family| BEHIND[*family]) {
        let before = net.r.counters("hp-eth0")?;
        assert_eq!(net.a.ping(address, 50)?.received, 50, "{address}");
        let after = net.r.counters("hp-eth0")?;
        let crossed = after.rx_packets + after.tx_packets - before.rx_packets - before.tx_packets;
        assert!(crossed < 40, "{address}: {crossed}");
    }
    Ok(())
}

/// The link-local address of the neighbor.
fn neighbor(net: &Net) -> Result<String> {
    Ok(link_local(net.b.mac("eth0")?.parse().unwrap()).to_string())
}

/// OSPFv2 and OSPFv3 on an interface, with BFD, without the router id that the configuration ends with.
fn ospf_of_frr(interface: &str) -> (String, String) {
    let v2 = format!(
        "interface {interface}\n ip ospf area 0\n ip ospf hello-interval 1\n ip ospf dead-interval 60\n \
         ip ospf network point-to-point\n ip ospf bfd\n\
         interface lo\n ip ospf area 0\nrouter ospf\n ospf router-id "
    );
    let v3 = format!(
        "interface {interface}\n ipv6 ospf6 area 0\n ipv6 ospf6 hello-interval 1\n \
         ipv6 ospf6 dead-interval 60\n ipv6 ospf6 network point-to-point\n ipv6 ospf6 bfd\n\
         interface lo\n ipv6 ospf6 area 0\nrouter ospf6\n ospf6 router-id "
    );
    (v2, v3)
}

#[test]
fn ospf_and_bfd_of_frr_run_on_the_interfaces_of_ports() {
    on_the_net("host-ports-frr-ospf", |net| {
        let router = start(net)?;
        let daemons = |host, interface, id: &str| {
            let (v2, v3) = ospf_of_frr(interface);
            let (v2, v3) = (format!("{v2}{id}\n"), format!("{v3}{id}\n"));
            Daemons::frr(host, &[("bfdd", ""), ("ospfd", &v2), ("ospf6d", &v3)])
        };
        let own = daemons(&net.r, "hp-eth1", "1.1.1.1")?;
        let mut theirs = daemons(&net.b, "eth0", "2.2.2.2")?;
        until_route(&router, "10.9.1.1/32", Some(("ospf", FAR[0])), PATIENCE)?;
        until_route(&router, "fd09:1::1/128", Some(("ospf", &neighbor(net)?)), PATIENCE)?;
        assert_forwards(net, &[0, 1])?;
        until(PATIENCE, || {
            let peers = own.vtysh(&["show bfd peers"])?;
            Ok(peers.matches("Status: up").count() == 2)
        })?;
        // The neighbor dies: BFD says so long before the 60 s of OSPF.
        theirs.kill();
        until_route(&router, "10.9.1.1/32", None, Duration::from_secs(20))?;
        until_route(&router, "fd09:1::1/128", None, Duration::from_secs(20))?;
        end(router.process).map(drop)
    });
}

#[test]
fn bgp_of_frr_runs_by_link_local_addresses_alone() {
    on_the_net("host-ports-frr-bgp", |net| {
        let router = start(net)?;
        let bgp = |interface: &str, number: u32, networks: [&str; 2]| {
            let zebra = format!("interface {interface}\n no ipv6 nd suppress-ra\n ipv6 nd ra-interval 3\n");
            let [v4, v6] = networks.map(|network| match network {
                "" => String::new(),
                network => format!("  network {network}\n"),
            });
            let bgp = format!(
                "router bgp {number}\n bgp router-id {number}.1.1.1\n no bgp ebgp-requires-policy\n \
                 no bgp default ipv4-unicast\n neighbor {interface} interface remote-as external\n \
                 neighbor {interface} timers connect 1\n address-family ipv4 unicast\n  \
                 neighbor {interface} activate\n{v4} exit-address-family\n address-family ipv6 unicast\n  \
                 neighbor {interface} activate\n{v6} exit-address-family\n"
            );
            (zebra, bgp)
        };
        let (zebra, config) = bgp("hp-eth1", 1, ["", ""]);
        let _own = Daemons::frr_with(&net.r, (&zebra, &[]), &[("bgpd", &config)])?;
        let (zebra, config) = bgp("eth0", 2, ["10.9.1.1/32", "fd09:1::1/128"]);
        let _theirs = Daemons::frr_with(&net.b, (&zebra, &[]), &[("bgpd", &config)])?;
        // Both families by the neighbor's link-local address (RFC 5549).
        let gateway = neighbor(net)?;
        until_route(&router, "fd09:1::1/128", Some(("bgp", &gateway)), PATIENCE)?;
        until_route(&router, "10.9.1.1/32", Some(("bgp", &gateway)), PATIENCE)?;
        assert_forwards(net, &[0, 1])?;
        end(router.process).map(drop)
    });
}

#[test]
fn ospf_and_bgp_of_bird_run_on_the_interfaces_of_ports() {
    on_the_net("host-ports-bird", |net| {
        let router = start(net)?;
        let bird = |interface: &str, own: &str, peer: &str, (us, them): (u32, u32), stub: &str| {
            format!(
                "router id {own};\nprotocol device {{ scan time 1; }}\n\
                 protocol direct {{ ipv4; interface \"lo\"; }}\n\
                 protocol kernel {{ ipv4 {{ export all; }}; scan time 1; }}\n\
                 protocol kernel {{ ipv6 {{ export all; }}; scan time 1; }}\n\
                 protocol ospf v3 {{ ipv6 {{ import all; }}; area 0 {{ \
                 interface \"{interface}\" {{ type ptp; hello 1; dead 40; }}; {stub} }}; }}\n\
                 protocol bgp {{ local as {us}; neighbor {peer} as {them}; connect retry time 1; \
                 connect delay time 1; \
                 ipv4 {{ import all; export where source = RTS_DEVICE; next hop self; }}; }}\n"
            )
        };
        let _own = Daemons::bird(&net.r, &bird("hp-eth1", "10.0.2.1", FAR[0], (65001, 65002), ""))?;
        let _theirs = Daemons::bird(
            &net.b,
            &bird("eth0", FAR[0], "10.0.2.1", (65002, 65001), "stubnet fd09:1::1/128;"),
        )?;
        until_route(&router, "10.9.1.1/32", Some(("bird", FAR[0])), PATIENCE)?;
        until_route(&router, "fd09:1::1/128", Some(("bird", &neighbor(net)?)), PATIENCE)?;
        assert_forwards(net, &[0, 1])?;
        end(router.process).map(drop)
    });
}
