//! What forwarders stand between: two hosts, the forwarder's host, and how frames get through.

use super::part::{BEGINS, PORT, Part, Replies, Sent};
use super::processor::ENDS;
use super::search::Outcome;
use artery_rig::program;
use artery_rig::{Host, Result, Rig, RigError, Signal};
use serde::Deserialize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to begin or to end.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the kernel may take to begin with frames.
const SLOW_START: Duration = Duration::from_millis(60);
/// How long after the last frame was sent the next look at the counters.
const SETTLE: Duration = Duration::from_millis(20);
/// How long frames may still arrive.
const LATEST: Duration = Duration::from_secs(1);
/// Generators go before what others run on their processor, or the rate would not be sent;
/// probers go before them.
const AT_ONCE: [&str; 3] = ["chrt", "--fifo", "5"];
const BEFORE_ALL: [&str; 3] = ["chrt", "--fifo", "20"];

/// What forwards: addresses, or frames as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A router between two networks.
    Routed,
    /// A wire between two hosts of one network.
    Wired,
    /// The two hosts joined, and nothing in between.
    Direct,
}

/// Two hosts with the forwarder's host between them, by a veth pair each.
pub struct Bed {
    /// The host that sends.
    pub a: Host,
    /// Where the forwarder runs, between eth0 and eth1.
    pub r: Host,
    /// The host that receives.
    pub b: Host,
    source: &'static str,
    /// The address of `b`.
    pub target: &'static str,
    /// What frames from `a` to `b` are addressed to.
    next_hop: String,
    this: PathBuf,
    /// Whether frames of the generator say when they were sent.
    pub(crate) is_stamped: bool,
}

impl Bed {
    /// Makes the hosts, their links and their addresses.
    pub fn new(shape: Shape) -> Result<Bed> {
        let rig = Rig::new("wire")?;
        let bed = match shape {
            Shape::Routed => routed(&rig)?,
            Shape::Wired => wired(&rig)?,
            Shape::Direct => direct(&rig)?,
        };
        // Frames would wait for replies to ARP, and under load these get lost.
        let gateway = |net: &str| match shape {
            Shape::Routed => format!("10.0.{net}.1"),
            Shape::Wired | Shape::Direct => if net == "1" { bed.target } else { bed.source }.to_string(),
        };
        let (near_a, near_b) = match shape {
            Shape::Routed => (bed.r.mac("eth0")?, bed.r.mac("eth1")?),
            Shape::Wired | Shape::Direct => (bed.b.mac("eth0")?, bed.a.mac("eth0")?),
        };
        add_neighbor(&bed.a, "eth0", &gateway("1"), &near_a)?;
        add_neighbor(&bed.b, "eth0", &gateway("2"), &near_b)?;
        if shape == Shape::Routed {
            add_neighbor(&bed.r, "eth0", bed.source, &bed.a.mac("eth0")?)?;
            add_neighbor(&bed.r, "eth1", bed.target, &bed.b.mac("eth0")?)?;
        }
        Ok(Bed { next_hop: near_a, ..bed })
    }

