//! Adopted ports and routes for some sources only: packets to their prefixes go as by the kernel alone,
//! whatever the order in which routes came, and all others go past it.

use crate::support::adopting::{Fan, with_gateways};
use crate::support::{Running, SOON, artery_on, until};
use artery_rig::{Process, Result};
use std::net::{Ipv6Addr, UdpSocket};

/// One is of the prefix that a route is for.
const SOURCES: [&str; 2] = ["2001:db8::2", "2001:db8:b::2"];
/// One has the default route as its longest prefix, the other a longer one.
const DESTINATIONS: [&str; 2] = ["2001:db8:ff::1", "2001:db8:ff:0:1::1"];
const COUNT: u64 = 20;

const FROM: &str = "default from 2001:db8:b::/64 via 2001:db8:2::2";
const PLAIN: &str = "default via 2001:db8:1::2";
const BELOW: &str = "2001:db8:ff:0:1::/80 via 2001:db8:1::2";
const SAID: &str = "IPv6 packets to ::/0 stay with the kernel: table 254 has a route there for packets from \
    2001:db8:b::/64 only";

fn route(net: &Fan, verb: &str, route: &str) -> Result<()> {
    let words = route.split(' ');
    net.r.run(["ip", "-6", "route", verb].into_iter().chain(words)).map(drop)
}

/// Sends datagrams from a source to a destination. Gives the gateway that all came to, and how many packets
/// of IPv6 the router's kernel forwarded meanwhile.
fn send(net: &Fan, source: &str, destination: &str) -> Result<(usize, u64)> {
    let (before, kernel) = (net.received()?, by_kernel(net)?);
    let [source, to]: [Ipv6Addr; 2] =
        [source, destination].map(|address| address.parse().expect("an address"));
    net.a.enter(|| {
        let socket = UdpSocket::bind((source, 0)).expect("an address of this host");
        for _ in 0..COUNT {
            // The socket may report a gateway's answer to an earlier datagram instead.
            let _ = socket.send_to(b"x", (to, 2000));
        }
    })?;
    let mut each = Vec::new();
    until(SOON, || {
        each = net.received()?.iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>();
        Ok(each.iter().sum::<u64>() > 0)
    })?;
    let gateway = each.iter().position(|count| *count > 0).expect("one has received some");
    assert!(each.iter().enumerate().all(|(number, count)| number == gateway || *count == 0), "{each:?}");
    Ok((gateway, by_kernel(net)? - kernel))
}

/// Packets of IPv6 that the router's kernel has forwarded.
fn by_kernel(net: &Fan) -> Result<u64> {
    net.r.kernel_counter("Ip6OutForwDatagrams")
}

/// The gateway of each destination and source.
fn gateways(net: &Fan) -> Result<[[usize; 2]; 2]> {
    let mut found = [[0; 2]; 2];
    for (to, row) in DESTINATIONS.iter().zip(&mut found) {
        for (from, gateway) in SOURCES.iter().zip(row) {
            *gateway = send(net, from, to)?.0;
        }
    }
    Ok(found)
}

/// Waits until packets go as by the kernel alone, and past it just where `is_fast` says so of a destination.
fn until_as_alone(net: &Fan, alone: [[usize; 2]; 2], is_fast: [bool; 2]) -> Result<()> {
    for ((to, row), is_fast) in DESTINATIONS.iter().zip(alone).zip(is_fast) {
        for (from, gateway) in SOURCES.iter().zip(row) {
            until(SOON, || {
                let (found, forwarded) = send(net, from, to)?;
                Ok(found == gateway && (is_fast && forwarded == 0 || !is_fast && forwarded >= COUNT))
            })?;
        }
    }
    Ok(())
}

/// How often everything was read again.
fn rereads(adopted: &Process) -> usize {
    adopted.stderr_so_far().matches("reading all tables and settings again").count()
}

