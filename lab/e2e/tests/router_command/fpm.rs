//! Routes from a routing daemon by FPM, which the tests play by a socket.

use super::net::{FAR, NEAR, Net, Running, on_the_net};
use crate::support::{SOON, until};
use artery_netlink::build::*;
use artery_rig::Result;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const SERVER: &str = "127.0.0.1:2620";
const BGP: u8 = 186;
const OSPF: u8 = 188;
/// The kernel's flags RTM_F_OFFLOAD and RTM_F_OFFLOAD_FAILED.
const OFFLOAD: u32 = 0x4000;
const OFFLOAD_FAILED: u32 = 0x2000_0000;

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A prefix as messages have it.
fn prefix(text: &str) -> (IpAddr, u8) {
    let (address, len) = text.split_once('/').unwrap();
    (ip(address), len.parse().unwrap())
}

/// A route of BGP by a gateway.
fn via(to: &str, by: &str) -> Vec<u8> {
    route(NEW_ROUTE, prefix(to), BGP, &[gateway(ip(by))])
}

fn gone(to: &str) -> Vec<u8> {
    route(DEL_ROUTE, prefix(to), BGP, &[])
}

/// An FPM message with these netlink messages.
fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let payload = messages.concat();
    let len = (payload.len() + 4) as u16;
    [&[1, 1][..], &len.to_be_bytes(), &payload].concat()
}

/// Who plays zebra, on the router's host.
struct Zebra(TcpStream);

impl Zebra {
    fn connect(net: &Net) -> Result<Zebra> {
        let server: SocketAddr = SERVER.parse().unwrap();
        let stream =
            net.r.enter(|| TcpStream::connect_timeout(&server, SOON).expect("the router listens"))?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        Ok(Zebra(stream))
    }

    fn send(&mut self, messages: &[Vec<u8>]) {
        self.0.write_all(&frame(messages)).unwrap();
    }

    /// The next answer: its flags, and the message without them.
    fn answer(&mut self) -> (u32, Vec<u8>) {
        let mut header = [0; 4];
        self.0.read_exact(&mut header).expect("an answer");
        assert_eq!(header[..2], [1, 1]);
        let mut message = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 4];
        self.0.read_exact(&mut message).unwrap();
        let flags = u32::from_ne_bytes(message[24..28].try_into().unwrap());
        message[24..28].fill(0);
        (flags, message)
    }

    /// Sends routes, in a message each, and expects that each is answered as it should.
    fn put(&mut self, routes: &[Vec<u8>], expected: u32) {
        routes.iter().for_each(|route| self.send(std::slice::from_ref(route)));
        for route in routes {
            assert_eq!(self.answer(), (expected, route.clone()));
        }
    }

    /// Whether the router has ended the connection.
    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0) | Err(_))
    }
}

/// A router that takes routes by FPM, before hosts at `addresses` behind `b`.
fn start(net: &Net, options: &[&str]) -> Result<Running> {
    for last in 1..=3 {
        net.b.address("lo", &format!("10.9.{last}.1/32"))?.address("lo", &format!("fd09:{last}::1/128"))?;
    }
    Running::start(net, &[&["--fpm"], options].concat())
}

/// The route of a prefix, if there is one.
pub(crate) fn shown(router: &Running, to: &str) -> Result<Option<Value>> {
    let mut document = router.json(&["show", "routes", to])?;
    let routes = document["routes"].as_array_mut().expect("a list");
    let at = routes.iter().position(|route| route["dst"] == to);
    Ok(at.map(|at| routes.swap_remove(at)))
}

/// The source of the route of a prefix, and its gateways.
pub(crate) fn source(router: &Running, to: &str) -> Result<Option<(String, Vec<String>)>> {
    Ok(shown(router, to)?.map(|route| {
        let hops = route["next_hops"].as_array().expect("a list");
        let gateways = hops.iter().map(|hop| hop["gateway"].as_str().unwrap_or("").to_string()).collect();
        (route["source"].as_str().unwrap_or("").to_string(), gateways)
    }))
}

fn of(source: &str, gateways: &[&str]) -> Option<(String, Vec<String>)> {
    Some((source.to_string(), gateways.iter().map(ToString::to_string).collect()))
}

