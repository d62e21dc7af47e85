//! Random changes: what workers see is what a model says, and at no moment does a packet go to a link address
//! that was freed or is another neighbor's.
use super::model::*;
use super::rig::*;
use artery_l3::PortId;
use artery_l3::neighbor::{Key, Kind};
use artery_l3::next_hop::Selection;
use artery_l3::path::{Explained, ForwardDecision, Outcome, PathReader};
use artery_l3::router::{Ip, Lost, Readers, RouteSpec, Target};
use artery_lpm::load::AnyPrefix;
use artery_rcu::Reader;
use artery_storage::Comeback;
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

const PORTS: u16 = 4;
/// Addresses of each family that anything happens to.
const HOSTS: usize = 32;

/// A port to which nothing happens, and a route by it that is replaced all the time and always there.
const QUIET: u16 = PORTS;
const ALWAYS: &str = "192.0.2.0/24";
const ALWAYS_TO: u32 = 0xc000_0207;

/// The gateways of routes differ by the family of the routes, so that a packet by another one's is seen.
fn is_for(is_v4: bool, gateway: usize) -> bool {
    is_v4 == gateway.is_multiple_of(2)
}

/// Eight addresses of each of four networks.
fn address(is_v4: bool, host: usize) -> IpAddr {
    let (network, host) = (host as u128 >> 3, host as u128 & 7);
    match is_v4 {
        true => Ipv4Addr::from_bits(0x0a00_0000 | (network as u32) << 8 | host as u32).into(),
        false => Ipv6Addr::from_bits(0x2001_0db8 << 96 | network << 64 | host).into(),
    }
}

fn host_of(address: IpAddr) -> usize {
    (0..HOSTS).find(|host| self::address(address.is_ipv4(), *host) == address).unwrap()
}

/// A link address that says whose it is and how often that neighbor's was set before.
fn link(is_v4: bool, port: u16, host: usize, generation: u32) -> EtherAddr {
    let [_, a, b, c] = generation.to_be_bytes();
    EtherAddr([2 | u8::from(is_v4) << 4, port as u8, host as u8, a, b, c])
}

/// Which generations of each neighbor's link address a worker may see.
struct Allowed {
    oldest: Vec<AtomicU32>,
    newest: Vec<AtomicU32>,
}

fn place(is_v4: bool, port: u16, host: usize) -> usize {
    (usize::from(port) * 2 + usize::from(is_v4)) * HOSTS + host
}

impl Allowed {
    fn new() -> Allowed {
        let words = || (0..usize::from(PORTS) * 2 * HOSTS).map(|_| AtomicU32::new(1)).collect();
        Allowed { oldest: words(), newest: words() }
    }

    /// Asserts that a frame goes to a neighbor who was at its link address at some time during the decision.
    fn check(&self, oldest: &[u32], decision: &ForwardDecision) {
        let Some(EtherAddr([family, port, host, a, b, c])) = decision.link.address() else {
            panic!("{decision:?} without address")
        };
        assert_eq!(u16::from(port), decision.port.0, "a neighbor of another port");
        let (at, generation) =
            (place(family & 16 != 0, port.into(), host.into()), u32::from_be_bytes([0, a, b, c]));
        assert!(generation >= oldest[at], "a freed link address");
        assert!(generation <= self.newest[at].load(Acquire));
    }
}

struct Trial {
    rig: Rig,
    model: Model,
    random: Random,
    generations: HashMap<usize, u32>,
}

impl Trial {
    fn family(&mut self) -> bool {
        self.random.percent(50)
    }
    fn port(&mut self) -> u16 {
        self.random.below(PORTS.into()) as u16
    }
    fn address(&mut self, is_v4: bool) -> IpAddr {
        address(is_v4, self.random.below(HOSTS as u64) as usize)
    }
    fn len(&mut self, is_v4: bool) -> u8 {
        let lens = if is_v4 { [22, 24, 29, 30, 31, 32] } else { [62, 64, 125, 126, 127, 128] };
        lens[self.random.below(6) as usize]
    }

    fn step(&mut self, allowed: &Allowed) {
        let always = self.always();
        self.rig.replace(ALWAYS, &always);
        match self.random.below(16) {
            0..=1 => self.add_address(),
            2 => self.remove_address(allowed),
            3 => self.turn_port(),
            4..=7 => self.set_neighbor(allowed),
            8..=9 => self.delete_neighbor(allowed),
            10..=13 => self.put_route(),
            14 => self.delete_route(),
            _ => self.load(),
        }
    }

