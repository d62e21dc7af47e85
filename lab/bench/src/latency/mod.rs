//! `artery-bench latency`: how long each frame of a stream takes through forwarders, at parts of what each of
//! them forwards without loss; and how long an idle one takes to answer.
//!
//! The forwarders take turns within a round, each in fresh namespaces, as in `wire`. A turn during which the
//! machine gave others more than a twentieth of its processors' time (steal) is dropped, and counted.

mod report;
pub(crate) mod sink;
pub(crate) mod steal;

use crate::results::Delivery;
use crate::wire::bed::Bed;
use crate::wire::forwarder::{Forwarder, Method, Running};
use crate::wire::search::{Care, loss_free};
use anyhow::{bail, ensure};
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use artery_rig::program;
use artery_rig::{Result, Rig, RigError};
use clap::Args;
use hdrhistogram::Histogram;
use report::{Report, Turn};
use sink::StampSink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use steal::Steal;

/// Which forwarders to measure, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    #[command(flatten)]
    delivery: Delivery,
    /// How many rounds; 15 if not given, with --quick 3
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Only these, by name, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Streams at these rates, too, in millions of frames a second, with commas between: the same for all
    #[arg(long, value_name = "MPPS", value_delimiter = ',', value_parser = rate)]
    at: Vec<f64>,
    /// Another build of artery, such as of the commit before, which takes turns with this one
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
}

const FORWARDERS: [Forwarder; 6] = [
    Forwarder::Router(Method::Linux),
    Forwarder::RouterAwake,
    Forwarder::Cable(Method::Linux),
    Forwarder::Bare,
    Forwarder::Kernel { steered: false },
    Forwarder::Testpmd(Method::Linux),
];
/// The name of the router by another build.
const BEFORE: &str = "before";

/// Parts of the loss-free rate.
const LOADS: [f64; 3] = [0.1, 0.5, 0.9];
/// From one ping to the next, without load.
const PING_INTERVAL: Duration = Duration::from_millis(1);
/// How long to look at the processor time of an idle forwarder.
const IDLE: Duration = Duration::from_secs(1);
/// How long a forwarder has nothing to do before it counts as idle.
const CALM: Duration = Duration::from_millis(50);

/// How much is run.
struct Plan {
    rounds: usize,
    /// How long frames are sent at a rate that may be lossless.
    trial: Duration,
    care: Care,
    /// How long frames are sent whose times count.
    stream: Duration,
    pings: u16,
}

impl Plan {
    const FULL: Plan = Plan {
        rounds: 15,
        trial: Duration::from_millis(300),
        care: Care { halvings: 6, tries: 2 },
        stream: Duration::from_secs(1),
        pings: 500,
    };
    const QUICK: Plan = Plan { rounds: 3, trial: Duration::from_millis(200), ..Plan::FULL };
}

/// A rate in Mpps that a stream can have.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=100.0).contains(rate));
    rate.ok_or_else(|| "a rate is from 0.001 to 100 Mpps".into())
}

fn names() -> clap::builder::PossibleValuesParser {
    FORWARDERS.map(Forwarder::name).into_iter().chain([BEFORE]).collect::<Vec<_>>().into()
}

/// Measures, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let plan = options.delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let rounds = options.rounds.unwrap_or(plan.rounds);
    ensure!(rounds > 0, "--rounds must be at least 1");
    let contestants = options.contestants()?;
    if let Err(error) = Rig::new("latency") {
        bail!("latency is measured between namespaces: {error}");
    }
    let mut report = Report::new(Machine::here(), &options.at);
    for round in 1..=rounds {
        progress(&format!("round {round} of {rounds}"));
        for contestant in &contestants {
            contestant.measure_once(&plan, &options.at, &mut report);
        }
    }
    options.delivery.deliver(&report)
}

impl Options {
    fn contestants(&self) -> anyhow::Result<Vec<Contestant>> {
        let this = program::artery()?;
        let ours = FORWARDERS.into_iter().map(|forwarder| (forwarder.name(), forwarder, this.clone()));
        let before = self.before.clone().map(|path| (BEFORE, FORWARDERS[0], path));
        let wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        let all = before.into_iter().chain(ours).filter(|(name, ..)| wanted(name));
        let all: Vec<_> =
            all.map(|(name, forwarder, program)| Contestant { name, forwarder, program }).collect();
        ensure!(!all.is_empty(), "nothing is left to measure: --only before needs --before PROGRAM");
        Ok(all)
    }
}

/// A forwarder that takes a turn in every round.
struct Contestant {
    name: &'static str,
    forwarder: Forwarder,
    /// The build of artery.
    program: PathBuf,
}

impl Contestant {
    fn measure_once(&self, plan: &Plan, at: &[f64], report: &mut Report) {
        let steal = Steal::begin();
        match self.measure(plan, at) {
            Ok(turn) => report.add(self.name, steal.percent(), turn),
            Err(error) => report.skip(self.name, &error.to_string()),
        }
    }

    fn measure(&self, plan: &Plan, at: &[f64]) -> Result<Turn> {
        let mut bed = Bed::new(self.forwarder.shape())?;
        let mut running = self.forwarder.start_by(Path::new(&self.program), &bed)?;
        let idle = bed.ping(plan.pings, PING_INTERVAL)?;
        let idle_processor = processor_time(&running);
        bed.is_stamped = true;
        bed.r.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        let sink = sink_of(&bed)?;
        let overload = bed.offer(None, plan.trial)?.forwarded();
        let found = loss_free(overload, plan.care, |rate| bed.offer(Some(rate), plan.trial))?;
        let rate = found.ok_or_else(|| unmeasured("it lost frames at every rate that was tried"))?;
        let mut streams = Vec::new();
        let rates = LOADS.map(|part| part * rate).into_iter().chain(at.iter().map(|mpps| mpps * 1e6));
        for rate in rates {
            sink.drain_times();
            let outcome = bed.offer(Some(rate), plan.stream)?;
            streams.push((outcome.loss(), sink.drain_times()));
        }
        running.must_live()?;
        running.end()?;
        Ok(Turn { idle_ping_ns: idle.p50_ns, idle_processor, overload, loss_free: rate, streams })
    }
}

fn unmeasured(why: &str) -> RigError {
    RigError::System(why.into(), std::io::ErrorKind::Other.into())
}

/// Percent of a processor that the forwarder's process takes while nothing is sent; none for the kernel.
fn processor_time(running: &Running) -> Option<f64> {
    let account = running.account()?;
    thread::sleep(CALM);
    let (start, before) = (Instant::now(), account.seconds());
    thread::sleep(IDLE);
    Some(100.0 * (account.seconds() - before) / start.elapsed().as_secs_f64())
}

/// Lets stamped frames end at the receiver.
pub(crate) fn sink_of(bed: &Bed) -> Result<StampSink> {
    let index = bed.b.run(["cat", "/sys/class/net/eth0/ifindex"])?.stdout;
    let index = index.trim().parse().map_err(|_| unmeasured("eth0 has no number"))?;
    let sink = bed.b.enter(|| StampSink::new(index))?;
    sink.map_err(|error| RigError::System("the program that times frames is refused".into(), error))
}

/// The figures of a stream, in nanoseconds: p50, p99, p99.9. None without frames.
fn quantiles(times: &Histogram<u64>) -> Option<[u64; 3]> {
    (!times.is_empty()).then(|| [0.5, 0.99, 0.999].map(|part| times.value_at_quantile(part)))
}
