//! One run: how far packets come, in which buffers, and how many there are.

use super::card::{CARD, Deal, Job, Outcome};
use super::graph;
use anyhow::{Context as _, ensure};
use artery_device::{Ports, memory_pair};
use artery_engine::{Handle, Monitor, RouterSettings, Sink};
use artery_rig::program::checked_with;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

/// Places in each direction of a memory port.
const PLACES: usize = 512;
/// Longer than any run takes, even under valgrind.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Depth {
    /// They never enter the router: what the card alone costs.
    Card,
    /// To a level of monitor mode, or all the way.
    Router(Monitor),
}

/// The ladder, the shortest way first.
pub(super) const LADDER: [&str; 6] = ["l0", "l1", "l2", "l3", "l4", "off"];

/// In which buffers packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Buffers {
    /// Those that were freed last: they are in the cache.
    Hot,
    /// The same, but the processor was made to forget the line of the header: `clflush`.
    Flushed,
    /// So many big ones in turn, and within each another place every time: descriptors stay in
    /// the cache, bytes don't.
    Cycled(usize),
    /// The one that was freed longest ago, of so many.
    Fifo(usize),
}

/// One run: how far packets come, and in which buffers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Case {
    /// How far packets come: card, l0 to l4, off
    pub depth: Depth,
    /// In which buffers they come
    pub buffers: Buffers,
    /// How many packets there are
    pub packets: u64,
    /// How many packets are handled at once, at most
    pub burst: usize,
    /// Packets a second; as many as can be if not given
    pub rate: Option<f64>,
    /// Ask for header lines as a driver does, before packets are handed over
    pub prefetch: bool,
    /// Count misses by the processor's counters, where it has them
    pub count: bool,
}

/// Packets that are handled at once, at most.
pub(super) const BURST: usize = 32;

/// What a run has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What the card saw.
    pub card: Outcome,
    /// Packets and bytes that the router's port counted as received.
    pub received: (u64, u64),
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Depth::Card => f.write_str("card"),
            Depth::Router(monitor) => monitor.fmt(f),
        }
    }
}

impl FromStr for Depth {
    type Err = String;
    fn from_str(text: &str) -> Result<Depth, String> {
        match text {
            "card" => Ok(Depth::Card),
            _ => text.parse().map(Depth::Router).map_err(|wanted| format!("it must be 'card', {wanted}")),
        }
    }
}

impl fmt::Display for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Buffers::Hot => f.write_str("hot"),
            Buffers::Flushed => f.write_str("flushed"),
            Buffers::Cycled(count) => write!(f, "cycled:{count}"),
            Buffers::Fifo(count) => write!(f, "fifo:{count}"),
        }
    }
}

impl TryFrom<String> for Depth {
    type Error = String;
    fn try_from(text: String) -> Result<Depth, String> {
        text.parse()
    }
}

impl From<Depth> for String {
    fn from(depth: Depth) -> String {
        depth.to_string()
    }
}

impl Buffers {
    fn are_possible(self) -> bool {
        match self {
            Buffers::Hot | Buffers::Flushed => true,
            Buffers::Cycled(count) | Buffers::Fifo(count) => (2 * BURST..=1 << 20).contains(&count),
        }
    }
    /// Common and big frames of the pool.
    fn frames(self) -> (usize, usize) {
        match self {
            Buffers::Hot | Buffers::Flushed => (1024, 2),
            Buffers::Cycled(count) => (1024, count),
            Buffers::Fifo(count) => (count, 2),
        }
    }
}

impl Case {
    /// Runs it in this process.
    pub fn run(&self) -> anyhow::Result<Run> {
        ensure!((1..=2 * BURST).contains(&self.burst), "a burst has 1 to {} packets", 2 * BURST);
        ensure!(self.buffers.are_possible(), "there are {} to a million buffers", 2 * BURST);
        let settings = RouterSettings {
            affinity: Some(0),
            burst: self.burst,
            frames: self.buffers.frames(),
            chatter: Sink::Stderr,
            ..RouterSettings::default()
        };
        let router = checked_with(&[&CARD], "idle", "Idle -> Discard;")?.build(settings)?;
        router.accept_calls();
        let running = router.start();
        let handle = running.handle();
        let run = self.run_in(&handle);
        handle.end_run();
        running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
        run
    }

