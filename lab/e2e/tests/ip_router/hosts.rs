//! Hosts that ping and trace: the router answers for itself, forwards, and says why it does not.

use super::support::{HOST_LINK, answered, until_answered, with_net};
use artery_rig::{RigError, Traffic};

#[test]
fn pings_of_both_families_are_answered_and_forwarded() {
    with_net("hosts-ping", 2, |net| {
        let router = net.start(&[])?;
        for address in ["10.0.1.1", "10.0.2.1", "fd00:1::1", "fd00:2::1", "10.0.2.2", "fd00:2::2"] {
            answered(net.a(), address, 5)?;
        }
        for address in ["10.0.1.2", "fd00:1::2"] {
            answered(net.b(), address, 5)?;
        }
        let link_local = router.port("eth1")?["link_local"].as_str().unwrap().to_string();
        let report = net.a().ping_with(&link_local, 3, &["-I", "eth0"])?;
        assert_eq!(report.received, 3, "{}", report.text);
        router.end()
    });
}

#[test]
fn traces_of_both_families_show_the_router_and_then_the_host() {
    with_net("hosts-trace", 2, |net| {
        let router = net.start(&[])?;
        for (family, hop, end) in [("-4", "10.0.1.1", "10.0.2.2"), ("-6", "fd00:1::1", "fd00:2::2")] {
            for method in ["-U", "-I", "-T"] {
                let trace = ["traceroute", family, method, "-n", "-q", "1", "-w", "1", end];
                let trace = net.a().run(trace)?.stdout;
                let hops: Vec<&str> =
                    trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
                assert_eq!(hops, [hop, end], "{method}: {trace}");
            }
        }
        assert!(router.count("icmp-errors")? >= 6);
        router.end()
    });
}

#[test]
fn a_packet_whose_time_is_over_ends_with_an_error_from_the_side_it_came_by() {
    with_net("hosts-ttl", 2, |net| {
        let router = net.start(&[])?;
        for (address, from) in [("10.0.2.2", "10.0.1.1"), ("fd00:2::2", "fd00:1::1")] {
            let report = net.a().ping_with(address, 3, &["-t", "1"])?;
            assert_eq!((report.received, report.errors), (0, 3), "{}", report.text);
            let is_from = report.text.contains(&format!("From {from} icmp_seq=1 Time"));
            assert!(is_from, "{}", report.text);
            let report = net.a().ping_with(address, 3, &["-t", "2"])?;
            assert_eq!(report.received, 3, "{}", report.text);
        }
        // A time to live of 1 is enough for the router itself.
        assert_eq!(net.a().ping_with("10.0.1.1", 1, &["-t", "1"])?.received, 1);
        assert_eq!(router.drops("ttl-expired")?, 6);
        router.end()
    });
}

#[test]
fn destinations_that_lead_nowhere_are_told_by_the_kind_of_their_route() {
    with_net("hosts-nowhere", 2, |net| {
        let ends = [
            "20.0.0.0/8=unreachable",
            "30.0.0.0/8=prohibited",
            "40.0.0.0/8=blackhole",
            "fd20::/16=unreachable",
        ];
        let options: Vec<&str> = ends.iter().flat_map(|end| ["--route", end]).collect();
        let router = net.start(&options)?;
        for (address, said) in [
            ("20.0.0.1", "Destination Host Unreachable"),
            ("30.0.0.1", "Packet filtered"),
            ("50.0.0.1", "Destination Net Unreachable"),
            ("fd20::1", "Destination unreachable: Unknown code 6"),
            ("fd50::1", "No route"),
        ] {
            let report = net.a().ping(address, 2)?;
            assert!(report.errors == 2 && report.text.contains(said), "{address}: {}", report.text);
        }
        let report = net.a().ping_with("40.0.0.1", 2, &["-W", "0.2"])?;
        assert_eq!((report.received, report.errors), (0, 0), "a black hole says nothing: {}", report.text);
        assert_eq!((router.drops("blackhole")?, router.drops("no-route")?), (2, 4));
        router.end()
    });
}

