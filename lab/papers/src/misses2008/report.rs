//! What was measured, beside what was published, and what it says about what must hold.

use super::case::{BURST, LADDER};
use super::claims::judge;
use super::figures::{By, CacheState, Figures, Misses, OFF, Order, Rung};
use super::plan::{FEW, Plan, many, real, simulated};
use super::published::{MISS, Published, RATES, TABLE};
use artery_bench::results::{Chart, Findings, Measurement, Summary, Table, Verdict, number};
use artery_rig::machine::Machine;

/// What each rung is.
const MEANING: [&str; LADDER.len()] = [
    "out of the receive queue, unread (+monitor of 2008)",
    "EtherType read (monitor)",
    "IP header checked",
    "route found",
    "neighbor found, all but sent",
    "sent and taken back (-monitor)",
];

pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) figures: Figures,
    pub(super) remarks: Vec<String>,
}

impl Findings for Report {
    const NAME: &'static str = "misses2008";

    fn text(&self) -> String {
        let Plan { rounds, packets, paced, .. } = self.plan;
        let mut text = format!(
            "# misses2008: monitor mode and cache misses, as in July 2008\n\n{}.\n\n\
             Frames of 60 bytes, one flow; batches of {BURST}. Medians of {rounds} rounds of {} packets, and \
             of {} ms at each rate. One processor runs the router and, by turns with it, what stands for a \
             network card; the card's time is not in ns/packet and counts as idle, but to take back what was \
             sent is the router's. Idle: looks for packets that found none, in percent of the time. Turns \
             longer than 50 µs were another program's and are left out.\n\n\
             Cold, for times: before packets are handed over, the processor is made to forget the line of \
             each header (clflush). Buffers are the pool's: the last to be freed, so that descriptors are \
             hot, as a driver's are.\n\n{}",
            self.machine,
            number(packets as f64),
            paced.as_millis(),
            self.ladder_table()
        );
        text += &self.misses_text();
        text += &format!("\n## Which buffer is taken\n\n{}", self.buffers_text());
        text += &format!("\n## What a miss costs\n\n{}", self.sanity());
        text += &format!("\n## Beside 2008\n\n{}", self.table_of_2008());
        text += &format!("\n## What must hold\n\n{}", self.claims_table());
        text
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.figures)
    }

    fn measurements(&self) -> Vec<Measurement> {
        let of = |engine: &str, unit: &str, runs: &[f64]| {
            let measurement = Measurement::of("misses2008", engine, unit, runs).cpu(&self.machine.cpu);
            measurement.param("burst", BURST).param("frame_bytes", 60)
        };
        let mut all = Vec::new();
        for ((way, rung), runs) in &self.figures.times {
            let buffers = real(*way);
            all.push(
                of(LADDER[*rung], "ns/packet", runs).param("packets", way.name()).param("buffers", buffers),
            );
        }
        for ((rate, rung), runs) in &self.figures.idle {
            let (idle, offered): (Vec<f64>, Vec<f64>) = runs.iter().copied().unzip();
            let at = |unit, runs: &[f64]| {
                of(LADDER[*rung], unit, runs).param("kpps", rate).param("packets", "cold")
            };
            all.push(at("% idle", &idle).notes("looks that found no packet, and the card's time"));
            all.push(at("packets/s offered", &offered));
        }
        let missed = |engine: &str, by: By, misses: &Misses| {
            let last = misses.last.map(|last| of(engine, "LL misses/packet", &[last]));
            let both = [of(engine, "D1 misses/packet", &[misses.d1])].into_iter().chain(last);
            let notes = match by {
                By::Processor => "perf events, user, loads",
                By::Cachegrind(_) => "cachegrind, difference of N and 2N packets, AVX2 path",
            };
            both.map(|one| one.param("caches", by.name()).notes(notes)).collect::<Vec<_>>()
        };
        for ((by, way, depth), misses) in &self.figures.misses {
            all.extend(missed(depth, *by, misses).into_iter().map(|one| one.param("packets", way.name())));
        }
        for (order, runs) in &self.figures.buffers {
            all.push(
                of(LADDER[OFF], "ns/packet, taking the buffer included", runs).param("buffers", name(*order)),
            );
        }
        for ((by, order), misses) in &self.figures.buffer_misses {
            all.extend(
                missed(LADDER[OFF], *by, misses).into_iter().map(|one| one.param("buffers", name(*order))),
            );
        }
        let chases = [
            ("forgotten lines, known pages", &self.figures.miss),
            ("twice the last level", &self.figures.far),
        ];
        for (through, runs) in chases.into_iter().filter(|(_, runs)| !runs.is_empty()) {
            all.push(of("pointer chase", "ns/miss", runs).param("through", through));
        }
        all
    }

    fn charts(&self) -> Vec<(String, String)> {
        let charts =
            [("misses2008-times.svg", self.times_chart()), ("misses2008-misses.svg", self.misses_chart())];
        charts.map(|(name, chart)| (name.to_string(), chart.svg())).to_vec()
    }
}

