//! The data path of a router: its elements on benches, side by side, and the result for a frame.
use super::routers;
use artery_elements::CLASSES;
use artery_engine::reason::Drops;
use artery_engine::{Bench, DropReason};
use artery_wire::build::{ether, ip4, ip6};
use artery_wire::{EtherType, Ethernet, Icmp, Icmp6, IpProtocol, Ipv4, Ipv6};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Number of ports, and the number of the output behind them: for exceptions, or for the host.
const PORTS: usize = 4;

/// How often each result was explained.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) packets: u64,
    counts: BTreeMap<String, u64>,
}

impl Seen {
    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_string()).or_default() += 1;
    }
    /// Fails unless the result occurred at least so often.
    #[track_caller]
    pub(crate) fn expect(&self, what: &str, least: u64) {
        let count = self.counts.get(what).copied().unwrap_or(0);
        assert!(count >= least, "{what} was seen {count} times: too few to prove anything");
    }
}

/// A router, and the forwarders in front of it.
pub(crate) struct Path {
    router: Bench,
    v4: Bench,
    v6: Bench,
    seed: u64,
    marks: u64,
}

/// A frame that left.
struct Sent {
    output: usize,
    frame: Vec<u8>,
}

/// The result for one frame.
struct Done {
    sent: Vec<Sent>,
    /// Whether the forwarder dealt with it alone.
    is_fast: bool,
    drops: BTreeMap<&'static str, u64>,
    counts: BTreeMap<String, i64>,
}

impl Path {
    pub(crate) fn new(config: &str, seed: u64) -> Path {
        let setup = |name| CLASSES.find_class(name).unwrap_or_else(|| panic!("{name} is a class"));
        let router = Bench::setup(setup("IPRouter"), config).inputs(PORTS + 1).outputs(PORTS + 1).build();
        let router = router.unwrap_or_else(|errors| panic!("{config}: {errors:?}"));
        // An element on a bench is called `e`; it is by this name that forwarders find their router.
        let forward = |name| {
            let bench =
                Bench::setup(setup(name), "e").inputs(PORTS).outputs(PORTS + 1).sharing_with(&router).build();
            bench.unwrap_or_else(|errors| panic!("{name}: {errors:?}"))
        };
        let (v4, v6) = (forward("IPForward"), forward("IP6Forward"));
        let mut path = Path { router, v4, v6, seed, marks: 0 };
        routers::always(&mut path);
        path.pass(Duration::from_secs(5));
        path
    }

    /// Bytes that no other packet has.
    pub(crate) fn next_mark(&mut self) -> [u8; 8] {
        self.marks += 1;
        (self.marks | 0xa7c3_91d5 << 32).to_be_bytes()
    }

