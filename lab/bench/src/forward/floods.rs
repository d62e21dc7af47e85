//! What known traffic costs while unknown senders arrive: addresses in thousands, addresses that move all the
//! time, attempts at connections beyond what may have states.
//!
//! An element is given batches of known frames, whose time counts, and batches of strangers in between, whose
//! time is their own. The same is done beside it with an element that gets no strangers. Every known frame
//! must come out. The element's clock goes on by the time that all of it takes, so limits per second see
//! strangers at the rate at which they arrive.

use super::Options;
use super::hosts::host_mac;
use super::report::Report;
use anyhow::{Context as _, ensure};
use artery_elements::CLASSES;
use artery_engine::{Bench, Packet};
use artery_packet::BATCH;
use artery_wire::Random;
use artery_wire::TcpFlags;
use artery_wire::build::{ether, ip4};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Known hosts on either side, and flows between them.
const KNOWN: u32 = 1000;
/// Addresses that strangers come with.
const STRANGERS: u32 = 65_536;
/// Batches of known frames in a part.
const BATCHES: usize = 200;
/// What is left of the rate of known traffic at least.
const LEAST: f64 = 0.9;
/// Most states, of which known flows have one at each port.
const STATES: &str = "set limit states 10000\n";

/// Strangers, by what is wrong with them.
#[derive(Clone, Copy, PartialEq)]
enum Strangers {
    /// Each frame has a new source address, and a destination address of no host.
    New,
    /// A few come by two ports in turn.
    Moving,
    /// Each begins a connection.
    Connecting,
}

/// An element, and the frames that arrive at it.
struct Row {
    name: &'static str,
    class: &'static str,
    arguments: &'static str,
    rules: Option<String>,
    strangers: Strangers,
}

fn rows() -> Vec<Row> {
    let veb = |name, arguments, strangers| Row { name, class: "Veb", arguments, rules: None, strangers };
    let blocks: String = (1..100).map(|n| format!("block in proto tcp from 10.9.{n}.0/24\n")).collect();
    let link1 = veb(
        "SYN flood, veb+link1",
        "PORT a, PORT b, PORT c, MAXADDR 4000, LINK1 true",
        Strangers::Connecting,
    );
    vec![
        veb(
            "65,536 addresses, none of which has room",
            "PORT a, PORT b, PORT c, MAXADDR 2000",
            Strangers::New,
        ),
        veb(
            "65,536 addresses, all of which have room",
            "PORT a, PORT b, PORT c, MAXADDR 70000",
            Strangers::New,
        ),
        veb(
            "65,536 addresses, which evict",
            "PORT a, PORT b, PORT c, MAXADDR 4000, EVICT true",
            Strangers::New,
        ),
        veb(
            "64 addresses that move with every frame",
            "PORT a, PORT b, PORT c, MAXADDR 4000",
            Strangers::Moving,
        ),
        Row { rules: Some(format!("{STATES}pass\n")), ..link1 },
        Row {
            name: "SYN flood, PacketFilter with 100 rules",
            class: "PacketFilter",
            arguments: "PORT a, PORT b",
            rules: Some(format!("{STATES}{blocks}pass\n")),
            strangers: Strangers::Connecting,
        },
    ]
}

pub(super) fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let parts = if options.quick { 10 } else { 200 };
    for row in rows() {
        let (quiet, flooded) = row.measure(parts)?;
        report.add(&format!("{}: known frames alone", row.name), "ns/frame", &quiet)?;
        report.add(&format!("{}: among as many strangers", row.name), "ns/frame", &flooded)?;
        report.ratio(&format!("{}: rate of known frames / alone", row.name), &quiet, &flooded, LEAST)?;
    }
    Ok(())
}

impl Row {
    /// Nanoseconds of a known frame without strangers and with them, by part.
    fn measure(&self, parts: usize) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
        let (mut alone, mut among) = (Stand::new(self)?, Stand::new(self)?);
        let (mut quiet, mut flooded) = (Vec::new(), Vec::new());
        for _ in 0..parts {
            quiet.push(alone.part(None)?);
            flooded.push(among.part(Some(self.strangers))?);
        }
        Ok((quiet, flooded))
    }
}

/// An element with its bench.
struct Stand {
    bench: Bench,
    random: Random,
    /// Ports of a switch that the element is.
    is_switch: bool,
    strangers: u32,
    /// What the part before took, strangers and all, by which the element's clock goes on.
    took: Duration,
}

impl Stand {
    fn new(row: &Row) -> anyhow::Result<Stand> {
        let class = CLASSES.find_class(row.class).context("the class is one of ours")?;
        let is_switch = row.class == "Veb";
        let ports = if is_switch { 3 } else { 4 };
        let setup = Bench::setup(class, row.arguments).inputs(ports).outputs(ports);
        let bench = setup.build().map_err(|errors| anyhow::anyhow!("{}: {errors:?}", row.class))?;
        let mut stand =
            Stand { bench, random: Random::new(3), is_switch, strangers: 0, took: Duration::ZERO };
        if let Some(rules) = &row.rules {
            stand.bench.write("pf_load", &format!("\n{rules}"))?;
        }
        stand.introduce()?;
        Ok(stand)
    }

