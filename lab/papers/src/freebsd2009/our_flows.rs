//! G: our own tables behind our own flow table, by destinations: one for each thread,
//! and right by generation.
//!
//! A flow remembers by which port its packets leave and which neighbor is next; the neighbor's link address
//! is read where it is published, so it is never an old one. The rest is right for the generation in which it
//! was found: control counts one for each change, and a flow of another generation is looked up in the tables
//! again. So a better route takes over with the next batch, which in 2009 it did not. While control is at
//! work, flows are not asked: a neighbor that goes leaves its number to another one after a grace period,
//! which may be over before the change is.

use super::guard::SeqCounter;
use super::network::{Packet, Sender, Sent};
use super::ours::{Ours, mac, sent_by};
use artery_flow::{
    Answer, Flow4, FlowId, FlowLimits, FlowSettings, FlowTable, IdleTimes, PacketInfo, Seed, Tick,
};
use artery_l3::PortId;
use artery_l3::neighbor::NeighborId;
use artery_l3::path::{Explained, PathReader};
use artery_rcu::Reader;
use artery_storage::Pages;
use artery_wire::IpProtocol;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Half a minute, as in 2009. A hit writes nothing for an eighth of a second.
const SETTINGS: FlowSettings = FlowSettings { idle: IdleTimes::PAPER, counts: false };
/// Flows that are checked for idleness between two readings of the clock, which are
/// two thousand packets apart.
const LOOKED_AT: usize = 64;
/// Bits of an action that are the neighbor's number; the port is above them.
const NEIGHBOR: u32 = 24;

/// A thread that sends.
pub(super) struct FlowsOfOurs<'t> {
    generation: &'t SeqCounter,
    path: PathReader<u32>,
    turns: Reader,
    flows: FlowTable<Flow4>,
    now: Tick,
    /// Of a batch: keys, what is known of them, and the places of those that must be looked up.
    keys: Vec<Flow4>,
    found: Vec<Option<FlowId>>,
    missed: Vec<usize>,
}

impl<'t> FlowsOfOurs<'t> {
    /// Makes a flow table with room for so many flows. Nothing attacks it, so all of them may be young.
    pub(super) fn new(tables: &'t Ours, most: usize) -> anyhow::Result<FlowsOfOurs<'t>> {
        let limits = FlowLimits { flows: most as u32, young: most as u32 };
        let (path, turns) = tables.readers();
        Ok(FlowsOfOurs {
            generation: tables.generation(),
            path,
            turns,
            flows: FlowTable::new(limits, SETTINGS, Seed::random(), &Pages)?,
            now: Tick::default(),
            keys: Vec::new(),
            found: Vec::new(),
            missed: Vec::new(),
        })
    }
}

impl Sender for FlowsOfOurs<'_> {
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        let FlowsOfOurs { path, turns, flows, now, keys, found, missed, .. } = self;
        let turn = turns.turn();
        // Read after the turn has begun, and before anything that it is to vouch for.
        let generation = self.generation.settled().map(|number| number as u32);
        keys.clear();
        keys.extend(packets.iter().map(key));
        flows.find_batch(keys, found);
        sent.clear();
        missed.clear();
        // All that were found before one is inserted, which may take the place of another.
        for (at, found) in found.iter().enumerate() {
            let answer = found.and_then(|id| flows.touch_flow(id, &PacketInfo::default(), *now));
            let known = answer.filter(|answer| Some(answer.generation) == generation);
            sent.push(known.and_then(|answer| by(path, answer.action)).unwrap_or_else(|| {
                missed.push(at);
                Sent::NoRoute
            }));
        }
        for at in missed {
            let found = path.explain_path(&turn, packets[*at].destination, |_| 0);
            remember(flows, &keys[*at], &found, generation, *now);
            sent[*at] = sent_by(&found.decision);
        }
    }

    fn tick(&mut self, seconds: u32) {
        self.now = Tick::from_time(Duration::from_secs(seconds.into()));
        self.flows.maintain_flows(self.now, LOOKED_AT);
    }
}

/// All packets to an address are one flow.
#[inline]
fn key(packet: &Packet) -> Flow4 {
    let ends = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::from_bits(packet.destination)];
    Flow4::new(ends, [0, 0], IpProtocol(0), 0)
}

/// Where an action leads, if the neighbor can be reached.
#[inline]
fn by(path: &PathReader<u32>, action: u32) -> Option<Sent> {
    let link = path.neighbor_link(NeighborId::new(action & ((1 << NEIGHBOR) - 1)));
    // Other flows are decided by the tables, which report to control that they are used.
    link.is_only_ready().then(|| Sent::Out((action >> NEIGHBOR) as u16, mac(link)))
}

