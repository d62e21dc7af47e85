//! Rules as a real kernel has them, written by nft, iptables-nft and iptables-legacy: which connections they
//! let through.

use crate::support::in_namespace;
use artery_adopt::fast::FlowKey;
use artery_adopt::kernel::Family;
use artery_adopt::policy::{ConnectionView, Interface, Policy};
use std::net::IpAddr;
use std::process::Command;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Answered and confirmed.
const ESTABLISHED: u32 = 1 << 1 | 1 << 3;
/// The same, with source addresses translated.
const MASQUERADED: u32 = ESTABLISHED | 1 << 4;

/// What one end of a connection looks like to the other.
#[derive(Clone, Copy)]
struct End(&'static str, u16);

fn key(from: End, to: End, protocol: u8) -> FlowKey {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let [a, b] = from.1.to_be_bytes();
    let [c, d] = to.1.to_be_bytes();
    FlowKey { source: address(from.0), destination: address(to.0), ports: [a, b, c, d], protocol }
}

/// A connection that is not translated.
struct Connection {
    there: FlowKey,
    back: FlowKey,
    ports: [Interface; 2],
}

impl Connection {
    fn new(from: End, to: End, protocol: u8) -> Connection {
        let port = |index, name: &str| Interface { index, name: name.into() };
        Connection {
            there: key(from, to, protocol),
            back: key(to, from, protocol),
            ports: [port(7, "lan0"), port(8, "wan0")],
        }
    }
    fn views(&self) -> [ConnectionView<'_>; 2] {
        let view = |direction: u8, arrives: FlowKey| ConnectionView {
            arrives,
            leaves: arrives,
            tuples: [self.there, self.back],
            direction,
            status: ESTABLISHED,
            input: Some(&self.ports[usize::from(direction)]),
            output: Some(&self.ports[1 - usize::from(direction)]),
            is_routed: false,
        };
        [view(0, self.there), view(1, self.back)]
    }
    /// What stands in the way of either direction.
    fn obstacle(&self, policy: &Policy) -> Option<String> {
        self.views().iter().find_map(|view| policy.obstacle(view)).map(|obstacle| obstacle.what)
    }
}

fn run(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn web() -> Connection {
    Connection::new(End("10.0.1.2", 4000), End("10.0.2.2", 80), TCP)
}

/// Names for the wanted connection in the table below.
fn connections() -> [(&'static str, Connection); 6] {
    [
        ("web", web()),
        ("ssh", Connection::new(End("10.0.1.2", 4001), End("10.0.2.2", 22), TCP)),
        ("dns", Connection::new(End("10.0.1.3", 4002), End("10.0.2.3", 53), UDP)),
        ("quic", Connection::new(End("10.0.1.2", 4003), End("10.0.2.2", 443), UDP)),
        ("web6", Connection::new(End("2001:db8:1::2", 4004), End("2001:db8:2::2", 80), TCP)),
        ("far", Connection::new(End("192.0.2.9", 4005), End("10.0.2.2", 80), TCP)),
    ]
}

/// Rules of a chain at the forward hook, and the connections that something stands in the way of.
const CASES: [(&str, &str); 38] = [
    ("ct state established,related accept; drop", ""),
    ("ct state vmap { established : accept, related : accept, invalid : drop }; drop", ""),
    ("ct state invalid drop; ct state { established, related } counter accept; drop", ""),
    ("ct state new drop", ""),
    ("ct state != established drop", ""),
    ("tcp dport 22 drop; ct state established accept; drop", "ssh"),
    ("tcp sport 22 drop", "ssh"),
    ("tcp dport 20-25 reject", "ssh"),
    ("tcp dport != 22 drop", "web web6 far ssh"),
    ("tcp dport { 22, 80 } log", "web ssh web6 far"),
    ("udp dport { 50-60, 100-200 } drop", "dns"),
    ("meta l4proto udp counter drop", "dns quic"),
    ("ip saddr 10.0.1.0/24 ip daddr 10.0.2.3 drop", "dns"),
    ("ip saddr != 10.0.0.0/8 drop", "far"),
    ("ip6 saddr 2001:db8:1::/48 drop", "web6"),
    ("meta nfproto ipv6 drop", "web6"),
    ("ip saddr . tcp dport { 10.0.1.2 . 80, 10.0.1.9 . 22 } drop", "web"),
    ("ip saddr . tcp dport { 10.0.1.0/24 . 20-25 } drop", "ssh"),
    ("tcp dport vmap { 80 : accept, 22 : drop }", "ssh"),
    ("tcp dport vmap { 80 : jump other, 22 : goto other }; accept", "web ssh far web6"),
    ("jump other; accept", "web ssh dns quic web6 far"),
    ("ip saddr 192.0.2.0/24 jump other", "far"),
    ("ct state established goto fine; drop", ""),
    ("iifname lan0 oifname wan0 accept; iifname wan0 ct state established accept; drop", ""),
    ("iifname \"wan*\" drop", "web ssh dns quic web6 far"),
    ("oifname \"dmz*\" drop", ""),
    ("iif != 7 oif != 7 drop", ""),
    ("tcp flags syn tcp option maxseg size set rt mtu", ""),
    ("tcp flags & (syn|rst) == syn tcp option maxseg size set 1400", ""),
    ("tcp option maxseg size set 1400", "web ssh dns quic web6 far"),
    ("tcp flags & psh == psh drop", "web ssh web6 far"),
    ("ip dscp 5 drop", "web ssh dns quic far"),
    ("limit rate 5/second accept", "web ssh dns quic web6 far"),
    ("ip daddr 10.0.2.3 meta mark set 5", "dns"),
    ("udp dport 443 quota 10 mbytes accept", "quic"),
    ("ct direction reply drop", "web ssh dns quic web6 far"),
    ("ct original ip daddr 10.0.2.3 drop", "dns"),
    ("meta l4proto udp ct original proto-dst 443 drop; ct status dnat drop", "quic"),
];

#[test]
fn rules_of_nftables_stand_in_the_way_of_the_connections_that_they_can_match() {
    in_namespace(|| {
        for (rules, expected) in CASES {
            let lines = rules.replace("; ", "\n");
            let text = format!(
                "flush ruleset\ntable inet t {{\nchain other {{ counter drop\n}}\nchain fine {{ accept\n}}\n\
                 chain f {{ type filter hook forward priority 0\n{lines}\n}}\n}}\n"
            );
            std::fs::write("/tmp/artery-policy-test.nft", &text).unwrap();
            run("nft -f /tmp/artery-policy-test.nft");
            let policy = Policy::read().unwrap();
            for (name, connection) in connections() {
                let found = connection.obstacle(&policy);
                let is_expected = expected.split(' ').any(|one| one == name);
                assert_eq!(found.is_some(), is_expected, "{rules}: {name}: {found:?}");
            }
        }
        let _ = std::fs::remove_file("/tmp/artery-policy-test.nft");
    });
}

#[test]
fn what_stands_in_the_way_is_named_and_policies_of_all_chains_count() {
    in_namespace(|| {
        run("nft add table ip a; \
             nft 'add chain ip a f { type filter hook forward priority 5; policy drop; }'");
        let policy = Policy::read().unwrap();
        assert_eq!(
            web().obstacle(&policy).as_deref(),
            Some("nftables: table ip a, chain f: its policy drops")
        );
        run("nft add rule ip a f ct state established accept");
        assert_eq!(web().obstacle(&Policy::read().unwrap()), None);
        assert_eq!(Policy::read().unwrap().survey(Family::V4), []);
        // Segments out of window are none of an established connection.
        assert!(Policy::read().unwrap().survey_invalid(Family::V4).is_some());
        run("nft 'add chain ip a g { type filter hook postrouting priority 0; }'");
        run("nft 'add set ip a late { type ipv4_addr; timeout 1h; }'; \
             nft add rule ip a g ip saddr @late drop");
        let found = web().obstacle(&Policy::read().unwrap()).unwrap();
        assert!(found.starts_with("nftables: table ip a, chain g, rule "), "{found}");
        run("nft flush chain ip a g; nft 'add set ip a fixed { type ipv4_addr; elements = { 10.0.1.2 }; }'");
        run("nft add rule ip a g ip saddr @fixed drop");
        assert!(web().obstacle(&Policy::read().unwrap()).is_some());
        run("nft delete element ip a fixed '{ 10.0.1.2 }'");
        assert_eq!(web().obstacle(&Policy::read().unwrap()), None);
        run("nft 'add counter ip a c'; nft 'add rule ip a g counter name c'");
        assert!(web().obstacle(&Policy::read().unwrap()).unwrap().ends_with("a named object"));
        run("nft 'add table ip a { flags dormant; }'");
        assert_eq!(web().obstacle(&Policy::read().unwrap()), None);
    });
}

#[test]
fn chains_before_and_behind_translation_see_other_addresses() {
    in_namespace(|| {
        // From 10.0.1.2 behind 10.0.2.1.
        let there = key(End("10.0.1.2", 4000), End("10.0.2.2", 80), UDP);
        let back = key(End("10.0.2.2", 80), End("10.0.2.1", 9000), UDP);
        let left = key(End("10.0.2.1", 9000), End("10.0.2.2", 80), UDP);
        let returned = key(End("10.0.2.2", 80), End("10.0.1.2", 4000), UDP);
        let view = |direction: u8, arrives, leaves| ConnectionView {
            arrives,
            leaves,
            tuples: [there, back],
            direction,
            status: MASQUERADED,
            input: None,
            output: None,
            is_routed: false,
        };
        let stands = |policy: &Policy| {
            [view(0, there, left), view(1, back, returned)].map(|view| policy.obstacle(&view).is_some())
        };
        for (hook, priority, rule, expected) in [
            ("prerouting", -150, "ip daddr 10.0.2.1 drop", [false, true]),
            ("prerouting", -50, "ip daddr 10.0.2.1 drop", [false, false]),
            ("prerouting", -50, "ip daddr 10.0.1.2 drop", [false, true]),
            ("prerouting", -50, "udp dport 4000 drop", [false, true]),
            ("prerouting", -100, "ip daddr 10.0.1.2 drop", [false, true]),
            ("prerouting", -300, "ct state invalid drop", [true, true]),
            ("forward", 0, "ip saddr 10.0.2.1 drop", [false, false]),
            ("forward", 0, "ip saddr 10.0.1.2 drop", [true, false]),
            ("forward", 0, "ct status snat ct direction original drop", [true, false]),
            ("postrouting", 50, "ip saddr 10.0.2.1 drop", [false, false]),
            ("postrouting", 150, "ip saddr 10.0.2.1 drop", [true, false]),
            ("postrouting", 150, "udp sport 9000 drop", [true, false]),
        ] {
            run("nft flush ruleset; nft add table ip t");
            run(&format!("nft 'add chain ip t c {{ type filter hook {hook} priority {priority}; }}'"));
            run(&format!("nft 'add rule ip t c {rule}'"));
            assert_eq!(stands(&Policy::read().unwrap()), expected, "{hook} {priority}: {rule}");
        }
    });
}

#[test]
fn rules_of_both_kinds_of_iptables_are_understood_alike() {
    const ACCEPTS: &str = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT";
    let cases = [
        (vec![ACCEPTS, "-j DROP"], ""),
        (vec!["-m state --state ESTABLISHED -m comment --comment '-j DROP' -j ACCEPT", "-j DROP"], ""),
        (vec!["-m conntrack ! --ctstate ESTABLISHED -j DROP"], ""),
        (vec!["-m conntrack --ctstate INVALID -j DROP", ACCEPTS, "-j REJECT"], ""),
        (vec!["-p tcp -m tcp --dport 22 -j DROP", ACCEPTS], "ssh"),
        (vec!["-p udp -m udp --dport 50:60 -j DROP"], "dns"),
        (vec!["-p tcp -m multiport --dports 22,100:200 -j DROP"], "ssh"),
        (vec!["-s 10.0.1.0/24 -d 10.0.2.3 -j DROP"], "dns"),
        (vec!["! -s 10.0.0.0/8 -j DROP"], "far"),
        (vec!["-i lan0 -o wan0 -j ACCEPT", "-i wan+ -m state --state ESTABLISHED -j ACCEPT", "-j DROP"], ""),
        (vec!["-i wan+ -p udp -j DROP"], "dns quic"),
        (vec!["-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu"], ""),
        (vec!["-p tcp -m tcp --dport 22 -j LOG"], "ssh"),
        (vec!["-p udp -m limit --limit 5/sec -j ACCEPT"], "dns quic"),
        (vec!["-p udp -m length --length 100:200 -j DROP"], "dns quic"),
        (vec!["-p udp -m length --length 100:200 -j ACCEPT", "-p udp -m udp --dport 53 -j DROP"], "dns"),
    ];
    in_namespace(|| {
        for program in ["iptables-nft", "iptables-legacy"] {
            for (rules, expected) in &cases {
                run(&format!("{program} -F FORWARD"));
                rules.iter().for_each(|rule| run(&format!("{program} -A FORWARD {rule}")));
                let policy = Policy::read().unwrap();
                for (name, connection) in connections().iter().filter(|(name, _)| *name != "web6") {
                    let found = connection.obstacle(&policy);
                    let is_expected = expected.split(' ').any(|one| one == *name);
                    assert_eq!(found.is_some(), is_expected, "{program} {rules:?}: {name}: {found:?}");
                }
            }
            run(&format!("{program} -F FORWARD; {program} -P FORWARD DROP"));
            assert!(web().obstacle(&Policy::read().unwrap()).unwrap().ends_with("its policy drops"));
            run(&format!("{program} -N good; {program} -A good {ACCEPTS}; {program} -A FORWARD -j good"));
            assert_eq!(web().obstacle(&Policy::read().unwrap()), None);
            run(&format!("{program} -I good -j RETURN"));
            assert!(web().obstacle(&Policy::read().unwrap()).is_some());
            run(&format!("{program} -P FORWARD ACCEPT; {program} -F"));
        }
    });
}
