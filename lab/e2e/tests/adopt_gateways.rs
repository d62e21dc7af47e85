//! Adopted ports before several gateways: flows are balanced as the routes say, and gateways that die, change
//! their address or lose their link are noticed as the kernel would alone.

use crate::support::adopting::{Fan, by_kernel, forwarded, with_gateways};
use crate::support::{SOON, until};
use artery_rig::{Process, Result, RigError, Skip};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Flows that differ in their destinations.
fn by_address(count: u16) -> Vec<(IpAddr, u16)> {
    let v4 = (0..count).map(|number| (IpAddr::from([198, 18, (number >> 8) as u8, number as u8]), 2000));
    let v6 =
        (0..count).map(|number| (IpAddr::from([0x2001, 0xdb8, 0xff, 0, 0, 0, number * 7, number]), 2000));
    v4.chain(v6).collect()
}

/// Flows to one destination of each family, which differ in their ports.
fn by_port(count: u16) -> Vec<(IpAddr, u16)> {
    let to: [IpAddr; 2] = [[198, 18, 0, 1].into(), [0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1].into()];
    to.into_iter().flat_map(|to| (0..count).map(move |number| (to, 2000 + number))).collect()
}

/// Routes by gateways with these weights.
fn balance(net: &Fan, weights: &[u32]) -> Result<()> {
    let hops = |gateway: fn(usize) -> String| {
        let hop = |(number, weight): (usize, &u32)| {
            format!(" nexthop via {} dev eth{} weight {weight}", gateway(number + 1), number + 1)
        };
        weights.iter().enumerate().map(hop).collect::<String>()
    };
    let v4 = hops(|number| format!("10.0.{number}.2"));
    let v6 = hops(|number| format!("2001:db8:{number}::2"));
    shell(net, &format!("ip route replace 198.18.0.0/16 {v4}; ip route replace 2001:db8:ff::/64 {v6}"))
}

fn shell(net: &Fan, commands: &str) -> Result<()> {
    net.r.run(["sh", "-e", "-c", commands]).map(drop)
}

/// Waits until the kernel has nothing to forward of some flows, whose last run is given by gateways.
fn until_fast(net: &Fan, flows: &[(IpAddr, u16)]) -> Result<Vec<u64>> {
    let mut each = Vec::new();
    until(SOON, || {
        let before = by_kernel(&net.r)?;
        each = net.send(flows)?;
        Ok(by_kernel(&net.r)? == before)
    })?;
    Ok(each)
}

fn is_balanced(each: &[u64], weights: &[u32], what: &str) {
    let (all, weight): (u64, u32) = (each.iter().sum(), weights.iter().sum());
    for (count, part) in each.iter().zip(weights) {
        let wanted = all * u64::from(*part) / u64::from(weight);
        assert!(wanted.abs_diff(*count) <= wanted / 5, "{what}: {each:?} is not as {weights:?}");
    }
}

fn flows_are_balanced(path: &str) {
    with_gateways(&format!("adopt-ecmp-{path}"), 3, |net| {
        balance(net, &[1, 1, 1])?;
        let mut adopted = net.adopt(path)?;
        let addresses = by_address(1500);
        let each = until_fast(net, &addresses)?;
        is_balanced(&each, &[1, 1, 1], "by addresses");
        assert_eq!(net.send(&addresses)?, each, "flows keep their gateways");
        balance(net, &[1, 1, 2])?;
        until(SOON, || Ok(net.send(&addresses)? != each))?;
        is_balanced(&until_fast(net, &addresses)?, &[1, 1, 2], "by weights");
        // Flows between the same addresses stay together until the kernel hashes ports too.
        let ports = by_port(1500);
        assert!(until_fast(net, &ports)?.contains(&0), "two flows go by three gateways");
        net.r.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
        net.r.sysctl("net.ipv6.fib_multipath_hash_policy", "1")?;
        balance(net, &[1, 1, 1])?;
        until(SOON, || Ok(net.send(&ports)?.iter().all(|count| *count > 800)))?;
        is_balanced(&until_fast(net, &ports)?, &[1, 1, 1], "by ports");
        let report = adopted.stop(SOON)?.stdout;
        assert!(forwarded(&report, "eth0") > 9000, "{report}");
        Ok(())
    });
}

#[test]
fn flows_are_balanced_among_three_gateways_by_tc() {
    flows_are_balanced("tc");
}

