//! `artery adopt`: where packets and connections go, and why: `top`, `show adopt`, metrics and `explain
//! --adopt`.

use crate::support::adopting::{Net, on_the_net};
use crate::support::connections::{Connection, Datagrams, until_fast};
use crate::support::{Running, end, until_seen};
use artery_rig::Result;
use std::net::SocketAddr;

/// A gateway: `a` is inside, `b` is outside, and windows of TCP matter.
const FIREWALL: &str = "table inet fw { chain forward { type filter hook forward priority 0; policy drop; \
     ct state vmap { established : accept, related : accept, invalid : drop }; \
     iifname eth0 oifname eth1 counter accept; }; }; \
     table ip nat { chain out { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }; \
     table ip6 nat { chain out { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }";

fn at(port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 2, 2].into(), port)
}

/// Adopts ports of a router that forwards past rules as they allow.
fn adopt(net: &Net) -> Result<Running> {
    net.r.run(["nft", FIREWALL])?;
    for far in ["10.0.1.2", "10.0.2.2"] {
        net.r.ping(far, 1)?;
    }
    Running::adopt(net, "tc", &[])
}

impl Running {
    fn explain_adopted(&self, packet: &str, port: &str) -> Result<String> {
        self.say(&["explain", "--adopt", packet, "--in", port])
    }

    /// Exchanges packets until metrics have one of a reason.
    fn until_counted(&self, reason: &str, exchange: impl Fn()) -> Result<()> {
        until_seen(self, reason, || {
            exchange();
            let sample = format!("artery_adopt_kernel_packets_total{{port=\"eth0\",reason=\"{reason}\"}} ");
            let metrics = self.handler(&["metrics"])?;
            let count = metrics.lines().find_map(|line| line.strip_prefix(&sample));
            Ok(count.expect("the reason is listed").parse::<u64>().expect("a count") > 0)
        })
    }
}

/// Whether a line of an explanation begins with a mark and a stage, and contains a text.
fn has_step(explained: &str, start: &str, text: &str) -> bool {
    explained.lines().any(|line| line.starts_with(start) && line.contains(text))
}

#[test]
fn packets_and_connections_are_told_apart_by_what_keeps_them() {
    on_the_net("adopt-explained", |net| {
        let adopted = adopt(net)?;
        let tcp = Connection::open(&net.a, &net.b, at(8000), at(8000))?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        let exchange = || {
            udp.exchange(5);
        };
        until_fast(net, &adopted, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        adopted.until_counted("window", || tcp.exchange(5))?;
        net.r.run(["nft", "insert rule inet fw forward udp dport 9000 log"])?;
        adopted.until_counted("rule", exchange)?;
        let metrics = adopted.handler(&["metrics"])?;
        for sample in ["{by=\"rules\"} 1", "{by=\"windows\"} 1", "{by=\"opening\"} 0"] {
            assert!(metrics.contains(&format!("artery_adopt_connections_kept{sample}\n")), "{metrics}");
        }
        let shown = adopted.say(&["show", "adopt"])?;
        for start in ["kept: rules", "kept: windows", "rule ", "window ", "eth0 "] {
            assert!(shown.lines().any(|line| line.starts_with(start)), "{start} is not in {shown}");
        }
        assert!(adopted.say(&["show", "adopt", "--json"])?.contains("\"connections\""));
        let top = adopted.say(&["top", "--once"])?;
        assert!(top.contains("/s past rules (of established connections)"), "{top}");
        assert!(top.lines().any(|line| line.starts_with("kept: windows")), "{top}");
        let report = end(adopted.process)?.stdout;
        assert!(report.contains("1 connections stay with the kernel: a rule stands in the way"), "{report}");
        Ok(())
    });
}

#[test]
fn a_packet_is_explained_by_its_connection_the_route_and_the_rules() {
    on_the_net("adopt-explained", |net| {
        let adopted = adopt(net)?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        until_fast(net, &adopted, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        let near = udp.near.local_addr().expect("an address").port();
        let packet = format!("10.0.1.2:{near} > 10.0.2.2:9000 udp");
        let said = adopted.explain_adopted(&packet, "eth0")?;
        assert!(has_step(&said, "  connection", "its original direction: forwarded past rules"), "{said}");
        assert!(has_step(&said, "  guard", "except established connections"), "{said}");
        assert!(has_step(&said, "  route", "to 10.0.2.2 by eth1"), "{said}");
        assert!(has_step(&said, "  rules", "nothing stands in the way"), "{said}");
        assert!(has_step(&said, "= verdict", "past the kernel: leaves by eth1 as"), "{said}");
        assert!(has_step(&said, "= verdict", "10.0.2.1"), "its new source: {said}");
        let outside6 = SocketAddr::new("2001:db8:2::2".parse().unwrap(), 9001);
        let udp6 = Datagrams::open(&net.a, &net.b, outside6)?;
        until_fast(net, &adopted, &mut |rounds| {
            udp6.exchange(rounds);
        })?;
        let near = udp6.near.local_addr().expect("an address").port();
        let said = adopted.explain_adopted(&format!("[2001:db8:1::2]:{near} > {outside6} udp"), "eth0")?;
        assert!(has_step(&said, "  connection", "leaves as [2001:db8:2::1]:"), "{said}");
        assert!(has_step(&said, "= verdict", "IP6 2001:db8:2::1."), "its new source: {said}");

        net.r.run(["nft", "insert rule inet fw forward udp dport 9000 log"])?;
        until_seen(&adopted, "the rule is heard of", || {
            let said = adopted.explain_adopted(&packet, "eth0")?;
            Ok(has_step(&said, "x rule", "chain forward, rule ") && has_step(&said, "x rule", ": log"))
        })?;
        adopted.until_counted("rule", || {
            udp.exchange(2);
        })?;
        let said = adopted.explain_adopted(&packet, "eth0")?;
        assert!(has_step(&said, "x connection", "a rule stands in the way"), "{said}");
        assert!(has_step(&said, "= verdict", "left to the kernel (rule)"), "{said}");

        // First packets: from inside they are let through, from outside they are not.
        let said = adopted.explain_adopted("10.0.1.2:7 > 10.0.2.2:7 tcp", "eth0")?;
        assert!(has_step(&said, "x connection", "none is known"), "{said}");
        assert!(has_step(&said, "  rules", "nothing stands in the way of the first packet"), "{said}");
        assert!(has_step(&said, "= verdict", "left to the kernel (not-established)"), "{said}");
        let said = adopted.explain_adopted("10.0.2.2:7 > 10.0.1.2:7 tcp", "eth1")?;
        assert!(has_step(&said, "x rule", "chain forward: its policy drops (shown by"), "{said}");
        // What does not depend on connections, and questions without an answer.
        let said = adopted.explain_adopted("10.0.1.2:7 > 192.0.2.1:7 udp", "eth0")?;
        assert!(has_step(&said, "x route", "unreachable"), "{said}");
        let said = adopted.say(&["explain", "--adopt", "--json", &packet, "--in", "eth0"])?;
        assert!(said.contains("\"reason\": \"rule\""), "{said}");
        let unknown = adopted.call(&["explain", "--adopt", "10.0.1.2:7 > 10.0.2.2:7 udp", "--in", "eth9"])?;
        assert!(unknown.stderr.contains("'eth9' is not adopted: packets come by eth0, eth1"), "{unknown:?}");
        adopted.end()
    });
}
