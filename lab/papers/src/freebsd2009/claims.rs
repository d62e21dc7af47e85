//! What the paper claims, and what is expected of its successors: judged by figures alone.

use super::deletion::POPULATIONS;
use super::engine::EngineName::{self, *};
use super::figures::{Counted, Figures, Point};
use super::plan::{DRIVERS, NEIGHBORS};
use super::workload::Workload;
use super::writes::Writes;
use artery_bench::results::{Verdict, number};

const DRIVER: u32 = DRIVERS[1];
/// Stores for a packet by instructions that also load, which are fewer than this: counts are added to once a
/// batch. With one atomic read-modify-write for a packet there are more.
const MODIFYING: f64 = 0.5;
/// Engines that threads are not to hinder each other in.
const SCALING: [EngineName; 4] = [F, C, E, G];

/// Judges all claims on a machine of so many processors.
pub(super) fn judge(figures: &Figures, cores: usize) -> Vec<Verdict> {
    let judge = Judge { figures, cores, most: figures.threads().last().copied().unwrap_or(1) };
    vec![
        judge.same_rate(),
        judge.no_scaling(),
        judge.scaling(),
        judge.driver_bound(),
        judge.locked_legacy(),
        judge.locked_flows(),
        judge.flows_lose(),
        judge.one_miss(),
        judge.next_batch(),
        judge.pipeline_loses(),
        judge.right_addresses(),
        judge.no_rmw(),
        judge.no_shared_line(),
        judge.less_code(),
        judge.smaller_tree(),
        judge.deletion(),
        judge.cost_of_locks(),
    ]
}

struct Judge<'a> {
    figures: &'a Figures,
    cores: usize,
    /// The most threads that were run.
    most: usize,
}

fn verdict(claim: &'static str, found: Option<(bool, String)>) -> Verdict {
    Verdict::judged(claim, found, "figures are missing")
}

