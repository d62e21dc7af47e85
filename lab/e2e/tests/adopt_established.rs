//! `artery adopt --established`: packets of connections that the kernel has established go past its rules,
//! with the addresses that it translates to, and nothing else does.

use crate::support::adopting::{Net, by_kernel, forwarded, on_the_net, prepare};
use crate::support::connections::{Connection, Datagrams, flush_connections, until_fast};
use crate::support::{Running, SOON, end, end_by, until_seen};
use artery_rig::Result;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// What a home gateway has: `a` is inside, `b` is outside.
const FIREWALL: &str = "table inet fw { chain forward { type filter hook forward priority 0; policy drop; \
     ct state established,related accept; iifname eth0 accept; }; }; \
     table ip nat { chain out { type nat hook postrouting priority 100; oifname eth1 masquerade; }; \
     chain in { type nat hook prerouting priority -100; iifname eth1 tcp dport 8080 dnat to \
     10.0.1.2:80; }; }";
/// Segments of connections that are not known are dropped, also those from inside.
const STRICT: &str = "table inet fw { chain forward { type filter hook forward priority 0; policy drop; \
     ct state established accept; \
     iifname eth0 tcp flags & (fin | syn | rst | ack) == syn accept; }; }";
const OPEN: &str = "add rule inet fw forward ct status dnat accept";
const INSIDE: &str = "10.0.1.2";
const GATEWAY: &str = "10.0.2.1";
/// Messages there and back again.
const ROUNDS: usize = 1500;

fn adopt(net: &Net, path: &str, rules: &str) -> Result<Running> {
    net.r.run(["nft", rules])?;
    prepare(net, path)?;
    Running::adopt(net, path, &["--established"])
}

fn entries(net: &Net) -> Result<String> {
    Ok(net.r.run(["cat", "/proc/net/nf_conntrack"])?.stdout)
}

