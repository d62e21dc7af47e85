//! The mirror of a real kernel: after storms of changes, packets go as the kernel says that it forwards them.
mod policy;
mod support;
mod vrf;

use artery_adopt::blockers;
use artery_adopt::kernel::{Family, Link};
use artery_adopt::mirror::{
    Exclusion, MirrorDriver, NextHopSet, NextHopSetId, PollOutcome, RecordingSink, Sink,
};
use artery_lpm::Prefix;
use artery_wire::EtherAddr;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use support::question::{Out, Question};
use support::storm::{Random, Storm, make_router};
use support::wire::{Said, Sinks, difference};
use support::{in_namespace, ip, ip_must, set};

/// Destinations of each family that are asked about after each storm.
const DESTINATIONS: usize = 1250;
/// Sources and destinations of IPv4 that are asked about with each demand on sources.
const STRANGERS: usize = 500;
const STORMS: usize = 40;
/// Those that packets come and leave by. What leaves by another is the kernel's.
const ADOPTED: [&str; 4] = ["in0", "eth1", "eth2", "eth3"];

/// Whether the sink's next-hop set is what the kernel does.
fn is_right(told: Option<&NextHopSet>, kernel: Option<Out>) -> bool {
    match (told, kernel) {
        (None | Some(NextHopSet::Kernel), kernel) => kernel.is_none(),
        (Some(NextHopSet::Hops(hops)), Some((link, gateway))) => {
            hops.iter().any(|hop| hop.link == link && hop.gateway == gateway)
        }
        (Some(NextHopSet::Hops(_)), None) => false,
    }
}

/// Asks for many destinations; returns how many the kernel forwards, how many of them were sent,
/// and what is different.
fn differences(mut asked: Random, question: &Question, sinks: &mut Sinks) -> (usize, usize, Vec<String>) {
    let sources: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8:ffff::1".parse().unwrap()];
    let adopted = ADOPTED.map(|name| index_of(&sinks.plain, name));
    let said = Said::now(&adopted);
    let (mut forwarded, mut sent, mut wrong) = (0, 0, Vec::new());
    for _ in 0..DESTINATIONS {
        for destination in [IpAddr::from(asked.address4()), IpAddr::from(asked.address6())] {
            let source = sources[usize::from(destination.is_ipv6())];
            let kernel = question.ask(source, destination);
            let ours = sinks.plain.lookup(destination);
            forwarded += usize::from(kernel.is_some());
            if !is_right(ours, kernel) {
                wrong.push(format!("{destination}: the mirror {ours:?}, the kernel {kernel:?}"));
            }
            let target = sinks.target(question.link, source, destination);
            sent += usize::from(target.is_some());
            // With a rule more than at the start sources of IPv4 are asked for: where nothing leads back,
            // that is the kernel's.
            let leads_back = matches!(sinks.plain.lookup(source), Some(NextHopSet::Hops(_)));
            if destination.is_ipv6() || leads_back {
                wrong.extend(difference(sinks, &said, question, [source, destination], kernel));
            } else if target.is_some() {
                wrong.push(format!("{destination}: sent for a source that nothing leads back to"));
            }
        }
    }
    (forwarded, sent, wrong)
}

/// Follows until there is nothing left to read, as far as the clock says.
fn follow(driver: &mut MirrorDriver, sinks: &mut Sinks) {
    while driver.poll(Instant::now(), sinks).unwrap() == PollOutcome::Again {}
    sinks.accelerator.set_own(driver.mirror().addresses().map(|own| (own.address, own.link)));
    sinks.accelerator.set_reverse_paths(driver.mirror().reverse_paths());
    sinks.accelerator.complete_updates().unwrap();
}

/// Asks about sources that may be routed back by any interface, or by none: what the kernel drops is not
/// sent. Returns how many were sent, and what should not have been.
fn strangers(mut asked: Random, question: &Question, sinks: &mut Sinks) -> (usize, Vec<String>) {
    let (mut sent, mut wrong) = (0, Vec::new());
    for _ in 0..STRANGERS {
        let [source, destination] = [asked.address4(), asked.address4()].map(IpAddr::from);
        if sinks.target(question.link, source, destination).is_none() {
            continue;
        }
        sent += 1;
        if question.ask(source, destination).is_none() {
            wrong.push(format!("{source} to {destination} is sent, and dropped by the kernel"));
        }
    }
    (sent, wrong)
}

