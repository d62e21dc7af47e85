//! `artery adopt --established=rules`: packets of established connections go past rules that let all of them
//! through, and no others do.

use crate::support::adopting::{Net, by_kernel, on_the_net, prepare};
use crate::support::connections::{Connection, Datagrams, until_fast};
use crate::support::{Running, SOON, artery_on, until_seen};
use artery_rig::{Process, Result};
use std::net::SocketAddr;

/// A home gateway's rules: `a` is inside, `b` is outside.
const FIREWALL: &str = "table inet fw { chain forward { type filter hook forward priority 0; policy drop; \
     ct state vmap { established : accept, related : accept, invalid : drop }; \
     iifname eth0 oifname eth1 counter accept; }; \
     chain mangle { type filter hook forward priority -150; \
     tcp flags syn tcp option maxseg size set rt mtu; }; }; \
     table ip nat { chain out { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }";
const LIBERAL: &str = "net.netfilter.nf_conntrack_tcp_be_liberal";
const OUT_OF_WINDOW: &str = "connections of TCP over IPv4 stay with the kernel";
/// Messages there and back again.
const ROUNDS: usize = 200;

fn at(port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 2, 2].into(), port)
}

fn adopt(net: &Net, path: &str) -> Result<Running> {
    prepare(net, path)?;
    Running::adopt(net, path, &["--established=rules"])
}

/// How many packets the kernel itself forwards while there is traffic.
fn by_kernel_during(net: &Net, traffic: impl FnOnce()) -> Result<u64> {
    let before = by_kernel(&net.r)?;
    traffic();
    Ok(by_kernel(&net.r)? - before)
}

/// Waits until all packets of a connection go by the kernel.
fn until_by_kernel(net: &Net, router: &Process, udp: &Datagrams) -> Result<()> {
    until_seen(router, "packets that stay with the kernel", || {
        Ok(by_kernel_during(net, || {
            udp.exchange(10);
        })? >= 20)
    })
}

