//! Random rules, as nft takes them.
use super::HOSTS;
use artery_rig::Result;
use std::fmt;

/// A sequence of numbers that is the same for each seed (xorshift).
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        let mut x = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        x ^= x >> 33;
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^= x >> 29;
        self.0 = self.0.wrapping_add(0x1234_5678_9abc_def1);
        x % limit
    }
    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Chains of rules, and routes beside them.
pub(super) struct Rules {
    pub(super) file: String,
    /// Commands that set routes.
    pub(super) routes: Vec<String>,
    prerouting: Vec<String>,
    forward: Vec<String>,
    postrouting: Vec<String>,
    other: Vec<String>,
    nat: Vec<String>,
    drops: bool,
}

impl Rules {
    pub(super) fn new(random: &mut Random) -> Rules {
        let some = |random: &mut Random, most: u64, may_jump: bool| {
            (0..random.below(most)).map(|_| rule(random, may_jump)).collect::<Vec<_>>()
        };
        let mut forward = some(random, 7, true);
        if !random.one_in(4) {
            let at = random.below(forward.len() as u64 + 1) as usize;
            let state = random.of(&[
                "ct state established,related accept",
                "ct state vmap { established : accept, related : accept, invalid : drop }",
                "ct state established counter accept",
                "ct direction reply accept",
            ]);
            forward.insert(at, state.to_owned());
        }
        let drops = random.one_in(2);
        if drops {
            forward.push(random.of(&["iifname eth0 accept", "udp dport < 1200 accept", "accept"]).to_owned());
        }
        let mut nat = Vec::new();
        match random.below(6) {
            0 => nat.push("add rule ip n out oifname eth1 masquerade".to_owned()),
            1 => nat.push("add rule ip n out oifname eth1 ip saddr 10.0.1.10 snat to 10.0.2.77".to_owned()),
            2 => nat
                .push("add rule ip n in udp dport 1024-1100 ip daddr 10.0.2.10 dnat to 10.0.2.11".to_owned()),
            3 => nat
                .push("add rule ip n in tcp dport 1024-1100 ip daddr 10.0.2.11 dnat to 10.0.2.12".to_owned()),
            _ => {}
        }
        let nat6 = [
            "out oifname eth1 masquerade",
            "out oifname eth1 ip6 saddr 2001:db8:1::a snat to 2001:db8:2::77",
            "in udp dport 1024-1100 ip6 daddr 2001:db8:2::a dnat to 2001:db8:2::b",
            "in tcp dport 1024-1100 ip6 daddr 2001:db8:2::b dnat to 2001:db8:2::c",
        ];
        nat.extend(nat6.get(random.below(6) as usize).map(|rule| format!("add rule ip6 n {rule}")));
        Rules {
            file: String::new(),
            routes: Vec::new(),
            prerouting: if random.one_in(3) { some(random, 3, false) } else { Vec::new() },
            postrouting: if random.one_in(3) { some(random, 3, false) } else { Vec::new() },
            other: some(random, 4, false),
            forward,
            nat,
            drops,
        }
    }

    /// Changes one thing: rules, what a chain does in the end, or a route.
    pub(super) fn change(&mut self, random: &mut Random) {
        match random.below(6) {
            0 => drop(self.forward.pop()),
            1 => self.drops = !self.drops,
            2 => self.other.push(rule(random, false)),
            3 => {
                let host = random.of(&HOSTS);
                self.routes.push(format!("ip route replace blackhole 10.0.2.{host}"));
            }
            _ => {
                let at = random.below(self.forward.len() as u64 + 1) as usize;
                self.forward.insert(at, rule(random, true));
            }
        }
    }

