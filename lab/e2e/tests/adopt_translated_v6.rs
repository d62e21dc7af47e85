//! `artery adopt --established` and IPv6 that the kernel translates: hosts see what they see of the kernel
//! alone, and few packets go by it.

use crate::support::adopting::{Net, by_kernel6, forwarded, on_the_net, send_whole_frames};
use crate::support::connections::{Connection, Datagrams, until_fast};
use crate::support::{Running, end, until_seen};
use artery_rig::{Host, Result, Rig};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// `a` is inside, `b` is outside. Packets to ::98 go back inside, those to ::99 to `b`.
const RULES: &str = "table inet fw { chain forward { type filter hook forward priority 0; policy drop; \
     ct state established,related accept; ct status dnat accept; iifname eth0 accept; }; }; \
     table ip6 nat { chain in { type nat hook prerouting priority -100; \
     ip6 daddr 2001:db8:2::1 tcp dport 8080 dnat to [2001:db8:1::2]:80; \
     ip6 daddr 2001:db8:2::1 udp dport 9090 dnat to 2001:db8:1::2; \
     ip6 daddr 2001:db8:2::98 dnat to 2001:db8:1::2; ip6 daddr 2001:db8:2::99 dnat to 2001:db8:2::2; }; \
     chain out { type nat hook postrouting priority 100; \
     oifname eth1 meta l4proto { tcp, udp } th dport { 8001, 9001 } snat to 2001:db8:2::77; \
     oifname eth1 masquerade; oifname eth0 ip6 saddr 2001:db8:1::/64 masquerade; }; }";
const INSIDE: &str = "2001:db8:1::2";
const OUTSIDE: &str = "2001:db8:2::2";
const GATEWAY: &str = "2001:db8:2::1";
const BACK_INSIDE: &str = "2001:db8:2::98";
const PINGS: u64 = 300;

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

/// Where what hosts leave to cards is finished; virtual links have none.
#[derive(Clone, Copy)]
enum Offload {
    /// Checksums and segments stay unfinished from end to end.
    Everywhere,
    /// The router's kernel finishes them as packets leave, and hosts check them.
    BeforeRouter,
    /// Frames are whole, and hosts check them.
    Nowhere,
}

/// A router with `artery adopt` or without, and its hosts.
struct Side {
    net: Net,
    router: Option<Running>,
}

impl Side {
    fn start(rig: &Rig, prefix: &str, offload: Offload, path: Option<&str>) -> Result<Side> {
        let net = Net::named(rig, prefix)?;
        match offload {
            Offload::Everywhere => {}
            Offload::BeforeRouter => {
                for port in ["eth0", "eth1"] {
                    net.r.run(["ethtool", "-K", port, "tx", "off"])?;
                }
            }
            Offload::Nowhere => {
                send_whole_frames(&net, "xdp")?;
            }
        }
        net.r.address("eth1", "2001:db8:2::77/64")?;
        let router = path.map(|path| adopt(&net, path)).transpose()?;
        if router.is_none() {
            prepare(&net)?;
        }
        Ok(Side { net, router })
    }

    /// Exchanges until few packets go by the kernel, or some where it is alone.
    fn exchange(&self, exchange: &mut dyn FnMut(usize)) -> Result<()> {
        match &self.router {
            Some(router) => until_fast(&self.net, router, exchange),
            None => {
                exchange(20);
                Ok(())
            }
        }
    }

    /// Sends much over a connection; returns the address that the server sees.
    fn tcp(&self, client: &Host, server: &Host, listen: (&str, u16), to: (&str, u16)) -> Result<IpAddr> {
        let [listen, to] = [listen, to].map(|(address, port)| at(address, port));
        let tcp = Connection::open(client, server, listen, to)?;
        self.exchange(&mut |rounds| tcp.exchange(rounds))?;
        let before = by_kernel6(&self.net.r)?;
        send_much(&tcp);
        let passed = by_kernel6(&self.net.r)? - before;
        assert!(self.router.is_none() || passed <= 20, "{passed} segments went by the kernel");
        Ok(tcp.far.peer_addr().expect("an address").ip())
    }

    /// Sends datagrams; returns the address that the server sees.
    fn udp(&self, client: &Host, server: &Host, to: &str, port: u16) -> Result<IpAddr> {
        let udp = Datagrams::open(client, server, at(to, port))?;
        self.exchange(&mut |rounds| {
            udp.exchange(rounds);
        })?;
        Ok(udp.exchange(20))
    }

