//! What was measured, and what it says about the claims: tables, JSON lines and charts.

use super::case::Run;
use super::claims::judge;
use super::curves::{At, Curves};
use super::deletion::{ENGINES, POPULATIONS};
use super::engine::EngineName;
use super::figures::{Figures, Point, mean};
use super::plan::{DRIVERS, NEIGHBORS, Plan};
use super::workload::Workload;
use artery_bench::results::{Findings, Measurement, Summary, Table, Verdict, list, number};
use artery_rig::machine::Machine;

pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) figures: Figures,
    pub(super) remarks: Vec<String>,
}

impl Findings for Report {
    const NAME: &'static str = "freebsd2009";

    fn text(&self) -> String {
        let mut text = format!(
            "# freebsd2009: routes and neighbors in one table or two\n\n{}.\n\
             Means of {} samples of {} ms. Before it is measured, every engine has to find the right link \
             address for every packet.\n",
            self.machine, self.plan.samples, self.plan.millis
        );
        text += &self.legend();
        for remark in &self.remarks {
            text += &format!("\n{remark}\n");
        }
        for driver in DRIVERS {
            text += &format!(
                "\n## Figures 7 and 9: million packets a second, a driver of {driver} ns\n\n{}",
                self.rate_table(driver)
            );
        }
        text += &format!("\n## Figure 10: percent of the threads' time in locks\n\n{}", self.locked_table());
        text += "\nLock functions are timed by the clock: all waiting, and of the rest every 61st call; what \
            the clock takes is taken off. Time asleep in a lock counts as time in locks. With no thread \
            it is 0: nothing but packets takes these locks. C, E and G have none; what they write \
            tells.\n";
        text += &format!("\n## Other workloads, without a driver\n\n{}", self.workload_table());
        text += "\nW2: a thousand neighbors. W3: a million destinations by 1,424 routes and four routers, \
            shared out among the threads. W4: a thousand routes a second and a router's link address \
            change, and the verifier looks at every packet; stale are those that took a route which was \
            not the best any more when they were looked up.\n";
        text += &format!("\n## What a packet costs\n\n{}", self.cost_table());
        text += "\nWhat is written is seen in a trace of all loads and stores, not counted where it is \
            written: an atomic read-modify-write is a store by an instruction that also loads.\n";
        text += &format!("\n## Trees with neighbors\n\n{}", self.tree_table());
        text += &format!("\n## Deleting a network: milliseconds, the least\n\n{}", self.deletion_table());
        text += &format!("\n## One processor, with locks and without\n\n{}", self.alone_table());
        text + &list(&self.verdicts())
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.figures, self.machine.cores)
    }

    fn measurements(&self) -> Vec<Measurement> {
        let mut all = self.rates();
        all.extend(self.watched());
        all.extend(self.verified());
        all.extend(self.counted());
        all.extend(self.others());
        all
    }

    fn charts(&self) -> Vec<(String, String)> {
        use EngineName::*;
        let figures = [
            ("7", self.rate_curves(&[L, S], DRIVERS[1])),
            ("9", self.rate_curves(&EngineName::ALL, DRIVERS[1])),
            ("9-bare", self.rate_curves(&EngineName::ALL, DRIVERS[0])),
            ("10", self.locked_curves(&[L, S, F, G])),
        ];
        figures.map(|(number, svg)| (format!("freebsd2009-figure{number}.svg"), svg)).into()
    }
}

impl Report {
    fn legend(&self) -> String {
        let engines = EngineName::ALL.map(|engine| format!("{}: {}", engine.letter(), engine.title()));
        let mut text = format!("\n{}.\n", engines.join("; "));
        let is_crowded = |threads: &usize| EngineName::D.is_crowded(*threads, self.machine.cores);
        if self.figures.threads().iter().any(is_crowded) {
            text += &format!(
                "\nFigures marked * are of more threads than the {} processors; D takes two threads for one \
                 that sends.\n",
                self.machine.cores
            );
        }
        text
    }

