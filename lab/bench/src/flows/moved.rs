//! Which flows get another server when one goes and when one comes, by each method alone and with the flow
//! table, and what it costs to choose.

use super::plan::Plan;
use super::tables::{BATCH, Numbered, SYN, at, table};
use artery_flow::balance::{Balancer, Choice, Flow, Local, Member, Members, Method, Settings};
use artery_flow::{Answer, Flow4, FlowLimits, FlowSettings, FlowTable, PacketInfo, Tick};
use artery_rcu::{Domain, Reader};
use artery_storage::Pages;
use artery_wire::Random;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Member counts that are measured.
pub(super) const MEMBERS: [u32; 4] = [4, 10, 100, 650];
/// Rounds; the fastest counts.
const ROUNDS: usize = 5;
const NOW: Duration = Duration::from_secs(1);

/// What was measured of a method.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) method: Method,
    pub(super) members: u32,
    /// Percent of the flows of other members that move when one goes, and when one comes, by the method
    /// alone. None where it is packets that are shared out, or counts that decide.
    pub(super) alone: Option<[f64; 2]>,
    /// The same with the flow table. None where no flow is remembered.
    pub(super) remembered: Option<[f64; 2]>,
    /// Nanoseconds to choose for a new flow, and to see that a known one's member lives.
    pub(super) pick: f64,
    pub(super) known: f64,
    /// Microseconds until one who goes is gone.
    pub(super) change: f64,
}

pub(super) fn measure(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let mut random = Random::new(1);
    let flows: Vec<Flow> =
        (0..plan.shared).map(|_| Flow { hash: random.next(), xor: random.next() as u32 }).collect();
    let all = MEMBERS.into_iter().flat_map(|members| Method::ALL.map(|method| (method, members)));
    all.map(|(method, members)| row(method, members, &flows)).collect()
}

fn member(number: u32) -> Member {
    Member::new(&format!("server{number}"), Ipv4Addr::from(0x0a00_0001 + number).into())
}

fn row(method: Method, count: u32, flows: &[Flow]) -> anyhow::Result<Row> {
    let mut farm = Farm::new(method, count)?;
    let mut memory = if method.is_for_packets() { None } else { Some(Memory::new(flows.len() as u32)?) };
    let (before, pick) = farm.picks(flows);
    let known = farm.known(&before);
    let first = memory.as_mut().map(|memory| memory.pass(&mut farm, flows)).transpose()?;

    let gone = member(count / 2);
    let begin = Instant::now();
    farm.members.remove(&gone.name, NOW)?;
    let change = begin.elapsed().as_secs_f64() * 1e6;
    let after = farm.picks(flows).0;
    let second = memory.as_mut().map(|memory| memory.pass(&mut farm, flows)).transpose()?;

    farm.members.add_member(member(count), NOW)?;
    let last = farm.picks(flows).0;
    let third = memory.as_mut().map(|memory| memory.pass(&mut farm, flows)).transpose()?;

    let moves = |all: [&[u32]; 3]| [farm.moved(all[0], all[1]), farm.moved(all[1], all[2])];
    let is_by_hash =
        matches!(method, Method::Maglev(_) | Method::Resilient { .. } | Method::Hash | Method::Xor);
    let alone = is_by_hash.then(|| moves([&before, &after, &last]));
    let remembered = first.zip(second).zip(third).map(|((a, b), c)| moves([&a, &b, &c]));
    Ok(Row { method, members: count, alone, remembered, pick, known, change })
}

/// Members, and a worker that shares flows out among them.
struct Farm {
    members: Members,
    balancer: Balancer,
    reader: Reader,
    local: Local,
}

impl Farm {
    fn new(method: Method, count: u32) -> anyhow::Result<Farm> {
        let domain: Arc<Domain> = Domain::new();
        let mut members = Members::new(&domain, Settings { method, ..Settings::default() })?;
        members.replace_members((0..count).map(member).collect(), NOW)?;
        Ok(Farm { balancer: members.balancer(), members, reader: domain.reader(), local: Local::new(0) })
    }

