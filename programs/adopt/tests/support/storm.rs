//! A router, and storms of changes to its links, rules, next-hop objects, routes and neighbors.
use super::{ip_must, set};
use std::fmt::Write as _;

const LINKS: usize = 4;
const TABLES: [&str; 5] = ["main", "main", "default", "local", "100"];

/// Numbers that are random enough (xorshift64*).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
    /// Others, of which however many may be drawn: what is drawn here afterwards stays the same.
    pub(crate) fn fork(&mut self) -> Self {
        let drawn = self.below(1 << 31) as u64;
        Self(self.0 ^ drawn << 32 | 1)
    }

    pub(crate) fn address4(&mut self) -> std::net::Ipv4Addr {
        let low = self.below(3) << 8 | self.below(4);
        ((100 << 24 | 64 << 16 | self.below(3) << 20 | self.below(2) << 14 | low) as u32).into()
    }

    pub(crate) fn address6(&mut self) -> std::net::Ipv6Addr {
        let high = 0x2001_0db8_1000_0000u128 << 64 | (self.below(3) as u128) << 90;
        (high | (self.below(3) as u128) << 64 | self.below(4) as u128).into()
    }
}

/// A router with four cables, whose other ends are in the same namespace, and one that packets come in by.
pub(crate) fn make_router() {
    for (name, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/all/accept_dad", "0"),
    ] {
        set(name, value);
    }
    // Sources that share a bit with one of the router's addresses stay with the kernel. With link addresses
    // of the kernel's choice, of which link-local ones are made, some would do so in one run of twenty.
    ip_must(&format!("link add {}\nlink set in0 up\nlink set out0 up", pair(["in0", "out0"], 0)));
    ip_must("addr add 192.0.2.254/24 dev in0\naddr add 2001:db8:ffff::254/64 dev in0 nodad");
    for link in 1..=LINKS {
        ip_must(&format!("link add {}", pair([&format!("eth{link}"), &format!("end{link}")], link)));
        ip_must(&format!("link set end{link} up\nlink set eth{link} up"));
        ip_must(&addresses(link));
        ip_must(&neighbors(link));
    }
}

/// Two ends with link addresses of their own.
fn pair([end, other]: [&str; 2], link: usize) -> String {
    let mac = |end: u8| format!("02:00:00:fe:{link:02x}:{end:02x}");
    format!("{end} address {} type veth peer name {other} address {}", mac(1), mac(2))
}

/// All gateways at a link.
fn neighbors(link: usize) -> String {
    let neighbor = |is_v4, host| {
        let mac = format!("02:00:00:{link:02x}:{host:02x}:00");
        format!("neigh replace {} lladdr {mac} dev eth{link} nud permanent\n", gateway(is_v4, link, host))
    };
    (2..8).map(|host| neighbor(true, host) + &neighbor(false, host)).collect()
}

fn addresses(link: usize) -> String {
    format!(
        "addr replace 10.0.{link}.1/24 dev eth{link}\n\
         addr replace 2001:db8:{link}::1/64 dev eth{link} nodad\n"
    )
}

/// Makes commands of ip(8).
pub(crate) struct Storm {
    pub(crate) random: Random,
    pub(crate) commands: String,
    /// Whether there are routes of IPv4 by gateways of IPv6.
    pub(crate) crosses: bool,
}

impl Storm {
    fn link(&mut self) -> usize {
        self.random.below(LINKS) + 1
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(70) {
            0 => self.change_link(),
            1 => self.change_rule(),
            2..8 => self.change_object(),
            8..18 => self.change_neighbor(),
            _ => self.change_route(),
        }
    }

    fn change_link(&mut self) {
        let link = self.link();
        match self.random.below(6) {
            0 => writeln!(self.commands, "link set eth{link} down"),
            1 => writeln!(self.commands, "link set eth{link} down\nlink set eth{link} up"),
            2 => writeln!(self.commands, "link set end{link} down"),
            3 => writeln!(self.commands, "addr flush dev eth{link}"),
            4 => writeln!(self.commands, "addr del 10.0.{link}.1/24 dev eth{link}"),
            _ => writeln!(
                self.commands,
                "link set end{link} up\nlink set eth{link} up\n{}{}",
                addresses(link),
                neighbors(link)
            ),
        }
        .unwrap();
    }

    fn change_rule(&mut self) {
        let family = self.random.pick(&["", "-6 "]);
        let priority = 1000 + self.random.below(4);
        let verb = self.random.pick(&["add", "del", "del"]);
        let what = match self.random.below(8) {
            0 => "goto 32766".into(),
            1 => "lookup main suppress_prefixlength 10".into(),
            2 => format!("from all oif eth1 lookup {}", self.random.pick(&TABLES)),
            _ => format!("lookup {}", self.random.pick(&TABLES)),
        };
        writeln!(self.commands, "{family}rule {verb} pref {priority} {what}").unwrap();
    }

