//! What was measured, and what it says about the promises: tables, JSON lines and charts.

use super::claims::{judge, median};
use super::crossover::Who;
use super::plan::Plan;
use super::routers::Routers;
use super::traffic::Distribution;
use super::{churn, crossover, flood, moved, pauses, sizes};
use crate::results::{Chart, Findings, Measurement, Summary, Table, Verdict, list, number};
use artery_flow::Scope;
use artery_rig::machine::Machine;

#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) crossover: Vec<crossover::Row>,
    pub(super) churn: Vec<churn::Row>,
    pub(super) sizes: Vec<sizes::Row>,
    pub(super) pauses: Vec<pauses::Row>,
    pub(super) floods: Vec<flood::Row>,
    pub(super) moved: Vec<moved::Row>,
    pub(super) routers: Routers,
}

impl Figures {
    /// The FIB alone with the packets of a row.
    pub(super) fn bare(&self, row: &crossover::Row) -> Option<&crossover::Row> {
        self.of(row.flows, row.distribution, Who::Fib)
    }

    fn of(&self, flows: u32, distribution: Distribution, who: Who) -> Option<&crossover::Row> {
        let is_it =
            |row: &&crossover::Row| row.flows == flows && row.distribution == distribution && row.who == who;
        self.crossover.iter().find(is_it)
    }
}

pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    /// Number of prefixes in the feed.
    pub(super) prefixes: usize,
    pub(super) figures: Figures,
}

/// What rates are shares of.
const Y: &str = "y: testpmd macswap on null ports";

impl Findings for Report {
    const NAME: &'static str = "flows";

    fn text(&self) -> String {
        let mut text = format!(
            "# Flows\n\n{}.\nMedians of {} runs, least and greatest in parentheses; the feed has {} \
             prefixes.\n",
            self.machine, self.plan.rounds, self.prefixes
        );
        if self.machine.is_busy() {
            text += "\nThe machine was shared with others: times say little.\n";
        }
        for (heading, table, remark) in self.sections() {
            text += &format!("\n## {heading}\n\n{table}\n{remark}\n");
        }
        text + &list(&self.verdicts())
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.figures)
    }

    fn measurements(&self) -> Vec<Measurement> {
        let mut all = self.lookups();
        all.extend(self.tables());
        all.extend(self.interruptions());
        all.extend(self.balance());
        all.extend(self.routers());
        all
    }

    fn charts(&self) -> Vec<(String, String)> {
        let mut charts: Vec<(String, String)> = Distribution::ALL
            .into_iter()
            .map(|distribution| {
                let name = distribution.name();
                (format!("flows-cache-{}.svg", name.to_lowercase()), self.cache_chart(distribution).svg())
            })
            .collect();
        charts.push(("flows-moved.svg".to_string(), self.moved_chart().svg()));
        charts.push(("flows-routers.svg".to_string(), self.router_chart().svg()));
        charts
    }
}

/// The median, the least and the greatest.
fn spread(runs: &[f64]) -> String {
    if runs.is_empty() {
        return "-".into();
    }
    let Summary { median, min, max, .. } = Summary::of(runs);
    format!("{} ({}–{})", number(median), number(min), number(max))
}

fn count(flows: u32) -> String {
    // Below that figures would be given places behind the point.
    if flows < 100 { flows.to_string() } else { number(f64::from(flows)) }
}

fn percents(figures: Option<[f64; 2]>) -> [String; 2] {
    figures.map_or(["-".into(), "-".into()], |both| both.map(|percent| format!("{percent:.2}")))
}

impl Report {
    /// Headings, tables, and what a reader must know of them.
    fn sections(&self) -> [(&'static str, Table, &'static str); 7] {
        [
            (
                "A cache in front of the FIB: ns a packet, and percent of packets whose flow the table knew",
                self.cache_table(),
                "Packets go to random addresses in random prefixes, by flow, in batches of 64. Keys and \
                 addresses are at hand, so the table is spared the reading of ports; it is on huge pages and \
                 counts no packets. Answers are compared with the FIB's before anything is timed. A table \
                 that is full of flows in use takes no new ones.",
            ),
            (
                "Routes that change: ns a packet, and percent of packets whose flow's answer was asked for \
                 anew",
                self.churn_table(),
                "Changes in a second of the packets' time, each of which raises the generation; what a \
                 change itself takes is left out.",
            ),
            (
                "Tables by size",
                self.size_table(),
                "Flows that come are looked for, added and proven by a second packet, in batches of 64, page \
                 faults among it.",
            ),
            (
                "Pauses while 4 million flows come and are forgotten: the longest three, in us",
                self.pause_table(),
                "A batch is 64 flows that come, looked for, added, and the maintenance behind it. Of each \
                 call the least of several equal runs counts: the machine itself stops any thread now and \
                 then.",
            ),
            (
                "Floods: ns a packet of 100,000 known flows while strangers come, and ns a stranger",
                self.flood_table(),
                "The least of 40 parts. No known flow was displaced, or there would be no figures.",
            ),
            (
                "Members that go and come: percent of the flows of other members that move",
                self.moved_table(),
                "One goes, then another comes, to whom one flow in so many has to move for fair shares. \
                 Where packets are shared out, or counts decide, a method by itself keeps no flow.",
            ),
            (
                "From port to port: a balancer before 16 servers, in Mpps and as part of the bare loop of \
                 the same round",
                self.router_table(),
                "A process for each router, as artery-bench forward has them; in the first round, which does \
                 not count, flows come.",
            ),
        ]
    }

