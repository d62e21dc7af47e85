//! A router in which packets go round, to be started and stopped.

use super::case::Case;
use super::network::{self, name};
use super::play::{Library, PLAY};
use anyhow::{Context as _, ensure};
use artery_common::packet_samples::PacketSamples;
use artery_device::{MemoryTx, Ports, TxQueue as _, memory_pair};
use artery_engine::{Handle, RouterSettings, Running, Sink};
use artery_packet::{Batch, Pool};
use artery_rig::program::checked_with;
use serde::{Deserialize, Serialize};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The pause between two polls of exceptions, as `artery flow follow` has it.
const POLL: Duration = Duration::from_millis(100);

/// Places of a cable beside those for its packets.
const SPARE: usize = 1024;

/// What a run has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// Packets that were received.
    pub(super) packets: u64,
    pub(super) seconds: f64,
    /// Seconds that processors spent on it.
    pub(super) busy: f64,
    /// Nanoseconds a packet spent in each element: receive, forward, send.
    pub(super) stages: [f64; 3],
}

impl Run {
    /// Millions of packets a second.
    pub(super) fn mpps(&self) -> f64 {
        self.packets as f64 / self.seconds / 1e6
    }
}

pub(super) struct Circuit {
    case: Case,
    running: Running,
    handle: Handle,
}

impl Circuit {
    /// Makes the router and its packets; nothing moves yet.
    pub(super) fn new(case: &Case) -> anyhow::Result<Circuit> {
        let settings = RouterSettings {
            workers: case.workers,
            affinity: Some(case.cpu),
            profile: case.profile,
            chatter: Sink::Stderr,
            frames: (1024, 2),
            ..RouterSettings::default()
        };
        let router = checked_with(&[&PLAY], "idle", "Idle -> Discard;")?.build(settings)?;
        router.accept_calls();
        let running = router.start();
        let handle = running.handle();
        handle.resources().get::<PacketSamples>().turn_on(case.sample.unwrap_or(0));
        let circuit = Circuit { case: case.clone(), running, handle };
        circuit.connect()?;
        Ok(circuit)
    }

    fn connect(&self) -> anyhow::Result<()> {
        let ports = self.handle.resources().get::<Ports>();
        for worker in 0..self.case.workers {
            let (mut out, back) = memory_pair(self.case.frames + SPARE);
            fill(&mut out.tx, self.case.frames)?;
            self.handle.resources().get::<Library>().add_packets(&network::frames(&self.case, worker)?)?;
            ports.insert(&name("in", worker), back);
            ports.insert(&name("out", worker), out);
        }
        checked_with(&[&PLAY], "forward", &network::text(&self.case))?.replace(&self.handle)?;
        for (handler, value) in network::neighbors(&self.case) {
            self.handle.write_handler(&handler, &value)?;
        }
        Ok(())
    }

    /// What it was made of.
    pub(super) fn case(&self) -> &Case {
        &self.case
    }
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Lets packets circulate for some time and counts in its last four fifths. Nothing moves afterwards.
    pub(super) fn run(&self, time: Duration) -> anyhow::Result<Run> {
        self.set_active(true)?;
        sleep(time / 5);
        let before = self.sample()?;
        sleep(time * 4 / 5);
        let after = self.sample()?;
        self.set_active(false)?;
        self.check()?;
        let packets = after.packets - before.packets;
        ensure!(packets > 0, "no packet moved");
        let each = |stage: usize| (after.stages[stage] - before.stages[stage]) / packets as f64;
        let seconds = (after.at - before.at).as_secs_f64();
        Ok(Run {
            packets,
            seconds,
            busy: (after.busy - before.busy).as_secs_f64(),
            stages: [each(0), each(1), each(2)],
        })
    }

    /// Lets packets go round until the limit is reached, and gives their number.
    pub(super) fn run_out(self) -> anyhow::Result<u64> {
        let follower = self.case.exceptions.then(|| {
            let (handle, known) = (self.handle.clone(), 4 * self.case.packets as u64);
            std::thread::spawn(move || follow_exceptions(&handle, known))
        });
        self.set_active(true)?;
        let mut end = self.running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
        if let Some(follower) = follower {
            let events = follower.join().map_err(|_| anyhow::anyhow!("the follower panicked"))??;
            eprintln!("{events} events of exceptions were read");
            ensure!(events > 0, "no exception was followed");
        }
        let mut read =
            |name: &str| -> anyhow::Result<u64> { Ok(end.read_handler(name, "")?.trim().parse()?) };
        ensure!(read("odd0.count")? == 0, "packets were not forwarded");
        ensure!(read("play0.wrong")? == 0, "packets came to harm");
        read("play0.count")
    }