    fn change_object(&mut self) {
        let id = self.random.below(8) + 1;
        let link = self.link();
        let what = match (id, self.random.below(8)) {
            (_, 0) => return writeln!(self.commands, "nexthop del id {id}").unwrap(),
            (5..=6, _) => format!("group {}/{},{}", self.random.below(4) + 1, link, self.random.below(4) + 1),
            (7, _) => format!("via 2001:db8:{link}::{} dev eth{link}", self.random.below(5) + 2),
            (8, 1) => "blackhole".into(),
            _ => format!("via 10.0.{link}.{} dev eth{link}", self.random.below(5) + 2),
        };
        writeln!(self.commands, "nexthop replace id {id} {what}").unwrap();
    }

    /// A neighbor is a gateway of routes and objects, or a destination.
    fn change_neighbor(&mut self) {
        let (link, host) = (self.link(), self.random.below(6) + 2);
        let address = match self.random.below(4) {
            0 => self.random.address4().to_string(),
            1 => self.random.address6().to_string(),
            is_v4 => gateway(is_v4 == 2, link, host),
        };
        if self.random.below(4) == 0 {
            return writeln!(self.commands, "neigh del {address} dev eth{link}").unwrap();
        }
        let mac = format!("02:00:00:{link:02x}:{host:02x}:{:02x}", self.random.below(256));
        let state = self.random.pick(&["permanent", "permanent", "reachable", "stale", "noarp", "failed"]);
        writeln!(self.commands, "neigh replace {address} lladdr {mac} dev eth{link} nud {state}").unwrap();
    }

    fn change_route(&mut self) {
        let is_v4 = self.random.below(2) == 0;
        let prefix = if is_v4 { self.prefix4() } else { self.prefix6() };
        let table = self.random.pick(&TABLES);
        let metric = self.random.below(3) * 10 + 10;
        let verb = self.random.pick(&["add", "add", "replace", "replace", "append", "prepend", "del", "del"]);
        let kind = self.random.pick(&["", "", "", "", "", "unreachable", "blackhole", "prohibit", "throw"]);
        let way = if kind.is_empty() { self.way(is_v4) } else { String::new() };
        let end = format!("metric {metric} table {table} {way}");
        writeln!(self.commands, "route {verb} {kind} {prefix} {end}").unwrap();
    }

    /// Changes a route of IPv6 in the main table, which may be for some sources only.
    pub(crate) fn change_route_by_source(&mut self, sources: &[&str]) {
        let prefix = self.prefix6();
        let from = match self.random.below(3) {
            0 => String::new(),
            _ => format!("from {}/{}", self.random.pick(sources), [128, 64][self.random.below(2)]),
        };
        let from = from.replace("::1/64", "::/64");
        let metric = self.random.below(2) * 10 + 10;
        let verb = self.random.pick(&["add", "replace", "append", "prepend", "del", "del"]);
        let way = self.way(false);
        writeln!(self.commands, "route {verb} {prefix} {from} metric {metric} {way}").unwrap();
    }

    fn way(&mut self, is_v4: bool) -> String {
        let link = self.link();
        let host = self.random.below(5) + 2;
        match self.random.below(8) {
            0 => format!("dev eth{link}"),
            1 => format!("nhid {}", self.random.below(8) + 1),
            2 if is_v4 && self.crosses => format!("via inet6 2001:db8:{link}::{host} dev eth{link}"),
            3..=4 => {
                let other = self.link();
                let [one, two] = [gateway(is_v4, link, host), gateway(is_v4, other, host + 1)];
                format!("nexthop via {one} dev eth{link} weight 2 nexthop via {two} dev eth{other}")
            }
            _ => format!("via {} dev eth{link}", gateway(is_v4, link, host)),
        }
    }

    fn prefix4(&mut self) -> String {
        let len = [0, 10, 11, 16, 17, 24, 31, 32][self.random.below(8)];
        let address = self.random.address4().to_bits();
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        format!("{}/{len}", std::net::Ipv4Addr::from(address & mask))
    }

    fn prefix6(&mut self) -> String {
        let len = [0, 36, 37, 48, 64, 127, 128][self.random.below(7)];
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        format!("{}/{len}", std::net::Ipv6Addr::from(self.random.address6().to_bits() & mask))
    }
}

fn gateway(is_v4: bool, link: usize, host: usize) -> String {
    if is_v4 { format!("10.0.{link}.{host}") } else { format!("2001:db8:{link}::{host}") }
}