fn established_connections_go_past_a_firewall(path: &str) {
    on_the_net(&format!("adopt-established-{path}"), |net| {
        let router = adopt(net, path, FIREWALL)?;
        let outside: SocketAddr = "10.0.2.2:8000".parse().unwrap();
        let tcp = Connection::open(&net.a, &net.b, outside, outside)?;
        assert_eq!(tcp.far.peer_addr().unwrap().ip(), GATEWAY.parse::<IpAddr>().unwrap());
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        let outside6: SocketAddr = "[2001:db8:2::2]:8000".parse().unwrap();
        Connection::open(&net.a, &net.b, outside6, outside6)?.exchange(ROUNDS);
        let udp = Datagrams::open(&net.a, &net.b, "10.0.2.2:9000".parse().unwrap())?;
        assert_eq!(udp.exchange(1), GATEWAY.parse::<IpAddr>().unwrap());
        Datagrams::open(&net.a, &net.b, "[2001:db8:2::2]:9001".parse().unwrap())?.exchange(ROUNDS);
        until_fast(net, &router, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        // By the kernel goes a packet of each direction in a quarter of the timeout, and the first pings.
        let before = by_kernel(&net.r)?;
        tcp.exchange(ROUNDS);
        udp.exchange(ROUNDS);
        let pings = net.a.run(["ping", "-q", "-i", "0.005", "-c", "300", "10.0.2.2"])?;
        assert!(pings.stdout.contains(" 0% packet loss"), "{}", pings.stdout);
        let by_kernel_now = by_kernel(&net.r)? - before;
        assert!(by_kernel_now < 300, "{by_kernel_now} packets of IPv4 went by the kernel");

        // From outside nothing comes in that is not asked for.
        let unasked = net.b.enter(|| {
            TcpStream::connect_timeout(
                &SocketAddr::new(INSIDE.parse().unwrap(), 80),
                Duration::from_millis(500),
            )
            .is_err()
        })?;
        assert!(unasked, "a connection from outside");
        assert!(entries(net)?.contains("ESTABLISHED"), "{}", entries(net)?);
        drop(tcp);
        until_seen(&router, "the kernel sees the connection's end", || {
            let entries = entries(net)?;
            Ok(!entries.lines().any(|line| line.contains("dport=8000") && line.contains("ESTABLISHED")))
        })?;
        let output = end(router.process)?;
        let least = 3 * ROUNDS as u64;
        let stdout = &output.stdout;
        assert!(forwarded(stdout, "eth0") > least && forwarded(stdout, "eth1") > least, "{stdout}");
        assert!(output.stdout.contains("past rules, of established connections"), "{}", output.stdout);
        Ok(())
    });
}

#[test]
fn established_connections_go_past_a_firewall_by_tc_and_nothing_else_does() {
    established_connections_go_past_a_firewall("tc");
}

#[test]
fn established_connections_go_past_a_firewall_by_xdp_and_nothing_else_does() {
    established_connections_go_past_a_firewall("xdp");
}

#[test]
fn what_comes_to_a_translated_port_goes_past_and_stops_when_rules_or_translation_go() {
    on_the_net("adopt-established-dnat", |net| {
        let router = adopt(net, "tc", FIREWALL)?;
        net.r.run(["nft", OPEN])?;
        let to: SocketAddr = "10.0.2.1:8080".parse().unwrap();
        let mut tcp = Connection::open(&net.b, &net.a, "10.0.1.2:80".parse().unwrap(), to)?;
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        // What changes how connections are tracked is named, and keeps all in the kernel.
        let table = "table inet raw { chain pre { type filter hook prerouting priority -300; \
             ip saddr 192.0.2.1 notrack; }; }";
        net.r.run(["nft", table])?;
        router.wait_for("a rule with notrack", 2 * SOON)?;
        let before = by_kernel(&net.r)?;
        tcp.exchange(20);
        assert!(by_kernel(&net.r)? >= before + 40, "packets go past a rule with notrack");
        net.r.run(["nft", "delete table inet raw"])?;
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        // Without its table the kernel translates nothing, and nothing may be translated past it.
        net.r.run(["nft", "delete table ip nat"])?;
        until_seen(&router, "the connection ends", || {
            tcp.near.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let _ = tcp.far.write_all(b"x");
            Ok(tcp.near.read(&mut [0; 1]).is_err())
        })?;
        router.end()
    });
}

/// A connection past rules that drop segments of connections that are not known.
fn fast_connection(net: &Net) -> Result<(Running, Connection)> {
    let router = adopt(net, "tc", STRICT)?;
    let outside: SocketAddr = "10.0.2.2:8000".parse().unwrap();
    let tcp = Connection::open(&net.a, &net.b, outside, outside)?;
    until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
    Ok((router, tcp))
}

#[test]
fn a_connection_that_was_silent_for_longer_than_its_timeout_is_not_forwarded() {
    on_the_net("adopt-established-silent", |net| {
        net.r.sysctl("net.netfilter.nf_conntrack_tcp_timeout_established", "4")?;
        let (router, mut tcp) = fast_connection(net)?;
        // Shorter silences do no harm.
        for _ in 0..3 {
            std::thread::sleep(Duration::from_secs(2));
            tcp.exchange(5);
        }
        std::thread::sleep(Duration::from_secs(6));
        tcp.near.write_all(b"x").expect("it is sent");
        tcp.far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        assert!(tcp.far.read(&mut [0; 1]).is_err(), "a segment passes whose connection has expired");
        router.end()
    });
}

/// A connection that began while no process listened for events of connections.
fn existing_connection(net: &Net) -> Result<Connection> {
    net.r.sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")?;
    net.r.run(["nft", STRICT])?;
    // Anyone on this machine may be listening.
    net.r.sysctl("net.netfilter.nf_conntrack_events", "0")?;
    let outside: SocketAddr = "10.0.2.2:8000".parse().unwrap();
    let old = Connection::open(&net.a, &net.b, outside, outside)?;
    old.exchange(1);
    net.r.sysctl("net.netfilter.nf_conntrack_events", "2")?;
    Ok(old)
}

#[test]
fn connections_that_began_before_are_compared_each_second_if_the_operator_says_so() {
    on_the_net("adopt-established-existing", |net| {
        let mut old = existing_connection(net)?;
        net.r.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "1")?;
        let router = Running::adopt(net, "tc", &["--established-existing"])?;
        until_fast(net, &router, &mut |rounds| old.exchange(rounds))?;
        // It goes on for longer than from one comparison to the next.
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(300));
            let before = by_kernel(&net.r)?;
            old.exchange(20);
            assert!(by_kernel(&net.r)? < before + 3, "a connection that is there goes by the kernel");
        }
        net.r.run(["conntrack", "-D", "-p", "tcp", "--dport", "8000"])?;
        std::thread::sleep(Duration::from_millis(1500));
        old.near.write_all(b"x").expect("it is sent");
        old.far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        assert!(old.far.read(&mut [0; 1]).is_err(), "a segment passes whose connection was removed");
        router.end()
    });
}