    /// Writes the file for nft.
    pub(super) fn write(&mut self) -> Result<()> {
        let path = std::env::temp_dir().join(format!("artery-differential-{}.nft", std::process::id()));
        std::fs::write(&path, self.to_string()).expect("a file");
        self.file = path.display().to_string();
        Ok(())
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = if self.drops { "drop" } else { "accept" };
        writeln!(f, "flush ruleset\nadd table inet t\nadd chain inet t other")?;
        writeln!(f, "add chain inet t pre {{ type filter hook prerouting priority -150; }}")?;
        writeln!(f, "add chain inet t through {{ type filter hook forward priority 0; policy {policy}; }}")?;
        writeln!(f, "add chain inet t post {{ type filter hook postrouting priority 50; }}")?;
        // Connections are tracked and may be translated in any case.
        for family in ["ip", "ip6"] {
            writeln!(f, "add table {family} n")?;
            writeln!(f, "add chain {family} n in {{ type nat hook prerouting priority -100; }}")?;
            writeln!(f, "add chain {family} n out {{ type nat hook postrouting priority 100; }}")?;
        }
        writeln!(f, "add rule inet t other ct state new counter")?;
        let chains = [
            ("other", &self.other),
            ("pre", &self.prerouting),
            ("through", &self.forward),
            ("post", &self.postrouting),
        ];
        for (chain, rules) in chains {
            for rule in rules {
                // Nothing can be rejected there.
                let rule = if chain == "post" { rule.replace("reject", "drop") } else { rule.clone() };
                // Nor does a packet have an input there.
                let rule = if chain == "post" { rule.replace(WAY_BACK, "meta mark 7") } else { rule };
                writeln!(f, "add rule inet t {chain} {rule}")?;
            }
        }
        self.nat.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

/// Whether no route leads back by where the packet came from.
const WAY_BACK: &str = "fib saddr . iif oif missing";

fn rule(random: &mut Random, may_jump: bool) -> String {
    let mut conditions = vec![condition(random)];
    if random.one_in(2) {
        let other = condition(random);
        conditions.extend(Some(other).filter(|other| agree(&conditions[0], other)));
    }
    let action = match random.below(22) {
        0..8 => "accept",
        8..12 => "drop",
        12 => "reject",
        13 => "counter",
        14 => "meta mark set 7",
        20 => "meta mark set 0",
        21 => "meta mark set meta mark and 0xffffff00",
        15 => "limit rate over 1000000/second drop",
        16 => "log",
        17 if may_jump => "goto other",
        18 if may_jump => "jump other",
        _ => "return",
    };
    format!("{} {action}", conditions.join(" "))
}

/// Whether nft takes two conditions in one rule: none is about another family or protocol.
fn agree(one: &str, other: &str) -> bool {
    let about = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_about = |first: &[&str], second: &[&str]| {
        about(one, first) && about(other, second) || about(one, second) && about(other, first)
    };
    let (udp, tcp, echoes) = (&["udp "], &["tcp"], &["icmp"]);
    !is_about(&["ip ", "ipv4", "icmp "], &["ip6 ", "ipv6", "icmpv6"])
        && !is_about(udp, tcp)
        && !is_about(udp, echoes)
        && !is_about(tcp, echoes)
}

fn condition(random: &mut Random) -> String {
    let host = |random: &mut Random, network: u8| format!("10.0.{network}.{}", random.of(&HOSTS));
    let port = |random: &mut Random| 1024 + random.below(80) * 3;
    match random.below(23) {
        20 => random
            .of(&["fib daddr type local", "fib saddr type unicast", "fib daddr type != unicast"])
            .to_owned(),
        21 => WAY_BACK.to_owned(),
        22 => random.of(&["meta mark 0", "meta mark and 0x3 != 0", "meta mark < 7"]).to_owned(),
        0 => format!("ip saddr {}", host(random, 1)),
        1 => format!("ip daddr {}", host(random, 2)),
        2 => format!("ip saddr {{ {}, {} }}", host(random, 1), host(random, 2)),
        3 => format!("ip daddr != {}", host(random, 2)),
        4 => format!("udp dport {}-{}", port(random), port(random) + 300),
        5 => format!("udp sport {{ 1024-{}, 40000-50000 }}", 1024 + random.below(30000)),
        6 => format!(
            "ip daddr . udp dport {{ {} . {}-{} }}",
            host(random, 2),
            port(random),
            port(random) + 300
        ),
        7 => random.of(&["iifname eth0", "oifname eth0", "iifname \"eth*\"", "oifname != eth1"]).to_owned(),
        8 => random
            .of(&["ct state established", "ct state new", "ct state invalid", "ct state != new"])
            .to_owned(),
        9 => random.of(&["ct direction original", "ct direction reply"]).to_owned(),
        10 => random.of(&["ct status snat", "ct status dnat", "ct status seen-reply"]).to_owned(),
        11 => format!("ip6 daddr 2001:db8:2::{:x}", random.of(&HOSTS)),
        12 => random.of(&["meta nfproto ipv4", "meta nfproto ipv6", "meta l4proto tcp"]).to_owned(),
        13 => format!("meta length {}-{}", random.below(300), 300 + random.below(600)),
        14 => format!("ct original ip daddr {}", host(random, 2)),
        15 => format!("tcp dport {}-{}", port(random), port(random) + 300),
        16 => random
            .of(&["icmp type echo-request", "icmp type echo-reply", "icmpv6 type echo-reply"])
            .to_owned(),
        17 => random.of(&["ct mark 7", "ct mark != 7", "ct mark 0"]).to_owned(),
        18 => format!(
            "ip6 saddr {{ 2001:db8:1::{:x}, 2001:db8:2::{:x} }}",
            random.of(&HOSTS),
            random.of(&HOSTS)
        ),
        _ => random.of(&["tcp flags syn", "ip ttl > 60", "meta mark 7", "udp length > 100"]).to_owned(),
    }
}