    /// A quiet gateway or two.
    fn always(&mut self) -> RouteSpec {
        let count = 1 + self.random.below(2);
        let gateways = (0..count).map(|_| (ip(&format!("172.16.0.{}", 2 + self.random.below(4))), 1));
        RouteSpec::multipath(gateways.collect::<Vec<_>>(), Selection::Hash)
    }

    fn add_address(&mut self) {
        let (is_v4, port) = (self.family(), self.port());
        let (address, len) = (self.address(is_v4), self.len(is_v4));
        let is_good = !self.model.is_own_address(address) && !is_broadcast(address, len);
        assert_eq!(self.rig.tables.add_address(PortId(port), address, len).is_ok(), is_good);
        if is_good {
            self.model.addresses.push((port, address, len));
        }
    }

    fn remove_address(&mut self, allowed: &Allowed) {
        if self.model.addresses.is_empty() {
            return;
        }
        let at = self.random.below(self.model.addresses.len() as u64) as usize;
        let (port, address, _) = self.model.addresses[at];
        let before: Vec<_> = self.model.neighbors.keys().copied().collect();
        let lost = self.model.remove_address(at);
        let said = self.rig.tables.remove_address(PortId(port), address, NOW).unwrap();
        assert_eq!(
            said.iter().map(|Lost { prefix, is_gone, .. }| (*prefix, *is_gone)).collect::<HashSet<_>>(),
            lost
        );
        for (port, neighbor) in before {
            if !self.model.neighbors.contains_key(&(port, neighbor)) {
                self.forgotten(allowed, port, neighbor);
            }
        }
    }

    fn turn_port(&mut self) {
        let port = self.port();
        let is_up = &mut self.model.up[usize::from(port)];
        *is_up = !*is_up;
        self.rig.tables.set_up(PortId(port), *is_up, NOW).unwrap();
    }

    fn set_neighbor(&mut self, allowed: &Allowed) {
        let (is_v4, port) = (self.family(), self.port());
        let address = self.address(is_v4);
        let at = place(is_v4, port, host_of(address));
        let generation = self.generations.entry(at).or_insert(0);
        *generation += 1;
        let link = link(is_v4, port, host_of(address), *generation);
        allowed.newest[at].store(*generation, Release);
        self.rig.tables.set_neighbor(PortId(port), address, link, Kind::Static, NOW).unwrap();
        allowed.oldest[at].store(*generation, Release);
        self.model.neighbors.insert((port, address), link);
    }

    fn delete_neighbor(&mut self, allowed: &Allowed) {
        let (is_v4, port) = (self.family(), self.port());
        let address = self.address(is_v4);
        let was_known = self.model.neighbors.remove(&(port, address)).is_some();
        assert_eq!(self.rig.tables.delete_neighbor(PortId(port), address, NOW).unwrap(), was_known);
        self.forgotten(allowed, port, address);
    }

    /// From now on no worker may see the old state of a neighbor.
    fn forgotten(&self, allowed: &Allowed, port: u16, address: IpAddr) {
        let at = place(address.is_ipv4(), port, host_of(address));
        let generation = self.generations.get(&at).copied().unwrap_or(0);
        allowed.oldest[at].store(generation + 1, Release);
    }

    /// Up to three gateways, of which some may be on no link.
    fn gateways(&mut self, is_v4: bool) -> Vec<(u16, IpAddr)> {
        let count = 1 + self.random.below(3);
        let via_v4 = is_v4 && self.random.percent(75);
        let gateways: HashSet<_> = (0..count).map(|_| (self.port(), self.address(via_v4))).collect();
        gateways.into_iter().filter(|(_, gateway)| is_for(is_v4, host_of(*gateway))).collect()
    }

    fn spec(&mut self, gateways: &[(u16, IpAddr)]) -> RouteSpec {
        let resilient = Selection::Resilient { buckets: 64, comeback: Comeback::AtOnce };
        let selections = [Selection::Hash, resilient, Selection::Xor, Selection::PerPacket];
        let target = |(port, gateway): &(u16, IpAddr)| {
            (Target::Via { port: Some(PortId(*port)), gateway: Some(*gateway), mtu: None }, 1)
        };
        let selection = selections[self.random.below(4) as usize];
        RouteSpec { next_hops: gateways.iter().map(target).collect(), selection }
    }

