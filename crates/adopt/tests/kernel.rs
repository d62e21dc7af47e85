//! The mirror of a real kernel: after storms of changes, packets go as the kernel says that it forwards them.
mod support;

use artery_adopt::mirror::{Driver, Plain, Turn, Way};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use support::question::{Out, Question};
use support::{in_namespace, ip, ip_must, set};

const LINKS: usize = 4;
const TABLES: [&str; 5] = ["main", "main", "default", "local", "100"];

/// Numbers that are random enough (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// A router with four cables, whose other ends are in the same namespace, and one that packets come in by.
fn make_router() {
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
    ip_must("link add in0 type veth peer name out0\nlink set in0 up\nlink set out0 up");
    ip_must("addr add 192.0.2.254/24 dev in0\naddr add 2001:db8:ffff::254/64 dev in0 nodad");
    for link in 1..=LINKS {
        ip_must(&format!("link add eth{link} type veth peer name end{link}"));
        ip_must(&format!("link set end{link} up\nlink set eth{link} up"));
        ip_must(&addresses(link));
    }
}

fn addresses(link: usize) -> String {
    format!(
        "addr replace 10.0.{link}.1/24 dev eth{link}\naddr replace 2001:db8:{link}::1/64 dev eth{link} nodad\n"
    )
}

/// Makes commands of ip(8).
struct Storm {
    random: Random,
    commands: String,
    /// Whether there are routes of IPv4 by gateways of IPv6.
    crosses: bool,
}

impl Storm {
    fn link(&mut self) -> usize {
        self.random.below(LINKS) + 1
    }

    fn step(&mut self) {
        match self.random.below(60) {
            0 => self.change_link(),
            1 => self.change_rule(),
            2..8 => self.change_object(),
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
            _ => writeln!(self.commands, "link set end{link} up\nlink set eth{link} up\n{}", addresses(link)),
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
        let address = self.address4().to_bits();
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        format!("{}/{len}", std::net::Ipv4Addr::from(address & mask))
    }

    fn prefix6(&mut self) -> String {
        let len = [0, 36, 37, 48, 64, 127, 128][self.random.below(7)];
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        format!("{}/{len}", std::net::Ipv6Addr::from(self.address6().to_bits() & mask))
    }

    fn address4(&mut self) -> std::net::Ipv4Addr {
        let low = self.random.below(3) << 8 | self.random.below(4);
        ((100 << 24 | 64 << 16 | self.random.below(3) << 20 | self.random.below(2) << 14 | low) as u32).into()
    }

    fn address6(&mut self) -> std::net::Ipv6Addr {
        let high = 0x2001_0db8_1000_0000u128 << 64 | (self.random.below(3) as u128) << 90;
        (high | (self.random.below(3) as u128) << 64 | self.random.below(4) as u128).into()
    }
}

fn gateway(is_v4: bool, link: usize, host: usize) -> String {
    if is_v4 { format!("10.0.{link}.{host}") } else { format!("2001:db8:{link}::{host}") }
}

/// Whether what was told is what the kernel does.
fn is_right(told: Option<&Way>, kernel: Option<Out>) -> bool {
    match (told, kernel) {
        (None | Some(Way::Kernel), kernel) => kernel.is_none(),
        (Some(Way::Hops(hops)), Some((link, gateway))) => {
            hops.iter().any(|hop| hop.link == link && hop.gateway == gateway)
        }
        (Some(Way::Hops(_)), None) => false,
    }
}

/// Asks for many destinations; returns how many the kernel forwards, and what is different.
fn differences(storm: &mut Storm, question: &Question, sink: &Plain) -> (usize, Vec<String>) {
    let sources: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8:ffff::1".parse().unwrap()];
    let (mut forwarded, mut wrong) = (0, Vec::new());
    for _ in 0..500 {
        for destination in [IpAddr::from(storm.address4()), IpAddr::from(storm.address6())] {
            let kernel = question.ask(sources[usize::from(destination.is_ipv6())], destination);
            let told = sink.lookup(destination);
            forwarded += usize::from(kernel.is_some());
            if !is_right(told, kernel) {
                wrong.push(format!("{destination}: told {told:?}, the kernel {kernel:?}"));
            }
        }
    }
    (forwarded, wrong)
}

/// Follows until nothing is left to hear and to look at, as far as the clock says.
fn follow(driver: &mut Driver, sink: &mut Plain) {
    while driver.turn(Instant::now(), sink).unwrap() == Turn::Again {}
}

fn index_of(sink: &Plain, name: &str) -> u32 {
    sink.links.values().find(|link| link.name == name).unwrap().index
}

/// Follows storms of changes, and compares after each until nothing differs.
fn weather(seed: u64, crosses: bool, first: &str) {
    make_router();
    ip_must(first);
    let (mut driver, mut sink) = (Driver::open().unwrap(), Plain::default());
    driver.load(Instant::now(), &mut sink).unwrap();
    let question = Question::new(index_of(&sink, "in0"));
    let mut storm = Storm { random: Random(seed), commands: String::new(), crosses };
    let (mut late, mut forwarded) = (0, 0);
    for round in 0..40 {
        storm.commands.clear();
        (0..60).for_each(|_| storm.step());
        ip(&storm.commands);
        follow(&mut driver, &mut sink);
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let (some, wrong) = differences(&mut storm, &question, &sink);
            forwarded += some;
            if wrong.is_empty() {
                break;
            }
            late += 1;
            assert!(Instant::now() < end, "round {round}: {wrong:#?}\n{}", storm.commands);
            if std::env::var_os("SHOW_LATE").is_some() {
                eprintln!("round {round}: {:#?}\n{}", &wrong[..wrong.len().min(4)], storm.commands);
            }
            std::thread::sleep(Duration::from_millis(100));
            follow(&mut driver, &mut sink);
        }
    }
    // Otherwise there was nothing to see.
    assert!(forwarded > 4000, "only {forwarded}");
    eprintln!(
        "seed {seed}: {forwarded} forwarded, {late} comparisons came too early, {} looks at everything",
        driver.looks()
    );
}

#[test]
fn packets_go_as_the_kernel_forwards_them_through_storms_of_changes() {
    // A rule more than at the start makes `local` a table of its own in IPv4.
    in_namespace(|| weather(1, true, "-4 rule add pref 999 lookup 77\n-6 rule add pref 999 lookup 77"));
}

#[test]
fn next_hops_without_carrier_are_passed_over_where_that_was_set() {
    in_namespace(|| {
        set("ipv4/conf/default/ignore_routes_with_linkdown", "1");
        set("ipv6/conf/default/ignore_routes_with_linkdown", "1");
        // The kernel does not pass over a gateway of IPv6 that was given to a route of IPv4 while there was no carrier:
        // it has not noted that. Packets to such a route are lost either way.
        weather(2, false, "-4 rule add pref 999 lookup 77");
    });
}
