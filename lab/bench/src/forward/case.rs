//! One router to measure: of which family, with which table, neighbors and packets, on how many workers.

use artery_packet::BATCH;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Frames that go round: a few batches, as of a driver that uses the same ones again and again.
pub(super) const FRAMES: usize = 4 * BATCH;
/// Packets that the frames carry in turn, each with its own destination.
pub(super) const PACKETS: usize = 1 << 18;
/// Routers that routes lead to.
pub(super) const NEXT_HOPS: usize = 16;

/// The destinations of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Traffic {
    /// Each to a random address of a random prefix
    Random,
    /// All to one address
    One,
}

/// What packets of flows meet on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Meets {
    /// A balancer, which shares them out
    Balancer,
    /// A packet filter, where they come in and where they leave
    Filter,
    /// Nothing but the router
    Nothing,
}

/// One run: a forwarder, its traffic and its size.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Address family, 4 or 6
    #[arg(long, default_value_t = 4)]
    pub family: u8,
    /// The destinations of packets
    #[arg(long, value_enum, default_value_t = Traffic::Random)]
    pub traffic: Traffic,
    /// Routes with next hops, as text
    #[arg(long)]
    pub table: Option<PathBuf>,
    /// Packets go to so many neighbors on one link instead of to routes
    #[arg(long)]
    pub neighbors: Option<u32>,
    /// Packets are of so many flows to a service, instead of to routes; through a switch, between hosts
    #[arg(long)]
    pub flows: Option<u32>,
    /// What packets of flows pass on their way
    #[arg(long, value_enum, default_value_t = Meets::Balancer)]
    pub meets: Meets,
    /// Frames go between so many hosts through a switch, instead of packets through a router
    #[arg(long)]
    pub stations: Option<u32>,
    /// The balancer remembers no flow
    #[arg(long)]
    pub stateless: bool,
    /// About one flow in a hundred keeps a member that it would not get any more, and a client follows those
    #[arg(long)]
    pub exceptions: bool,
    /// Different packets, for each worker
    #[arg(long, default_value_t = PACKETS)]
    pub packets: usize,
    /// Frames that they come in, for each worker
    #[arg(long, default_value_t = FRAMES)]
    pub frames: usize,
    /// Workers, each with packets of its own
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// The processor of the first worker
    #[arg(long, default_value_t = 0)]
    pub cpu: usize,
    /// Take the time of every element
    #[arg(long)]
    pub profile: bool,
    /// Sample one of so many packets
    #[arg(long)]
    pub sample: Option<u32>,
    /// End after so many packets; else wait for orders
    #[arg(long)]
    pub limit: Option<u64>,
}

impl Case {
    /// A router of a family without routes.
    pub(super) fn bare(family: u8) -> Case {
        Case {
            family,
            traffic: Traffic::Random,
            table: None,
            neighbors: None,
            flows: None,
            meets: Meets::Balancer,
            stations: None,
            stateless: false,
            exceptions: false,
            packets: PACKETS,
            frames: FRAMES,
            workers: 1,
            cpu: 0,
            profile: false,
            sample: None,
            limit: None,
        }
    }

    /// A balancer that remembers flows or does not, and packets of so many flows: of each one at least.
    pub(crate) fn of_flows(flows: u32, remembers: bool) -> Case {
        let packets = PACKETS.max(flows as usize);
        Case { flows: Some(flows), stateless: !remembers, packets, ..Case::bare(4) }
    }

    /// A router without routes but one, which packets of so many flows take.
    pub(super) fn of_flows_that_meet(flows: u32, meets: Meets) -> Case {
        Case { meets, ..Case::of_flows(flows, true) }
    }

    /// A switch between so many hosts, half of them on each side.
    pub(crate) fn of_stations(stations: u32) -> Case {
        Case { stations: Some(stations), ..Case::bare(4) }
    }

    /// The command line that passes the case to a child process.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec!["--family".into(), self.family.to_string()];
        words.extend(["--traffic".into(), name(self.traffic), "--meets".into(), name(self.meets)]);
        let mut say = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
        };
        say("table", self.table.as_ref().map(|table| table.display().to_string()));
        say("neighbors", self.neighbors.map(|count| count.to_string()));
        say("flows", self.flows.map(|count| count.to_string()));
        say("stations", self.stations.map(|count| count.to_string()));
        say("packets", Some(self.packets.to_string()));
        say("frames", Some(self.frames.to_string()));
        say("workers", Some(self.workers.to_string()));
        say("cpu", Some(self.cpu.to_string()));
        say("sample", self.sample.map(|interval| interval.to_string()));
        say("limit", self.limit.map(|limit| limit.to_string()));
        words.extend(self.profile.then(|| "--profile".to_string()));
        words.extend(self.stateless.then(|| "--stateless".to_string()));
        words.extend(self.exceptions.then(|| "--exceptions".to_string()));
        words
    }
}

/// The name of a value, as it is said on a command line.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().into())
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Few packets of a family to 16 neighbors, without a table.
    pub(in crate::forward) fn small(family: u8) -> Case {
        Case { neighbors: Some(16), packets: 500, frames: 200, ..Case::bare(family) }
    }

    #[test]
    fn everything_chosen_is_said_to_the_child() {
        #[derive(clap::Parser)]
        struct Child {
            #[command(flatten)]
            case: Case,
        }
        let all = Case {
            table: Some("t".into()),
            traffic: Traffic::One,
            workers: 2,
            cpu: 1,
            profile: true,
            sample: Some(1000),
            limit: Some(7),
            exceptions: true,
            ..small(6)
        };
        let filtered = Case::of_flows_that_meet(7, Meets::Filter);
        for case in [all, small(4), Case::of_flows(1 << 20, false), Case::of_stations(1000), filtered] {
            let words = ["child".to_string()].into_iter().chain(case.words());
            assert_eq!(<Child as clap::Parser>::parse_from(words).case, case);
        }
    }
}
