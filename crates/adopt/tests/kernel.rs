//! The mirror of a real kernel: after storms of changes, packets go as the kernel says that it forwards them.
mod support;

use artery_adopt::guard;
use artery_adopt::kernel::{Family, Link};
use artery_adopt::mirror::{Driver, Keep, Plain, Sink, Turn, Way, WayId};
use artery_table::Prefix;
use artery_wire::EtherAddr;
use std::net::IpAddr;
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

/// Asks for many destinations; returns how many the kernel forwards, how many of them were sent, and what is different.
fn differences(storm: &mut Storm, question: &Question, sinks: &mut Sinks) -> (usize, usize, Vec<String>) {
    let sources: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8:ffff::1".parse().unwrap()];
    let adopted = ADOPTED.map(|name| index_of(&sinks.plain, name));
    let said = Said::now(&adopted);
    let (mut forwarded, mut sent, mut wrong) = (0, 0, Vec::new());
    for _ in 0..DESTINATIONS {
        for destination in [IpAddr::from(storm.address4()), IpAddr::from(storm.address6())] {
            let source = sources[usize::from(destination.is_ipv6())];
            let kernel = question.ask(source, destination);
            let told = sinks.plain.lookup(destination);
            forwarded += usize::from(kernel.is_some());
            if !is_right(told, kernel) {
                wrong.push(format!("{destination}: told {told:?}, the kernel {kernel:?}"));
            }
            let target = sinks.target(question.link, source, destination);
            sent += usize::from(target.is_some());
            // With a rule more than at the start sources of IPv4 are asked for: where nothing leads back, that is the kernel's.
            let leads_back = matches!(sinks.plain.lookup(source), Some(Way::Hops(_)));
            if destination.is_ipv6() || leads_back {
                wrong.extend(difference(sinks, &said, question, [source, destination], kernel));
            } else if target.is_some() {
                wrong.push(format!("{destination}: sent for a source that nothing leads back to"));
            }
        }
    }
    (forwarded, sent, wrong)
}

/// Follows until nothing is left to hear and to look at, as far as the clock says.
fn follow(driver: &mut Driver, sinks: &mut Sinks) {
    while driver.turn(Instant::now(), sinks).unwrap() == Turn::Again {}
    sinks.accelerator.set_own(driver.mirror().addresses().map(|own| own.address));
    sinks.accelerator.demand(driver.mirror().reverse_paths());
    sinks.accelerator.settle().unwrap();
}

/// Asks about sources that may be routed back by any interface, or by none: what the kernel drops is not sent. Returns how
/// many were sent, and what should not have been.
fn strangers(storm: &mut Storm, question: &Question, sinks: &mut Sinks) -> (usize, Vec<String>) {
    let (mut sent, mut wrong) = (0, Vec::new());
    for _ in 0..STRANGERS {
        let [source, destination] = [storm.address4(), storm.address4()].map(IpAddr::from);
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
fn demanding(driver: &mut Driver, storm: &mut Storm, question: &Question, sinks: &mut Sinks) -> [usize; 2] {
    let sent = ["1", "2"].map(|demand| {
        set("ipv4/conf/in0/rp_filter", demand);
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            follow(driver, sinks);
            let (sent, wrong) = strangers(storm, question, sinks);
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

fn index_of(sink: &Plain, name: &str) -> u32 {
    sink.links.values().find(|link| link.name == name).unwrap().index
}

/// Follows storms of changes, and compares after each until nothing differs.
fn weather(seed: u64, crosses: bool, first: &str) {
    make_router();
    ip_must(first);
    let mut driver = Driver::open().unwrap();
    let mut sinks = Sinks::adopt(&ADOPTED.map(|name| guard::port(name).unwrap().unwrap().index));
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
        loop {
            let (some_forwarded, some_sent, wrong) = differences(&mut storm, &question, &mut sinks);
            (forwarded, sent) = (forwarded + some_forwarded, sent + some_sent);
            if wrong.is_empty() {
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
        "seed {seed}: {forwarded} forwarded, {sent} sent, {strange:?} of strangers, {late} comparisons came too early, {} looks at everything",
        driver.looks()
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
        // The kernel does not pass over a gateway of IPv6 that was given to a route of IPv4 while there was no carrier:
        // it has not noted that. Packets to such a route are lost either way.
        weather(2, false, "-4 rule add pref 999 lookup 77");
    });
}

/// A sink that fails when a route is withdrawn that is good all the time.
#[derive(Default)]
struct Steady {
    plain: Plain,
    good: Vec<Prefix<u32>>,
}

impl Sink for Steady {
    fn way(&mut self, id: WayId, way: Option<&Way>) {
        self.plain.way(id, way);
    }
    fn route4(&mut self, prefix: Prefix<u32>, way: Option<WayId>) {
        assert!(way.is_some() || !self.good.contains(&prefix), "{prefix} was withdrawn");
        self.plain.route4(prefix, way);
    }
    fn route6(&mut self, prefix: Prefix<u128>, way: Option<WayId>) {
        self.plain.route6(prefix, way);
    }
    fn neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        self.plain.neighbor(link, address, mac);
    }
    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.plain.link(index, link);
    }
    fn keep(&mut self, family: Family, keep: &Keep) {
        self.plain.keep(family, keep);
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
        let mut driver = Driver::with_backlog(16 << 10).unwrap();
        let good = (0..=255).map(|third| Prefix::of(u32::from_be_bytes([198, 18, third, 0]), 24));
        let mut sink = Steady { good: good.collect(), ..Steady::default() };
        driver.load(Instant::now(), &mut sink).unwrap();
        let question = Question::new(index_of(&sink.plain, "in0"));
        // Nobody listens meanwhile.
        ip(&(routes("add", 22, "via 10.0.2.2")
            + &routes("del", 20, "")
            + &routes("replace", 21, "via 10.0.3.2")
            + "link set eth4 down"));
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            while driver.turn(Instant::now(), &mut sink).unwrap() == Turn::Again {}
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