impl Judge<'_> {
    /// A word on threads that had to share processors.
    fn crowded(&self) -> String {
        if self.most <= self.cores {
            return String::new();
        }
        format!("; there are {} processors, so {} threads take turns", self.cores, self.most)
    }

    /// A figure by numbers of threads, if it is known of all of them.
    fn by_threads(&self, figure: impl Fn(usize) -> Option<f64>) -> Option<Vec<(usize, f64)>> {
        let all: Option<Vec<_>> = self.figures.threads().into_iter().map(|n| Some((n, figure(n)?))).collect();
        all.filter(|all| !all.is_empty())
    }

    fn same_rate(&self) -> Verdict {
        let claim = "figure 7: the unified and the split tables send within 10 % of each other";
        let ratios =
            self.by_threads(|n| Some(self.figures.w1(S, n, DRIVER)? / self.figures.w1(L, n, DRIVER)?));
        let found = ratios.map(|ratios| {
            let holds = ratios.iter().all(|(_, ratio)| (0.9..=1.1).contains(ratio));
            let text: Vec<String> = ratios.iter().map(|(n, ratio)| format!("{ratio:.2} with {n}")).collect();
            (
                holds,
                format!(
                    "split to unified, by threads, at a driver of 100 ns: {}{}",
                    text.join(", "),
                    self.crowded()
                ),
            )
        });
        verdict(claim, found)
    }

    /// The rate of the most threads, in rates of one.
    fn gain(&self, engine: EngineName, threads: usize, driver: u32) -> Option<f64> {
        Some(self.figures.w1(engine, threads, driver)? / self.figures.w1(engine, 1, driver)?)
    }

    fn no_scaling(&self) -> Verdict {
        let claim = "figure 7: neither gains from more threads: less than 1.5 times one";
        let gain = |engine| Some([0, DRIVER].map(|driver| self.gain(engine, self.most, driver)));
        let found = gain(L).zip(gain(S)).and_then(|(l, s)| Some(([l[0]?, l[1]?], [s[0]?, s[1]?])));
        let found = found.map(|(l, s)| {
            let holds = l.iter().chain(&s).all(|gain| *gain < 1.5);
            let why = format!(
                "{} threads send {:.2} and {:.2} times what one does (L, S) without a driver, {:.2} and \
                 {:.2} times with one{}",
                self.most,
                l[0],
                s[0],
                l[1],
                s[1],
                self.crowded()
            );
            (holds, why)
        });
        verdict(claim, found)
    }

    fn scaling(&self) -> Verdict {
        let claim = "flow tables, copies and our tables gain at least 0.7 for each further processor";
        let gains: Option<Vec<f64>> =
            SCALING.into_iter().map(|engine| self.gain(engine, self.cores, 0)).collect();
        let found = gains.filter(|_| self.cores > 1).map(|gains| {
            let holds = gains.iter().all(|gain| *gain >= 0.7 * self.cores as f64);
            let text = SCALING
                .iter()
                .zip(gains)
                .map(|(engine, gain)| format!("{:.2} ({})", gain / self.cores as f64, engine.letter()));
            let text = text.collect::<Vec<_>>().join(", ");
            (holds, format!("a thread of {} sends {text} of what one alone does", self.cores))
        });
        verdict(claim, found)
    }

    fn driver_bound(&self) -> Verdict {
        let claim = "figure 9: with the flow table the driver is the limit: more than 30 % of the time, \
            locks less than 10 %";
        let found = self.figures.w1(F, self.most, DRIVER).zip(self.figures.locked(F, self.most, DRIVER));
        let found = found.map(|(rate, locked)| {
            let busy = self.most.min(self.cores) as f64;
            let driver = 100.0 * rate * f64::from(DRIVER) / 1e3 / busy;
            (
                driver > 30.0 && locked < 10.0,
                format!(
                    "{driver:.0} % in a driver of {DRIVER} ns, {locked:.1} % in locks, with {} threads{}",
                    self.most,
                    self.crowded()
                ),
            )
        });
        verdict(claim, found)
    }

    fn locked_legacy(&self) -> Verdict {
        let claim = "figure 10: time in locks of the unified table rises with threads, to 47 % with eight";
        let found = self.by_threads(|n| self.figures.locked(L, n, DRIVER)).and_then(|rows| {
            let (first, last) = (rows.first()?.1, rows.last()?.1);
            let text: Vec<String> =
                rows.iter().map(|(n, percent)| format!("{percent:.0} % with {n}")).collect();
            Some((last > first && last >= 40.0, text.join(", ") + &self.crowded()))
        });
        verdict(claim, found)
    }

    fn locked_flows(&self) -> Verdict {
        let claim = "figure 10: with the flow table it stays small";
        let found = self.by_threads(|n| self.figures.locked(F, n, DRIVER)).map(|all| {
            let most = all.iter().map(|(_, locked)| *locked).fold(0.0, f64::max);
            (most < 10.0, format!("at most {most:.2} % with 1 to {} threads", self.most))
        });
        verdict(claim, found)
    }

    fn flows_lose(&self) -> Verdict {
        let claim = "with a million destinations flow tables lose to our tables, which keep nothing";
        let rate = |engine| {
            let point = Point { workload: Workload::W3, driver: 0, threads: 1, engine };
            self.figures.rate(point)
        };
        let all = |rate: &dyn Fn(EngineName) -> Option<f64>| Some([rate(F)?, rate(G)?, rate(E)?]);
        let text = |rates: [f64; 3]| {
            let [f, g, e] = rates.map(number);
            format!("{f} (F), {g} (G), {e} (E)")
        };
        let found = all(&rate).map(|many| {
            let few = all(&|engine| self.figures.w1(engine, 1, 0));
            let few = few.map_or(String::new(), |few| format!("; with a thousand {}", text(few)));
            (many[0].max(many[1]) < many[2], format!("{} Mpps, one thread{few}", text(many)))
        });
        verdict(claim, found)
    }

    fn count(&self, counted: Counted) -> Option<artery_bench::cachegrind::Count> {
        let mut all = self.figures.misses.iter();
        all.find(|((_, what), _)| *what == counted).map(|(_, count)| *count)
    }

    fn next_batch(&self) -> Verdict {
        let claim = "our flow table takes a better route at once, as each flow has the generation in which \
            it was found";
        let stale = |engine| {
            let found = self.figures.verified.get(&engine)?;
            Some(100.0 * found.stale as f64 / found.packets.max(1) as f64)
        };
        // Where the table of 2009 makes no mistake, none was to be seen.
        let found = stale(G).zip(stale(F)).map(|(ours, old)| {
            (
                ours == 0.0 && old > 0.0,
                format!(
                    "{} % of its packets went by a route that was not the best any more, {old:.0} % of those \
                     of 2009, a thousand changes a second",
                    number(ours)
                ),
            )
        });
        verdict(claim, found)
    }

    fn one_miss(&self) -> Verdict {
        let claim = "with a million destinations the flow table has at least a miss of the second level for \
            each packet";
        let found = self.count((Workload::W3, 0, F)).map(|count| {
            let few = self.count((Workload::W1, 0, F)).map_or(f64::NAN, |count| count.last);
            let why = format!(
                "{:.2} misses a packet, and {:.2} with a thousand; the trace itself has some",
                count.last,
                few.max(0.0)
            );
            (count.last >= 1.0, why)
        });
        verdict(claim, found)
    }

    fn pipeline_loses(&self) -> Verdict {
        let claim = "the pipeline of two processors loses to one that does both halves";
        let one = |driver| Some(self.figures.w1(D, 1, driver)? / self.figures.w1(S, 1, driver)?);
        let found = one(0).zip(one(DRIVER)).zip(self.figures.hand_over);
        let found = found.map(|((bare, busy), (single, batched))| {
            let both =
                self.figures.w1(D, 1, DRIVER).zip(self.figures.w1(S, 2, DRIVER)).filter(|_| self.cores > 1);
            let both =
                both.map_or(String::new(), |(d, s)| format!(" and {:.2} of what two such threads do", d / s));
            let why = format!(
                "two processors do {bare:.2} of what one thread of S does without a driver, {busy:.2} with \
                 one{both}; a hand-over takes {single:.0} ns one by one and {batched:.1} ns in batches of \
                 32, and both still take locks"
            );
            (bare < 1.0 && busy < 1.0, why)
        });
        verdict(claim, found)
    }

    fn right_addresses(&self) -> Verdict {
        let claim = "no packet leaves with a freed or wrong link address while routes and neighbors change";
        let all = &self.figures.verified;
        let found = (!all.is_empty()).then(|| {
            let packets: u64 = all.values().map(|found| found.packets).sum();
            let wrong: u64 = all.values().map(|found| found.wrong + found.lost).sum();
            let share = |stale: u64, packets: u64| 100.0 * stale as f64 / packets.max(1) as f64;
            let stale = all.iter().filter(|(_, found)| found.stale > 0);
            let stale = stale.map(|(engine, found)| {
                format!("{} {:.0} %", engine.letter(), share(found.stale, found.packets))
            });
            let stale: Vec<String> = stale.collect();
            let stale = match stale.is_empty() {
                true => "none took a route that was not the best any more".to_string(),
                false => format!("but by routes that were not the best any more went: {}", stale.join(", ")),
            };
            (wrong == 0, format!("{wrong} of {} packets, all engines; {stale}", number(packets as f64)))
        });
        verdict(claim, found)
    }

    /// What two threads write in common by our tables, without flows and with.
    fn our_writes(&self) -> Option<[&Writes; 2]> {
        Some([self.figures.writes.get(&E)?, self.figures.writes.get(&G)?])
    }

    fn no_rmw(&self) -> Verdict {
        let claim =
            "our tables and our flow table take no lock and make no atomic read-modify-write for a packet";
        let found = self.our_writes().zip(self.figures.writes.get(&S)).map(|(ours, split)| {
            let holds =
                ours.iter().all(|w| w.stores == 0.0 && w.modifying < MODIFYING) && split.modifying >= 1.0;
            let watched = |engine| {
                let point = Point { workload: Workload::W1, driver: 0, threads: 1, engine };
                let run = self.figures.watched.get(&point);
                run.map_or(String::new(), |run| {
                    format!("{} {:.1} and {:.1}", engine.letter(), run.locks, run.rmw)
                })
            };
            let modifying: Vec<String> = self
                .figures
                .writes
                .iter()
                .map(|(engine, writes)| format!("{} {:.2}", engine.letter(), writes.modifying))
                .collect();
            let why = format!(
                "instructions for a packet that load and store the same place, as every such one does: {}; \
                 locks and read-modify-writes where they are counted: {}",
                modifying.join(", "),
                [L, S, P, F].map(watched).join(", ")
            );
            (holds, why)
        });
        verdict(claim, found)
    }

    fn no_shared_line(&self) -> Verdict {
        let claim =
            "our packet path writes no cache line that another thread touches, without flows and with";
        let found = self.our_writes().zip(self.figures.writes.get(&S)).map(|(ours, split)| {
            let all = &self.figures.writes;
            let text: Vec<String> = all
                .iter()
                .map(|(engine, writes)| {
                    format!("{} {}, {:.1} times", engine.letter(), writes.lines, writes.stores)
                })
                .collect();
            // If nothing is found for those that have locks, nothing was measured.
            (
                ours.iter().all(|writes| writes.lines == 0) && split.lines > 0,
                format!("such lines, and stores to them for a packet: {}", text.join("; ")),
            )
        });
        verdict(claim, found)
    }

    fn less_code(&self) -> Verdict {
        let [unified, routes, neighbors] = self.figures.lines;
        let claim = "the split design takes 30 % less code";
        let change = 100.0 * ((routes + neighbors) as f64 / unified.max(1) as f64 - 1.0);
        let why = format!(
            "{unified} lines in one, {routes} + {neighbors} in the other ({change:+.0} %), both of them our \
             baselines: what the paper counts, all of two kernels' code, they are not"
        );
        verdict(claim, (unified > 0).then_some((change <= -25.0, why)))
    }

    fn smaller_tree(&self) -> Verdict {
        let claim = "the tree of routes stays small, and lookups short, however many neighbors there are";
        let most = NEIGHBORS[2];
        let nodes =
            |engine, workload, neighbors| self.figures.nodes.get(&(workload, neighbors, engine)).copied();
        let found = (|| {
            let (l_few, l_many) = (nodes(L, Workload::Near, NEIGHBORS[1])?, nodes(L, Workload::Near, most)?);
            let (s_few, s_many) = (nodes(S, Workload::Near, NEIGHBORS[1])?, nodes(S, Workload::Near, most)?);
            let misses = |engine| self.count((Workload::Near, most, engine)).map(|count| count.d1.max(0.0));
            let misses = misses(L).zip(misses(S));
            let misses = misses.map_or(String::new(), |(l, s)| {
                format!("; first-level misses with 64,000: {l:.1} and {s:.1}")
            });
            Some((
                s_many == s_few && l_many > l_few,
                format!(
                    "on the way to a neighbor, of 1,000 and of 64,000: L visits {l_few:.1} and {l_many:.1} \
                     nodes, S {s_few:.1} and {s_many:.1}{misses}"
                ),
            ))
        })();
        verdict(claim, found)
    }

    /// How long deletions take at each population, in milliseconds.
    fn deletions(&self, engine: EngineName) -> Option<[f64; 3]> {
        let [a, b, c] = POPULATIONS.map(|people| self.figures.deletion(engine, people));
        Some([a?, b?, c?])
    }

    fn deletion(&self) -> Verdict {
        let claim = "deleting a network takes a walk over the whole unified table, and over its own \
            neighbors in the split ones";
        let found = self.deletions(L).zip(self.deletions(S)).map(|(l, s)| {
            let grows = |times: [f64; 3]| times[2] / times[1];
            let why = format!(
                "64,000 other neighbors make the deletion of 1,000 take {:.1} times as long (L), {:.1} times \
                 (S); 65,000 go in {} and {} ms",
                grows(l),
                grows(s),
                number(l[0]),
                number(s[0])
            );
            (grows(l) > 3.0 && grows(s) < 2.0, why)
        });
        verdict(claim, found)
    }

    fn cost_of_locks(&self) -> Verdict {
        let claim = "on one processor locks cost less than 5 %";
        let found = self.figures.alone.get(&L).zip(self.figures.alone.get(&S)).map(|(l, s)| {
            let cost = |runs: &[Vec<f64>; 2]| {
                let best = |runs: &[f64]| runs.iter().copied().fold(0.0, f64::max);
                100.0 * (1.0 - best(&runs[0]) / best(&runs[1]))
            };
            let why = format!("L loses {:.0} %, S {:.0} % of what they send without any", cost(l), cost(s));
            (cost(l) < 5.0 && cost(s) < 5.0, why)
        });
        verdict(claim, found)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::case::Run;
    use super::super::workload::Verified;
    use super::*;
    use artery_bench::cachegrind::Count;
    use artery_bench::results::Finding;

    /// Figures as the paper would have them, on eight processors.
    pub(crate) fn as_claimed() -> Figures {
        let mut figures =
            Figures { lines: [300, 100, 100], hand_over: Some((80.0, 15.0)), ..Figures::default() };
        for (engine, threads, driver) in points() {
            let n = threads as f64;
            let (rate, locked) = match engine {
                L => (1.0, 5.0 * n),
                S => (1.05, 5.0 * n),
                D => (0.5, 1.0),
                _ => (4.0 * n * 0.9, 0.1),
            };
            let point = Point { workload: Workload::W1, driver, threads, engine };
            figures.rates.insert(point, vec![rate; 5]);
            figures.watched.insert(point, Run { locked, locks: 5.0, rmw: 10.0, ..Run::default() });
        }
        for (engine, rate) in [(F, 3.0), (G, 3.5), (E, 4.0)] {
            let point = Point { workload: Workload::W3, driver: 0, threads: 1, engine };
            figures.rates.insert(point, vec![rate]);
        }
        let verified = Verified { packets: 1000, ..Verified::default() };
        for engine in EngineName::ALL {
            let stale = if engine == F { 400 } else { 0 };
            figures.verified.insert(engine, Verified { stale, ..verified });
            figures.writes.insert(engine, written(if matches!(engine, E | G) { 0 } else { 5 }));
            let count = |last| Count { instructions: 100.0, d1: 2.0, last };
            figures.misses.insert(("host", (Workload::W1, 0, engine)), count(0.0));
            figures.misses.insert(("host", (Workload::W3, 0, engine)), count(3.0));
        }
        for (engine, slow) in [(L, 60.0), (S, 1.0)] {
            figures.alone.insert(engine, [vec![9.8], vec![10.0]]);
            for (population, times) in POPULATIONS.into_iter().zip([50.0, 1.0, slow]) {
                figures.deletions.push((engine, population, vec![times; 3]));
            }
            for (neighbors, depth) in [(1000, 12.0), (64_000, if engine == L { 18.0 } else { 12.0 })] {
                figures.nodes.insert((Workload::Near, neighbors, engine), depth);
            }
        }
        figures
    }

    /// So many lines, with a read-modify-write for each.
    fn written(lines: usize) -> Writes {
        Writes { lines, stores: lines as f64, all: 50.0, modifying: lines as f64 }
    }

    fn points() -> impl Iterator<Item = (EngineName, usize, u32)> {
        let engines = EngineName::ALL.into_iter();
        engines.flat_map(|engine| [1, 2, 4, 8].into_iter().flat_map(move |n| DRIVERS.map(|d| (engine, n, d))))
    }

    fn failing(figures: &Figures) -> Vec<String> {
        let all = judge(figures, 8).into_iter();
        all.filter(|verdict| verdict.finding != Finding::Holds).map(|verdict| verdict.claim).collect()
    }

    #[test]
    fn figures_of_the_paper_bear_its_claims_out() {
        assert_eq!(failing(&as_claimed()), Vec::<String>::new());
    }

    /// Changes one thing, and says which claim falls.
    fn falls(change: impl FnOnce(&mut Figures)) -> String {
        let mut figures = as_claimed();
        change(&mut figures);
        failing(&figures).join("|")
    }

    #[test]
    fn every_claim_can_fall() {
        let w1 = |engine, threads, driver| Point { workload: Workload::W1, driver, threads, engine };
        let w3 = move |engine| Point { workload: Workload::W3, ..w1(engine, 1, 0) };
        type Change = Box<dyn FnOnce(&mut Figures)>;
        let cases: [(&str, Change); 17] = [
            ("within 10 %", Box::new(move |f| _ = f.rates.insert(w1(S, 4, 100), vec![1.2]))),
            ("neither gains", Box::new(move |f| _ = f.rates.insert(w1(L, 8, 0), vec![1.6]))),
            ("at least 0.7", Box::new(move |f| _ = f.rates.insert(w1(E, 8, 0), vec![20.0]))),
            ("the driver is the limit", Box::new(move |f| _ = f.rates.insert(w1(F, 8, 100), vec![20.0]))),
            (
                "rises with threads",
                Box::new(move |f| f.watched.get_mut(&w1(L, 8, 100)).unwrap().locked = 4.0),
            ),
            ("it stays small", Box::new(move |f| f.watched.get_mut(&w1(F, 4, 100)).unwrap().locked = 20.0)),
            ("lose to our tables", Box::new(move |f| _ = f.rates.insert(w3(F), vec![5.0]))),
            ("lose to our tables", Box::new(move |f| _ = f.rates.insert(w3(G), vec![5.0]))),
            ("a better route at once", Box::new(|f| f.verified.get_mut(&G).unwrap().stale = 1)),
            ("a better route at once", Box::new(|f| f.verified.get_mut(&F).unwrap().stale = 0)),
            (
                "at least a miss",
                Box::new(|f| f.misses.get_mut(&("host", (Workload::W3, 0, F))).unwrap().last = 0.5),
            ),
            ("the pipeline", Box::new(move |f| _ = f.rates.insert(w1(D, 1, 0), vec![1.2]))),
            ("no packet leaves", Box::new(|f| f.verified.get_mut(&P).unwrap().wrong = 1)),
            ("30 % less code", Box::new(|f| f.lines = [300, 150, 150])),
            ("stays small, and lookups", Box::new(|f| _ = f.nodes.insert((Workload::Near, 64_000, S), 13.0))),
            ("deleting a network", Box::new(|f| f.deletions[5].2 = vec![9.0])),
            ("locks cost less", Box::new(|f| _ = f.alone.insert(S, [vec![8.0], vec![10.0]]))),
        ];
        for (claim, change) in cases {
            let fallen = falls(change);
            assert!(fallen.contains(claim), "{claim}: {fallen}");
            assert!(!fallen.contains('|'), "{fallen}");
        }
        let writes = |engine, writes| move |f: &mut Figures| _ = f.writes.insert(engine, writes);
        for engine in [E, G] {
            assert_eq!(falls(writes(engine, written(1))).split('|').count(), 2);
            let modifying = Writes { modifying: 1.0, ..written(0) };
            assert!(falls(writes(engine, modifying)).contains("no atomic read-modify-write"));
        }
        let nothing = falls(writes(S, written(0)));
        assert!(nothing.contains("no cache line"), "nothing was looked at: {nothing}");
        assert!(nothing.contains("no lock"), "nothing was looked at: {nothing}");
    }

    #[test]
    fn what_was_not_measured_is_said_not_to_be() {
        let verdicts = judge(&Figures::default(), 2);
        assert!(verdicts.iter().all(|verdict| verdict.finding == Finding::NotMeasured), "{verdicts:?}");
    }
}
