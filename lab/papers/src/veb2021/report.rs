//! What was measured, beside what was published: a table, charts, and what was claimed.

use super::memory::{IN_MEMORY, Memory, Switch};
use super::plan::Plan;
use super::way::{ALL, LinkSetup};
use artery_bench::results::{Chart, Finding, Findings, Measurement, Summary, Table, Verdict, list, number};
use artery_rig::Throughput;
use artery_rig::machine::Machine;
use std::collections::BTreeMap;
use std::fmt;

/// The unit of frames.
pub(super) const FRAMES: &str = "Mpps of 60-byte frames";
/// A thread that works less than this part of the time, in percent, does not count as one that forwards.
const IDLE: f64 = 5.0;

/// What the hosts' links carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Links {
    Gigabit,
    Unlimited,
    /// Without a limit, and TCP's segments each in a frame of its own, as on any wire in 2021.
    Frames,
}

impl Links {
    pub(super) const ALL: [Links; 3] = [Links::Gigabit, Links::Unlimited, Links::Frames];

    /// As `tc` wants it.
    pub(super) fn rate(self) -> Option<&'static str> {
        (self == Links::Gigabit).then_some("1gbit")
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Links::Gigabit => "links of 1 Gbit/s",
            Links::Unlimited => "links without a limit",
            Links::Frames => "links without a limit, a frame for each segment",
        })
    }
}

/// A run of iperf3.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// Megabits a second that arrived.
    received: f64,
    /// Least and greatest of the seconds but the first, which has TCP's slow start.
    steady: Option<(f64, f64)>,
    /// Per cent of the time that each thread of the switch worked, the busiest first.
    busy: Vec<f64>,
}

impl Figure {
    pub(super) fn new(throughput: &Throughput, busy: Vec<f64>) -> Figure {
        let seconds = throughput.seconds.iter().skip(1).map(|bits| bits / 1e6);
        let steady = seconds.fold(None, |range: Option<(f64, f64)>, second| {
            let (least, greatest) = range.unwrap_or((second, second));
            Some((least.min(second), greatest.max(second)))
        });
        Figure { received: throughput.bits_per_second / 1e6, steady, busy }
    }

    /// Processor use of the threads that forwarded.
    fn busy(&self) -> impl Iterator<Item = f64> {
        self.busy.iter().copied().filter(|part| *part >= IDLE)
    }
}

pub(super) struct Report {
    machine: Machine,
    plan: Plan,
    tcp: BTreeMap<(Links, LinkSetup), Vec<Figure>>,
    frames: BTreeMap<LinkSetup, Vec<f64>>,
    memory: BTreeMap<Memory, Vec<f64>>,
    remarks: Vec<String>,
}

impl Report {
    pub(super) fn new(machine: Machine, plan: Plan) -> Report {
        let (tcp, frames, memory) = Default::default();
        Report { machine, plan, tcp, frames, memory, remarks: Vec::new() }
    }
    pub(super) fn add_memory(&mut self, memory: Memory, mpps: f64) {
        self.memory.entry(memory).or_default().push(mpps);
    }
    pub(super) fn add(&mut self, links: Links, way: LinkSetup, figure: Figure) {
        self.tcp.entry((links, way)).or_default().push(figure);
    }
    pub(super) fn add_frames(&mut self, way: LinkSetup, mpps: f64) {
        self.frames.entry(way).or_default().push(mpps);
    }
    /// Says once why something was not measured.
    pub(super) fn skip(&mut self, what: &str, why: &str) {
        let line = format!("Not measured: {what}: {why}");
        if !self.remarks.contains(&line) {
            self.remarks.push(line);
        }
    }

    /// Megabits a second of all rounds.
    fn received(&self, links: Links, way: LinkSetup) -> Option<Vec<f64>> {
        Some(self.tcp.get(&(links, way))?.iter().map(|figure| figure.received).collect())
    }
    fn median(&self, links: Links, way: LinkSetup) -> Option<f64> {
        Some(Summary::of(&self.received(links, way)?).median)
    }
    /// The run in the middle.
    fn middle(&self, links: Links, way: LinkSetup) -> Option<&Figure> {
        let mut figures: Vec<&Figure> = self.tcp.get(&(links, way))?.iter().collect();
        figures.sort_by(|a, b| a.received.total_cmp(&b.received));
        Some(figures[figures.len() / 2])
    }
    fn frames(&self, way: LinkSetup) -> Option<f64> {
        Some(Summary::of(self.frames.get(&way)?).median)
    }

