//! What must hold, and whether it does: judged by figures alone.

use super::case::LADDER;
use super::figures::{By, CacheState, Figures, OFF, Order};
use super::published::RATES;
use artery_bench::results::{Finding, Summary, Verdict, number};

/// Misses that are none: what simulated caches leave to chance.
const NO_MISSES: f64 = 0.05;
/// Times closer than this are the same: machines that others use too are no more exact.
const SAME: f64 = 1.05;

/// Judges all that must hold.
pub(super) fn judge(figures: &Figures) -> Vec<Verdict> {
    vec![
        first_touch(figures),
        rising_misses(figures),
        rising_times(figures),
        half_of_misses(figures),
        half_of_time(figures),
        few_misses(
            figures,
            CacheState::Prefetched,
            4.0,
            "the full path has at most 4 D1 misses at batch 32 with prefetch",
        ),
        few_misses(
            figures,
            CacheState::Cold,
            8.0,
            "the full path has at most 8 D1 misses at batch 32 without prefetch",
        ),
        falling_idle(figures),
        exact_counters(figures),
        fifo_misses(figures),
        fifo_times(figures),
        Verdict::new(
            "builds for one thread and for several differ by less than 5 %",
            Finding::NotMeasured,
            "there is one build, and no lock on a packet's way in it",
        ),
    ]
}

/// A claim that must hold for every counter of misses.
fn whoever_counts(
    figures: &Figures,
    claim: &'static str,
    judge: impl Fn(By) -> Option<(bool, String)>,
) -> Verdict {
    let judged: Vec<(By, bool, String)> = figures
        .counters()
        .into_iter()
        .filter_map(|by| judge(by).map(|(holds, why)| (by, holds, why)))
        .collect();
    let finding = match judged.as_slice() {
        [] => Finding::NotMeasured,
        all => all.iter().all(|(_, holds, _)| *holds).into(),
    };
    let reasons = judged.iter().map(|(by, _, why)| format!("{}: {why}", by.name()));
    let why = reasons.collect::<Vec<_>>().join("; ");
    let why = if why.is_empty() { "misses could not be counted".into() } else { why };
    Verdict::new(claim, finding, why)
}

fn judged(claim: &'static str, found: Option<(bool, String)>) -> Verdict {
    Verdict::judged(claim, found, "figures are missing")
}

fn first_touch(figures: &Figures) -> Verdict {
    whoever_counts(figures, "l1 misses once more than l0: the header of a cold packet", |by| {
        let (l0, l1) = (figures.d1(by, CacheState::Cold, 0)?, figures.d1(by, CacheState::Cold, 1)?);
        let why = format!("{l1:.2} - {:.2} = {:.2}", l0.max(0.0), l1 - l0);
        Some(((0.5..=1.5).contains(&(l1 - l0)), why))
    })
}

fn rising_misses(figures: &Figures) -> Verdict {
    whoever_counts(figures, "misses never fall up the ladder, cold", |by| {
        let steps = figures.ladder(|rung| figures.d1(by, CacheState::Cold, rung))?;
        Some(rising(&steps, |low, high| high >= low - NO_MISSES))
    })
}

fn rising_times(figures: &Figures) -> Verdict {
    let steps = figures.ladder(|rung| figures.least(CacheState::Cold, rung));
    let found = steps.map(|steps| rising(&steps, |low, high| high >= low / SAME));
    judged("times never fall up the ladder, cold, by least times", found)
}

/// Whether every step is well with the next; the figures, and the steps where it is not.
fn rising(steps: &[f64], is_well: impl Fn(f64, f64) -> bool) -> (bool, String) {
    let figures = steps.iter().map(|step| number(step.max(0.0))).collect::<Vec<_>>().join(", ");
    let bad: Vec<String> = (1..steps.len())
        .filter(|&n| !is_well(steps[n - 1], steps[n]))
        .map(|n| format!("{} is below {}", LADDER[n], LADDER[n - 1]))
        .collect();
    let falls = if bad.is_empty() { String::new() } else { format!(" ({})", bad.join(", ")) };
    (bad.is_empty(), figures + &falls)
}