#[test]
fn connections_that_began_before_stay_with_the_kernel_which_has_no_events_of_them() {
    on_the_net("adopt-established-before", |net| {
        let old = existing_connection(net)?;
        let router = adopt(net, "tc", "list ruleset")?;
        let before = by_kernel(&net.r)?;
        old.exchange(50);
        assert!(by_kernel(&net.r)? >= before + 100, "a connection whose end nothing would tell of goes past");
        let outside: SocketAddr = "10.0.2.2:8001".parse().unwrap();
        let new = Connection::open(&net.a, &net.b, outside, outside)?;
        until_fast(net, &router, &mut |rounds| new.exchange(rounds))?;
        router.end()
    });
}

#[test]
fn a_connection_that_is_taken_out_of_the_table_is_forwarded_no_more() {
    on_the_net("adopt-established-removed", |net| {
        net.r.sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")?;
        let (router, mut tcp) = fast_connection(net)?;
        flush_connections(&net.r)?;
        std::thread::sleep(Duration::from_millis(300));
        tcp.near.write_all(b"x").expect("it is sent");
        tcp.far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        assert!(tcp.far.read(&mut [0; 1]).is_err(), "a segment passes whose connection was removed");
        router.end()
    });
}

#[test]
fn connections_go_to_the_kernel_while_their_ends_are_read_late_and_come_back() {
    on_the_net("adopt-established-late", |net| {
        net.r.sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")?;
        let (mut router, mut removed) = fast_connection(net)?;
        let outside: SocketAddr = "10.0.2.2:8001".parse().unwrap();
        let kept = Connection::open(&net.a, &net.b, outside, outside)?;
        until_fast(net, &router, &mut |rounds| kept.exchange(rounds))?;
        // It reads nothing, but programs forward: they have a lease of three seconds.
        router.signal(Signal::STOP);
        net.r.run(["conntrack", "-D", "-p", "tcp", "--dport", "8000"])?;
        removed.near.write_all(b"x").expect("it is sent");
        removed.far.read_exact(&mut [0; 1]).expect("what ended is forwarded until that is read");
        std::thread::sleep(Duration::from_millis(1500));
        router.signal(Signal::CONT);
        router.wait_for("more than a second behind the ends of connections", 2 * SOON)?;
        let before = by_kernel(&net.r)?;
        kept.exchange(20);
        assert!(by_kernel(&net.r)? >= before + 40, "connections whose ends are read late go past the kernel");
        removed.near.write_all(b"x").expect("it is sent");
        removed.far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        assert!(removed.far.read(&mut [0; 1]).is_err(), "a segment passes whose connection was removed");
        router.wait_for("caught up with the ends of connections", 2 * SOON)?;
        until_fast(net, &router, &mut |rounds| kept.exchange(rounds))?;
        router.end()
    });
}