    /// Lets all that are known say a word, those of the other side first.
    fn introduce(&mut self) -> anyhow::Result<()> {
        for numbers in (0..KNOWN).collect::<Vec<_>>().chunks(BATCH) {
            if self.is_switch {
                let back: Vec<Packet> = numbers.iter().map(|n| self.bench.packet(known(1, *n))).collect();
                self.bench.push_packets(1, back);
                (0..3).for_each(|output| drop(self.bench.drain_sent(output)));
            }
            self.push_known(numbers)?;
        }
        Ok(())
    }

    /// Batches of known frames, perhaps with strangers between them: nanoseconds of a known frame.
    fn part(&mut self, strangers: Option<Strangers>) -> anyhow::Result<f64> {
        self.bench.advance_time(self.took);
        let begin = Instant::now();
        let mut spent = Duration::ZERO;
        for _ in 0..BATCHES {
            let numbers: [u32; BATCH] = std::array::from_fn(|_| self.random.below(KNOWN.into()) as u32);
            spent += self.push_known(&numbers)?;
            if let Some(strangers) = strangers {
                self.push_strangers(strangers);
            }
        }
        self.took = begin.elapsed();
        Ok(spent.as_nanos() as f64 / (BATCHES * BATCH) as f64)
    }

    /// Says how long known frames took, all of which must come out: of a filter where they come in, and
    /// then where they leave.
    fn push_known(&mut self, numbers: &[u32]) -> anyhow::Result<Duration> {
        let mut packets: Vec<Packet> = numbers.iter().map(|n| self.bench.packet(known(0, *n))).collect();
        let mut spent = Duration::ZERO;
        for (input, output) in if self.is_switch { &[(0, 1)][..] } else { &[(0, 0), (3, 3)] } {
            let start = Instant::now();
            self.bench.push_packets(*input, packets);
            spent += start.elapsed();
            packets = self.bench.drain_sent(*output);
        }
        ensure!(
            packets.len() == numbers.len(),
            "{} of {} known frames came out",
            packets.len(),
            numbers.len()
        );
        Ok(spent)
    }

    fn push_strangers(&mut self, strangers: Strangers) {
        let first = self.strangers;
        self.strangers += BATCH as u32;
        let packets: Vec<Packet> =
            (first..self.strangers).map(|n| self.bench.packet(stranger(strangers, n))).collect();
        let (input, way_out) = match strangers {
            Strangers::New => (2, None),
            Strangers::Moving => (1 + (first / BATCH as u32) as usize % 2, None),
            Strangers::Connecting => (0, (!self.is_switch).then_some(3)),
        };
        self.bench.push_packets(input, packets);
        if let Some(input) = way_out {
            let passed = self.bench.drain_sent(0);
            self.bench.push_packets(input, passed);
        }
        let outputs = if self.is_switch { 3 } else { 4 };
        (0..outputs).for_each(|output| drop(self.bench.drain_sent(output)));
    }
}

/// A frame of a known flow, from one side to the other.
fn known(from: u8, number: u32) -> Vec<u8> {
    let host = |side: u8| Ipv4Addr::from_bits(10 << 24 | u32::from(side) << 16 | number);
    let to = 1 - from;
    let packet = ip4().src(host(from)).dst(host(to)).ttl(64).udp(53, 53).payload([0; 18]);
    ether(host_mac(to, number), host_mac(from, number)).ip4(packet).bytes()
}

fn stranger(strangers: Strangers, number: u32) -> Vec<u8> {
    let packet = |number: u32| {
        let from = Ipv4Addr::from_bits(172 << 24 | number);
        ip4().src(from).dst("10.1.0.1").ttl(64)
    };
    match strangers {
        Strangers::New => {
            let number = number % STRANGERS;
            ether(host_mac(9, number), host_mac(8, number)).ip4(packet(number).udp(1, 2)).bytes()
        }
        Strangers::Moving => {
            ether(host_mac(1, 1), host_mac(8, number % BATCH as u32)).ip4(packet(1).udp(1, 2)).bytes()
        }
        Strangers::Connecting => {
            let segment = packet(number).tcp(1024, 80).flags(TcpFlags::SYN);
            ether(host_mac(1, 1), host_mac(0, 1)).ip4(segment).bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_frames_come_out_whatever_strangers_do() {
        for row in rows() {
            let (quiet, flooded) = row.measure(2).unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert!(quiet.len() == 2 && flooded.iter().all(|nanos| *nanos > 0.0), "{}", row.name);
        }
    }
}