    /// The mark after a figure of more threads than processors.
    fn mark(&self, engine: EngineName, threads: usize) -> &'static str {
        if engine.is_crowded(threads, self.machine.cores) { "*" } else { "" }
    }

    fn rate_table(&self, driver: u32) -> Table {
        let engines = EngineName::ALL;
        let mut table = numbers(["threads"], &engines.map(EngineName::letter));
        for threads in self.figures.threads() {
            let cell = |engine: EngineName| {
                let point = Point { workload: Workload::W1, driver, threads, engine };
                let runs = self.figures.rates.get(&point)?;
                let Summary { min, max, .. } = Summary::of(runs);
                let mark = self.mark(engine, threads);
                Some(format!("{}{mark} ({}–{})", number(mean(runs)), number(min), number(max)))
            };
            let cells = engines.map(|engine| cell(engine).unwrap_or_else(|| "-".into()));
            table.row([threads.to_string()].into_iter().chain(cells));
        }
        table
    }

    fn locked_table(&self) -> Table {
        let engines = EngineName::WITH_LOCKS;
        let name = |driver| engines.map(|engine: EngineName| format!("{}, {driver} ns", engine.letter()));
        let names = DRIVERS.map(name).concat();
        let mut table = numbers(["threads"], &names);
        table.row(["0".to_string()].into_iter().chain(names.iter().map(|_| "0".to_string())));
        for threads in self.figures.threads() {
            let cells = DRIVERS.into_iter().flat_map(|driver| engines.map(|engine| (engine, driver)));
            let cells = cells.map(|(engine, driver)| {
                let locked = self.figures.locked(engine, threads, driver);
                locked.map_or("-".into(), |locked| number(locked) + self.mark(engine, threads))
            });
            table.row([threads.to_string()].into_iter().chain(cells));
        }
        table
    }

    fn workload_table(&self) -> Table {
        let mut table = Table::headed(
            "workload | threads: | engine | Mpps: | least to greatest: | freed or wrong: | stale %:",
        );
        for (point, runs) in self.figures.rates.iter().filter(|(point, _)| point.workload != Workload::W1) {
            let Summary { min, max, .. } = Summary::of(runs);
            let mut cells = vec![
                point.workload.name().to_string(),
                point.threads.to_string(),
                point.engine.letter().to_string(),
                number(mean(runs)) + self.mark(point.engine, point.threads),
                format!("{} to {}", number(min), number(max)),
            ];
            if let Some(found) = self.figures.verified.get(&point.engine)
                && point.workload == Workload::W4
            {
                cells.push(number((found.wrong + found.lost) as f64));
                let stale = number(100.0 * found.stale as f64 / found.packets.max(1) as f64);
                // Half of D sends by routes that the other half found some time ago.
                cells.push(if point.engine == EngineName::D { "-".into() } else { stale });
            }
            table.row(cells);
        }
        table
    }

    fn cost_table(&self) -> Table {
        let mut table = Table::headed(
            "engine | locks: | contended with 2: | atomic read-modify-writes: | shared lines written: | \
             stores to them: | stores by what also loads: | instructions: | D1 misses: | L2 misses: | D1 \
             misses, W3: | L2 misses, W3:",
        );
        for engine in EngineName::ALL {
            let run = |threads| {
                let point = Point { workload: Workload::W1, driver: 0, threads, engine };
                self.figures.watched.get(&point)
            };
            let of = |value: Option<f64>| value.map_or("-".to_string(), |value| number(value.max(0.0)));
            let count = |workload| {
                let mut all = self.figures.misses.iter();
                all.find(|((_, what), _)| *what == (workload, 0, engine)).map(|(_, count)| *count)
            };
            let (w1, w3, writes) =
                (count(Workload::W1), count(Workload::W3), self.figures.writes.get(&engine));
            let each = |figure: fn(&Run) -> f64, threads| run(threads).map(figure);
            table.row([
                engine.letter().to_string(),
                of(each(|run| run.locks, 1)),
                of(each(|run| run.contended, 2)),
                of(each(|run| run.rmw, 1)),
                of(writes.map(|writes| writes.lines as f64)),
                of(writes.map(|writes| writes.stores)),
                of(writes.map(|writes| writes.modifying)),
                of(w1.map(|count| count.instructions)),
                of(w1.map(|count| count.d1)),
                of(w1.map(|count| count.last)),
                of(w3.map(|count| count.d1)),
                of(w3.map(|count| count.last)),
            ]);
        }
        table
    }

    fn tree_table(&self) -> Table {
        let mut table = Table::headed("neighbors: | packets to | engine | nodes: | D1 misses: | L2 misses:");
        for neighbors in NEIGHBORS {
            for (workload, to) in [(Workload::W1, "a router"), (Workload::Near, "neighbors")] {
                for engine in [EngineName::L, EngineName::S] {
                    let what = (workload, neighbors, engine);
                    let Some(nodes) = self.figures.nodes.get(&what) else { continue };
                    let mut all = self.figures.misses.iter();
                    let count = all.find(|((_, counted), _)| *counted == what).map(|(_, count)| *count);
                    let of = |value: Option<f64>| value.map_or("-".to_string(), |v| number(v.max(0.0)));
                    table.row([
                        number(neighbors.into()),
                        to.to_string(),
                        engine.letter().to_string(),
                        number(*nodes),
                        of(count.map(|count| count.d1)),
                        of(count.map(|count| count.last)),
                    ]);
                }
            }
        }
        table
    }

    fn deletion_table(&self) -> Table {
        let mut table = numbers(["neighbors that go", "others"], &ENGINES.map(EngineName::letter));
        for people in POPULATIONS {
            let cells =
                ENGINES.map(|engine| self.figures.deletion(engine, people).map_or("-".into(), number));
            let counts = [people.gone, people.others].map(|count| number(count.into()));
            table.row(counts.into_iter().chain(cells));
        }
        table
    }

    fn alone_table(&self) -> Table {
        let mut table = Table::headed("engine | with locks, Mpps: | without: | locks cost, ns:");
        for (engine, runs) in &self.figures.alone {
            let [with, without] = [&runs[0], &runs[1]].map(|runs| Summary::of(runs).max);
            let cost = 1e3 / with - 1e3 / without;
            table.row([engine.letter().to_string(), number(with), number(without), number(cost)]);
        }
        table
    }

    fn rate_curves(&self, engines: &[EngineName], driver: u32) -> String {
        let title = format!("Packets by threads, a driver of {driver} ns");
        let subtitle = "million packets a second, means; more is better";
        let point = |engine, threads| {
            let runs = self.figures.rates.get(&Point { workload: Workload::W1, driver, threads, engine })?;
            let Summary { min, max, .. } = Summary::of(runs);
            Some((mean(runs), Some((min, max))))
        };
        self.curves(&title, subtitle, engines, point)
    }

    fn locked_curves(&self, engines: &[EngineName]) -> String {
        let subtitle = format!("percent of the threads' time, a driver of {} ns; less is better", DRIVERS[1]);
        let point = |engine, threads| match threads {
            0 => Some((0.0, None)),
            _ if !EngineName::WITH_LOCKS.contains(&engine) => Some((0.0, None)),
            threads => self.figures.locked(engine, threads, DRIVERS[1]).map(|locked| (locked, None)),
        };
        self.curves("Time in locks by threads", &subtitle, engines, point)
    }

    /// A curve for each engine, of values and ranges by threads.
    fn curves(
        &self,
        title: &str,
        subtitle: &str,
        engines: &[EngineName],
        point: impl Fn(EngineName, usize) -> Option<(f64, Option<(f64, f64)>)>,
    ) -> String {
        let mut curves = Curves::new(title, subtitle, self.machine.cores);
        for engine in engines {
            let points = [0].into_iter().chain(self.figures.threads()).filter_map(|threads| {
                let (value, range) = point(*engine, threads)?;
                let is_crowded = engine.is_crowded(threads, self.machine.cores);
                Some(At { threads, value, range, is_crowded })
            });
            let name = format!("{}, {}", engine.letter(), engine.title());
            curves = curves.curve(&name, engine.color(), points.collect());
        }
        curves.svg()
    }

    fn of(&self, engine: EngineName, unit: &str, runs: &[f64]) -> Measurement {
        Measurement::of("freebsd2009", engine.letter(), unit, runs).cpu(&self.machine.cpu)
    }

    fn at(&self, measurement: Measurement, point: &Point) -> Measurement {
        let is_crowded = point.engine.is_crowded(point.threads, self.machine.cores);
        let more = if is_crowded { "more threads than processors" } else { "" };
        measurement
            .param("workload", point.workload.name())
            .param("driver_ns", point.driver)
            .threads(point.threads)
            .notes(more)
    }

    fn rates(&self) -> Vec<Measurement> {
        let one = |(point, runs): (&Point, &Vec<f64>)| {
            let measured = self.at(self.of(point.engine, "Mpps", runs), point);
            measured.param("mean", format!("{:.4}", mean(runs)))
        };
        self.figures.rates.iter().map(one).collect()
    }

    fn watched(&self) -> Vec<Measurement> {
        let one = |(point, run): (&Point, &Run)| {
            let figures = [
                ("% of time in locks", run.locked),
                ("locks/packet", run.locks),
                ("contended locks/packet", run.contended),
                ("atomic read-modify-writes/packet", run.rmw),
            ];
            figures.map(|(unit, value)| self.at(self.of(point.engine, unit, &[value]), point))
        };
        self.figures.watched.iter().flat_map(one).collect()
    }

    fn verified(&self) -> Vec<Measurement> {
        let one = |(engine, found): (&EngineName, &super::workload::Verified)| {
            let figures = [
                ("packets verified", found.packets),
                ("packets with a freed or wrong link address", found.wrong),
                ("packets by a stale route", found.stale),
                ("packets held", found.held),
                ("packets without route", found.lost),
            ];
            figures.map(|(unit, count)| self.of(*engine, unit, &[count as f64]).param("workload", "W4"))
        };
        self.figures.verified.iter().flat_map(one).collect()
    }

    fn counted(&self) -> Vec<Measurement> {
        let misses = self.figures.misses.iter().flat_map(|((caches, what), count)| {
            let (workload, neighbors, engine) = *what;
            let figures = [
                ("instructions/packet", count.instructions),
                ("D1 misses/packet", count.d1),
                ("last-level misses/packet", count.last),
            ];
            figures.map(|(unit, value)| {
                let measured = self.of(engine, unit, &[value]).param("workload", workload.name());
                measured.param("neighbors", neighbors).param("caches", caches).notes("valgrind's cachegrind")
            })
        });
        let nodes = self.figures.nodes.iter().map(|((workload, neighbors, engine), nodes)| {
            let measured = self.of(*engine, "nodes/lookup", &[*nodes]);
            measured.param("workload", workload.name()).param("neighbors", neighbors)
        });
        let writes = self.figures.writes.iter().flat_map(|(engine, writes)| {
            let of = |unit, value| self.of(*engine, unit, &[value]).threads(2).notes("valgrind's lackey");
            [
                of("shared lines written", writes.lines as f64),
                of("stores to shared lines/packet", writes.stores),
                of("stores by what also loads/packet", writes.modifying),
                of("stores/packet", writes.all),
            ]
        });
        misses.chain(nodes).chain(writes).collect()
    }

    fn others(&self) -> Vec<Measurement> {
        let deletions = self.figures.deletions.iter().map(|(engine, people, runs)| {
            let measured = self.of(*engine, "ms to delete a network", runs);
            measured.param("neighbors", people.gone).param("others", people.others)
        });
        let alone = self.figures.alone.iter().flat_map(|(engine, runs)| {
            let of = |locks, runs: &Vec<f64>| self.of(*engine, "Mpps", runs).param("locks", locks);
            [of("own tables, locks", &runs[0]), of("own tables, none", &runs[1])]
        });
        let [unified, routes, neighbors] = self.figures.lines;
        let lines = [(EngineName::L, unified), (EngineName::S, routes + neighbors)];
        let lines = lines.map(|(engine, lines)| self.of(engine, "lines of code", &[lines as f64]));
        let hand_over = self.figures.hand_over.into_iter().flat_map(|(one, of_many)| {
            let of = |batch, nanos| self.of(EngineName::D, "ns/hand-over", &[nanos]).param("batch", batch);
            [of(1, one), of(32, of_many)]
        });
        deletions.chain(alone).chain(lines).chain(hand_over).collect()
    }
}