#[test]
fn flows_are_balanced_among_three_gateways_by_xdp() {
    flows_are_balanced("xdp");
}

#[test]
fn flows_go_by_the_gateways_that_are_left_when_links_fail() {
    with_gateways("adopt-link-failure", 3, |net| {
        net.r.sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1")?;
        net.r.sysctl("net.ipv6.conf.all.ignore_routes_with_linkdown", "1")?;
        balance(net, &[1, 1, 1])?;
        let mut adopted = net.adopt("tc")?;
        let flows = by_address(300);
        let goes_by = |expected: [bool; 3]| {
            until(SOON, || {
                let each = net.send(&flows)?;
                Ok(each.iter().zip(expected).all(|(count, goes)| (*count > 0) == goes))
            })?;
            until_fast(net, &flows).map(drop)
        };
        goes_by([true, true, true])?;
        // Without a carrier, and back again.
        net.gateways[0].sysctl("net.ipv6.conf.eth0.keep_addr_on_down", "1")?;
        net.gateways[0].down("eth0")?;
        goes_by([false, true, true])?;
        net.gateways[0].up("eth0")?.route("default", "10.0.1.1")?.route("default", "2001:db8:1::1")?;
        goes_by([true, true, true])?;
        // Set down: the kernel removes next hops without a notification.
        net.r.down("eth2")?;
        goes_by([true, false, true])?;
        // Objects go with their interfaces, without a word about the routes.
        shell(
            net,
            "ip link set eth2 up
            ip nexthop add id 1 via 10.0.1.2 dev eth1; ip nexthop add id 2 via 10.0.2.2 dev eth2
            ip nexthop add id 3 via 10.0.3.2 dev eth3; ip nexthop add id 10 group 1/2/3
            ip route replace 198.18.0.0/16 nhid 10
            ip address replace 2001:db8:2::1/64 dev eth2",
        )?;
        balance_v6_by_objects(net)?;
        goes_by([true, true, true])?;
        net.gateways[2].down("eth0")?;
        goes_by([true, true, false])?;
        adopted.stop(SOON).map(drop)
    });
}

fn balance_v6_by_objects(net: &Fan) -> Result<()> {
    shell(
        net,
        "for n in 1 2 3; do ip nexthop add id 2$n via 2001:db8:$n::2 dev eth$n; done
        ip nexthop add id 20 group 21/22/23
        ip -6 route replace 2001:db8:ff::/64 nhid 20",
    )
}

/// One gateway, to which a host pings all the time; neighbors are asked more often than they usually are.
fn with_a_stream(label: &str, body: impl Fn(&Fan, &Process) -> Result<()>) {
    with_gateways(label, 1, |net| {
        for (name, value) in [("base_reachable_time_ms", "1000"), ("retrans_time_ms", "200")] {
            net.r.sysctl(&format!("net.ipv4.neigh.eth1.{name}"), value)?;
        }
        net.r.sysctl("net.ipv4.neigh.eth1.delay_first_probe_time", "2")?;
        balance(net, &[1])?;
        let stream = net.a.spawn(["ping", "-i", "0.05", "198.18.0.1"])?;
        stream.wait_for("bytes from", SOON)?;
        body(net, &stream)
    });
}

/// Waits until what the router forwards are pings of the stream, and none of them by its kernel.
fn until_the_stream_is_fast(net: &Fan) -> Result<()> {
    until(SOON, || {
        let [kernel, sent] = [by_kernel(&net.r)?, net.r.counters("eth1")?.tx_packets];
        std::thread::sleep(Duration::from_millis(300));
        Ok(net.r.counters("eth1")?.tx_packets > sent && by_kernel(&net.r)? == kernel)
    })
}