    fn memory(&self, (switch, workers, hosts): (Switch, u8, u32)) -> Option<(&Memory, &Vec<f64>)> {
        let is_it =
            |memory: &Memory| (memory.switch, memory.workers, memory.hosts) == (switch, workers, hosts);
        self.memory.iter().find(|(memory, _)| is_it(memory))
    }

    fn memory_table(&self) -> Table {
        let mut table = Table::headed("in memory, Mpps of data | median: | least: | greatest:");
        for (memory, runs) in IN_MEMORY.into_iter().filter_map(|row| self.memory(row)) {
            let Summary { median, min, max, .. } = Summary::of(runs);
            table.row([memory.to_string(), number(median), number(min), number(max)]);
        }
        table
    }

    fn table(&self) -> Table {
        let mut table = Table::headed(&format!(
            "way | 2021: Mbit/s: | in a second: | processors | here, 1 Gbit/s: Mbit/s: | in a second: | \
             threads at work | no limit: Mbit/s: | threads at work | frames of 1,514 bytes: Mbit/s: | \
             threads at work | {FRAMES}:"
        ));
        for way in ALL {
            let published = way.published();
            let then = published.map_or("".into(), |row| number(row.receiver));
            let cells = [
                way.name().to_string(),
                then,
                published.map_or("", |row| row.steady).to_string(),
                published.map_or("", |row| row.processors).to_string(),
                self.cell(Links::Gigabit, way),
                self.middle(Links::Gigabit, way).map_or("-".into(), steady),
                self.middle(Links::Gigabit, way).map_or("-".into(), |figure| threads(way, figure)),
                self.cell(Links::Unlimited, way),
                self.middle(Links::Unlimited, way).map_or("-".into(), |figure| threads(way, figure)),
                self.cell(Links::Frames, way),
                self.middle(Links::Frames, way).map_or("-".into(), |figure| threads(way, figure)),
                self.frames(way).map_or("-".into(), number),
            ];
            table.row(cells);
        }
        table
    }

    fn cell(&self, links: Links, way: LinkSetup) -> String {
        self.median(links, way).map_or("-".into(), number)
    }

    /// Judges the median of ratios of turns that followed one another in memory.
    fn times_bridge(&self, claim: &'static str, row: (Switch, u8, u32), least: f64) -> Verdict {
        let runs = |row| self.memory(row).map(|(_, runs)| runs);
        let ratios: Vec<f64> = match (runs(row), runs((Switch::Bridge, 1, row.2))) {
            (Some(ours), Some(theirs)) => {
                ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
            }
            _ => Vec::new(),
        };
        if ratios.is_empty() {
            return Verdict::new(claim, Finding::NotMeasured, "one of both did not run");
        }
        let Summary { median, min, max, .. } = Summary::of(&ratios);
        let why = format!("in memory, {median:.2} times ({min:.2} to {max:.2})");
        Verdict::new(claim, median >= least, why)
    }

    fn threads(&self, claim: &'static str, way: LinkSetup, holds: impl Fn(usize) -> bool) -> Verdict {
        match self.middle(Links::Frames, way) {
            Some(figure) => {
                let why = format!("threads at work: {}", threads(way, figure));
                Verdict::new(claim, holds(figure.busy().count()), why)
            }
            None => Verdict::new(claim, Finding::NotMeasured, "it did not run"),
        }
    }

    fn chart(&self, links: Links) -> String {
        let mut chart = Chart::new(&format!("TCP between two hosts by {links}"), "Mbit/s, more is better");
        for way in ALL {
            if let Some(runs) = self.received(links, way) {
                let Summary { median, min, max, .. } = Summary::of(&runs);
                chart = chart.bar(way.name(), median, Some((min, max)));
            }
            if let Some(published) = way.published().filter(|_| links == Links::Gigabit) {
                chart = chart.reference(&format!("{}, 2021", way.name()), published.receiver);
            }
        }
        chart.svg()
    }
}

impl Findings for Report {
    const NAME: &'static str = "veb2021";