    /// The card has its job before there is one, and ends the run: a router that polls its port for the next
    /// thing to do would count as misses what is none of a packet's.
    fn run_in(&self, handle: &Handle) -> anyhow::Result<Run> {
        let ports = handle.resources().get::<Ports>();
        let ((receives, wire_in), (sends, wire_out)) = (memory_pair(PLACES), memory_pair(PLACES));
        let received = ports.insert("in", receives);
        ports.insert("out", sends);
        let level = match self.depth {
            Depth::Card => Monitor(None),
            Depth::Router(monitor) => monitor,
        };
        let (report, outcome) = mpsc::channel();
        handle.resources().get::<Deal>().post(Job::new(*self, wire_in.tx, wire_out.rx, report));
        checked_with(&[&CARD], "misses2008", &graph::router(level))?.replace(handle)?;
        let card = outcome.recv_timeout(PATIENCE).context("the card did not hand over all packets")?;
        let traffic = received.received();
        Ok(Run { card, received: (traffic.packets, traffic.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misses2008::Spent;

    fn case(depth: &str, buffers: Buffers) -> Case {
        Case {
            depth: depth.parse().unwrap(),
            buffers,
            packets: 20_000,
            burst: BURST,
            rate: None,
            prefetch: false,
            count: false,
        }
    }

    #[test]
    fn names_are_read_as_written() {
        for depth in LADDER.into_iter().chain(["card"]) {
            assert_eq!(depth.parse::<Depth>().unwrap().to_string(), depth);
        }
        for wrong in [Buffers::Fifo(63), Buffers::Cycled(9_999_999)] {
            assert!(case("off", wrong).run().is_err(), "{wrong:?}");
        }
        assert!("l9".parse::<Depth>().unwrap_err().contains("'l0'"));
    }

    #[test]
    fn at_every_depth_and_in_all_buffers_packets_end_where_they_should_and_the_port_counts_all() {
        let buffers = [Buffers::Hot, Buffers::Flushed, Buffers::Cycled(64), Buffers::Fifo(2048)];
        for (depth, buffers) in LADDER.into_iter().flat_map(|depth| buffers.map(|buffers| (depth, buffers))) {
            let run =
                case(depth, buffers).run().unwrap_or_else(|error| panic!("{depth} {buffers}: {error:#}"));
            let returned = if depth == "off" { 20_000 } else { 0 };
            assert_eq!((run.card.handed.packets, run.card.returned), (20_000, returned), "{depth} {buffers}");
            assert_eq!(run.received, (20_000, run.card.handed.bytes), "{depth} {buffers}");
            assert!(run.card.nanos_per_packet() > 0.0 && run.card.examined.wrong == 0, "{run:?}");
        }
    }

    #[test]
    fn alone_the_card_hands_nothing_to_the_router() {
        let run = case("card", Buffers::Hot).run().unwrap();
        assert_eq!((run.card.handed.packets, run.received), (20_000, (0, 0)));
    }

    #[test]
    fn a_paced_run_has_idle_time() {
        let paced = Case { packets: 4000, rate: Some(100_000.0), ..case("l1", Buffers::Flushed) };
        let run = paced.run().unwrap();
        assert_eq!(run.received.0, 4000);
        assert!((1.0..=100.0).contains(&run.card.idle()), "{run:?}");
        let Spent { busy, card, idle, disturbed, .. } = run.card.spent;
        let took = (busy + card + idle + disturbed) as f64 / 1e9;
        assert!(3600.0 / took < 101_000.0, "nine tenths of the packets took {took} s: {run:?}");
    }
}
