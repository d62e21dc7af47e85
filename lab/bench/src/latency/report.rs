//! What was measured, and which promises hold.

use super::{BEFORE, FORWARDERS, LOADS, quantiles};
use crate::results::{Findings, Goal, Measurement, Rounds, Summary, Table, number};
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use hdrhistogram::Histogram;

/// A turn with more steal than this is dropped, in percent.
const MOST_STEAL: f64 = 5.0;

/// What one forwarder did in one round.
pub(super) struct Turn {
    /// The median of pings without load.
    pub(super) idle_ping_ns: u64,
    /// Percent of a processor that it took without load; none for the kernel.
    pub(super) idle_processor: Option<f64>,
    /// Frames per second that arrived under overload.
    pub(super) overload: f64,
    pub(super) loss_free: f64,
    /// Percent lost, and the times of those that arrived, for each of [`LOADS`] and then each rate asked for.
    pub(super) streams: Vec<(f64, Histogram<u64>)>,
}

/// A figure that a turn has one of, and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    IdlePing,
    IdleProcessor,
    Overload,
    LossFree,
    /// A quantile of a load's times, both by number.
    Time {
        load: usize,
        quantile: usize,
    },
    /// Percent lost at a load.
    Lost {
        load: usize,
    },
}

use Work::*;

const P50: usize = 0;
const P99: usize = 1;
const QUANTILES: [&str; 3] = ["p50", "p99", "p99.9"];

impl Work {
    fn unit(self) -> &'static str {
        match self {
            IdlePing | Time { .. } => "µs",
            IdleProcessor | Lost { .. } => "%",
            Overload | LossFree => "Mpps",
        }
    }
}

pub(super) struct Report {
    rounds: Rounds,
    /// What the loads are called: parts of each one's loss-free rate, and rates that are the same for all.
    loads: Vec<String>,
    /// Turns that were measured, and those of them that were dropped for steal.
    turns: usize,
    dropped: usize,
}

impl Report {
    /// `at` are rates in Mpps at which all forwarders were tried, too.
    pub(super) fn new(machine: Machine, at: &[f64]) -> Report {
        let parts = LOADS.iter().map(|part| format!("{:.0} %", 100.0 * part));
        let loads = parts.chain(at.iter().map(|mpps| format!("{mpps} Mpps"))).collect();
        Report { rounds: Rounds::new(machine), loads, turns: 0, dropped: 0 }
    }

    /// Adds a turn, unless others had too much of the machine in it.
    pub(super) fn add(&mut self, who: &'static str, steal: f64, turn: Turn) {
        self.turns += 1;
        if steal > MOST_STEAL {
            self.dropped += 1;
            progress(&format!("{who}: dropped, steal {steal:.1} %"));
            return;
        }
        self.figure(IdlePing, who, turn.idle_ping_ns as f64 / 1e3);
        turn.idle_processor.into_iter().for_each(|percent| self.figure(IdleProcessor, who, percent));
        self.figure(Overload, who, turn.overload / 1e6);
        self.figure(LossFree, who, turn.loss_free / 1e6);
        for (load, (lost, times)) in turn.streams.iter().enumerate() {
            self.figure(Lost { load }, who, *lost);
            for (quantile, time) in quantiles(times).into_iter().flatten().enumerate() {
                self.figure(Time { load, quantile }, who, time as f64 / 1e3);
            }
        }
    }

    fn name(&self, work: Work) -> String {
        match work {
            IdlePing => "idle ping p50".into(),
            IdleProcessor => "idle processor time".into(),
            Overload => "forwarded at overload".into(),
            LossFree => "loss-free rate".into(),
            Time { load, quantile } => format!("{} {}", self.loads[load], QUANTILES[quantile]),
            Lost { load } => format!("{} lost", self.loads[load]),
        }
    }

    fn figure(&mut self, work: Work, who: &'static str, value: f64) {
        self.rounds.add(&self.name(work), who, work.unit(), value);
    }

    /// Says once why something was not measured.
    pub(super) fn skip(&mut self, who: &str, reason: &str) {
        self.rounds.skip(who, reason);
    }