    fn text(&self) -> String {
        let Plan { rounds, seconds, .. } = self.plan;
        let mut text = format!(
            "# veb2021: veb and bridge as in May 2021\n\n{}.\n\
             {}; TCP by iperf3 for {seconds} s, default offloads. *2021* is an EdgeRouter 4 with OpenBSD 6.9 \
             between two hosts by Ethernet of 1 Gbit/s.\n\n",
            self.machine,
            how_often(rounds),
        );
        ALL.iter().for_each(|way| text += &format!("- *{}*: {}\n", way.name(), way.what()));
        text += &format!("\n{}\n{}", self.table(), EXPLAINED);
        text += &format!("\n{}\n{}", self.memory_table(), EXPLAINED_MEMORY);
        text += &list(&self.verdicts());
        self.remarks.iter().for_each(|line| text += &format!("\n{line}\n"));
        text
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let gigabit = |way| self.median(Links::Gigabit, way);
        let (free, framed) =
            (|way| self.median(Links::Unlimited, way), |way| self.median(Links::Frames, way));
        vec![
            ratio(
                "veb forwards as much as a cable does (909 of 919 Mbit/s)",
                gigabit(LinkSetup::Veb),
                gigabit(LinkSetup::Direct),
                "of the direct link",
                |r| r >= 0.95,
            ),
            ratio(
                "bridge forwards less than half of what veb does (417 of 909 Mbit/s)",
                framed(LinkSetup::Bridge),
                framed(LinkSetup::Veb),
                "of veb, in frames of 1,514 bytes",
                |r| r < 0.5,
            ),
            ratio(
                "with pf in its path veb is slower (645 of 909 Mbit/s)",
                framed(LinkSetup::VebWithPf),
                framed(LinkSetup::Veb),
                "of veb, in frames of 1,514 bytes",
                |r| r < 0.95,
            ),
            ratio(
                "with pf in its path veb still forwards more than bridge (645 to 417 Mbit/s)",
                framed(LinkSetup::VebWithPf),
                framed(LinkSetup::Bridge),
                "of bridge, in frames of 1,514 bytes",
                |r| r > 1.1,
            ),
            self.threads(
                "bridge works on one processor however many there are",
                LinkSetup::Bridge,
                |threads| threads == 1,
            ),
            self.threads(
                "veb works on two processors, as data and acknowledgments come by two ports",
                LinkSetup::Veb,
                |threads| threads == 2,
            ),
            ratio(
                "TCP through veb has 0.95 of its rate through our program without a switch",
                free(LinkSetup::Veb),
                free(LinkSetup::Cable),
                "of the cable, by links without a limit",
                |r| r >= 0.95,
            ),
            self.times_bridge(
                "veb on two workers forwards 2.2 times as much as bridge",
                (Switch::Veb, 2, 2),
                2.2,
            ),
            self.times_bridge("the same between a thousand hosts", (Switch::Veb, 2, 1000), 2.2),
        ]
    }

    fn measurements(&self) -> Vec<Measurement> {
        let tcp = self.tcp.iter().map(|((links, way), figures)| {
            let runs: Vec<f64> = figures.iter().map(|figure| figure.received).collect();
            let busy: Vec<String> = figures[0].busy().map(number).collect();
            Measurement::of("veb2021", way.name(), "Mbit/s", &runs)
                .param("links", links)
                .param("threads_percent", busy.join(" "))
                .threads(busy.len().max(1))
        });
        let frames = self.frames.iter().map(|(way, runs)| {
            let one = Measurement::of("veb2021", way.name(), "Mpps", runs);
            one.param("links", Links::Unlimited).param("frame", 60)
        });
        let wire = tcp.chain(frames).map(|one| one.notes("veth pairs in namespaces"));
        let memory = self.memory.iter().map(|(memory, runs)| {
            let one = Measurement::of("veb2021", &memory.to_string(), "Mpps of data", runs);
            one.param("hosts", memory.hosts).threads(memory.workers.into()).notes("in memory")
        });
        wire.chain(memory).map(|one| one.cpu(&self.machine.cpu)).collect()
    }

    fn charts(&self) -> Vec<(String, String)> {
        let names = Links::ALL.into_iter().zip([
            "veb2021-gigabit.svg",
            "veb2021-unlimited.svg",
            "veb2021-frames.svg",
        ]);
        let measured =
            names.into_iter().filter(|(links, _)| ALL.iter().any(|way| self.median(*links, *way).is_some()));
        measured.map(|(links, name)| (name.to_string(), self.chart(links))).collect()
    }
}