    #[track_caller]
    pub(crate) fn write(&mut self, handler: &str, value: &str) {
        let written = self.router.write(handler, value);
        written.unwrap_or_else(|error| panic!("seed {}: {handler} {value}: {error}", self.seed));
    }
    pub(crate) fn try_write(&mut self, handler: &str, value: &str) {
        let _ = self.router.write(handler, value);
    }
    /// Advances the time; packets sent meanwhile are ignored.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.router.advance_time(time);
        self.take_all();
    }
    /// Pushes a frame into the router.
    pub(crate) fn feed(&mut self, port: usize, frame: &[u8]) {
        self.router.push(port, frame);
        self.take_all();
    }
    /// Has the router ask for a neighbor, by a packet to it from the host.
    pub(crate) fn ask_for(&mut self, address: &str, is_v4: bool) {
        let link = ether("2:0:0:0:0:1", "2:0:0:0:9:9");
        let frame = if is_v4 {
            link.ip4(ip4().src("10.0.1.1").dst(address).udp(1, 2)).bytes()
        } else {
            link.ip6(ip6().src("2001:db8:1::1").dst(address).udp(1, 2)).bytes()
        };
        self.feed(PORTS, &frame);
    }

    fn take_all(&mut self) -> Vec<Sent> {
        self.router.run();
        let mut sent = Vec::new();
        for bench in [&mut self.router, &mut self.v4, &mut self.v6] {
            for output in 0..=PORTS {
                let taken = bench.drain_sent(output);
                sent.extend(taken.iter().map(|packet| Sent { output, frame: packet.data().to_vec() }));
            }
        }
        sent
    }

    /// Explains a frame, sends it, and compares the results.
    #[track_caller]
    pub(crate) fn compare(&mut self, port: usize, frame: &[u8], seen: &mut Seen) {
        self.take_all();
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let asked = format!("{} frame {hex}", routers::NAMES[port]);
        let checks = self.marks.is_multiple_of(100);
        let before = checks.then(|| self.state());
        let text = self.router.read("explain_json", &asked);
        let text = text.unwrap_or_else(|error| panic!("seed {}: explain_json {asked}: {error}", self.seed));
        assert_eq!(before, checks.then(|| self.state()), "explaining changes nothing");
        let explained: Value = serde_json::from_str(&text).expect("it is JSON");
        let done = self.send(port, frame);
        let case = Case { frame, mark: self.mark(frame), explained: &explained, done: &done };
        if let Err(why) = case.check(seen) {
            let drops = &done.drops;
            panic!(
                "seed {} packet {}: {why}\n{asked}\n{explained:#}\ndrops {drops:?} {:?}",
                self.seed, self.marks, done.counts
            );
        }
        seen.packets += 1;
    }

    /// All that is shown of the router's state.
    fn state(&mut self) -> Vec<String> {
        ["neighbors_json", "nexthops_json", "drops_json", "events_json", "counts"]
            .map(|name| self.router.read(name, "").expect("it can be read"))
            .into()
    }

    /// The mark of the current packet, if its frame still has it, and not in what it says is padding.
    fn mark(&self, frame: &[u8]) -> Option<[u8; 8]> {
        let mark = (self.marks | 0xa7c3_91d5 << 32).to_be_bytes();
        has(without_padding(frame), mark).then_some(mark)
    }

    fn send(&mut self, port: usize, frame: &[u8]) -> Done {
        let (drops, counts) = (self.drops(), self.counts());
        let is_fast = match Ethernet::new(frame).map(|link| link.ether_type()) {
            Ok(EtherType::IPV4) => forward(&mut self.v4, &mut self.router, port, frame),
            Ok(EtherType::IPV6) => forward(&mut self.v6, &mut self.router, port, frame),
            _ => {
                self.router.push(port, frame);
                false
            }
        };
        // The router's timers run only when time passes, which it does not between explanation and end.
        let sent = self.take_all();
        let (now, counted) = (self.drops(), self.counts());
        let added = |reason: &DropReason| {
            let more = now.count(*reason) - drops.count(*reason);
            (more > 0).then_some((reason.name(), more))
        };
        let drops = DropReason::ALL.iter().filter_map(added).collect();
        let counts = counted.into_iter().map(|(name, count)| (name.clone(), count - counts[&name]));
        Done { sent, is_fast, drops, counts: counts.filter(|(_, more)| *more != 0).collect() }
    }

    fn drops(&self) -> Drops {
        let mut drops = self.router.drops().clone();
        drops.merge(self.v4.drops());
        drops.merge(self.v6.drops());
        drops
    }

    fn counts(&mut self) -> BTreeMap<String, i64> {
        let text = self.router.read("counts", "").expect("it can be read");
        let line = |line: &str| {
            let (name, count) = line.split_once(' ').expect("a name and a count");
            (name.to_string(), count.parse().expect("a count"))
        };
        text.lines().map(line).collect()
    }
}

/// Pushes a frame into a forwarder, and into the router if it is an exception. Returns whether
/// it was not one.
fn forward(bench: &mut Bench, router: &mut Bench, port: usize, frame: &[u8]) -> bool {
    bench.push(port, frame);
    let Some(odd) = bench.next_sent(PORTS) else { return true };
    assert_eq!(odd.data(), frame, "what is turned aside is unchanged");
    router.push_packets(port, [odd]);
    false
}

fn has(frame: &[u8], mark: [u8; 8]) -> bool {
    frame.windows(8).any(|window| window == mark)
}

/// A frame, its explanation, and its actual result.
struct Case<'a> {
    frame: &'a [u8],
    mark: Option<[u8; 8]>,
    explained: &'a Value,
    done: &'a Done,
}

type Checked = Result<(), String>;

fn must(is_so: bool, otherwise: impl Into<String>) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise.into()) }
}