    fn runs(&self, work: Work, who: &str) -> Option<&[f64]> {
        self.rounds.row(&self.name(work), who, work.unit()).map(|row| row.runs.as_slice())
    }
    fn summary(&self, work: Work, who: &str) -> Option<Summary> {
        self.runs(work, who).map(Summary::of)
    }
    fn median(&self, work: Work, who: &str) -> Option<f64> {
        self.summary(work, who).map(|summary| summary.median)
    }
    fn whos(&self) -> Vec<&str> {
        let mut all = Vec::new();
        for row in self.rounds.rows() {
            if !all.contains(&row.who.as_str()) {
                all.push(row.who.as_str());
            }
        }
        all
    }

    fn forwarders(&self) -> Table {
        let mut table = Table::headed(
            "forwarder | ping p50, µs: | least: | greatest: | idle, % of a processor: | loss-free, Mpps: \
             | overload, Mpps: | rounds:",
        );
        for who in self.whos() {
            let cell = |work| self.median(work, who).map_or("-".into(), number);
            let ping = self.summary(IdlePing, who);
            let [least, greatest] = ping.as_ref().map_or([0.0; 2], |ping| [ping.min, ping.max]).map(number);
            let processor = self.median(IdleProcessor, who).map_or("-".into(), |it| format!("{it:.1}"));
            let rounds = self.runs(IdlePing, who).map_or(0, <[f64]>::len).to_string();
            let (loss_free, overload) = (cell(LossFree), cell(Overload));
            table.row([who, &cell(IdlePing), &least, &greatest, &processor, &loss_free, &overload, &rounds]);
        }
        table
    }

    fn times(&self) -> Table {
        let mut table =
            Table::headed("load | forwarder | p50: | p99: | least: | greatest: | p99.9: | lost, %:");
        for (load, name) in self.loads.iter().enumerate() {
            for who in self.whos() {
                let Some(p99) = self.summary(Time { load, quantile: P99 }, who) else { continue };
                let time = |quantile| self.median(Time { load, quantile }, who).map_or("-".into(), number);
                let lost = self.median(Lost { load }, who).map_or("-".into(), |lost| format!("{lost:.2}"));
                table.row([
                    name.clone(),
                    who.to_string(),
                    time(P50),
                    number(p99.median),
                    number(p99.min),
                    number(p99.max),
                    time(2),
                    lost,
                ]);
            }
        }
        table
    }

    /// What is promised: the claim, the figure, and the bound.
    fn goals(&self) -> Vec<Goal> {
        let goal = |claim: &str, unit, figure, bound, is_least| Goal {
            claim: claim.into(),
            figure,
            bound,
            is_least,
            unit,
        };
        let at_most = |claim, unit, figure, bound| goal(claim, unit, figure, bound, false);
        let [router, awake, _, bare, _, testpmd] = FORWARDERS.map(|forwarder| forwarder.name());
        let p99 = |load, who| self.median(Time { load, quantile: P99 }, who);
        let twice = |load| p99(load, testpmd).map(|it| 2.0 * it);
        let ping = |who| self.median(IdlePing, who);
        let rate = |who| self.median(LossFree, who);
        vec![
            at_most("p99 at 50 %: twice testpmd's on the same sockets", "µs", p99(1, router), twice(1)),
            at_most("p99 at 90 %: twice testpmd's on the same sockets", "µs", p99(2, router), twice(2)),
            goal(
                "loss-free rate: 0.95 of the one before",
                "Mpps",
                rate(router),
                rate(BEFORE).map(|it| 0.95 * it),
                true,
            ),
            at_most(
                "idle ping p50: 0.7 of the one before",
                "µs",
                ping(router),
                ping(BEFORE).map(|it| 0.7 * it),
            ),
            at_most(
                "idle ping p50 with --awake: the bare loop's and 10",
                "µs",
                ping(awake),
                ping(bare).map(|it| it + 10.0),
            ),
            at_most(
                "processor time of an idle router: 0.0",
                "%",
                self.median(IdleProcessor, router),
                Some(0.05),
            ),
        ]
    }
}

impl Findings for Report {
    const NAME: &'static str = "latency";

