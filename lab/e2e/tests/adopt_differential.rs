//! Random flows through random rules, with `artery adopt --established=rules` and with the kernel alone: what
//! comes out of one comes out of the other, with the same sources.
//!
//! Flows are datagrams, echoes and connections of TCP. Changes of rules, routes, entries of connection
//! tracking and neighbors happen while nothing is under way. Ports that the kernel translates to may differ,
//! and stay the same for each connection.
mod flow;
mod rules;
mod tables;

use crate::support::adopting::Net;
use crate::support::{SOON, end};
use artery_rig::program::artery;
use artery_rig::{Process, Result, Rig};
use flow::Flow;
use rules::{Random, Rules};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tables::TableChange;

/// Flows of a scenario, and scenarios: usually, and with `ARTERY_LONG=1` in the environment.
const FLOWS: usize = 80;
const SCENARIOS: u64 = 25;
const MANY_SCENARIOS: u64 = 1250;
/// How long a change takes to be heard at most, on a machine with other work.
const BARRIER: Duration = Duration::from_secs(1);
/// Nothing is under way once both sides have the same and nothing has arrived for this long,
const QUIET: Duration = Duration::from_millis(60);
/// or for this long otherwise: something may be late.
const LATE: Duration = Duration::from_secs(2);
/// Addresses of the hosts, by their last byte.
const HOSTS: [u8; 3] = [10, 11, 12];

/// A host's address in one of both networks.
fn address(network: u8, host: u8, is_v6: bool) -> IpAddr {
    match is_v6 {
        true => format!("2001:db8:{network}::{host:x}").parse().expect("an address"),
        false => [10, 0, network, host].into(),
    }
}

/// A datagram that has arrived: flow, round, number, whether it is an answer, and the source.
type Arrival = (u16, u8, u8, bool, IpAddr);

/// A router, its hosts, and what has arrived.
struct Side {
    net: Net,
    router: Option<Process>,
    flows: Vec<Flow>,
    arrived: BTreeSet<Arrival>,
    /// The port that datagrams of a flow came from, by the flow and the address.
    ports: HashMap<(u16, IpAddr), u16>,
}

impl Side {
    fn make(rig: &Rig, prefix: &str, is_adopted: bool) -> Result<Side> {
        let net = Net::named(rig, prefix)?;
        for host in HOSTS {
            for (at, network) in [(&net.a, 1), (&net.b, 2)] {
                at.address("eth0", &format!("10.0.{network}.{host}/24"))?;
                at.run(format!("ip address add 2001:db8:{network}::{host:x}/64 dev eth0 nodad").split(' '))?;
            }
        }
        net.a.sysctl("net.ipv4.ping_group_range", "0 2147483647")?;
        // For translation to a fixed address.
        net.r.address("eth1", "10.0.2.77/24")?.address("eth1", "2001:db8:2::77/64")?;
        for (network, is_v6) in [(1, false), (2, false), (1, true), (2, true)] {
            for host in HOSTS.into_iter().chain([2]) {
                net.r.ping(&address(network, host, is_v6).to_string(), 1)?;
            }
        }
        let mut side =
            Side { net, router: None, flows: Vec::new(), arrived: BTreeSet::new(), ports: HashMap::new() };
        if is_adopted {
            let words = ["adopt", "--established=rules", "--path", "tc", "eth0", "eth1"];
            let router = side.net.r.command([artery()?]).args(words).spawn()?;
            router.wait_for("forwarding\n", 6 * SOON)?;
            side.router = Some(router);
        }
        Ok(side)
    }

    fn set_rules(&self, rules: &Rules) -> Result<()> {
        self.net.r.run(["nft", "-f", &rules.file])?;
        for command in &rules.routes {
            self.net.r.run(["sh", "-c", command])?;
        }
        Ok(())
    }

    /// Sends a message of each flow.
    fn ask(&mut self, round: u8, number: u8) {
        let flows = self.flows.iter_mut().enumerate();
        flows.for_each(|(at, flow)| flow.ask((at as u16, round, number, false)));
    }

    /// Answers those that have arrived.
    fn answer(&mut self, round: u8, number: u8) {
        let flows = self.flows.iter_mut().enumerate();
        flows.for_each(|(at, flow)| flow.answer((at as u16, round, number, true)));
    }

    /// Takes what has arrived; whether there was anything.
    fn take(&mut self) -> bool {
        let mut is_news = false;
        for (owner, flow) in self.flows.iter_mut().enumerate() {
            let mut taken = Vec::new();
            flow.take(&mut taken);
            for one in taken {
                is_news = true;
                let (number, round, count, is_answer) = one.message;
                assert_eq!(owner, usize::from(number), "a message comes to another port");
                self.arrived.insert((number, round, count, is_answer, one.from.ip()));
                if one.is_far {
                    let port = *self.ports.entry((number, one.from.ip())).or_insert(one.from.port());
                    assert_eq!(port, one.from.port(), "messages of flow {number} come from another port");
                }
            }
        }
        is_news
    }
}

