//! `artery adopt` between two hosts whose router is the kernel: what it forwards, what it leaves to the
//! kernel, and that it follows what changes.

use crate::support::adopting::{Net, by_kernel, echoes, forwarded, on_the_net};
use crate::support::{Running, SOON, until};
use artery_rig::Result;

const FAR: [&str; 2] = ["10.0.2.2", "2001:db8:2::2"];

/// Adopts both ports of `r` and waits until packets are forwarded.
fn adopt(net: &Net, path: &str) -> Result<Running> {
    let adopted = Running::adopt(net, path, &[])?;
    // The kernel has asked for both neighbors when this is answered.
    FAR.iter().try_for_each(|far| until(SOON, || Ok(net.a.ping(far, 1)?.received == 1)))?;
    Ok(adopted)
}

fn hosts_reach_each_other(net: &Net, path: &str) -> Result<()> {
    let mut adopted = adopt(net, path)?;
    let before = by_kernel(&net.r)?;
    for far in FAR {
        let pings = net.a.ping_with(far, 20, &["-i", "0.01"])?;
        assert_eq!(pings.received, 20, "{path} {far}");
    }
    assert_eq!(by_kernel(&net.r)?, before, "{path}: nothing of that was the kernel's");
    // What ends here, or must be answered, is the kernel's as ever.
    assert_eq!(net.a.ping("10.0.1.1", 1)?.received, 1, "{path}: the router itself");
    let expired = net.a.command(["ping", "-c1", "-W2", "-t1", FAR[0]]).output()?;
    assert!(expired.stdout.contains("10.0.1.1") && expired.stdout.contains("exceeded"), "{}", expired.stdout);
    let too_big = net.r.mtu("eth1", 1400).and_then(|_| {
        until(SOON, || {
            let big = net.a.command(["ping", "-c1", "-W1", "-Mdo", "-s1372", FAR[0]]).output()?;
            let big_enough = net.a.command(["ping", "-c1", "-W1", "-Mdo", "-s1373", FAR[0]]).output()?;
            let text = big_enough.stdout + &big_enough.stderr;
            Ok(big.succeeded() && (text.contains("1400") || text.contains("too long")))
        })
    });
    too_big?;
    let report = adopted.stop(SOON)?.stdout;
    let [from_a, from_b] = ["eth0", "eth1"].map(|port| forwarded(&report, port));
    assert!(from_a >= 40 && from_b >= 40, "{path}: {report}");
    assert_eq!(net.a.ping(FAR[0], 1)?.received, 1, "{path}: the kernel forwards alone again");
    Ok(())
}

#[test]
fn hosts_reach_each_other_by_tc_and_the_kernel_keeps_what_is_its_own() {
    on_the_net("adopt-tc", |net| hosts_reach_each_other(net, "tc"));
}

#[test]
fn hosts_reach_each_other_by_xdp_and_the_kernel_keeps_what_is_its_own() {
    on_the_net("adopt-xdp", |net| hosts_reach_each_other(net, "xdp"));
}

#[test]
fn hosts_reach_each_other_by_the_graph_and_the_kernel_keeps_what_is_its_own() {
    on_the_net("adopt-graph", |net| hosts_reach_each_other(net, "graph"));
}

#[test]
fn tcp_with_default_offloads_goes_by_the_graph_uncut() {
    on_the_net("adopt-graph-tcp", |net| {
        let mut adopted = adopt(net, "graph")?;
        let before = by_kernel(&net.r)?;
        for far in FAR {
            assert!(net.a.iperf3(&net.b, far, &["-t", "1"])?.bits_per_second > 1e7, "{far}");
        }
        assert_eq!(by_kernel(&net.r)?, before, "none of that was the kernel's");
        let report = adopted.stop(SOON)?.stdout;
        assert!(forwarded(&report, "eth0") > 1000, "{report}");
        Ok(())
    });
}

#[test]
fn tcp_with_default_offloads_goes_by_the_path_that_is_chosen() {
    on_the_net("adopt-tcp", |net| {
        let mut adopted = Running::adopt_ports(&net.r, &["eth0", "eth1"])?;
        let said = adopted.stderr_so_far();
        assert!(said.contains("eth0: by tc: frames from veth"), "{said}");
        for far in FAR {
            assert!(net.a.iperf3(&net.b, far, &["-t", "1"])?.bits_per_second > 1e7, "{far}");
        }
        let report = adopted.stop(SOON)?.stdout;
        assert!(forwarded(&report, "eth0") > 1000, "{report}");
        Ok(())
    });
}

#[test]
fn routes_are_followed_as_they_change() {
    on_the_net("adopt-routes", |net| routes_are_followed(net, "tc"));
}

#[test]
fn the_graph_follows_routes_as_they_change() {
    on_the_net("adopt-graph-routes", |net| routes_are_followed(net, "graph"));
}

fn routes_are_followed(net: &Net, path: &str) -> Result<()> {
    net.b.address("lo", "192.0.2.1/32")?;
    let mut adopted = adopt(net, path)?;
    let reaches = |expected: u32| {
        until(SOON, || Ok(u64::from(expected) == net.a.ping_with("192.0.2.1", 1, &["-W", "1"])?.received))
    };
    let route = |words: &str| net.r.run(["sh", "-c", &format!("ip route {words}")]).map(drop);
    reaches(0)?;
    route("add 192.0.2.0/24 via 10.0.2.2")?;
    reaches(1)?;
    route("add blackhole 192.0.2.1/32")?;
    reaches(0)?;
    route("delete blackhole 192.0.2.1/32")?;
    reaches(1)?;
    let before = by_kernel(&net.r)?;
    assert_eq!(net.a.ping_with("192.0.2.1", 10, &["-i", "0.01"])?.received, 10);
    assert_eq!(by_kernel(&net.r)?, before, "none of these were the kernel's");
    route("replace 192.0.2.0/24 via 10.0.2.77")?;
    reaches(0)?;
    adopted.stop(SOON).map(drop)
}