    /// Asserts that all packets were forwarded, and that the sampled ones are as they should be.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.sum("odd", "count")? == 0, "packets were not forwarded");
        ensure!(self.sum("play", "wrong")? == 0, "packets came to harm");
        Ok(())
    }

    fn set_active(&self, active: bool) -> anyhow::Result<()> {
        for worker in 0..self.case.workers {
            self.handle.write_handler(&format!("{}.active", name("receive", worker)), &active.to_string())?;
        }
        Ok(())
    }

    fn sum(&self, element: &str, handler: &str) -> anyhow::Result<u64> {
        let one = |worker| -> anyhow::Result<u64> {
            let text = self.handle.read_handler(&format!("{}.{handler}", name(element, worker)), "")?;
            text.trim().parse().with_context(|| format!("{element}.{handler} is '{text}'"))
        };
        (0..self.case.workers).map(one).sum()
    }

    fn sample(&self) -> anyhow::Result<Look> {
        let (packets, at) = (self.sum("receive", "count")?, Instant::now());
        let mut stages = [0.0; 3];
        if self.case.profile {
            let (counts, plan) = (self.handle.counts()?, self.handle.plan());
            for (stage, element) in stages.iter_mut().zip(["receive", "forward", "send"]) {
                let node = plan.find_node(&name(element, 0), "");
                *stage = node.and_then(|node| counts.get(node)).map_or(0.0, |counts| counts.nanos as f64);
            }
        }
        Ok(Look { packets, at, busy: busy(), stages })
    }

    pub(super) fn end(self) -> anyhow::Result<()> {
        self.handle.end_run();
        self.running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
        Ok(())
    }
}

/// Changes the balancer's members once so many packets have gone round, and reads the events of exceptions
/// until the run ends; returns their number.
fn follow_exceptions(handle: &Handle, known: u64) -> anyhow::Result<usize> {
    while handle.read_handler("play0.count", "")?.trim().parse::<u64>()? < known {
        sleep(POLL);
    }
    let read = |asked: &str| -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&handle.read_handler("balancer0.exception_events", asked)?)?)
    };
    let mut next = read("now")?["next"].clone();
    handle.write_handler("balancer0.weight", network::MORE_FLOWS)?;
    let mut events = 0;
    // The run has ended when nothing can be read any more.
    while let Ok(lately) = read(&format!("0:{next}")) {
        let count = lately["events"].as_array().map_or(0, Vec::len);
        (events, next) = (events + count, lately["next"].clone());
        if count == 0 {
            sleep(POLL);
        }
    }
    Ok(events)
}

struct Look {
    packets: u64,
    at: Instant,
    busy: Duration,
    stages: [f64; 3],
}

/// The time that processors spent on this process.
fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn fill(tx: &mut MemoryTx, frames: usize) -> anyhow::Result<()> {
    let pool = Pool::new(frames + SPARE, 8)?;
    let mut batch = Batch::default();
    for _ in 0..frames {
        batch.push(pool.packet_from(&[0; network::FRAME]).context("the pool is as big as it must be")?);
        tx.transmit(&mut batch).context("a cable in memory takes packets")?;
    }
    ensure!(batch.is_empty(), "the cable has room for all frames");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::case::Meets;
    use super::super::case::testing::small;
    use super::*;

    #[test]
    fn packets_go_round_unharmed_in_both_families() {
        for family in [4, 6] {
            let circuit = Circuit::new(&small(family)).unwrap();
            let run = circuit.run(Duration::from_millis(50)).unwrap();
            assert!(run.mpps() > 0.01, "{run:?}");
            circuit.end().unwrap();
        }
    }

    #[test]
    fn frames_go_round_in_a_switch_and_none_comes_back() {
        let case = Case { packets: 500, frames: 200, ..Case::of_hosts(64) };
        let circuit = Circuit::new(&case).unwrap();
        assert!(circuit.run(Duration::from_millis(50)).unwrap().packets > 0);
        let known = circuit.handle().read_handler("forward0.addr", "").unwrap();
        assert_eq!(known.lines().filter(|line| line.ends_with("flags=0<>")).count(), 32, "{known}");
        assert_eq!(circuit.handle().read_handler("forward0.drops", "").unwrap(), "");
        circuit.end().unwrap();
    }

    #[test]
    fn a_filter_has_a_state_for_each_flow_at_both_ports() {
        let of_router = Case::of_flows_that_meet(40, Meets::Filter);
        let of_switch = Case { hosts: Some(16), ..of_router.clone() };
        for (case, filter) in [(of_router, "pf0"), (of_switch, "forward0")] {
            let circuit = Circuit::new(&Case { packets: 500, frames: 200, ..case }).unwrap();
            assert!(circuit.run(Duration::from_millis(50)).unwrap().packets > 1000);
            let states = circuit.handle().read_handler(&format!("{filter}.pf_worker"), "states 0 -").unwrap();
            assert_eq!(states.lines().skip(1).count(), 80, "{states}");
            circuit.end().unwrap();
        }
    }

    #[test]
    fn as_many_packets_go_round_as_there_may_be() {
        let circuit = Circuit::new(&Case { limit: Some(6400), frames: 64, ..small(4) }).unwrap();
        assert_eq!(circuit.run_out().unwrap(), 6400);
    }

    #[test]
    fn every_worker_has_packets_of_its_own() {
        let circuit = Circuit::new(&Case { workers: 2, ..small(4) }).unwrap();
        assert!(circuit.run(Duration::from_millis(50)).unwrap().packets > 0);
        circuit.end().unwrap();
    }

    #[test]
    fn a_profile_says_what_each_element_takes() {
        let circuit = Circuit::new(&Case { profile: true, ..small(4) }).unwrap();
        let run = circuit.run(Duration::from_millis(50)).unwrap();
        assert!(run.stages.iter().all(|nanos| *nanos > 0.0), "{run:?}");
        circuit.end().unwrap();
    }
}