fn half_of_misses(figures: &Figures) -> Verdict {
    whoever_counts(figures, "l1 has at most half of the full path's misses, cold", |by| {
        let (l1, off) = (figures.d1(by, CacheState::Cold, 1)?, figures.d1(by, CacheState::Cold, OFF)?);
        let all = format!("{l1:.2} of {off:.2}");
        // Where it does not hold, is the shorter way so long, or the rest so short?
        let why = match l1 <= off / 2.0 {
            true => all,
            false => format!("{all}, since what comes after l1 adds {:.2} only", off - l1),
        };
        Some((l1 <= off / 2.0, why))
    })
}

fn half_of_time(figures: &Figures) -> Verdict {
    let found = figures.least(CacheState::Cold, 1).zip(figures.least(CacheState::Cold, OFF));
    let found = found.map(|(l1, off)| (l1 <= off / 2.0, format!("{} of {} ns", number(l1), number(off))));
    judged("l1 takes at most half of the full path's time, cold, by least times", found)
}

fn few_misses(figures: &Figures, way: CacheState, most: f64, claim: &'static str) -> Verdict {
    whoever_counts(figures, claim, |by| {
        // Cachegrind takes no notice of prefetches: what it counts without them counts for both.
        let counted = if matches!(by, By::Cachegrind(_)) { CacheState::Cold } else { way };
        let misses = figures.d1(by, counted, OFF)?;
        let how = if counted == way { "" } else { ", prefetches not counted" };
        Some((misses <= most, format!("{}{how}", number(misses))))
    })
}

fn falling_idle(figures: &Figures) -> Verdict {
    let mut reasons = Vec::new();
    let mut holds = true;
    for rate in RATES {
        let idle = [0, 1, OFF].map(|rung| figures.idle(rate, rung));
        let [Some(l0), Some(l1), Some(off)] = idle else { continue };
        holds &= l0 >= l1 / SAME && l1 > off;
        reasons.push(format!("{rate} kpps: {l0:.1}, {l1:.1}, {off:.1} %"));
    }
    let found = (!reasons.is_empty()).then(|| (holds, reasons.join("; ")));
    judged("l0 idles as much as l1, and l1 more than the full path", found)
}

fn exact_counters(figures: &Figures) -> Verdict {
    let audit = figures.audit;
    let why = format!(
        "in {} of {} runs packets and bytes of the port are those of the card, {} packets in all",
        audit.exact,
        audit.runs,
        number(audit.packets as f64)
    );
    judged(
        "ports count packets and bytes exactly in every mode",
        (audit.runs > 0).then_some((audit.exact == audit.runs, why)),
    )
}

fn fifo_misses(figures: &Figures) -> Verdict {
    whoever_counts(
        figures,
        "buffers taken in the order of their return miss more than those freed last",
        |by| {
            let of = |order| Some(figures.buffer_misses.get(&(by, order))?.d1);
            let (lifo, fifo) = (of(Order::Lifo)?, of(Order::Fifo)?);
            Some((fifo > lifo + NO_MISSES, format!("{} and {}", number(fifo), number(lifo))))
        },
    )
}