    fn ping(&self, to: &str) -> Result<()> {
        let before = by_kernel6(&self.net.r)?;
        let pings = self.net.a.run(["ping", "-q", "-i", "0.005", "-c", &PINGS.to_string(), to])?;
        assert!(pings.stdout.contains(" 0% packet loss"), "{}", pings.stdout);
        let passed = by_kernel6(&self.net.r)? - before;
        assert!(self.router.is_none() || passed * 10 <= 2 * PINGS, "{passed} echoes went by the kernel");
        Ok(())
    }

    /// Has all kinds of translated packets pass; returns the sources that servers see.
    fn translate_all(&self) -> Result<Vec<IpAddr>> {
        let Net { a, b, .. } = &self.net;
        let seen = vec![
            self.tcp(a, b, (OUTSIDE, 8000), (OUTSIDE, 8000))?,
            self.tcp(a, b, (OUTSIDE, 8001), (OUTSIDE, 8001))?,
            self.tcp(b, a, (INSIDE, 80), (GATEWAY, 8080))?,
            self.tcp(a, a, (INSIDE, 8002), (BACK_INSIDE, 8002))?,
            self.udp(a, b, OUTSIDE, 9000)?,
            self.udp(a, b, OUTSIDE, 9001)?,
            self.udp(b, a, GATEWAY, 9090)?,
            self.udp(a, a, BACK_INSIDE, 9002)?,
        ];
        [OUTSIDE, "2001:db8:2::99", BACK_INSIDE].into_iter().try_for_each(|to| self.ping(to))?;
        Ok(seen)
    }
}

/// Sets rules, and has the router know its neighbors.
fn prepare(net: &Net) -> Result<()> {
    net.r.run(["nft", RULES])?;
    [INSIDE, OUTSIDE].into_iter().try_for_each(|far| net.r.ping(far, 1).map(drop))
}

fn adopt(net: &Net, path: &str) -> Result<Running> {
    prepare(net)?;
    Running::adopt(net, path, &["--established"])
}

/// Sends more both ways than a segment has room for, so that links join and cut segments.
fn send_much(tcp: &Connection) {
    let sent: Vec<u8> = (0..400_000_u32).map(|number| (number / 251) as u8).collect();
    for (mut from, mut to) in [(&tcp.near, &tcp.far), (&tcp.far, &tcp.near)] {
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&sent).expect("it is sent"));
            let mut taken = vec![0; sent.len()];
            to.read_exact(&mut taken).expect("it arrives");
            assert!(taken == sent);
        });
    }
}

fn hosts_see_what_they_see_of_the_kernel_alone(path: &str, offload: Offload) {
    let number = offload as u8;
    artery_rig::test(&format!("adopt-translated-v6-{path}-{number}"), |rig| {
        let kernel = Side::start(rig, "k", offload, None)?.translate_all()?;
        let adopted = Side::start(rig, "", offload, Some(path))?;
        assert_eq!(adopted.translate_all()?, kernel);
        let fixed: IpAddr = "2001:db8:2::77".parse().unwrap();
        let inside: IpAddr = INSIDE.parse().unwrap();
        assert!([1, 5].iter().all(|at| kernel[*at] == fixed), "{kernel:?}");
        assert!(!kernel.contains(&inside), "what goes back inside is masqueraded, too: {kernel:?}");
        let report = end(adopted.router.expect("a router").process)?.stdout;
        for port in ["eth0", "eth1"] {
            assert!(forwarded(&report, port) > 2 * PINGS, "{report}");
        }
        Ok(())
    });
}

#[test]
fn hosts_see_of_translated_ipv6_what_they_see_of_the_kernel_alone_by_tc() {
    hosts_see_what_they_see_of_the_kernel_alone("tc", Offload::Everywhere);
}

#[test]
fn checksums_of_translated_ipv6_that_the_kernel_finishes_behind_tc_are_right() {
    hosts_see_what_they_see_of_the_kernel_alone("tc", Offload::BeforeRouter);
}

#[test]
fn checksums_of_translated_ipv6_are_right_by_tc() {
    hosts_see_what_they_see_of_the_kernel_alone("tc", Offload::Nowhere);
}

#[test]
fn checksums_of_translated_ipv6_are_right_by_xdp() {
    hosts_see_what_they_see_of_the_kernel_alone("xdp", Offload::Nowhere);
}

#[test]
fn nothing_of_ipv6_is_translated_once_the_kernel_translates_nothing() {
    on_the_net("adopt-translated-v6-gone", |net| {
        let router = adopt(net, "tc")?;
        let mut tcp = Connection::open(&net.a, &net.b, at(OUTSIDE, 8000), at(OUTSIDE, 8000))?;
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        net.r.run(["nft", "delete table ip6 nat"])?;
        until_seen(&router, "the connection ends", || {
            tcp.near.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let _ = tcp.far.write_all(b"x");
            Ok(tcp.near.read(&mut [0; 1]).is_err())
        })?;
        router.end()
    });
}