    fn text(&self) -> String {
        let mut text = format!("# Latency\n\n{}.\n\n{EXPLAINED}\n\nForwarders:\n\n", self.rounds.machine);
        for forwarder in FORWARDERS {
            text += &format!("- *{}*: {}\n", forwarder.name(), forwarder.what());
        }
        text += &format!("- *{BEFORE}*: conf/router.click, AF_PACKET, by the program of --before\n");
        text += &format!("\n{}\nTimes of frames, in µs:\n\n{}", self.forwarders(), self.times());
        text += &format!("\n{}\n", Goal::table(&self.goals()));
        text += &format!(
            "{} of {} turns were dropped for more than {MOST_STEAL} % steal.\n",
            self.dropped, self.turns
        );
        self.rounds.remarks().iter().for_each(|line| text += &format!("{line}\n"));
        text
    }

    fn measurements(&self) -> Vec<Measurement> {
        let all = self.rounds.measurements(Self::NAME, "work").into_iter();
        let placed = all.map(|one| {
            one.param("load", &self.rounds.machine.load)
                .param("turns dropped for steal", self.dropped)
                .notes("veth pairs in namespaces")
        });
        placed.collect()
    }
}

const EXPLAINED: &str = "\
Medians of rounds in which the forwarders took turns, each in fresh namespaces joined by veth pairs, placed as
by `artery-bench wire`: the generator on processor 0, the forwarder on processor 1.

- *Stream*: frames of 60 bytes of one flow at an even pace. Each says when the kernel sent it; a BPF program
  at the receiver's interface counts its time, one way, in steps of 1 µs. No program has to be woken for that.
- *Load* is a part of the forwarder's own loss-free rate, found by halving in the same turn: at most 0.1 %
  lost. Rates given by --at are the same for all.
- *Ping*: median of round trips through the idle forwarder, one each millisecond, with the prober's own sleep.
- *Idle*: processor time of the forwarder's process in a second without packets.";

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(ping: u64, p99: u64) -> Turn {
        let stream = || {
            let mut times = Histogram::new(3).unwrap();
            times.record_n(1_000, 900).unwrap();
            times.record_n(p99, 100).unwrap();
            (0.5, times)
        };
        Turn {
            idle_ping_ns: ping,
            idle_processor: Some(0.0),
            overload: 2e6,
            loss_free: 1e6,
            streams: LOADS.iter().map(|_| stream()).collect(),
        }
    }

    fn verdicts(report: &Report) -> Vec<&'static str> {
        report.goals().iter().map(Goal::verdict).collect()
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let mut report = Report::new(Machine::here(), &[]);
        assert_eq!(verdicts(&report), ["not measured"; 6]);
        report.add("router", 0.0, turn(70_000, 100_000));
        report.add("testpmd", 0.0, turn(30_000, 60_000));
        report.add("before", 0.0, turn(90_000, 900_000));
        report.add("router-awake", 0.0, turn(35_000, 100_000));
        report.add("bare", 0.0, turn(30_000, 50_000));
        assert_eq!(verdicts(&report), ["met", "met", "met", "missed", "met", "met"]);
    }

    #[test]
    fn turns_with_steal_are_dropped_and_counted() {
        let mut report = Report::new(Machine::here(), &[]);
        report.add("router", MOST_STEAL + 0.1, turn(1, 1));
        report.add("router", MOST_STEAL, turn(70_000, 100_000));
        assert!(report.text().contains("1 of 2 turns were dropped for more than 5 % steal."));
        assert_eq!(report.median(IdlePing, "router"), Some(70.0));
    }

    #[test]
    fn quantiles_have_a_row_for_each_load_and_forwarder() {
        let mut report = Report::new(Machine::here(), &[0.1]);
        let mut turn = turn(18_000, 25_000);
        turn.streams.push((0.0, turn.streams[0].1.clone()));
        report.add("kernel", 0.0, turn);
        let text = report.text();
        assert!(text.lines().any(|line| line.starts_with("| 0.1 Mpps | kernel ")));
        let row = text.lines().find(|line| line.starts_with("| 90 %")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1..9], ["90 %", "kernel", "1.00", "25.0", "25.0", "25.0", "25.0", "0.50"]);
        assert_eq!(report.measurements().len(), 4 + 4 * 4);
    }
}