#[test]
fn nothing_goes_around_a_filter_that_is_put_up_meanwhile() {
    on_the_net("adopt-filter", |net| {
        net.r.run(["nft", "-V"])?;
        for path in ["tc", "xdp", "graph"] {
            let mut adopted = adopt(net, path)?;
            let nft = |words: &str| net.r.run(["sh", "-c", &format!("nft '{words}'")]).map(drop);
            nft("add table inet filter")?;
            nft("add chain inet filter forward { type filter hook forward priority 0; policy drop; }")?;
            adopted.wait_for("policy drop", SOON)?;
            for far in FAR {
                let pings = net.a.ping_with(far, 5, &["-i", "0.01", "-W", "1"])?;
                assert_eq!(pings.received, 0, "{path} {far}");
            }
            nft("delete table inet filter")?;
            until(SOON, || Ok(net.a.ping_with(FAR[0], 1, &["-W", "1"])?.received == 1))?;
            adopted.stop(SOON)?;
        }
        Ok(())
    });
}

#[test]
fn the_kernel_forwards_alone_when_the_process_is_killed() {
    on_the_net("adopt-killed", |net| {
        for path in ["tc", "xdp", "graph"] {
            let mut adopted = adopt(net, path)?;
            adopted.kill();
            let before = by_kernel(&net.r)?;
            assert_eq!(net.a.ping_with(FAR[0], 10, &["-i", "0.01"])?.received, 10, "{path}");
            assert_eq!(by_kernel(&net.r)? - before, 20, "{path}: both ways");
        }
        Ok(())
    });
}

#[test]
fn what_tc_sends_meets_what_is_set_up_where_it_leaves() {
    on_the_net("adopt-egress", |net| {
        // The kernel would solicit it without an answer, and packets to it would be left to the kernel.
        let mac = net.b.mac("eth0")?;
        let known = ["ip", "neighbor", "replace", FAR[0], "lladdr", &mac, "dev", "eth1", "nud", "permanent"];
        net.r.run(known)?;
        let mut adopted = adopt(net, "tc")?;
        let passes = |expected: u64| -> Result<()> {
            until(SOON, || Ok(net.a.ping_with(FAR[0], 1, &["-W", "1"])?.received == expected))?;
            let before = by_kernel(&net.r)?;
            assert_eq!(net.a.ping_with(FAR[0], 5, &[])?.received, 5 * expected);
            assert_eq!(by_kernel(&net.r)?, before, "the kernel gets no frames of the port");
            Ok(())
        };
        passes(1)?;
        net.r.run(["tc", "qdisc", "add", "dev", "eth1", "root", "blackhole"])?;
        passes(0)?;
        net.r.run(["tc", "qdisc", "delete", "dev", "eth1", "root"])?;
        passes(1)?;
        adopted.stop(SOON).map(drop)
    });
}

/// Where packets come from that `r` knows no way back to.
const FROM: &str = "198.51.100.7";

#[test]
fn what_comes_from_where_nothing_is_routed_back_does_not_pass_by_tc() {
    on_the_net("adopt-from-tc", |net| sources_are_looked_at(net, "tc"));
}

#[test]
fn what_comes_from_where_nothing_is_routed_back_does_not_pass_by_xdp() {
    on_the_net("adopt-from-xdp", |net| sources_are_looked_at(net, "xdp"));
}

fn sources_are_looked_at(net: &Net, path: &str) -> Result<()> {
    net.a.address("lo", &format!("{FROM}/32"))?;
    let mut adopted = adopt(net, path)?;
    let shell = |line: String| net.r.run(["sh", "-c", &line]).map(drop);
    let demand = |value: u8| shell(format!("echo {value} > /proc/sys/net/ipv4/conf/eth0/rp_filter"));
    let route = |gateway: &str| shell(format!("ip route replace 198.51.100.0/24 via {gateway}"));
    let arrive = |pings: u32| -> Result<u64> {
        let before = echoes(&net.b)?[0];
        net.a.ping_with(FAR[0], pings, &["-I", FROM])?;
        Ok(echoes(&net.b)?[0] - before)
    };
    let pass = || until(SOON, || Ok(arrive(1)? == 1));
    let none_pass = |why: &str| -> Result<()> {
        until(SOON, || Ok(arrive(1)? == 0))?;
        assert_eq!(arrive(20)?, 0, "{path}: {why}");
        Ok(())
    };
    pass()?;
    demand(2)?;
    none_pass("loose, and no route")?;
    route("10.0.2.2")?;
    pass()?;
    demand(1)?;
    none_pass("strict, and routed by another port")?;
    route("10.0.1.2")?;
    for demanded in [1, 2] {
        demand(demanded)?;
        for source in ["10.0.1.2", FROM] {
            until(SOON, || {
                let before = by_kernel(&net.r)?;
                let pings = net.a.ping_with(FAR[0], 10, &["-I", source])?;
                Ok(pings.received == 10 && by_kernel(&net.r)? == before)
            })?;
        }
    }
    let report = adopted.stop(SOON)?.stdout;
    assert!(report.contains("frames went to the kernel: reverse-path"), "{path}: {report}");
    Ok(())
}