#[test]
fn routes_of_fpm_forward_are_replaced_and_removed_and_each_is_answered() {
    on_the_net("fpm-routes", |net| {
        let router = start(net, &[])?;
        let mut zebra = Zebra::connect(net)?;
        assert_eq!(net.a.ping("10.9.1.1", 1)?.received, 0, "no route");
        zebra.put(&[via("10.9.1.0/24", FAR[0]), via("fd09:1::/48", FAR[1])], OFFLOAD);
        for address in ["10.9.1.1", "fd09:1::1"] {
            assert_eq!(net.a.ping(address, 3)?.received, 3, "{address}");
        }
        assert_eq!(source(&router, "10.9.1.0/24")?, of("bgp", &[FAR[0]]));
        // Several netlink messages in one of FPM, of which a deletion and an addition are one change.
        zebra.send(&[gone("10.9.1.0/24"), via("10.9.1.0/24", NEAR[0]), via("10.9.2.0/24", FAR[0])]);
        let replaced = zebra.answer();
        assert_eq!(replaced, (OFFLOAD, via("10.9.1.0/24", NEAR[0])));
        assert_eq!(zebra.answer(), (OFFLOAD, via("10.9.2.0/24", FAR[0])));
        assert_eq!(source(&router, "10.9.1.0/24")?, of("bgp", &[NEAR[0]]));
        assert_eq!(net.a.ping("10.9.2.1", 1)?.received, 1);
        // Byte by byte; by another protocol, with two gateways.
        let two = multipath(0, &[(ip(NEAR[0]), 1), (ip(FAR[0]), 3)]);
        let ecmp = route(NEW_ROUTE, prefix("10.9.3.0/24"), OSPF, &[two]);
        for byte in frame(std::slice::from_ref(&ecmp)) {
            zebra.0.write_all(&[byte]).unwrap();
        }
        assert_eq!(zebra.answer(), (OFFLOAD, ecmp));
        let shown = shown(&router, "10.9.3.0/24")?.expect("the route");
        assert_eq!(shown["source"], "ospf");
        let weights: Vec<_> =
            shown["next_hops"].as_array().unwrap().iter().map(|hop| &hop["weight"]).collect();
        assert_eq!(weights, [1, 3]);
        // Ends.
        for (kind, name) in [(6, "blackhole"), (7, "unreachable"), (8, "prohibit")] {
            let mut end = route(NEW_ROUTE, prefix("10.9.3.0/24"), BGP, &[]);
            end[23] = kind;
            zebra.put(&[end], OFFLOAD);
            assert_eq!(super::fpm::shown(&router, "10.9.3.0/24")?.expect("the route")["type"], name);
        }
        zebra.send(&[gone("10.9.1.0/24"), gone("10.9.2.0/24"), gone("10.9.3.0/24"), gone("fd09:1::/48")]);
        until(SOON, || Ok(router.json(&["show", "fpm"])?["routes"]["installed"] == 0))?;
        assert_eq!(net.a.ping("10.9.2.1", 1)?.received, 0);
        assert_eq!(source(&router, "10.9.1.0/24")?, None);
        let fpm = router.json(&["show", "fpm"])?;
        assert_eq!((&fpm["messages"]["deleted_routes"], &fpm["routes"]["paths"]), (&5.into(), &0.into()));
        let text = router.say(&["show", "fpm"])?;
        assert!(text.contains("peer") && text.contains("127.0.0.1:"), "{text}");
        Ok(())
    });
}