/// Datagrams of all flows, and answers, on both sides at once.
fn exchange(sides: &mut [Side; 2], round: u8) {
    for number in 0..2 {
        sides.iter_mut().for_each(|side| side.ask(round, number));
        collect(sides);
        sides.iter_mut().for_each(|side| side.answer(round, number));
        collect(sides);
    }
}

/// Takes what arrives until nothing is under way.
fn collect(sides: &mut [Side; 2]) {
    let mut last = Instant::now();
    loop {
        let [one, other] = &mut *sides;
        if one.take() | other.take() {
            last = Instant::now();
        }
        let is_same = sides[0].arrived == sides[1].arrived;
        if last.elapsed() >= if is_same { QUIET } else { LATE } {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends connections that have lost something on either side, and all where `is_any`.
fn end_connections(sides: &mut [Side; 2], is_any: bool) {
    for at in 0..FLOWS {
        let is_over = sides.iter().any(|side| side.flows[at].lacks_something());
        if sides[0].flows[at].is_connection() && (is_any || is_over) {
            sides.iter_mut().for_each(|side| side.flows[at].end());
        }
    }
}

fn play(sides: &mut [Side; 2], seed: u64) -> Result<()> {
    let mut random = Random(seed);
    let mut rules = Rules::new(&mut random);
    let is_liberal = if random.one_in(2) { "1" } else { "0" };
    for side in sides.iter_mut() {
        side.net.r.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", is_liberal)?;
        tables::forget_neighbors(&side.net.r)?;
        let none_left = HOSTS.map(|host| format!("ip route del blackhole 10.0.2.{host}; ")).concat() + "true";
        side.net.r.run(["sh", "-c", &none_left])?;
        side.flows.clear();
        side.arrived.clear();
        side.ports.clear();
        let mut same = random.clone();
        for number in 0..FLOWS as u64 {
            side.flows.push(Flow::open(&side.net, seed * FLOWS as u64 + number, &mut same)?);
        }
    }
    let mut texts = Vec::new();
    let mut change = TableChange::None;
    for phase in 0..2 {
        rules.write()?;
        texts.push(format!("{rules}\n{change}"));
        sides.iter().try_for_each(|side| side.set_rules(&rules))?;
        sides.iter().try_for_each(|side| change.apply(&side.net.r, &side.flows))?;
        // Segments that are sent again may be of another length.
        end_connections(sides, rules.to_string().contains("meta length"));
        std::thread::sleep(BARRIER);
        (0..2).for_each(|round| exchange(sides, phase * 2 + round));
        let [adopted, kernel] = sides;
        let is_running = adopted.router.as_mut().is_some_and(Process::is_running);
        let differs: Vec<_> = adopted.arrived.symmetric_difference(&kernel.arrived).collect();
        if !differs.is_empty() || !is_running {
            let said = adopted.router.as_ref().map(Process::stderr_so_far).unwrap_or_default();
            let flows: Vec<_> =
                differs.iter().map(|one| one.0).collect::<BTreeSet<_>>().into_iter().collect();
            let ends: Vec<_> = flows
                .iter()
                .map(|flow| &adopted.flows[usize::from(*flow)])
                .map(|flow| format!("{} {} -> {}", flow.protocol(), flow.source, flow.to))
                .collect();
            panic!("scenario {seed}, phase {phase}: {differs:?}\n{ends:?}\n{}\n{said}", texts.join("\n\n"));
        }
        rules.change(&mut random);
        change = TableChange::new(&mut random);
    }
    Ok(())
}

#[test]
fn what_comes_out_of_random_rules_comes_out_without_adopt_and_the_other_way_round() {
    let is_long = std::env::var_os("ARTERY_LONG").is_some();
    let first: u64 = std::env::var("ARTERY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    artery_rig::test("adopt-differential", |rig| {
        let mut sides = [Side::make(rig, "", true)?, Side::make(rig, "k", false)?];
        let count = if is_long { MANY_SCENARIOS } else { SCENARIOS };
        for seed in first..first + count {
            play(&mut sides, seed)?;
        }
        let [adopted, _] = sides;
        let report = end(adopted.router.expect("a router"))?.stdout;
        let past = |port: &str| {
            let line = report.lines().find(|line| line.starts_with(port) && line.contains("past rules"));
            line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0)
        };
        let all = past("eth0") + past("eth1");
        assert!(all > count * FLOWS as u64, "{all} packets went past rules: {report}");
        Ok(())
    });
}