/// Keeps what was found, or forgets the flow if it leads nowhere.
#[inline(never)]
fn remember(
    flows: &mut FlowTable<Flow4>,
    key: &Flow4,
    found: &Explained,
    generation: Option<u32>,
    now: Tick,
) {
    let Some(generation) = generation else { return };
    let known = flows.find(key);
    match (known, action(found)) {
        (Some(id), Some(action)) => _ = flows.update_answer(id, Answer { action, generation }),
        (Some(id), None) => _ = flows.remove(id),
        // If the table is full, the next packet is looked up in the tables again.
        (None, Some(action)) => {
            _ = flows.insert(key, Answer { action, generation }, &PacketInfo::default(), now)
        }
        (None, None) => {}
    }
}

/// The action for packets of a flow, if one number can express it.
fn action(found: &Explained) -> Option<u32> {
    let (Explained { decision, neighbor: Some(neighbor), .. }, PortId(port)) = (found, found.decision.port)
    else {
        return None;
    };
    let fits = neighbor.number() < 1 << NEIGHBOR && u32::from(port) < 1 << (32 - NEIGHBOR);
    (decision.link.is_only_ready() && fits).then(|| u32::from(port) << NEIGHBOR | neighbor.number())
}

#[cfg(test)]
mod tests {
    use super::super::network::Control;
    use super::super::network::testing::*;
    use super::*;

    /// Makes tables with two routers. The first has the default route.
    fn furnished() -> Ours {
        let tables = Ours::new().unwrap();
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        tables.learn(ip("10.0.0.2"), B);
        tables
    }

    fn hits(sender: &FlowsOfOurs<'_>) -> u64 {
        sender.flows.stats().hits
    }

    #[test]
    fn it_follows_changes() {
        let tables = Ours::new().unwrap();
        follows_changes(&tables, &mut FlowsOfOurs::new(&tables, 64).unwrap());
    }

    #[test]
    fn a_better_route_is_taken_by_the_next_packet_of_a_known_flow() {
        let tables = furnished();
        let mut sender = FlowsOfOurs::new(&tables, 64).unwrap();
        for _ in 0..2 {
            assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
        }
        assert_eq!((hits(&sender), sender.flows.len()), (1, 1));
        tables.add_route(prefix("8.0.0.0/8"), ip("10.0.0.2")).unwrap();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, B));
        let view = |sender: &mut FlowsOfOurs<'_>| {
            let id = sender.flows.find(&key(&packet("8.8.8.8", 0))).unwrap();
            sender.flows.get(id).unwrap().answer().generation
        };
        let renewed = view(&mut sender);
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, B));
        let known = (view(&mut sender), sender.flows.len());
        assert_eq!(known, (renewed, 1), "it is the same flow, renewed once");
        assert_eq!(Some(renewed), tables.generation().settled().map(|number| number as u32));
    }

    #[test]
    fn a_known_flow_is_not_looked_up_while_nothing_changes() {
        let tables = furnished();
        let mut sender = FlowsOfOurs::new(&tables, 64).unwrap();
        one(&mut sender, "8.8.8.8");
        // A change that is not counted as a generation can't be noticed without a lookup in the tables.
        let id = sender.flows.find(&key(&packet("8.8.8.8", 0))).unwrap();
        let answer = sender.flows.get(id).unwrap().answer();
        sender.flows.update_answer(id, Answer { action: answer.action | 1 << NEIGHBOR, ..answer });
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(1, A));
    }

    #[test]
    fn nothing_is_remembered_of_what_leads_nowhere_and_nothing_asked_while_control_is_at_work() {
        let tables = furnished();
        let mut sender = FlowsOfOurs::new(&tables, 64).unwrap();
        one(&mut sender, "8.8.8.8");
        tables.generation().change(|| {
            assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
            assert_eq!(one(&mut sender, "8.8.8.9"), Sent::Out(0, A));
            assert_eq!(sender.flows.len(), 1);
        });
        tables.delete_route(prefix("0.0.0.0/0"));
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::NoRoute);
        assert_eq!(one(&mut sender, "9.9.9.9"), Sent::NoRoute);
        assert_eq!(sender.flows.len(), 0);
    }

    #[test]
    fn packets_of_one_batch_are_right_however_few_flows_there_is_room_for() {
        let tables = furnished();
        tables.add_route(prefix("8.0.0.0/8"), ip("10.0.0.2")).unwrap();
        let mut sender = FlowsOfOurs::new(&tables, 2).unwrap();
        let (packets, mut sent) =
            (["8.0.0.1", "9.0.0.1", "8.0.0.1", "9.0.0.2", "8.0.0.2"].map(|to| packet(to, 0)), Vec::new());
        for _ in 0..10 {
            sender.send(&packets, &mut sent);
            assert_eq!(sent, [B, A, B, A, B].map(|mac| Sent::Out(0, mac)));
        }
        assert_eq!(sender.flows.len(), 2);
    }

    #[test]
    fn a_flow_goes_when_it_was_not_used_for_thirty_seconds() {
        let tables = furnished();
        let mut sender = FlowsOfOurs::new(&tables, 64).unwrap();
        one(&mut sender, "8.8.8.8");
        for (seconds, flows) in [(29, 1), (32, 0)] {
            sender.tick(seconds);
            assert_eq!(sender.flows.len(), flows, "after {seconds} seconds");
        }
    }
}