fn fifo_times(figures: &Figures) -> Verdict {
    let least = |order| Some(Summary::of(figures.buffers.get(&order)?).min);
    let found = least(Order::Lifo).zip(least(Order::Fifo));
    let found =
        found.map(|(lifo, fifo)| (fifo > lifo * SAME, format!("{} and {} ns", number(fifo), number(lifo))));
    judged("they take longer too, by least times", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misses2008::figures::Misses;

    const K8: By = By::Cachegrind("k8");

    /// Figures with which all holds.
    fn figures() -> Figures {
        let mut figures = Figures::default();
        for (rung, depth) in LADDER.into_iter().enumerate() {
            let step = rung as f64;
            figures.times.insert((CacheState::Cold, rung), vec![10.0 + 20.0 * step, 200.0]);
            figures.misses.insert((K8, CacheState::Cold, depth), Misses { d1: 0.5 + step, last: None });
            for rate in RATES {
                figures.idle.insert((rate, rung), vec![(99.0 - step, 1.0)]);
            }
        }
        // The full path is at 5.5 misses: fine without prefetch, too much with.
        for (order, size) in [(Order::Lifo, 1.0), (Order::Fifo, 2.0)] {
            figures.buffers.insert(order, vec![50.0 * size]);
            figures.buffer_misses.insert((K8, order), Misses { d1: size, last: None });
        }
        figures.audit.runs = 3;
        figures.audit.exact = 3;
        figures
    }

    fn finding(figures: &Figures, claim: &str) -> Finding {
        let all = judge(figures);
        let mut found = all.iter().filter(|verdict| verdict.claim.starts_with(claim));
        let verdict = found.next().unwrap_or_else(|| panic!("no claim begins with {claim}"));
        verdict.finding
    }

    #[test]
    fn what_figures_bear_out_holds() {
        let all = judge(&figures());
        let held = all.iter().filter(|verdict| verdict.finding == Finding::Holds).count();
        assert_eq!(held, 10, "{all:#?}");
        assert_eq!(finding(&figures(), "the full path has at most 4"), Finding::DoesNotHold);
        assert_eq!(finding(&figures(), "builds"), Finding::NotMeasured);
    }

    #[test]
    fn each_claim_falls_with_its_own_figures() {
        type Change = fn(&mut Figures);
        let changes: [(&str, Change); 10] = [
            ("l1 misses once", |f| f.misses.get_mut(&(K8, CacheState::Cold, "l1")).unwrap().d1 = 3.1),
            ("misses never fall", |f| f.misses.get_mut(&(K8, CacheState::Cold, "l3")).unwrap().d1 = 1.0),
            ("times never fall", |f| f.times.get_mut(&(CacheState::Cold, 2)).unwrap()[0] = 12.0),
            ("l1 has at most half", |f| f.misses.get_mut(&(K8, CacheState::Cold, "l1")).unwrap().d1 = 4.0),
            ("l1 takes at most half", |f| f.times.get_mut(&(CacheState::Cold, 1)).unwrap()[0] = 70.0),
            ("the full path has at most 8", |f| {
                f.misses.get_mut(&(K8, CacheState::Cold, "off")).unwrap().d1 = 8.5
            }),
            ("l0 idles", |f| f.idle.get_mut(&(580, OFF)).unwrap()[0].0 = 99.9),
            ("ports count", |f| f.audit.exact -= 1),
            ("buffers taken", |f| f.buffer_misses.get_mut(&(K8, Order::Fifo)).unwrap().d1 = 1.0),
            ("they take longer", |f| f.buffers.get_mut(&Order::Fifo).unwrap()[0] = 51.0),
        ];
        for (claim, change) in changes {
            let mut figures = figures();
            assert_eq!(finding(&figures, claim), Finding::Holds, "{claim}");
            change(&mut figures);
            assert_eq!(finding(&figures, claim), Finding::DoesNotHold, "{claim}");
        }
    }

    #[test]
    fn nothing_is_said_of_what_was_not_measured() {
        let none = Figures::default();
        assert!(judge(&none).iter().all(|verdict| verdict.finding == Finding::NotMeasured));
    }

    #[test]
    fn a_counter_that_sees_prefetches_is_judged_with_them() {
        let mut figures = figures();
        figures.misses.clear();
        let miss = |d1| Misses { d1, last: None };
        figures.misses.insert((By::Processor, CacheState::Cold, "off"), miss(6.0));
        figures.misses.insert((By::Processor, CacheState::Prefetched, "off"), miss(3.0));
        assert_eq!(finding(&figures, "the full path has at most 4"), Finding::Holds);
        assert_eq!(finding(&figures, "the full path has at most 8"), Finding::Holds);
    }
}