/// The same with each demand on sources; returns how many were sent with each.
fn demanding(
    driver: &mut MirrorDriver,
    storm: &mut Storm,
    question: &Question,
    sinks: &mut Sinks,
) -> [usize; 2] {
    let sent = ["1", "2"].map(|demand| {
        set("ipv4/conf/in0/rp_filter", demand);
        let end = Instant::now() + Duration::from_secs(20);
        let asked = storm.random.fork();
        loop {
            follow(driver, sinks);
            let (sent, wrong) = strangers(asked.clone(), question, sinks);
            if wrong.is_empty() {
                return sent;
            }
            assert!(Instant::now() < end, "rp_filter {demand}: {wrong:#?}\n{}", storm.commands);
        }
    });
    set("ipv4/conf/in0/rp_filter", "0");
    follow(driver, sinks);
    sent
}

/// Hosts whose routes come and go at random, many of them in a /24.
const HOSTS: usize = 2000;

#[test]
fn routes_that_come_and_go_by_thousands_are_here_what_they_are_in_the_kernel() {
    in_namespace(|| {
        make_router();
        let mut driver = MirrorDriver::open().unwrap();
        let mut sinks = Sinks::adopt(&ADOPTED.map(|name| blockers::port(name).unwrap().unwrap().index));
        driver.load(Instant::now(), &mut sinks).unwrap();
        follow(&mut driver, &mut sinks);
        let (mut random, mut live, mut commands) = (Random(7), vec![false; HOSTS], String::new());
        let address = |host: usize| Ipv4Addr::from_bits(0xc612_0000 + host as u32);
        for _ in 0..10 * HOSTS {
            let host = random.below(HOSTS);
            live[host] = !live[host];
            let verb = if live[host] { "add" } else { "del" };
            commands += &format!("route {verb} {}/32 via 10.0.1.{}\n", address(host), 2 + host % 6);
        }
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| ip(&commands));
            while !changing.is_finished() {
                follow(&mut driver, &mut sinks);
            }
        });
        // All notifications of the kernel are in the socket by now.
        follow(&mut driver, &mut sinks);
        assert_eq!((driver.overruns(), driver.changes() >= 10 * HOSTS as u64), (0, true));
        assert!(driver.lag(Instant::now()).is_some(), "marks are read, too");
        let (input, source) = (index_of(&sinks.plain, "in0"), "192.0.2.1".parse().unwrap());
        let question = Question::new(input);
        for (host, is_live) in live.iter().enumerate() {
            let target = sinks.target(input, source, address(host).into());
            assert_eq!(target.is_some(), *is_live, "{}", address(host));
            if host % 100 == 0 {
                assert_eq!(question.ask(source, address(host).into()).is_some(), *is_live);
            }
        }
    });
}

fn index_of(sink: &RecordingSink, name: &str) -> u32 {
    sink.links.values().find(|link| link.name == name).unwrap().index
}

/// Follows storms of changes, and compares after each until nothing differs.
fn weather(seed: u64, crosses: bool, first: &str) {
    make_router();
    ip_must(first);
    let mut driver = MirrorDriver::open().unwrap();
    let mut sinks = Sinks::adopt(&ADOPTED.map(|name| blockers::port(name).unwrap().unwrap().index));
    driver.load(Instant::now(), &mut sinks).unwrap();
    let question = Question::new(index_of(&sinks.plain, "in0"));
    let mut storm = Storm { random: Random(seed), commands: String::new(), crosses };
    let (mut late, mut forwarded, mut sent, mut strange) = (0, 0, 0, [0; 2]);
    for round in 0..STORMS {
        storm.commands.clear();
        (0..60).for_each(|_| storm.step());
        ip(&storm.commands);
        follow(&mut driver, &mut sinks);
        let end = Instant::now() + Duration::from_secs(60);
        let asked = storm.random.fork();
        loop {
            let (some_forwarded, some_sent, wrong) = differences(asked.clone(), &question, &mut sinks);
            if wrong.is_empty() {
                (forwarded, sent) = (forwarded + some_forwarded, sent + some_sent);
                break;
            }
            late += 1;
            let few = &wrong[..wrong.len().min(20)];
            assert!(
                Instant::now() < end,
                "round {round}, {} wrong: {few:#?}\n{}",
                wrong.len(),
                storm.commands
            );
            if std::env::var_os("SHOW_LATE").is_some() {
                eprintln!("round {round}: {:#?}\n{}", &wrong[..wrong.len().min(4)], storm.commands);
            }
            std::thread::sleep(Duration::from_millis(100));
            follow(&mut driver, &mut sinks);
        }
        let more = demanding(&mut driver, &mut storm, &question, &mut sinks);
        strange.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }
    eprintln!(
        "seed {seed}: {forwarded} forwarded, {sent} sent, {strange:?} of strangers, {late} comparisons came \
         too early, {} looks at everything",
        driver.resyncs()
    );
    // Otherwise there was nothing to see.
    assert!(forwarded > 10_000 && sent > 3_000, "only {forwarded} forwarded, {sent} sent");
    // No route leads back by `in0`, so that strict demands leave none of them.
    assert!(strange[0] == 0 && strange[1] > 100, "{strange:?} of strangers were sent");
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
        // The kernel does not skip an IPv6 gateway that was given to an IPv4 route while there was no
        // carrier: it has not noted that. Packets to such a route are lost either way.
        weather(2, false, "-4 rule add pref 999 lookup 77");
    });
}