#[test]
fn neighbors_that_only_the_fast_path_uses_are_asked_again() {
    with_a_stream("adopt-fresh", |net, _stream| {
        let mut adopted = net.adopt("tc")?;
        until_the_stream_is_fast(net)?;
        let before = by_kernel(&net.r)?;
        // Requests to its own link address are for an entry that is known; three are more than
        // one change of state.
        let mac = net.gateways[0].mac("eth0")?;
        let filter = format!("arp[6:2] = 1 and ether dst {mac}");
        net.gateways[0].capture_with("eth0", &["-Q", "in", &filter])?.wait_for(3, 3 * SOON)?;
        assert_eq!(by_kernel(&net.r)?, before, "all of the stream was fast meanwhile");
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn neighbors_that_somebody_gave_the_kernel_stay_as_they_are() {
    with_a_stream("adopt-given", |net, _stream| {
        let mac = net.gateways[0].mac("eth0")?;
        for (given, expected) in [
            ("nud permanent", "PERMANENT"),
            ("nud reachable extern_learn", "extern_learn"),
            ("nud stale managed", "managed"),
        ] {
            let neighbor = net.r.run(["ip", "-4", "neigh", "show", "dev", "eth1"])?.stdout;
            let address = neighbor.split_whitespace().next().expect("the stream has found it").to_owned();
            let all = format!("ip neigh replace {address} lladdr {mac} dev eth1 {given}");
            shell(net, &all)?;
            let mut adopted = net.adopt("tc")?;
            until_the_stream_is_fast(net)?;
            // Longer than it takes to report used neighbors to the kernel.
            std::thread::sleep(Duration::from_secs(3));
            until_the_stream_is_fast(net)?;
            let shown = net.r.run(["ip", "-4", "neigh", "show", "dev", "eth1"])?.stdout;
            assert!(shown.contains(expected), "{given}: {shown}");
            adopted.stop(SOON)?;
        }
        Ok(())
    });
}

/// Time until the sender learns that the gateway is dead.
fn death_is_noticed(net: &Fan, stream: &Process) -> Result<Duration> {
    net.gateways[0].drop_one_in("eth0", 1, "")?;
    let start = Instant::now();
    stream.wait_for("Destination Host Unreachable", 3 * SOON)?;
    Ok(start.elapsed())
}

#[test]
fn a_dead_gateway_is_noticed_as_by_the_kernel_alone() {
    with_a_stream("adopt-alone-dead", |net, stream| {
        eprintln!("the kernel alone: dead after {:?}", death_is_noticed(net, stream)?);
        Ok(())
    });
    with_a_stream("adopt-dead", |net, stream| {
        let mut adopted = net.adopt("tc")?;
        until_the_stream_is_fast(net)?;
        eprintln!("adopted: dead after {:?}", death_is_noticed(net, stream)?);
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn the_link_address_of_a_gateway_is_followed() {
    with_a_stream("adopt-moved", |net, _stream| {
        let mut adopted = net.adopt("tc")?;
        until_the_stream_is_fast(net)?;
        // No notification of it is sent.
        net.gateways[0].set_mac("eth0", "02:00:00:00:99:01")?;
        let start = Instant::now();
        let answers = || Ok(net.a.ping_with("198.18.0.1", 1, &["-W", "1"])?.received == 1);
        until(SOON, answers)?;
        eprintln!("silently moved: answers after {:?}", start.elapsed());
        until_the_stream_is_fast(net)?;
        // The host announces it to all, as one that takes over an address does.
        net.gateways[0].sysctl("net.ipv4.conf.eth0.arp_notify", "1")?;
        let start = Instant::now();
        net.gateways[0].set_mac("eth0", "02:00:00:00:99:02")?;
        until(SOON, answers)?;
        eprintln!("moved and announced: answers after {:?}", start.elapsed());
        until_the_stream_is_fast(net)?;
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn vlans_of_adopted_ports_are_forwarded_between() {
    with_gateways("adopt-vlan", 1, |net| {
        let add = ["ip", "link", "add", "link", "eth0", "name", "eth0.7", "type", "vlan", "id", "7"];
        for host in [&net.a, &net.r] {
            match host.run(add) {
                Err(RigError::Failed(failure)) if failure.output.stderr.contains("Unknown device type") => {
                    return Err(Skip::KernelLacks("VLANs (8021q)".into()).into());
                }
                made => drop(made?),
            }
            host.up("eth0.7")?;
        }
        balance(net, &[1])?;
        net.r.address("eth0.7", "10.7.0.1/24")?;
        net.a.address("eth0.7", "10.7.0.2/24")?;
        net.a.run(["ip", "route", "replace", "default", "via", "10.7.0.1"])?;
        let mut adopted = net.adopt("tc")?;
        until(SOON, || {
            let before = by_kernel(&net.r)?;
            let pings = net.a.ping_with("198.18.0.1", 5, &["-i", "0.01", "-W", "1"])?;
            Ok(pings.received == 5 && by_kernel(&net.r)? == before)
        })?;
        adopted.stop(SOON).map(drop)
    });
}
