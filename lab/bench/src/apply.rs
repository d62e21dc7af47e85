//! `artery-bench apply`: what becomes of a stream of 100,000 packets a second through `artery router FILE`
//! while `artery apply` changes a route, a rule, a member of a service, or a port, and while nothing changes.

use crate::latency::sink::StampSink;
use crate::latency::sink_of;
use crate::latency::steal::Steal;
use crate::results::{Delivery, Findings, Measurement, Summary, Table, Verdict, list, number};
use crate::wire::bed::{Bed, PATIENCE, Shape};
use anyhow::bail;
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use artery_rig::program::artery;
use artery_rig::{Process, Result, Rig, RigError};
use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often each change is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    #[command(flatten)]
    delivery: Delivery,
    /// How many rounds; 15 if not given, with --quick 3
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
}

/// Packets a second of the stream.
const RATE: f64 = 100_000.0;
/// How long a stretch is, and when in it `apply` is called. The generator never sleeps, and the kernel stops
/// such real-time tasks for the twentieth part of each second (sched_rt_runtime_us), so they are shorter,
/// with rests.
const STRETCH: Duration = Duration::from_millis(900);
const LEAD: Duration = Duration::from_millis(200);
const REST: Duration = Duration::from_millis(300);
/// A pair of stretches with more steal than this is dropped, in percent.
const MOST_STEAL: f64 = 5.0;
/// How much longer the longest gap may be, in milliseconds.
const GOAL: f64 = 1.0;

/// What all files of a router have, and what each change adds: its name, the lines before, and those after.
const COMMON: &str = r#"port = ["eth0=10.0.1.1/24", "eth1=10.0.2.1/24"PORTS]
no-host = true
"#;
const SERVICE: &str = r#"service = ["10.0.9.80:80/tcp=web1=10.0.2.2"#;
const CHANGES: [(&str, &str, &str); 4] = [
    ("a route", "route = [\"198.51.100.0/24=10.0.2.2\"]\n", "route = [\"203.0.113.0/24=10.0.2.2\"]\n"),
    ("a rule", "pf = \"FOLDER/before.conf\"\n", "pf = \"FOLDER/after.conf\"\n"),
    ("a member", "SERVICE\"]\n", "SERVICE,web2=10.0.2.3\"]\n"),
    ("a port", "", "PORT"),
];

/// A stretch of the stream.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    sent: u64,
    lost: u64,
    /// Milliseconds without a frame, at most.
    gap: f64,
}

/// One change in one round.
struct Pair {
    change: &'static str,
    without: Stretch,
    with: Stretch,
    /// How long `artery apply` took, in milliseconds.
    took: f64,
}

/// Measures, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let rounds = options.rounds.unwrap_or(options.delivery.manner.plan(15, 3));
    if let Err(error) = Rig::new("apply") {
        bail!("apply is measured between namespaces: {error}");
    }
    let mut report = Report { machine: Machine::here(), pairs: Vec::new(), dropped: 0 };
    options.delivery.begin(&report.machine)?;
    for round in 1..=rounds {
        progress(&format!("round {round} of {rounds}"));
        for change in CHANGES {
            let steal = Steal::begin();
            let pair = measure(change, round % 2 == 0)?;
            match steal.percent() {
                percent if percent > MOST_STEAL => report.dropped += 1,
                _ => report.pairs.push(pair),
            }
        }
    }
    options.delivery.deliver(&report)
}

/// A router from a file between the hosts of a bed.
struct Applied {
    bed: Bed,
    sink: StampSink,
    router: Process,
    folder: TempDir,
}

impl Applied {
    fn start(before: &str) -> Result<Applied> {
        let mut bed = Bed::new(Shape::Routed)?;
        bed.r.run(["ip", "link", "add", "eth2", "type", "veth", "peer", "name", "far2"])?;
        bed.r.run(["ip", "link", "set", "far2", "up"])?;
        bed.r.run(["ip", "link", "set", "eth2", "up"])?;
        let folder = tempfile::tempdir().map_err(|error| RigError::System("no folder".into(), error))?;
        for (name, rules) in
            [("before.conf", "pass\n"), ("after.conf", "block in proto tcp to port 23\npass\n")]
        {
            write(folder.path().join(name), rules)?;
        }
        let file = folder.path().join("r.toml");
        write(file.clone(), &text(&folder, before))?;
        let command = bed.r.command([artery_program()?]).arg("router").arg(&file);
        let command = command.arg("--allow-path").arg(folder.path());
        let router = command.arg("-u").arg(folder.path().join("control")).spawn()?;
        if !bed.forwards_within(PATIENCE)? {
            return Err(RigError::NotSeen(router.failure(), "that it forwards".into()));
        }
        bed.is_stamped = true;
        bed.r.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        let sink = sink_of(&bed)?;
        Ok(Applied { bed, sink, router, folder })
    }

    /// The stream for a while, and something else in the middle of it.
    fn stretch<T>(&self, meanwhile: impl FnOnce() -> Result<T>) -> Result<(Stretch, T)> {
        thread::sleep(REST);
        self.sink.drain_longest_gap();
        let (outcome, result) = self.bed.load(Some(RATE), STRETCH, || {
            thread::sleep(LEAD);
            meanwhile()
        })?;
        let gap = self.sink.drain_longest_gap() as f64 / 1e6;
        Ok((Stretch { sent: outcome.sent, lost: outcome.sent - outcome.arrived, gap }, result))
    }