/// Sources of IPv6 that packets come from, of which routes are for the first two only.
const SOURCES: [&str; 3] = ["2001:db8:ffff::1", "2001:db8:b::1", "2001:db8:c::1"];

/// The prefixes of the kernel's main table, and whether it has a route for some sources there.
fn prefixes_by_source() -> Vec<(Prefix<u128>, bool)> {
    let output = std::process::Command::new("ip").args(["-6", "route", "show", "table", "main"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    // Next hops of several stand on lines of their own.
    let routes = text.lines().filter(|line| !line.starts_with(char::is_whitespace));
    let prefix = |word: &str| match word {
        "default" => Prefix::ALL,
        word if word.contains('/') => word.parse().unwrap(),
        host => format!("{host}/128").parse().unwrap(),
    };
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap();
        let word =
            if word.contains([':', 'd']) && word != "unreachable" { word } else { words.next().unwrap() };
        (prefix(word), words.next() == Some("from"))
    };
    routes.map(of_line).collect()
}

/// Destinations for which the sink and the kernel differ, where routes may be for some sources only:
/// if the longest prefix has such a route, everything is left to the kernel; elsewhere nothing that
/// the kernel forwards is.
fn differing_by_source(
    mut asked: Random,
    question: &Question,
    plain: &RecordingSink,
) -> (usize, Vec<String>) {
    let prefixes = prefixes_by_source();
    let (mut kept, mut wrong) = (0, Vec::new());
    for _ in 0..DESTINATIONS {
        let destination = asked.address6();
        let covering =
            prefixes.iter().filter(|(prefix, _)| prefix.covers(Prefix::host(destination.to_bits())));
        let longest = covering.clone().map(|(prefix, _)| prefix.len()).max();
        let is_by_source =
            covering.clone().any(|(prefix, is_by_source)| *is_by_source && Some(prefix.len()) == longest);
        kept += usize::from(is_by_source);
        let ours = plain.lookup(destination.into());
        for source in SOURCES {
            let kernel = question.ask(source.parse().unwrap(), destination.into());
            let is_right = match is_by_source {
                true => ours == Some(&NextHopSet::Kernel),
                false => is_right(ours, kernel),
            };
            if !is_right {
                wrong.push(format!("{source} to {destination}: the mirror {ours:?}, the kernel {kernel:?}"));
            }
        }
    }
    (kept, wrong)
}

#[test]
fn prefixes_with_routes_for_some_sources_and_only_these_stay_with_the_kernel() {
    in_namespace(|| {
        make_router();
        let mut driver = MirrorDriver::open().unwrap();
        let mut plain = RecordingSink::default();
        driver.load(Instant::now(), &mut plain).unwrap();
        let question = Question::new(index_of(&plain, "in0"));
        let mut storm = Storm { random: Random(7), commands: String::new(), crosses: false };
        let mut all_kept = 0;
        for round in 0..30 {
            storm.commands.clear();
            (0..40).for_each(|_| storm.change_route_by_source(&SOURCES[1..]));
            ip(&storm.commands);
            if round % 3 == 2 {
                // As SIGHUP does.
                driver.request_resync();
            }
            let end = Instant::now() + Duration::from_secs(20);
            let asked = storm.random.fork();
            loop {
                while driver.poll(Instant::now(), &mut plain).unwrap() == PollOutcome::Again {}
                let (kept, wrong) = differing_by_source(asked.clone(), &question, &plain);
                if wrong.is_empty() {
                    all_kept += kept;
                    break;
                }
                let few = &wrong[..wrong.len().min(20)];
                assert!(Instant::now() < end, "round {round}: {few:#?}\n{}", storm.commands);
                std::thread::sleep(Duration::from_millis(20));
            }
            // A mirror that reads everything from the start has the same result.
            let mut anew = RecordingSink::default();
            let mut other = MirrorDriver::open().unwrap();
            other.load(Instant::now(), &mut anew).unwrap();
            assert!(anew.v6.keys().eq(plain.v6.keys()), "round {round}\n{}", storm.commands);
            let kept = |driver: &MirrorDriver| driver.mirror().excluded_prefixes().collect::<Vec<_>>();
            assert_eq!(kept(&driver), kept(&other), "round {round}\n{}", storm.commands);
        }
        assert!(all_kept > 5_000, "{all_kept} destinations were kept");
        assert!(
            driver.resyncs() < 60,
            "{} looks at everything: changes were not understood",
            driver.resyncs()
        );
    });
}

/// What of a route counts besides its prefix: how it is made, a destination, and whether the kernel's next
/// hops are known; if not, its packets are left to the kernel.
const ATTRIBUTES: [(&str, &str, bool); 19] = [
    ("route add 198.51.100.0/24 via 10.0.1.2 realm 7", "198.51.100.1", true),
    (
        "route add 198.51.101.0/24 via 10.0.1.2 hoplimit 3 advmss 900 initcwnd 20 rtt 9ms",
        "198.51.101.1",
        true,
    ),
    ("route add 198.51.102.0/24 via 10.0.1.2 src 10.0.1.1", "198.51.102.1", true),
    ("route add 198.51.103.0/24 via 10.9.9.9 dev eth1 onlink", "198.51.103.1", true),
    ("route add 198.51.104.0/24 via 10.0.1.2 mtu 1400", "198.51.104.1", false),
    ("route add 198.51.105.0/24 via 10.0.1.2 mtu lock 1400", "198.51.105.1", false),
    ("route add 198.51.106.0/24 mtu 1400 nexthop via 10.0.1.2 nexthop via 10.0.2.2", "198.51.106.1", false),
    ("route add multicast 239.1.0.0/16 dev eth1", "239.1.0.1", false),
    ("route add broadcast 198.51.107.255 dev eth1", "198.51.107.255", false),
    (
        "route add 198.51.108.0/24 via 10.0.1.2 metric 9\nroute add 198.51.108.0/24 via 10.0.2.2 metric 3",
        "198.51.108.1",
        true,
    ),
    (
        "-6 route add 2001:db8:51::/48 via 2001:db8:1::2 pref low\n\
         -6 route append 2001:db8:51::/48 dev eth2 pref high",
        "2001:db8:51::1",
        true,
    ),
    (
        "-6 route add 2001:db8:52::/48 dev eth1 pref high\n\
         -6 route append 2001:db8:52::/48 dev eth2 pref low",
        "2001:db8:52::1",
        true,
    ),
    ("-6 route add 2001:db8:53::/48 via 2001:db8:1::2 expires 600", "2001:db8:53::1", true),
    ("-6 route add 2001:db8:54::/48 via 2001:db8:9::9 dev eth1 onlink", "2001:db8:54::1", true),
    ("-6 route add 2001:db8:55::/48 via 2001:db8:1::2 mtu 1400", "2001:db8:55::1", false),
    ("-6 route add 2001:db8:56::/48 via 2001:db8:1::2 hoplimit 3", "2001:db8:56::1", true),
    (
        "-6 route add 2001:db8:57::/48 encap seg6 mode encap segs 2001:db8:1::2 dev eth1",
        "2001:db8:57::1",
        false,
    ),
    ("-6 route add anycast 2001:db8:58::1/128 dev eth1", "2001:db8:58::1", false),
    (
        "-6 route add 2001:db8:59::/48 from 2001:db8:ffff::/64 via 2001:db8:1::2 table 100\n\
         -6 rule add pref 90 lookup 100",
        "2001:db8:59::1",
        false,
    ),
];

#[test]
fn what_else_a_route_has_is_honoured_or_left_to_the_kernel() {
    in_namespace(|| {
        make_router();
        for (commands, destination, is_known) in ATTRIBUTES {
            let destination: IpAddr = destination.parse().unwrap();
            let source = if destination.is_ipv4() { "192.0.2.1" } else { SOURCES[0] };
            ip_must(commands);
            let mut sinks = RecordingSink::default();
            MirrorDriver::open().unwrap().load(Instant::now(), &mut sinks).unwrap();
            let question = Question::new(index_of(&sinks, "in0"));
            let ours = sinks.lookup(destination);
            let kernel = question.ask(source.parse().unwrap(), destination);
            let is_alike = kernel.is_some() && is_right(ours, kernel);
            match is_known {
                true => assert!(is_alike, "{commands}: {ours:?}, {kernel:?}"),
                false => assert_eq!(ours, Some(&NextHopSet::Kernel), "{commands}: the kernel {kernel:?}"),
            }
        }
    });
}

#[test]
fn a_prefix_with_a_route_for_a_type_of_service_stays_with_the_kernel_until_that_goes() {
    in_namespace(|| {
        make_router();
        let (source, destination): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap());
        let mut driver = MirrorDriver::open().unwrap();
        let mut plain = RecordingSink::default();
        driver.load(Instant::now(), &mut plain).unwrap();
        let question = Question::new(index_of(&plain, "in0"));
        let with_tos = "route add 198.51.100.0/24 tos 0x10 via 10.0.2.2";
        let without = "route add 198.51.100.0/24 via 10.0.1.2";
        for order in [[with_tos, without], [without, with_tos]] {
            ip_must(&order.join("\n"));
            for _ in 0..2 {
                while driver.poll(Instant::now(), &mut plain).unwrap() == PollOutcome::Again {}
                let outs = [0, 0x10].map(|tos| question.ask_with_tos(tos, source, destination));
                assert!(outs[0].is_some() && outs[1].is_some() && outs[0] != outs[1], "{outs:?}");
                assert_eq!(plain.lookup(destination), Some(&NextHopSet::Kernel), "{order:?}");
                assert_eq!(driver.mirror().excluded_prefixes().count(), 1);
                // What a look at everything finds is the same.
                driver = MirrorDriver::open().unwrap();
                plain = RecordingSink::default();
                driver.load(Instant::now(), &mut plain).unwrap();
            }
            ip_must("route del 198.51.100.0/24 tos 0x10");
            while driver.poll(Instant::now(), &mut plain).unwrap() == PollOutcome::Again {}
            let kernel = question.ask(source, destination);
            assert!(kernel.is_some() && is_right(plain.lookup(destination), kernel), "{order:?}");
            ip_must("route del 198.51.100.0/24");
        }
    });
}

