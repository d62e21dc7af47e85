//! `artery-bench wire`: forwarders between two hosts, all in one run: frames a second, TCP and UDP, latency.
//!
//! Every forwarder has its turn in every round, in fresh namespaces: first iperf3 and idle pings with the
//! interfaces as they come, then frames from the generator, as many as can be, then the greatest rate without
//! loss, and pings at half and nine tenths of that. What can't be measured here is said, with the reason.

pub mod bed;
pub(crate) mod forwarder;
mod memory;
pub(crate) mod part;
pub mod processor;
mod report;
pub mod search;

pub use part::{Part, SUBCOMMAND, run as run_part};

use crate::results::{Delivery, number};
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use artery_rig::{Result, Rig, RigError, Throughput};
use bed::Bed;
use clap::Args;
use forwarder::{ALL, Forwarder, Running};
use part::Replies;
use processor::Account;
use report::{LOSS_FREE, MEMORY, OVERLOAD, PINGS, Report, TCP, TCP_TIME, UDP, UDP_TIME, Work, YARDSTICK};
use search::{Care, Outcome, loss_free};
use std::time::{Duration, Instant};

/// Which forwarders to measure, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    #[command(flatten)]
    delivery: Delivery,
    /// Only these, by name, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
}

/// The name of what needs no wire.
const IN_MEMORY: &str = "memory";

fn names() -> clap::builder::PossibleValuesParser {
    ALL.map(Forwarder::name).into_iter().chain([IN_MEMORY]).collect::<Vec<_>>().into()
}

impl Options {
    fn wants(&self, name: &str, is_optional: bool) -> bool {
        self.only.is_empty() && !is_optional || self.only.iter().any(|wanted| wanted == name)
    }
}

/// How much is run.
struct Plan {
    rounds: usize,
    /// How long frames are sent at one rate.
    trial: Duration,
    care: Care,
    /// Seconds of a run of iperf3.
    seconds: u32,
    /// Pings of a row.
    pings: u16,
}

impl Plan {
    const FULL: Plan = Plan {
        rounds: 3,
        trial: Duration::from_secs(1),
        care: Care { halvings: 7, tries: 3 },
        seconds: 4,
        pings: 3000,
    };
    const QUICK: Plan = Plan {
        rounds: 1,
        trial: Duration::from_millis(200),
        care: Care { halvings: 5, tries: 2 },
        seconds: 1,
        pings: 500,
    };
}

const PING_INTERVAL: Duration = Duration::from_millis(1);
/// Parts of the loss-free rate that pings are sent at, as [`PINGS`] without the idle row.
const LOADS: [f64; 2] = [0.5, 0.9];

/// Measures, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let plan = options.delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let mut report = Report::new(Machine::here());
    if options.wants(IN_MEMORY, false) {
        in_memory(&plan, &mut report)?;
    }
    match Rig::new("wire") {
        Ok(_) => over_the_wire(options, &plan, &mut report),
        Err(error) => report.skip("everything over the wire", &error.to_string()),
    }
    options.delivery.deliver(&report)
}

fn in_memory(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    for round in 1..=plan.rounds {
        progress(&format!("in memory: round {round} of {}", plan.rounds));
        for (name, between) in memory::WIRES {
            report.add(MEMORY, name, memory::rate(between, plan.trial)?);
        }
        match memory::yardstick() {
            Some(y) => report.add(MEMORY, YARDSTICK, y),
            None => report.skip(YARDSTICK, "needs root, DPDK's testpmd and huge pages"),
        }
    }
    Ok(())
}

fn over_the_wire(options: &Options, plan: &Plan, report: &mut Report) {
    for round in 1..=plan.rounds {
        progress(&format!("over the wire: round {round} of {}", plan.rounds));
        let is_wanted = |one: &Forwarder| options.wants(one.name(), one.is_optional());
        for forwarder in ALL.into_iter().filter(is_wanted) {
            let turn = Bed::new(forwarder.shape())
                .and_then(|bed| Ok((forwarder.start(&bed)?, bed)))
                .map(|(running, bed)| Turn { plan, who: forwarder.name(), bed, running });
            match turn {
                Ok(turn) => turn.measure(report),
                Err(error) => report.skip(forwarder.name(), &error.to_string()),
            }
        }
    }
}

/// A forwarder at work, and who it is.
struct Turn<'a> {
    plan: &'a Plan,
    who: &'static str,
    bed: Bed,
    running: Running,
}