    fn put_route(&mut self) {
        let is_v4 = self.family();
        let (address, len) = (self.address(is_v4), self.len(is_v4));
        let (prefix, gateways) = (prefix_of(address, len), self.gateways(is_v4));
        let spec = self.spec(&gateways);
        let is_replaced = self.random.percent(50);
        let is_good = !gateways.is_empty()
            && !self.model.is_owned(prefix)
            && (is_replaced || !self.model.routes.contains_key(&prefix))
            && gateways.iter().all(|(port, gateway)| self.model.is_gateway(*port, *gateway));
        let tables = &mut self.rig.tables;
        let done = match is_replaced {
            true => tables.replace_route(prefix, &spec, NOW),
            false => tables.add_route(prefix, &spec, NOW),
        };
        assert_eq!(done.is_ok(), is_good, "{prefix} {gateways:?}: {done:?}");
        if is_good {
            self.model.routes.insert(prefix, gateways);
        }
    }

    fn delete_route(&mut self) {
        let known: Vec<AnyPrefix> = self.model.routes.keys().copied().collect();
        if known.is_empty() {
            return;
        }
        let prefix = known[self.random.below(known.len() as u64) as usize];
        self.model.routes.remove(&prefix);
        self.rig.tables.delete_route(prefix, NOW).unwrap();
        assert!(self.rig.tables.delete_route(prefix, NOW).is_err());
    }

    /// Replaces all IPv4 routes, among them ones for the router's own prefixes.
    fn load(&mut self) {
        let gateways = self.gateways(true);
        if gateways.is_empty()
            || !gateways.iter().all(|(port, gateway)| self.model.is_gateway(*port, *gateway))
        {
            return;
        }
        let specs = [self.spec(&gateways), self.always()];
        let prefixes: HashSet<AnyPrefix> =
            (0..5).map(|_| prefix_of(self.address(true), self.len(true))).collect();
        let routes = prefixes.iter().map(|prefix| (*prefix, 0)).chain([(prefix(ALWAYS), 1)]);
        let v4 = routes.map(|(prefix, spec)| match prefix {
            AnyPrefix::V4(prefix) => (prefix, spec),
            AnyPrefix::V6(_) => unreachable!("only IPv4 here"),
        });
        self.rig.tables.load_routes::<u32>(&specs, v4, NOW).unwrap();
        self.model.routes.retain(|prefix, _| matches!(prefix, AnyPrefix::V6(_)));
        self.model.routes.extend(prefixes.into_iter().map(|prefix| (prefix, gateways.clone())));
    }

    /// Compares what a worker sees with the model, for every address.
    fn compare(&mut self, seed: u64, step: usize) {
        let turn = self.rig.turns.turn();
        let (readers, random) = (&self.rig.readers, &mut self.random);
        for (is_v4, host) in (0..HOSTS).flat_map(|host| [(true, host), (false, host)]) {
            let to = address(is_v4, host);
            let fates = self.model.fates(to);
            let seen: HashSet<Fate> = (0..if fates.len() > 1 { 64 } else { 2 })
                .map(|_| {
                    let flow = random.next() as u32;
                    let decision = match to {
                        IpAddr::V4(to) => readers.v4.lookup_path(&turn, to.to_bits(), |_| flow),
                        IpAddr::V6(to) => readers.v6.lookup_path(&turn, to.to_bits(), |_| flow),
                    };
                    (decision.outcome, decision.port.0, decision.link.address())
                })
                .collect();
            assert_eq!(seen, fates, "to {to} after step {step} of seed {seed}");
        }
    }

    /// Takes everything away again; nothing may be left of it.
    fn clear(&mut self, unused: (usize, usize)) {
        let lost = self.rig.tables.remove_address(PortId(QUIET), ip("172.16.0.1"), NOW).unwrap();
        assert_eq!(lost.iter().map(|lost| lost.prefix).collect::<Vec<_>>(), [prefix(ALWAYS)]);
        for prefix in self.model.routes.keys() {
            self.rig.tables.delete_route(*prefix, NOW).unwrap();
        }
        for (port, address, _) in self.model.addresses.drain(..) {
            self.rig.tables.remove_address(PortId(port), address, NOW).unwrap();
        }
        for port in (0..PORTS).map(PortId) {
            let is_unpinned = |pins: u32| assert_eq!(pins, 0, "a pin is left");
            self.rig
                .tables
                .neighbors::<u32>(port, NOW)
                .iter()
                .for_each(|neighbor| is_unpinned(neighbor.pins));
            self.rig
                .tables
                .neighbors::<u128>(port, NOW)
                .iter()
                .for_each(|neighbor| is_unpinned(neighbor.pins));
        }
        assert_eq!((self.rig.tables.next_hops(), self.rig.tables.group_views().len()), unused);
    }
}