impl Case<'_> {
    fn verdict(&self, field: &str) -> Option<&str> {
        self.explained["verdict"][field].as_str()
    }
    fn count(&self, names: &[&str]) -> i64 {
        names.iter().filter_map(|name| self.done.counts.get(*name)).sum()
    }
    fn drops_only(&self, allowed: &[&str]) -> Checked {
        let other = self.done.drops.keys().find(|reason| !allowed.contains(reason));
        must(other.is_none(), format!("it was dropped: {other:?}"))
    }

    fn check(&self, seen: &mut Seen) -> Checked {
        let kind = self.verdict("kind").unwrap_or_default();
        seen.count(kind);
        self.check_stages(seen)?;
        match kind {
            "forward" => self.forwarded(seen),
            _ if self.done.is_fast => Err("it was forwarded without a look".into()),
            "hold" => self.held(),
            "answer" => self.answered(),
            "reassemble" => self.reassembled(),
            "host" => self.left_to_host(),
            "neighbor" => self.neighbor(),
            "error" => self.ended().and_then(|()| self.told()),
            "discard" => self.ended().and_then(|()| self.silent()),
            other => Err(format!("'{other}' is not a verdict")),
        }
    }

    /// Exactly the last step stops the packet, if one does, and says why in the counters' words.
    fn check_stages(&self, seen: &mut Seen) -> Checked {
        let stages = self.explained["stages"].as_array().ok_or("there are steps")?;
        let stops: Vec<usize> = (0..stages.len()).filter(|at| stages[*at]["ok"] == false).collect();
        let reason = self.verdict("reason");
        must(stops.len() == usize::from(reason.is_some()), "a reason is one step's")?;
        if let Some(reason) = reason {
            seen.count(reason);
            must(stops == [stages.len() - 1], "nothing comes after the step that stops it")?;
            let text = stages[stops[0]]["text"].as_str().unwrap_or_default();
            must(text.contains(reason), "the step that stops it names the reason")?;
            let known = DropReason::ALL.iter().find(|known| known.name() == reason);
            let sentence = known.map(|known| known.sentence().trim());
            must(self.verdict("sentence") == sentence, "reason and sentence are a counter's")?;
        }
        if stages.iter().any(|stage| stage["members"].is_u64()) {
            seen.count("several");
        }
        Ok(())
    }

    /// Frames that left with the mark and between the same ends: this packet, not one that quotes it.
    fn own(&self) -> Vec<&Sent> {
        let (between, Some(mark)) = (ends(self.frame), self.mark) else { return Vec::new() };
        self.done.sent.iter().filter(|sent| has(&sent.frame, mark) && ends(&sent.frame) == between).collect()
    }

    fn is_per_packet(&self) -> bool {
        let stages = self.explained["stages"].as_array().into_iter().flatten();
        stages.into_iter().any(|stage| stage["method"] == "per-packet")
    }

    fn forwarded(&self, seen: &mut Seen) -> Checked {
        seen.count(if self.done.is_fast { "fast" } else { "slow" });
        let redirects = self.verdict("redirect").is_some() || self.is_per_packet();
        if self.verdict("redirect").is_some() {
            seen.count("redirect");
            let count = self.count(&["redirects", "redirects-limited"]);
            must(self.is_per_packet() || count == 1, format!("{count} redirects"))?;
        }
        if !redirects {
            self.drops_only(&[])?;
            must(self.count(&["redirects"]) == 0, "no redirect")?;
        }
        let is_cut = self.explained["verdict"]["fragmented"] == true;
        if is_cut {
            seen.count("fragmented");
        }
        if self.mark.is_none() {
            return must(!self.done.sent.is_empty(), "something left");
        }
        let own = self.own();
        must(own.len() == 1, format!("{} frames left", own.len()))?;
        let [Sent { output, frame }] = own[..] else { return Err("one frame left".into()) };
        let link = Ethernet::new(&frame[..]).map_err(|_| "a frame left")?;
        must(
            link.src().octets() == [2, 0, 0, 0, 0, *output as u8 + 1],
            "it is sent from the port's MAC address",
        )?;
        if !self.is_per_packet() {
            must(
                routers::NAMES.get(*output).copied() == self.verdict("port"),
                "it left by the port that was said",
            )?;
            must(
                Some(link.dst().to_string().as_str()) == self.verdict("lladdr"),
                "it went to the MAC address that was given",
            )?;
        }
        must(hops(frame).map(|hops| hops + 1) == hops(self.frame), "it has a hop less")?;
        let parts = self.done.sent.iter().filter(|sent| ends(&sent.frame) == ends(self.frame)).count();
        must(is_cut == (parts > 1), format!("it left in {parts} parts"))
    }

    fn held(&self) -> Checked {
        must(self.own().is_empty(), "it left")?;
        // There was no permit to ask for its neighbor, or no room for it.
        let no_room = self.done.drops.contains_key("neighbor-unresolved") && self.count(&["held"]) == 0;
        let refused = no_room || self.done.drops.contains_key("neighbor-limit");
        must(refused || self.count(&["held"]) == 1, "it waits")?;
        // What waited too long for the same neighbor may have made room, and its sender
        // may have heard nothing.
        self.drops_only(&["neighbor-limit", "neighbor-unresolved"])
    }

    fn answered(&self) -> Checked {
        let echoes = self.count(&["echo-replies", "echo-replies-limited"]);
        must(self.own().is_empty() && echoes == 1, format!("{echoes} answers"))
    }

    fn reassembled(&self) -> Checked {
        must(self.own().is_empty(), "it left")?;
        must(self.count(&["icmp-errors"]) == 0 || !self.done.drops.is_empty(), "no error without a drop")
    }

    fn left_to_host(&self) -> Checked {
        self.drops_only(&[])?;
        let to_host = self.done.sent.iter().filter(|sent| sent.output == PORTS).count();
        must(to_host == 1 && self.done.sent.len() == 1, format!("{to_host} frames went to the host"))
    }

    fn neighbor(&self) -> Checked {
        let looked = self.count(&["arp-received", "nd-received", "neighbor-messages-limited"]);
        must(looked >= 1, "it was received")
    }

    /// It ended for the reason that was given, and nothing of it left but errors that quote it.
    fn ended(&self) -> Checked {
        let reason = self.verdict("reason").unwrap_or_default();
        must(
            self.done.drops.get(reason).is_some_and(|count| *count >= 1),
            format!("it did not end as {reason}"),
        )?;
        must(self.own().is_empty(), "it left")
    }

    fn silent(&self) -> Checked {
        must(self.done.drops.values().sum::<u64>() == 1, "one packet ended")?;
        must(self.done.sent.is_empty(), "nothing was sent")?;
        must(self.count(&["icmp-errors", "icmp-errors-limited"]) == 0, "no ICMP error")
    }

    /// The sender gets the explained error, unless that is forbidden, limited, or can't reach it.
    fn told(&self) -> Checked {
        let said = (
            self.explained["verdict"]["icmp_type"].as_u64(),
            self.explained["verdict"]["icmp_code"].as_u64(),
        );
        let (count, never) = (self.count(&["icmp-errors", "icmp-errors-limited"]), said.0.is_none());
        // An error from the router may end in an error itself, for which none is sent.
        must(if never { count == 0 } else { count == 1 }, format!("{count} errors, not {said:?}"))?;
        let Some(mark) = self.mark else { return Ok(()) };
        for sent in self.done.sent.iter().filter(|sent| has(&sent.frame, mark)) {
            must(icmp(&sent.frame) == said, format!("{:?} was sent, not {said:?}", icmp(&sent.frame)))?;
        }
        Ok(())
    }
}

