//! What may happen to an interface while a router uses it, by packet sockets and by AF_XDP: it goes down and
//! up, changes its MTU or address, has fewer queues than the router workers; and the router is killed.

use crate::support::{
    FAR, Hosts, METHODS, Running, SOON, assert_confined, end, spawn, until_answered, wire, with_hosts,
};
use artery_rig::{Host, Process, Result, Signal, Traffic};
use std::time::{Duration, Instant};

/// Starts a router on `r` that passes all that arrives on one side to the other, and waits until it does.
fn start(hosts: &Hosts, method: &str, options: &[&str]) -> Result<Process> {
    let mut router = spawn(&hosts.r, &wire(method), options)?;
    until_answered(&hosts.a, FAR, &mut router)?;
    assert_confined(&router);
    Ok(router)
}

#[test]
fn each_way_to_an_interface_is_said_with_its_reason_and_carries_packets() {
    with_hosts("life-ways", |hosts| {
        for (method, said) in [
            ("AUTO", "eth0: packet sockets with a queue and virtio-net headers, since"),
            ("LINUX", "eth0: packet sockets with a queue and virtio-net headers, as METHOD says"),
            ("XDP", "eth0: AF_XDP on 1 queue of veth, copying"),
            ("XDP_GENERIC", "in the kernel (generic XDP)"),
        ] {
            let router = start(hosts, method, &[])?;
            let report = hosts.a.ping_with(FAR, 30, &["-i", "0.01", "-s", "1400"])?;
            assert_eq!((report.received, report.duplicates), (30, 0), "{method}: {}", report.text);
            let stderr = end(router)?.stderr;
            assert!(stderr.contains(said), "{method}: {stderr}");
        }
        Ok(())
    });
}