impl Report {
    fn ladder_table(&self) -> Table {
        let mut table = Table::headed(
            "level | packets end | ns cold: | least: | ns cold, prefetched: | ns hot: | idle % at 397 \
             kpps: | at 580 kpps:",
        );
        for (rung, (level, meaning)) in LADDER.into_iter().zip(MEANING).enumerate() {
            let figures = &self.figures;
            let idle = RATES.map(|rate| figures.idle(rate, rung));
            let times = [
                figures.time(CacheState::Cold, rung),
                figures.least(CacheState::Cold, rung),
                figures.time(CacheState::Prefetched, rung),
                figures.time(CacheState::Hot, rung),
            ];
            let cells = times.into_iter().chain(idle).map(or_dash);
            table.row([level.to_string(), meaning.to_string()].into_iter().chain(cells));
        }
        table
    }

    fn misses_text(&self) -> String {
        let remarks = self.remarks.join("\n\n");
        let mut text = format!("\n## Misses of a packet\n\n{remarks}\n");
        let counters = self.figures.counters();
        if counters.is_empty() {
            return text;
        }
        text += &format!(
            "\nD1 and, behind the stroke, last level. What the card does to take a buffer is in all rows; \
             *card* is that alone.{}\n\n",
            self.simulated_caches()
        );
        let ways = [CacheState::Cold, CacheState::Prefetched, CacheState::Hot];
        let columns: Vec<(By, CacheState)> = counters
            .into_iter()
            .flat_map(|by| ways.map(|way| (by, way)))
            .filter(|at| self.counted(*at))
            .collect();
        let titles = columns.iter().map(|(by, way)| format!("{} {}:", by.name(), way.name()));
        let mut table = Table::new(["level".to_string()].into_iter().chain(titles));
        for depth in ["card"].into_iter().chain(LADDER) {
            let cells = columns.iter().map(|(by, way)| both(self.figures.misses.get(&(*by, *way, depth))));
            table.row([depth.to_string()].into_iter().chain(cells));
        }
        text + &table.to_string()
    }

    fn counted(&self, (by, way): (By, CacheState)) -> bool {
        self.figures.misses.contains_key(&(by, way, LADDER[OFF]))
    }

    /// How cold packets are had in simulated caches, if any were.
    fn simulated_caches(&self) -> String {
        if self.figures.counters().contains(&By::Processor) {
            return String::new();
        }
        let here = artery_bench::cachegrind::Caches::here();
        let describe = |caches: &artery_bench::cachegrind::Caches| {
            let buffers = simulated(CacheState::Cold, caches);
            format!("{} (D1 {}, LL {}, {buffers})", caches.name, caches.d1, caches.last)
        };
        let all: Vec<String> = here.iter().chain(self.plan.caches).map(describe).collect();
        format!(
            " Cold, for cachegrind, which knows no clflush: packets go through memory of twice the simulated \
             last level and more, in the places of so many big buffers (cycled:N); where those are more than \
             {FEW}, D1 is counted with {FEW}, whose descriptors stay hot. Caches, as bytes, ways, line: {}.",
            all.join("; ")
        )
    }

