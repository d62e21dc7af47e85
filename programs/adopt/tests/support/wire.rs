//! What leaves on the wire: by the accelerator's own tables, and by what the kernel says of
//! its routes and neighbors.
use super::question::{Out, Question};
use artery_adopt::fast::{Accelerator, ForwardDecision, Mode};
use artery_adopt::kernel::{Family, Link};
use artery_adopt::mirror::{Exclusion, NextHopSet, NextHopSetId, RecordingSink, Sink};
use artery_lpm::Prefix;
use artery_wire::{EtherAddr, checksum};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

/// Where frames go: an interface and a link address, or the kernel.
pub(crate) type Target = Option<(u32, EtherAddr)>;

/// Flows that are tried for a destination until all its next hops were seen.
const FLOWS: u8 = 128;

/// A plain sink, and one whose tables programs read.
pub(crate) struct Sinks {
    pub(crate) plain: RecordingSink,
    pub(crate) accelerator: Accelerator,
}

impl Sinks {
    pub(crate) fn adopt(links: &[u32]) -> Sinks {
        let mut accelerator = Accelerator::new().unwrap();
        // Nothing is forwarded here, only asked about.
        accelerator.lease().renew_for_good().unwrap();
        for link in links {
            accelerator.adopt(*link, Mode::Tc).unwrap();
        }
        Sinks { plain: RecordingSink::default(), accelerator }
    }

    fn decide(&mut self, link: u32, source: IpAddr, destination: IpAddr) -> ForwardDecision {
        let to = self.plain.links[&link].mac.unwrap();
        self.accelerator.decide_frame(link, &frame(to, source, destination)).unwrap()
    }

    /// Which sources a packet may not be sent on from, and why.
    fn kept(&mut self, link: u32, source: IpAddr, destination: IpAddr) -> Vec<String> {
        let sources = (1..FLOWS).map(|number| with_last(source, number));
        let why = |source| match self.decide(link, source, destination) {
            ForwardDecision::Kernel(reason) => Some(format!("{source}: {reason:?}")),
            ForwardDecision::Send { .. } => None,
        };
        sources.filter_map(why).collect()
    }

    /// Where a packet goes that comes by an interface.
    pub(crate) fn target(&mut self, link: u32, source: IpAddr, destination: IpAddr) -> Target {
        match self.decide(link, source, destination) {
            ForwardDecision::Kernel(_) => None,
            ForwardDecision::Send { device, frame } => {
                let is_it = |link: &&Link| self.accelerator.port(link.index) == Some(device);
                let link = self.plain.links.values().find(is_it).unwrap();
                assert_eq!(frame[6..12], link.mac.unwrap().octets(), "{source} to {destination}");
                Some((link.index, EtherAddr(frame[..6].try_into().unwrap())))
            }
        }
    }
}

impl Sink for Sinks {
    fn set_next_hops(&mut self, family: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
        self.plain.set_next_hops(family, id, way);
        self.accelerator.set_next_hops(family, id, way);
    }
    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.plain.set_route4(prefix, way);
        self.accelerator.set_route4(prefix, way);
    }
    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.plain.set_route6(prefix, way);
        self.accelerator.set_route6(prefix, way);
    }
    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        self.plain.set_neighbor(link, address, mac);
        self.accelerator.set_neighbor(link, address, mac);
    }
    fn set_link(&mut self, index: u32, link: Option<&Link>) {
        self.plain.set_link(index, link);
        self.accelerator.set_link(index, link);
    }
    fn exclude(&mut self, family: Family, keep: &Exclusion) {
        self.plain.exclude(family, keep);
        self.accelerator.exclude(family, keep);
    }
    fn begin_load(&mut self) {
        self.accelerator.begin_load();
    }
    fn end_load(&mut self) {
        self.accelerator.end_load();
    }
}

pub(crate) fn frame(to: EtherAddr, source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let mut frame = [to.octets(), [2, 0, 0, 0, 0, 1]].concat();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
            header.extend([source.octets(), destination.octets()].concat());
            let sum = !checksum::sum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        _ => panic!("{source} and {destination} are of one family"),
    }
    frame
}

/// What ip(8) says of neighbors and interfaces.
pub(crate) struct Said {
    neighbors: BTreeMap<(String, IpAddr), EtherAddr>,
    names: BTreeMap<u32, String>,
    /// Adopted, up, and with a carrier.
    exits: HashSet<u32>,
}

impl Said {
    pub(crate) fn now(adopted: &[u32]) -> Said {
        let links: Vec<Vec<String>> = show(&["-o", "link", "show"]);
        let index = |words: &[String]| words[0].trim_end_matches(':').parse().unwrap();
        let name = |words: &[String]| words[1].split(['@', ':']).next().unwrap().to_owned();
        let is_exit = |words: &&Vec<String>| {
            let flags: Vec<&str> = words[2].trim_matches(['<', '>']).split(',').collect();
            adopted.contains(&index(words)) && flags.contains(&"UP") && flags.contains(&"LOWER_UP")
        };
        let neighbors = show(&["neigh", "show", "nud", "all"]).into_iter().filter_map(|words| {
            let after = |word: &str| Some(&words[words.iter().position(|other| other == word)? + 1]);
            let is_known = !["FAILED", "INCOMPLETE", "NONE"].contains(&words.last()?.as_str());
            let mac = after("lladdr").filter(|_| is_known)?.parse().unwrap();
            Some(((after("dev")?.clone(), words[0].parse().unwrap()), mac))
        });
        Said {
            neighbors: neighbors.collect(),
            names: links.iter().map(|words| (index(words), name(words))).collect(),
            exits: links.iter().filter(is_exit).map(|words| index(words)).collect(),
        }
    }

    fn target(&self, (link, gateway): Out, destination: IpAddr) -> Target {
        let neighbor = (self.names[&link].clone(), gateway.unwrap_or(destination));
        let mac = self.neighbors.get(&neighbor).filter(|_| self.exits.contains(&link))?;
        Some((link, *mac))
    }
}

fn show(words: &[&str]) -> Vec<Vec<String>> {
    let output = Command::new("ip").args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// What is different between where the accelerator and the kernel send packets to a destination.
pub(crate) fn difference(
    sinks: &mut Sinks,
    said: &Said,
    question: &Question,
    [source, destination]: [IpAddr; 2],
    kernel: Option<Out>,
) -> Option<String> {
    let theirs = kernel.and_then(|out| said.target(out, destination));
    let ours = sinks.target(question.link, source, destination);
    if ours == theirs {
        return None;
    }
    // Both may choose among several.
    let all = question.ask_all(source, destination);
    let all: BTreeSet<Target> = all.into_iter().map(|out| said.target(out, destination)).collect();
    let sources = (1..FLOWS).map(|number| with_last(source, number));
    let met: BTreeSet<Target> =
        sources.map(|source| sinks.target(question.link, source, destination)).collect();
    let is_right = kernel.is_some() && met.is_subset(&all) && met.contains(&theirs);
    (!is_right).then(|| {
        let kept = sinks.kept(question.link, source, destination);
        format!("{destination}: sent to {met:?}, by the kernel to {theirs:?} of {all:?}; kept: {kept:?}")
    })
}

fn with_last(address: IpAddr, last: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(address.to_bits() & !0xff | u32::from(last)).into(),
        IpAddr::V6(address) => Ipv6Addr::from(address.to_bits() & !0xff | u128::from(last)).into(),
    }
}