#[test]
fn routes_follow_next_hop_groups() {
    on_the_net("fpm-groups", |net| {
        let router = start(net, &[])?;
        let mut zebra = Zebra::connect(net)?;
        let to = |to: &str, id: u32| route(NEW_ROUTE, prefix(to), BGP, &[next_hop_id(id)]);
        let single = |id, by: &str| next_hop(NEW_NEXT_HOP, id, &[next_hop_gateway(ip(by))]);
        zebra.send(&[single(7, FAR[0]), single(8, NEAR[0])]);
        zebra.send(&[next_hop(NEW_NEXT_HOP, 9, &[next_hop_group(&[(7, 1), (8, 2)])])]);
        zebra.put(&[to("10.9.1.0/24", 7), to("10.9.2.0/24", 9)], OFFLOAD);
        assert_eq!(net.a.ping("10.9.1.1", 2)?.received, 2);
        assert_eq!(source(&router, "10.9.2.0/24")?, of("bgp", &[NEAR[0], FAR[0]]));
        // One message moves the routes of both.
        zebra.send(&[single(7, "10.0.2.3")]);
        until(SOON, || Ok(source(&router, "10.9.1.0/24")? == of("bgp", &["10.0.2.3"])))?;
        assert_eq!(source(&router, "10.9.2.0/24")?, of("bgp", &[NEAR[0], "10.0.2.3"]));
        // Without its object a route can't be; with it, it is back.
        zebra.send(&[next_hop(DEL_NEXT_HOP, 9, &[])]);
        until(SOON, || Ok(source(&router, "10.9.2.0/24")?.is_none()))?;
        zebra.send(&[next_hop(NEW_NEXT_HOP, 9, &[next_hop_group(&[(8, 1)])])]);
        until(SOON, || Ok(source(&router, "10.9.2.0/24")? == of("bgp", &[NEAR[0]])))?;
        zebra.send(&[next_hop(NEW_NEXT_HOP, 8, &[attribute(4, &[])])]);
        zebra.put(&[to("10.9.3.0/24", 8)], OFFLOAD);
        assert_eq!(shown(&router, "10.9.3.0/24")?.expect("the route")["type"], "blackhole");
        let fpm = router.json(&["show", "fpm"])?;
        assert_eq!((&fpm["next_hops"], &fpm["next_hop_groups"]), (&2.into(), &1.into()), "{fpm}");
        Ok(())
    });
}

#[test]
fn what_can_not_be_installed_is_refused_with_a_reason_and_static_routes_come_first() {
    on_the_net("fpm-refused", |net| {
        let router = start(net, &["--route", "10.9.1.0/24=10.0.2.2"])?;
        let mut zebra = Zebra::connect(net)?;
        let lo = link(1);
        let refused = [
            via("10.1.0.0/16", "203.0.113.1"),
            via("fd01::/32", "fe80::9"),
            route(NEW_ROUTE, prefix("10.2.0.0/16"), BGP, &[next_hop_id(99)]),
            route(NEW_ROUTE, prefix("10.3.0.0/16"), BGP, &[gateway(ip(FAR[0])), lo]),
            route(
                NEW_ROUTE,
                prefix("10.4.0.0/16"),
                BGP,
                &[gateway(ip(FAR[0])), attribute(21, &[1, 0]), attribute(22, &[0; 8])],
            ),
            via("10.5.0.0/16", "10.0.1.1"),
        ];
        zebra.put(&refused, OFFLOAD_FAILED);
        // By a port's interface a link-local gateway is known.
        let eth1 = net.r.run(["cat", "/sys/class/net/eth1/ifindex"])?.stdout.trim().parse().unwrap();
        let local = route(NEW_ROUTE, prefix("fd01::/32"), BGP, &[gateway(ip("fe80::9")), link(eth1)]);
        zebra.put(&[local, via("10.9.1.0/24", NEAR[0]), via("10.0.2.0/24", NEAR[0])], OFFLOAD);
        assert_eq!(shown(&router, "fd01::/32")?.expect("the route")["next_hops"][0]["port"], "eth1");
        // The host's own routes and what is for others is passed over, without an answer.
        let kernel = route(NEW_ROUTE, prefix("10.6.0.0/16"), 2, &[gateway(ip(FAR[0]))]);
        let vrf = route(
            NEW_ROUTE,
            prefix("10.7.0.0/16"),
            BGP,
            &[gateway(ip(FAR[0])), attribute(15, &[9, 0, 0, 0])],
        );
        zebra.send(&[kernel, vrf, message(28, 0, &[7; 12], &[])]);
        // A route that was there goes with what can't take its place.
        zebra.put(&[via("10.8.0.0/16", FAR[0])], OFFLOAD);
        zebra.put(&[via("10.8.0.0/16", "203.0.113.1")], OFFLOAD_FAILED);
        assert_eq!(source(&router, "10.8.0.0/16")?, None);
        let fpm = router.json(&["show", "fpm"])?;
        let reasons = fpm["routes"]["refusals"].as_array().unwrap().iter();
        let reasons: Vec<(&str, u64)> =
            reasons.map(|one| (one["reason"].as_str().unwrap(), one["routes"].as_u64().unwrap())).collect();
        assert_eq!(
            reasons,
            [
                ("encapsulation", 1),
                ("unknown-next-hop", 1),
                ("interface", 1),
                ("off-link", 2),
                ("gateway", 1)
            ]
        );
        assert_eq!((&fpm["routes"]["installed"], &fpm["routes"]["shadowed"]), (&1.into(), &2.into()));
        let ignored = serde_json::json!({ "kernel-routes": 1, "other-tables": 1, "neighbors": 1 });
        assert_eq!(fpm["messages"]["ignored"], ignored);
        assert_eq!(source(&router, "10.9.1.0/24")?, of("static", &[FAR[0]]));
        router.say(&["route", "del", "10.9.1.0/24"])?;
        assert_eq!(source(&router, "10.9.1.0/24")?, of("bgp", &[NEAR[0]]));
        let said = router.refused(&["route", "del", "10.9.1.0/24"], 1)?;
        assert!(said.contains("not in table"), "{said}");
        Ok(())
    });
}