    fn buffers_text(&self) -> String {
        let counters = self.figures.counters();
        let counted = counters.iter().map(|by| format!("{} D1 / LL:", by.name()));
        let mut table = Table::new(["buffer", "ns:", "least:"].map(String::from).into_iter().chain(counted));
        for order in [Order::Lifo, Order::Fifo] {
            let times = self.figures.buffers.get(&order).map(|runs| Summary::of(runs));
            let cells = [or_dash(times.map(|times| times.median)), or_dash(times.map(|times| times.min))];
            let misses = counters.iter().map(|by| both(self.figures.buffer_misses.get(&(*by, order))));
            table.row([name(order).to_string()].into_iter().chain(cells).chain(misses));
        }
        format!(
            "The whole path, nothing flushed; ns with taking the buffer. In the order of their return, {} \
             buffers go round: a buffer's header and descriptor have long left the caches when its turn \
             comes, \"perfect non-locality\".\n\n{table}",
            number(many() as f64)
        )
    }

    /// The check that 2008 made too: do misses explain the time?
    fn sanity(&self) -> String {
        let figures = &self.figures;
        let Some(miss) = figures.miss() else { return "not measured\n".into() };
        let far = figures.far.iter().copied().fold(f64::INFINITY, f64::min);
        let mut text = format!(
            "Pointer chase: a load that misses every cache costs {miss:.1} ns here, of a page that the \
             processor knows, as those of cold headers are; {} ns at least where the page has to be found \
             too (through twice the last level); {MISS} ns by lmbench2 in 2008.\n",
            number(far)
        );
        text += &self.explained(miss).unwrap_or_default();
        if let (Some(l0), Some(l1)) = (figures.time(CacheState::Cold, 0), figures.time(CacheState::Cold, 1)) {
            text += &format!(
                "\nThe first look at a cold header, l1 beyond l0, took {:.1} ns in batches, {:.0} % of that \
                 miss.\n",
                l1 - l0,
                100.0 * (l1 - l0) / miss
            );
        }
        text + &RATES.iter().filter_map(|rate| self.first_look(*rate, miss)).collect::<String>()
    }

    /// How much of the full path's time misses explain.
    fn explained(&self, miss: f64) -> Option<String> {
        let by = self.figures.counters().into_iter().find(|by| matches!(by.name(), "host" | "processor"))?;
        let last = self.figures.misses.get(&(by, CacheState::Cold, LADDER[OFF]))?.last?;
        let time = self.figures.time(CacheState::Cold, OFF)?;
        let share = 100.0 * last * miss / time;
        let more = match share > 100.0 {
            true => {
                " (more than all of it: the processor waits for several packets of a batch at once, where \
                 the chase waits for each load)"
            }
            false => "",
        };
        let slow = RATES.iter().filter_map(|rate| {
            let busy = self.busy(*rate, OFF)?;
            Some(format!(", {:.0} % of its {} ns at {rate} kpps", 100.0 * last * miss / busy, number(busy)))
        });
        let slow: String = slow.collect();
        Some(format!(
            "\nIf one miss costs {miss:.1} ns, {last:.2} last-level misses explain {share:.0} % of the full \
             path's {} ns, cold, as fast as can be{more}{slow}.\n",
            number(time)
        ))
    }

    /// What the first look at a header took where packets don't come in batches.
    fn first_look(&self, rate: u32, miss: f64) -> Option<String> {
        let (l0, l1) = (self.figures.idle(rate, 0)?, self.figures.idle(rate, 1)?);
        let nanos = (l0 - l1) / 100.0 * 1e6 / f64::from(rate);
        Some(format!(
            "\nAt {rate} kpps packets come one by one: l1 idles {:.1} % less than l0, so the look took \
             {nanos:.0} ns, {:.0} % of that miss (in 2008 5 % at 397 kpps: 126 ns, three times that of \
             lmbench2).\n",
            l0 - l1,
            100.0 * nanos / miss
        ))
    }