    fn cache_table(&self) -> Table {
        let mut whos: Vec<Who> = Vec::new();
        for row in &self.figures.crossover {
            if !whos.contains(&row.who) {
                whos.push(row.who);
            }
        }
        whos.sort_by_key(|who| matches!(who, Who::Table(Scope::Destination, _)));
        let names: String = whos.iter().map(|who| format!(" | {}:", who.name())).collect();
        let mut table = Table::headed(&format!("flows: | packets{names}"));
        for flows in self.plan.sizes {
            for distribution in Distribution::ALL {
                let cell = |who: &Who| {
                    let row = self.figures.of(*flows, distribution, *who)?;
                    let hits = row.hits.map_or(String::new(), |hits| format!("; {hits:.0} %"));
                    Some(number(median(&row.nanos)) + &hits)
                };
                let cells = whos.iter().map(|who| cell(who).unwrap_or_default());
                table.row([count(*flows), distribution.name().into()].into_iter().chain(cells));
            }
        }
        table
    }

    fn churn_table(&self) -> Table {
        let mut table = Table::headed("flows: | changes/s: | who | ns: | renewed:");
        for row in &self.figures.churn {
            let renewed = row.renewed.map_or(String::new(), |percent| format!("{percent:.1} %"));
            table.row([count(row.flows), count(row.rate), row.who.name(), spread(&row.nanos), renewed]);
        }
        table
    }

    fn size_table(&self) -> Table {
        let mut table = Table::headed(
            "flows: | table | M flows/s that come: | MB: | ns to find: | and touch: | and touch, uncounted:",
        );
        for row in &self.figures.sizes {
            let megabytes = number(median(&row.bytes) / 1e6);
            let times = [&row.find, &row.touch, &row.uncounted].map(|nanos| spread(nanos));
            let cells = [count(row.flows), row.name(), spread(&row.installs), megabytes];
            table.row(cells.into_iter().chain(times));
        }
        table
    }

    fn pause_table(&self) -> Table {
        let mut table = Table::headed("memory | call | longest: | second: | third: | calls:");
        for row in &self.figures.pauses {
            for (name, pauses) in row.calls() {
                let longest = pauses.longest().map(|us| format!("{us:.1}"));
                let name = [row.storage.to_string(), name.to_string()];
                let calls = number(pauses.calls() as f64);
                table.row(name.into_iter().chain(longest).chain([calls]));
            }
        }
        table
    }

    fn flood_table(&self) -> Table {
        let mut table =
            Table::headed("may be young: | strangers a packet: | known: | stranger: | strangers so far:");
        for row in &self.figures.floods {
            let stranger = row.stranger.map_or(String::new(), number);
            table.row([
                count(row.young),
                row.strangers.to_string(),
                number(row.known),
                stranger,
                count(row.so_far),
            ]);
        }
        table
    }

    fn moved_table(&self) -> Table {
        let mut table = Table::headed(
            "members: | method | one goes: | one comes: | goes, with state: | comes, with state: \
             | ns to pick: | ns, known: | us a change:",
        );
        for row in &self.figures.moved {
            let cells = [count(row.members), row.method.name().into()].into_iter();
            let cells = cells.chain(percents(row.alone)).chain(percents(row.remembered));
            table.row(cells.chain([row.pick, row.known, row.change].map(number)));
        }
        table
    }

    fn router_table(&self) -> Table {
        let routers = &self.figures.routers;
        let mut table = Table::headed("flows: | remembered | Mpps: | part of y:");
        for row in &routers.rows {
            let remembered = if row.remembers { "yes" } else { "no" };
            let shares = spread(&routers.shares(row));
            table.row([count(row.flows), remembered.into(), spread(&row.rates), shares]);
        }
        table.row([String::new(), "y".into(), spread(&routers.yardstick)]);
        table
    }

    fn of(&self, engine: &str, unit: &str, runs: &[f64]) -> Measurement {
        Measurement::of("flows", engine, unit, runs).cpu(&self.machine.cpu)
    }

    fn lookups(&self) -> Vec<Measurement> {
        let cached = self.figures.crossover.iter().map(|row| {
            let all = self.of(&row.who.name(), "ns/packet", &row.nanos).param("flows", row.flows);
            let all = all.param("distribution", row.distribution.name()).param("prefixes", self.prefixes);
            with(all, "hits_percent", row.hits)
        });
        let changing = self.figures.churn.iter().map(|row| {
            let all = self.of(&row.who.name(), "ns/packet", &row.nanos).param("flows", row.flows);
            with(all.param("changes_per_s", row.rate), "renewed_percent", row.renewed)
        });
        cached.chain(changing).collect()
    }