#[test]
fn routes_outlive_their_connection_until_the_next_one_does_not_tell_of_them() {
    on_the_net("fpm-stale", |net| {
        let router = start(net, &["--fpm-hold", "1"])?;
        let mut zebra = Zebra::connect(net)?;
        let objects = [next_hop(NEW_NEXT_HOP, 7, &[next_hop_gateway(ip(FAR[0]))])];
        zebra.send(&objects);
        let by_object = route(NEW_ROUTE, prefix("10.9.3.0/24"), BGP, &[next_hop_id(7)]);
        zebra.put(&[via("10.9.1.0/24", FAR[0]), via("10.9.2.0/24", FAR[0]), by_object], OFFLOAD);
        // Another one has to wait.
        let mut other = Zebra::connect(net)?;
        assert!(other.is_closed());
        router.process.wait_for("feeds the router", SOON)?;
        drop(zebra);
        router
            .process
            .wait_for("disconnected: the peer closed the connection; 3 routes kept as stale", SOON)?;
        let stale = |router: &Running| -> Result<Value> {
            Ok(router.json(&["show", "fpm"])?["routes"]["stale"].clone())
        };
        until(SOON, || Ok(stale(&router)? == 3))?;
        std::thread::sleep(Duration::from_secs(2));
        for address in ["10.9.1.1", "10.9.2.1", "10.9.3.1"] {
            assert_eq!(net.a.ping(address, 1)?.received, 1, "{address}");
        }
        // All is sent again except one route. Object numbers start over: 7 is another gateway now.
        let mut zebra = Zebra::connect(net)?;
        zebra.send(&[next_hop(NEW_NEXT_HOP, 7, &[next_hop_gateway(ip("10.0.2.3"))])]);
        zebra.put(&[via("10.9.1.0/24", FAR[0])], OFFLOAD);
        assert_eq!(source(&router, "10.9.3.0/24")?, of("bgp", &[FAR[0]]));
        let again = route(NEW_ROUTE, prefix("10.9.3.0/24"), BGP, &[next_hop_id(7)]);
        zebra.put(&[again], OFFLOAD);
        assert_eq!(source(&router, "10.9.3.0/24")?, of("bgp", &["10.0.2.3"]));
        router.process.wait_for("1 route removed: not sent again by the peer", 2 * SOON)?;
        assert_eq!(source(&router, "10.9.2.0/24")?, None);
        assert_eq!(net.a.ping("10.9.1.1", 1)?.received, 1);
        until(SOON, || Ok(stale(&router)? == 0))?;
        assert_eq!(router.json(&["show", "fpm"])?["swept"], 1);
        Ok(())
    });
}