    fn table_of_2008(&self) -> String {
        let by = self.figures.counters().into_iter().find(|by| matches!(by.name(), "k8" | "processor"));
        let ours = by.map_or("D1 misses here".to_string(), |by| format!("D1 misses here ({})", by.name()));
        let mut table = Table::headed(&format!(
            "2008 | mode | idle %: | misses: | µs: | here | idle % here: | {ours}: | µs here: | \
             as fast as can be:"
        ));
        for row in &TABLE {
            let Published { system, load: (interface, rate), mode, depth, idle, misses } = *row;
            let rung = LADDER.iter().position(|level| *level == depth).unwrap_or(OFF);
            table.row([
                format!("{system}, {interface}, {rate} kpps"),
                mode.to_string(),
                number(idle),
                number(misses),
                format!("{:.2}", row.busy()),
                depth.to_string(),
                or_dash(self.figures.idle(rate, rung)),
                or_dash(by.and_then(|by| self.figures.d1(by, CacheState::Cold, rung))),
                micros(self.busy(rate, rung)),
                micros(self.figures.time(CacheState::Cold, rung)),
            ]);
        }
        format!(
            "Misses of 2008: k8-dc-misses (bge0), k7-dc-misses (em0). A real card and its driver were part \
             of those figures. Packets came one by one then, as they do here at these rates; µs is what was \
             not idle, by the rate.\n\n{table}\n\
             Least rate that was offered in any run, while no other program had the processor: {}.\n",
            RATES.map(|rate| self.least_offered(rate)).join("; ")
        )
    }

    /// Nanoseconds of a packet where packets come one by one: what was not idle, by the rate.
    fn busy(&self, rate: u32, rung: Rung) -> Option<f64> {
        Some((100.0 - self.figures.idle(rate, rung)?) / 100.0 * 1e6 / f64::from(rate))
    }

    fn least_offered(&self, rate: u32) -> String {
        let runs = self.figures.idle.iter().filter(|((wanted, _), _)| *wanted == rate);
        let offered = runs.flat_map(|(_, runs)| runs.iter().map(|(_, offered)| *offered));
        format!("{rate} kpps: {} packets/s", number(offered.fold(f64::INFINITY, f64::min)))
    }

    fn claims_table(&self) -> String {
        let mut table = Table::headed("what must hold | found | figures");
        for verdict in self.verdicts() {
            table.row([verdict.claim, verdict.finding.to_string(), verdict.why]);
        }
        let examined = number(self.figures.audit.examined as f64);
        format!(
            "{table}\nOf the packets that were sent, {examined} were examined: stations, checksum, hops; all \
             were right.\n"
        )
    }

    fn times_chart(&self) -> Chart {
        let mut chart =
            Chart::new("How far packets come, and what that takes", "nanoseconds per packet; less is better");
        for way in [CacheState::Cold, CacheState::Prefetched, CacheState::Hot] {
            for (rung, level) in LADDER.into_iter().enumerate() {
                let Some(runs) = self.figures.times.get(&(way, rung)) else { continue };
                let times = Summary::of(runs);
                chart = chart.bar(
                    &format!("{level}, {}", way.name()),
                    times.median,
                    Some((times.min, times.max)),
                );
            }
        }
        chart
    }

    fn misses_chart(&self) -> Chart {
        let mut chart = Chart::new("Misses of a cold packet", "D1 misses per packet; less is better");
        for by in self.figures.counters() {
            for level in LADDER {
                if let Some(misses) = self.figures.misses.get(&(by, CacheState::Cold, level)) {
                    chart = chart.bar(&format!("{level}, {}", by.name()), misses.d1, None);
                }
            }
        }
        TABLE.iter().fold(chart, |chart, row| {
            chart.reference(&format!("2008: {}, {}, {}", row.system, row.load.0, row.mode), row.misses)
        })
    }
}

fn name(order: Order) -> &'static str {
    match order {
        Order::Lifo => "freed last (LIFO)",
        Order::Fifo => "freed longest ago (FIFO)",
    }
}