/// As much of a frame as its IP packet says to be long.
fn without_padding(frame: &[u8]) -> &[u8] {
    let len = || {
        let link = Ethernet::new(frame).ok()?;
        match link.ether_type() {
            EtherType::IPV4 => Ipv4::new(link.payload()).ok().map(|ip| usize::from(ip.total_length())),
            EtherType::IPV6 => Ipv6::new(link.payload()).ok().map(|ip| 40 + usize::from(ip.payload_length())),
            _ => None,
        }
    };
    let len: Option<usize> = len();
    len.and_then(|len| frame.get(..14 + len)).unwrap_or(frame)
}

/// Source and destination of a frame's IP packet.
fn ends(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let link = Ethernet::new(frame).ok()?;
    match link.ether_type() {
        EtherType::IPV4 => Ipv4::new(link.payload()).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        EtherType::IPV6 => Ipv6::new(link.payload()).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        _ => None,
    }
}
fn hops(frame: &[u8]) -> Option<u8> {
    let link = Ethernet::new(frame).ok()?;
    match link.ether_type() {
        EtherType::IPV4 => Ipv4::new(link.payload()).ok().map(|ip| ip.ttl()),
        _ => Ipv6::new(link.payload()).ok().map(|ip| ip.hop_limit()),
    }
}

/// Type and code of an ICMP message of either family.
fn icmp(frame: &[u8]) -> (Option<u64>, Option<u64>) {
    let read = || {
        let link = Ethernet::new(frame).ok()?;
        if link.ether_type() == EtherType::IPV4 {
            let ip = Ipv4::new(link.payload()).ok().filter(|ip| ip.protocol() == IpProtocol::ICMP)?;
            return Icmp::new(ip.payload()).ok().map(|icmp| (icmp.icmp_type().0, icmp.code()));
        }
        let ip = Ipv6::new(link.payload()).ok().filter(|ip| ip.next_header() == IpProtocol::ICMPV6)?;
        Icmp6::new(ip.payload()).ok().map(|icmp| (icmp.icmp_type().0, icmp.code()))
    };
    let found: Option<(u8, u8)> = read();
    (found.map(|(kind, _)| kind.into()), found.map(|(_, code)| code.into()))
}