    /// Whom each flow goes to, and how many nanoseconds it took to say so.
    fn picks(&mut self, flows: &[Flow]) -> (Vec<u32>, f64) {
        let turn = self.reader.turn();
        let choice = self.balancer.choice_at(&turn);
        let mut actions = vec![0; flows.len()];
        let nanos = least_nanos(flows.len(), || {
            for (flow, action) in flows.iter().zip(&mut actions) {
                *action = pick(choice, &mut self.local, *flow);
            }
        });
        (actions, nanos)
    }

    /// How many nanoseconds it takes to say that a known flow's member lives.
    fn known(&mut self, actions: &[u32]) -> f64 {
        let turn = self.reader.turn();
        let choice = self.balancer.choice_at(&turn);
        least_nanos(actions.len(), || {
            black_box(actions.iter().filter(|action| choice.member(**action).is_some()).count());
        })
    }

    /// Percent of flows that have another member now, of those whose member was there before and still is.
    fn moved(&self, from: &[u32], to: &[u32]) -> f64 {
        let living: Vec<u32> = self.members.view_members().map(|view| view.id.action()).collect();
        let of_living = || from.iter().zip(to).filter(|(from, _)| living.contains(from));
        let moved = of_living().filter(|(from, to)| from != to).count();
        100.0 * moved as f64 / of_living().count().max(1) as f64
    }
}

fn pick(choice: &Choice, local: &mut Local, flow: Flow) -> u32 {
    choice.pick_member(local, flow, NOW).map_or(0, |id| id.action())
}

fn least_nanos(count: usize, mut round: impl FnMut()) -> f64 {
    let mut time = |_| {
        let begin = Instant::now();
        round();
        begin.elapsed()
    };
    let least = (0..ROUNDS).map(&mut time).min().unwrap_or_default();
    least.as_nanos() as f64 / count as f64
}

/// The flow table of that worker.
struct Memory {
    table: FlowTable<Flow4>,
    now: Tick,
}

impl Memory {
    fn new(flows: u32) -> anyhow::Result<Memory> {
        let limits = FlowLimits { flows, young: flows };
        Ok(Memory { table: table(limits, FlowSettings::default(), &Pages)?, now: at(1) })
    }

    /// Whom a packet of each flow goes to: whom the flow has, if that one lives, else a new choice.
    fn pass(&mut self, farm: &mut Farm, flows: &[Flow]) -> anyhow::Result<Vec<u32>> {
        let Farm { balancer, reader, local, .. } = farm;
        let turn = reader.turn();
        let choice = balancer.choice_at(&turn);
        let (mut actions, mut found) = (Vec::new(), Vec::new());
        for (flows, first) in flows.chunks(BATCH).zip((0..).step_by(BATCH)) {
            let keys: Vec<Flow4> = (first..).take(flows.len()).map(Flow4::numbered).collect();
            self.table.find_batch(&keys, &mut found);
            for ((flow, key), id) in flows.iter().zip(&keys).zip(&found) {
                let answer = id.and_then(|id| self.table.touch_flow(id, &PacketInfo::default(), self.now));
                let has =
                    answer.map(|answer| answer.action).filter(|action| choice.member(*action).is_some());
                let action = has.unwrap_or_else(|| pick(choice, local, *flow));
                let answer = Answer { action, generation: choice.generation() };
                match id {
                    Some(id) => _ = self.table.update_answer(*id, answer),
                    None => _ = self.table.insert(key, answer, &SYN, self.now)?,
                }
                actions.push(action);
            }
        }
        Ok(actions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_the_living_move_by_xor_seldom_by_maglev_and_never_where_they_are_remembered() {
        let rows = measure(&Plan { shared: 20_000, ..Plan::QUICK }).unwrap();
        assert_eq!(rows.len(), MEMBERS.len() * Method::ALL.len());
        for row in rows {
            let [gone, comes] = row.alone.unwrap_or_default();
            match row.method {
                Method::Xor => assert!(gone > 60.0 && comes > 60.0, "{row:?}"),
                Method::Maglev(_) => assert!(gone < 1.5 && comes < 30.0, "{row:?}"),
                Method::Resilient { .. } => assert_eq!((gone, comes), (0.0, 0.0), "{row:?}"),
                _ => {}
            }
            assert_eq!(row.remembered.is_none(), row.method.is_for_packets());
            assert_eq!(row.remembered.unwrap_or_default(), [0.0, 0.0], "{row:?}");
        }
    }
}