fn micros(nanos: Option<f64>) -> String {
    nanos.map_or("-".into(), |nanos| format!("{:.3}", nanos / 1000.0))
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or("-".into(), number)
}

/// Misses of both levels in a cell. That little is counted less than nothing is chance.
fn both(misses: Option<&Misses>) -> String {
    let Some(Misses { d1, last }) = misses else { return "-".into() };
    let last = last.map_or(String::new(), |last| format!(" / {:.2}", last.max(0.0)));
    format!("{:.2}{last}", d1.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut figures = Figures { miss: vec![100.0], far: vec![150.0], ..Figures::default() };
        for (rung, depth) in LADDER.into_iter().enumerate() {
            let step = rung as f64;
            figures.times.insert((CacheState::Cold, rung), vec![20.0 + 36.0 * step]);
            let misses = Misses { d1: 1.0 + step, last: Some(1.0) };
            figures.misses.insert((By::Cachegrind("k8"), CacheState::Cold, depth), misses);
            figures.misses.insert((By::Cachegrind("host"), CacheState::Cold, depth), misses);
            figures.idle.insert((397, rung), vec![(90.0 - 10.0 * step, 396_500.0)]);
        }
        figures.buffers.insert(Order::Lifo, vec![50.0]);
        Report { machine: Machine::here(), plan: Plan::QUICK, figures, remarks: vec!["A remark.".into()] }
    }

    /// The first line that begins so.
    fn line<'a>(text: &'a str, start: &str) -> &'a str {
        text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {text}"))
    }

    #[test]
    fn misses_explain_a_share_of_the_time() {
        let text = report().text();
        let wanted = "If one miss costs 100.0 ns, 1.00 last-level misses explain 50 % of the full path's 200 \
            ns, cold, as fast as can be, 7 % of its 1,511 ns at 397 kpps.";
        assert_eq!(line(&text, "If one miss"), wanted);
        assert!(
            line(&text, "At 397 kpps").contains("idles 10.0 % less than l0, so the look took 252 ns, 252 %"),
            "{text}"
        );
        assert!(line(&text, "The first look").contains("took 36.0 ns in batches, 36 %"), "{text}");
    }

    #[test]
    fn each_line_of_2008_has_ours_beside_it() {
        let text = report().text();
        let row: Vec<&str> =
            line(&text, "| ~5.2, bge0, 397 kpps      | -monitor").split('|').map(str::trim).collect();
        assert_eq!(row[3..11], ["17.0", "19.0", "2.09", "off", "40.0", "6.00", "1.511", "0.200"]);
        let row: Vec<&str> =
            line(&text, "| ~5.2, em0, 580 kpps       | monitor ").split('|').map(str::trim).collect();
        assert_eq!(row[7], "-", "nothing was measured at that rate");
        assert!(text.contains("A remark.") && text.contains("## What must hold"));
    }

    #[test]
    fn a_machine_that_counts_no_misses_says_so_and_has_no_table_of_them() {
        let mut report = report();
        report.figures.misses.clear();
        report.remarks = vec!["not measured: misses.".into()];
        let text = report.text();
        assert!(text.contains("not measured: misses.") && !text.contains("behind the stroke"), "{text}");
        assert!(!text.contains("last-level misses explain"), "{text}");
    }

    #[test]
    fn every_measurement_is_a_line() {
        let report = report();
        let lines = report.json().unwrap();
        let read: Vec<Measurement> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // Times, misses of two levels by two counters, idle time and rate, one order of buffers, two chases.
        assert_eq!(read.len(), 6 + 24 + 12 + 1 + 2);
        assert!(read.iter().all(|one| one.experiment == "misses2008" && one.params["burst"] == "32"));
    }

    #[test]
    fn charts_show_what_was_measured_and_what_was_then() {
        let report = report();
        assert!(report.times_chart().svg().contains("l1, cold"));
        assert!(report.misses_chart().svg().contains("2008: 8-current, bge0, monitor"));
    }
}
