//! Packets of up to 9,000 bytes: XDP forwards frames that lie in several buffers of a driver as the kernel
//! does, byte by byte, and leaves them to the kernel where the driver of the other port does not send them.

use crate::support::adopting::{Net, by_kernel, on_the_net};
use crate::support::{Running, SOON, spawn, until};
use artery_rig::{Frame, Host, Result, RigError, Skip};
use std::net::UdpSocket;
use std::time::Duration;

const MTU: u32 = 9000;
/// Bytes of a packet: in one buffer, at the edge of one (3,498), in two and in three.
const SIZES: [usize; 9] = [60, 1500, 1501, 3494, 3498, 3499, 5000, 8999, 9000];

/// Where packets come from, and where they go.
struct Flow<'a> {
    from: &'a Host,
    to: &'a Host,
    source: &'a str,
    destination: &'a str,
}

fn lengthen(net: &Net) -> Result<()> {
    for (host, interface) in [(&net.a, "eth0"), (&net.b, "eth0"), (&net.r, "eth0"), (&net.r, "eth1")] {
        host.mtu(interface, MTU)?.offloads(interface, false)?;
    }
    for host in [&net.a, &net.b] {
        host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
    }
    Ok(())
}

/// Has `b` in a VLAN, too, where it is 10.0.10.2 and 2001:db8:10::2, if the kernel has VLANs.
fn add_vlan(net: &Net) -> Result<bool> {
    for (host, on, name, last) in [(&net.r, "eth1", "eth1.10", 1), (&net.b, "eth0", "eth0.10", 2)] {
        let add = ["ip", "link", "add", "link", on, "name", name, "type", "vlan", "id", "10"];
        match host.run(add) {
            Err(RigError::Failed(failure)) if failure.output.stderr.contains("Unknown device type") => {
                eprintln!("skipped: VLANs, which this kernel lacks (8021q)");
                return Ok(false);
            }
            made => drop(made?),
        }
        host.up(name)?.address(name, &format!("10.0.10.{last}/24"))?;
        host.address(name, &format!("2001:db8:10::{last}/64"))?;
    }
    let words = "replace 10.0.1.0/24 via 10.0.10.1 src 10.0.10.2 table 10";
    net.b.run(["sh", "-c", &format!("ip route {words} && ip rule add from 10.0.10.2 table 10")])?;
    let words = "replace 2001:db8:1::/64 via 2001:db8:10::1 table 10";
    net.b.run([
        "sh",
        "-c",
        &format!("ip -6 route {words} && ip -6 rule add from 2001:db8:10::2 table 10"),
    ])?;
    Ok(true)
}

/// Sends a packet of each size and returns the frames that arrive.
fn carry(flow: &Flow<'_>) -> Result<Vec<Vec<u8>>> {
    let capture = flow.to.capture_with("eth0", &["-Q", "in", "udp or (vlan and udp)"])?;
    // Without it the host would answer that there is no such port.
    let _listener = flow.to.enter(|| UdpSocket::bind((flow.destination, 7002)))?;
    let headers = if flow.source.contains(':') { 48 } else { 28 };
    let sent = flow.from.enter(|| {
        let socket = UdpSocket::bind((flow.source, 7001))?;
        for size in SIZES {
            let payload: Vec<u8> = (0..size - headers).map(|place| (place * 7 + size) as u8).collect();
            socket.send_to(&payload, (flow.destination, 7002))?;
        }
        Ok::<_, std::io::Error>(())
    })?;
    sent.map_err(RigError::system(format!("sending from {}", flow.source)))?;
    let frames = capture.wait_for(SIZES.len(), SOON)?;
    Ok(frames.into_iter().map(|Frame { bytes, .. }| without_number(bytes)).collect())
}

/// A frame without the number that the sender gives each packet of IPv4 and without the header's checksum,
/// which must be right.
fn without_number(mut frame: Vec<u8>) -> Vec<u8> {
    let network = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    if frame[network] >> 4 == 4 {
        let header = &mut frame[network..network + 20];
        assert_eq!(artery_wire::checksum::sum(header), 0xffff, "{header:02x?}");
        header[4..6].fill(0);
        header[10..12].fill(0);
    }
    frame
}