/// A table of figures alone.
fn numbers<const N: usize>(first: [&str; N], others: &[impl AsRef<str>]) -> Table {
    let names = first.into_iter().chain(others.iter().map(AsRef::as_ref));
    Table::new(names.map(|name| format!("{name}:")))
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::as_claimed;
    use super::*;

    fn report(cores: usize) -> Report {
        let machine = Machine { cores, ..Machine::here() };
        Report { machine, plan: Plan::QUICK, figures: as_claimed(), remarks: vec!["Mind the gap.".into()] }
    }

    #[test]
    fn the_text_has_all_tables_and_a_word_on_every_claim() {
        let text = report(8).text();
        for wanted in ["Mind the gap.", " 65,000 |", " 64,000 |", "W3", "driver of 100 ns", "**holds**"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("**not measured**"), "{text}");
    }

    #[test]
    fn threads_that_share_processors_are_marked_everywhere() {
        let [many, few] =
            [report(8), report(2)].map(|report| (report.text(), report.json().unwrap(), report.charts()));
        let row = |text: &str, threads: &str| {
            text.lines().find(|line| line.starts_with(threads)).unwrap().to_string()
        };
        // Of nine cells, that of D: its two senders are four threads.
        assert!(
            row(&few.0, "|       2 |").matches('*').count() == 1
                && row(&few.0, "|       8 |").matches('*').count() == 8
        );
        assert!(
            row(&many.0, "|       4 |").matches('*').count() == 0
                && row(&many.0, "|       8 |").matches('*').count() == 1
        );
        let noted = |json: &str, engine: &str| {
            let is_noted =
                |line: &&str| line.contains(engine) && line.contains("more threads than processors");
            json.lines().filter(is_noted).count()
        };
        assert!(noted(&many.1, "\"engine\":\"D\"") > 0 && noted(&many.1, "\"engine\":\"L\"") == 0);
        assert!(noted(&few.1, "\"engine\":\"L\"") > 0);
        assert!(!many.2[0].1.contains("class=\"hollow\"") && few.2[0].1.contains("class=\"hollow\""));
    }

    #[test]
    fn there_is_a_chart_for_each_figure() {
        let charts = report(8).charts();
        for figure in ["figure7", "figure9", "figure10"] {
            assert!(
                charts.iter().any(|(name, svg)| name.contains(figure) && svg.contains("<circle")),
                "{figure}"
            );
        }
    }

    #[test]
    fn all_figures_are_lines_of_json() {
        let json = report(2).json().unwrap();
        for unit in [
            "Mpps",
            "% of time in locks",
            "atomic read-modify-writes/packet",
            "packets with a freed or wrong link address",
            "last-level misses/packet",
            "nodes/lookup",
            "shared lines written",
            "stores by what also loads/packet",
            "ms to delete a network",
            "lines of code",
            "ns/hand-over",
        ] {
            assert!(json.contains(&format!("\"unit\":\"{unit}\"")), "{unit}");
        }
    }
}