const EXPLAINED: &str = "
Hosts, their kernels and the switch share the machine's processors, which in 2021 they did not. Segments of
TCP pass our program whole, up to 64 kB, as they do the kernel's bridge; in 2021 each was a frame of 1,514
bytes, as it is here where the hosts' offloads are off. Threads are those of the switch that worked 5 % of the
time or more, in percent of a processor.
";

const EXPLAINED_MEMORY: &str = "
In memory there is nothing but the switch: data of 1,514 bytes one way, an acknowledgment for every second
frame the other. With two workers each port is served by one of them, and each direction goes as fast as it
can; bridge has one thread for both, and always asks pf.
";

fn how_often(rounds: usize) -> String {
    match rounds {
        1 => "One round, of which a figure may be wrong by a third; without --quick there are more".into(),
        _ => format!("Medians of {rounds} rounds"),
    }
}

/// Judges a ratio of two medians.
fn ratio(
    claim: &'static str,
    figure: Option<f64>,
    of: Option<f64>,
    what: &str,
    holds: impl Fn(f64) -> bool,
) -> Verdict {
    match (figure, of) {
        (Some(figure), Some(of)) if of > 0.0 => {
            let why = format!("{} to {} Mbit/s, {:.2} {what}", number(figure), number(of), figure / of);
            Verdict::new(claim, holds(figure / of), why)
        }
        _ => Verdict::new(claim, Finding::NotMeasured, "one of both did not run"),
    }
}

fn steady(figure: &Figure) -> String {
    let range = |(least, greatest): (f64, f64)| format!("{}–{}", number(least), number(greatest));
    figure.steady.map_or("-".into(), range)
}

fn threads(way: LinkSetup, figure: &Figure) -> String {
    if matches!(way, LinkSetup::Direct | LinkSetup::LinuxBridge) {
        return "those of the hosts".into();
    }
    let parts: Vec<String> = figure.busy().map(|part| format!("{part:.0} %")).collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(received: f64, busy: &[f64]) -> Figure {
        let throughput = Throughput {
            bits_per_second: received * 1e6,
            seconds: [100.0, received, received + 1.0].map(|second| second * 1e6).to_vec(),
            ..Throughput::default()
        };
        Figure::new(&throughput, busy.to_vec())
    }

    fn measured(rows: &[(LinkSetup, f64, &[f64])]) -> Report {
        let mut report = Report::new(Machine::here(), Plan::QUICK);
        for links in Links::ALL {
            rows.iter().for_each(|(way, received, busy)| report.add(links, *way, figure(*received, busy)));
        }
        report
    }

    #[test]
    fn the_figures_of_2021_are_judged_as_its_author_did() {
        let mut report = measured(&[
            (LinkSetup::Direct, 919.0, &[]),
            (LinkSetup::Bridge, 417.0, &[99.0, 1.0]),
            (LinkSetup::Veb, 909.0, &[40.0, 30.0]),
            (LinkSetup::VebWithPf, 645.0, &[50.0]),
            (LinkSetup::Cable, 919.0, &[]),
        ]);
        for (switch, workers, hosts) in IN_MEMORY {
            let rate = if switch == Switch::Bridge { 1.0 } else { 2.5 };
            report.add_memory(Memory { switch, workers, hosts, millis: 1 }, rate);
        }
        for verdict in report.verdicts() {
            assert_eq!(verdict.finding, Finding::Holds, "{verdict:?}");
        }
    }

    #[test]
    fn others_are_judged_otherwise_and_nothing_is_said_of_what_did_not_run() {
        let report = measured(&[(LinkSetup::Bridge, 900.0, &[99.0, 98.0]), (LinkSetup::Veb, 909.0, &[40.0])]);
        let findings: Vec<Finding> = report.verdicts().into_iter().map(|verdict| verdict.finding).collect();
        let (no, unknown) = (Finding::DoesNotHold, Finding::NotMeasured);
        assert_eq!(findings, [unknown, no, unknown, unknown, no, no, unknown, unknown, unknown]);
    }

    #[test]
    fn the_first_second_is_not_steady() {
        assert_eq!(steady(&figure(900.0, &[])), "900–901");
        let text = measured(&[(LinkSetup::Veb, 909.0, &[40.0, 30.0, 2.0])]).text();
        assert!(text.contains("40 %, 30 %") && !text.contains("2 %,"), "{text}");
    }
}