    /// Whether a packet gets through and back, within a time.
    pub fn forwards_within(&self, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        while self.a.ping(self.target, 1)?.received == 0 {
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes ready for frames from the generator, which end at `b` without troubling its stack.
    pub fn prepare_load(&self) -> Result<()> {
        self.r.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        self.b.drop_one_in("eth0", 1, &format!("udp dport {PORT}"))?;
        Ok(())
    }

    /// Lets the hosts' links carry so many bits a second, as the slower of two Ethernets would.
    pub fn limit(&self, rate: &str) -> Result<()> {
        for host in [&self.a, &self.b] {
            let queue = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate];
            host.run([&queue[..], &["burst", "128kb", "latency", "20ms"]].concat())?;
        }
        Ok(())
    }

    /// Lets what arrives at `eth0` of the forwarder's host be handled by another processor than the sender's.
    pub(crate) fn steer(&self, processor: usize) -> Result<()> {
        for interface in ["eth0", "eth1"] {
            let file = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
            self.r.run(["sh", "-c", &format!("echo {:x} > {file}", 1 << processor)])?;
        }
        Ok(())
    }

    /// Sends frames of 60 bytes at a rate (none: as many as can be), and does something else meanwhile. Gives
    /// what became of the frames.
    pub(crate) fn load<T>(
        &self,
        rate: Option<f64>,
        time: Duration,
        meanwhile: impl FnOnce() -> Result<T>,
    ) -> Result<(Outcome, T)> {
        let before = self.b.counters("eth0")?.rx_packets;
        let mut generator = self.generator(rate, time)?.spawn()?;
        generator.wait_for(BEGINS, PATIENCE)?;
        let start = Instant::now();
        let result = meanwhile()?;
        thread::sleep((time + SLOW_START).saturating_sub(start.elapsed()));
        generator.signal(Signal::TERM);
        let output = generator.wait(PATIENCE)?;
        let told = output.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let Sent { sent, seconds } = told.ok_or_else(|| RigError::Failed(generator.failure()))?;
        let arrived = self.settled()?.saturating_sub(before).min(sent);
        Ok((Outcome { sent, arrived, seconds }, result))
    }

    /// Sends frames and gives what became of them.
    pub fn offer(&self, rate: Option<f64>, time: Duration) -> Result<Outcome> {
        Ok(self.load(rate, time, || Ok(()))?.0)
    }

    fn generator(&self, rate: Option<f64>, time: Duration) -> Result<artery_rig::Command> {
        let part = Part::Generate {
            source: self.source.into(),
            target: self.target.into(),
            macs: [self.a.mac("eth0")?, self.next_hop.clone()],
            rate,
            milliseconds: time.as_millis() as u64,
            stamped: self.is_stamped,
        };
        Ok(self.a.command(AT_ONCE).arg(&self.this).args(part.words()))
    }

    /// The count of frames at `b` once it does not change any more.
    fn settled(&self) -> Result<u64> {
        let deadline = Instant::now() + LATEST;
        let mut last = self.b.counters("eth0")?.rx_packets;
        loop {
            thread::sleep(SETTLE);
            let now = self.b.counters("eth0")?.rx_packets;
            if now == last || Instant::now() > deadline {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Pings `b` from `a`.
    pub(crate) fn ping(&self, count: u16, interval: Duration) -> Result<Replies> {
        let part =
            Part::Ping { target: self.target.into(), count, microseconds: interval.as_micros() as u64 };
        let command = self.a.command(BEFORE_ALL).args(["taskset", "-c", &ENDS.to_string()]).arg(&self.this);
        let mut process = command.args(part.words()).spawn()?;
        let output = process.wait(4 * PATIENCE)?;
        parse(&output.stdout).ok_or_else(|| RigError::Unreadable(process.failure(), "times of replies"))
    }
}

fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Option<T> {
    serde_json::from_str(text.lines().last()?).ok()
}

fn routed(rig: &Rig) -> Result<Bed> {
    let line = rig.line()?;
    Ok(Bed {
        a: line.a,
        r: line.r,
        b: line.b,
        source: "10.0.1.2",
        target: "10.0.2.2",
        next_hop: String::new(),
        this: this()?,
        is_stamped: false,
    })
}

fn wired(rig: &Rig) -> Result<Bed> {
    let bed = unjoined(rig)?;
    rig.link(&bed.a, "eth0", &bed.r, "eth0")?;
    rig.link(&bed.b, "eth0", &bed.r, "eth1")?;
    addressed(bed)
}

fn direct(rig: &Rig) -> Result<Bed> {
    let bed = unjoined(rig)?;
    rig.link(&bed.a, "eth0", &bed.b, "eth0")?;
    addressed(bed)
}

/// Hosts of one network without a link.
fn unjoined(rig: &Rig) -> Result<Bed> {
    let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
    let (source, target) = ("10.0.1.2", "10.0.1.3");
    Ok(Bed { a, r, b, source, target, next_hop: String::new(), this: this()?, is_stamped: false })
}

fn addressed(bed: Bed) -> Result<Bed> {
    bed.a.address("eth0", &format!("{}/24", bed.source))?;
    bed.b.address("eth0", &format!("{}/24", bed.target))?;
    Ok(bed)
}

fn add_neighbor(host: &Host, interface: &str, address: &str, mac: &str) -> Result<()> {
    host.run(["ip", "neighbor", "replace", address, "lladdr", mac, "dev", interface, "nud", "permanent"])?;
    Ok(())
}

fn this() -> Result<PathBuf> {
    program::this().map_err(|error| RigError::System(error.to_string(), std::io::ErrorKind::NotFound.into()))
}