fn connections_go_past_a_firewall_that_lets_them_through(path: &str) {
    on_the_net(&format!("adopt-rules-{path}"), |net| {
        net.r.run(["nft", FIREWALL])?;
        net.r.sysctl(LIBERAL, "1")?;
        let router = adopt(net, path)?;
        let tcp = Connection::open(&net.a, &net.b, at(8000), at(8000))?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        until_fast(net, &router, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        let passed = by_kernel_during(net, || {
            tcp.exchange(ROUNDS);
            udp.exchange(ROUNDS);
        })?;
        assert!(passed < 20, "{passed} packets went by the kernel: {}", router.stderr_so_far());
        // A rule about one connection leaves the other as it is.
        net.r.run(["nft", "insert rule inet fw forward udp dport 9000 log"])?;
        until_by_kernel(net, &router, &udp)?;
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        let said = router.stderr_so_far();
        assert!(said.contains("chain forward, rule ") && said.contains(": log: connections"), "{said}");
        // What drops stops what it is about, and nothing else.
        net.r.run(["nft", "insert rule inet fw forward udp dport 9000 drop"])?;
        udp.far.set_read_timeout(Some(SOON / 20)).expect("a timeout");
        until_seen(&router, "datagrams that are dropped", || {
            udp.near.send_to(b"x", at(9000)).expect("it is sent");
            Ok(udp.far.recv_from(&mut [0; 10]).is_err())
        })?;
        until_fast(net, &router, &mut |rounds| tcp.exchange(rounds))?;
        // Without liberal windows the kernel has to see segments.
        net.r.sysctl(LIBERAL, "0")?;
        router.wait_for(OUT_OF_WINDOW, 2 * SOON)?;
        until_seen(&router, "segments that stay with the kernel", || {
            Ok(by_kernel_during(net, || tcp.exchange(10))? >= 20)
        })?;
        router.end()
    });
}

#[test]
fn connections_go_past_a_firewall_that_lets_them_through_by_tc_until_a_rule_is_about_them() {
    connections_go_past_a_firewall_that_lets_them_through("tc");
}

#[test]
fn connections_go_past_a_firewall_that_lets_them_through_by_xdp_until_a_rule_is_about_them() {
    connections_go_past_a_firewall_that_lets_them_through("xdp");
}

#[test]
fn a_connection_is_the_kernels_at_ports_where_a_rule_is_about_it() {
    on_the_net("adopt-rules-ports", |net| {
        // Only what comes by these ports is let through.
        let rules = "table inet fw { chain forward { type filter hook forward priority 0; policy drop; \
             iifname eth0 oifname eth1 accept; iifname eth1 oifname eth0 ct state established accept; }; }";
        net.r.run(["nft", rules])?;
        let router = adopt(net, "tc")?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        until_fast(net, &router, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        assert!(
            by_kernel_during(net, || {
                udp.exchange(ROUNDS);
            })? < 10
        );
        net.r.run(["nft", "insert rule inet fw forward iifname eth1 counter drop"])?;
        udp.near.set_read_timeout(Some(SOON / 20)).expect("a timeout");
        let source = udp.near.local_addr().expect("an address").port();
        until_seen(&router, "datagrams that are dropped", || {
            udp.far.send_to(b"x", ("10.0.1.2", source)).expect("it is sent");
            Ok(udp.near.recv_from(&mut [0; 10]).is_err())
        })?;
        router.end()
    });
}

fn rules_of_iptables(program: &str) {
    on_the_net(&format!("adopt-rules-{program}"), |net| {
        let run = |rule: &str| net.r.run(["sh", "-c", &format!("{program} {rule}")]);
        run("-P FORWARD DROP")?;
        run("-A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu")?;
        run("-A FORWARD -m conntrack --ctstate INVALID -j DROP")?;
        run("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")?;
        run("-A FORWARD -i eth0 -o eth1 -m state --state NEW -j ACCEPT")?;
        run("-t nat -A POSTROUTING -o eth1 -j MASQUERADE")?;
        let router = adopt(net, "tc")?;
        router.wait_for(OUT_OF_WINDOW, 2 * SOON)?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        until_fast(net, &router, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        let passed = by_kernel_during(net, || {
            udp.exchange(ROUNDS);
        })?;
        assert!(passed < 10, "{passed} packets went by the kernel: {}", router.stderr_so_far());
        let tcp = Connection::open(&net.a, &net.b, at(8000), at(8000))?;
        assert!(by_kernel_during(net, || tcp.exchange(50))? >= 100, "windows are the kernel's");
        run("-I FORWARD -p udp --dport 9000 -j LOG")?;
        until_by_kernel(net, &router, &udp)?;
        run("-D FORWARD -p udp --dport 9000 -j LOG")?;
        until_fast(net, &router, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        router.end()
    });
}

#[test]
fn rules_of_iptables_nft_let_connections_through_that_they_accept() {
    rules_of_iptables("iptables-nft");
}

#[test]
fn rules_of_iptables_legacy_let_connections_through_that_they_accept() {
    rules_of_iptables("iptables-legacy");
}

#[test]
fn a_dry_run_names_the_rules_that_keep_connections() {
    on_the_net("adopt-rules-dry", |net| {
        net.r.run(["nft", FIREWALL])?;
        let dry_run = || -> Result<String> {
            let words = ["adopt", "--dry-run", "--for", "0", "--established=rules", "eth0", "eth1"];
            Ok(artery_on(&net.r, words)?.run()?.stdout)
        };
        let said = dry_run()?;
        assert!(said.contains(OUT_OF_WINDOW) && said.contains("nf_conntrack_tcp_be_liberal=1"), "{said}");
        assert!(said.contains("except established connections"), "{said}");
        net.r.run(["nft", "insert rule inet fw forward ip daddr 192.0.2.1 log"])?;
        let said = dry_run()?;
        assert!(said.contains(": log: connections that it may be about of IPv4 stay"), "{said}");
        net.r.run(["nft", "insert rule inet fw forward limit rate 5/second accept"])?;
        let said = dry_run()?;
        assert!(said.contains(": limit: all connections of IPv4 stay with the kernel"), "{said}");
        assert!(!said.contains("except established connections"), "{said}");
        let words = ["adopt", "--dry-run", "--established", "rules", "eth0"];
        let unsigned = artery_on(&net.r, words)?.output()?;
        assert!(unsigned.stderr.contains("did you mean --established=rules?"), "{unsigned:?}");
        assert_eq!(unsigned.code(), Some(1));
        Ok(())
    });
}