    fn apply(&self, lines: &str) -> Result<f64> {
        let file = self.folder.path().join("r.toml");
        write(file.clone(), &text(&self.folder, lines))?;
        let began = Instant::now();
        let command = self.bed.r.command([artery_program()?]).arg("apply").arg(file);
        command.arg("-u").arg(self.folder.path().join("control")).run()?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }
}

fn measure((change, before, after): (&'static str, &str, &str), is_first: bool) -> Result<Pair> {
    let mut it = Applied::start(before)?;
    let plain = || it.stretch(|| Ok(())).map(|(stretch, ())| stretch);
    let early = is_first.then(plain).transpose()?;
    let (with, took) = it.stretch(|| it.apply(after))?;
    let without = early.map_or_else(plain, Ok)?;
    it.router.stop(PATIENCE)?;
    let show = |it: Stretch| format!("{} of {} lost, longest gap {} ms", it.lost, it.sent, number(it.gap));
    progress(&format!("{change}: {}; without {}", show(with), show(without)));
    Ok(Pair { change, without, with, took })
}

/// The file of a router, with the lines of a change.
fn text(folder: &TempDir, lines: &str) -> String {
    let third = if lines == "PORT" { ", \"eth2=10.0.3.1/24\"" } else { "" };
    let lines = lines.replace("PORT", "").replace("SERVICE", SERVICE);
    COMMON.replace("PORTS", third) + &lines.replace("FOLDER", &folder.path().display().to_string())
}

fn write(path: PathBuf, text: &str) -> Result<()> {
    fs::write(&path, text).map_err(|error| RigError::System(path.display().to_string(), error))
}

fn artery_program() -> Result<PathBuf> {
    artery().map_err(|error| RigError::System(error.to_string(), std::io::ErrorKind::NotFound.into()))
}

/// The figures of a change by name, one for each pair that counts.
type Figures = BTreeMap<&'static str, Vec<f64>>;
type FigureOf = fn(&Pair) -> f64;

struct Report {
    machine: Machine,
    pairs: Vec<Pair>,
    dropped: usize,
}

impl Report {
    /// The figures of a change, one for each pair that counts.
    fn figures(&self, change: &str, figure: impl Fn(&Pair) -> f64) -> Vec<f64> {
        self.pairs.iter().filter(|pair| pair.change == change).map(figure).collect()
    }

    /// Changes that were measured, each with its figures by name.
    fn rows(&self) -> Vec<(&'static str, Figures)> {
        let figures: [(&str, FigureOf); 5] = [
            ("lost", |pair| pair.with.lost as f64),
            ("lost without", |pair| pair.without.lost as f64),
            ("longest gap", |pair| pair.with.gap),
            ("longest gap without", |pair| pair.without.gap),
            ("apply", |pair| pair.took),
        ];
        let row = |change| (change, figures.map(|(name, of)| (name, self.figures(change, of))).into());
        let changes = CHANGES.map(|(change, ..)| change).into_iter();
        changes.filter(|change| self.pairs.iter().any(|pair| pair.change == *change)).map(row).collect()
    }
}

/// What a change's figures say of the goals.
fn verdicts_of(change: &str, of: &Figures) -> [Verdict; 2] {
    let [lost, without]: [f64; 2] = ["lost", "lost without"].map(|name| of[name].iter().sum());
    let pairs = of["longest gap"].iter().zip(&of["longest gap without"]);
    let longer = Summary::of(&pairs.map(|(with, without)| with - without).collect::<Vec<_>>()).median;
    [
        Verdict::new(
            &format!("{change}: no packet is lost by apply"),
            lost <= without,
            format!("{lost} lost in all stretches with it, {without} in those without"),
        ),
        Verdict::new(
            &format!("{change}: the longest gap is at most {GOAL} ms longer than without apply"),
            longer <= GOAL,
            format!("{} ms, median of the pairs", number(longer)),
        ),
    ]
}

impl Findings for Report {
    const NAME: &'static str = "apply";

    fn text(&self) -> String {
        let mut table = Table::headed(
            "change | pairs: | lost, all: | without: | longest gap, ms: | without: | greatest: | apply, ms:",
        );
        for (change, of) in self.rows() {
            let median = |name: &str| number(Summary::of(&of[name]).median);
            let sum = |name: &str| of[name].iter().sum::<f64>().to_string();
            table.row([
                change.to_string(),
                of["lost"].len().to_string(),
                sum("lost"),
                sum("lost without"),
                median("longest gap"),
                median("longest gap without"),
                number(Summary::of(&of["longest gap"]).max),
                median("apply"),
            ]);
        }
        let dropped = format!("\n{} pairs were dropped for more than {MOST_STEAL} % steal.\n", self.dropped);
        format!("{table}{dropped}{}", list(&self.verdicts()))
    }

    fn measurements(&self) -> Vec<Measurement> {
        let rows = self.rows().into_iter();
        let of_row = |(change, of): (&'static str, Figures)| {
            let each = move |(name, runs): (&str, Vec<f64>)| {
                let unit = if name.starts_with("lost") { "packets" } else { "ms" };
                Measurement::of(Self::NAME, name, unit, &runs).param("change", change)
            };
            of.into_iter().map(each).collect::<Vec<_>>()
        };
        rows.flat_map(of_row).map(|it| it.cpu(&self.machine.cpu)).collect()
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.rows().iter().flat_map(|(change, of)| verdicts_of(change, of)).collect()
    }
}
