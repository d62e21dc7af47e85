//! One router to measure: of which family, with which table, neighbors and packets, on how many workers.

use artery_packet::BATCH;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Frames that go round: a few batches, as of a driver that uses the same ones again and again.
pub(super) const FRAMES: usize = 4 * BATCH;
/// Packets that the frames carry in turn, each with its own destination.
pub(super) const PACKETS: usize = 1 << 18;
/// Routers that routes lead to.
pub(super) const NEXT_HOPS: usize = 16;

/// The destinations of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Each to a random address of a random prefix
    Random,
    /// All to one address
    One,
}

/// What packets of flows meet on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meets {
    /// A balancer, which shares them out
    Balancer,
    /// A packet filter, where they come in and where they leave
    Filter,
    /// Nothing but the router
    Nothing,
}

/// One run: a forwarder, its traffic and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Case {
    /// Address family, 4 or 6
    pub family: u8,
    /// The destinations of packets
    pub traffic: Traffic,
    /// Routes with next hops, as text
    pub table: Option<PathBuf>,
    /// Packets go to so many neighbors on one link instead of to routes
    pub neighbors: Option<u32>,
    /// Packets are of so many flows to a service, instead of to routes; through a switch, between hosts
    pub flows: Option<u32>,
    /// What packets of flows pass on their way
    pub meets: Meets,
    /// Frames go between so many hosts through a switch, instead of packets through a router
    #[serde(alias = "stations")]
    pub hosts: Option<u32>,
    /// The balancer remembers no flow
    pub stateless: bool,
    /// About one flow in a hundred keeps a member that it would not get any more, and a client follows those
    pub exceptions: bool,
    /// Different packets, for each worker
    pub packets: usize,
    /// Frames that they come in, for each worker
    pub frames: usize,
    /// Workers, each with packets of its own
    pub workers: usize,
    /// The processor of the first worker
    pub cpu: usize,
    /// Take the time of every element
    pub profile: bool,
    /// Sample one of so many packets
    pub sample: Option<u32>,
    /// End after so many packets; else wait for orders
    pub limit: Option<u64>,
}

impl Default for Case {
    fn default() -> Case {
        Case::bare(4)
    }
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
            hosts: None,
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
    pub(crate) fn of_hosts(hosts: u32) -> Case {
        Case { hosts: Some(hosts), ..Case::bare(4) }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Few packets of a family to 16 neighbors, without a table.
    pub(in crate::forward) fn small(family: u8) -> Case {
        Case { neighbors: Some(16), packets: 500, frames: 200, ..Case::bare(family) }
    }
}