#[test]
fn routes_are_added_and_removed_while_hosts_talk() {
    with_net("hosts-routes", 2, |net| {
        let router = net.start(&[])?;
        net.b().address("lo", "10.9.0.1/32")?;
        assert!(net.a().ping("10.9.0.1", 1)?.errors > 0, "not resolved yet");
        router.say(&["route", "add", "10.9.0.0/16", "via", "10.0.2.2"])?;
        answered(net.a(), "10.9.0.1", 3)?;
        let refusal = router.refused(&["route", "add", "10.9.0.0/16", "via", "10.0.2.3"], 1)?;
        assert!(refusal.contains("File exists"), "{refusal}");
        router.say(&["route", "del", "10.9.0.0/16"])?;
        assert!(net.a().ping("10.9.0.1", 1)?.errors > 0);
        router.end()
    });
}

#[test]
fn programs_of_the_routers_host_are_reached_at_its_addresses_and_reach_others() {
    with_net("hosts-host", 2, |net| {
        let router = net.start(&[])?;
        for address in ["10.0.1.1", "10.0.2.1", "fd00:1::1"] {
            let tcp = net.a().iperf3(&net.r, address, &["-n", "1M"])?;
            assert!(tcp.bits_per_second > 1e5, "{address}: {tcp:?}");
        }
        answered(&net.r, "10.0.1.2", 3)?;
        answered(&net.r, "fd00:2::2", 3)?;
        router.end()
    });
}

#[test]
fn a_host_that_could_send_to_another_gateway_itself_is_told_and_heeds_it() {
    with_net("hosts-redirect", 2, |net| {
        // The other gateway doesn't exist: it is enough that both have a neighbor entry for it.
        let (other, far) = ("02:00:00:00:66:09", ["10.9.0.1", "fd09::1"]);
        let router = net.start(&["--route", "10.9.0.0/16=10.0.1.9", "--route", "fd09::/16=fe80::9%eth1"])?;
        let a = net.a();
        let ours = router.port("eth1")?["link_local"].as_str().unwrap().to_string();
        a.run(["ip", "-6", "route", "replace", "default", "via", &ours, "dev", HOST_LINK])?;
        a.sysctl("net.ipv4.conf.all.accept_redirects", "1")?;
        for (gateway, far) in ["10.0.1.9", "fe80::9"].into_iter().zip(far) {
            router.say(&["neighbor", "add", gateway, "lladdr", other, "dev", "eth1"])?;
            a.run(["ip", "neighbor", "replace", gateway, "lladdr", other, "dev", HOST_LINK])?;
            let way = || Ok::<_, RigError>(a.run(["ip", "route", "get", far])?.stdout);
            assert!(!way()?.contains(gateway));
            a.ping_with(far, 2, &["-W", "0.2"])?;
            assert!(way()?.contains(&format!("via {gateway} dev")), "{}", way()?);
        }
        assert!(router.count("redirects")? >= 2);
        router.end()
    });
}

#[test]
fn two_workers_are_one_router() {
    with_net("hosts-workers", 2, |net| {
        let router = net.start(&["--workers", "2"])?;
        for (far, near) in [("10.0.2.2", "10.0.1.1"), ("fd00:2::2", "fd00:1::1")] {
            answered(net.a(), near, 5)?;
            let report = Traffic::between(net.a(), net.b(), far).frames(3000).rate(2000).flows(16).run()?;
            assert_eq!((report.received, report.reordered, report.duplicated), (3000, 0, 0), "{report}");
            assert_eq!(net.a().ping_with(far, 2, &["-t", "1"])?.errors, 2);
        }
        net.r.down("eth2")?;
        router.until_port("eth2", false)?;
        assert_eq!(net.a().ping("10.0.2.2", 2)?.errors, 2);
        net.r.up("eth2")?;
        until_answered(net.a(), "10.0.2.2")?;
        router.end()
    });
}