#[test]
fn tcp_passes_by_af_xdp_with_the_offloads_that_hosts_have() {
    with_hosts("life-tcp", |hosts| {
        let router = start(hosts, "XDP", &[])?;
        let tcp = hosts.a.iperf3(&hosts.b, FAR, &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        end(router).map(drop)
    });
}

/// Packets that a host's kernel refused because of their checksums, TCP and UDP.
fn bad_checksums(host: &Host) -> Result<u64> {
    let table = host.run(["cat", "/proc/self/net/snmp"])?.stdout;
    let count = |protocol: &str| -> u64 {
        let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.find(|(name, _)| *name == "InCsumErrors").unwrap().1.parse().unwrap()
    };
    Ok(count("Tcp:") + count("Udp:"))
}

#[test]
fn tcpdump_on_both_sides_sees_the_same_and_kernels_find_every_checksum_right() {
    with_hosts("life-tcpdump", |hosts| {
        // So that the receivers look at checksums, which they trust a virtual link with otherwise.
        hosts.r.offloads("eth0", false)?;
        hosts.r.offloads("eth1", false)?;
        for method in METHODS {
            let router = start(hosts, method, &[])?;
            let icmp = |side| ["-Q", side, "icmp"];
            let left = hosts.a.capture_with("eth0", &icmp("out"))?;
            let right = hosts.b.capture_with("eth0", &icmp("in"))?;
            assert_eq!(hosts.a.ping_with(FAR, 20, &["-i", "0.01", "-s", "900"])?.received, 20);
            let (sent, arrived) = (left.wait_for(20, SOON)?, right.wait_for(20, SOON)?);
            let bytes =
                |frames: Vec<artery_rig::Frame>| frames.into_iter().map(|f| f.bytes).collect::<Vec<_>>();
            assert_eq!(bytes(sent), bytes(arrived), "{method}");
            // Programs in the kernel get no frames longer than theirs.
            if method != "XDP_GENERIC" {
                hosts.a.iperf3(&hosts.b, FAR, &["-t", "1"])?;
            }
            let udp = hosts.a.iperf3(&hosts.b, FAR, &["-u", "-b", "20M", "-l", "1000", "-t", "1"])?;
            assert!(udp.bits_per_second > 1e6, "{udp:?}");
            assert_eq!((bad_checksums(&hosts.a)?, bad_checksums(&hosts.b)?), (0, 0), "{method}");
            end(router)?;
        }
        Ok(())
    });
}

#[test]
fn two_workers_share_the_only_queue_and_keep_flows_in_order() {
    with_hosts("life-workers", |hosts| {
        for method in ["LINUX", "XDP"] {
            let text = wire(method).replace("Queue -> ", "");
            let mut router = spawn(&hosts.r, &text, &["--workers", "2"])?;
            until_answered(&hosts.a, FAR, &mut router)?;
            // Sixteen flows, which both workers get some of. Late is what comes after a later
            // one of its flow.
            let report =
                Traffic::between(&hosts.a, &hosts.b, FAR).frames(10_000).rate(5000).flows(16).run()?;
            assert_eq!((report.sent, report.received), (10_000, 10_000), "{method}: {report}");
            assert_eq!((report.reordered, report.duplicated), (0, 0), "{method}: {report}");
            let tcp = hosts.a.iperf3(&hosts.b, FAR, &["-t", "1", "-P", "4"])?;
            assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
            let stderr = end(router)?.stderr;
            assert_eq!(stderr.contains("flows are dealt to 2 workers"), method == "XDP", "{stderr}");
        }
        Ok(())
    });
}

#[test]
fn an_interface_that_went_down_is_used_again_when_it_is_up() {
    with_hosts("life-down", |hosts| {
        for method in METHODS {
            let mut router = start(hosts, method, &[])?;
            hosts.r.down("eth0")?;
            router.wait_for("eth0: interface is down", SOON)?;
            hosts.r.up("eth0")?;
            until_answered(&hosts.a, FAR, &mut router)?;
            end(router)?;
        }
        Ok(())
    });
}

/// Makes the interface eth1 of `r` again, with `b` at the other end.
fn make_again(hosts: &Hosts, mac: &str) -> Result<()> {
    // `a` knows the address.
    let far = ["type", "veth", "peer", "name", "eth0", "address", mac, "netns", hosts.b.namespace()];
    hosts.r.run([&["ip", "link", "add", "eth1"][..], &far].concat())?;
    hosts.b.address("eth0", &format!("{FAR}/24"))?.up("eth0")?;
    hosts.r.up("eth1").map(drop)
}

#[test]
fn an_interface_that_is_renamed_moved_or_made_again_is_used_on_by_each_method() {
    with_hosts("life-again", |hosts| {
        let mac = hosts.b.mac("eth0")?;
        for method in METHODS {
            let mut router = start(hosts, method, &[])?;
            hosts.r.run(["ip", "link", "set", "eth1", "name", "wan0"])?;
            router.wait_for("eth1: its interface is called wan0 now, and was eth1", SOON)?;
            assert_eq!(hosts.a.ping(FAR, 5)?.received, 5, "{method}");
            hosts.r.run(["ip", "link", "set", "wan0", "name", "eth1"])?;
            for number in 0..3 {
                if number == 1 {
                    hosts.r.run(["ip", "link", "set", "eth1", "netns", hosts.a.namespace()])?;
                    hosts.a.run(["ip", "link", "set", "eth1", "netns", hosts.r.namespace()])?;
                    hosts.r.up("eth1")?;
                } else {
                    hosts.r.run(["ip", "link", "delete", "eth1"])?;
                    make_again(hosts, &mac)?;
                }
                until_answered(&hosts.a, FAR, &mut router)?;
                let report = hosts.a.ping(FAR, 10)?;
                assert_eq!((report.received, report.duplicates), (10, 0), "{method}: {}", report.text);
            }
            // AF_XDP sockets, too, were opened by the helper: the router has no more rights than before.
            assert_confined(&router);
            // The host sees nothing of what arrives at the one that is there now.
            hosts.r.address("eth1", "10.0.0.3/24")?;
            assert_eq!(hosts.b.ping("10.0.0.3", 1)?.received, 0, "{method}");
            let stderr = end(router)?.stderr;
            let found = stderr.matches("eth1: there is an interface 'eth1' again").count();
            assert_eq!(found, 3, "{method}: {stderr}");
            hosts.r.run(["ip", "address", "flush", "dev", "eth1"])?;
        }
        Ok(())
    });
}

#[test]
fn an_element_that_only_receives_notices_that_its_interface_left_and_returned() {
    with_hosts("life-receiver", |hosts| {
        let config = "FromDevice(eth1, PROMISC true) -> seen :: Counter -> Discard;";
        let router = Running::run(&hosts.r, config, &["-R"])?;
        hosts.r.run(["ip", "link", "set", "eth1", "netns", hosts.a.namespace()])?;
        hosts.a.run(["ip", "link", "set", "eth1", "netns", hosts.r.namespace()])?;
        hosts.r.up("eth1")?;
        router.wait_for("eth1: there is an interface 'eth1' again", SOON)?;
        let before = router.number("seen.count")?;
        // No host has the address: it is asked for.
        hosts.b.ping("10.0.0.9", 3)?;
        router.until_number("seen.count", before + 1)?;
        router.end()
    });
}

#[test]
fn changes_of_mtu_and_address_are_said_and_the_new_mtu_is_used() {
    with_hosts("life-changes", |hosts| {
        let router = start(hosts, "LINUX", &[])?;
        for (host, interface) in
            [(&hosts.a, "eth0"), (&hosts.b, "eth0"), (&hosts.r, "eth0"), (&hosts.r, "eth1")]
        {
            host.mtu(interface, 4000)?;
        }
        router.wait_for("eth0: its MTU is 4000 now, and was 1500", SOON)?;
        router.wait_for("eth1: its MTU is 4000 now, and was 1500", SOON)?;
        let report = hosts.a.ping_with(FAR, 5, &["-M", "do", "-s", "3900", "-i", "0.05"])?;
        assert_eq!(report.received, 5, "{}", report.text);
        let tcp = hosts.a.iperf3(&hosts.b, FAR, &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "long segments pass, too: {tcp:?}");
        hosts.r.set_mac("eth0", "02:00:00:00:00:42")?;
        router.wait_for("its Ethernet address is 02:00:00:00:00:42 now", SOON)?;
        end(router).map(drop)
    });
}

#[test]
fn af_xdp_follows_a_new_mtu_as_far_as_a_frame_goes() {
    with_hosts("life-xdp-mtu", |hosts| {
        let router = start(hosts, "XDP", &[])?;
        let ping = || hosts.a.ping_with(FAR, 5, &["-M", "do", "-s", "1600", "-i", "0.05"]);
        for (host, interface) in
            [(&hosts.a, "eth0"), (&hosts.b, "eth0"), (&hosts.r, "eth0"), (&hosts.r, "eth1")]
        {
            host.mtu(interface, 1700)?;
        }
        router.wait_for("eth0: its MTU is 1700 now, and was 1500", SOON)?;
        router.wait_for("eth1: its MTU is 1700 now, and was 1500", SOON)?;
        let report = ping()?;
        assert_eq!(report.received, 5, "{}", report.text);
        end(router).map(drop)
    });
}

#[test]
fn a_killed_router_leaves_its_interfaces_to_the_host_at_once() {
    with_hosts("life-killed", |hosts| {
        hosts.r.address("eth0", "10.0.0.3/24")?;
        for method in METHODS {
            let mut router = start(hosts, method, &[])?;
            assert_eq!(hosts.a.ping("10.0.0.3", 1)?.received, 0, "{method}: the host sees nothing");
            router.signal(Signal::KILL);
            assert!(!router.wait(SOON)?.succeeded());
            assert_eq!(hosts.a.ping("10.0.0.3", 2)?.received, 2, "{method}");
            let details = hosts.r.run(["ip", "-d", "link", "show", "eth0"])?.stdout;
            assert!(details.contains("promiscuity 0") && !details.contains("xdp"), "{method}: {details}");
            end(start(hosts, method, &[])?)?;
        }
        Ok(())
    });
}

#[test]
fn an_idle_router_leaves_its_processor_alone() {
    with_hosts("life-idle", |hosts| {
        for method in METHODS {
            let router = start(hosts, method, &["--workers", "2"])?;
            let ticks = || -> u64 {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", router.id())).unwrap();
                let fields = stat.rsplit(')').next().unwrap().split_whitespace();
                fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
            };
            let (before, start) = (ticks(), Instant::now());
            std::thread::sleep(Duration::from_secs(2));
            // A tick is a hundredth of a second.
            let share = (ticks() - before) as f64 / start.elapsed().as_secs_f64();
            assert!(share < 2.0, "{method}: {share} % of a processor");
            end(router)?;
        }
        Ok(())
    });
}