impl Turn<'_> {
    /// Measures all that can be.
    fn measure(mut self, report: &mut Report) {
        self.throughput(report, TCP, TCP_TIME, &[]);
        self.throughput(report, UDP, UDP_TIME, &["-u", "-b", "0", "-l", "1448"]);
        let idle = self.bed.ping(self.plan.pings, PING_INTERVAL);
        self.add_pings(report, 0, idle);
        if let Err(error) = self.loads(report) {
            report.skip(&format!("{}: frames", self.who), &error.to_string());
        }
        if let Err(error) = self.running.must_live().and_then(|()| self.running.end()) {
            report.skip(self.who, &error.to_string());
        }
    }

    /// Gigabits a second by iperf3, and the forwarder's processor time for a gigabyte.
    fn throughput(&self, report: &mut Report, work: Work, time: Work, options: &[&str]) {
        let seconds = self.plan.seconds.to_string();
        let common = ["-t", &seconds, "-A", "0,0", "--connect-timeout", "3000"];
        let account = self.running.account();
        let (start, before) = (Instant::now(), account.map(Account::seconds));
        let measured = self.bed.a.iperf3(&self.bed.b, self.bed.target, &[&common[..], options].concat());
        let used = account.zip(before).map(|(account, before)| account.seconds() - before);
        match measured {
            Ok(Throughput { bits_per_second, .. }) => {
                // The beginning and the end of iperf3 forward nothing, and take no time of the forwarder's.
                let lasted = start.elapsed().as_secs_f64().min(f64::from(self.plan.seconds));
                report.add(work, self.who, bits_per_second / 1e9);
                if let Some(used) = used {
                    report.add(time, self.who, used / (bits_per_second * lasted / 8e9));
                }
            }
            Err(error) => report.skip(&format!("{}: {}", self.who, work.name), &error.to_string()),
        }
    }

    fn loads(&self, report: &mut Report) -> Result<()> {
        let Plan { trial, care, pings, .. } = *self.plan;
        self.bed.prepare_load()?;
        let overload = self.bed.offer(None, trial)?.forwarded();
        report.add(OVERLOAD, self.who, overload / 1e6);
        let mut last = None;
        let found = loss_free(overload, care, |rate| {
            let outcome = self.bed.offer(Some(rate), trial)?;
            last = Some((rate, outcome));
            Ok::<_, RigError>(outcome)
        })?;
        let Some(rate) = found else {
            let what = format!("{}: {}", self.who, LOSS_FREE.name);
            report.skip(&what, &last.map_or(String::new(), |(rate, outcome)| not_carried(rate, &outcome)));
            return Ok(());
        };
        report.add(LOSS_FREE, self.who, rate / 1e6);
        for (row, part) in (1..).zip(LOADS) {
            // A little longer than the pings take, so that all of them meet the load.
            let time = PING_INTERVAL * u32::from(pings) + Duration::from_millis(500);
            let loaded = self.bed.load(Some(part * rate), time, || self.bed.ping(pings, PING_INTERVAL));
            self.add_pings(report, row, loaded.map(|(_, replies)| replies));
        }
        Ok(())
    }

    fn add_pings(&self, report: &mut Report, row: usize, replies: Result<Replies, RigError>) {
        match replies {
            Ok(replies) if replies.p50_ns > 0 => {
                let times = [replies.p50_ns, replies.p99_ns, replies.p999_ns];
                for (work, nanoseconds) in PINGS[row].into_iter().zip(times) {
                    report.add(work, self.who, nanoseconds as f64 / 1e3);
                }
                if replies.lost > 0 {
                    let (lost, all) = (replies.lost, self.plan.pings);
                    report.remark(format!("{}: {}: {lost} of {all} were lost", self.who, PINGS[row][0].name));
                }
            }
            Ok(_) => report.skip(&format!("{}: {}", self.who, PINGS[row][0].name), "no reply came"),
            Err(error) => report.skip(&format!("{}: {}", self.who, PINGS[row][0].name), &error.to_string()),
        }
    }
}

/// Why no rate was found, on a machine that others use: either the frames were lost, or there was no
/// time to send them.
fn not_carried(rate: f64, outcome: &Outcome) -> String {
    let (sent, lost) = (100.0 * outcome.offered() / rate, outcome.loss());
    format!("even of {} frames a second {sent:.1} % were sent and {lost:.2} % of these lost", number(rate))
}