#[test]
fn who_is_not_understood_is_disconnected_and_loses_nothing() {
    on_the_net("fpm-broken", |net| {
        let router = start(net, &[])?;
        let cut = {
            let mut bytes = via("10.9.2.0/24", FAR[0]);
            bytes.truncate(38);
            bytes[..4].copy_from_slice(&38u32.to_ne_bytes());
            bytes
        };
        let broken: [(&[u8], &str); 5] = [
            (b"GET / HTTP/1.0\r\n\r\n", "FPM version 71, expected 1"),
            (&[1, 2, 0, 8, 0, 0, 0, 0], "protobuf"),
            (&[1, 1, 0, 2], "shorter than its header"),
            (
                &[1, 1, 0, 12, 255, 255, 255, 255, 0, 0, 0, 0],
                "byte 0 of an FPM message does not begin a netlink",
            ),
            (&frame(&[cut]), "malformed"),
        ];
        for (number, (bytes, why)) in (1..).zip(broken) {
            let mut zebra = Zebra::connect(net)?;
            zebra.put(&[via("10.9.1.0/24", FAR[0])], OFFLOAD);
            zebra.0.write_all(bytes).unwrap();
            assert!(zebra.is_closed(), "{why}");
            router.process.wait_for(why, SOON)?;
            until(SOON, || Ok(router.json(&["show", "fpm"])?["connections"] == number))?;
        }
        assert_eq!(net.a.ping("10.9.1.1", 1)?.received, 1);
        assert_eq!(source(&router, "10.9.2.0/24")?, None);
        Ok(())
    });
}

#[test]
fn routes_and_connection_outlive_a_reload() {
    on_the_net("fpm-reload", |net| {
        let mut router = start(net, &["--workers", "2"])?;
        let mut zebra = Zebra::connect(net)?;
        zebra.put(&[via("10.9.1.0/24", FAR[0])], OFFLOAD);
        zebra.put(&[via("10.1.0.0/16", "203.0.113.1")], OFFLOAD_FAILED);
        for round in 0..3 {
            router.reload("the configuration was replaced")?;
            assert_eq!(net.a.ping("10.9.1.1", 3)?.received, 3);
            assert_eq!(source(&router, "10.9.1.0/24")?, of("bgp", &[FAR[0]]));
            zebra.put(&[via(&format!("10.{}.0.0/16", 10 + round), FAR[0])], OFFLOAD);
        }
        let fpm = router.json(&["show", "fpm"])?;
        let routes = &fpm["routes"];
        assert_eq!(routes["installed"], 4);
        assert_eq!(routes["refused"], 1);
        assert_eq!(routes["stale"], 0);
        assert_eq!(fpm["connections"], 1);
        zebra.send(&[gone("10.9.1.0/24")]);
        until(SOON, || Ok(source(&router, "10.9.1.0/24")?.is_none()))?;
        Ok(())
    });
}

#[test]
fn an_address_that_is_taken_is_an_error_before_anything_starts() {
    on_the_net("fpm-taken", |net| {
        let _router = start(net, &[])?;
        let options =
            ["router", "--port", "eth9=10.0.9.1/24", "--print", "--fpm", "[::1]", "--fpm-hold", "5s"];
        let printed = net.r.command([super::artery()?]).args(options).run()?.stdout;
        let expected = "fpm :: FPMServer(ip, LISTEN [::1]:2620, HOLD 5s, HOST artery0);";
        assert!(printed.contains(expected), "{printed}");
        let config =
            "ip :: IPRouter(PORT a 10.0.9.1/24 ETHER 2:0:0:0:0:1); Idle -> ip -> Discard; FPMServer(ip)";
        let output = net.r.command([super::artery()?]).args(["run", "-e", config]).output()?;
        assert_eq!(output.code(), Some(1));
        let stderr = &output.stderr;
        assert!(stderr.contains("can't listen on 127.0.0.1:2620: Address already in use"), "{stderr}");
        let wrong = ["router", "--port", "eth9=10.0.9.1/24", "--fpm", "localhost"];
        let output = net.r.command([super::artery()?]).args(wrong).output()?;
        assert_eq!(output.code(), Some(2));
        assert!(
            output.stderr.contains("write an address, perhaps with a port, such as 127.0.0.1:2620"),
            "{}",
            output.stderr
        );
        Ok(())
    });
}