#[test]
fn connections_stay_with_the_kernel_if_the_operator_says_so() {
    on_the_net("adopt-established-none", |net| {
        net.r.run(["nft", FIREWALL])?;
        let router = Running::adopt(net, "tc", &["--established=none"])?;
        let outside: SocketAddr = "10.0.2.2:8000".parse().unwrap();
        let tcp = Connection::open(&net.a, &net.b, outside, outside)?;
        let before = by_kernel(&net.r)?;
        tcp.exchange(50);
        assert!(by_kernel(&net.r)? >= before + 100);
        assert_eq!(forwarded(&end(router.process)?.stdout, "eth0"), 0);
        Ok(())
    });
}

fn rules_that_come_are_followed(path: &str) {
    on_the_net(&format!("adopt-established-later-{path}"), |net| {
        for host in [&net.a, &net.b].into_iter().filter(|_| path == "xdp") {
            host.run(["ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off"])?;
        }
        net.r.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "1")?;
        let router = Running::adopt(net, path, &[])?;
        let open = |port: u16| {
            let outside = SocketAddr::new([10, 0, 2, 2].into(), port);
            Connection::open(&net.a, &net.b, outside, outside)
        };
        let plain = open(8000)?;
        until_fast(net, &router, &mut |rounds| plain.exchange(rounds))?;
        net.r.run(["nft", FIREWALL])?;
        router.wait_for("except established connections", 2 * SOON)?;
        // The kernel tracks connections only from now on.
        let new = open(8001)?;
        until_fast(net, &router, &mut |rounds| new.exchange(rounds))?;
        let unasked = net.b.enter(|| {
            let inside = SocketAddr::new(INSIDE.parse().unwrap(), 80);
            TcpStream::connect_timeout(&inside, Duration::from_millis(500)).is_err()
        })?;
        assert!(unasked, "a connection from outside");
        // What others count must not be missing.
        net.r.sysctl("net.netfilter.nf_conntrack_acct", "1")?;
        router.wait_for("packets of each connection are counted", 2 * SOON)?;
        let before = by_kernel(&net.r)?;
        new.exchange(20);
        assert!(by_kernel(&net.r)? >= before + 40, "packets that the kernel counts go past it");
        net.r.sysctl("net.netfilter.nf_conntrack_acct", "0")?;
        until_fast(net, &router, &mut |rounds| new.exchange(rounds))?;
        net.r.run(["nft", "flush ruleset"])?;
        let bare = open(8002)?;
        until_fast(net, &router, &mut |rounds| bare.exchange(rounds))?;
        let output = end(router.process)?;
        assert!(output.stdout.contains("past rules, of established connections"), "{}", output.stdout);
        Ok(())
    });
}

#[test]
fn rules_that_come_are_followed_by_tc() {
    rules_that_come_are_followed("tc");
}

#[test]
fn rules_that_come_are_followed_by_xdp() {
    rules_that_come_are_followed("xdp");
}

#[test]
fn programs_know_of_connections_only_while_there_are_rules_and_no_packet_is_lost_between() {
    on_the_net("adopt-established-while", |net| {
        let router = Running::adopt(net, "tc", &[])?;
        let looks_up = || -> Result<bool> { Ok(router.say(&["show", "adopt"])?.contains("past rules")) };
        net.a.ping("10.0.2.2", 1)?;
        let stream = net.a.spawn(["ping", "-q", "-i", "0.01", "10.0.2.2"])?;
        assert!(!looks_up()?);
        for _ in 0..2 {
            net.r.run(["nft", FIREWALL])?;
            until_seen(&router, "connections are followed", looks_up)?;
            let outside: SocketAddr = "10.0.2.2:9000".parse().unwrap();
            let udp = Datagrams::open(&net.a, &net.b, outside)?;
            until_fast(net, &router, &mut |rounds| {
                udp.exchange(rounds);
            })?;
            net.r.run(["nft", "flush ruleset"])?;
            until_seen(&router, "connections are followed no longer", || Ok(!looks_up()?))?;
        }
        let pings = end_by(stream, Signal::INT)?.stdout;
        let line = pings.lines().find(|line| line.contains("transmitted")).unwrap_or_default();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        // The last one may be under way.
        assert!(numbers.len() >= 2 && numbers[0] <= numbers[1] + 1 && numbers[1] > 100, "{pings}");
        router.end()
    });
}