/// Decides about packets until the flag is set, one by one and in batches.
fn watch(readers: Readers, mut turns: Reader, allowed: &Allowed, is_over: &AtomicBool) -> usize {
    let Readers { v4, v6, .. } = readers;
    let (mut v4, mut v6) = (Watch::new(v4), Watch::new(v6));
    let (mut random, mut sent) = (Random::new(99), 0);
    while !is_over.load(Acquire) {
        let to = [(); 8].map(|()| random.below(HOSTS as u64) as usize);
        let flow = random.next() as u32;
        let always = v4.path.lookup_path(&turns.turn(), ALWAYS_TO, |_| flow);
        assert_eq!((always.outcome, always.port), (Outcome::Forward, PortId(QUIET)));
        sent += v4.look(&mut turns, allowed, &to.map(|host| (host, bits_v4(host))), flow);
        sent += v6.look(&mut turns, allowed, &to.map(|host| (host, bits_v6(host))), flow);
    }
    turns.park();
    sent
}

fn bits_v4(host: usize) -> u32 {
    u32::from_wide(number(address(true, host)))
}
fn bits_v6(host: usize) -> u128 {
    number(address(false, host))
}
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

struct Watch<A: Ip> {
    path: PathReader<A>,
    decisions: Vec<ForwardDecision>,
}

impl<A: Ip> Watch<A> {
    fn new(path: PathReader<A>) -> Watch<A> {
        Watch { path, decisions: Vec::new() }
    }

    /// How many packets to these addresses go out; each must go to the right place.
    fn look(&mut self, turns: &mut Reader, allowed: &Allowed, to: &[(usize, A)], flow: u32) -> usize {
        let turn = turns.turn();
        let oldest: Vec<u32> = allowed.oldest.iter().map(|oldest| oldest.load(Acquire)).collect();
        let mut sent = 0;
        for (host, address) in to {
            let Explained { decision, on_link, .. } = self.path.explain_path(&turn, *address, |_| flow);
            if decision.outcome == Outcome::Forward {
                allowed.check(&oldest, &decision);
                let neighbor = usize::from(decision.link.address().unwrap().0[2]);
                assert!(if on_link { neighbor == *host } else { is_for(A::BITS == 32, neighbor) });
                sent += 1;
            }
        }
        let addresses: Vec<A> = to.iter().map(|(_, address)| *address).collect();
        self.path.lookup_path_batch(&turn, &addresses, |_, _| flow, &mut self.decisions);
        let forwarded = self.decisions.iter().filter(|decision| decision.outcome == Outcome::Forward);
        forwarded.for_each(|decision| allowed.check(&oldest, decision));
        sent
    }
}

#[test]
fn workers_see_what_a_model_says_and_never_a_wrong_link_address() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut rig = Rig::bare(PORTS + 1);
        let (allowed, is_over) = (Allowed::new(), AtomicBool::new(false));
        let (readers, turns) = (rig.readers.clone(), rig.domain.reader());
        let unused = (rig.tables.next_hops(), rig.tables.group_views().len());
        let model = Model {
            up: vec![true; PORTS.into()],
            addresses: Vec::new(),
            routes: HashMap::new(),
            neighbors: HashMap::new(),
        };
        rig.turns.park();
        rig.address(QUIET, "172.16.0.1", 24).unwrap();
        (2..6).for_each(|host| rig.know(QUIET, &format!("172.16.0.{host}"), host));
        rig.add(ALWAYS, &via("172.16.0.2")).unwrap();
        let mut trial = Trial { rig, model, random: Random::new(seed), generations: HashMap::new() };
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| watch(readers, turns, &allowed, &is_over));
            let end = OnDrop(&is_over);
            for step in 0..3000 {
                trial.step(&allowed);
                trial.compare(seed, step);
                if step % 500 == 499 {
                    trial.rig.tables.poll(NOW);
                }
            }
            drop(end);
            let sent = watcher.join().unwrap();
            println!("{sent} packets went out");
            assert!(sent > 1000);
        });
        trial.clear(unused);
    }
}

/// Ends the watch even if a comparison fails.
struct OnDrop<'a>(&'a AtomicBool);
impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}
