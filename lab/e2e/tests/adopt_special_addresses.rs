//! Packets from and to addresses with a meaning of their own (RFC 6890): adopted ports let through what the
//! kernel alone does, by any path.

use crate::support::adopting::{Net, forwarded, on_the_net};
use crate::support::{Running, SOON};
use artery_rig::{Capture, Result};
use artery_wire::build::{ether, ip4, ip6};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Source port of all packets here.
const FROM: u16 = 7077;

const SOURCES4: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.1.0",
    "10.0.1.1",
    "10.0.1.2",
    "10.0.1.255",
    "10.0.2.1",
    "10.0.2.255",
    "100.64.0.1",
    "127.0.0.1",
    "127.9.9.9",
    "169.254.0.1",
    "169.254.255.254",
    "192.0.0.1",
    "198.51.100.7",
    "224.0.0.1",
    "239.1.2.3",
    "240.0.0.1",
    "255.255.255.255",
];
const DESTINATIONS4: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.2.0",
    "10.0.2.2",
    "10.0.2.255",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.0.1",
    "169.254.7.7",
    "169.254.255.255",
    "192.0.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.1.2.3",
    "240.0.0.1",
    "255.255.255.255",
];
const SOURCES6: &[&str] = &[
    "::",
    "::1",
    "::10.0.1.2",
    "::ffff:10.0.1.2",
    "64:ff9b::1",
    "100::1",
    "2001:db8:1::1",
    "2001:db8:1::2",
    "2001:db8:1::",
    "2002:a00:102::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fe80::9",
    "fec0::9",
    "ff02::1",
    "ff0e::1",
];
const DESTINATIONS6: &[&str] = &[
    "::",
    "::1",
    "::10.0.2.2",
    "::ffff:10.0.2.2",
    "64:ff9b::1",
    "100::1",
    "2001:db8:2::2",
    "2002:a00:202::1",
    "fc00::1",
    "fe80::9",
    "fec0::9",
    "ff02::1",
    "ff0e::1",
];

/// Each source with each destination, IPv4 first.
fn pairs() -> Vec<(&'static str, &'static str)> {
    let all = |sources: &'static [&str], destinations: &'static [&str]| {
        sources.iter().flat_map(move |from| destinations.iter().map(move |to| (*from, *to)))
    };
    all(SOURCES4, DESTINATIONS4).chain(all(SOURCES6, DESTINATIONS6)).collect()
}

/// A datagram to `b` by the router, whose number is its destination port.
fn frame(router: &str, number: usize, (from, to): (&str, &str)) -> Vec<u8> {
    let (link, port) = (ether(router, "02:00:00:00:00:0a"), number as u16 + 1);
    if from.contains(':') {
        link.ip6(ip6().src(from).dst(to).udp(FROM, port)).bytes()
    } else {
        link.ip4(ip4().src(from).dst(to).udp(FROM, port)).bytes()
    }
}

/// Numbers of the datagrams that have arrived.
fn arrived(capture: &Capture) -> BTreeSet<usize> {
    let number = |frame: &[u8]| {
        let at = 14 + if frame[12..14] == [0x86, 0xdd] { 40 } else { 20 };
        usize::from(u16::from_be_bytes([frame[at + 2], frame[at + 3]])) - 1
    };
    capture.frames().iter().map(|frame| number(&frame.bytes)).collect()
}

/// What of `pairs` arrives at `b`: all of it has once a datagram that was sent later
/// is there, and `expected`.
fn let_through(net: &Net, expected: &BTreeSet<usize>) -> Result<BTreeSet<usize>> {
    let pairs = pairs();
    let capture = net.b.capture_with("eth0", &["-Q", "in", "udp", "src", "port", &FROM.to_string()])?;
    let router = net.r.mac("eth0")?;
    let send = |range: std::ops::Range<usize>| {
        let frames: Vec<_> = range.map(|number| frame(&router, number, pairs[number])).collect();
        net.a.transmit("eth0", &frames)
    };
    for begin in (0..pairs.len()).step_by(32) {
        send(begin..pairs.len().min(begin + 32))?;
    }
    let mut last = BTreeSet::new();
    let common = [("10.0.1.2", "10.0.2.2"), ("2001:db8:1::2", "2001:db8:2::2")];
    for (beyond, ends) in common.into_iter().enumerate() {
        let number = pairs.len() + beyond;
        net.a.transmit("eth0", &[frame(&router, number, ends)])?;
        last.insert(number);
    }
    let wanted: BTreeSet<usize> = expected.union(&last).copied().collect();
    // The caller compares, and reports what is missing at the end.
    let deadline = Instant::now() + SOON;
    while !arrived(&capture).is_superset(&wanted) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let seen = arrived(&capture);
    assert!(seen.is_superset(&last), "what anybody may send arrives");
    Ok(seen.difference(&last).copied().collect())
}

/// Pairs in one that are not in the other.
fn named(some: &BTreeSet<usize>, without: &BTreeSet<usize>) -> Vec<(&'static str, &'static str)> {
    let pairs = pairs();
    some.difference(without).map(|number| pairs[*number]).collect()
}

fn adopted_ports_let_through_what_the_kernel_does(net: &Net, path: &str) -> Result<()> {
    for far in ["10.0.2.2", "2001:db8:2::2"] {
        net.r.ping(far, 1)?;
    }
    net.r.route("default", "10.0.2.2")?.route("default", "2001:db8:2::2")?;
    // Addresses on the link itself, too, as where a modem or a cloud's metadata service has one.
    let permanent = ["ip", "neigh", "replace", "169.254.7.7", "lladdr", &net.b.mac("eth0")?, "dev", "eth1"];
    net.r.run(permanent)?;
    net.r.run(["ip", "route", "add", "169.254.7.0/24", "dev", "eth1"])?;
    let by_kernel = let_through(net, &BTreeSet::new())?;
    assert!(!named(&by_kernel, &BTreeSet::new()).is_empty());
    let mut adopted = Running::adopt(net, path, &[])?;
    let by_path = let_through(net, &by_kernel)?;
    assert_eq!(named(&by_kernel, &by_path), [], "{path}: only the kernel lets through");
    assert_eq!(named(&by_path, &by_kernel), [], "{path}: the kernel does not let through");
    // What is counted as forwarded has arrived, the two that anybody may send included.
    let report = adopted.stop(SOON)?.stdout;
    assert!(forwarded(&report, "eth0") as usize <= by_path.len() + 2, "{path}: {report}");
    Ok(())
}

#[test]
fn special_addresses_pass_by_tc_as_by_the_kernel() {
    on_the_net("adopt-special-tc", |net| adopted_ports_let_through_what_the_kernel_does(net, "tc"));
}

#[test]
fn special_addresses_pass_by_xdp_as_by_the_kernel() {
    on_the_net("adopt-special-xdp", |net| adopted_ports_let_through_what_the_kernel_does(net, "xdp"));
}

#[test]
fn special_addresses_pass_by_the_graph_as_by_the_kernel() {
    on_the_net("adopt-special-graph", |net| adopted_ports_let_through_what_the_kernel_does(net, "graph"));
}