    fn tables(&self) -> Vec<Measurement> {
        let rows = self.figures.sizes.iter().flat_map(|row| {
            [
                ("million flows/s that come", &row.installs),
                ("bytes", &row.bytes),
                ("ns to find", &row.find),
                ("ns to find and touch", &row.touch),
                ("ns to find and touch, uncounted", &row.uncounted),
            ]
            .map(|(unit, runs)| self.of(&row.name(), unit, runs).param("flows", row.flows))
        });
        rows.collect()
    }

    fn interruptions(&self) -> Vec<Measurement> {
        let pauses = self.figures.pauses.iter().flat_map(|row| {
            row.calls().map(|(name, pauses)| {
                self.of(name, "us, longest", &pauses.longest()[..1])
                    .param("memory", row.storage)
                    .param("calls", pauses.calls())
                    .param("bytes_given_back", row.given_back)
            })
        });
        let floods = self.figures.floods.iter().flat_map(|row| {
            let stranger = row.stranger.map(|nanos| ("stranger", nanos));
            let figures = [("known flow in a flood", row.known)].into_iter().chain(stranger);
            figures.map(move |(name, nanos)| {
                let all = self.of(name, "ns/packet", &[nanos]).param("young", row.young);
                all.param("strangers", row.strangers).param("strangers_so_far", row.so_far)
            })
        });
        pauses.chain(floods).collect()
    }

    fn balance(&self) -> Vec<Measurement> {
        let rows = self.figures.moved.iter().flat_map(|row| {
            let moved =
                [("", row.alone), (" with state", row.remembered)].into_iter().flat_map(|(how, both)| {
                    let both = both.into_iter().flat_map(|both| ["goes", "comes"].into_iter().zip(both));
                    both.map(move |(what, percent)| (format!("% moved when one {what}{how}"), percent))
                });
            let times = [
                ("ns to pick", row.pick),
                ("ns to see that a member lives", row.known),
                ("us a change", row.change),
            ];
            let times = times.into_iter().map(|(unit, time)| (unit.to_string(), time));
            let all: Vec<(String, f64)> = moved.chain(times).collect();
            all.into_iter().map(move |(unit, figure)| {
                self.of(row.method.name(), &unit, &[figure]).param("members", row.members)
            })
        });
        rows.collect()
    }

    fn routers(&self) -> Vec<Measurement> {
        let routers = &self.figures.routers;
        let rows = routers.rows.iter().flat_map(|row| {
            [("Mpps", row.rates.clone()), ("y", routers.shares(row))].into_iter().filter_map(
                move |(unit, runs)| {
                    let all = (!runs.is_empty()).then(|| self.of("balancer", unit, &runs))?;
                    Some(all.param("flows", row.flows).param("remembered", row.remembers))
                },
            )
        });
        let yardstick = (!routers.yardstick.is_empty()).then(|| self.of(Y, "Mpps", &routers.yardstick));
        rows.chain(yardstick).collect()
    }

    fn cache_chart(&self, distribution: Distribution) -> Chart {
        let title = format!("A table of flows in front of the FIB, {} packets", distribution.name());
        let mut chart = Chart::new(&title, "nanoseconds a packet; less is better");
        for row in self.figures.crossover.iter().filter(|row| row.distribution == distribution) {
            let label = format!("{} flows: {}", count(row.flows), row.who.name());
            let Summary { median, min, max, .. } = Summary::of(&row.nanos);
            chart = match row.who {
                Who::Fib => chart.reference(&label, median),
                Who::Table(..) => chart.bar(&label, median, Some((min, max))),
            };
        }
        chart
    }

    fn moved_chart(&self) -> Chart {
        let title = "Flows of other members that move when one goes";
        let mut chart = Chart::new(title, "percent; less is better");
        for row in &self.figures.moved {
            if let Some([gone, _]) = row.alone {
                let label = format!("{} of {}", row.method.name(), row.members);
                chart = chart.bar(&label, gone, None);
            }
        }
        chart.bar("any, with the flow table", self.moved_with_state(), None)
    }

    /// The most that any method moves.
    fn moved_with_state(&self) -> f64 {
        self.figures.moved.iter().filter_map(|row| row.remembered).flatten().fold(0.0, f64::max)
    }

    fn router_chart(&self) -> Chart {
        let routers = &self.figures.routers;
        let mut chart =
            Chart::new("A balancer from port to port", "million packets a second; more is better");
        if !routers.yardstick.is_empty() {
            chart = chart.reference(Y, median(&routers.yardstick));
        }
        for row in &routers.rows {
            let kind = if row.remembers { "" } else { ", none remembered" };
            let Summary { median, min, max, .. } = Summary::of(&row.rates);
            chart = chart.bar(&format!("{} flows{kind}", count(row.flows)), median, Some((min, max)));
        }
        chart
    }
}

fn with(measurement: Measurement, name: &str, figure: Option<f64>) -> Measurement {
    match figure {
        Some(figure) => measurement.param(name, format!("{figure:.2}")),
        None => measurement,
    }
}