fn sources_decide(net: &Fan, path: &str, order: [&str; 2]) -> Result<()> {
    net.a.address("eth0", "2001:db8:b::2/128")?;
    net.r.run(["ip", "-6", "route", "add", "2001:db8:b::/64", "dev", "eth0"])?;
    route(net, "add", BELOW)?;
    order.into_iter().try_for_each(|one| route(net, "add", one))?;
    let alone = gateways(net)?;
    assert_eq!(alone, [[0, 1], [0, 0]], "by the kernel alone");
    let dry = artery_on(&net.r, ["adopt", "--dry-run", "--for=0"])?.run()?;
    assert!(dry.stdout.contains(&format!("note: {SAID}")), "{}", dry.stdout);

    let mut adopted = net.adopt(path)?;
    adopted.wait_for(SAID, SOON)?;
    until_as_alone(net, alone, [false, true])?;
    // The kernel reports routes for some sources apart from the others.
    net.r.run(["kill", "-HUP", &adopted.id().to_string()])?;
    until(SOON, || Ok(rereads(&adopted) == 1))?;
    until_as_alone(net, alone, [false, true])?;

    route(net, "del", FROM)?;
    until_as_alone(net, [[0, 0], [0, 0]], [true, true])?;
    adopted.wait_for("no prefix stays with the kernel any more", SOON)?;
    // Both orders once more while ports are adopted: a route that comes last, and one that is replaced.
    route(net, "add", FROM)?;
    until_as_alone(net, alone, [false, true])?;
    route(net, "replace", &PLAIN.replace("1::2", "2::2"))?;
    until_as_alone(net, [[1, 1], [0, 0]], [false, true])?;
    route(net, "replace", PLAIN)?;
    until_as_alone(net, alone, [false, true])?;
    route(net, "del", PLAIN)?;
    route(net, "add", PLAIN)?;
    until_as_alone(net, alone, [false, true])?;
    adopted.stop(SOON).map(drop)
}

#[test]
fn a_route_for_some_sources_before_a_plain_one_is_kept_to_by_tc() {
    with_gateways("adopt-sources-first", 2, |net| sources_decide(net, "tc", [FROM, PLAIN]));
}

#[test]
fn a_route_for_some_sources_after_a_plain_one_is_kept_to_by_tc() {
    with_gateways("adopt-sources-last", 2, |net| sources_decide(net, "tc", [PLAIN, FROM]));
}

#[test]
fn a_route_for_some_sources_is_kept_to_by_xdp() {
    with_gateways("adopt-sources-xdp", 2, |net| sources_decide(net, "xdp", [PLAIN, FROM]));
}

#[test]
fn top_state_and_metrics_tell_of_prefixes_that_stay() {
    with_gateways("adopt-sources-top", 2, |net| {
        for number in 0..13 {
            route(net, "add", &format!("2001:db8:a{number:02}::/48 from 2001:db8:b::/64 via 2001:db8:1::2"))?;
        }
        let adopted = Running::spawn(&net.r, ["adopt", "--path=tc", "eth0", "eth1"])?;
        adopted.wait_for("3 more prefixes stay with the kernel for such reasons", 6 * SOON)?;
        adopted.wait_for("nothing else keeps traffic between these ports in the kernel", SOON)?;
        let top = adopted.say(&["top", "--once"])?;
        let kept = top.split_once("Kept with the kernel:").expect("such a part").1;
        assert_eq!(kept.matches("table 254 has a route there for packets from").count(), 10, "{top}");
        assert!(kept.contains("3 more prefixes stay with the kernel for such reasons"), "{top}");
        let state = adopted.state()?;
        assert_eq!(state["kept_prefixes"], 13, "{state}");
        assert!(adopted.handler(&["metrics"])?.contains("\nartery_adopt_kept_prefixes 13\n"));
        let dry = artery_on(&net.r, ["adopt", "--dry-run", "--for=0", "--json"])?.run()?;
        let dry: serde_json::Value = serde_json::from_str(&dry.stdout).expect("JSON");
        assert_eq!(dry["kept_prefixes"], 13, "{dry}");
        adopted.end()
    });
}