#[test]
fn long_packets_are_forwarded_by_xdp_as_the_kernel_forwards_them() {
    on_the_net("adopt-long", |net| {
        lengthen(net)?;
        let has_vlan = add_vlan(net)?;
        let [a4, a6] = ["10.0.1.2", "2001:db8:1::2"];
        let pairs = [(a4, "10.0.2.2"), (a6, "2001:db8:2::2"), (a4, "10.0.10.2"), (a6, "2001:db8:10::2")];
        let pairs = &pairs[..if has_vlan { 4 } else { 2 }];
        let (a, b) = (&net.a, &net.b);
        let there = pairs.iter().map(|(a4, far)| Flow { from: a, to: b, source: a4, destination: far });
        let back = pairs.iter().map(|(a4, far)| Flow { from: b, to: a, source: far, destination: a4 });
        let flows: Vec<Flow<'_>> = there.chain(back).collect();
        let know_neighbors = || {
            until(SOON, || {
                let reached = pairs.iter().map(|(_, far)| Ok(net.a.ping(far, 1)?.received == 1));
                Ok(reached.collect::<Result<Vec<bool>>>()?.iter().all(|is| *is))
            })
        };
        know_neighbors()?;
        let by_the_kernel = flows.iter().map(carry).collect::<Result<Vec<_>>>()?;

        let mut adopted = Running::adopt(net, "xdp", &[])?;
        if adopted.stderr_so_far().contains("multi-buffer frames that leave there stay") {
            return Err(Skip::KernelLacks("multi-buffer frames of veth".into()).into());
        }
        know_neighbors()?;
        let (before, kernel) = (adopted.state()?, by_kernel(&net.r)?);
        for (flow, expected) in flows.iter().zip(&by_the_kernel) {
            let (source, destination) = (flow.source, flow.destination);
            for (frame, expected) in carry(flow)?.iter().zip(expected) {
                assert!(frame == expected, "{source} to {destination}: {frame:02x?} is not {expected:02x?}");
            }
        }
        let after = adopted.state()?;
        assert_eq!(by_kernel(&net.r)?, kernel, "none was the kernel's: {after}");
        let count = |state: &serde_json::Value, name: &str| -> u64 {
            let ports = state["ports"].as_array().expect("ports");
            ports.iter().map(|port| port[name].as_u64().expect("a number")).sum()
        };
        let added = |name: &str| count(&after, name) - count(&before, name);
        let packets = (flows.len() * SIZES.len()) as u64;
        let bytes = (flows.len() * SIZES.iter().sum::<usize>()) as u64 + 14 * packets;
        // Two flows arrive with tags.
        let tags = if has_vlan { 4 * 2 * SIZES.len() as u64 } else { 0 };
        assert_eq!([added("received"), added("lost"), added("dropped")], [packets, 0, 0], "{after}");
        assert_eq!(added("received_bytes"), bytes + tags, "whole frames are counted: {after}");

        // What is longer than the MTU where it leaves is answered by the kernel.
        net.r.mtu(if has_vlan { "eth1.10" } else { "eth1" }, 5000)?;
        let kept = |reasons: &[&str]| -> Result<u64> {
            let counts = adopted.state()?["ports"][0]["kernel"].clone();
            Ok(reasons.iter().map(|reason| counts[reason].as_u64().expect("a number")).sum())
        };
        for (number, (_, far)) in (1..).zip(&pairs[pairs.len() - 2..]) {
            // Programs know the new MTU, and the neighbor again, when shorter ones pass.
            until(SOON, || {
                let before = kept(&["unresolved", "kernel-route", "policy", "too-big"])?;
                let passed = net.a.ping_with(far, 3, &["-s", "4900", "-i", "0.01", "-W", "1"])?.received;
                Ok(passed == 3 && kept(&["unresolved", "kernel-route", "policy", "too-big"])? == before)
            })?;
            let long = net.a.command(["ping", "-c1", "-W1", "-Mdo", "-s8000", far]).output()?;
            let text = long.stdout + &long.stderr;
            let says = ["mtu = 5000", "mtu=5000", "mtu: 5000"].iter().any(|words| text.contains(words));
            assert!(says && kept(&["too-big"])? == number, "{text}");
        }
        assert_eq!(kept(&["multi-buffer"])?, 0);
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn long_packets_for_a_port_that_does_not_send_multi_buffer_frames_are_left_to_the_kernel() {
    on_the_net("adopt-short-port", |net| {
        lengthen(net)?;
        let mut host = spawn(&net.r, "FromHost(tap0, 10.0.9.1/24) -> Discard;", &[])?;
        until(SOON, || Ok(net.r.interfaces()?.contains(&"tap0".to_owned())))?;
        net.r.mtu("tap0", MTU)?.up("tap0")?;
        let known = ["ip", "neighbor", "replace", "10.0.9.2", "lladdr", "02:00:00:00:09:02", "dev", "tap0"];
        net.r.run(known)?;
        let mut adopted = Running::adopt(net, "xdp", &["tap0"])?;
        adopted.wait_for("tap0: multi-buffer frames that leave there stay with the kernel", SOON)?;
        assert!(!adopted.stderr_so_far().contains("eth1: multi-buffer"), "{}", adopted.stderr_so_far());
        let capture = net.r.capture_with("tap0", &["-Q", "out", "udp"])?;
        let before = by_kernel(&net.r)?;
        net.a.enter(|| {
            let socket = UdpSocket::bind("10.0.1.2:7001").expect("a socket");
            for _ in 0..20 {
                socket.send_to(&[7; 8000], "10.0.9.2:7002").expect("a route");
                std::thread::sleep(Duration::from_millis(5));
            }
        })?;
        let frames = capture.wait_for(20, SOON)?;
        assert!(frames.iter().all(|frame| frame.length == 14 + 28 + 8000), "they are whole");
        assert_eq!(by_kernel(&net.r)? - before, 20);
        let now = adopted.state()?;
        let kept = |port: usize| now["ports"][port]["keeps_multi_buffer"].as_bool();
        assert_eq!([kept(0), kept(1), kept(2)], [Some(false), Some(false), Some(true)], "{now}");
        assert_eq!(now["ports"][0]["kernel"]["multi-buffer"].as_u64(), Some(20), "{now}");
        let top = adopted.say(&["top", "--once"])?;
        assert!(top.contains("tap0: multi-buffer frames that leave there stay"), "{top}");
        adopted.stop(SOON)?;
        host.stop(SOON).map(drop)
    });
}
