//! Ports that can't send, that go, or that nobody adopted: what a running `artery adopt` says of them.

mod support;

use artery_lab::program::artery;
use artery_lab::rig::{Process, Result};
use std::path::Path;
use support::adopting::{Net, forwarded, on_the_net};
use support::{SOON, until};

fn adopt(net: &Net, path: &str, socket: &Path, options: &[&str]) -> Result<Process> {
    let words = ["adopt", "--path", path, "eth0", "eth1", "-u"];
    let adopted = net.r.command([artery()?]).args(words).arg(socket).args(options).spawn()?;
    adopted.wait_for("forwarding", 2 * SOON)?;
    Ok(adopted)
}

/// What `artery top` shows, and the state that it is made of.
fn shown(net: &Net, socket: &Path) -> Result<(String, serde_json::Value)> {
    let top = net.r.command([artery()?]).args(["top", "--once", "-u"]).arg(socket).run()?.stdout;
    let state = net.r.command([artery()?]).args(["handler", "-u"]).arg(socket).arg("state").run()?.stdout;
    Ok((top, serde_json::from_str(&state).expect("JSON")))
}

#[test]
fn what_would_leave_by_a_port_that_does_not_send_is_left_to_the_kernel_and_told_so() {
    on_the_net("adopt-deaf", |net| {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("control");
        net.b.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        let mut adopted = adopt(net, "xdp", &socket, &[])?;
        adopted.wait_for("eth1: what leaves there stays with the kernel", SOON)?;
        assert!(!adopted.stderr_so_far().contains("nothing keeps"), "{}", adopted.stderr_so_far());
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        let (top, state) = shown(net, &socket)?;
        let words = |port: usize| [&state["ports"][port]["ipv4"], &state["ports"][port]["is_deaf"]];
        assert_eq!(words(0), [&"fast".into(), &serde_json::Value::from(false)], "{state}");
        assert_eq!(words(1), [&"fast-in".into(), &serde_json::Value::from(true)], "{state}");
        assert!(
            top.contains("eth1: what leaves there stays with the kernel") && !top.contains("Nothing keeps"),
            "{top}"
        );
        assert!(state["ports"][0]["kernel"]["deaf"].as_u64() >= Some(15), "{state}");

        // A change elsewhere is no reason to say it again; and one that is mended is told of.
        net.r.run(["nft", "add table ip f; add chain ip f c { type filter hook forward priority 0; }"])?;
        net.r.run(["nft", "add rule ip f c ip saddr 192.0.2.1 drop"])?;
        adopted.wait_for("nftables", SOON)?;
        let said = adopted.stderr_so_far();
        assert_eq!(said.matches("eth1: what leaves there stays").count(), 1, "{said}");
        net.r.run(["nft", "flush ruleset"])?;
        net.b.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        adopted.wait_for("eth1: its driver sends what XDP redirects", SOON)?;
        adopted.wait_for("nothing keeps traffic", SOON)?;
        net.a.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        net.b.run(["ethtool", "-K", "eth0", "gro", "off"])?;
        until(SOON, || Ok(shown(net, &socket)?.1["ports"][0]["ipv4"] == "kernel"))?;
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
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("control");
    let mut adopted = adopt(net, path, &socket, &[])?;
    until(SOON, || {
        net.a.ping_with("10.0.2.2", 10, &["-i", "0.01"])?;
        let report = net.r.command([artery()?]).args(["handler", "-u"]).arg(&socket).arg("report");
        Ok(forwarded(&report.run()?.stdout, "eth1") >= 10)
    })?;
    net.r.run(["ip", "link", "del", "eth1"])?;
    adopted.wait_for("eth1: the interface is gone", SOON)?;
    let (top, state) = shown(net, &socket)?;
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
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("control");
        let mut adopted = adopt(net, "graph", &socket, &["--log", "json"])?;
        let capture = net.r.command([artery()?]).args(["capture", "--ports", "eth0,eth9", "-u"]).arg(&socket);
        let refused = capture.output()?;
        let why = "eth9 is no adopted port; those are eth0, eth1";
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