/// A sink that fails when a route is withdrawn that is good all the time.
#[derive(Default)]
struct Steady {
    plain: RecordingSink,
    good: Vec<Prefix<u32>>,
}

impl Sink for Steady {
    fn set_next_hops(&mut self, family: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
        self.plain.set_next_hops(family, id, way);
    }
    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        assert!(way.is_some() || !self.good.contains(&prefix), "{prefix} was withdrawn");
        self.plain.set_route4(prefix, way);
    }
    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.plain.set_route6(prefix, way);
    }
    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        self.plain.set_neighbor(link, address, mac);
    }
    fn set_link(&mut self, index: u32, link: Option<&Link>) {
        self.plain.set_link(index, link);
    }
    fn exclude(&mut self, family: Family, keep: &Exclusion) {
        self.plain.exclude(family, keep);
    }
}

/// Commands about 256 routes: 198.18.0.0/24 and those after it, with another first byte.
fn routes(verb: &str, first: u8, end: &str) -> String {
    (0..=255).map(|third| format!("route {verb} {first}.18.{third}.0/24 {end}\n")).collect()
}

#[test]
fn what_an_overrun_lost_is_found_and_no_good_route_is_withdrawn() {
    in_namespace(|| {
        make_router();
        ip(&routes("add", 198, "via 10.0.1.2"));
        ip(&routes("add", 20, "via 10.0.1.3"));
        ip(&routes("add", 21, "via 10.0.1.3"));
        // So little that it holds no more than some changes.
        let mut driver = MirrorDriver::with_backlog(16 << 10).unwrap();
        let good = (0..=255).map(|third| Prefix::of(u32::from_be_bytes([198, 18, third, 0]), 24));
        let mut sink = Steady { good: good.collect(), ..Steady::default() };
        driver.load(Instant::now(), &mut sink).unwrap();
        let question = Question::new(index_of(&sink.plain, "in0"));
        // The mirror reads no notifications meanwhile.
        ip(&(routes("add", 22, "via 10.0.2.2")
            + &routes("del", 20, "")
            + &routes("replace", 21, "via 10.0.3.2")
            + "link set eth4 down"));
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            while driver.poll(Instant::now(), &mut sink).unwrap() == PollOutcome::Again {}
            let source = "192.0.2.1".parse().unwrap();
            let wrong = [20u8, 21, 22, 198]
                .into_iter()
                .flat_map(|first| (0..=255).map(move |third| IpAddr::from([first, 18, third, 1])));
            let is_wrong = |to: &IpAddr| !is_right(sink.plain.lookup(*to), question.ask(source, *to));
            let Some(wrong) = wrong.into_iter().find(is_wrong) else { break };
            assert!(Instant::now() < end, "{wrong}: {:?}", sink.plain.lookup(wrong));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(driver.overruns() > 0, "so many changes were kept");
        assert_eq!(sink.plain.v4.keys().filter(|prefix| prefix.len() == 24).count(), 3 * 256 + 4);
    });
}
